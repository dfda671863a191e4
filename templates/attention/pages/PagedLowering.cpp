// append_attention over pages: the launch of the kernel that was taken, and explain.
#include "templates/attention/kv_append/KvAppend.h"
#include "templates/attention/pages/AttentionPages.h"
#include "templates/generic/GenericLowerings.h"

#include "llvm/ADT/StringSwitch.h"

namespace gpt2c {

llvm::Error PagedLaunch::launch(KernelSource kernel, const PagedConfig &c) const {
  using enum ops::AppendAttention::Operand;
  Value *qkv = op.operand(Qkv), *y = op.result(ops::AppendAttention::Y);
  const bool shared = c.splits > 1;
  args["partial"] = shared ? b.sharedScratch("attention-partial",
                                             p.blocks() * c.splits * 16 * (c.headDim + 2) * 4)
                           : StepBuilder::null();
  args["counters"] =
      shared ? b.sharedScratch("attention-counters", p.blocks() * 4) : StepBuilder::null();
  return b.launch(op, "paged_attention", std::move(kernel), args,
                  gridOf(c, b.expr(op.operand(Past)->type.shape[0])), bytesOf(qkv) + bytesOf(y),
                  Dim(4) * elementCount(y->type.shape));
}

/// Keys and values of the call's rows to pages of bytes, a block for each token of each piece.
static void appendPages(StepBuilder &b, Op &op, const PagedProblem &p,
                        const StepBuilder::Args &args) {
  using enum ops::AppendAttention::Operand;
  const PagedConfig &c = p.config;
  const Value *qkv = op.operand(Qkv);
  const Dim tokens = qkv->type.shape[1];
  // In one order for any rows versions have grids of one form.
  const int64_t most = p.oneOrder ? c.pieceTokens() : std::min<int64_t>(p.rows, c.pieceTokens());
  KvAppendPagesConfig append{.x = c.x,
                             .kv = c.kv(),
                             .headDim = c.headDim,
                             .heads = c.heads,
                             .kvHeads = c.kvHeads,
                             .pageTokens = c.pageTokens};
  append.threads = std::min(append.threads, 64 * c.kvHeads);
  const Dim kept = tokens * Dim(2 * c.kvHeads * c.headDim);
  b.launch(op.locations, "kv_append",
           kvAppendPages(b.pool().nextKernelName("kv_append_pages"), append), args,
           {rt::constantExpr(most), b.expr(op.operand(Past)->type.shape[0]), rt::constantExpr(1)},
           kept * Dim(scalarBytes(c.x) + 1), 0);
}

llvm::Error emitPaged(StepBuilder &b, const PagedGroup &g) {
  using enum ops::AppendAttention::Operand;
  Op &op = *g.attention;
  Value *kv = op.operand(Kv), *qkv = op.operand(Qkv), *tables = op.operand(KeyMask),
        *next = op.result(ops::AppendAttention::NextKv);
  if (llvm::Error e = takeOver(b, op))
    return e;
  auto args = ArgList(b)
                  .in("qkv", qkv)
                  .in("kv", next)
                  .in("pieces", op.operand(Past))
                  .in("tables", tables)
                  .in("rows", op.function()->argument("last"))
                  .out("out", op.result(ops::AppendAttention::Y))
                  .i32("layer", op.intAttr("layer"), rt::LayerArg::Layer)
                  .i32("layers", kv->type.shape[1], rt::LayerArg::Layers)
                  .i32("tableStride", tables->type.shape[1])
                  .set("scale", StepBuilder::f32(op.floatAttr("scale")))
                  .take();
  if (!args)
    return args.takeError();
  // Of kernels that take tensor maps; the others leave them.
  if (g.taken.kernel->needs().has(Feature::Tma)) {
    const PagedConfig &c = g.problem.config;
    const Dim matrices = kv->type.shape[0] * kv->type.shape[1] * Dim(2 * c.kvHeads), one(1);
    auto qkvAt = b.read(qkv), kvAt = b.read(next);
    if (!qkvAt || !kvAt)
      return llvm::joinErrors(qkvAt.takeError(), kvAt.takeError());
    (*args)["qkvMap"] = b.tensorMap(std::move(*qkvAt), qkv->type.shape[1],
                                    c.headDim * (c.heads + 2 * c.kvHeads), 64, &one);
    (*args)["kvMap"] = b.tensorMap(std::move(*kvAt), Dim(64), c.headDim, 64, &matrices);
  }
  if (g.problem.config.bytes)
    appendPages(b, op, g.problem, *args);
  PagedLaunch launch{b, op, g.problem, *args};
  return g.taken.kernel->emit(launch, g.taken.config);
}

//===-- explain -----------------------------------------------------------------------------===//

std::string explainPaged(const PagedProblem &p) {
  return explainKernels(pagedKernels(), candidatesOf(pagedKernels(), p, p), p);
}

llvm::Expected<PagedProblem> parsePagedProblem(llvm::StringRef text, const Target &target) {
  PagedProblem p;
  p.target = target;
  PagedConfig &c = p.config;
  c.heads = c.kvHeads = 12;
  c.headDim = 64;
  bool shared = false;
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
                          .Default(std::nullopt);
    const auto bytes = llvm::StringSwitch<std::optional<Scalar>>(word)
                           .Case("i8", Scalar::I8)
                           .Case("f8", Scalar::F8E4M3)
                           .Default(std::nullopt);
    if (type)
      c.x = *type;
    else if (bytes)
      c.bytes = bytes;
    else if (isNumber && key == "rows")
      p.rows = number;
    else if (isNumber && key == "pieces")
      p.pieces = number;
    else if (isNumber && key == "heads")
      c.heads = int(number);
    else if (isNumber && key == "kv_heads")
      c.kvHeads = int(number), shared = true;
    else if (isNumber && key == "head_dim")
      c.headDim = int(number);
    else if (isNumber && key == "window")
      c.window = int(number);
    else if (isNumber && key == "tokens")
      c.pageTokens = int(number);
    else if (word == "prompts")
      p.prompts = true;
    else if (word == "one-order")
      p.oneOrder = true;
    else if (word != "pages")
      return unknownWord(word, "attention over pages",
                         "pages rows=256 pieces=8 heads=12 head_dim=64 f16 i8 prompts");
  }
  p.kv = c.kv();
  if (!shared)
    c.kvHeads = c.heads;
  return p;
}

} // namespace gpt2c
