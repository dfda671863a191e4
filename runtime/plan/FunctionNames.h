// Names of the functions of a plan. Several functions may have one name: versions of the same for
// different shapes.
#pragma once

namespace gpt2c::rt::functions {

/// The exported graph: the logits of every token, or of the last one.
inline constexpr char forward[] = "forward";
/// Takes prompts into the KV state.
inline constexpr char prefill[] = "prefill";
/// Takes one more token of each sequence.
inline constexpr char decode[] = "decode";
/// Takes new tokens of any sequences, one behind the other, into a KV state in pages.
inline constexpr char extend[] = "extend";
/// What @extend does for one new token of each sequence: as launches, or for a few sequences as one
/// persistent kernel.
inline constexpr char steps[] = "steps";
/// Behind @extend: the choices of sequences that are not greedy.
inline constexpr char sample[] = "sample";
/// Between two decode steps: what was chosen becomes the input of the next.
inline constexpr char advance[] = "advance";
/// Many decode steps of one sequence in one launch.
inline constexpr char generate[] = "generate";

} // namespace gpt2c::rt::functions
