// What runs the functions of a plan while it is checked: the reference executor here, a device in
// the tools.
#pragma once

#include "verify/ExportedGraph.h"

namespace gpt2c {

struct StepResult {
  Tensor logits;             ///< [batch, vocabulary] behind each sequence's last token
  std::vector<int32_t> next; ///< the plan's greedy choice
};

/// New tokens of one of some sequences over the state in pages, behind its first `past` ones.
struct RowsOfText {
  size_t text;
  TokenIds tokens;
  int32_t past;
};

class PlanRunner {
public:
  virtual ~PlanRunner() = default;
  virtual bool has(llvm::StringRef function) const = 0;
  /// The plan run as `graph` is: its arguments (ExportedGraph::arguments) in, its outputs out. An
  /// output that the plan does not give is an invalid tensor.
  virtual llvm::Expected<std::vector<Tensor>>
  forward(const ExportedGraph &graph, const GraphCall &call, llvm::ArrayRef<Tensor> arguments) = 0;
  /// `texts`, of any lengths, behind the first past[b] tokens of each sequence of the state.
  virtual llvm::Expected<StepResult> prefill(llvm::ArrayRef<TokenIds> texts,
                                             llvm::ArrayRef<int32_t> past) = 0;
  /// One token for each sequence, behind all that went before.
  virtual llvm::Expected<StepResult> decode(llvm::ArrayRef<int32_t> tokens,
                                            llvm::ArrayRef<int32_t> past) = 0;
  /// @extend: new tokens of different ones of `texts` sequences in one call; row i of the result is
  /// behind those of parts[i]. The first call says how many sequences there are at most.
  virtual llvm::Expected<StepResult> extend(llvm::ArrayRef<RowsOfText> parts, size_t texts) = 0;
  /// The same functions in double precision; null where what runs them has none.
  virtual std::unique_ptr<PlanRunner> inDouble() const { return nullptr; }
};

/// Runs functions of a module with the reference executor.
class HostRunner : public PlanRunner {
public:
  explicit HostRunner(const Module &module, bool float64 = false);

  bool has(llvm::StringRef function) const override;
  llvm::Expected<std::vector<Tensor>> forward(const ExportedGraph &graph, const GraphCall &call,
                                              llvm::ArrayRef<Tensor> arguments) override;
  llvm::Expected<StepResult> prefill(llvm::ArrayRef<TokenIds> texts,
                                     llvm::ArrayRef<int32_t> past) override;
  llvm::Expected<StepResult> decode(llvm::ArrayRef<int32_t> tokens,
                                    llvm::ArrayRef<int32_t> past) override;
  llvm::Expected<StepResult> extend(llvm::ArrayRef<RowsOfText> parts, size_t texts) override;
  std::unique_ptr<PlanRunner> inDouble() const override;

  /// The arguments of @forward for a call of the graph, with a state that holds its past.
  llvm::Expected<std::vector<Tensor>> forwardArguments(const ExportedGraph &graph,
                                                       const GraphCall &call,
                                                       llvm::ArrayRef<Tensor> arguments);
  /// The arguments of @prefill or @decode: texts padded with zeros on the right.
  llvm::Expected<std::vector<Tensor>> stepArguments(llvm::StringRef function,
                                                    llvm::ArrayRef<TokenIds> texts,
                                                    llvm::ArrayRef<int32_t> past);
  /// The arguments of @extend. A sequence's pages lie apart, and what has many tokens is several
  /// pieces.
  llvm::Expected<std::vector<Tensor>> rowsArguments(llvm::ArrayRef<RowsOfText> parts, size_t texts);

private:
  llvm::Expected<StepResult> step(llvm::StringRef function, llvm::ArrayRef<TokenIds> texts,
                                  llvm::ArrayRef<int32_t> past);
  /// Logits and next tokens of a function's results.
  llvm::Expected<StepResult> stepResult(const Function &f, llvm::ArrayRef<Tensor> results,
                                        size_t rows) const;
  /// The state, with room for `batch` sequences; it is kept from call to call.
  llvm::Expected<Tensor> state(const Value &kv, int64_t batch);
  llvm::Error loadPast(const ExportedGraph &graph, const GraphCall &call, Tensor &kv);
  llvm::Expected<std::vector<Tensor>> run(const Function &f, llvm::ArrayRef<Tensor> arguments);

  const Module &module_;
  ExecOptions options_;
  Tensor kv_, pages_;
};

} // namespace gpt2c
