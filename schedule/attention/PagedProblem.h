// Attention over a KV state in pages, as kernels are asked about it.
#pragma once

#include "schedule/attention/AttentionProblem.h"

namespace gpt2c {

/// What the configurations of all its kernels have.
struct PagedConfig {
  Scalar x = Scalar::F16; ///< of rows
  /// Of a state of bytes, whose rows have a scale each; none: the state is in x.
  std::optional<Scalar> bytes = {};
  int headDim = 0, heads = 0, kvHeads = 0;
  int pageTokens = 64;
  /// Keys of a prefix that sequences of one token share may be computed by a launch before, once
  /// for all; a kernel that does not take parts of it computes all keys itself.
  bool prefixes = false;
  int window = 0; ///< keys that a query sees; 0: all up to its own
  int warps = 4;  ///< of a group, 16 tokens each
  int groups = 1; ///< of warps that share the keys of a piece of more than 16 tokens
  int splits = 1; ///< of the grid: blocks that share the keys of a piece of up to 16 tokens

  /// What the state is in.
  Scalar kv() const { return bytes.value_or(x); }
  /// The most tokens of a piece.
  int pieceTokens() const { return 16 * warps; }
};

struct PagedProblem {
  PagedConfig config; ///< types, heads and pages
  Scalar kv = Scalar::F16;
  int64_t rows = 1, pieces = 1; ///< of a call, at most
  int64_t segments = 1;         ///< the same
  bool prompts = false;         ///< most calls have one: few segments
  bool oneOrder = false;        ///< a row has the same bits whatever else there is
  bool tf32 = true;             ///< tensor cores may multiply fp32
  Target target = {};

  using Ability = AttentionAbility;
  AttentionAbilities wants() const;
  int64_t blocks() const { return pieces * config.heads; }
};

inline const Target &targetOf(const PagedProblem &p) { return p.target; }
struct PagedLaunch; // where a launch of one goes
using PagedKernel = Kernel<PagedProblem, PagedLaunch>;
using PagedCandidate = Candidate<PagedProblem, PagedLaunch>;

} // namespace gpt2c
