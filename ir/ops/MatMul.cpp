#include "ir/ops/Blas.h"
#include "ir/ops/Common.h"

namespace gpt2c {

/// Shapes with a vector operand seen as a one-row or one-column matrix.
template <typename D>
static std::pair<llvm::SmallVector<D, 4>, llvm::SmallVector<D, 4>> asMatrices(llvm::ArrayRef<D> a,
                                                                              llvm::ArrayRef<D> b) {
  llvm::SmallVector<D, 4> x(a), y(b);
  if (x.size() == 1)
    x.insert(x.begin(), D(1));
  if (y.size() == 1)
    y.push_back(D(1));
  return {x, y};
}

/// The result shape for vectors: without the axis that was added.
template <typename S> static void dropAdded(S &shape, size_t rankA, size_t rankB) {
  if (rankB == 1)
    shape.pop_back();
  if (rankA == 1)
    shape.erase(shape.end() - (rankB == 1 ? 1 : 2));
}

static llvm::Error inferMatMul(InferContext &c) {
  using enum ops::MatMul::Operand;
  if (c.dtype(A) != c.dtype(B) || c.dtype(A) == DType::Bool)
    return c.error("expects two operands of one numeric element type");
  if (c.rank(A) == 0 || c.rank(B) == 0)
    return c.error("expects vectors or matrices");
  auto [a, b] = asMatrices<Dim>(c.shape(A), c.shape(B));
  if (auto k = c.unify(a.back(), b[b.size() - 2]); !k)
    return k.takeError();
  auto shape = c.broadcast(llvm::ArrayRef(a).drop_back(2), llvm::ArrayRef(b).drop_back(2));
  if (!shape)
    return shape.takeError();
  shape->append({a[a.size() - 2], b.back()});
  dropAdded(*shape, c.rank(A), c.rank(B));
  c.setResult(c.dtype(A), std::move(*shape));
  return llvm::Error::success();
}

template <typename T>
static void multiply(int64_t m, int64_t n, int64_t k, const T *a, const T *b, T *out) {
  if constexpr (std::is_floating_point_v<T>) {
    matrixProduct<T>({a, k}, {b, n}, {out, n}, m, n, k, false);
  } else {
    std::fill_n(out, m * n, T(0));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t l = 0; l < k; ++l)
        for (int64_t j = 0; j < n; ++j)
          out[i * n + j] = wrapAdd(out[i * n + j], wrapMul(a[i * k + l], b[l * n + j]));
  }
}

static llvm::Error evalMatMul(EvalContext &c) {
  using enum ops::MatMul::Operand;
  auto [a, b] = asMatrices<int64_t>(c.input(A).shape(), c.input(B).shape());
  int64_t m = a[a.size() - 2], k = a.back(), n = b.back();
  auto batchA = llvm::ArrayRef(a).drop_back(2), batchB = llvm::ArrayRef(b).drop_back(2);
  auto shape = broadcastShapes(batchA, batchB);
  if (!shape || b[b.size() - 2] != k)
    return c.error("shapes do not fit");
  auto batch = *shape;
  shape->append({m, n});
  dropAdded(*shape, c.input(A).rank(), c.input(B).rank());
  Tensor &out = c.allocate(*shape);
  if (product(batchB) == 1) { // one product of all rows
    m *= product(batchA);
    batch.assign(1, 1);
    batchA = batchB = {};
  }
  return dispatch(c, c.input(A).dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    forEachBroadcast(batch, {batchA, batchB}, [&](int64_t o, llvm::ArrayRef<int64_t> i) {
      multiply(m, n, k, c.input(A).data<T>() + i[0] * m * k, c.input(B).data<T>() + i[1] * k * n,
               out.data<T>() + o * m * n);
    });
    return llvm::Error::success();
  });
}

static Cost costMatMul(const Op &op) {
  using enum ops::MatMul::Operand;
  return {Dim(2) * elementCount(op.result()->type.shape) * op.operand(A)->type.shape.back(),
          ioBytes(op)};
}

const OpInfo opMatMul = {
    .code = OpCode::MatMul,
    .mnemonic = "matmul",
    .summary =
        "y = a b over the last two axes, the others broadcast; a vector is one row or column",
    .operands = {{"a"}, {"b"}},
    .infer = inferMatMul,
    .eval = evalMatMul,
    .cost = costMatMul,
};

} // namespace gpt2c
