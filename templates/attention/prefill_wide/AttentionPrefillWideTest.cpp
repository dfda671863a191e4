// attention_prefill_wide against float64.
#include "templates/attention/prefill_wide/AttentionPrefillWide.h"

#include "tests/suite/kernels/AttentionCases.h"

namespace gpt2c::kernels {

namespace attention_prefill_wide_test {

Grid grid(const AttentionPrefillWideConfig &c, const AttentionSizes &s, int) {
  return blocks(c.heads, s.batch, (s.seq + 64 * c.groups - 1) / (64 * c.groups));
}

using Config = AttentionPrefillWideConfig;

const AttentionTest<Config> kernel = {.name = "attention_prefill_wide",
                                      .make = attentionPrefillWide,
                                      .grid = grid,
                                      .tolerance = halfProbabilities,
                                      .maps = true};

/// Prompts of several tiles, in part behind a state that ends within one.
std::vector<AttentionSizes> longSizes() { return {{1, 450, 460, {}}, {2, 200, 330, {101, 7}}}; }

void addPrompts(Suite &suite) {
  for (int headDim : {64, 80, 96, 128, 192, 256})
    for (int groups = 1; groups <= (headDim > 128 ? 1 : 2); ++groups) {
      Config c = attentionConfig<Config>(Scalar::F16, Scalar::F16, headDim, 2);
      c.groups = groups;
      attention(suite, kernel, c, prefillSizes());
      attention(suite, kernel, c, longSizes());
      c.quantise = true;
      if (headDim % 32 == 0)
        attention(suite, kernel, c, longSizes());
      c.given = Given::Scale;
      if (headDim == 80)
        attention(suite, kernel, c, longSizes());
      c.to = Scalar::F8E4M3;
      c.given = Given::None;
      if (headDim == 128)
        attention(suite, kernel, c, longSizes());
    }
}

void addBfloats(Suite &suite) {
  AttentionTest<Config> bfloat = kernel;
  bfloat.tolerance = bfloatProbabilities;
  for (int headDim : {128, 256})
    for (int groups = 1; groups <= (headDim > 128 ? 1 : 2); ++groups) {
      Config c = attentionConfig<Config>(Scalar::BF16, Scalar::BF16, headDim, 4);
      c.kvHeads = 2;
      c.groups = groups;
      attention(suite, bfloat, c, sharedSizes());
      attention(suite, bfloat, c, longSizes());
    }
}

/// Six or eight heads share those of the state.
void addShared(Suite &suite) {
  for (int shared : {1, 2, 4})
    for (int groups : {1, 2}) {
      Config c = attentionConfig<Config>(Scalar::F16, Scalar::F16, 128, shared == 2 ? 6 : 8);
      c.kvHeads = shared;
      c.groups = groups;
      attention(suite, kernel, c, sharedSizes());
      attention(suite, kernel, c, longSizes());
    }
}

/// Queries that see the last keys alone, and scores with a cap.
void addScores(Suite &suite) {
  for (int window : {1, 8, 100})
    for (int headDim : {64, 112, 256})
      for (int groups = 1; groups <= (headDim > 128 ? 1 : 2); ++groups) {
        Config c = attentionConfig<Config>(Scalar::F16, Scalar::F16, headDim, 4);
        c.window = window;
        c.groups = groups;
        c.softCap = window == 100 ? 3.0f : 0.0f;
        c.kvHeads = 2;
        attention(suite, kernel, c, prefillSizes());
        attention(suite, kernel, c, longSizes());
      }
}

void addCases(Suite &suite) {
  addPrompts(suite);
  addBfloats(suite);
  addShared(suite);
  addScores(suite);
}

const Cases cases(addCases);
} // namespace attention_prefill_wide_test

} // namespace gpt2c::kernels
