// The record of attention_decode_mma.
#include "templates/attention/decode_mma/AttentionDecodeMma.h"

#include "templates/attention/Kernels.h"
#include "templates/attention/parts/AttentionParams.h"
#include "templates/attention/prefix/AttentionPrefix.h"
#include "templates/linear/parts/ConfigList.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

std::string nameOf(const AttentionDecodeMmaConfig &c) {
  return llvm::formatv("attention_decode_mma warps={0} splits={1}", c.warps, c.splits).str();
}

bool preferRing(const AttentionProblem &p) {
  const int64_t processors = p.target.multiprocessors, rows = p.sequences * p.queries;
  const int64_t most = p.target.has({Feature::Tma}) && rows > 32 ? 4 * processors : 8 * processors;
  return p.config.kv != Scalar::I8 && rows * p.config.heads >= most;
}

KernelSource attentionDecodeMma(llvm::StringRef name, const AttentionDecodeMmaConfig &c) {
  KernelWriter w(name, "templates/attention/decode_mma/attention_decode_mma.cuh",
                 "tile::attentionDecodeMma");
  decodeMembers(w, c);
  w.constant("Queries", c.queries);
  prefixMembers(w, c);
  passPlain(w, c);
  passParts(w);
  passPrefix(w, c);
  passSizes(w, c.pageTokens > 0);
  w.pass("blockIdx.x, blockIdx.y, blockIdx.z");
  w.pass(w.given(c.given));
  return w.finish(32 * c.warps, 0, c.blocks);
}

namespace attention_decode_mma {

using Config = AttentionDecodeMmaConfig;

Config modelConfig(const AttentionProblem &p) {
  Config c{{p.config}};
  // Split the keys over a cluster until each SM has a block, with int8, whose blocks have half of
  // the bytes on their way, two.
  const int64_t blocks = p.sequences * p.queries * c.heads, processors = p.target.multiprocessors;
  const int64_t wanted = c.kv == Scalar::I8 ? 2 * processors : processors;
  c.queries = int(p.queries);
  c.splits = int(std::min<int64_t>(llvm::divideCeilSigned(wanted, blocks), 8));
  c.cluster = c.splits > 1;
  return c;
}

std::vector<Config> configs(const AttentionProblem &p) {
  const Config model = modelConfig(p);
  ConfigList list(model);
  for (int splits : {1, 2, 4, 8})
    for (int warps : {4, 8}) {
      Config c = model;
      c.splits = splits;
      c.cluster = splits > 1;
      c.warps = warps;
      c.blocks = 12 / warps;
      if (splits == 1 || p.sequences * p.queries * c.heads * splits < 4 * p.target.multiprocessors)
        list.add(c);
    }
  return list.take();
}

std::string refusal(const AttentionProblem &p) {
  const AttentionConfig &c = p.config;
  return p.hasOddPages()          ? "pages with a mask or lengths, or of no multiple of 64"
         : p.queries > fewQueries ? "more than 4 queries of a sequence"
         : !c.append || !c.bulk   ? "a state that it may not copy in bulk while it appends"
         : c.headDim > 128        ? "heads of more than 128"
         : c.headDim % (c.kv == Scalar::I8 ? 32 : 16) != 0
             ? "heads that are no multiple of 16, of 32 for an int8 state"
             : "";
}
std::string slower(const AttentionProblem &p) {
  return preferRing(p) ? "a state of two bytes and so many blocks that a ring reads it faster: "
                         "attention_decode"
                       : "";
}
bool rivals(const AttentionProblem &, llvm::StringRef leader) {
  return leader == "attention_decode";
}

llvm::Error emit(AttentionLaunch &l, const Config &taken) {
  Config c = taken;
  if (llvm::Error e = l.begin(c))
    return e;
  if (llvm::Error e = launchPrefix(l, c))
    return e;
  l.addParts(c.splits);
  return l.launch(attentionDecodeMma(l.name("attention_decode_mma"), c), l.perQuery(c.splits));
}
} // namespace attention_decode_mma

const AttentionKernel &attentionDecodeMmaKernel() {
  using namespace attention_decode_mma;
  static const AttentionKernelOf<Config> kernel({
      .name = "attention_decode_mma",
      .summary = "few queries of each sequence in fp16 or bf16 on tensor cores, keys in parts "
                 "within a cluster, states in their type, or int8 beside fp16",
      .can = {AttentionAbility::F16, AttentionAbility::BF16, AttentionAbility::F16I8,
              AttentionAbility::KeyMask, AttentionAbility::Pages, AttentionAbility::NotCausal,
              AttentionAbility::GivenScale},
      .refusal = refusal,
      .slower = slower,
      .rivals = rivals,
      .configs = configs,
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
