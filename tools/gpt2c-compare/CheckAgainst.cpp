#include "tools/gpt2c-compare/Checks.h"

#include "cpu/PlanModule.h"
#include "frontend/Import.h"
#include "ir/Error.h"
#include "passes/quantize/Precision.h"
#include "runtime/plan/FunctionNames.h"
#include "tools/common/RuntimeError.h"
#include "tools/common/verification/SessionRunner.h"
#include "tools/common/verification/Verification.h"
#include "tools/runtime-common/Table.h"
#include "verify/Compare.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// One row for each function.
static void print(const CheckReport &report, const std::string &device) {
  llvm::outs() << "against the exported graph, on " << device << "\n";
  Table table({"function", ">sequences", ">tokens", ">largest error", ">allowed", "result"});
  for (const FunctionCheck &check : report.checks)
    table.addRow({check.what, std::to_string(check.batch), std::to_string(check.tokens),
                  threeDigits(check.error), threeDigits(check.tolerance),
                  check.error <= check.tolerance ? "PASS"
                  : check.errorInDouble >= 0 && check.errorInDouble <= check.tolerance
                      ? "PASS: rounding, " + threeDigits(check.errorInDouble) + " in double"
                      : "FAIL"});
  table.print(llvm::outs());
  for (const std::string &what : report.unchecked)
    llvm::outs() << "not verified: " << what << "\n";
  llvm::outs().flush();
}

/// The most sequences that the plan takes at once.
static int64_t maxBatchOf(const plan::PlanT &meta) {
  int64_t most = meta.kv ? meta.kv->max_batch : 1;
  for (const auto &f : meta.functions)
    for (const auto &symbol : f->symbols)
      if (f->name == rt::functions::forward && symbol->name == "batch")
        most = std::max(most, symbol->max);
  return most;
}

llvm::Error checkAgainst(rt::Session &session, const std::string &modelPath, VerifyMode mode) {
  const plan::PlanT &meta = session.plan().meta();
  const DType precision = precisionOf(meta.precision).value_or(DType::F32);
  ImportOptions options;
  options.precision = precision;
  auto imported = importModel(modelPath, options);
  if (!imported)
    return imported.takeError();
  // Only the plan's own module knows what a device computes, and what ports mean.
  auto module = loadPlanModule(rt::Plan::Ptr(&session.plan(), [](const rt::Plan *) {}));
  if (!module)
    return module.takeError();
  PlanVerifier verifier(**imported, mode, maxBatchOf(meta));
  const bool int8 = meta.quantization != nullptr;
  const bool host = session.backend().kind() == "cpu";
  SessionRunner device(session);
  HostRunner own(**module);
  PlanRunner &runner = host ? static_cast<PlanRunner &>(own) : device;
  llvm::Error e = verifier.check(**module, runner, toleranceOf(precision, int8),
                                 precision == DType::F32 && !int8);
  print(verifier.report(), session.backend().name());
  return e;
}

} // namespace gpt2c
