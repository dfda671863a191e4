// Names of the functions of a module, which the pipeline makes of an exported graph and those that
// come after it look for. runtime/plan/FunctionNames.h names those of a plan.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gpt2c::functions {

/// The exported graph: the logits of every token, or of the last one.
inline constexpr char forward[] = "forward";
/// Between two stages: what generation stands for of a graph that means more
/// (passes/recognise/FullMasks.cpp, passes/ShortTexts.cpp).
inline constexpr char generation[] = "generation";
/// Takes prompts into the KV state.
inline constexpr char prefill[] = "prefill";
/// The same for prompts of few tokens, where quantisation treats those differently. In a plan it is
/// a version of prefill.
inline constexpr char prefillShort[] = "prefill_short";
/// Takes one more token of each sequence.
inline constexpr char decode[] = "decode";
/// Takes new tokens of any sequences, one behind the other, into a KV state in pages.
inline constexpr char extend[] = "extend";
/// The function `name` with its int8 weights as the floats that they stand for, for calls in which
/// those are faster. In a plan it is the body of some versions of `name`, or of none.
inline std::string widened(std::string_view name) { return std::string(name) + "_widened"; }
/// Whether a function is one of those.
inline bool isWidened(std::string_view name) {
  constexpr std::string_view end = "_widened";
  return name.size() > end.size() && name.substr(name.size() - end.size()) == end;
}

/// The function `name` as each of so many ranks runs it that share every layer.
inline std::string ofRanks(std::string_view name, int64_t ranks) {
  return std::string(name) + "_tp" + std::to_string(ranks);
}
/// How many ranks run a function together; 1: it is for one.
inline int64_t ranksOf(std::string_view name) {
  const size_t at = name.rfind("_tp");
  if (at == std::string_view::npos || name.size() - at < 4 || name.size() - at > 7)
    return 1;
  int64_t ranks = 0;
  for (char c : name.substr(at + 3)) {
    if (c < '0' || c > '9')
      return 1;
    ranks = 10 * ranks + (c - '0');
  }
  return ranks > 1 ? ranks : 1;
}

} // namespace gpt2c::functions
