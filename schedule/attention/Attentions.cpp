// Attention over the KV state, with the rotation in front of it and the int8 result behind it.
#include "ir/ops/PagedAttention.h"
#include "schedule/FunctionScheduler.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

/// Why no kernel takes the op; empty: one does.
static std::string attentionRefusal(const Op &op) {
  using enum ops::AppendAttention::Operand;
  const Value *kv = op.operand(Kv);
  if (!hasKernelTypes(op) || !isI32(op.operand(Past)) || !isI32(op.operand(KeyMask)) ||
      !isI32(lengthOf(op)))
    return "attention over the KV state is in f32, f16 or bf16, its lengths and mask in i32";
  auto width = op.result(ops::AppendAttention::Y)->type.shape.back().constant();
  if (!width)
    return "the width of its heads is not constant";
  if (!kvHeadsOf(op))
    return "the number of its heads is not constant";
  if (isQuantised(kv->type.dtype) &&
      (!kv->type.shape[4].isConstant() || *width / op.intAttr("num_heads") % 4 != 0))
    return "a KV state in int8 or fp8 has a constant context and heads of a multiple of 4";
  return "";
}

/// The rotary embedding in front, as `op`'s kernel would compute it: turned are all heads of
/// queries and keys, by the position that they have in the state, which is known before the kernels
/// of the same step have ended, as the tables are. Why there is none such, in `why`, where there is
/// one at all.
static Op *ropeBefore(const Op &op, std::string &why) {
  using enum ops::Rope::Operand;
  const Value *qkv = op.operand(ops::AppendAttention::Qkv);
  Op *rope = qkv->def();
  if (!rope || !rope->is(OpCode::Rope))
    return nullptr;
  const Value *cos = rope->operand(Cos), *sin = rope->operand(Sin), *scale = rope->operand(Scale);
  auto isTable = [](const Value *v) {
    const DType t = v->type.dtype;
    return isConstant(v) && v->type.isStatic() &&
           (t == DType::F32 || t == DType::F16 || t == DType::BF16);
  };
  const int64_t heads = op.intAttr("num_heads"),
                headDim = lastDim(op.result(ops::AppendAttention::Y)) / heads;
  const Value *past = op.operand(ops::AppendAttention::Past);
  why = lengthOf(op)                       ? "the last token alone has a query"
        : !qkv->hasOneUse()                ? "others read what it computes"
        : rope->operand(Positions) != past ? "it turns by other positions"
        : !isI32(past)                     ? "positions that are not in i32"
        : rope->boolAttr("to_halves")      ? "it leaves pairs in halves"
        : rope->intAttr("head_dim") != headDim ||
                rope->intAttr("heads") != heads + kvHeadsOf(op).value_or(0)
            ? "it turns other heads than those of queries and keys"
        : !isTable(cos) || !isTable(sin) ? "its tables are no constants of floats"
        : scale && (!isTable(scale) || scale->type.dtype != DType::F32)
            ? "gains of heads are no constants in f32"
        : !hasKernelTypes(*rope) ? "it is not in f32, f16 or bf16"
                                 : "";
  return why.empty() ? rope : nullptr;
}

static AttentionProblem withRope(AttentionProblem p, const Op &rope) {
  const Type &table = rope.operand(ops::Rope::Cos)->type;
  p.config.ropePairs = int(*table.shape[1].constant());
  p.config.ropeInterleaved = rope.boolAttr("interleaved");
  p.config.ropeTable = scalarOf(table.dtype);
  p.config.headNorm = rope.operand(ops::Rope::Scale);
  return p;
}

/// Attention as tuning files call it: all that the choice of its kernel depends on.
static std::string attentionKey(const AttentionProblem &p, const Op &op, int64_t seq) {
  const AttentionConfig &c = p.config;
  const std::string heads = p.hasOwnKeys() ? llvm::formatv("{0}", c.heads).str()
                                           : llvm::formatv("{0} of {1}", c.kvHeads, c.heads).str();
  return llvm::formatv("attention batch={0} seq={1} heads={2} head_dim={3} context={4} {5} x "
                       "{6}{7}{8}{9}{10}{11}{12}",
                       p.sequences, seq, heads, c.headDim, p.context,
                       dtypeName(op.operand(ops::AppendAttention::Qkv)->type.dtype),
                       dtypeName(op.operand(ops::AppendAttention::Kv)->type.dtype),
                       c.mask ? " mask" : "",
                       !c.quantise              ? ""
                       : c.given != Given::None ? " quantised by a given scale"
                       : c.to == Scalar::I8     ? " quantised"
                                                : " quantised to fp8",
                       c.last ? " last" : "",
                       c.headNorm    ? " norm rope"
                       : c.ropePairs ? " rope"
                                     : "",
                       c.window ? llvm::formatv(" window={0}", c.window).str() : "",
                       c.pageTokens ? llvm::formatv(" pages={0}", c.pageTokens).str() : "")
      .str();
}

