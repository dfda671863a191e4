#include "ir/ops/Common.h"

#include <cmath>

namespace gpt2c {

static llvm::Error inferMaskedSoftmax(InferContext &c) {
  using enum ops::MaskedSoftmax::Operand;
  if (c.rank(X) != 4 || !isFloat(c.dtype(X)))
    return c.error("expects scores x[b, H, s, t] of a floating-point element type");
  llvm::ArrayRef<Dim> shape = c.shape(X);
  if (c.has(KeyMask)) {
    bool known = c.dtype(KeyMask) == DType::Bool || c.dtype(KeyMask) == DType::I32 ||
                 c.dtype(KeyMask) == DType::I64;
    if (c.rank(KeyMask) != 2 || !known)
      return c.error("expects key_mask[b, t] of bool, i32 or i64");
    for (auto [axis, of] : {std::pair(0, 0), {1, 3}})
      if (auto d = c.unify(shape[of], c.shape(KeyMask)[axis]); !d)
        return d.takeError();
  }
  if (c.has(Bias)) {
    if (c.rank(Bias) != 4 || c.dtype(Bias) != c.dtype(X))
      return c.error("expects bias[b, H, s, t], each 1 where it is the same for all");
    for (unsigned i = 0; i < 4; ++i)
      if (c.shape(Bias)[i] != Dim(1))
        if (auto d = c.unify(shape[i], c.shape(Bias)[i]); !d)
          return d.takeError();
  }
  c.setResult(c.dtype(X), Shape(shape));
  return llvm::Error::success();
}

static llvm::Error evalMaskedSoftmax(EvalContext &c) {
  using enum ops::MaskedSoftmax::Operand;
  const Tensor &x = c.input(X);
  const int64_t batch = x.dim(0), heads = x.dim(1), queries = x.dim(2), keys = x.dim(3);
  const bool causal = c.op().boolAttr("causal");
  std::vector<int64_t> mask;
  if (c.has(KeyMask)) {
    if (c.input(KeyMask).count() != batch * keys)
      return c.error("key_mask does not fit");
    for (int64_t i = 0; i < batch * keys; ++i)
      mask.push_back(c.input(KeyMask).asInt(i));
  }
  llvm::SmallVector<int64_t, 4> biasStrides(4, 0); // 0 along axes of length 1
  if (c.has(Bias)) {
    auto strides = rowMajorStrides(c.input(Bias).shape());
    for (unsigned i = 0; i < 4; ++i) {
      int64_t size = c.input(Bias).dim(i);
      if (size != 1 && size != x.dim(i))
        return c.error("bias does not fit");
      biasStrides[i] = size == 1 ? 0 : strides[i];
    }
  }
  Tensor &out = c.allocate(x.shape());
  return dispatchFloat(c, x.dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    const T scale = static_cast<T>(c.op().floatAttr("scale"));
    std::vector<T> scores(keys); // -infinity hides
    for (int64_t row = 0; row < batch * heads * queries; ++row) {
      const int64_t q = row % queries, h = row / queries % heads, b = row / queries / heads;
      const T *from = x.data<T>() + row * keys;
      T *to = out.data<T>() + row * keys, top = -std::numeric_limits<T>::infinity(), sum = 0;
      const int64_t bias = b * biasStrides[0] + h * biasStrides[1] + q * biasStrides[2];
      for (int64_t k = 0; k < keys; ++k) {
        bool hidden =
            (causal && k > keys - queries + q) || (c.has(KeyMask) && mask[b * keys + k] == 0);
        T added = c.has(Bias) ? c.input(Bias).data<T>()[bias + k * biasStrides[3]] : T(0);
        scores[k] = hidden ? -std::numeric_limits<T>::infinity() : scale * from[k] + added;
        top = std::max(top, scores[k]);
      }
      if (top == -std::numeric_limits<T>::infinity())
        top = 0; // no key is seen, or all scores are NaN
      for (T &s : scores)
        sum += s = std::exp(s - top);
      for (int64_t k = 0; k < keys; ++k)
        to[k] = scores[k] == 0 ? T(0) : scores[k] / sum;
    }
    return llvm::Error::success();
  });
}

/// Keys that no query may see are not read, but their zeros are written.
static Cost costMaskedSoftmax(const Op &op) {
  using enum ops::MaskedSoftmax::Operand;
  const Shape &s = op.operand(X)->type.shape;
  Dim all = elementCount(s), bytes = ioBytes(op);
  if (op.boolAttr("causal")) {
    // Query q of s leaves s - 1 - q keys out: s (s - 1) / 2 of a head, each of an even size.
    Dim hidden = s[0] * s[1] * s[2] * (s[2] - Dim(1));
    bytes = bytes - hidden * Dim(byteSize(op.operand(X)->type.dtype) / 2);
  }
  return {Dim(5) * all, bytes};
}

const OpInfo opMaskedSoftmax = {
    .code = OpCode::MaskedSoftmax,
    .mnemonic = "masked_softmax",
    .summary =
        "y = softmax(scale x + bias) over the keys that a query sees, 0 for the others: of t "
        "keys query s of S sees j <= t - S + s when causal, and those whose key_mask is not "
        "0; a query that sees none, or only such of bias -inf, gives zeros",
    .operands = {{"x"}, {"key_mask", OperandSpec::Optional}, {"bias", OperandSpec::Optional}},
    .attrs = {{"scale", AttrKind::Float, Attr(1.0)}, {"causal", AttrKind::Bool, Attr(false)}},
    .infer = inferMaskedSoftmax,
    .eval = evalMaskedSoftmax,
    .cost = costMaskedSoftmax,
};

} // namespace gpt2c
