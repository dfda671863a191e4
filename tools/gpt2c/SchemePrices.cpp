#include "tools/gpt2c/SchemePrices.h"

#include "codegen/driver/Schedules.h"
#include "ir/FunctionNames.h"
#include "schedule/cost/ScheduleCost.h"

#include "llvm/ADT/STLExtras.h"

#include <map>
#include <set>

namespace gpt2c {

namespace {

/// Microseconds of a layer in each version of each function.
using VersionCosts = std::map<std::string, double>;
struct FunctionCosts {
  std::map<std::string, VersionCosts> layers; ///< by name
};
/// By name of function.
using PlanCosts = std::map<std::string, FunctionCosts>;

} // namespace

/// The module as it is scheduled where all layers are in `scheme`.
static llvm::Expected<Module> loweredIn(QuantizeScheme scheme, const Module &module,
                                        const PassOptions &options,
                                        const PipelineOptions &pipeline) {
  Module out;
  out.name = module.name;
  out.properties = module.properties;
  for (const auto &f : module.functions)
    out.functions.push_back(f->clone(f->name()));
  PassOptions as = options;
  as.quantize.scheme = scheme;
  if (scheme == QuantizeScheme::W8A16)
    as.quantize.weightGroup = 0; // as auto has it
  as.quantize.chosen.clear();
  as.quantize.calibration = nullptr; // sizes count, not values
  as.quantize.widenWeights = false;
  as.tensorParallel.clear();
  std::vector<Remark> remarks;
  PassContext ctx(out, as, remarks);
  PipelineOptions rest;
  rest.disabled = pipeline.disabled;
  rest.startAt = "quantised";
  if (llvm::Error e = runPipeline(ctx, rest))
    return e;
  return out;
}

static PlanCosts costsOf(const Module &module, const CodegenOptions &codegen,
                         const Target &target) {
  PlanCosts costs;
  const VersionScheduler scheduler = schedulerOf(module, codegen, target);
  for (llvm::StringRef name :
       {functions::decode, functions::prefill, functions::prefillShort, functions::extend}) {
    Function *f = module.function(name);
    if (!f)
      continue;
    auto versions = scheduler.of(*f);
    if (!versions) { // it has no kernels, whatever its weights are in
      llvm::consumeError(versions.takeError());
      continue;
    }
    const bool isShort = name == functions::prefillShort;
    FunctionCosts &of = costs[std::string(isShort ? functions::prefill : name)];
    for (const FunctionSchedule &version : *versions)
      for (auto [product, cost] :
           productMicroseconds(version.schedule, version.bounds, target.rates))
        of.layers[layerName(*product)][version.limits] += cost;
  }
  return costs;
}

/// The share of a layer; none: it is nowhere faster, or without floats beside it somewhere slower.
static std::optional<double> shareOf(const std::string &layer, const PlanCosts &scheme,
                                     const PlanCosts &plain, bool widened) {
  constexpr double noise = 1.005, least = 0.995;
  double sum = 0;
  int counted = 0;
  for (const auto &[name, function] : plain) {
    const auto other = scheme.find(name);
    const auto own = function.layers.find(layer);
    if (other == scheme.end() || own == function.layers.end() || !other->second.layers.count(layer))
      continue;
    const VersionCosts &costs = other->second.layers.at(layer);
    double ofFunction = 0;
    int versions = 0;
    for (const auto &[limits, before] : own->second) {
      const auto after = costs.find(limits);
      if (after == costs.end() || !(before > 0))
        continue;
      const double ratio = after->second / before;
      if (!widened && ratio > noise)
        return std::nullopt;
      ofFunction += std::min(ratio, 1.0);
      ++versions;
    }
    if (versions) {
      sum += ofFunction / versions;
      ++counted;
    }
  }
  if (!counted || sum / counted > least)
    return std::nullopt;
  return sum / counted;
}

static std::vector<QuantizeScheme> schemesOf(const QuantizeOptions &options) {
  std::vector<QuantizeScheme> out = {QuantizeScheme::W8A16, QuantizeScheme::W8A8};
  if (options.fp8Products)
    out.push_back(QuantizeScheme::Fp8);
  out.push_back(QuantizeScheme::W4A16);
  return out;
}

llvm::Expected<std::vector<LayerPrices>> priceSchemes(const Module &module,
                                                      const PassOptions &options,
                                                      const PipelineOptions &pipeline,
                                                      const CodegenOptions &codegen) {
  std::vector<LayerPrices> layers;
  QuantizeOptions any = options.quantize;
  any.scheme = QuantizeScheme::W8A16;
  std::set<std::string> had;
  for (auto &op : module.function(functions::forward)->ops())
    if (treatmentOf(*op, any).first != Treatment::Keep && !importedWeights(*op) &&
        !options.quantize.chosen.contains(layerName(*op)) && had.insert(layerName(*op)).second) {
      LayerPrices layer{.name = layerName(*op), .shape = {}, .schemes = {}};
      for (const Dim &d : op->operand(ops::Linear::W)->type.shape)
        layer.shape.push_back(d.constant().value_or(0));
      layers.push_back(std::move(layer));
    }
  const std::vector<std::string> usual = {"sm_90a"};
  const auto groups = targetGroups(codegen.archs.empty() ? usual : codegen.archs, codegen.rates);
  const bool widened = options.quantize.widenWeights || codegen.archs.empty();
  auto costsIn = [&](QuantizeScheme scheme) -> llvm::Expected<std::vector<PlanCosts>> {
    auto lowered = loweredIn(scheme, module, options, pipeline);
    if (!lowered)
      return lowered.takeError();
    std::vector<PlanCosts> costs;
    for (const TargetGroup &group : groups)
      costs.push_back(costsOf(*lowered, codegen, group.target));
    return costs;
  };
  auto plain = costsIn(QuantizeScheme::None);
  if (!plain)
    return plain.takeError();
  for (QuantizeScheme scheme : schemesOf(options.quantize)) {
    auto costs = costsIn(scheme);
    if (!costs)
      return costs.takeError();
    for (LayerPrices &layer : layers) {
      std::optional<double> largest = 0;
      for (size_t g = 0; g < groups.size() && largest; ++g)
        if (auto share = shareOf(layer.name, (*costs)[g], (*plain)[g], widened))
          largest = std::max(*largest, *share);
        else
          largest.reset();
      if (largest)
        layer.schemes.push_back({scheme, *largest});
    }
  }
  for (LayerPrices &layer : layers)
    llvm::stable_sort(layer.schemes,
                      [](const SchemePrice &a, const SchemePrice &b) { return a.share < b.share; });
  return layers;
}

} // namespace gpt2c
