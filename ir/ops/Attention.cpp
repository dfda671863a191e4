#include "ir/ops/AttentionHead.h"
#include "ir/ops/Common.h"

namespace gpt2c {

static llvm::Error inferAttention(InferContext &c) {
  using enum ops::Attention::Operand;
  int64_t heads = c.op().intAttr("num_heads");
  for (unsigned i = 0; i < 3; ++i)
    if (c.rank(i) != 3 || !isFloat(c.dtype(i)) || c.dtype(i) != c.dtype(Q))
      return c.error(
          "expects q[b, s, H*d], k[b, t, G*d] and v[b, t, G*d] of one floating-point element type");
  auto width = c.shape(Q)[2].constant();
  if (heads <= 0 || (width && *width % heads != 0))
    return c.error("num_heads does not divide the width");
  if (c.op().intAttr("window") < 0 || (c.op().intAttr("window") && !c.op().boolAttr("causal")))
    return c.error("a window is a number of keys of causal attention");
  if (c.has(PastK) != c.has(PastV))
    return c.error("past_k and past_v come together");
  auto batch = c.unify(c.shape(Q)[0], c.shape(K)[0]);
  if (!batch)
    return batch.takeError();
  for (const auto &[a, b] :
       {std::pair(c.shape(K)[2], c.shape(V)[2]), std::pair(c.shape(K)[1], c.shape(V)[1])})
    if (auto d = c.unify(a, b); !d)
      return d.takeError();
  int64_t keyHeads = heads;
  auto keyWidth = c.shape(K)[2].constant();
  if (width && keyWidth) {
    if (*width == 0 || *keyWidth == 0 || *keyWidth % (*width / heads) != 0)
      return c.error("keys of width " + llvm::Twine(*keyWidth) +
                     " have no heads as wide as those "
                     "of queries of width " +
                     llvm::Twine(*width));
    keyHeads = *keyWidth / (*width / heads);
    if (heads % keyHeads != 0)
      return c.error(llvm::Twine(heads) + " heads cannot share " + llvm::Twine(keyHeads) +
                     " heads of keys and values evenly");
  } else if (auto d = c.unify(c.shape(Q)[2], c.shape(K)[2]); !d) {
    return d.takeError();
  }
  Dim total = c.shape(K)[1];
  if (c.has(PastK)) {
    if (c.rank(PastK) != 4 || c.rank(PastV) != 4 || c.dtype(PastK) != c.dtype(Q) ||
        c.dtype(PastV) != c.dtype(Q))
      return c.error("expects past_k[b, G, p, d] and past_v[b, G, p, d]");
    if (auto h = c.unify(c.shape(PastK)[1], Dim(keyHeads)); !h)
      return h.takeError();
    total = total + c.shape(PastK)[2];
  }
  if (c.has(KeyMask)) {
    DType mask = c.dtype(KeyMask);
    if (c.rank(KeyMask) != 2 || (mask != DType::I64 && mask != DType::I32 && mask != DType::Bool))
      return c.error("expects key_mask[b, p+t] of i32, i64 or bool");
    if (auto t = c.unify(total, c.shape(KeyMask)[1]); !t)
      return t.takeError();
  }
  if (c.has(Bias)) {
    if (c.rank(Bias) != 4 || c.dtype(Bias) != c.dtype(Q))
      return c.error("expects bias[b, H, s, p+t], each 1 where it is the same for all");
    const Dim sizes[] = {*batch, Dim(heads), c.shape(Q)[1], total};
    for (unsigned i = 0; i < 4; ++i)
      if (c.shape(Bias)[i] != Dim(1))
        if (auto d = c.unify(sizes[i], c.shape(Bias)[i]); !d)
          return d.takeError();
  }
  c.setResult(c.dtype(Q), {*batch, c.shape(Q)[1], c.shape(Q)[2]});
  return llvm::Error::success();
}

static llvm::Error evalAttention(EvalContext &c) {
  using enum ops::Attention::Operand;
  const Tensor &q = c.input(Q), &k = c.input(K), &v = c.input(V);
  int64_t batch = q.dim(0), seq = q.dim(1), width = q.dim(2), keys = k.dim(1);
  int64_t heads = c.op().intAttr("num_heads"), d = width / heads;
  bool causal = c.op().boolAttr("causal"), hasPast = c.has(PastK);
  int64_t past = hasPast ? c.input(PastK).dim(2) : 0, total = past + keys;
  int64_t keyWidth = k.dim(2), keyHeads = d ? keyWidth / d : 0;
  if (width % heads != 0 || k.shape() != v.shape() || k.dim(0) != batch || keyHeads == 0 ||
      keyWidth % d != 0 || heads % keyHeads != 0 ||
      (hasPast && (c.input(PastK).shape() != c.input(PastV).shape() ||
                   c.input(PastK).shape() != llvm::ArrayRef<int64_t>({batch, keyHeads, past, d}))))
    return c.error("shapes do not fit");
  std::vector<int64_t> mask;
  if (c.has(KeyMask)) {
    if (c.input(KeyMask).count() != batch * total)
      return c.error("key_mask does not fit");
    mask = c.ints(KeyMask);
  }
  llvm::SmallVector<int64_t, 4> biasStrides(4, 0); // 0 along axes of length 1
  if (c.has(Bias)) {
    const Tensor &bias = c.input(Bias);
    auto strides = rowMajorStrides(bias.shape());
    const int64_t sizes[] = {batch, heads, seq, total};
    for (unsigned i = 0; i < 4; ++i) {
      if (bias.dim(i) != 1 && bias.dim(i) != sizes[i])
        return c.error("bias does not fit");
      biasStrides[i] = bias.dim(i) == 1 ? 0 : strides[i];
    }
  }
  Tensor &out = c.allocate(q.shape());
  return dispatchFloat(c, q.dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    std::vector<T> scratch;
    auto form = [&](int64_t b, int64_t h) {
      ScoreForm<T> of = scoreForm<T>(c.op());
      if (c.has(Bias))
        of.bias = c.input(Bias).data<T>() + b * biasStrides[0] + h * biasStrides[1],
        of.row = biasStrides[2], of.key = biasStrides[3];
      return of;
    };
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h) {
        llvm::SmallVector<KeyRun<T>, 2> runs;
        int64_t keyHead = h / (heads / keyHeads);
        if (hasPast) {
          int64_t at = (b * keyHeads + keyHead) * past * d;
          runs.push_back({c.input(PastK).data<T>() + at, c.input(PastV).data<T>() + at, past, d});
        }
        int64_t at = b * keys * keyWidth + keyHead * d;
        runs.push_back({k.data<T>() + at, v.data<T>() + at, keys, keyWidth});
        int64_t row = b * seq * width + h * d;
        attentionHead<T>({q.data<T>() + row, out.data<T>() + row, seq, width, width}, runs, d,
                         form(b, h),
                         {causal, past, c.op().intAttr("window"),
                          mask.empty() ? nullptr : mask.data() + b * total},
                         scratch);
      }
    return llvm::Error::success();
  });
}

