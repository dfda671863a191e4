// Attention over the KV state, as kernels are asked about it.
#pragma once

#include "schedule/Abilities.h"
#include "schedule/Kernel.h"
#include "schedule/Scalar.h"
#include "schedule/Target.h"

namespace gpt2c {

/// Types, sizes, and what is wanted: what the configurations of all kernels have.
struct AttentionConfig {
  Scalar x = Scalar::F16, kv = Scalar::F16;
  int headDim = 0, heads = 0;
  /// Of the state, each read by heads / kvHeads of the queries; 0: heads.
  int kvHeads = 0;
  /// The kernel appends.
  bool append = true, causal = true, mask = false;
  /// Of the pages of @extend that the state lies in; 0: it has a place for each sequence.
  int pageTokens = 0;
  /// Keys of a prefix that sequences share may be computed by a launch before, once for all; a
  /// kernel that does not take parts of it computes all keys itself.
  bool prefixes = false;
  /// Of the keys up to a query's own the last so many are seen; 0: all.
  int window = 0;
  float softCap = 0;  ///< scores are softCap tanh(score / softCap); 0: they are as they are
  bool alibi = false; ///< a score falls with its key's distance, in each head by a slope of its own
  /// Queries and new keys are turned by position first, that many pairs of a head; 0: they are not.
  int ropePairs = 0;
  bool ropeInterleaved = false;
  Scalar ropeTable = Scalar::F32; ///< elements of the tables of cosines and sines
  bool headNorm = false;          ///< heads that turn are normed first
  bool last = false;              ///< each sequence's last query alone
  bool aligned = true; ///< of a state of bytes: its heads begin at multiples of 8 bytes, else of 4
  bool bulk = false;   ///< rows of the state may be copied in bulk, they are 16-byte units
  /// The value is int8 or fp8; without a given scale by one for each head.
  bool quantise = false;
  Scalar to = Scalar::I8;
  Given given = Given::None;
};

/// What attention may want, by schedule/Abilities.def.
enum class AttentionAbility : uint8_t {
#define ATTENTION_ABILITY(Name, text) Name,
#include "schedule/Abilities.def"
};
using AttentionAbilities = Abilities<AttentionAbility>;
constexpr llvm::StringRef nameOf(AttentionAbility a) {
  constexpr llvm::StringLiteral names[] = {
#define ATTENTION_ABILITY(Name, text) text,
#include "schedule/Abilities.def"
  };
  return names[size_t(a)];
}

/// Queries of a sequence up to which kernels split the keys over blocks.
constexpr int64_t fewQueries = 4;

/// Of a state in `kv` beside rows in `x`; `tf32`: tensor cores may multiply fp32.
AttentionAbility attentionTypes(Scalar x, Scalar kv, bool tf32);

/// What the value is stored in.
constexpr Scalar valueType(const AttentionConfig &c) { return c.quantise ? c.to : c.x; }

struct AttentionProblem {
  AttentionConfig config;             ///< types, heads, and what is wanted
  int64_t sequences = 1, queries = 1; ///< at most; queries of each sequence
  int64_t context = 1024;
  bool tf32 = true; ///< tensor cores may multiply fp32
  Target target = {};

  using Ability = AttentionAbility;
  /// All that a kernel has to do beside attention of its sizes.
  AttentionAbilities wants() const;

  bool isHalf() const { return config.x == Scalar::F16 && config.kv == Scalar::F16; }
  /// Rows and state in two-byte floats of one type.
  bool isNarrow() const { return gpt2c::isNarrow(config.x) && config.kv == config.x; }
  /// Each head of the queries has keys of its own.
  bool hasOwnKeys() const { return config.kvHeads == 0 || config.kvHeads == config.heads; }
  /// The kernel finds the scales of its quantised result.
  bool findsScales() const { return config.quantise && config.given == Given::None; }
  /// Pages as no kernel takes them.
  bool hasOddPages() const {
    return config.pageTokens % 64 != 0 || (config.pageTokens > 0 && (config.mask || config.last));
  }
  /// Heads of the queries that share one of the state.
  int group() const { return hasOwnKeys() ? 1 : config.heads / config.kvHeads; }
  /// Sets what of the config follows from the rest: whether any kernel appends to the state, which
  /// is one of bytes only for few queries, and how the state may be read. Kernels that append to a
  /// shared one, too, set that themselves.
  void complete() {
    const bool scaled = isQuantised(config.kv);
    const int64_t tokens = config.pageTokens > 0 ? config.pageTokens : context; // of a head's block
    config.append = hasOwnKeys() && (!scaled || (!config.last && queries <= fewQueries));
    config.bulk = config.append && !config.last && config.window == 0 &&
                  config.headDim * scalarBytes(config.kv) % 16 == 0 && (!scaled || tokens % 4 == 0);
    config.aligned = !scaled || tokens * (config.headDim + 4) % 8 == 0;
  }
  AttentionProblem plain() const {
    AttentionProblem p = *this;
    p.config.quantise = false;
    p.config.given = Given::None;
    p.config.ropePairs = 0;
    p.config.headNorm = false;
    return p;
  }
};

inline const Target &targetOf(const AttentionProblem &p) { return p.target; }
struct AttentionLaunch; // where a launch of one goes
using AttentionKernel = Kernel<AttentionProblem, AttentionLaunch>;
using AttentionCandidate = Candidate<AttentionProblem, AttentionLaunch>;

} // namespace gpt2c
