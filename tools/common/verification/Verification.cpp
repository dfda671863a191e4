#include "tools/common/verification/Verification.h"

#include "ir/Error.h"
#include "ir/FunctionNames.h"
#include "passes/quantize/Precision.h"
#include "runtime/plan/Golden.h"
#include "tools/common/verification/GoldenPrompts.h"
#include "tools/common/verification/TextForward.h"
#include "verify/Compare.h"
#include "verify/OwnText.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace gpt2c {

llvm::StringRef modeName(VerifyMode mode) {
  return mode == VerifyMode::Off ? "off" : mode == VerifyMode::Fast ? "fast" : "full";
}

double toleranceOf(DType precision, bool int8) {
  return int8                       ? int8Tolerance
         : precision == DType::F16  ? halfTolerance
         : precision == DType::BF16 ? bfloatTolerance
                                    : singleTolerance;
}

PlanVerifier::PlanVerifier(const Module &imported, VerifyMode mode, int64_t maxBatch)
    : graph_(imported.functions.front()->clone(imported.functions.front()->name())), mode_(mode),
      maxBatch_(maxBatch) {}

/// A copy that shares the bytes of constants.
static Module copyOf(const Module &module) {
  Module out;
  out.name = module.name;
  out.properties = module.properties;
  for (auto &f : module.functions)
    out.functions.push_back(f->clone(f->name()));
  return out;
}

void PlanVerifier::afterStage(const Stage &stage, const Module &module) {
  if (stage.name == "cached" || stage.name == "fused")
    before_ = copyOf(module);
}

/// What the reference executor takes for a function, in operations of a product: as long as for
/// so many of them it takes for an element of anything else.
static double operationsOf(const Function &f, const SymbolMap &symbols) {
  constexpr double perElement = 300;
  double sum = 0;
  for (auto &op : f.ops()) {
    if (op->info().cost)
      sum += double(op->info().cost(*op).flops.evaluate(symbols).value_or(0));
    for (const Value *v : op->results()) {
      double elements = op->is(OpCode::Constant) ? 0 : perElement;
      for (const Dim &d : v->type.shape)
        elements *= double(d.evaluate(symbols).value_or(1));
      sum += elements;
    }
  }
  return sum;
}

/// For one sequence of `tokens`: the dearer of the plan's @forward and the exported graph.
static int64_t operationsOf(const Module &module, const ExportedGraph &graph, int64_t tokens) {
  SymbolMap symbols;
  symbols["batch"] = symbols["slots"] = 1;
  symbols["seq"] = tokens;
  symbols["past"] = 0;
  double most = operationsOf(*module.function(functions::forward), symbols);
  GraphCall call;
  call.texts = {TokenIds(tokens, 0)};
  if (auto arguments = graph.arguments(call); !arguments)
    llvm::consumeError(arguments.takeError());
  else if (auto bound = graph.symbols(*arguments); !bound)
    llvm::consumeError(bound.takeError());
  else
    most = std::max(most, operationsOf(graph.function(), *bound));
  return int64_t(std::min(most, 1e18));
}

ReferenceLimits PlanVerifier::limitsFor(const Module &module, const ExportedGraph &graph) const {
  ReferenceLimits limits;
  limits.context = contextOf(module);
  limits.maxBatch = maxBatch_;
  // The function of the graph outlives all copies of what describes its ports.
  limits.operations = [&module, described = graph](int64_t tokens) {
    return operationsOf(module, described, tokens);
  };
  return limits;
}

llvm::Error PlanVerifier::prepare(const Module &module, DType narrow) {
  if (reference_)
    return llvm::Error::success();
  auto graph = ExportedGraph::of(*graph_, module);
  if (!graph)
    return graph.takeError();
  if (narrow != DType::F32 && !graph->isHalf())
    if (llvm::Error e = graph->roundTo(narrow))
      return e;
  const ReferenceLimits limits = limitsFor(module, *graph);
  reference_ = Reference::make(std::move(*graph), mode_, limits);
  llvm::append_range(report_.unchecked, reference_->unchecked());
  if (!module.function(functions::prefill))
    report_.unchecked.push_back("@prefill and @decode: the plan has none");
  return llvm::Error::success();
}

