#include "ir/ops/Common.h"

#include <cstring>

namespace gpt2c {

// The state is kv[layer, 2, slot, head, position, d]: keys at 0, values at 1 of the second axis.

static llvm::Error inferKvAppend(InferContext &c) {
  using enum ops::KvAppend::Operand;
  if (c.rank(Kv) != 6 || c.rank(K) != 3 || c.rank(V) != 3 || c.rank(Past) != 1)
    return c.error("expects kv[L, 2, slots, G, C, d], k[b, s, G*d], v[b, s, G*d] and past[b]");
  if (!isFloat(c.dtype(Kv)) || !isFloat(c.dtype(K)) || c.dtype(K) != c.dtype(V) ||
      !isInteger(c.dtype(Past)))
    return c.error("expects floating-point kv, k and v and an integer past");
  auto layers = c.shape(Kv)[0].constant();
  int64_t layer = c.op().intAttr("layer");
  if (layer < 0 || (layers && layer >= *layers))
    return c.error("there is no layer " + llvm::Twine(layer));
  if (auto width = c.unify(c.shape(Kv)[3] * c.shape(Kv)[5], c.shape(K)[2]); !width)
    return width.takeError();
  return inferSameAsOperand(c);
}

static llvm::Error evalKvAppend(EvalContext &c) {
  using enum ops::KvAppend::Operand;
  Tensor kv = c.input(Kv);
  int64_t slots = kv.dim(2), heads = kv.dim(3), context = kv.dim(4), d = kv.dim(5);
  int64_t batch = c.input(K).dim(0), seq = c.input(K).dim(1), layer = c.op().intAttr("layer");
  if (batch > slots || c.input(K).dim(2) != heads * d || c.input(V).shape() != c.input(K).shape() ||
      c.input(Past).count() != batch || kv.dim(1) != 2 || layer >= kv.dim(0))
    return c.error("shapes do not fit");
  std::vector<int64_t> past = c.ints(Past);
  for (int64_t p : past)
    if (p < 0 || p + seq > context)
      return c.error("positions " + llvm::Twine(p) + " to " + llvm::Twine(p + seq) +
                     " exceed the context of " + llvm::Twine(context));
  int64_t row = d * byteSize(kv.dtype());
  char *state = static_cast<char *>(kv.raw());
  for (int64_t which = 0; which < 2; ++which) {
    Tensor rows = c.input(which ? V : K).cast(kv.dtype());
    const char *from = static_cast<const char *>(rows.raw());
    for (int64_t b = 0; b < batch; ++b)
      for (int64_t s = 0; s < seq; ++s)
        for (int64_t h = 0; h < heads; ++h, from += row)
          std::memcpy(
              state +
                  ((((layer * 2 + which) * slots + b) * heads + h) * context + past[b] + s) * row,
              from, row);
  }
  c.output() = kv;
  return llvm::Error::success();
}

/// The state is written in part only: twice the new rows move.
static Cost costKvAppend(const Op &op) {
  using enum ops::KvAppend::Operand;
  const Type &k = op.operand(K)->type;
  return {0, Dim(2) * elementCount(k.shape) *
                 Dim(byteSize(k.dtype) + byteSize(op.operand(Kv)->type.dtype))};
}

const OpInfo opKvAppend = {
    .code = OpCode::KvAppend,
    .mnemonic = "kv_append",
    .summary =
        "kv with key and value of token s of sequence b written at position past[b] + s of a layer",
    .operands = {{"kv"}, {"k"}, {"v"}, {"past"}},
    .attrs = {{"layer", AttrKind::Int}},
    .traits = DataMovement | InPlace,
    .infer = inferKvAppend,
    .eval = evalKvAppend,
    .cost = costKvAppend,
};

} // namespace gpt2c
