#include "schedule/DecodeForm.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

DecodeProblem decodeProblem(const Function &decode, const DecoderShape *shape, int64_t rows,
                            const Function *extend, const Target &target, StepForms allowed) {
  DecodeProblem p{.shape = shape, .rows = rows, .target = target, .allowed = allowed};
  for (const auto &op : decode.ops())
    if (op->is(OpCode::Embed))
      p.type = op->result()->type.dtype;
  p.grouped = p.type == DType::BF16 || DecoderWeights::of(decode).grouped;
  if (!extend)
    return p;
  const Type &kv = extend->argument("kv")->type;
  p.paged = true;
  p.pageType = kv.dtype;
  p.pageTokens = kv.shape[4].constant().value_or(0);
  p.pageColumns = extend->argument("tables")->type.shape[1].constant().value_or(0);
  return p;
}

DecodeForms::DecodeForms(const Function *decode, DecodeMode mode, const Target &target,
                         bool optimised)
    : mode_(mode) {
  if (decode)
    weights_ = DecoderWeights::of(*decode);
  graph_ = mode == DecodeMode::Graph        ? "it is asked for"
           : mode == DecodeMode::Persistent ? ""
           : !decode                        ? "there is no @decode"
           : !target.has(stepClusters)      ? "the target is not sm_90a alone"
           : !optimised                     ? "launches or norms are not as they were measured"
                                            : unmeasured();
}

/// Why a step with so many bytes of weights in a layer is not known to be faster as one kernel.
std::string DecodeForms::unmeasured() const {
  const int64_t bytes = weights_.bytesOfLayer,
                most = weights_.grouped     ? mostGroupedBytes
                       : weights_.quantised ? fasterInt8ClusterBytes
                                            : fasterClusterBytes,
                least = weights_.grouped ? leastGroupedBytes : 0;
  if (bytes >= least && bytes <= most)
    return "";
  return llvm::formatv("layers of {0} bytes of weights; it is faster of {1} to {2}", bytes, least,
                       most)
      .str();
}

StepForms DecodeForms::of(int64_t rows) const {
  const bool many =
      weights_.grouped || (weights_.quantised && weights_.bytesOfLayer >= leastInt8ManyBytes);
  return {.stages = areAsked() || (rows <= fasterRows && weights_.bytesOfLayer <= fasterBytes),
          .shares = areAsked() || rows <= (many ? fasterManyShareRows : fasterShareRows)};
}

} // namespace gpt2c
