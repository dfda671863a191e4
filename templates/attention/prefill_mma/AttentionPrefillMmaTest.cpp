// attention_prefill_mma against float64.
#include "templates/attention/prefill_mma/AttentionPrefillMma.h"

#include "tests/suite/kernels/AttentionCases.h"

namespace gpt2c::kernels {

namespace attention_prefill_mma_test {

/// As launchAttention has it.
Grid grid(const AttentionPrefillMmaConfig &c, const AttentionSizes &s, int) {
  const int tiles = (s.seq + 16 * c.warps - 1) / (16 * c.warps);
  return blocks(tiles, c.heads, s.batch);
}

const AttentionTest<AttentionPrefillMmaConfig> kernel = {.name = "attention_prefill_mma",
                                                         .make = attentionPrefillMma,
                                                         .grid = grid,
                                                         .tolerance = halfProbabilities};

void addPrompts(Suite &suite) {
  const Scalar f16 = Scalar::F16;
  for (int headDim : {16, 48, 64, 80, 128, 256})
    for (int variant = 0; variant < 3; ++variant) {
      AttentionPrefillMmaConfig c =
          attentionConfig<AttentionPrefillMmaConfig>(f16, f16, headDim, 2);
      c.keys = headDim > 128 ? 32 : 64;
      c.mask = variant == 1;
      c.causal = variant != 1;
      c.append = variant != 2;
      attention(suite, kernel, c, prefillSizes());
      c.quantise = true;
      if (headDim % 32 == 0)
        attention(suite, kernel, c, prefillSizes());
    }
  for (int headDim : {48, 64, 128})
    for (const AttentionPrefillMmaConfig &c : attentionCandidateConfigs<AttentionPrefillMmaConfig>(
             attentionPrefillMmaKernel(), 100,
             attentionConfig<AttentionPrefillMmaConfig>(f16, f16, headDim, 2)))
      attention(suite, kernel, c, prefillSizes());
}

void addBfloats(Suite &suite) {
  AttentionTest<AttentionPrefillMmaConfig> bfloat = kernel;
  bfloat.tolerance = bfloatProbabilities;
  for (int headDim : {16, 64, 80, 128, 256})
    for (int shared : {0, 2}) {
      AttentionPrefillMmaConfig c =
          attentionConfig<AttentionPrefillMmaConfig>(Scalar::BF16, Scalar::BF16, headDim, 4);
      c.keys = headDim > 128 ? 32 : 64;
      c.kvHeads = shared;
      c.append = shared == 0;
      c.mask = headDim == 80;
      c.window = headDim == 64 ? 8 : 0;
      attention(suite, bfloat, c, shared ? sharedSizes() : prefillSizes());
    }
}

/// Six heads share those of the state.
void addShared(Suite &suite) {
  for (int shared : {1, 2, 3})
    for (int headDim : {16, 64, 80, 128}) {
      AttentionPrefillMmaConfig c =
          attentionConfig<AttentionPrefillMmaConfig>(Scalar::F16, Scalar::F16, headDim, 6);
      c.kvHeads = shared;
      c.append = false;
      c.mask = shared == 3;
      attention(suite, kernel, c, sharedSizes());
    }
}

/// Queries that see the last keys alone.
void addWindows(Suite &suite) {
  for (int window : {1, 8, 100})
    for (int headDim : {48, 64}) {
      AttentionPrefillMmaConfig c =
          attentionConfig<AttentionPrefillMmaConfig>(Scalar::F16, Scalar::F16, headDim, 4);
      c.window = window;
      c.mask = window == 8;
      attention(suite, kernel, c, prefillSizes());
      c.kvHeads = 2;
      c.append = false;
      attention(suite, kernel, c, sharedSizes());
    }
}

void addGiven(Suite &suite) {
  for (Given given : {Given::Scale, Given::ScaleAndZero}) {
    auto byScale = [&](AttentionPrefillMmaConfig c, const std::vector<AttentionSizes> &sizes) {
      c.quantise = true;
      c.given = given;
      attention(suite, kernel, c, sizes);
    };
    for (int headDim : {48, 64})
      byScale(attentionConfig<AttentionPrefillMmaConfig>(Scalar::F16, Scalar::F16, headDim, 2),
              prefillSizes());
  }
  for (Given given : {Given::None, Given::Fp8Scale}) {
    auto c = attentionConfig<AttentionPrefillMmaConfig>(Scalar::F16, Scalar::F16, 64, 2);
    c.quantise = true;
    c.to = Scalar::F8E4M3;
    c.given = given;
    attention(suite, kernel, c, prefillSizes());
  }
}

/// States of bytes, of which what they stand for is rounded.
void addBytes(Suite &suite) {
  for (Scalar of : {Scalar::I8, Scalar::F8E4M3})
    for (Scalar t : {Scalar::F16, Scalar::BF16}) {
      AttentionTest<AttentionPrefillMmaConfig> bytes = kernel;
      bytes.tolerance = 3 * (t == Scalar::F16 ? halfProbabilities : bfloatProbabilities);
      for (int headDim : {16, 64, 80}) {
        AttentionPrefillMmaConfig c = attentionConfig<AttentionPrefillMmaConfig>(t, of, headDim, 4);
        c.kvHeads = headDim == 64 ? 2 : 0;
        c.append = false;
        c.window = headDim == 80 ? 8 : 0;
        attention(suite, bytes, c, sharedSizes());
      }
    }
}

void addCases(Suite &suite) {
  addBytes(suite);
  addPrompts(suite);
  addBfloats(suite);
  addShared(suite);
  addWindows(suite);
  addGiven(suite);
}

const Cases cases(addCases);
} // namespace attention_prefill_mma_test

} // namespace gpt2c::kernels