/// Two products over every pair of query and key, hidden or not.
static Cost costAttention(const Op &op) {
  using enum ops::Attention::Operand;
  Dim keys = op.operand(K)->type.shape[1];
  if (op.operand(PastK))
    keys = keys + op.operand(PastK)->type.shape[2];
  return {Dim(4) * elementCount(op.operand(Q)->type.shape) * keys, ioBytes(op)};
}

const OpInfo opAttention = {
    .code = OpCode::Attention,
    .mnemonic = "attention",
    .summary =
        "y = softmax(scale q k^T + bias) v per head; keys are past then k; query s sees keys "
        "j <= p + s when causal, with a window j > p + s - window, and those whose key_mask is not "
        "0; a query that sees none "
        "gives zeros. H heads of q share G heads of k and v: head h reads h / (H / G)",
    .operands = {{"q"},
                 {"k"},
                 {"v"},
                 {"past_k", OperandSpec::Optional},
                 {"past_v", OperandSpec::Optional},
                 {"key_mask", OperandSpec::Optional},
                 {"bias", OperandSpec::Optional}},
    .attrs = {{"num_heads", AttrKind::Int},
              {"scale", AttrKind::Float},
              {"causal", AttrKind::Bool},
              windowAttr(),
              softCapAttr()},
    .infer = inferAttention,
    .eval = evalAttention,
    .cost = costAttention,
};

} // namespace gpt2c
