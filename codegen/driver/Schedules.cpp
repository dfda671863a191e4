#include "codegen/driver/Schedules.h"

#include "codegen/driver/Draft.h"
#include "ir/FunctionNames.h"
#include "schedule/RankStep.h"
#include "templates/Lowerings.h"

#include "llvm/ADT/StringExtras.h"

#include <set>

namespace gpt2c {

VersionScheduler schedulerOf(const Module &module, const CodegenOptions &options,
                             const Target &target) {
  return {module,
          {mostSequences(module, options.maxBatch), contextOf(module, options.context),
           options.symbolBounds},
          {.target = target,
           .fuseNorm = options.fuseNorm,
           .prefixes = options.sharedPrefixes,
           .tf32 = options.fp32Math == Fp32Math::Tf32x3,
           .choose = options.choose},
          allKernels()};
}

namespace {
/// How schedules are printed: what launches are, or what they are estimated to take.
struct Printer {
  llvm::raw_ostream &os;
  bool estimates;
  void operator()(const FunctionSchedule &version, const Target &target) const {
    if (estimates)
      printEstimates(version, target.rates, os);
    else
      print(version, os);
  }
};
} // namespace

static void printVersions(llvm::StringRef name,
                          llvm::Expected<std::vector<FunctionSchedule>> versions,
                          const Target &target, const Printer &print) {
  if (!versions) {
    print.os << "@" << name << " has no kernels: " << llvm::toString(versions.takeError()) << "\n";
    return;
  }
  for (const FunctionSchedule &version : *versions)
    print(version, target);
}

static void printFor(const Module &module, const CodegenOptions &options, const Target &target,
                     const Printer &print) {
  const VersionScheduler scheduler = schedulerOf(module, options, target);
  for (auto &f : module.functions) {
    if (functions::isWidened(f->name()) || functions::ranksOf(f->name()) > 1)
      continue;
    const bool extend = f->name() == functions::extend;
    std::vector<SumOrders::Estimate> costs;
    if (options.batchInvariant && extend)
      printVersions(f->name(), scheduler.invariant(*f, costs), target, print);
    else if (!options.batchInvariant)
      printVersions(f->name(), scheduler.of(*f), target, print);
  }
  Function *decode = module.function(functions::decode);
  const Function *extend = module.function(functions::extend);
  if (decode && extend && !options.batchInvariant)
    printVersions(decode->name(), scheduler.steps(*decode, *extend, 0), target, print);
  if (!decode || options.batchInvariant)
    return;
  const std::unique_ptr<Function> ofRank = stepOfRank(*decode);
  printDecodeSteps(ofRank ? *ofRank : *decode,
                   module.function(functions::widened(functions::decode)),
                   {decode, options.decode, target, options.fuseNorm && options.dependentLaunch,
                    options.packWeights},
                   options.maxBatch, target, allKernels().decode, print.estimates, print.os);
}

static std::set<int64_t> ranksOf(const Module &module) {
  std::set<int64_t> ranks;
  for (auto &f : module.functions)
    ranks.insert(functions::ranksOf(f->name()));
  ranks.erase(1);
  return ranks;
}

static void printAll(const Module &module, const CodegenOptions &options, const Printer &print) {
  const std::vector<TargetGroup> groups = targetGroups(options.archs, options.rates);
  for (const TargetGroup &group : groups) {
    if (groups.size() > 1)
      print.os << "for " << llvm::join(group.archs, ", ") << "\n";
    printFor(module, options, group.target, print);
    for (int64_t ranks : ranksOf(module)) {
      PlanPool pool;
      print.os << "as one of " << ranks << " ranks\n";
      printFor(moduleOfRank(module, pool, ranks), options, group.target, print);
    }
  }
}

void printSchedules(const Module &module, const CodegenOptions &options, llvm::raw_ostream &os) {
  printAll(module, options, {os, false});
}
void printEstimates(const Module &module, const CodegenOptions &options, llvm::raw_ostream &os) {
  printAll(module, options, {os, true});
}

} // namespace gpt2c
