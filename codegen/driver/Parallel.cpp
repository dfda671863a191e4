#include "codegen/driver/Parallel.h"

#include "codegen/driver/Schedules.h"
#include "ir/Error.h"
#include "ir/FunctionNames.h"
#include "schedule/cost/ScheduleCost.h"
#include "schedule/cost/StepCost.h"
#include "schedule/products/Operands.h"
#include "templates/Lowerings.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"

namespace gpt2c {
namespace {

constexpr Division divisions[] = {{1, 1}, {2, 1}, {4, 1}, {8, 1}, {1, 2},
                                  {1, 4}, {2, 2}, {4, 2}, {2, 4}};
/// Prompts go through stages in so many pieces.
constexpr double piecesOfPrompt = 4;

/// The launches of a prompt, and what each takes of a rank.
class Prompt {
public:
  Prompt(const FunctionSchedule &version, const TargetRates &rates, const LinkRates &link)
      : version_(version), rates_(rates), link_(link) {}

  /// What is asked of a sum over ranks: LinkRates::sumBehind or sumApart.
  using SumCost = double (LinkRates::*)(int64_t, int64_t, double, double) const;

  double microseconds(int64_t tensor) const {
    double all = microsecondsOf(version_.schedule, version_.bounds, rates_);
    if (tensor == 1)
      return all;
    for (const Group &group : version_.schedule.groups)
      if (const auto *linear = group.get<LinearGroup>())
        all += rankProduct(*linear, tensor) - linear->taken.microseconds.value_or(0);
      else if (const auto *mlp = group.get<MlpGroup>(); mlp && mlp->taken.microseconds)
        all -= *mlp->taken.microseconds * (1 - 1.0 / double(tensor));
    return all + sums(tensor, &LinkRates::sumBehind);
  }
  /// Of its sums over ranks.
  double sums(int64_t tensor, SumCost cost) const {
    double all = 0;
    for (const Group &group : version_.schedule.groups)
      if (const auto *linear = group.get<LinearGroup>(); linear && residualOf(*linear->product))
        all += sum(linear->problem, tensor, rankProduct(*linear, tensor), cost);
      else if (const auto *mlp = group.get<MlpGroup>())
        all += sum(mlp->problem.output, tensor, 0, cost);
    return all;
  }

private:
  double sum(const LinearProblem &p, int64_t tensor, double product, SumCost cost) const {
    const double launch = 2 * rates_.launches();
    return isNarrow(p.x) ? (link_.*cost)(p.rows * p.n, tensor, product, launch)
                         : link_.exchange(p.rows * p.n, tensor) + launch;
  }

  /// What the product takes where each rank has some columns of its result; or, where it ends a
  /// block of a layer, some columns of its rows, and then adds up.
  double rankProduct(const LinearGroup &group, int64_t tensor) const {
    LinearProblem p = group.problem;
    int64_t &divided = residualOf(*group.product) ? p.k : p.n;
    divided = int64_t(llvm::alignTo(llvm::divideCeil(divided, tensor), 8));
    const auto candidates = allKernels().linear.candidates(p);
    return !candidates.empty() && candidates.front().microseconds
               ? *candidates.front().microseconds
               : group.taken.microseconds.value_or(0) / double(tensor);
  }

