// The kernels of attention over pages, and their records.
#include "templates/attention/pages/AttentionPages.h"

#include "codegen/KernelWriter.h"
#include "ir/ops/AppendAttention.h"
#include "runtime/plan/PrefixTiles.h"
#include "templates/attention/prefix/AttentionPrefix.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

/// Blocks that share the keys of a piece.
constexpr int mostSplits = 8;

//===-- sources -----------------------------------------------------------------------------===//

namespace attention_pages {

/// Bytes of rows of shared memory, as templates/attention/pages/paged_warp.cuh counts them.
struct PagedRows {
  explicit PagedRows(const PagedConfig &c)
      : wide(c.x == Scalar::F32), padded(int(llvm::alignTo(c.headDim, wide ? 8 : 16))),
        rowBytes(padded * int(scalarBytes(c.x)) + 16), queries(16 * c.warps), buffers(4 * c.groups),
        shared(c.warps * c.groups) {}

  int longBytes(int tile) const { return (queries + buffers * tile) * rowBytes; }
  bool fitsLong(int tile) const { return longBytes(tile) <= int(leastShared); }
  int longTile() const { return !wide && fitsLong(64) ? 64 : fitsLong(32) ? 32 : 16; }
  bool queriesStay() const { return wide || padded > 128; }

  int shortBytes(int tile, int buffers) const {
    return (16 + shared * 2 * buffers * tile) * rowBytes;
  }
  bool fits(int tile, int buffers) const { return shortBytes(tile, buffers) <= int(leastShared); }

  bool wide;
  int padded, rowBytes, queries, buffers, shared;
};

/// AttentionPages<C>::sharedBytes.
int tilesBytes(const PagedConfig &c) {
  const PagedRows rows(c);
  const int tile = !rows.wide && rows.fits(32, 2) ? 32 : 16;
  return std::max(rows.longBytes(rows.longTile()),
                  rows.shortBytes(tile, rows.fits(tile, 2) ? 2 : 1));
}
unsigned sharedBytesOf(const AttentionPagesConfig &c) { return tilesBytes(c); }
/// AttentionPagesWgmma<C>::sharedBytes: queries and three stages for each group, tiles of 64 x 64.
unsigned sharedBytesOf(const AttentionPagesWgmmaConfig &c) {
  return std::max(tilesBytes(c), (1 + 2 * 3 * c.groups) * 64 * 64 * 2 + 1024);
}
/// AttentionPagesWide<C>::sharedBytes: queries, and stages of keys and of values.
unsigned sharedBytesOf(const AttentionPagesWideConfig &c) {
  const unsigned tile = unsigned(llvm::divideCeil(c.headDim, 64)) * 64 * 64 * 2;
  return std::max<unsigned>(tilesBytes(c), (1 + 2 * (c.headDim > 128 ? 2 : 3)) * tile + 1024);
}
/// AttentionPagesOrdered<C>::sharedBytes.
unsigned sharedBytesOf(const AttentionPagesOrderedConfig &c) {
  const PagedRows rows(c);
  const int whole = rows.longTile();
  const int tile = rows.fits(whole, 1) || whole == 16 ? whole : whole / 2;
  const int places = rows.queriesStay() ? 8 * (c.headDim + 5) * 4 : 0;
  return std::max(rows.longBytes(tile), rows.shortBytes(tile, 1) + places);
}

struct PagedTemplate {
  llvm::StringLiteral header, function, sizes;
  bool maps = false;
  int copyWarps = 0; ///< beside those of the groups
  bool prefixes = true;
};

KernelSource source(llvm::StringRef name, const PagedConfig &c, const PagedTemplate &t,
                    unsigned sharedBytes, int blocks) {
  KernelWriter w(name, t.header, t.function);
  w.type("X", c.x);
  w.type("Kv", c.kv());
  w.constant("HeadDim", c.headDim);
  w.constant("Heads", c.heads);
  w.constant("KvHeads", c.kvHeads);
  w.constant("PageTokens", c.pageTokens);
  w.constant("Warps", c.warps);
  w.constant("Groups", c.groups);
  w.constant("Window", c.window);
  w.constant("Parts", c.prefixes ? rt::mostPrefixParts : 0);
  if (t.maps) {
    w.map("qkvMap");
    w.map("kvMap");
  }
  w.in("qkv", c.x);
  w.out("kv", c.kv());
  w.out("out", c.x);
  w.in("pieces", Scalar::I32);
  w.in("tables", Scalar::I32);
  w.out("partial", Scalar::F32);
  w.value("unsigned *", "counters");
  for (const char *parameter : {"layer", "layers", "tableStride"})
    w.i32(parameter);
  w.f32("scale");
  if (t.prefixes) {
    w.in("prefixes", Scalar::I32, c.prefixes);
    w.in("prefixParts", Scalar::F32, c.prefixes);
  }
  w.pass("blockIdx.x, gridDim.x, blockIdx.y, blockIdx.z");
  w.check("AttentionPages", "mostSplits", mostSplits);
  w.pass("(" + cudaType(c.x) + " *)dynamicShared");
  w.checkSizes(t.sizes);
  return w.finish(32 * (c.warps * c.groups + t.copyWarps), sharedBytes, blocks);
}

/// Of the kernel in order, on a multiprocessor; three take up to 168 registers a thread.
int blocksOf(const AttentionPagesOrderedConfig &c) {
  const unsigned multiprocessor = 228 * 1024, own = 1024;
  const bool fits = c.headDim <= 64 && 3 * (sharedBytesOf(c) + own) <= multiprocessor;
  return isNarrow(c.x) && fits ? 3 : 0;
}

} // namespace attention_pages

