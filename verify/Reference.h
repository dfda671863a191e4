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
  /// Its texts are so many of the round's, from `firstText` on, or what they begin with; 0: none.
  int64_t texts = 0, firstText = 0;
  /// It asks what lengths, numbers of sequences and single tokens change, which no precision does.
  bool structural = false;
};

/// One set of texts, of different lengths, and the scenarios that run them.
struct Round {
  std::vector<TokenIds> texts;
  std::vector<size_t> scenarios;
  /// Each text is one that a scenario runs by itself, and so is what it begins with up to these
  /// lengths; empty: texts are what longer ones begin with.
  std::vector<int64_t> lengths = {};
};

struct ReferenceLimits {
  int64_t context = 0;  ///< tokens that the plan holds of a sequence; 0: as many as the graph takes
  int64_t maxBatch = 8; ///< sequences that the plan takes at once
  /// What a sequence of so many tokens costs, in floating-point operations; 0: not known.
  std::function<int64_t(int64_t tokens)> operations = nullptr;
  /// Texts by length and seed, in the place of random ones; then nothing structural is asked.
  std::function<TokenIds(int64_t tokens, uint64_t seed)> text = nullptr;
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

  /// Outputs of a scenario; but for the usual arithmetic they are computed when asked for.
  llvm::Expected<llvm::ArrayRef<Tensor>> outputs(size_t scenario, Arithmetic arithmetic);
  /// The logits [vocabulary] behind the first `tokens` tokens of a text of the round: of a call
  /// with these alone where there is one.
  llvm::Expected<Tensor> logits(const Round &round, size_t text, int64_t tokens,
                                Arithmetic arithmetic);

private:
  Reference(ExportedGraph graph, VerifyMode mode, const ReferenceLimits &limits)
      : graph_(std::move(graph)), mode_(mode), limits_(limits) {}

  std::vector<int64_t> lengths() const;
  /// False when the graph cannot be run over texts of that length; `why` says the reason.
  bool tryLength(int64_t tokens, std::string &why);
  llvm::Error addRound(int64_t tokens, uint64_t seed);
  /// What only some lengths, numbers of sequences or tokens may change, within a budget.
  void addStructural(int64_t tokens);
  llvm::Error addShortTexts();
  void addConstantLengths(int64_t tokens, int64_t &budget);
  llvm::Error addLengths(llvm::ArrayRef<int64_t> lengths);
  llvm::Error addVocabulary(int64_t tokens, int64_t budget);
  int64_t context() const;
  int64_t operations(int64_t tokens) const;
  TokenIds text(int64_t tokens, uint64_t seed) const;
  llvm::Error addMasked(Round &round, int64_t tokens, uint64_t seed, bool leftPadding);
  llvm::Error addPast(Round &round, int64_t past, int64_t tokens);
  llvm::Error addUnknownPast(Round &round, int64_t past, int64_t tokens);
  llvm::Error add(Round &round, Scenario scenario);
  /// Notes that a call could not be made, and why.
  void leaveOut(const llvm::Twine &what, llvm::Error e);
  llvm::Expected<Tensor> rowOf(size_t scenario, int64_t text, int64_t token, Arithmetic arithmetic);

  ExportedGraph graph_;
  VerifyMode mode_;
  ReferenceLimits limits_;
  std::vector<Scenario> scenarios_;
  std::vector<Round> rounds_;
  std::vector<std::string> unchecked_;
  std::vector<std::array<std::vector<Tensor>, numArithmetics>> outputs_; // by arithmetic
  /// Logits behind a prefix, for graphs that give those of the last token alone.
  std::map<std::tuple<const Round *, size_t, int64_t, Arithmetic>, Tensor> prefixes_;
  int64_t longest_ = 0;
};

} // namespace gpt2c