  const FunctionSchedule &version_;
  const TargetRates &rates_;
  const LinkRates &link_;
};

/// Bytes of weights and KV state of the GPU that has most.
double bytesOf(const DecoderShape &shape, const DecoderShape &rank, const Division &d,
               double stateBytes) {
  const auto layers = double(llvm::divideCeil(shape.layers.size(), d.stages));
  const bool isTied =
      d.tensor == 1 && d.stages == 1 && shape.embed && shape.logits &&
      shape.embed->operand(ops::Embed::Tokens) == shape.logits->operand(ops::Linear::W);
  const double ends = isTied         ? double(vocabularyBytes(shape))
                      : d.stages > 1 ? double(vocabularyBytes(shape)) // either of them
                                     : double(vocabularyBytes(shape) + vocabularyBytes(rank));
  return layers * double(layerWeightBytes(rank)) + ends +
         stateBytes * layers / double(shape.layers.size()) * double(rank.keyHeads) /
             double(shape.keyHeads);
}

} // namespace

bool DivisionEstimate::pays(const DivisionEstimate &one) const {
  return refused.empty() && (step1 < gain * one.step1 || step32 < gain * one.step32 ||
                             (prompt > 0 && prompt < gain * one.prompt));
}

llvm::Expected<ParallelEstimates> estimateParallel(const Module &module,
                                                   const CodegenOptions &options, double stateBytes,
                                                   const LinkRates &link) {
  Function *decode = module.function(functions::decode);
  if (!decode)
    return makeError(ExitCode::Unsupported, "there is no @decode to estimate");
  auto shape = readDecoder(*decode);
  if (!shape)
    return makeError(ExitCode::Unsupported,
                     "@decode is no chain of layers: " + llvm::toString(shape.takeError()));
  Target target = Target::of(options.archs);
  target.rates = options.rates;
  Function *prompts = module.function(functions::extend);
  if (!prompts)
    prompts = module.function(functions::prefill);
  std::optional<FunctionSchedule> version;
  if (prompts) {
    auto versions = schedulerOf(module, options, target).of(*prompts);
    if (!versions)
      llvm::consumeError(versions.takeError()); // it has no kernels
    else if (!versions->empty())
      version = std::move(versions->back());
  }
  ParallelEstimates out;
  out.decoder = describe(*shape);
  if (version)
    for (const char *rows : {"rows", "seq"})
      if (version->bounds.count(rows))
        out.promptTokens = std::max(out.promptTokens, version->bounds.at(rows).second);
  for (const Division &d : divisions) {
    DivisionEstimate e;
    e.division = d;
    auto rank = shapeOfRank(*shape, d.tensor);
    if (!rank)
      e.refused = llvm::toString(rank.takeError());
    else if (d.stages > int64_t(shape->layers.size()))
      e.refused = "there are fewer layers than stages";
    if (!e.refused.empty()) {
      out.divisions.push_back(std::move(e));
      continue;
    }
    DecodeProblem step =
        decodeProblem(*decode, &*rank, 1, nullptr, target, {.asked = false, .stages = false});
    e.step1 = stepMicroseconds(*rank, d, 1, step, allKernels().decode, link);
    e.step32 = stepMicroseconds(*rank, d, 32, step, allKernels().decode, link);
    if (version) {
      const Prompt prompt(*version, target.rates, link);
      e.prompt = prompt.microseconds(d.tensor);
      if (d.tensor > 1) {
        e.sums = prompt.sums(d.tensor, &LinkRates::sumBehind);
        e.sumsApart = prompt.sums(d.tensor, &LinkRates::sumApart);
      }
      if (d.stages > 1)
        e.prompt *= slowestStage(*rank, d.stages) * (1 + double(d.stages - 1) / piecesOfPrompt);
    }
    e.bytes = bytesOf(*shape, *rank, d, stateBytes);
    out.divisions.push_back(std::move(e));
  }
  return out;
}

std::string describeLoss(const DivisionEstimate &e, const DivisionEstimate &one) {
  if (!e.refused.empty())
    return std::to_string(e.division.gpus()) + " GPUs are refused: " + e.refused;
  return llvm::formatv("{0} GPUs are estimated to gain nothing: a decode step of one sequence "
                       "takes {1:F0} us on them and {2:F0} us on one, of 32 sequences {3:F0} and "
                       "{4:F0} us",
                       e.division.gpus(), e.step1, one.step1, e.step32, one.step32)
      .str();
}

void print(const ParallelEstimates &estimates, const LinkRates &link, llvm::raw_ostream &os) {
  os << estimates.decoder << "\n"
     << llvm::formatv("between GPUs: {0:F2} us a hop of up to 8192 halves, {1:F2} of 51200, "
                      "{2:F2} of 204800; {3:F0} GB/s each way; {4:F1} us a collective\n\n",
                      link.hop, link.hopOfMany, link.hopOfMost, link.bytes * 1e-3, link.collective);
  os << llvm::formatv("{0,4}  {1,6}  {2,6}  {3,12}  {4,13}  {5,21}  {6,17}  {7}\n", "GPUs",
                      "tensor", "stages", "decode 1, us", "decode 32, us",
                      estimates.promptTokens
                          ? "prompt of " + std::to_string(estimates.promptTokens) + ", us"
                          : "prompt, us",
                      "memory a GPU, MiB", "pays");
  const DivisionEstimate &one = estimates.divisions.front();
  for (const DivisionEstimate &e : estimates.divisions) {
    os << llvm::formatv("{0,4}  {1,6}  {2,6}  ", e.division.gpus(), e.division.tensor,
                        e.division.stages);
    if (!e.refused.empty()) {
      os << "refused: " << e.refused << "\n";
      continue;
    }
    os << llvm::formatv("{0,12:F0}  {1,13:F0}  {2,21:F0}  {3,17:F0}", e.step1, e.step32, e.prompt,
                        e.bytes / (1 << 20));
    if (&e == &one)
      os << "\n";
    else if (!e.pays(one))
      os << "  no\n";
    else
      os << llvm::formatv("  yes: {0:F2}, {1:F2} and {2:F2} times as fast\n", one.step1 / e.step1,
                          one.step32 / e.step32, e.prompt > 0 ? one.prompt / e.prompt : 0);
  }
  for (const DivisionEstimate &e : estimates.divisions)
    if (e.division.stages == 1 && e.sums > 0)
      os << llvm::formatv(
          "{0}sums of the prompt over {1} ranks: {2:F0} us; {3:F0} by launches behind "
          "products\n",
          e.division.tensor == 2 ? "\n" : "", e.division.tensor, e.sums, e.sumsApart);
}

} // namespace gpt2c
