// Names of the functions of a module, which the pipeline makes of an exported graph and those that
// come after it look for. runtime/plan/FunctionNames.h names those of a plan.
#pragma once

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

} // namespace gpt2c::functions
