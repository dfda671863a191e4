#include "templates/attention/Attention.h"

#include "ir/ops/PagedAttention.h"
#include "templates/attention/Kernels.h"
#include "templates/attention/pages/AttentionPages.h"
#include "templates/generic/GenericLowerings.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

/// The lengths of sequences of which the last token alone has a query; null: all tokens have one.
static Value *lengthOf(const Op &op) {
  return op.is(OpCode::AppendAttention) ? op.operand(ops::AppendAttention::Length)
         : op.is(OpCode::QuantizedAppendAttention)
             ? op.operand(ops::QuantizedAppendAttention::Length)
             : nullptr;
}

/// Heads of the state: its own axis, or what is left of a packed row besides the queries, of which
/// one may be a symbol.
static std::optional<int64_t> kvHeadsOf(const Op &op) {
  if (auto heads = op.operand(ops::AppendAttention::Kv)->type.shape[3].constant())
    return heads;
  auto packed = op.operand(ops::AppendAttention::Qkv)->type.shape.back().constant();
  const int64_t heads = op.intAttr("num_heads");
  if (!packed)
    return std::nullopt;
  return (*packed / (lastDim(op.result(ops::AppendAttention::Y)) / heads) - heads) / 2;
}

/// Where attention writes its value: in the type of qkv, or with `scale` or `given` as int8.
namespace {
struct Output {
  plan::ArgT out;
  std::optional<plan::ArgT> scale; ///< one for each query and head
  GivenScale given;
};
} // namespace

/// Without what quantises the value, and without what turns queries and keys.
static AttentionProblem attentionProblem(StepBuilder &b, const Op &op) {
  using enum ops::AppendAttention::Operand;
  const Value *kv = op.operand(Kv), *qkv = op.operand(Qkv);
  AttentionProblem p;
  AttentionConfig &c = p.config;
  c.x = scalarOf(qkv->type.dtype);
  c.kv = scalarOf(kv->type.dtype);
  c.heads = op.intAttr("num_heads");
  c.headDim = lastDim(op.result(ops::AppendAttention::Y)) / c.heads;
  c.kvHeads = int(kvHeadsOf(op).value_or(c.heads));
  c.mask = op.operand(KeyMask) != nullptr;
  c.last = lengthOf(op) != nullptr;
  c.window = int(std::min<int64_t>(op.intAttr("window"), INT32_MAX));
  if (const StepBuilder::Pages *pages = b.pages())
    c.pageTokens = int(pages->tokens);
  p.sequences = b.maximum(qkv->type.shape[0]);
  p.queries = c.last ? 1 : b.maximum(qkv->type.shape[1]);
  p.context = b.maximum(kv->type.shape[4]);
  p.tf32 = b.pool().tf32;
  p.target = b.pool().target;
  p.complete();
  return p;
}

/// The rotary embedding in front, as `op`'s kernel would compute it: turned are all heads of queries
/// and keys, by the position that they have in the state, which is known before the kernels of the
/// same step have ended, as the tables are. Null: what is there is none such.
static Op *ropeBefore(const Op &op) {
  using enum ops::Rope::Operand;
  if (lengthOf(op))
    return nullptr;
  const Value *qkv = op.operand(ops::AppendAttention::Qkv);
  Op *rope = qkv->def();
  if (!rope || !rope->is(OpCode::Rope) || !qkv->hasOneUse())
    return nullptr;
  const Value *cos = rope->operand(Cos), *sin = rope->operand(Sin);
  auto isTable = [](const Value *v) {
    const DType t = v->type.dtype;
    return v->def() && v->def()->is(OpCode::Constant) && v->type.isStatic() &&
           (t == DType::F32 || t == DType::F16 || t == DType::BF16);
  };
  const int64_t heads = op.intAttr("num_heads"),
                headDim = lastDim(op.result(ops::AppendAttention::Y)) / heads;
  const Value *past = op.operand(ops::AppendAttention::Past);
  const bool same = rope->operand(Positions) == past && isI32(past) &&
                    rope->intAttr("head_dim") == headDim &&
                    rope->intAttr("heads") == heads + kvHeadsOf(op).value_or(0);
  return same && isTable(cos) && isTable(sin) && hasKernelTypes(*rope) ? rope : nullptr;
}

static void addRope(AttentionProblem &p, const Op &rope) {
  const Type &table = rope.operand(ops::Rope::Cos)->type;
  p.config.ropePairs = int(*table.shape[1].constant());
  p.config.ropeInterleaved = rope.boolAttr("interleaved");
  p.config.ropeTable = scalarOf(table.dtype);
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
                                                : " quantised",
                       c.last ? " last" : "", c.ropePairs ? " rope" : "",
                       c.window ? llvm::formatv(" window={0}", c.window).str() : "",
                       c.pageTokens ? llvm::formatv(" pages={0}", c.pageTokens).str() : "")
      .str();
}

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
  if (kv->type.dtype == DType::I8 &&
      (!kv->type.shape[4].isConstant() || *width / op.intAttr("num_heads") % 4 != 0))
    return "an int8 KV state has a constant context and heads of a multiple of 4";
  return "";
}

Op *fusedRope(StepBuilder &b, const Op &op) {
  if (!op.is(OpCode::AppendAttention) || isPaged(op) || b.pool().batchInvariant() ||
      !attentionRefusal(op).empty())
    return nullptr;
  Op *rope = ropeBefore(op);
  if (!rope)
    return nullptr;
  AttentionProblem p = attentionProblem(b, op);
  addRope(p, *rope);
  return attentionCandidates(p).empty() ? nullptr : rope;
}

