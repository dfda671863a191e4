// The views of a plan that gpt2c-dump prints.
#pragma once

#include "runtime/plan/PlanFile.h"
#include "runtime/text/tokenizer/Tokenizer.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/raw_ostream.h"

#include <optional>
#include <string>
#include <vector>

namespace gpt2c {

/// One function of a plan with the texts and, where symbols have values, the numbers of its
/// expressions.
class FunctionView {
public:
  FunctionView(const plan::FunctionT &function, std::optional<std::vector<int64_t>> values);

  const plan::FunctionT &function() const { return function_; }
  bool hasValues() const { return values_.has_value(); }
  /// The expression over the symbols' names.
  std::string text(const plan::ExprT &expr) const;
  /// Its value; nothing without values for the symbols.
  std::optional<int64_t> value(const plan::ExprT &expr) const;
  /// The value when there is one, else the text.
  std::string show(const plan::ExprT &expr) const;
  /// "f16[batch, seq, 768]".
  std::string type(plan::DType dtype, const std::vector<std::unique_ptr<plan::ExprT>> &shape) const;

private:
  const plan::FunctionT &function_;
  std::vector<std::string> names_;
  std::optional<std::vector<int64_t>> values_;
};

/// What the model's folder said of its texts; empty where the plan has no tokenizer.
rt::ModelTexts textsOf(const rt::Plan &plan);

struct DumpContext {
  const rt::Plan &plan;
  std::string path;
  std::vector<FunctionView> functions;
};

void dumpSummary(const DumpContext &context, llvm::raw_ostream &os);
void dumpSteps(const DumpContext &context, bool withArgs, llvm::raw_ostream &os);
void dumpMemory(const DumpContext &context, llvm::raw_ostream &os);
void dumpCuda(const DumpContext &context, llvm::raw_ostream &os);
void dumpJson(const DumpContext &context, llvm::raw_ostream &os);

/// What a plan is as a whole, a title and a line each; the same titles for every plan.
std::vector<std::pair<const char *, std::string>> planFacts(const rt::Plan &plan);
/// "batch 1..8, seq 1..1024"
std::string boundsText(const plan::FunctionT &function);
/// "0x" and 16 digits.
std::string hex(uint64_t value);
/// Most bytes that are alive at one step: no arena can be smaller.
uint64_t peakLiveBytes(const plan::FunctionT &function);
/// Bytes of device memory the plan asks for.
struct DeviceBytes {
  uint64_t loaded; ///< weights, KV state, the largest arena and all scratch
  uint64_t
      forward; ///< of the same, what @forward of a plan that generates takes when it first runs
};
DeviceBytes deviceBytes(const rt::Plan &plan);
std::string describe(const DeviceBytes &bytes);

} // namespace gpt2c
