// attention_prefix, and kernels that add up what it leaves, against float64.
#include "templates/attention/prefix/AttentionPrefix.h"

#include "templates/attention/decode/AttentionDecode.h"
#include "templates/attention/decode_group/AttentionDecodeGroup.h"
#include "templates/attention/decode_mma/AttentionDecodeMma.h"
#include "tests/suite/kernels/AttentionCases.h"

namespace gpt2c::kernels {

namespace attention_prefix_test {

/// Sets of different lengths, sequences of no set and nobody's, tiles that are not full and, of few
/// blocks, one part for each.
std::vector<AttentionSizes> prefixSizes() {
  return {{.batch = 4,
           .seq = 1,
           .context = 320,
           .past = {300, 290, 256, 310},
           .sets = 1,
           .sharedPages = 4},
          {.batch = 7,
           .seq = 1,
           .context = 640,
           .past = {639, 200, -1, 512, 63, 577, 400},
           .sets = 2,
           .sharedPages = 9},
          {.batch = 3, .seq = 1, .context = 128, .past = {100, 64, 5}}};
}
/// More than a tile.
AttentionSizes manySequences() {
  AttentionSizes s = {
      .batch = 37, .seq = 1, .context = 256, .past = {}, .sets = 1, .sharedPages = 3};
  for (int b = 0; b < s.batch; ++b)
    s.past.push_back(b % 5 == 4 ? 130 + b : 192 + b);
  return s;
}

template <typename Config>
void addCase(Suite &suite, const std::string &name, Config c,
             KernelSource (*make)(llvm::StringRef, const Config &),
             const std::function<Grid(const AttentionSizes &)> &grid,
             const std::vector<AttentionSizes> &sizes, int64_t sequences) {
  c.pageTokens = 64;
  c.prefixes = true;
  const AttentionPrefixConfig prefix = prefixConfig(c, sequences);
  AttentionInstance instance{
      .c = c, .name = name, .config = nameOf(c), .splits = c.splits, .cluster = c.cluster};
  instance.make = [make, c](llvm::StringRef name) { return make(name, c); };
  instance.makePrefix = [prefix](llvm::StringRef name) { return attentionPrefix(name, prefix); };
  instance.members = prefix.members();
  instance.grid = [grid](const AttentionSizes &s, int) { return grid(s); };
  instance.tolerance = c.x == Scalar::BF16 ? bfloatProbabilities : halfProbabilities;
  attention(suite, instance, sizes);
}

void addGroup(Suite &suite, AttentionDecodeGroupConfig c, const std::vector<AttentionSizes> &sizes,
              int64_t sequences = 4) {
  c.keys = c.headDim <= 64 ? 32 : 16;
  c.cluster = c.splits > 1;
  const int splits = c.splits, heads = c.kvHeads;
  addCase<AttentionDecodeGroupConfig>(
      suite, "attention_prefix before attention_decode_group", c, attentionDecodeGroup,
      [=](const AttentionSizes &s) { return blocks(splits, heads, s.batch); }, sizes, sequences);
}

/// Each query of a head by itself.
template <typename Config>
void addSingle(Suite &suite, const char *name, Config c,
               KernelSource (*make)(llvm::StringRef, const Config &),
               const std::vector<AttentionSizes> &sizes, int64_t sequences = 4) {
  c.cluster = c.splits > 1;
  const int splits = c.splits, heads = c.heads;
  addCase<Config>(
      suite, name, c, make, [=](const AttentionSizes &s) { return blocks(splits, heads, s.batch); },
      sizes, sequences);
}
void addDecode(Suite &suite, Scalar type, int headDim, int ring) {
  auto c = attentionConfig<AttentionDecodeConfig>(type, type, headDim, 3);
  c.ring = ring;
  c.bulk = ring > 0;
  c.splits = headDim == 128 ? 4 : 1;
  if (headDim == 64) {
    c.ropePairs = 16;
    c.headNorm = ring > 0;
  }
  addSingle(suite, "attention_prefix before attention_decode", c, attentionDecode, prefixSizes());
}
void addMma(Suite &suite, Scalar type, int headDim) {
  auto c = attentionConfig<AttentionDecodeMmaConfig>(type, type, headDim, 3);
  c.splits = headDim == 64 ? 3 : 1;
  addSingle(suite, "attention_prefix before attention_decode_mma", c, attentionDecodeMma,
            prefixSizes());
}

AttentionDecodeGroupConfig groupConfig(Scalar type, int headDim, int group, int kvHeads) {
  auto c = attentionConfig<AttentionDecodeGroupConfig>(type, type, headDim, group * kvHeads);
  c.kvHeads = kvHeads;
  return c;
}

void addCases(Suite &suite) {
  for (Scalar type : {Scalar::F16, Scalar::BF16})
    for (int group : {1, 3, 4, 8})
      for (int headDim : {32, 64, 80, 128}) {
        if (type == Scalar::BF16 && group != 4)
          continue;
        AttentionDecodeGroupConfig c = groupConfig(type, headDim, group, 2);
        c.splits = group == 8 ? 4 : 1;
        if (headDim != 80) {
          c.ropePairs = headDim / 2;
          c.ropeInterleaved = group == 3;
          c.headNorm = group == 8;
        }
        addGroup(suite, c, prefixSizes());
      }
  for (Scalar type : {Scalar::F16, Scalar::BF16})
    for (int headDim : {64, 80, 128, 256}) {
      addDecode(suite, type, headDim, 0);
      if (headDim <= 128) {
        addDecode(suite, type, headDim, 4);
        addMma(suite, type, headDim);
      }
    }
  addDecode(suite, Scalar::F16, 72, 0);
  // More heads that share keys than attention_decode_group takes.
  auto many = attentionConfig<AttentionDecodeConfig>(Scalar::F16, Scalar::F16, 64, 12);
  many.kvHeads = 1;
  many.ropePairs = 32;
  addSingle(suite, "attention_prefix before attention_decode", many, attentionDecode,
            {manySequences()}, 128);
  // Tiles of 128 queries.
  addGroup(suite, groupConfig(Scalar::F16, 64, 4, 1), {manySequences()}, 128);
  addGroup(suite, groupConfig(Scalar::F16, 64, 7, 1), {manySequences()}, 128);
  AttentionDecodeGroupConfig turned = groupConfig(Scalar::BF16, 64, 4, 1);
  turned.ropePairs = 32;
  addGroup(suite, turned, {manySequences()}, 128);
  addGroup(suite, groupConfig(Scalar::F16, 128, 2, 1), {manySequences()}, 128);
}

const Cases cases(addCases);

} // namespace attention_prefix_test

} // namespace gpt2c::kernels
