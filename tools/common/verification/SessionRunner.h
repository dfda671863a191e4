// The functions of a plan on the device of a session, for what compares plans.
#pragma once

#include "runtime/session/Session.h"
#include "verify/PlanRunner.h"

namespace gpt2c {

class SessionRunner final : public PlanRunner {
public:
  /// `session` must outlive it.
  explicit SessionRunner(rt::Session &session) : session_(session) {}

  bool has(llvm::StringRef function) const override;
  llvm::Expected<std::vector<Tensor>> forward(const ExportedGraph &graph, const GraphCall &call,
                                              llvm::ArrayRef<Tensor> arguments) override;
  llvm::Expected<StepResult> prefill(llvm::ArrayRef<TokenIds> texts,
                                     llvm::ArrayRef<int32_t> past) override;
  llvm::Expected<StepResult> decode(llvm::ArrayRef<int32_t> tokens,
                                    llvm::ArrayRef<int32_t> past) override;
  llvm::Expected<StepResult> extend(llvm::ArrayRef<RowsOfText> parts, size_t texts) override;

private:
  rt::Session &session_;
  size_t texts_ = 0; ///< that there are pages for
};

} // namespace gpt2c
