#include "frontend/Builders.h"

#include <numeric>

namespace gpt2c::onnxops {

/// y = alpha A' B' + beta C, where A' is A or its transpose.
void gemm(NodeLowering &n) {
  Value *a = n.in(0), *b = n.in(1);
  if (n.failed())
    return;
  if (a->type.rank() != 2 || b->type.rank() != 2) {
    n.invalid("A and B must be matrices, they are " + a->type.str() + " and " + b->type.str());
    return;
  }
  if (n.intAttr("transA", 0))
    a = n.transpose(a, {1, 0});
  if (n.intAttr("transB", 0))
    b = n.transpose(b, {1, 0});
  double alpha = n.floatAttr("alpha", 1), beta = n.floatAttr("beta", 1);
  Value *y = n.matmul(a, b);
  if (alpha != 1)
    y = n.mul(y, n.scalarLike(alpha, y));
  if (Value *c = n.optional(2); c && beta != 0)
    y = n.add(y, beta == 1 ? c : n.mul(c, n.scalarLike(beta, c)));
  n.out(y);
}

/// alpha A' B' with batched operands; the last two axes are exchanged where asked.
void fusedMatMul(NodeLowering &n) {
  if (n.intAttr("transBatchA", 0) || n.intAttr("transBatchB", 0)) {
    n.unsupported("transBatchA and transBatchB are not supported");
    return;
  }
  auto operand = [&](unsigned i, llvm::StringRef flag) -> Value * {
    Value *v = n.in(i);
    if (n.failed() || !n.intAttr(flag, 0) || v->type.rank() < 2)
      return v;
    std::vector<int64_t> perm(v->type.rank());
    std::iota(perm.begin(), perm.end(), 0);
    std::swap(perm[perm.size() - 1], perm[perm.size() - 2]);
    return n.transpose(v, perm);
  };
  Value *a = operand(0, "transA"), *b = operand(1, "transB");
  Value *y = n.matmul(a, b);
  if (double alpha = n.floatAttr("alpha", 1); alpha != 1)
    y = n.mul(y, n.scalarLike(alpha, y));
  n.out(y);
}

} // namespace gpt2c::onnxops
