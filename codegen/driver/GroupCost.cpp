#include "codegen/driver/GroupCost.h"

#include "ir/FunctionNames.h"
#include "schedule/DecodeForm.h"
#include "schedule/Versions.h"
#include "schedule/cost/StepCost.h"
#include "templates/Lowerings.h"

#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

namespace {

/// A step in the form that is taken. Without an estimate the kernel is the fastest there is.
struct TakenStep {
  llvm::StringRef kernel; ///< empty: launches of a graph
  std::optional<double> microseconds;
};

/// Steps of a decoder with weights in one storage or another.
class StepEstimates {
public:
  StepEstimates(const Function &decode, const DecoderShape &shape, DType precision,
                const DecodeForms &forms, const Target &target)
      : decode_(decode), shape_(shape), precision_(precision), forms_(forms), target_(target) {}

  /// Of layers in bytes with scales of `group` elements, 0: of rows, or the floats they stand for.
  TakenStep of(int64_t rows, int64_t group) const {
    const auto kernels = allKernels().decode;
    const DecoderShape bytes = stored(DType::I8, group), floats = stored(precision_, 0);
    DecodeProblem p = problem(bytes, rows), wide = problem(floats, rows);
    const bool widened = isStepOfFloats(p, wide, kernels);
    const DecodeProblem &taken = widened ? wide : p;
    if (const DecodeKernel *kernel =
            forms_.graph().empty() ? leaderOf(kernels, taken, taken) : nullptr)
      return {kernel->name(), kernel->candidates(taken).front().microseconds};
    return {"", graphStepMicroseconds(bytes, rows, target_.rates)};
  }

private:
  DecoderShape stored(DType weights, int64_t group) const {
    DecoderShape s = shape_;
    s.type = precision_;
    s.weights = weights;
    s.weightGroup = group;
    s.lastWeights = DType::I8;
    return s;
  }
  DecodeProblem problem(const DecoderShape &s, int64_t rows) const {
    DecodeProblem p =
        decodeProblem(decode_, &s, rows, nullptr, target_, forms_.of(rows, layerWeightBytes(s)));
    p.type = precision_;
    p.grouped |= precision_ == DType::BF16;
    return p;
  }

  const Function &decode_;
  const DecoderShape &shape_;
  DType precision_;
  const DecodeForms &forms_;
  const Target &target_;
};

} // namespace

/// Whether few rows in that precision have a kernel with a scale for each row alone.
static bool lacksKernel(const DecoderShape &s, DType precision, int64_t group,
                        const Target &target) {
  const LinearFamily &family = allKernels().linear;
  for (int64_t k : {s.width, s.hidden}) {
    LinearShape shape{Scalar(precision), Scalar(DType::I8), Scalar(precision), s.width, k, 1};
    shape.target = target;
    const bool rows = family.computes(shape);
    shape.wGroup = group;
    if (rows && !family.computes(shape))
      return true;
  }
  return false;
}

std::string whyGroupsAreSlower(const Module &module, DType precision, int64_t group,
                               const CodegenOptions &options) {
  constexpr double most = 1.125;
  Function *decode = module.function(functions::decode);
  if (options.archs.empty() || !decode)
    return "";
  auto shape = readDecoder(*decode);
  if (!shape) { // its steps are launches
    llvm::consumeError(shape.takeError());
    return precision == DType::F16 ? "" : "few rows have kernels with groups in fp16 alone";
  }
  for (const TargetGroup &of : targetGroups(options.archs, options.rates)) {
    if (lacksKernel(*shape, precision, group, of.target))
      return "few rows have no kernel with groups in this precision";
    const DecodeForms forms(decode, options.decode, of.target,
                            options.fuseNorm && options.dependentLaunch, options.packWeights);
    const StepEstimates steps(*decode, *shape, precision, forms, of.target);
    for (int64_t rows : persistentRows) {
      const TakenStep plain = steps.of(rows, 0), groups = steps.of(rows, group);
      if (!plain.microseconds && plain.kernel != groups.kernel)
        return llvm::formatv("steps of {0} sequence{1} would not be {2}", rows,
                             rows == 1 ? "" : "s", plain.kernel)
            .str();
      if (plain.microseconds && groups.microseconds &&
          *groups.microseconds > most * *plain.microseconds)
        return llvm::formatv("steps of {0} sequence{1} would take {2:F0} us instead of {3:F0}",
                             rows, rows == 1 ? "" : "s", *groups.microseconds, *plain.microseconds)
            .str();
      if (rows >= mostSequences(module, options.maxBatch))
        break;
    }
  }
  return "";
}

} // namespace gpt2c