KernelSource attentionPages(llvm::StringRef name, const AttentionPagesConfig &c) {
  using namespace attention_pages;
  return source(
      name, c,
      {"templates/attention/pages/attention_pages.cuh", "tile::attentionPages", "AttentionPages"},
      sharedBytesOf(c), c.groups > 1 ? 2 : 0);
}

KernelSource attentionPages(llvm::StringRef name, const AttentionPagesWgmmaConfig &c) {
  using namespace attention_pages;
  return source(name, c,
                {"templates/attention/pages/attention_pages_wgmma.cuh", "tile::attentionPagesWgmma",
                 "AttentionPagesWgmma", true},
                sharedBytesOf(c), 4 / c.groups);
}

KernelSource attentionPages(llvm::StringRef name, const AttentionPagesWideConfig &c) {
  using namespace attention_pages;
  return source(name, c,
                {"templates/attention/pages/attention_pages_wide.cuh", "tile::attentionPagesWide",
                 "AttentionPagesWide", true, 1},
                sharedBytesOf(c), c.headDim <= 128 ? 2 : 1);
}

KernelSource attentionPages(llvm::StringRef name, const AttentionPagesOrderedConfig &c) {
  using namespace attention_pages;
  return source(name, c,
                {.header = "templates/attention/pages/attention_pages_ordered.cuh",
                 .function = "tile::attentionPagesOrdered",
                 .sizes = "AttentionPagesOrdered",
                 .prefixes = false},
                sharedBytesOf(c), blocksOf(c));
}

AttentionPrefixConfig prefixOf(const PagedConfig &c, int64_t sequences) {
  AttentionPrefixConfig prefix = prefixConfig({.x = c.x,
                                               .kv = c.x,
                                               .headDim = c.headDim,
                                               .heads = c.heads,
                                               .kvHeads = c.kvHeads,
                                               .pageTokens = c.pageTokens},
                                              sequences);
  prefix.byRows = true;
  return prefix;
}

Grid gridOf(const PagedConfig &c, const plan::ExprT &pieces) {
  return {rt::constantExpr(c.splits), rt::constantExpr(c.heads), pieces};
}

//===-- records -----------------------------------------------------------------------------===//

static std::string pagedName(llvm::StringRef kernel, const PagedConfig &c) {
  return llvm::formatv("{0} groups={1} splits={2}", kernel, c.groups, c.splits).str();
}
std::string nameOf(const AttentionPagesConfig &c) { return pagedName("attention_pages", c); }
std::string nameOf(const AttentionPagesWgmmaConfig &c) {
  return pagedName("attention_pages_wgmma", c);
}
std::string nameOf(const AttentionPagesWideConfig &c) {
  return pagedName("attention_pages_wide", c);
}
std::string nameOf(const AttentionPagesOrderedConfig &c) {
  return pagedName("attention_pages_ordered", c);
}

