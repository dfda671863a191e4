// attention_prefill_tf32 against float64.
#include "templates/attention/prefill_tf32/AttentionPrefillTf32.h"

#include "tests/suite/kernels/AttentionCases.h"

namespace gpt2c::kernels {

namespace attention_prefill_tf32_test {

/// As launchAttention has it.
Grid grid(const AttentionPrefillTf32Config &c, const AttentionSizes &s, int) {
  const int tiles = (s.seq + 16 * c.warps - 1) / (16 * c.warps);
  return blocks(tiles, c.heads, int64_t(s.batch) * c.splits);
}

const AttentionTest<AttentionPrefillTf32Config> kernel = {
    .name = "attention_prefill_tf32", .make = attentionPrefillTf32, .grid = grid};

void addPrompts(Suite &suite) {
  const Scalar f32 = Scalar::F32;
  for (int headDim : {8, 40, 64, 80, 96, 128})
    for (int variant = 0; variant < 3; ++variant) {
      AttentionPrefillTf32Config c =
          attentionConfig<AttentionPrefillTf32Config>(f32, f32, headDim, 2);
      c.warps = 1 << variant;
      c.keys = variant == 2 ? 32 : 64;
      c.splits = 1 << (variant + headDim / 8) % 3;
      c.mask = variant == 1;
      c.causal = variant != 1;
      c.append = variant != 2;
      attention(suite, kernel, c, prefillSizes());
    }
  for (int headDim : {48, 64, 128})
    for (const AttentionPrefillTf32Config &c :
         attentionCandidateConfigs<AttentionPrefillTf32Config>(
             attentionPrefillTf32Kernel(), 100,
             attentionConfig<AttentionPrefillTf32Config>(f32, f32, headDim, 2)))
      attention(suite, kernel, c, prefillSizes());
}

void addGiven(Suite &suite) {
  for (Given given : {Given::Scale, Given::ScaleAndZero}) {
    auto byScale = [&](AttentionPrefillTf32Config c, const std::vector<AttentionSizes> &sizes) {
      c.quantise = true;
      c.given = given;
      attention(suite, kernel, c, sizes);
    };
    byScale(attentionConfig<AttentionPrefillTf32Config>(Scalar::F32, Scalar::F32, 40, 2),
            prefillSizes());
  }
}

void addCases(Suite &suite) {
  addPrompts(suite);
  addGiven(suite);
}

const Cases cases(addCases);
} // namespace attention_prefill_tf32_test

} // namespace gpt2c::kernels
