#include "templates/attention/Attention.h"

#include "schedule/Problems.h"
#include "schedule/products/Operands.h"
#include "templates/attention/Kernels.h"
#include "templates/generic/GenericLowerings.h"
#include "templates/quantize/Quantize.h"

namespace gpt2c {

/// Where attention writes its value: in the type of qkv, or with `scale` or `given` quantised.
namespace {
struct Result {
  plan::ArgT out;
  std::optional<plan::ArgT> scale = {}; ///< one for each query and head
  GivenScale given = {};
};
} // namespace

static ArgList arguments(StepBuilder &b, const AttentionGroup &g, Result to) {
  using enum ops::AppendAttention::Operand;
  const Op &op = *g.attention;
  Value *kv = op.operand(Kv), *qkv = op.operand(Qkv), *mask = op.operand(KeyMask);
  ArgList args(b);
  if (const Op *rope = g.rope)
    args.in("cosines", rope->operand(ops::Rope::Cos))
        .in("sines", rope->operand(ops::Rope::Sin))
        .i32("places", rope->operand(ops::Rope::Cos)->type.shape[0])
        .in("gains", rope->operand(ops::Rope::Scale))
        .set("gainEpsilon", StepBuilder::f32(rope->floatAttr("epsilon")));
  args.in("qkv", g.rope ? g.rope->operand(ops::Rope::X) : qkv)
      .in("kv", op.result(ops::AppendAttention::NextKv))
      .set("out", std::move(to.out))
      .in("past", op.operand(Past))
      .in("keyMask", mask)
      .i32("layer", op.intAttr("layer"), rt::LayerArg::Layer)
      .i32("batchMax", kv->type.shape[2])
      .i32("context", kv->type.shape[4])
      .i32("seq", qkv->type.shape[1])
      .i32("maskStride", mask ? mask->type.shape[1] : Dim(0))
      .set("scale", StepBuilder::f32(op.floatAttr("scale")));
  if (Value *length = lengthOf(op))
    args.in("length", length);
  if (const StepBuilder::Pages *pages = b.pages())
    args.set("tables", b.tables())
        .i32("layers", pages->layers, rt::LayerArg::Layers)
        .i32("context", Dim(pages->columns * pages->tokens))
        .i32("tableStride", Dim(pages->columns));
  if (to.scale)
    args.set("outScale", std::move(*to.scale));
  to.given.tell(args);
  return args;
}

static llvm::Error launchAttention(StepBuilder &b, const AttentionGroup &g, Result to) {
  Op &op = *g.attention;
  if (llvm::Error e = takeOver(b, op))
    return e;
  using enum ops::AppendAttention::Operand;
  const Value *kv = op.operand(Kv), *qkv = op.operand(Qkv),
              *out = op.result(ops::AppendAttention::Y);
  const bool last = lengthOf(op) != nullptr;
  const Dim &seq = qkv->type.shape[1];
  ArgList args = arguments(b, g, std::move(to));
  b.setChoice(g.choice);
  // Flops of the new tokens, whose queries see each other up to their own position; the tokens in
  // the state are not known at compile time.
  const Dim queries = last ? Dim(1) : seq;
  AttentionLaunch launch{.b = b,
                         .op = op,
                         .p = g.problem,
                         .args = args,
                         .queries = queries,
                         .extra = g.problem.config.quantise ? "+quantize" : "",
                         .bytes = bytesOf(qkv) + bytesOf(out),
                         .flops = elementCount(out->type.shape) *
                                  (last ? Dim(4) * seq : Dim(2) * (seq + Dim(1))),
                         .rope = g.rope};
  if (llvm::Error e = g.taken.kernel->emit(launch, g.taken.config))
    return e;
  const Dim width(lastDim(out)), kept = kv->type.shape[3] * kv->type.shape[5];
  b.addPastCosts(Dim(2 * byteSize(kv->type.dtype)) * kept, Dim(4) * width * queries);
  return llvm::Error::success();
}

llvm::Error emitAttention(StepBuilder &b, const AttentionGroup &g) {
  Op &op = *g.attention;
  if (g.quantise == AttentionGroup::No && op.is(OpCode::AppendAttention)) {
    auto out = b.write(op.result(ops::AppendAttention::Y));
    return out ? launchAttention(b, g, {std::move(*out)}) : out.takeError();
  }
  using enum ops::QuantizedAppendAttention::Operand;
  constexpr unsigned Q = ops::QuantizedAppendAttention::Q;
  const Value *out = op.result(Q), *qkv = op.operand(Qkv);
  const int64_t k = lastDim(out), group = op.intAttr("group") == k ? 0 : op.intAttr("group");
  auto rows = quantisedResult(b, op, Q, op.operand(YScale), group, op.operand(YZero));
  if (!rows)
    return rows.takeError();
  if (g.quantise == AttentionGroup::ByGivenScale)
    return launchAttention(b, g, {rows->q, {}, rows->given});
  if (g.quantise == AttentionGroup::ByOwnScales)
    return launchAttention(b, g, {rows->q, rows->scale});
  plan::ArgT y = workspace(b, "attention", b.maximum(elements(out)), scalarOf(qkv));
  if (llvm::Error e = launchAttention(b, g, {y}))
    return e;
  launchQuantize(b, op, std::move(y), scalarOf(qkv), leading(out), k, *rows);
  return llvm::Error::success();
}

} // namespace gpt2c
