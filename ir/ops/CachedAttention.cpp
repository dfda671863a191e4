#include "ir/ops/AppendAttention.h"
#include "ir/ops/AttentionHead.h"
#include "ir/ops/Common.h"

namespace gpt2c {

// The state is kv[layer, 2, slot, head, position, d]: keys at 0, values at 1 of the second axis.

static llvm::Error inferCachedAttention(InferContext &c) {
  using enum ops::CachedAttention::Operand;
  if (c.rank(Q) != 3 || c.rank(Kv) != 6 || c.rank(Past) != 1)
    return c.error("expects q[b, s, H*d], kv[L, 2, slots, G, C, d] and past[b]");
  if (!isFloat(c.dtype(Q)) || !isFloat(c.dtype(Kv)) || !isInteger(c.dtype(Past)))
    return c.error("expects floating-point q and kv and an integer past");
  auto layers = c.shape(Kv)[0].constant();
  int64_t layer = c.op().intAttr("layer"), heads = c.op().intAttr("num_heads");
  if (layer < 0 || (layers && layer >= *layers))
    return c.error("there is no layer " + llvm::Twine(layer));
  if (c.op().intAttr("window") < 0)
    return c.error("a window is a number of keys");
  if (llvm::Error e = checkKeyHeads(c, heads, c.shape(Kv)[3]))
    return e;
  if (auto width = c.unify(Dim(heads) * c.shape(Kv)[5], c.shape(Q)[2]); !width)
    return width.takeError();
  if (c.has(KeyMask) && (c.rank(KeyMask) != 2 || !isInteger(c.dtype(KeyMask))))
    return c.error("expects key_mask[b, t] of integers");
  return inferSameAsOperand(c);
}

static llvm::Error evalCachedAttention(EvalContext &c) {
  using enum ops::CachedAttention::Operand;
  const Tensor &q = c.input(Q), &kv = c.input(Kv);
  int64_t batch = q.dim(0), seq = q.dim(1), width = q.dim(2), layer = c.op().intAttr("layer");
  int64_t slots = kv.dim(2), keyHeads = kv.dim(3), context = kv.dim(4), d = kv.dim(5);
  int64_t heads = c.op().intAttr("num_heads");
  if (batch > slots || width != heads * d || keyHeads == 0 || heads % keyHeads != 0 ||
      c.input(Past).count() != batch || kv.dim(1) != 2 || layer >= kv.dim(0))
    return c.error("shapes do not fit");
  std::vector<int64_t> past = c.ints(Past), mask;
  int64_t masked = 0;
  if (c.has(KeyMask)) {
    if (c.input(KeyMask).dim(0) != batch)
      return c.error("key_mask does not fit");
    mask = c.ints(KeyMask);
    masked = c.input(KeyMask).dim(1);
  }
  for (int64_t p : past)
    if (p < 0 || p + seq > context || (c.has(KeyMask) && p + seq > masked))
      return c.error("positions " + llvm::Twine(p) + " to " + llvm::Twine(p + seq) +
                     " exceed the context or the mask");
  Tensor &out = c.allocate(q.shape());
  return dispatchFloat(c, q.dtype(), [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    std::vector<T> scratch;
    const T *state = kv.data<T>();
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h) {
        int64_t keyHead = h / (heads / keyHeads);
        int64_t at = (((layer * 2) * slots + b) * keyHeads + keyHead) * context * d;
        KeyRun<T> run{state + at, state + at + slots * keyHeads * context * d, past[b] + seq, d};
        int64_t row = b * seq * width + h * d;
        attentionHead<T>({q.data<T>() + row, out.data<T>() + row, seq, width, width}, run, d,
                         scoreForm<T>(c.op()),
                         {true, past[b], c.op().intAttr("window"),
                          mask.empty() ? nullptr : mask.data() + b * masked},
                         scratch);
      }
    return llvm::Error::success();
  });
}

/// Every position of the context counts: how many are filled is known at run time only.
static Cost costCachedAttention(const Op &op) {
  using enum ops::CachedAttention::Operand;
  const Type &q = op.operand(Q)->type, &kv = op.operand(Kv)->type;
  Dim positions = kv.shape[4];
  return {Dim(4) * elementCount(q.shape) * positions,
          Dim(2 * byteSize(q.dtype)) * elementCount(q.shape) +
              Dim(2 * byteSize(kv.dtype)) * q.shape[0] * kv.shape[3] * kv.shape[5] * positions};
}

const OpInfo opCachedAttention = {
    .code = OpCode::CachedAttention,
    .mnemonic = "cached_attention",
    .summary = "y = softmax(scale q k^T) v per head over positions j <= past[b] + s, with a window "
               "j > past[b] + s - window, of a layer's "
               "state whose key_mask is "
               "not 0; a query that sees none gives zeros. H heads of q share the state's G heads: "
               "head h reads h / (H / G)",
    .operands = {{"q"}, {"kv"}, {"past"}, {"key_mask", OperandSpec::Optional}},
    .attrs = {{"layer", AttrKind::Int},
              {"num_heads", AttrKind::Int},
              {"scale", AttrKind::Float},
              windowAttr(),
              softCapAttr()},
    .infer = inferCachedAttention,
    .eval = evalCachedAttention,
    .cost = costCachedAttention,
};

} // namespace gpt2c