static std::vector<AttentionCandidate> candidates(const Kernels &kernels,
                                                  const AttentionProblem &p) {
  return candidatesOf(kernels.attention, p.plain(), p);
}

Op *FunctionScheduler::fusedRope(const Op &op, const AttentionProblem &p,
                                 std::vector<NearMiss> &misses) const {
  if (!op.is(OpCode::AppendAttention) || problems_.batchInvariant())
    return nullptr;
  std::string why;
  Op *rope = ropeBefore(op, why);
  if (rope) {
    const AttentionProblem turned = withRope(p, *rope);
    if (!candidates(kernels_, turned).empty())
      return rope;
    const AttentionKernel *taken = leaderOf(kernels_.attention, turned.plain(), turned);
    why = taken ? (taken->name() + ": " + taken->refusal(turned)).str() : "no kernel computes it";
  }
  if (!why.empty())
    misses.push_back({"rope", why});
  return nullptr;
}

/// How the value of quantized_append_attention is quantised.
static AttentionGroup::Quantise quantised(const Op &op, const Kernels &kernels,
                                          AttentionProblem p) {
  using enum ops::QuantizedAppendAttention::Operand;
  if (p.config.given != Given::None)
    return AttentionGroup::ByGivenScale;
  const int64_t k = lastDim(op.result(ops::QuantizedAppendAttention::Q));
  const int64_t group = op.operand(YScale)         ? -1
                        : op.intAttr("group") == k ? 0
                                                   : op.intAttr("group");
  p.config.quantise = true;
  const AttentionKernel *taken = leaderOf(kernels.attention, p.plain(), p);
  return group == k / op.intAttr("num_heads") && taken && taken->refusal(p).empty()
             ? AttentionGroup::ByOwnScales
             : AttentionGroup::Behind;
}

void FunctionScheduler::attention(Op &op) {
  if (op.is(OpCode::AppendAttention) && isPaged(op))
    return pagedAttention(op);
  std::vector<NearMiss> misses;
  auto refuse = [&](std::string why) { set(op, {RefusedGroup{&op, std::move(why)}}); };
  if (op.is(OpCode::QuantizedAppendAttention) &&
      (!hasKernelTypes(op) ||
       !op.result(ops::QuantizedAppendAttention::Q)->type.shape.back().isConstant()))
    return refuse("attention over the KV state is in f32, f16 or bf16");
  if (std::string why = attentionRefusal(op); !why.empty())
    return refuse(std::move(why));
  AttentionGroup group{.attention = &op, .rope = nullptr, .problem = problems_.attention(op)};
  AttentionProblem &p = group.problem;
  if (op.is(OpCode::QuantizedAppendAttention)) {
    using enum ops::QuantizedAppendAttention::Operand;
    p.config.to = scalarOf(op.result(ops::QuantizedAppendAttention::Q));
    p.config.given = givenOf(op.operand(YScale), op.operand(YZero), p.config.to);
    group.quantise = quantised(op, kernels_, p);
    p.config.quantise = group.quantise != AttentionGroup::Behind;
  }
  const auto before = groups_.find(op.operand(ops::AppendAttention::Qkv)->def());
  const bool turned = before != groups_.end() && before->second.get<LinearGroup>();
  if (!turned) // by a product
    group.rope = fusedRope(op, problems_.attention(op), misses);
  if (group.rope) {
    p = withRope(p, *group.rope);
    inFront_[&op] = group.rope;
  }
  const std::vector<AttentionCandidate> list = candidates(kernels_, p);
  if (list.empty())
    return refuse("no kernel quantises what attention writes:\n" +
                  explainKernels(kernels_.attention, list, p));
  std::vector<std::string> names;
  for (const AttentionCandidate &c : list)
    names.push_back(c.name);
  group.choice.key =
      attentionKey(p, op, problems_.maximum(op.operand(ops::AppendAttention::Qkv)->type.shape[1]));
  group.taken = list[options_.choose ? options_.choose(group.choice.key, names) : 0];
  group.choice.name = group.taken.name;
  set(op, {std::move(group), std::move(misses)});
}

} // namespace gpt2c
