#include "tools/gpt2c/PlanRemarks.h"

#include "codegen/driver/Parallel.h"
#include "runtime/group/GroupBackend.h"
#include "runtime/plan/FunctionNames.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace gpt2c {

std::string describeKernels(const KernelBuildStats &stats, const CodegenOptions &options) {
  std::string text = std::to_string(stats.compiled + stats.cached) + " kernels for " +
                     llvm::join(options.archs, ", ") + ": " + std::to_string(stats.compiled) +
                     " compiled";
  if (!options.kernelCache.empty())
    text += ", " + std::to_string(stats.cached) + " from " + options.kernelCache;
  if (stats.damaged > 0)
    text += ", where " + std::to_string(stats.damaged) +
            (stats.damaged == 1 ? " was damaged" : " were damaged");
  if (stats.failedToStore)
    text += ", which cannot be written";
  return text;
}

/// What is stored in 12 bits, and what is not, a remark for each reason.
static void addPacking(const GeneratedPlan::Packing &packing, std::vector<Remark> &remarks) {
  auto add = [&](Remark::Severity severity, std::string message) -> Remark & {
    Remark &r = remarks.emplace_back();
    r.severity = severity;
    r.pass = "codegen";
    r.message = std::move(message);
    return r.of("compressed weights");
  };
  if (packing.matrices > 0)
    add(Remark::Note, std::to_string(packing.matrices) + " matrices of bf16 are stored in " +
                          std::to_string(packing.packed) + " bytes instead of " +
                          std::to_string(packing.bytes) + ", without loss");
  for (const auto &[why, names] : packing.kept)
    add(Remark::Missed, std::to_string(names.size()) +
                            (names.size() == 1 ? " matrix is" : " matrices are") +
                            " stored as before: " + why)
        .nodes.assign(names.begin(), names.end());
}

void addRemarks(const GeneratedPlan &plan, llvm::ArrayRef<std::string> archs,
                std::vector<Remark> &remarks) {
  auto missed = [&](llvm::StringRef pattern, const llvm::Twine &message) -> Remark & {
    Remark &r = remarks.emplace_back();
    r.severity = Remark::Missed;
    r.pass = "codegen";
    r.message = message.str();
    return r.of(pattern);
  };
  if (plan.contents.meta.batch_invariant && !archs.empty()) {
    Remark &r = remarks.emplace_back();
    r.pass = "codegen";
    r.message =
        "the plan is batch invariant: on a GPU it runs in the engine, by @extend, and other "
        "functions have no kernels";
    r.of("batch invariance");
  }
  addPacking(plan.packing, remarks);
  for (const std::string &reason : plan.onRanks.texts(archs))
    missed("ranks", reason);
  for (const std::string &reason : plan.hostOnly.texts(archs))
    missed("kernels", reason + "; it runs on the CPU device only");
  if (!plan.noRows.empty())
    missed("extend",
           "@extend has no kernels, rows of several sequences run on the CPU device only: " +
               plan.noRows.text(archs));
  if (!plan.otherSteps.empty()) {
    Remark &r = remarks.emplace_back();
    r.pass = "codegen";
    r.message =
        "in the engine single tokens do not run as decode does: " + plan.otherSteps.text(archs);
    r.of("steps");
  }
  if (plan.graphDecode.empty())
    return;
  const auto &functions = plan.contents.meta.functions;
  auto decode = llvm::find_if(functions, [](auto &f) { return f->name == rt::functions::decode; });
  missed("persistent decode", plan.graphDecode.text(archs) + "; decode runs as a graph").launches =
      decode == functions.end() ? 0 : int64_t((*decode)->steps.size()) - 1;
}

void addParallelRemarks(const Module &module, const CodegenOptions &options,
                        const plan::PlanT &meta, std::vector<Remark> &remarks) {
  if (options.archs.empty() || meta.ranks.empty() || !meta.kv)
    return;
  auto estimates = estimateParallel(module, options, double(meta.kv->bytes));
  if (!estimates)
    return llvm::consumeError(estimates.takeError()); // nothing is known of other decoders
  for (const auto &ranks : meta.ranks)
    for (const DivisionEstimate &e : estimates->divisions) {
      if (e.division.tensor != ranks->tensor || e.division.stages > 1 ||
          e.pays(estimates->divisions.front()))
        continue;
      Remark &r = remarks.emplace_back();
      r.pass = "parallel";
      r.message = describeLoss(e, estimates->divisions.front());
      r.of(rt::patternOfRanks(ranks->tensor));
    }
}

void addRemarks(const CheckReport &report, std::vector<Remark> &remarks) {
  for (const std::string &what : report.unchecked) {
    Remark &r = remarks.emplace_back();
    r.pass = "verify";
    r.message = "not verified: " + what;
    r.of("verification");
  }
}

} // namespace gpt2c