llvm::Error PlanVerifier::prepareOwnTexts(const Module &module, PlanRunner &maker) {
  constexpr int64_t sequences = 8, tokens = 16;
  auto graph = ExportedGraph::of(*graph_, module);
  if (!graph)
    return graph.takeError();
  if (!module.function(functions::prefill) || !module.function(functions::decode) ||
      graph->fixedBatch() || !graph->vocabulary())
    return llvm::Error::success();
  const int64_t context = contextOf(module);
  auto texts = ownTexts(maker, graph->vocabulary(), std::min(sequences, maxBatch_),
                        context ? std::min(tokens, context) : tokens);
  if (!texts) {
    llvm::consumeError(texts.takeError()); // what random tokens show then says more
    return llvm::Error::success();
  }
  ReferenceLimits limits = limitsFor(module, *graph);
  // One behind the other, each text from another one on.
  limits.text = [texts = std::move(*texts)](int64_t count, uint64_t seed) {
    TokenIds out;
    for (size_t at = seed; int64_t(out.size()) < count; ++at)
      llvm::append_range(out, texts[at % texts.size()]);
    out.resize(size_t(count));
    return out;
  };
  ownTexts_ = Reference::make(std::move(*graph), mode_, limits);
  return llvm::Error::success();
}

/// A graph that quantises activations itself: a plan may keep some of them as they are.
static bool quantises(const Function &graph) {
  return llvm::any_of(graph.ops(), [](auto &op) { return op->is(OpCode::AffineQuantize); });
}

double PlanVerifier::toleranceFor(const PassOptions &options) const {
  return quantises(*graph_) ? givenInt8Tolerance
                            : toleranceOf(options.precision, options.quantize.any());
}

/// The next of 1, 2 and 5 times a power of ten: the last digits of an error depend on the machine.
static double roundedUp(double v) {
  if (!(v > 0) || !std::isfinite(v))
    return v;
  double power = std::pow(10, std::floor(std::log10(v)));
  for (double factor : {1., 2., 5.})
    if (v <= factor * power)
      return factor * power;
  return 10 * power;
}

/// Rounding alone lies between a device and the reference executor: both run the same functions, of
/// the same weights. Where it is worse than usual, so it is on both.
double PlanVerifier::goldenTolerance(const PassOptions &options) const {
  const bool half = options.precision != DType::F32;
  const bool int8 = quantises(*graph_) || options.quantize.any();
  double tolerance = half ? rt::kGoldenHalf : rt::kGoldenSingle;
  if (options.precision == DType::BF16)
    tolerance *= unitRoundoff(DType::BF16) / unitRoundoff(DType::F16);
  else if (int8)
    tolerance = rt::kGoldenInt8;
  for (const FunctionCheck &check : report_.checks)
    if (!int8 || llvm::StringRef(check.what).ends_with(" before int8"))
      tolerance = std::max(tolerance, 4 * roundedUp(check.error));
  return std::min(tolerance, int8Tolerance);
}

/// Whether int8 is ours, not the model's own.
static bool quantisesItself(const PassOptions &options, bool given) {
  return !given && options.quantize.any();
}

llvm::Error PlanVerifier::checkOn(llvm::StringRef where, const Module &module, PlanRunner &runner,
                                  const PassOptions &options, CheckReport &report) {
  const bool given = quantises(*graph_);
  // Where rounding on the host is large, so it is there; no device has double precision to tell.
  CheckOptions check{.tolerance = toleranceFor(options),
                     .suffix = (" on " + where).str(),
                     .byLoss = given || quantisesItself(options, given)};
  for (const FunctionCheck &host : report_.checks)
    check.tolerance = std::max(check.tolerance, 4 * host.error);
  return checkPlan(ownTexts_ ? *ownTexts_ : *reference_, module, runner, check, report);
}

llvm::Expected<CheckReport> PlanVerifier::checkOnGpu(const Module &module, PlanRunner &runner,
                                                     const PassOptions &options) {
  CheckReport report;
  if (llvm::Error e = checkOn("the GPU", module, runner, options, report))
    return e;
  return report;
}

