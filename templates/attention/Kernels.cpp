#include "templates/attention/Kernels.h"

#include "templates/attention/kv_append/KvAppend.h"
#include "templates/generic/GenericLowerings.h"

#include "llvm/ADT/StringSwitch.h"

namespace gpt2c {

//===-- launches ----------------------------------------------------------------------------===//

llvm::Error AttentionLaunch::begin(const AttentionConfig &c) {
  appends = c.append;
  if (appends)
    return llvm::Error::success();
  if (c.pageTokens > 0)
    return noKernel(op, "no kernel of its own appends to a state in pages");
  const KvAppendConfig append{
      .x = c.x, .kv = c.kv, .headDim = c.headDim, .heads = c.heads, .kvHeads = c.kvHeads};
  auto known = args.copy();
  if (!known)
    return known.takeError();
  const Value *qkv = op.operand(ops::AppendAttention::Qkv);
  b.launch(op.locations, "kv_append", kvAppend(b.pool().nextKernelName("kv_append"), append),
           *known, {b.expr(sequences() * qkv->type.shape[1]), one(), one()}, bytesOf(qkv), 0);
  return llvm::Error::success();
}

void AttentionLaunch::addParts(int splits) {
  const AttentionConfig &c = p.config;
  const int64_t rows = b.maximum(sequences() * queries) * c.heads;
  args.set("partial",
           splits > 1 ? b.sharedScratch("attention-partial", rows * splits * (c.headDim + 2) * 4)
                      : StepBuilder::null());
  args.set("counters",
           splits > 1 ? b.sharedScratch("attention-counters", rows * 4) : StepBuilder::null());
}

llvm::Error AttentionLaunch::addMaps(const AttentionConfig &c) {
  Value *state = op.result(ops::AppendAttention::NextKv),
        *qkv = op.operand(ops::AppendAttention::Qkv);
  const int kvHeads = c.kvHeads ? c.kvHeads : c.heads;
  const Dim planes = Dim(2 * kvHeads) * state->type.shape[0] * state->type.shape[2];
  auto qkvAt = b.read(qkv), kvAt = b.read(state);
  if (!qkvAt || !kvAt)
    return llvm::joinErrors(qkvAt.takeError(), kvAt.takeError());
  args.set("qkvMap", b.tensorMap(std::move(*qkvAt), qkv->type.shape[1],
                                 c.headDim * (c.heads + 2 * kvHeads), 64, &sequences()));
  args.set("kvMap", b.tensorMap(std::move(*kvAt), state->type.shape[4], c.headDim, 64, &planes));
  return llvm::Error::success();
}

std::array<plan::ExprT, 3> AttentionLaunch::perQuery(int splits) const {
  return {rt::constantExpr(splits), rt::constantExpr(p.config.heads),
          b.expr(sequences() * queries)};
}

std::array<plan::ExprT, 3> AttentionLaunch::tiles(int queriesOfTile) const {
  return {ceilDivExpr(b, op.operand(ops::AppendAttention::Qkv)->type.shape[1], queriesOfTile),
          rt::constantExpr(p.config.heads), b.expr(sequences())};
}

llvm::Error AttentionLaunch::launch(KernelSource kernel, const std::array<plan::ExprT, 3> &grid) {
  auto taken = args.take();
  if (!taken)
    return taken.takeError();
  llvm::SmallVector<llvm::StringRef> nodes;
  if (rope)
    nodes.append(rope->locations.begin(), rope->locations.end());
  nodes.append(op.locations.begin(), op.locations.end());
  const std::string what = std::string(rope ? "rope+" : "") +
                           (appends ? "append_attention" : "cached_attention") + extra;
  b.launch(nodes, what, std::move(kernel), *taken, grid, bytes, flops);
  return llvm::Error::success();
}

//===-- the choice --------------------------------------------------------------------------===//

llvm::ArrayRef<const AttentionKernel *> attentionKernels() {
  static const AttentionKernel *const kernels[] = {
#define ATTENTION_KERNEL(name) &name##Kernel(),
#include "templates/attention/Kernels.def"
#undef ATTENTION_KERNEL
  };
  return kernels;
}

std::vector<AttentionCandidate> attentionCandidates(const AttentionProblem &p) {
  return candidatesOf(attentionKernels(), p.plain(), p);
}

bool leaderComputes(const AttentionProblem &p) {
  const AttentionKernel *leader = leaderOf(attentionKernels(), p.plain(), p);
  return leader && leader->refusal(p).empty();
}

std::string explainAttention(const AttentionProblem &p) {
  return explainKernels(attentionKernels(), attentionCandidates(p), p);
}

static llvm::Error unknown(llvm::StringRef word) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                 "'" + word +
                                     "' is no part of attention; write, say, attention batch=8 "
                                     "seq=1 heads=12 head_dim=64 context=1024 f16 x f16 last");
}

llvm::Expected<AttentionProblem> parseAttentionProblem(llvm::StringRef text, const Target &target) {
  AttentionProblem p;
  p.target = target;
  AttentionConfig &c = p.config;
  c.heads = 12;
  c.headDim = 64;
  unsigned types = 0;
  bool rope = false;
  llvm::SmallVector<llvm::StringRef> words;
  text.split(words, ' ', -1, false);
  for (llvm::StringRef word : words) {
    auto [key, value] = word.split('=');
    int64_t number = 0;
    const bool isNumber =
        !value.empty() && !value.getAsInteger(10, number) && number > 0 && number <= 1 << 20;
    const auto type = llvm::StringSwitch<std::optional<Scalar>>(word)
                          .Case("f16", Scalar::F16)
                          .Case("bf16", Scalar::BF16)
                          .Case("f32", Scalar::F32)
                          .Case("i8", Scalar::I8)
                          .Case("f8", Scalar::F8E4M3)
                          .Default(std::nullopt);
    if (type && types < 2 && (types == 1 || !isQuantised(*type)))
      (types++ == 0 ? c.x : c.kv) = *type;
    else if (isNumber && key == "batch")
      p.sequences = number;
    else if (isNumber && key == "seq")
      p.queries = number;
    else if (isNumber && key == "heads")
      c.heads = int(number);
    else if (isNumber && key == "kv_heads")
      c.kvHeads = int(number);
    else if (isNumber && key == "head_dim")
      c.headDim = int(number);
    else if (isNumber && key == "context")
      p.context = number;
    else if (isNumber && key == "window")
      c.window = int(number);
    else if (isNumber && key == "pages")
      c.pageTokens = int(number);
    else if (word == "soft_cap")
      c.softCap = 50;
    else if (word == "alibi")
      c.alibi = true;
    else if (word == "mask")
      c.mask = true;
    else if (word == "last")
      c.last = true;
    else if (word == "rope")
      rope = true;
    else if (word == "norm")
      c.headNorm = true;
    else if (word == "quantised")
      c.quantise = true;
    else if (word != "x" && word != "attention")
      return unknown(word);
  }
  if (types == 1)
    return unknown("one type");
  if (c.last)
    p.queries = 1;
  if (rope)
    c.ropePairs = c.headDim / 2;
  p.complete();
  return p;
}

} // namespace gpt2c
