// Names of the functions of a module, which the pipeline makes of an exported graph and those that
// come after it look for. runtime/plan/FunctionNames.h names those of a plan.
#pragma once

namespace gpt2c::functions {

/// The exported graph: the logits of every token, or of the last one.
inline constexpr char forward[] = "forward";
/// Between two stages: what generation stands for of a graph that means more
/// (passes/FullMasks.cpp, passes/ShortTexts.cpp).
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

} // namespace gpt2c::functions
