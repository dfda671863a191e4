// append_attention over pages: the problem that an op is, and the kernel for it.
#include "schedule/FunctionScheduler.h"
#include "schedule/Versions.h"
#include "schedule/attention/PagedProblem.h"

namespace gpt2c {

AttentionAbilities PagedProblem::wants() const {
  using enum AttentionAbility;
  return AttentionAbilities{attentionTypes(config.x, kv, tf32)}
      .addIf(config.kvHeads != config.heads, SharedKeys)
      .addIf(config.window > 0, Window)
      .addIf(oneOrder, OneOrder);
}

/// What no kernel takes, whatever it can; empty: nothing.
static std::string pagedRefusal(const Op &op) {
  using enum ops::AppendAttention::Operand;
  const Value *qkv = op.operand(Qkv);
  const Shape &state = op.operand(Kv)->type.shape; // [pages, layers, 2, heads, tokens, head_dim]
  if (!isI32(op.operand(Past)) || !isI32(op.operand(KeyMask)))
    return "its pieces and tables are in i32";
  if (!hasKernelTypes(op))
    return "attention over pages has rows in fp16, bf16 or fp32, and a state in their type, int8 "
           "or "
           "fp8";
  if (op.floatAttr("soft_cap") != 0)
    return "attention over pages has no soft cap of scores";
  if (!state[3].isConstant() || !state[4].isConstant() || !state[5].isConstant() ||
      !qkv->type.shape.back().isConstant())
    return "the sizes of its heads and pages are not constant";
  return "";
}

PagedProblem Problems::paged(const Op &op) const {
  using enum ops::AppendAttention::Operand;
  const Value *kv = op.operand(Kv), *qkv = op.operand(Qkv), *pieces = op.operand(Past),
              *tables = op.operand(KeyMask);
  const Shape &state = kv->type.shape;
  PagedProblem p;
  p.config = {.x = scalarOf(qkv),
              .headDim = int(*state[5].constant() - scaleBytes(rowFormat(kv->type.dtype))),
              .heads = int(op.intAttr("num_heads")),
              .kvHeads = int(*state[3].constant()),
              .pageTokens = int(*state[4].constant()),
              .window = int(std::min<int64_t>(op.intAttr("window"), INT32_MAX))};
  p.kv = scalarOf(kv);
  if (isQuantised(p.kv))
    p.config.bytes = p.kv;
  p.rows = maximum(qkv->type.shape[1]);
  p.pieces = maximum(pieces->type.shape[0]);
  p.segments = maximum(tables->type.shape[0]);
  p.prompts = p.segments <= Versions::fewSegments;
  p.oneOrder = batchInvariant();
  p.tf32 = options_.tf32;
  p.target = options_.target;
  p.config.prefixes = options_.prefixes && !p.oneOrder && !p.prompts && isNarrow(p.config.x) &&
                      !p.config.bytes && p.config.window == 0;
  return p;
}

void FunctionScheduler::pagedAttention(Op &op) {
  auto refuse = [&](std::string why) { set(op, {RefusedGroup{&op, std::move(why)}}); };
  if (std::string why = pagedRefusal(op); !why.empty())
    return refuse(std::move(why));
  PagedGroup group{.attention = &op, .problem = problems_.paged(op)};
  const auto list = candidatesOf(kernels_.paged, group.problem, group.problem);
  if (list.empty()) {
    std::string why = "no kernel computes attention over these pages";
    for (const PagedKernel *k : kernels_.paged)
      why += ("\n  " + k->name() + ": " + k->refusal(group.problem)).str();
    return refuse(std::move(why));
  }
  group.taken = list.front();
  set(op, {std::move(group)});
}

} // namespace gpt2c
