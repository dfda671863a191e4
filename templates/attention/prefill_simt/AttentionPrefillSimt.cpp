// The record of attention_prefill_simt.
#include "templates/attention/prefill_simt/AttentionPrefillSimt.h"

#include "templates/attention/Kernels.h"
#include "templates/attention/parts/AttentionParams.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

std::string nameOf(const AttentionPrefillSimtConfig &c) {
  return llvm::formatv("attention_prefill_simt {0}x{1}", 16 * c.tq, 16 * c.tk).str();
}

KernelSource attentionPrefillSimt(llvm::StringRef name, const AttentionPrefillSimtConfig &c) {
  KernelWriter w(name, "templates/attention/prefill_simt/attention_prefill_simt.cuh",
                 "tile::attentionPrefillSimt");
  attentionMembers(w, c);
  w.constant("TQ", c.tq);
  w.constant("TK", c.tk);
  passPlain(w, c);
  passSizes(w);
  w.pass(longestFirst);
  w.pass("blockIdx.y, blockIdx.z, (float *)dynamicShared");
  w.pass(w.given(c.given));
  const unsigned quads = (c.headDim + 3) / 4, stride = 4 * (quads + (quads % 2 == 0));
  const unsigned shared =
      4 * (16 * c.tq * stride + 16 * c.tk * stride + 16 * c.tq * (16 * c.tk + 4));
  w.check("AttentionSimt", "sharedBytes", shared);
  return w.finish(256, shared);
}

namespace attention_prefill_simt {

using Config = AttentionPrefillSimtConfig;

std::vector<Config> configs(const AttentionProblem &p) {
  Config c{p.config};
  c.tq = c.tk = c.headDim > 96 ? 2 : 4;
  return {c};
}

llvm::Error emit(AttentionLaunch &l, const Config &c) {
  if (llvm::Error e = l.begin(c))
    return e;
  return l.launch(attentionPrefillSimt(l.name("attention_prefill_simt"), c), l.tiles(16 * c.tq));
}
} // namespace attention_prefill_simt

const AttentionKernel &attentionPrefillSimtKernel() {
  using namespace attention_prefill_simt;
  static const AttentionKernelOf<Config> kernel({
      .name = "attention_prefill_simt",
      .summary = "many queries without tensor cores, any head size",
      .can = {AttentionAbility::F32, AttentionAbility::Tf32, AttentionAbility::F16,
              AttentionAbility::BF16, AttentionAbility::F32I8, AttentionAbility::F16I8,
              AttentionAbility::BF16I8, AttentionAbility::F32F8, AttentionAbility::F16F8,
              AttentionAbility::BF16F8, AttentionAbility::MixedTypes, AttentionAbility::SharedKeys,
              AttentionAbility::KeyMask, AttentionAbility::Window, AttentionAbility::SoftCap,
              AttentionAbility::Alibi, AttentionAbility::NotCausal, AttentionAbility::GivenScale},
      .configs = configs,
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
