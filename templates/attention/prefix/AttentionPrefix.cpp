// The record of attention_prefix.
#include "templates/attention/prefix/AttentionPrefix.h"

#include "runtime/plan/PrefixTiles.h"
#include "templates/attention/parts/AttentionParams.h"

namespace gpt2c {

AttentionPrefixConfig prefixConfig(const AttentionConfig &of, int64_t sequences) {
  AttentionPrefixConfig c{of};
  if (c.kvHeads == 0)
    c.kvHeads = c.heads;
  // Wide heads leave registers for half of the warps.
  c.warps = c.headDim <= 64 && sequences * (c.heads / c.kvHeads) > 64 ? 8 : 4;
  c.parts = rt::mostPrefixParts;
  return c;
}

/// As attention_prefix.cuh has it.
static unsigned sharedBytesOf(const AttentionPrefixConfig &c) {
  const unsigned padded = (unsigned(c.headDim) + 15) / 16 * 16;
  const unsigned tile = padded <= 64 ? 64 : padded <= 128 ? 32 : 16;
  return (16 * unsigned(c.warps) + 4 * tile) * (padded + 8) * 2;
}

KernelSource attentionPrefix(llvm::StringRef name, const AttentionPrefixConfig &c) {
  KernelWriter w(name, "templates/attention/prefix/attention_prefix.cuh", "tile::attentionPrefix");
  attentionMembers(w, c);
  w.constant("PageTokens", c.pageTokens);
  w.constant("Warps", c.warps);
  w.constant("Groups", 1);
  w.constant("Parts", c.parts);
  ropeMembers(w, c);
  w.in("qkv", c.x);
  w.in("kv", c.kv);
  w.in("past", Scalar::I32, c.ropePairs > 0);
  w.in("rows", Scalar::I32, c.byRows);
  w.in("tables", Scalar::I32);
  w.in("tiles", Scalar::I32);
  passRope(w, c);
  w.out("prefixParts", Scalar::F32);
  for (const char *parameter : {"layer", "layers", "tableStride"})
    w.i32(parameter);
  w.f32("scale");
  w.pass("blockIdx.x, blockIdx.y");
  w.pass("(" + cudaType(c.x) + " *)dynamicShared");
  w.check("AttentionPrefix", "members", c.members());
  w.check("AttentionPrefix", "words", rt::prefixTileHead + c.members());
  w.checkSizes("AttentionPrefix");
  return w.finish(32 * c.warps, sharedBytesOf(c), c.headDim > 64 && c.headDim <= 128 ? 3 : 2);
}

void prefixMembers(KernelWriter &w, const AttentionConfig &c) {
  w.constant("Parts", c.prefixes ? rt::mostPrefixParts : 0);
}
void passPrefix(KernelWriter &w, const AttentionConfig &c) {
  w.in("prefixes", Scalar::I32, c.prefixes);
  w.in("prefixParts", Scalar::F32, c.prefixes);
}

bool launchPrefix(StepBuilder &b, const Op &op, const AttentionPrefixConfig &c,
                  const Dim &sequences, StepBuilder::Args &args) {
  const auto ports = c.members() > 0 ? b.prefixes(sequences, c.members()) : std::nullopt;
  if (!ports)
    return false;
  const int64_t bytes = int64_t(c.headDim + 8) * 4; // of a part of a query
  args["tiles"] = ports->tiles;
  args["prefixes"] = ports->sequences;
  args["prefixParts"] =
      b.sharedScratch("attention-prefix", b.maximum(sequences) * c.heads * c.parts * bytes);
  b.launch(op.locations, "prefix_attention",
           attentionPrefix(b.pool().nextKernelName("attention_prefix"), c), args,
           {rt::constantExpr(c.kvHeads), b.expr(ports->count), one()},
           ports->count * Dim(c.members() * c.heads * bytes), 0);
  return true;
}

llvm::Error launchPrefix(AttentionLaunch &l, AttentionConfig &c) {
  if (!c.prefixes)
    return llvm::Error::success();
  auto args = l.args.copy();
  if (!args)
    return args.takeError();
  c.prefixes = launchPrefix(l.b, l.op, prefixConfig(c, l.p.sequences), l.sequences(), *args);
  for (const char *name : {"prefixes", "prefixParts"})
    if (c.prefixes)
      l.args.set(name, (*args)[name]);
  return llvm::Error::success();
}

} // namespace gpt2c
