// The exported graph, op by op, as what a plan is compared with.
#pragma once

#include "ir/Executor.h"
#include "ir/Ports.h"

#include <memory>
#include <vector>

namespace gpt2c {

using TokenIds = std::vector<int32_t>;

/// What a call of the exported graph is given. All texts have one length.
struct GraphCall {
  std::vector<TokenIds> texts;
  /// Of each argument with the role `past`, in the order of arguments: the tokens before the text.
  /// Empty: there are none.
  std::vector<Tensor> past;
  /// Where the plan has no KV state, nothing says which inputs hold which keys and values. They are
  /// random numbers then, of so many tokens.
  int64_t unknownPast = 0;
  /// Where the graph has such inputs: keys that are hidden (of each sequence, past and new), and
  /// positions that do not follow each other. Empty: all count, and 0, 1, 2, ... from the past on.
  std::vector<std::vector<bool>> hidden;
  std::vector<TokenIds> positions;

  int64_t batch() const { return int64_t(texts.size()); }
  int64_t tokens() const { return texts.empty() ? 0 : int64_t(texts[0].size()); }
  int64_t pastTokens() const; ///< of either kind
};

/// How the graph is computed. In double, where it has values of half precision, is what it means:
/// what they round away is no part of that.
enum class Arithmetic : uint8_t {
  Usual,  ///< single precision, or double where the graph has values of half precision
  Double, ///< double precision throughout
  Stored, ///< rounded to the type of each value as ONNX Runtime would: what the export itself gives
  Rounded, ///< rounded to the type of roundTo(), which was called: what any plan in it might give
  Moved,   ///< in double, values of half precision moved at random as far as rounding may: a sample
  MovedOtherwise, ///< another sample
};
constexpr size_t numArithmetics = 6;

/// The imported function and what its ports mean to the plan. The function must outlive it.
class ExportedGraph {
public:
  /// `ports` is a module made from the graph, with its ports as properties.
  static llvm::Expected<ExportedGraph> of(const Function &function, const Module &ports);

  const Function &function() const { return *function_; }
  llvm::ArrayRef<ExportedPort> inputs() const { return inputs_; }
  llvm::ArrayRef<ExportedPort> outputs() const { return outputs_; }
  /// Null when there is none.
  const Value *argument(llvm::StringRef role) const;
  bool has(llvm::StringRef role) const { return argument(role) != nullptr; }
  /// Index of the first output with the role; -1 when there is none.
  int output(llvm::StringRef role) const;
  /// Index of the output that says how probable next tokens are: its logits, or the probabilities
  /// that it gives in their place; -1 when there is none.
  int logits() const;
  /// Rows of a plan's logits as that output has them.
  Tensor asGiven(const Tensor &logits) const;
  /// Whether values are in half precision.
  bool isHalf() const { return half_; }
  /// Makes Arithmetic::Rounded known; RoundedGraph.h says what is rounded. Of a graph that is not
  /// in half precision.
  llvm::Error roundTo(DType type);
  bool isRounded() const { return rounded_ != nullptr; }

  /// Token ids are below this number, positions below the other; 0: not known.
  int64_t vocabulary() const { return vocabulary_; }
  int64_t positions() const { return positions_; }
  /// Batch and length of the ids where the export fixed them; 0: any.
  int64_t fixedBatch() const { return fixed(0); }
  int64_t fixedLength() const { return fixed(1); }
  /// Whether inputs without a meaning to the plan have lengths of their own, as keys and values
  /// of earlier tokens have.
  bool hasUnknownPast() const;
  /// Logits of every token: [batch, seq, vocabulary].
  bool hasRows() const;

  /// One tensor for each argument of the function. Inputs whose meaning is not known are numbers of
  /// a normal distribution, or zeros and ones. An error without a code where an input's shape does
  /// not follow from the call.
  llvm::Expected<std::vector<Tensor>> arguments(const GraphCall &call) const;
  ExecOptions execution(Arithmetic arithmetic) const;
  /// The outputs, computed op by op.
  llvm::Expected<std::vector<Tensor>> run(llvm::ArrayRef<Tensor> arguments,
                                          Arithmetic arithmetic) const;
  /// The symbols that arguments of a call bind.
  llvm::Expected<SymbolMap> symbols(llvm::ArrayRef<Tensor> arguments) const;

  /// Sequences of random tokens below the vocabulary, the same for the same seed. Some repeat
  /// earlier ones, some are the first and the last of the vocabulary, where the rare ones are.
  TokenIds text(int64_t tokens, uint64_t seed) const;

private:
  void learnSymbols(const Module &plan);
  int64_t fixed(unsigned axis) const;
  bool countsNothingGiven(const Dim &size) const;
  const ExportedPort *port(const Value &argument) const;
  llvm::Expected<Tensor> argument(const Value &a, const ExportedPort *port, const GraphCall &call,
                                  SymbolMap &symbols, unsigned &past) const;

  const Function *function_ = nullptr;
  std::vector<ExportedPort> inputs_, outputs_;
  int64_t vocabulary_ = 0, positions_ = 0;
  std::optional<WholeMask> mask_;
  std::vector<GivenInput> given_;
  SymbolMap known_; ///< sizes that every call has
  bool half_ = false;
  std::shared_ptr<const Function> rounded_;
};

} // namespace gpt2c
