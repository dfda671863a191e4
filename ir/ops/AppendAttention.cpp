#include "ir/ops/AttentionHead.h"
#include "ir/ops/Common.h"

#include <cstring>

namespace gpt2c {

// The state is kv[layer, 2, slot, head, position, d]: keys at 0, values at 1 of the second axis.

static llvm::Error infer(InferContext &c) {
  if (c.rank(0) != 6 || c.rank(1) != 3 || c.rank(2) != 1)
    return c.error("expects kv[L, 2, slots, H, C, d], qkv[b, s, 3*H*d] and past[b]");
  if (!isFloat(c.dtype(0)) || !isFloat(c.dtype(1)) || !isInteger(c.dtype(2)))
    return c.error("expects floating-point kv and qkv and an integer past");
  auto layers = c.shape(0)[0].constant();
  int64_t layer = c.op().intAttr("layer"), heads = c.op().intAttr("num_heads");
  if (layer < 0 || (layers && layer >= *layers))
    return c.error("there is no layer " + llvm::Twine(layer));
  if (auto h = c.unify(c.shape(0)[3], Dim(heads)); !h)
    return h.takeError();
  Dim width = c.shape(0)[3] * c.shape(0)[5];
  if (auto packed = c.unify(Dim(3) * width, c.shape(1)[2]); !packed)
    return packed.takeError();
  if (c.has(3) && (c.rank(3) != 2 || !isInteger(c.dtype(3))))
    return c.error("expects key_mask[b, t] of integers");
  c.setResult(0, c.dtype(0), Shape(c.shape(0)));
  c.setResult(1, c.dtype(1), {c.shape(1)[0], c.shape(1)[1], width});
  return llvm::Error::success();
}

/// `count` elements as T, converted into `room` unless they are stored as T.
template <typename T>
static const T *asType(const Tensor &t, int64_t at, int64_t count, std::vector<T> &room) {
  if (t.dtype() == DTypeOf<T>::value)
    return t.data<T>() + at;
  room.resize(count);
  if (t.dtype() == DType::F16)
    for (int64_t i = 0; i < count; ++i)
      room[i] = halfToFloat(t.data<uint16_t>()[at + i]);
  else
    for (int64_t i = 0; i < count; ++i)
      room[i] = static_cast<T>(t.asDouble(at + i));
  return room.data();
}

template <typename T> static llvm::Error attend(EvalContext &c, Tensor kv, const Tensor &qkv) {
  int64_t batch = qkv.dim(0), seq = qkv.dim(1), width = qkv.dim(2) / 3,
          layer = c.op().intAttr("layer");
  int64_t slots = kv.dim(2), heads = kv.dim(3), context = kv.dim(4), d = kv.dim(5);
  std::vector<int64_t> past = c.ints(2), mask;
  int64_t masked = 0;
  if (c.has(3)) {
    mask = c.ints(3);
    masked = c.input(3).dim(1);
  }
  for (int64_t b = 0; b < batch; ++b)
    if (past[b] < 0 || past[b] + seq > context || (c.has(3) && past[b] + seq > masked))
      return c.error("positions " + llvm::Twine(past[b]) + " to " + llvm::Twine(past[b] + seq) +
                     " exceed the context or the mask");
  Tensor rows = qkv.cast(kv.dtype()), out(DTypeOf<T>::value, {batch, seq, width});
  Tensor wide = qkv.cast(DTypeOf<T>::value);
  int64_t element = byteSize(kv.dtype()), part = slots * heads * context * d;
  T scale = static_cast<T>(c.op().floatAttr("scale"));
  std::vector<T> scratch, keyRoom, valueRoom;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h) {
      int64_t at = layer * 2 * part + (b * heads + h) * context * d;
      for (int64_t which = 0; which < 2; ++which)
        for (int64_t s = 0; s < seq; ++s)
          std::memcpy(static_cast<char *>(kv.raw()) +
                          (at + which * part + (past[b] + s) * d) * element,
                      static_cast<const char *>(rows.raw()) +
                          ((b * seq + s) * 3 * width + (1 + which) * width + h * d) * element,
                      d * element);
      int64_t count = (past[b] + seq) * d;
      const T *keys = asType<T>(kv, at, count, keyRoom),
              *values = asType<T>(kv, at + part, count, valueRoom);
      KeyRun<T> run{keys, values, past[b] + seq, d};
      attentionHead<T>({wide.data<T>() + b * seq * 3 * width + h * d,
                        out.data<T>() + b * seq * width + h * d, seq, 3 * width, width},
                       run, d, scale,
                       {true, past[b], mask.empty() ? nullptr : mask.data() + b * masked}, scratch);
    }
  c.output(0) = kv;
  c.output(1) = out;
  return llvm::Error::success();
}

static llvm::Error eval(EvalContext &c) {
  const Tensor &kv = c.input(0), &qkv = c.input(1);
  int64_t batch = qkv.dim(0);
  if (batch > kv.dim(2) || qkv.dim(2) != 3 * kv.dim(3) * kv.dim(5) || c.input(2).count() != batch ||
      kv.dim(1) != 2 || c.op().intAttr("layer") >= kv.dim(0) ||
      (c.has(3) && c.input(3).dim(0) != batch))
    return c.error("shapes do not fit");
  return qkv.dtype() == DType::F64 ? attend<double>(c, kv, qkv) : attend<float>(c, kv, qkv);
}

/// Every position of the context counts: how many are filled is known at run time only.
static Cost cost(const Op &op) {
  const Type &kv = op.operand(0)->type, &qkv = op.operand(1)->type, &y = op.result(1)->type;
  Dim positions = kv.shape[4];
  return {Dim(4) * elementCount(y.shape) * positions,
          Dim(byteSize(qkv.dtype)) * (elementCount(qkv.shape) + elementCount(y.shape)) +
              Dim(2 * byteSize(kv.dtype)) * y.shape[0] * y.shape[2] * positions};
}

const OpInfo opAppendAttention = {
    .code = OpCode::AppendAttention,
    .mnemonic = "append_attention",
    .summary =
        "(kv', y): kv_append of the keys and values in qkv, then cached_attention of its queries",
    .operands = {{"kv"}, {"qkv"}, {"past"}, {"key_mask", OperandSpec::Optional}},
    .attrs = {{"layer", AttrKind::Int}, {"num_heads", AttrKind::Int}, {"scale", AttrKind::Float}},
    .numResults = 2,
    .traits = InPlace | OwnStorage,
    .infer = infer,
    .eval = eval,
    .cost = cost,
};

} // namespace gpt2c
