// attention_decode_group against float64.
#include "templates/attention/decode_group/AttentionDecodeGroup.h"

#include "tests/suite/kernels/AttentionCases.h"

namespace gpt2c::kernels {

namespace attention_decode_group_test {

/// As its record has it.
Grid grid(const AttentionDecodeGroupConfig &c, const AttentionSizes &s, int) {
  return blocks(c.splits, stateHeads(c), s.batch);
}

const AttentionTest<AttentionDecodeGroupConfig> kernel = {
    .name = "attention_decode_group", .make = attentionDecodeGroup, .grid = grid};

/// Groups of up to 4 heads multiply by what rounding leaves of a probability, too.
AttentionTest<AttentionDecodeGroupConfig> kernelOf(const AttentionDecodeGroupConfig &c) {
  AttentionTest<AttentionDecodeGroupConfig> test = kernel;
  const bool halves = c.heads / stateHeads(c) > 4;
  if (c.x == Scalar::BF16)
    test.tolerance = halves ? bfloatProbabilities : bfloatProbabilities / 256;
  else if (halves)
    test.tolerance = halfProbabilities;
  return test;
}

/// One query of each sequence; states that end within a round, and one that is full.
std::vector<AttentionSizes> groupSizes() {
  return {{1, 1, 8, {}},
          {1, 1, 600, {511}},
          {3, 1, 40, {0, 7, 39}},
          {2, 1, 70, {64, 3}, true},
          {5, 1, 300, {0, 17, 299, 128, 33}},
          {2, 1, 1100, {1099, 600}}};
}

AttentionDecodeGroupConfig groupConfig(Scalar type, int headDim, int group, int kvHeads) {
  AttentionDecodeGroupConfig c =
      attentionConfig<AttentionDecodeGroupConfig>(type, type, headDim, group * kvHeads);
  c.kvHeads = kvHeads;
  c.keys = headDim <= 64 ? 32 : 16;
  return c;
}

void addGroups(Suite &suite) {
  for (Scalar type : {Scalar::F16, Scalar::BF16})
    for (int group : {1, 2, 3, 4, 7, 8})
      for (int headDim : {32, 64, 80, 128}) {
        if (type == Scalar::BF16 && group != 4 && group != 7)
          continue;
        AttentionDecodeGroupConfig c = groupConfig(type, headDim, group, group == 8 ? 1 : 2);
        c.splits = group == 4 || headDim == 80 ? 8 : group == 1 ? 3 : 1;
        c.cluster = c.splits == 8;
        c.mask = headDim == 80 || group == 3;
        c.window = group == 2 && headDim == 64 ? 100 : 0;
        attention(suite, kernelOf(c), c, groupSizes());
      }
}

void addCandidates(Suite &suite) {
  for (int headDim : {16, 64})
    for (const AttentionDecodeGroupConfig &c :
         attentionCandidateConfigs<AttentionDecodeGroupConfig>(
             attentionDecodeGroupKernel(), 1, groupConfig(Scalar::F16, headDim, 4, 2)))
      attention(suite, kernelOf(c), c, groupSizes());
}

/// Queries and the new key are turned: all pairs of a head or some, of tables in both types.
void addRopes(Suite &suite) {
  for (Scalar type : {Scalar::F16, Scalar::BF16})
    for (int group : {1, 4, 8})
      for (int headDim : {32, 64, 80, 128}) {
        AttentionDecodeGroupConfig c = groupConfig(type, headDim, group, 2);
        c.ropePairs = headDim == 80 ? 20 : headDim / 2;
        c.ropeInterleaved = headDim == 80 || group == 1;
        c.ropeTable = headDim == 80 ? type : Scalar::F32;
        c.splits = headDim == 32 ? 1 : 4;
        c.cluster = c.splits > 1;
        c.warps = headDim == 128 ? 8 : 4;
        attention(suite, kernelOf(c), c, groupSizes());
        c.headNorm = true;
        if (group == 4)
          attention(suite, kernelOf(c), c, groupSizes());
      }
}

/// States of bytes: contexts are multiples of 4.
void addBytes(Suite &suite) {
  for (Scalar bytes : {Scalar::I8, Scalar::F8E4M3})
    for (Scalar type : {Scalar::F16, Scalar::BF16})
      for (int group : {1, 2, 4, 7})
        for (int headDim : {32, 64, 128})
          for (int pages : {0, 64}) {
            if (type == Scalar::BF16 && headDim == 32)
              continue;
            AttentionDecodeGroupConfig c = groupConfig(type, headDim, group, 2);
            c.kv = bytes;
            c.pageTokens = pages;
            c.splits = group == 4 ? 4 : 1;
            c.cluster = c.splits > 1;
            c.ropePairs = group == 7 || (group == 1 && pages) ? headDim / 2 : 0;
            c.mask = !pages && group == 2;
            AttentionTest<AttentionDecodeGroupConfig> test = kernelOf(c);
            test.tolerance = std::max(test.tolerance, 8e-6);
            attention(suite, test, c,
                      pages ? std::vector<AttentionSizes>{{1, 1, 64, {0}},
                                                          {4, 1, 200, {63, -1, 64, 199}},
                                                          {1, 1, 2400, {2303}}}
                            : std::vector<AttentionSizes>{{1, 1, 8, {}},
                                                          {3, 1, 40, {0, 7, 39}},
                                                          {5, 1, 300, {0, 17, 299, 128, 33}}});
          }
}

void addPages(Suite &suite) {
  std::vector<AttentionSizes> sizes = pageSizes();
  sizes.pop_back(); // of several queries
  for (Scalar type : {Scalar::F16, Scalar::BF16})
    for (int headDim : {32, 64, 128}) {
      AttentionDecodeGroupConfig c = groupConfig(type, headDim, headDim == 32 ? 8 : 4, 2);
      c.pageTokens = headDim == 128 ? 128 : 64;
      c.ropePairs = headDim == 64 ? 32 : 0;
      c.window = headDim == 32 ? 100 : 0;
      c.splits = headDim == 64 ? 1 : 4;
      c.cluster = c.splits > 1;
      attention(suite, kernelOf(c), c, sizes);
    }
}

void addGiven(Suite &suite) {
  for (Given given : {Given::Scale, Given::ScaleAndZero})
    for (int splits : {1, 3, 4}) {
      AttentionDecodeGroupConfig c = groupConfig(Scalar::F16, 64, 4, 2);
      c.quantise = true;
      c.given = given;
      c.splits = splits;
      c.cluster = splits == 4;
      attention(suite, kernelOf(c), c, groupSizes());
    }
}

void addCases(Suite &suite) {
  addGroups(suite);
  addCandidates(suite);
  addRopes(suite);
  addPages(suite);
  addBytes(suite);
  addGiven(suite);
}

const Cases cases(addCases);
} // namespace attention_decode_group_test

} // namespace gpt2c::kernels
