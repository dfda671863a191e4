// The record of attention_prefill_mma.
#include "templates/attention/prefill_mma/AttentionPrefillMma.h"

#include "templates/attention/Kernels.h"
#include "templates/attention/parts/AttentionParams.h"
#include "templates/linear/parts/ConfigList.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

std::string nameOf(const AttentionPrefillMmaConfig &c) {
  return llvm::formatv("attention_prefill_mma warps={0} keys={1}", c.warps, c.keys).str();
}

KernelSource attentionPrefillMma(llvm::StringRef name, const AttentionPrefillMmaConfig &c) {
  KernelWriter w(name, "templates/attention/prefill_mma/attention_prefill_mma.cuh",
                 "tile::attentionPrefillMma");
  attentionMembers(w, c);
  w.constant("Warps", c.warps);
  w.constant("BK", c.keys);
  w.in("qkv", c.x);
  w.out("kv", c.kv);
  passOut(w, c);
  passPast(w);
  passSizes(w);
  w.pass(longestFirst);
  w.pass("blockIdx.y, blockIdx.z, (" + cudaType(c.x) + " *)dynamicShared");
  const unsigned shared = (16 * c.warps + 4 * c.keys) * (c.headDim + 8) * 2;
  w.check("AttentionMma", "sharedBytes", shared);
  return w.finish(32 * c.warps, shared);
}

namespace attention_prefill_mma {

using Config = AttentionPrefillMmaConfig;

std::vector<Config> configs(const AttentionProblem &p) {
  Config model{p.config};
  model.keys = model.headDim > 128 ? 32 : 64;
  ConfigList list(model);
  for (int warps : {2, 4, 8})
    for (int keys : {32, 64})
      if (keys <= model.keys) {
        Config c = model;
        c.warps = warps;
        c.keys = keys;
        list.add(c);
      }
  return list.take();
}

std::string refusal(const AttentionProblem &p) {
  const AttentionConfig &c = p.config;
  return !c.aligned ? "a state of bytes whose heads are not aligned"
         : c.headDim % 16 != 0 || c.headDim > 256
             ? "heads that are no multiple of 16, or more than 256"
         : p.findsScales() && c.headDim % 32 != 0 ? "scales of heads that are no multiple of 32"
                                                  : "";
}
std::string slower(const AttentionProblem &p) {
  return p.queries <= fewQueries ? "up to 4 queries of a sequence: attention_decode" : "";
}

llvm::Error emit(AttentionLaunch &l, const Config &c) {
  if (llvm::Error e = l.begin(c))
    return e;
  return l.launch(attentionPrefillMma(l.name("attention_prefill_mma"), c), l.tiles(16 * c.warps));
}
} // namespace attention_prefill_mma

const AttentionKernel &attentionPrefillMmaKernel() {
  using namespace attention_prefill_mma;
  static const AttentionKernelOf<Config> kernel({
      .name = "attention_prefill_mma",
      .summary =
          "many queries in fp16 or bf16 by mma, states in their type, int8 or fp8, heads of a "
          "multiple of 16 up to 256",
      .can = {AttentionAbility::F16, AttentionAbility::BF16, AttentionAbility::F16I8,
              AttentionAbility::BF16I8, AttentionAbility::F16F8, AttentionAbility::BF16F8,
              AttentionAbility::SharedKeys, AttentionAbility::KeyMask, AttentionAbility::Window,
              AttentionAbility::NotCausal, AttentionAbility::GivenScale,
              AttentionAbility::OwnScales},
      .refusal = refusal,
      .slower = slower,
      .configs = configs,
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
