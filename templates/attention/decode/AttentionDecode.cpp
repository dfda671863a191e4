// The record of attention_decode.
#include "templates/attention/decode/AttentionDecode.h"

#include "templates/attention/Kernels.h"
#include "templates/attention/parts/AttentionParams.h"
#include "templates/attention/prefix/AttentionPrefix.h"
#include "templates/linear/parts/ConfigList.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

std::string nameOf(const AttentionDecodeConfig &c) {
  return llvm::formatv("attention_decode warps={0} splits={1} ring={2}", c.warps, c.splits, c.ring)
      .str();
}

/// Keys that a warp takes in a round, and bytes of each in the state.
static std::pair<int, unsigned> roundOf(const AttentionDecodeConfig &c) {
  int v = std::min<int>(16 / scalarBytes(c.x), c.aligned ? 16 / scalarBytes(c.kv) : 4);
  while (c.headDim % v != 0)
    v /= 2;
  const int vectors = c.headDim / v, unroll = vectors > 32 ? 2 : 4;
  int lanes = 1;
  while (lanes < std::min(vectors, 32))
    lanes *= 2;
  return {32 / lanes * unroll, c.headDim * scalarBytes(c.kv) + (isQuantised(c.kv) ? 4 : 0)};
}
static int64_t ringKeys(const AttentionDecodeConfig &c) {
  return int64_t(c.warps) * c.ring * roundOf(c).first;
}
/// Whether rows may come by a ring: what a warp copies at a time lies in one page.
static bool mayHaveRing(const AttentionDecodeConfig &c) {
  return c.bulk && (c.pageTokens == 0 || c.pageTokens % roundOf(c).first == 0);
}
unsigned attentionRingBytes(const AttentionDecodeConfig &c) {
  return 2 * unsigned(ringKeys(c)) * roundOf(c).second;
}

KernelSource attentionDecode(llvm::StringRef name, const AttentionDecodeConfig &c) {
  KernelWriter w(name, "templates/attention/decode/attention_decode.cuh", "tile::attentionDecode");
  decodeMembers(w, c);
  w.flag("Aligned", c.aligned);
  w.flag("Last", c.last);
  w.constant("Ring", c.ring);
  w.constant("Queries", c.queries);
  ropeMembers(w, c);
  prefixMembers(w, c);
  passPlain(w, c);
  w.in("length", Scalar::I32, c.last);
  passRope(w, c);
  passParts(w);
  passPrefix(w, c);
  passSizes(w, c.pageTokens > 0);
  w.pass("blockIdx.x, blockIdx.y, blockIdx.z");
  const unsigned shared = attentionRingBytes(c);
  w.pass(shared ? "(char *)dynamicShared" : "nullptr");
  w.pass(w.given(c.given));
  w.check("DecodeKeys", "ringBytes", shared);
  return w.finish(32 * c.warps, shared);
}

namespace attention_decode {

using Config = AttentionDecodeConfig;

Config modelConfig(const AttentionProblem &p) {
  Config c{{p.config}};
  c.append = p.config.append || (!c.last && p.queries <= fewQueries);
  if (c.ropePairs > 0)
    c.queries = int(p.queries);
  const int64_t processors = p.target.multiprocessors;
  // Split the keys over a cluster until there are about two blocks for each SM. Where all tokens
  // but the last have no query, blocks append them, too.
  const int64_t blocks = p.sequences * p.queries * c.heads;
  const int64_t wanted = c.last ? 4 * processors : 2 * processors;
  while (c.splits < 8 && blocks * c.splits < wanted)
    c.splits *= 2;
  c.cluster = c.splits > 1;
  c.warps = !c.last && (c.splits == 1 || (c.splits == 8 && blocks * 8 < 2 * processors)) ? 8 : 4;
  // Bulk copies keep an SM reading where blocks follow each other on it, or where two of them at
  // least read their rings twice, of half of the context. Elsewhere giving shared memory what the
  // neighbours use as L1 costs more than that gains.
  Config ring = c;
  ring.warps = ring.ring = 4;
  constexpr int64_t rings = 4;
  const bool follow = blocks >= 4 * processors,
             refill = blocks * c.splits >= 2 * processors &&
                      p.context >= rings * c.splits * ringKeys(ring);
  if (mayHaveRing(c) && (follow || refill) && attentionRingBytes(ring) <= 64 * 1024)
    c = ring;
  return c;
}

std::vector<Config> configs(const AttentionProblem &p) {
  const Config model = modelConfig(p);
  const int64_t processors = p.target.multiprocessors;
  ConfigList list(model);
  for (int splits : {1, 2, 4, 8})
    for (int warps : {4, 8})
      for (int ring : {0, 4}) {
        Config c = model;
        c.splits = splits;
        c.cluster = splits > 1;
        c.warps = warps;
        c.ring = ring;
        // Blocks for half of the SMs; a ring where each has several.
        const int64_t blocks = p.sequences * p.queries * c.heads * splits;
        if ((splits == 8 || 2 * blocks > processors) && (splits == 1 || blocks < 16 * processors) &&
            (ring == 0 ||
             (mayHaveRing(c) && blocks >= 2 * processors && attentionRingBytes(c) <= 64 * 1024)))
          list.add(c);
      }
  return list.take();
}

std::string refusal(const AttentionProblem &p) {
  return p.hasOddPages()           ? "pages with a mask or lengths, or of no multiple of 64"
         : p.config.ropePairs == 0 ? ""
         : p.config.last           ? "a rotary embedding of all tokens"
         : p.queries > fewQueries  ? "a rotary embedding of more than 4 queries of a sequence"
                                   : "";
}
std::string slower(const AttentionProblem &p) {
  return p.queries > fewQueries ? "more than 4 queries of a sequence: tiles" : "";
}
bool rivals(const AttentionProblem &, llvm::StringRef leader) {
  return leader == "attention_decode_mma" || leader == "attention_decode_group";
}

llvm::Error emit(AttentionLaunch &l, const Config &taken) {
  Config c = taken;
  if (llvm::Error e = l.begin(c))
    return e;
  if (llvm::Error e = launchPrefix(l, c))
    return e;
  l.addParts(c.splits);
  return l.launch(attentionDecode(l.name("attention_decode"), c), l.perQuery(c.splits));
}
} // namespace attention_decode

const AttentionKernel &attentionDecodeKernel() {
  using namespace attention_decode;
  static const AttentionKernelOf<Config> kernel({
      .name = "attention_decode",
      .summary = "few queries of each sequence, keys in parts within a block or cluster, states in "
                 "fp32, fp16, bf16, int8 or fp8",
      .can =
          {AttentionAbility::F32,       AttentionAbility::Tf32,       AttentionAbility::F16,
           AttentionAbility::BF16,      AttentionAbility::F32I8,      AttentionAbility::F16I8,
           AttentionAbility::BF16I8,    AttentionAbility::F32F8,      AttentionAbility::F16F8,
           AttentionAbility::BF16F8,    AttentionAbility::MixedTypes, AttentionAbility::SharedKeys,
           AttentionAbility::KeyMask,   AttentionAbility::Pages,      AttentionAbility::Window,
           AttentionAbility::SoftCap,   AttentionAbility::Alibi,      AttentionAbility::Last,
           AttentionAbility::NotCausal, AttentionAbility::Rope,       AttentionAbility::GivenScale},
      .refusal = refusal,
      .slower = slower,
      .rivals = rivals,
      .configs = configs,
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
