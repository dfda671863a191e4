// What the exported graph computes over some texts: computed once, for all plans made from it.
#pragma once

#include "verify/ExportedGraph.h"

#include <array>
#include <map>

namespace gpt2c {

enum class VerifyMode { Off, Fast, Full };

/// A call of the graph, with its outputs.
struct Scenario {
  std::string what; ///< "", "with a mask", "behind 56 tokens"
  GraphCall call;
  std::vector<Tensor> arguments;
  /// Rows of each text, at its begin, that mean nothing since their tokens see no key.
  std::vector<int64_t> skipped = {};
  int64_t texts = 0; ///< texts of the round that it begins with, in order; 0: none
};

/// One set of texts, of different lengths, and the scenarios that run them.
struct Round {
  std::vector<TokenIds> texts;
  std::vector<size_t> scenarios;
};

struct ReferenceLimits {
  int64_t context = 0;  ///< tokens that the plan holds of a sequence; 0: as many as the graph takes
  int64_t maxBatch = 8; ///< sequences that the plan takes at once
  /// What a sequence of so many tokens costs, in floating-point operations; 0: not known.
  std::function<int64_t(int64_t tokens)> operations = nullptr;
};

class Reference {
public:
  /// Chooses the texts and runs the graph over them. The graph must outlive it.
  static std::unique_ptr<Reference> make(ExportedGraph graph, VerifyMode mode,
                                         const ReferenceLimits &limits);

  const ExportedGraph &graph() const { return graph_; }
  llvm::ArrayRef<Scenario> scenarios() const { return scenarios_; }
  llvm::ArrayRef<Round> rounds() const { return rounds_; }
  /// Why something of the graph could not be run.
  llvm::ArrayRef<std::string> unchecked() const { return unchecked_; }
  /// The most tokens of a sequence in any call.
  int64_t longest() const { return longest_; }

  /// Outputs of a scenario; in double precision they are computed when asked for.
  llvm::Expected<llvm::ArrayRef<Tensor>> outputs(size_t scenario, bool float64);
  /// The logits [vocabulary] behind the first `tokens` tokens of a text of the round.
  llvm::Expected<Tensor> logits(const Round &round, size_t text, int64_t tokens, bool float64);

private:
  Reference(ExportedGraph graph, VerifyMode mode, const ReferenceLimits &limits)
      : graph_(std::move(graph)), mode_(mode), limits_(limits) {}

  std::vector<int64_t> lengths() const;
  /// False when the graph cannot be run over texts of that length; `why` says the reason.
  bool tryLength(int64_t tokens, std::string &why);
  llvm::Error addRound(int64_t tokens, uint64_t seed);
  llvm::Error addMasked(Round &round, int64_t tokens, uint64_t seed, bool leftPadding);
  llvm::Error addPast(Round &round, int64_t past, int64_t tokens);
  llvm::Error addUnknownPast(Round &round, int64_t past, int64_t tokens);
  llvm::Error add(Round &round, Scenario scenario);
  /// Notes that a call could not be made, and why.
  void leaveOut(const llvm::Twine &what, llvm::Error e);
  llvm::Expected<Tensor> rowOf(size_t scenario, int64_t text, int64_t token, bool float64);

  ExportedGraph graph_;
  VerifyMode mode_;
  ReferenceLimits limits_;
  std::vector<Scenario> scenarios_;
  std::vector<Round> rounds_;
  std::vector<std::string> unchecked_;
  std::vector<std::array<std::vector<Tensor>, 2>> outputs_; // in single, in double precision
  /// Logits behind a prefix, for graphs that give those of the last token alone.
  std::map<std::tuple<const Round *, size_t, int64_t, bool>, Tensor> prefixes_;
  int64_t longest_ = 0;
};

} // namespace gpt2c
