#include "templates/attention/pages/AttentionPages.h"

#include "codegen/KernelWriter.h"
#include "codegen/PlanVersions.h"
#include "ir/ops/PagedAttention.h"
#include "templates/generic/GenericLowerings.h"

#include "llvm/Support/MathExtras.h"

namespace gpt2c {

/// Blocks that share the keys of a piece.
constexpr int mostSplits = 8;

/// AttentionPages<C>::sharedBytes.
static unsigned sharedBytesOf(const AttentionPagesConfig &c) {
  const bool wide = c.x == Scalar::F32;
  const int rowBytes = c.headDim * int(scalarBytes(c.x)) + 16, longTile = wide ? 32 : 64;
  auto shortBytes = [&](int tile, int buffers) {
    return (16 + c.warps * c.groups * 2 * buffers * tile) * rowBytes;
  };
  auto fits = [&](int tile, int buffers) { return shortBytes(tile, buffers) <= int(leastShared); };
  if (c.ordered) { // AttentionPagesOrdered<C>::sharedBytes
    const int tile = fits(longTile, 1) ? longTile : longTile / 2;
    const int places = wide ? 8 * (c.headDim + 5) * 4 : 0;
    return std::max((16 * c.warps + 4 * tile) * rowBytes, shortBytes(tile, 1) + places);
  }
  const int shortTile = !wide && fits(32, 2) ? 32 : 16;
  const int mma = std::max((16 * c.warps + c.groups * 4 * longTile) * rowBytes,
                           shortBytes(shortTile, fits(shortTile, 2) ? 2 : 1));
  // Queries and three stages for each group of tiles of 64 x 64.
  return c.wgmma ? std::max(mma, (1 + 2 * 3 * c.groups) * 64 * 64 * 2 + 1024) : mma;
}

/// Of the kernel in order, on a multiprocessor; three take up to 168 registers a thread.
static int blocksOf(const AttentionPagesConfig &c) {
  const unsigned multiprocessor = 228 * 1024, own = 1024;
  const bool fits = c.headDim <= 64 && 3 * (sharedBytesOf(c) + own) <= multiprocessor;
  return isNarrow(c.x) && fits ? 3 : 0;
}

KernelSource attentionPages(llvm::StringRef name, const AttentionPagesConfig &c) {
  KernelWriter w(name,
                 c.wgmma     ? "templates/attention/pages/attention_pages_wgmma.cuh"
                 : c.ordered ? "templates/attention/pages/attention_pages_ordered.cuh"
                             : "templates/attention/pages/attention_pages.cuh",
                 c.wgmma     ? "tile::attentionPagesWgmma"
                 : c.ordered ? "tile::attentionPagesOrdered"
                             : "tile::attentionPages");
  w.type("X", c.x);
  w.constant("HeadDim", c.headDim);
  w.constant("Heads", c.heads);
  w.constant("KvHeads", c.kvHeads);
  w.constant("PageTokens", c.pageTokens);
  w.constant("Warps", c.warps);
  w.constant("Groups", c.groups);
  w.constant("Window", c.window);
  if (c.wgmma) {
    w.map("qkvMap");
    w.map("kvMap");
  }
  w.in("qkv", c.x);
  w.out("kv", c.x);
  w.out("out", c.x);
  w.in("pieces", Scalar::I32);
  w.in("tables", Scalar::I32);
  w.out("partial", Scalar::F32);
  w.value("unsigned *", "counters");
  for (const char *name : {"layer", "layers", "tableStride"})
    w.i32(name);
  w.f32("scale");
  w.pass("blockIdx.x, gridDim.x, blockIdx.y, blockIdx.z");
  w.check("AttentionPages", "mostSplits", mostSplits);
  w.pass("(" + cudaType(c.x) + " *)dynamicShared");
  w.checkSizes(c.wgmma     ? "AttentionPagesWgmma"
               : c.ordered ? "AttentionPagesOrdered"
                           : "AttentionPages");
  return w.finish(32 * c.warps * c.groups, sharedBytesOf(c),
                  c.wgmma        ? 4 / c.groups
                  : c.ordered    ? blocksOf(c)
                  : c.groups > 1 ? 2
                                 : 0);
}

Grid gridOf(const AttentionPagesConfig &c, const plan::ExprT &pieces) {
  return {rt::constantExpr(c.splits), rt::constantExpr(c.heads), pieces};
}

/// Why no kernel takes the op; empty: one does.
static std::string refusal(StepBuilder &b, const Op &op) {
  const Value *kv = op.operand(ops::AppendAttention::Kv),
              *qkv = op.operand(ops::AppendAttention::Qkv);
  const Shape &state = kv->type.shape; // [pages, layers, 2, heads, tokens, head_dim]
  auto heads = state[3].constant(), tokens = state[4].constant(), headDim = state[5].constant();
  if (!isI32(op.operand(ops::AppendAttention::Past)) ||
      !isI32(op.operand(ops::AppendAttention::KeyMask)))
    return "its pieces and tables are in i32";
  if (kv->type.dtype != qkv->type.dtype || !hasKernelTypes(op))
    return "attention over pages has rows and a state in one of fp16, bf16 and fp32";
  if (kv->type.dtype == DType::F32 && !b.pool().tf32)
    return "attention over pages in fp32 takes --fp32-math=3xtf32";
  if (!heads || !tokens || !headDim || !qkv->type.shape.back().isConstant())
    return "the sizes of its heads and pages are not constant";
  const int64_t unit = kv->type.dtype == DType::F32 ? 8 : 16;
  if (*headDim % unit != 0 || *headDim > 128)
    return "attention over pages takes heads of a multiple of " + std::to_string(unit) +
           " up to 128";
  return *tokens % 64 != 0 ? "its pages have no multiple of 64 tokens" : "";
}

/// Two groups where two of their blocks fit into a multiprocessor and no more of them come: many
/// blocks have enough warps as they are.
static int groupsOf(AttentionPagesConfig c, int64_t blocks, int64_t processors) {
  c.groups = 2;
  const bool fits = isNarrow(c.x) && c.headDim <= 64 && sharedBytesOf(c) <= int(leastShared);
  return fits && blocks <= 2 * processors ? 2 : 1;
}

/// Of wgmma: four groups share the keys of a piece while it has a multiprocessor of its own; else
/// two, and two pieces share one.
static int wgmmaGroupsOf(const AttentionPagesConfig &c, int64_t rows, bool prompts,
                         int64_t processors) {
  return prompts && llvm::divideCeilSigned(rows, c.pieceTokens()) * c.heads <= processors ? 4 : 2;
}

/// Whether tiles of 64 queries pay: a version for few segments or many rows has prompts in most of
/// its calls. Up to 16 rows are short pieces, whose keys blocks share.
static bool takesWgmma(const AttentionPagesConfig &c, const Target &target, int64_t rows,
                       bool prompts) {
  return target.has(wgmmaTiles) && isNarrow(c.x) && c.headDim == 64 && c.pageTokens == 64 &&
         c.window == 0 && !c.ordered && rows > (prompts ? 16 : 128);
}

llvm::Error lowerPagedAttention(StepBuilder &b, Op &op) {
  using enum ops::AppendAttention::Result;
  Value *kv = op.operand(ops::AppendAttention::Kv), *qkv = op.operand(ops::AppendAttention::Qkv),
        *pieces = op.operand(ops::AppendAttention::Past),
        *tables = op.operand(ops::AppendAttention::KeyMask), *y = op.result(Y);
  if (std::string why = refusal(b, op); !why.empty())
    return noKernel(op, why);
  if (llvm::Error e = takeOver(b, op))
    return e;
  AttentionPagesConfig c;
  c.x = scalarOf(qkv->type.dtype);
  c.window = int(std::min<int64_t>(op.intAttr("window"), INT32_MAX));
  c.heads = op.intAttr("num_heads");
  c.kvHeads = *kv->type.shape[3].constant();
  c.pageTokens = *kv->type.shape[4].constant();
  c.headDim = *kv->type.shape[5].constant();
  // Few rows are few blocks: several then share the keys of a head.
  const int64_t most = b.maximum(pieces->type.shape[0]), blocks = most * c.heads;
  const int64_t processors = b.pool().target.multiprocessors;
  c.ordered = b.pool().batchInvariant();
  const int64_t rows = b.maximum(qkv->type.shape[1]);
  const bool prompts = b.maximum(tables->type.shape[0]) <= PlanVersions::fewSegments;
  c.wgmma = takesWgmma(c, b.pool().target, rows, prompts);
  c.groups = c.wgmma     ? wgmmaGroupsOf(c, rows, prompts, processors)
             : c.ordered ? 1
                         : groupsOf(c, blocks, processors);
  if (!c.ordered)
    c.splits = int(std::clamp<int64_t>(processors / std::max<int64_t>(blocks, 1), 1, mostSplits));
  auto args = ArgList(b)
                  .in("qkv", qkv)
                  .in("kv", op.result(NextKv))
                  .in("pieces", pieces)
                  .in("tables", tables)
                  .out("out", y)
                  .i32("layer", op.intAttr("layer"))
                  .i32("layers", kv->type.shape[1])
                  .i32("tableStride", tables->type.shape[1])
                  .set("scale", StepBuilder::f32(op.floatAttr("scale")))
                  .take();
  if (!args)
    return args.takeError();
  if (c.wgmma) {
    const Dim matrices = kv->type.shape[0] * kv->type.shape[1] * Dim(2 * c.kvHeads), one(1);
    auto qkvAt = b.read(qkv), kvAt = b.read(op.result(NextKv));
    if (!qkvAt || !kvAt)
      return llvm::joinErrors(qkvAt.takeError(), kvAt.takeError());
    (*args)["qkvMap"] = b.tensorMap(std::move(*qkvAt), qkv->type.shape[1],
                                    64 * (c.heads + 2 * c.kvHeads), 64, &one);
    (*args)["kvMap"] = b.tensorMap(std::move(*kvAt), Dim(64), 64, 64, &matrices);
  }
  const bool shared = c.splits > 1;
  (*args)["partial"] =
      shared ? b.sharedScratch("attention-partial", blocks * c.splits * 16 * (c.headDim + 2) * 4)
             : StepBuilder::null();
  (*args)["counters"] =
      shared ? b.sharedScratch("attention-counters", blocks * 4) : StepBuilder::null();
  return b.launch(
      op, "paged_attention",
      attentionPages(b.pool().nextKernelName(c.wgmma ? "attention_pages_wgmma" : "attention_pages"),
                     c),
      *args, gridOf(c, b.expr(pieces->type.shape[0])), bytesOf(qkv) + bytesOf(y),
      Dim(4) * elementCount(y->type.shape));
}

} // namespace gpt2c