static llvm::Error launchAttention(StepBuilder &b, Op &op, Output to) {
  if (std::string why = attentionRefusal(op); !why.empty())
    return noKernel(op, why);
  if (llvm::Error e = takeOver(b, op))
    return e;
  using enum ops::AppendAttention::Operand;
  Value *kv = op.operand(Kv), *qkv = op.operand(Qkv), *mask = op.operand(KeyMask),
        *out = op.result(ops::AppendAttention::Y), *length = lengthOf(op);
  const Dim &seq = qkv->type.shape[1];
  AttentionProblem p = attentionProblem(b, op);
  p.config.quantise = to.scale || to.given;
  p.config.given = to.given.kind;
  const Op *rope = fusedRope(b, op);
  ArgList args(b);
  if (rope) {
    addRope(p, *rope);
    args.in("cosines", rope->operand(ops::Rope::Cos))
        .in("sines", rope->operand(ops::Rope::Sin))
        .i32("places", rope->operand(ops::Rope::Cos)->type.shape[0]);
  }
  args.in("qkv", rope ? rope->operand(ops::Rope::X) : qkv)
      .in("kv", op.result(ops::AppendAttention::NextKv))
      .set("out", std::move(to.out))
      .in("past", op.operand(Past))
      .in("keyMask", mask)
      .i32("layer", op.intAttr("layer"))
      .i32("batchMax", kv->type.shape[2])
      .i32("context", kv->type.shape[4])
      .i32("seq", seq)
      .i32("maskStride", mask ? mask->type.shape[1] : Dim(0))
      .set("scale", StepBuilder::f32(op.floatAttr("scale")));
  if (length)
    args.in("length", length);
  if (const StepBuilder::Pages *pages = b.pages())
    args.set("tables", b.tables())
        .i32("layers", pages->layers)
        .i32("context", Dim(pages->columns * pages->tokens))
        .i32("tableStride", Dim(pages->columns));
  if (to.scale)
    args.set("outScale", std::move(*to.scale));
  to.given.tell(args);

  const std::vector<AttentionCandidate> list = attentionCandidates(p);
  std::vector<std::string> names;
  for (const AttentionCandidate &c : list)
    names.push_back(c.name);
  if (list.empty())
    return noKernel(op, "no kernel quantises what attention writes:\n" + explainAttention(p));
  const AttentionCandidate &chosen = list[b.choose(attentionKey(p, op, b.maximum(seq)), names)];
  // Flops of the new tokens, whose queries see each other up to their own position; the tokens in
  // the state are not known at compile time.
  const Dim queries = length ? Dim(1) : seq;
  AttentionLaunch launch{.b = b,
                         .op = op,
                         .p = p,
                         .args = args,
                         .queries = queries,
                         .extra = p.config.quantise ? "+quantize" : "",
                         .bytes = bytesOf(qkv) + bytesOf(out),
                         .flops = elementCount(out->type.shape) *
                                  (length ? Dim(4) * seq : Dim(2) * (seq + Dim(1))),
                         .rope = rope};
  if (llvm::Error e = chosen.kernel->emit(launch, chosen.config))
    return e;
  const Dim width(lastDim(out)), kept = kv->type.shape[3] * kv->type.shape[5];
  b.addPastCosts(Dim(2 * byteSize(kv->type.dtype)) * kept, Dim(4) * width * queries);
  return llvm::Error::success();
}

/// Whether the kernel of append_attention finds a scale for each head of its value.
static bool findsScales(StepBuilder &b, const Op &op) {
  AttentionProblem p = attentionProblem(b, op);
  p.config.quantise = true;
  return leaderComputes(p);
}

llvm::Error lowerAppendAttention(StepBuilder &b, Op &op) {
  if (isPaged(op))
    return lowerPagedAttention(b, op);
  auto out = b.write(op.result(ops::AppendAttention::Y));
  if (!out)
    return out.takeError();
  return launchAttention(b, op, {std::move(*out), {}, {}});
}

llvm::Error lowerQuantizedAppendAttention(StepBuilder &b, Op &op) {
  using enum ops::QuantizedAppendAttention::Operand;
  using enum ops::QuantizedAppendAttention::Result;
  Value *out = op.result(Q), *qkv = op.operand(Qkv);
  if (!hasKernelTypes(op) || !out->type.shape.back().isConstant())
    return noKernel(op, "attention over the KV state is in f32, f16 or bf16");
  const int64_t k = lastDim(out), group = op.intAttr("group") == k ? 0 : op.intAttr("group");
  auto rows = quantisedResult(b, op, Q, op.operand(YScale), group, op.operand(YZero));
  if (!rows)
    return rows.takeError();
  if (rows->given)
    return launchAttention(b, op, {rows->q, {}, rows->given});
  if (rows->group == k / op.intAttr("num_heads") && findsScales(b, op))
    return launchAttention(b, op, {rows->q, rows->scale, {}});
  plan::ArgT y = workspace(b, "attention", b.maximum(elements(out)), scalarOf(qkv));
  if (llvm::Error e = launchAttention(b, op, {y, {}, {}}))
    return e;
  launchQuantize(b, op, std::move(y), scalarOf(qkv), leading(out), k, *rows);
  return llvm::Error::success();
}

} // namespace gpt2c