namespace attention_pages {

using enum AttentionAbility;

/// Few rows are few blocks: several then share the keys of a head.
int splitsOf(const PagedProblem &p) {
  const int64_t blocks = std::max<int64_t>(p.blocks(), 1);
  return int(std::clamp<int64_t>(p.target.multiprocessors / blocks, 1, mostSplits));
}

template <typename Config> std::string refusal(const PagedProblem &p) {
  const PagedConfig &c = p.config;
  if (c.headDim % 8 != 0 || c.headDim > 256)
    return "heads that are no multiple of 8, or more than 256";
  if (c.pageTokens % 64 != 0)
    return "pages that have no multiple of 64 tokens";
  const unsigned needed = sharedBytesOf(Config{c});
  return needed > p.target.sharedBytes
             ? llvm::formatv(
                   "heads of {0} in fp32 need {1} KiB of shared memory a block, not every "
                   "GPU of the plan has them; fp16, bf16 and --gpu-arch=sm_90a fit",
                   c.headDim, (needed + 1023) / 1024)
                   .str()
             : "";
}

/// Keys of a prefix that sequences share are not read again.
bool takesPrefix(PagedLaunch &l, const PagedConfig &c) {
  if (!l.op.function()->argument("last")) // the rows of single tokens
    return false;
  return launchPrefix(l.b, l.op, prefixOf(c, l.p.segments),
                      l.op.operand(ops::AppendAttention::KeyMask)->type.shape[0], l.args);
}

template <typename Config> llvm::Error emit(PagedLaunch &l, const Config &taken) {
  Config c = taken;
  c.prefixes = c.prefixes && takesPrefix(l, c);
  const std::string name = nameOf(c);
  const llvm::StringRef kernel = llvm::StringRef(name).split(' ').first;
  return l.launch(attentionPages(l.name(kernel), c), c);
}

/// Two groups where two of their blocks fit into a multiprocessor and no more of them come: many
/// blocks have enough warps as they are.
std::vector<AttentionPagesConfig> tilesConfigs(const PagedProblem &p) {
  AttentionPagesConfig c{p.config};
  c.groups = 2;
  const bool fits = isNarrow(c.x) && c.headDim <= 64 && sharedBytesOf(c) <= unsigned(leastShared);
  if (!fits || p.blocks() > 2 * p.target.multiprocessors)
    c.groups = 1;
  c.splits = splitsOf(p);
  return {c};
}

const PagedKernel &tilesKernel() {
  static const PagedKernelOf<AttentionPagesConfig> kernel({
      .name = "attention_pages",
      .summary =
          "rows of any sequences by mma, heads of a multiple of 8 up to 256, states in their "
          "type, int8 or fp8; blocks share the keys of short pieces",
      .can = {Tf32, F16, BF16, F32I8, F16I8, BF16I8, F32F8, F16F8, BF16F8, SharedKeys, Window},
      .refusal = refusal<AttentionPagesConfig>,
      .configs = tilesConfigs,
      .emit = emit<AttentionPagesConfig>,
  });
  return kernel;
}

/// Four groups share the keys of a piece while it has a multiprocessor of its own; else two, and
/// two pieces share one.
std::vector<AttentionPagesWgmmaConfig> wgmmaConfigs(const PagedProblem &p) {
  AttentionPagesWgmmaConfig c{p.config};
  const int64_t tiles = llvm::divideCeilSigned(p.rows, c.pieceTokens()) * c.heads;
  c.groups = p.prompts && tiles <= p.target.multiprocessors ? 4 : 2;
  c.splits = splitsOf(p);
  return {c};
}

/// A version for few segments or many rows has prompts in most of its calls. Up to 16 rows are
/// short pieces, whose keys blocks share.
std::string slowerTiles(const PagedProblem &p) {
  return p.rows > (p.prompts ? 16 : 128) ? "" : "few rows of prompts: attention_pages";
}

const PagedKernel &wgmmaKernel() {
  static const PagedKernelOf<AttentionPagesWgmmaConfig> kernel({
      .name = "attention_pages_wgmma",
      .summary = "prompts of heads of 64 over pages of 64 tokens: tiles of 64 queries by wgmma",
      .needs = wgmmaTiles,
      .can = {F16, BF16, SharedKeys},
      .refusal = [](const PagedProblem &p) -> std::string {
        return p.config.headDim != 64      ? "heads that are not of 64"
               : p.config.pageTokens != 64 ? "pages that are not of 64 tokens"
                                           : "";
      },
      .slower = slowerTiles,
      .configs = wgmmaConfigs,
      .emit = emit<AttentionPagesWgmmaConfig>,
  });
  return kernel;
}

const PagedKernel &wideKernel() {
  static const PagedKernelOf<AttentionPagesWideConfig> kernel({
      .name = "attention_pages_wide",
      .summary = "prompts of heads of a multiple of 16 from 64 to 256 over pages of 64 tokens: "
                 "tiles of 64 queries by wgmma",
      .needs = wgmmaTiles,
      .can = {F16, BF16, SharedKeys, Window},
      .refusal = [](const PagedProblem &p) -> std::string {
        const int d = p.config.headDim;
        return d % 16 != 0 || d < 64 || d > 256 ? "heads that are no multiple of 16 from 64 to 256"
               : p.config.pageTokens != 64      ? "pages that are not of 64 tokens"
                                                : "";
      },
      .slower = slowerTiles,
      .configs =
          [](const PagedProblem &p) {
            AttentionPagesWideConfig c{p.config};
            c.splits = splitsOf(p);
            return std::vector{c};
          },
      .emit = emit<AttentionPagesWideConfig>,
  });
  return kernel;
}

const PagedKernel &orderedKernel() {
  static const PagedKernelOf<AttentionPagesOrderedConfig> kernel({
      .name = "attention_pages_ordered",
      .summary = "rows of any sequences, keys summed up in the order of their positions",
      .can = {Tf32, F16, BF16, F32I8, F16I8, BF16I8, F32F8, F16F8, BF16F8, SharedKeys, Window,
              OneOrder},
      .refusal = refusal<AttentionPagesOrderedConfig>,
      .configs =
          [](const PagedProblem &p) { return std::vector{AttentionPagesOrderedConfig{p.config}}; },
      .emit = emit<AttentionPagesOrderedConfig>,
  });
  return kernel;
}

} // namespace attention_pages

llvm::ArrayRef<const PagedKernel *> pagedKernels() {
  using namespace attention_pages;
  static const PagedKernel *const kernels[] = {&wgmmaKernel(), &wideKernel(), &tilesKernel(),
                                               &orderedKernel()};
  return kernels;
}

} // namespace gpt2c
