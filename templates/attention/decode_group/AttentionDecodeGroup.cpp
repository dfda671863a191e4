// The record of attention_decode_group.
#include "templates/attention/decode_group/AttentionDecodeGroup.h"

#include "templates/attention/Kernels.h"
#include "templates/attention/parts/AttentionParams.h"
#include "templates/attention/prefix/AttentionPrefix.h"
#include "templates/linear/parts/ConfigList.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

std::string nameOf(const AttentionDecodeGroupConfig &c) {
  return llvm::formatv("attention_decode_group warps={0} splits={1} keys={2}", c.warps, c.splits,
                       c.keys)
      .str();
}

KernelSource attentionDecodeGroup(llvm::StringRef name, const AttentionDecodeGroupConfig &c) {
  KernelWriter w(name, "templates/attention/decode_group/attention_decode_group.cuh",
                 "tile::attentionDecodeGroup");
  decodeMembers(w, c);
  w.constant("Queries", 1);
  w.constant("Keys", c.keys);
  ropeMembers(w, c);
  prefixMembers(w, c);
  passPlain(w, c);
  passRope(w, c);
  passParts(w);
  passPrefix(w, c);
  passSizes(w, c.pageTokens > 0);
  w.pass("blockIdx.x, blockIdx.y, blockIdx.z");
  w.pass(w.given(c.given));
  const int blocks = c.warps == 8 ? 2 : 3; // that an SM has registers for
  return w.finish(32 * c.warps, 0, blocks);
}

namespace attention_decode_group {

using Config = AttentionDecodeGroupConfig;

int kvHeadsOf(const AttentionConfig &c) { return c.kvHeads ? c.kvHeads : c.heads; }

/// Keys of a round: of heads up to 64 a warp has room for 32.
int mostKeys(const AttentionConfig &c) { return c.headDim <= 64 ? 32 : 16; }

/// Whether clusters of so many blocks find room while the predecessor's last blocks run: those of
/// two fill what it leaves, of larger ones a part of each group of SMs lies idle.
bool findRoom(const AttentionProblem &p, int splits) {
  const int64_t clusters = p.sequences * kvHeadsOf(p.config);
  return splits <= 2 || 2 * clusters <= 3 * p.target.clusters(splits);
}

Config modelConfig(const AttentionProblem &p) {
  Config c{{p.config}};
  c.append = true;
  // Split the keys over a cluster until there are three blocks for two SMs; where eight are fewer
  // blocks than SMs, shorter rounds let more warps have keys.
  const int64_t blocks = p.sequences * kvHeadsOf(c), processors = p.target.multiprocessors;
  while (c.splits < 8 && 2 * blocks * c.splits < 3 * processors && findRoom(p, 2 * c.splits))
    c.splits *= 2;
  c.cluster = c.splits > 1;
  c.keys = c.splits == 8 && blocks * 8 < processors ? 16 : mostKeys(c);
  // One wave of two blocks on an SM: rounds of half the keys leave registers for twice the warps.
  if (c.keys == 32 && blocks * c.splits <= 2 * processors) {
    c.keys = 16;
    c.warps = 8;
  }
  return c;
}

std::vector<Config> configs(const AttentionProblem &p) {
  const Config model = modelConfig(p);
  ConfigList list(model);
  const int64_t processors = p.target.multiprocessors;
  for (int splits : {1, 2, 4, 8})
    for (int warps : {4, 8})
      for (int keys : {16, 32}) {
        Config c = model;
        c.splits = splits;
        c.cluster = splits > 1;
        c.warps = warps;
        c.keys = keys;
        const int64_t blocks = p.sequences * kvHeadsOf(c) * splits;
        if (keys <= mostKeys(c) && (splits == 8 || 4 * blocks > processors) &&
            (splits == 1 || blocks < 8 * processors))
          list.add(c);
      }
  return list.take();
}

std::string refusal(const AttentionProblem &p) {
  const AttentionConfig &c = p.config;
  return p.queries != 1    ? "more than one query of a sequence"
         : p.hasOddPages() ? "pages with a mask or lengths, or of no multiple of 64"
         : p.group() > 8   ? "more than 8 heads that share keys"
         : c.headDim % (isQuantised(c.kv) ? 32 : 16) != 0 || c.headDim > 128
             ? "heads that are no multiple of 16, of 32 for a state of bytes, or more than 128"
             : "";
}
/// Of states of bytes beside heads with keys of their own attention_decode_mma reads int8 alone, as
/// it is; attention_decode, without tensor cores, has more to do than memory.
std::string slower(const AttentionProblem &p) {
  const AttentionConfig &c = p.config;
  const bool byMma = c.kv == Scalar::I8 && c.x == Scalar::F16 && c.ropePairs == 0;
  return p.hasOwnKeys() && (!isQuantised(c.kv) || byMma) ? "heads that have keys of their own" : "";
}

llvm::Error emit(AttentionLaunch &l, const Config &taken) {
  Config c = taken;
  if (llvm::Error e = l.begin(c))
    return e;
  if (llvm::Error e = launchPrefix(l, c))
    return e;
  l.addParts(c.splits);
  return l.launch(
      attentionDecodeGroup(l.name("attention_decode_group"), c),
      {rt::constantExpr(c.splits), rt::constantExpr(kvHeadsOf(c)), l.b.expr(l.sequences())});
}
} // namespace attention_decode_group

const AttentionKernel &attentionDecodeGroupKernel() {
  using namespace attention_decode_group;
  static const AttentionKernelOf<Config> kernel({
      .name = "attention_decode_group",
      .summary = "one query of each sequence in fp16 or bf16 on tensor cores, all heads that share "
                 "those of the state in a tile, keys in parts within a cluster, states in their "
                 "type, int8 or fp8",
      .can = {AttentionAbility::F16, AttentionAbility::BF16, AttentionAbility::F16I8,
              AttentionAbility::BF16I8, AttentionAbility::F16F8, AttentionAbility::BF16F8,
              AttentionAbility::SharedKeys, AttentionAbility::KeyMask, AttentionAbility::Pages,
              AttentionAbility::Window, AttentionAbility::NotCausal, AttentionAbility::Rope,
              AttentionAbility::GivenScale},
      .refusal = refusal,
      .slower = slower,
      .configs = configs,
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
