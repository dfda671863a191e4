// attention_prefill_simt against float64.
#include "templates/attention/prefill_simt/AttentionPrefillSimt.h"

#include "tests/suite/kernels/AttentionCases.h"

namespace gpt2c::kernels {

namespace attention_prefill_simt_test {

/// As launchAttention has it.
Grid grid(const AttentionPrefillSimtConfig &c, const AttentionSizes &s, int) {
  const int tiles = (s.seq + 16 * c.tq - 1) / (16 * c.tq);
  return blocks(tiles, c.heads, s.batch);
}

const AttentionTest<AttentionPrefillSimtConfig> kernel = {
    .name = "attention_prefill_simt", .make = attentionPrefillSimt, .grid = grid};

void addPrompts(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  for (int headDim : {1, 2, 3, 5, 8, 40, 64, 80, 128, 256})
    for (int variant = 0; variant < 3; ++variant) {
      AttentionPrefillSimtConfig c = attentionConfig<AttentionPrefillSimtConfig>(
          variant == 1 ? f16 : f32, variant == 1 ? f16 : f32, headDim, 2);
      c.tq = c.tk = headDim > 64 ? 2 : 4;
      c.mask = variant == 1;
      c.causal = variant != 1;
      c.append = variant != 2;
      attention(suite, kernel, c, prefillSizes());
    }
}

/// Six heads share those of the state.
void addShared(Suite &suite) {
  for (int shared : {1, 2, 3})
    for (int headDim : {16, 64, 80, 128})
      for (Scalar t : {Scalar::F16, Scalar::F32}) {
        AttentionPrefillSimtConfig c =
            attentionConfig<AttentionPrefillSimtConfig>(t, t, headDim, 6);
        c.kvHeads = shared;
        c.append = false;
        c.mask = shared == 3;
        c.tq = c.tk = headDim > 64 ? 2 : 4;
        attention(suite, kernel, c, sharedSizes());
      }
}

void addBfloats(Suite &suite) {
  for (int headDim : {3, 64}) {
    AttentionPrefillSimtConfig c =
        attentionConfig<AttentionPrefillSimtConfig>(Scalar::BF16, Scalar::BF16, headDim, 2);
    attention(suite, kernel, c, prefillSizes());
  }
}

/// Scores with a soft cap, and with slopes, of numbers of heads that are a power of 2 or none.
void addScores(Suite &suite) {
  for (Scalar t : {Scalar::F16, Scalar::F32})
    for (auto [cap, alibi, heads] :
         {std::tuple(2.0f, false, 4), {0.0f, true, 8}, {3.0f, true, 6}}) {
      AttentionPrefillSimtConfig c = attentionConfig<AttentionPrefillSimtConfig>(t, t, 48, heads);
      c.softCap = cap;
      c.alibi = alibi;
      attention(suite, kernel, c, prefillSizes());
    }
}

/// Queries that see the last keys alone.
void addWindows(Suite &suite) {
  for (int window : {1, 8, 100})
    for (int headDim : {48, 64}) {
      AttentionPrefillSimtConfig c =
          attentionConfig<AttentionPrefillSimtConfig>(Scalar::F16, Scalar::F16, headDim, 4);
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
    auto byScale = [&](AttentionPrefillSimtConfig c, const std::vector<AttentionSizes> &sizes) {
      c.quantise = true;
      c.given = given;
      attention(suite, kernel, c, sizes);
    };
    for (int headDim : {3, 64}) {
      const Scalar type = headDim == 3 ? Scalar::F32 : Scalar::F16;
      byScale(attentionConfig<AttentionPrefillSimtConfig>(type, type, headDim, 2), prefillSizes());
    }
  }
}

/// States of bytes, of which what they stand for is multiplied in fp32.
void addBytes(Suite &suite) {
  for (Scalar of : {Scalar::I8, Scalar::F8E4M3})
    for (Scalar t : {Scalar::F16, Scalar::BF16, Scalar::F32}) {
      AttentionTest<AttentionPrefillSimtConfig> bytes = kernel;
      for (int headDim : {16, 64, 80}) {
        AttentionPrefillSimtConfig c =
            attentionConfig<AttentionPrefillSimtConfig>(t, of, headDim, 4);
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
  addScores(suite);
  addGiven(suite);
}

const Cases cases(addCases);
} // namespace attention_prefill_simt_test

} // namespace gpt2c::kernels