llvm::Error PlanVerifier::checkOnRanks(const Module &module, PlanRunner &runner,
                                       const PassOptions &options, int64_t ranks) {
  CheckReport report;
  llvm::Error e = checkOn(std::to_string(ranks) + " ranks", module, runner, options, report);
  llvm::append_range(report_.checks, report.checks);
  llvm::append_range(report_.unchecked, report.unchecked);
  return e;
}

llvm::Error PlanVerifier::check(const Module &module, const PassOptions &options) {
  const bool half = options.precision != DType::F32;
  const bool given = quantises(*graph_), ours = quantisesItself(options, given);
  const bool before = (half || ours || given) && before_.function(functions::forward);
  if (llvm::Error e = prepare(module, half && before ? options.precision : DType::F32))
    return e;
  if (before) {
    HostRunner runner(before_);
    CheckOptions single{.tolerance = given ? givenInt8Tolerance : singleTolerance,
                        .suffix = given || ours
                                      ? std::string(" before int8")
                                      : (" before " + precisionName(options.precision)).str(),
                        .byLoss = given,
                        .rounding = true};
    if (llvm::Error e = checkPlan(*reference_, before_, runner, single, report_))
      return e;
    if (ours || given)
      if (llvm::Error e = prepareOwnTexts(module, runner))
        return e;
  }
  HostRunner runner(module);
  CheckOptions own{.tolerance = toleranceFor(options),
                   .suffix = "",
                   .int8Loss = ours && before,
                   .int8Smooth = options.quantize.scheme == QuantizeScheme::W8A8Smooth,
                   .byLoss = ours || given,
                   .narrow = half && before ? options.precision : DType::F32,
                   .brief = before,
                   .rounding = !half && !ours && !given};
  if (llvm::Error e = checkPlan(ownTexts_ ? *ownTexts_ : *reference_, module, runner, own, report_))
    return e;
  auto golden = makeGolden(reference_->graph(), module, runner, reference_->longest(),
                           goldenTolerance(options));
  if (golden)
    golden_ = std::move(*golden);
  else
    report_.unchecked.push_back("golden prompts for gpt2c-run --self-test: " +
                                llvm::toString(golden.takeError()));
  return llvm::Error::success();
}

llvm::Error PlanVerifier::check(const Module &module, PlanRunner &runner, double tolerance,
                                bool single) {
  if (llvm::Error e = prepare(module))
    return e;
  if (quantises(*graph_))
    tolerance = std::max(tolerance, givenInt8Tolerance);
  const bool byLoss = tolerance >= int8Tolerance;
  if (byLoss)
    if (llvm::Error e = prepareOwnTexts(module, runner))
      return e;
  CheckOptions options{.tolerance = tolerance, .suffix = "", .byLoss = byLoss, .rounding = single};
  return checkPlan(ownTexts_ ? *ownTexts_ : *reference_, module, runner, options, report_);
}

std::unique_ptr<plan::VerificationT> PlanVerifier::record() const {
  auto out = std::make_unique<plan::VerificationT>();
  out->mode = modeName(mode_).str();
  out->unchecked = report_.unchecked;
  for (const FunctionCheck &check : report_.checks) {
    auto &entry = out->checks.emplace_back(std::make_unique<plan::FunctionCheckT>());
    entry->what = check.what;
    entry->batch = check.batch;
    entry->tokens = check.tokens;
    entry->error = roundedUp(check.error);
    entry->tolerance = check.tolerance;
    entry->error_in_double = roundedUp(check.errorInDouble);
  }
  return out;
}

std::string summaryOf(const CheckReport &report) {
  std::string out = report.checks.empty() ? "nothing verified" : "verified:";
  for (const FunctionCheck &check : report.checks)
    out +=
        (out.back() == ':' ? " " : ", ") + check.what + " " + threeDigits(check.error) +
        (check.errorInDouble >= 0 ? " (" + threeDigits(check.errorInDouble) + " in double)" : "") +
        " over " + std::to_string(check.batch) + " x " + std::to_string(check.tokens) + " tokens";
  return out;
}

} // namespace gpt2c
