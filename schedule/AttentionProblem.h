// Attention over the KV state, as kernels are asked about it.
#pragma once

#include "schedule/Abilities.h"
#include "schedule/Kernel.h"
#include "schedule/Scalar.h"
#include "schedule/Target.h"

namespace gpt2c {

/// A problem, and a configuration for each kernel: members behind a kernel's name are its choice.
struct AttentionConfig {
  Scalar x = Scalar::F16, kv = Scalar::F16;
  int headDim = 0, heads = 0;
  /// Of the state, each read by heads / kvHeads of the queries; 0: heads. Not decode mma.
  int kvHeads = 0;
  /// The kernel appends; of heads that share keys decode, decode group and prefill wgmma do.
  bool append = true, causal = true, mask = false;
  /// Of the pages of @extend that the state lies in; 0: it has a place for each sequence. Decode,
  /// decode mma and group, a multiple of 64, without a mask, lengths and an int8 state.
  int pageTokens = 0;
  /// Of the keys up to a query's own the last so many are seen; 0: all. Decode, decode group,
  /// prefill mma and simt.
  int window = 0;
  float softCap = 0;  ///< scores are softCap tanh(score / softCap); 0: they are as they are
  bool alibi = false; ///< a score falls with its key's distance, in each head by a slope of its own
  /// Decode and decode group, with append: queries and new keys are turned by position first, that
  /// many pairs of a head; 0: they are not.
  int ropePairs = 0;
  bool ropeInterleaved = false;
  Scalar ropeTable = Scalar::F32; ///< elements of the tables of cosines and sines
  bool last = false; ///< decode: each sequence's last query alone; no ring, no append with int8
  bool aligned =
      true;       ///< decode, an int8 state: its heads begin at multiples of 8 bytes, else of 4
  int warps = 4;  ///< decode, decode group, prefill mma
  int splits = 1; ///< decode, decode group, prefill wgmma, prefill tf32
  bool cluster = false; ///< decode: the splits, at most 8, are a thread block cluster
  bool bulk = false;    ///< decode: rows of the state may be copied in bulk, they are 16-byte units
  int ring = 0;         ///< decode, bulk: chunks of the state that a warp has on their way
  int blocks = 3;       ///< decode mma and group: that have room on a multiprocessor
  int queries = 1;      ///< decode mma: most of a sequence, at most `warps`; decode: with a rope
  int keys = 64;        ///< prefill mma: keys of a tile; decode group: of a round
  /// The value is int8. Without a given scale: prefill mma and wgmma, head_dim a multiple of 32, a
  /// scale for each head.
  bool quantise = false;
  Given given = Given::None;
  int tq = 4, tk = 4; ///< prefill simt: queries and keys of a tile, in sixteenths
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
  /// The kernel finds the scales of its int8 result.
  bool findsScales() const { return config.quantise && config.given == Given::None; }
  /// Pages as no kernel takes them.
  bool hasOddPages() const {
    return config.pageTokens % 64 != 0 ||
           (config.pageTokens > 0 && (config.mask || config.last || config.kv == Scalar::I8));
  }
  /// Heads of the queries that share one of the state.
  int group() const { return hasOwnKeys() ? 1 : config.heads / config.kvHeads; }
  /// Sets what of the config follows from the rest: whether any kernel appends to the state, which
  /// is an int8 state's only for few queries, and how the state may be read. Kernels that append to
  /// a shared one, too, set that themselves.
  void complete() {
    const bool int8 = config.kv == Scalar::I8;
    config.append = hasOwnKeys() && (!int8 || (!config.last && queries <= fewQueries));
    config.bulk = config.append && !config.last && config.window == 0 &&
                  config.headDim * scalarBytes(config.kv) % 16 == 0 && (!int8 || context % 4 == 0);
    config.aligned = !int8 || context * (config.headDim + 4) % 8 == 0;
  }
  AttentionProblem plain() const {
    AttentionProblem p = *this;
    p.config.quantise = false;
    p.config.given = Given::None;
    p.config.ropePairs = 0;
    return p;
  }
};

inline const Target &targetOf(const AttentionProblem &p) { return p.target; }
struct AttentionLaunch; // where a launch of one goes
using AttentionKernel = Kernel<AttentionProblem, AttentionLaunch>;
using AttentionCandidate = Candidate<AttentionProblem, AttentionLaunch>;

} // namespace gpt2c
