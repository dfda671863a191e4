// The record of a step with a stage for each op: stages.cuh.
#include "templates/decode_step/common/DecodeKernels.h"

namespace gpt2c {

using namespace persistent;

namespace decode_stages {

struct Config {};
static std::string nameOf(const Config &) { return "decode_stages"; }

static std::string refusal(const DecodeProblem &p) {
  return p.rows > mostRows ? "more than 8 sequences" : "";
}
static std::string slower(const DecodeProblem &p) {
  return p.asked || p.stages ? "" : "launches are faster";
}

static std::vector<Config> configs(const DecodeProblem &) { return {{}}; }
static llvm::Error emit(DecodeLaunch &l, const Config &) { return l.builder.emitStages(); }

} // namespace decode_stages

const DecodeKernel &decodeStagesKernel() {
  using namespace decode_stages;
  static const DecodeKernelOf<Config> kernel({
      .name = "decode_stages",
      .summary = "a step of up to 8 sequences of any shape on sm_90: a stage for each op",
      .can = {DecodeAbility::FloatSteps, DecodeAbility::OwnLast},
      .refusal = refusal,
      .slower = slower,
      .configs = configs,
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
