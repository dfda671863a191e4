// attention_prefix: the keys of a prefix that sequences share, for all of them at once.
#pragma once

#include "codegen/KernelSource.h"
#include "templates/attention/Kernels.h"

namespace gpt2c {

struct AttentionPrefixConfig : AttentionConfig {
  int warps = 4;       ///< of 16 queries each
  int parts = 0;       ///< of a sequence's keys at most
  bool byRows = false; ///< it is said which row a sequence's query is in
  /// Sequences of a tile.
  int members() const { return 16 * warps / (kvHeads ? heads / kvHeads : 1); }
};
/// Of calls of up to so many sequences.
AttentionPrefixConfig prefixConfig(const AttentionConfig &c, int64_t sequences);
KernelSource attentionPrefix(llvm::StringRef name, const AttentionPrefixConfig &c);

/// The members and parameters of a kernel that adds up the parts of prefixes: Parts is 0 unless
/// c.prefixes.
void prefixMembers(KernelWriter &w, const AttentionConfig &c);
void passPrefix(KernelWriter &w, const AttentionConfig &c);
/// Launches attention_prefix in front of a kernel that has the rest of `sequences`, whose arguments
/// are `args`, and sets what passPrefix() passes. False: the function has no tiles for it, and the
/// kernel computes all keys.
bool launchPrefix(StepBuilder &b, const Op &op, const AttentionPrefixConfig &c,
                  const Dim &sequences, StepBuilder::Args &args);
/// The same of a kernel of that configuration, whose `prefixes` say whether there are parts.
llvm::Error launchPrefix(AttentionLaunch &l, AttentionConfig &c);

} // namespace gpt2c
