// The record of a step in shares: shares.cuh, and rows.cuh of several sequences.
#include "schedule/cost/StepCost.h"
#include "templates/decode_step/common/DecodeKernels.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

using namespace persistent;

namespace shares {
static std::string nameOf(const Division &d) {
  return "decode_shares " + std::to_string(d.clusters) + "x" + std::to_string(d.ranks) +
         (d.weights.isPacked() || d.last.isPacked() ? " packed" : "");
}
} // namespace shares

namespace decode_shares {

static std::optional<shares::Division> divisionOf(const DecodeProblem &p) {
  const DecoderShape &s = *p.shape;
  const shares::Division shape = {
      .width = int(s.width),
      .heads = int(s.heads),
      .headDim = int(s.headDim),
      .hidden = int(s.hidden),
      .vocabulary = int(s.vocabulary),
      .weights = {int(infoOf(s.weights).bits), int(s.weightGroup)},
      .last = {int(infoOf(s.lastWeights).bits), int(s.lastGroup)},
      .keyHeads = int(s.keyHeads),
      .rotary = int(s.rotary),
      .gated = s.gated,
      .rows = p.rows == 1 ? 1 : shares::roundUp(int(p.rows), shares::columnRows),
      .pageColumns = int(p.pageColumns),
      .members = int(p.ranks)};
  return shares::divide(shape, int(s.context), int(3 + 2 * s.layers.size()), p.target);
}

static std::string refusal(const DecodeProblem &p) {
  if (const int most = p.ranks > 1 ? shares::columnRows : shares::mostRows; p.rows > most)
    return "those are of up to " + std::to_string(most) + " sequences" +
           (p.ranks > 1 ? " of ranks" : "");
  if (p.type != DType::F16 && p.type != DType::BF16)
    return "those are in fp16 or bf16";
  if (!p.target.has(stepClusters))
    return "the architectures have no " + (stepClusters - p.target.features).names();
  if (!p.shape)
    return "its stages are no chain of layers";
  const DecoderShape &s = *p.shape;
  auto isByteBesideBf16 = [&](DType weights) {
    return weights != s.type && infoOf(weights).bits == 8 && s.type != DType::F16;
  };
  if (isByteBesideBf16(s.weights) || isByteBesideBf16(s.lastWeights))
    return "weights of a byte are those of steps in fp16";
  if (s.weightGroup % 32 != 0 || s.lastGroup % 32 != 0)
    return "groups of weights are no multiple of 32";
  if (s.context == 0)
    return "its context is not constant";
  if (!suitPages(p))
    return "its state is in other pages";
  if (!divisionOf(p))
    return "there is no division of its shape that fits the shared memory of blocks";
  return "";
}
static double cost(const shares::Division &d, const DecodeProblem &p) {
  const shares::BlockBytes bytes = shares::blockBytes(d, int(p.shape->context));
  return clusterStepMicroseconds(*p.shape,
                                 {.weightBytes = bytes.others,
                                  .keyBytes = bytes.keys,
                                  .heads = d.headsEach,
                                  .sumBytes = bytes.sums,
                                  .rowGroups = d.rowGroups(),
                                  .packed = d.weights.isPacked(),
                                  .packedLast = d.last.isPacked()},
                                 d.rows > 1, p.target.rates) +
         exchangedWordsMicroseconds(*p.shape,
                                    d.clusters * p.shape->width / 4 * (d.rows > 1 ? d.rows : 2));
}

/// With weights in the form of which the step takes less.
static shares::Division configOf(const DecodeProblem &p) {
  const shares::Division plain = *divisionOf(p),
                         packed = shares::packed(plain, p.packs, p.packsLast);
  return p.packsAsked || cost(packed, p) < cost(plain, p) ? packed : plain;
}

static std::string slower(const DecodeProblem &p) {
  if (p.asked || !refusal(p).empty())
    return "";
  // The form is that of unpacked weights, so that packing changes no sum.
  const double here = cost(*divisionOf(p), p),
               launches = graphStepMicroseconds(*p.shape, p.rows, p.target.rates) +
                          exchangeMicroseconds(*p.shape, p.rows, p.target.rates);
  return here <= launches
             ? ""
             : llvm::formatv("they would take {0:F0} us for {1} sequences, launches {2:F0}", here,
                             p.rows, launches)
                   .str();
}

static std::vector<shares::Division> configs(const DecodeProblem &p) { return {configOf(p)}; }
static llvm::Error emit(DecodeLaunch &l, const shares::Division &d) {
  return l.builder.emitClusters(d);
}

} // namespace decode_shares

const DecodeKernel &decodeSharesKernel() {
  using namespace decode_shares;
  static const DecodeKernelOf<shares::Division> kernel({
      .name = "decode_shares",
      .summary = "a step of up to 16 sequences in fp16 or bf16 on Hopper: clusters share all of it",
      .can = {DecodeAbility::Grouped, DecodeAbility::FloatSteps, DecodeAbility::Nibbles,
              DecodeAbility::Groups, DecodeAbility::OwnLast, DecodeAbility::Pages,
              DecodeAbility::Ranks},
      .refusal = refusal,
      .slower = slower,
      .configs = configs,
      .cost = cost,
      .emit = emit,
  });
  return kernel;
}

} // namespace gpt2c
