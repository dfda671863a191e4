// attention_prefill_wgmma against float64.
#include "templates/attention/prefill_wgmma/AttentionPrefillWgmma.h"

#include "tests/suite/kernels/AttentionCases.h"

#include <algorithm>

namespace gpt2c::kernels {

namespace attention_prefill_wgmma_test {

Grid grid(const AttentionPrefillWgmmaConfig &c, const AttentionSizes &s, int) {
  // Some blocks have two tiles of queries where there may be pairs, others one.
  const int tiles = (s.seq + 63) / 64;
  return blocks(c.heads, s.batch,
                hasAttentionPairs(c) ? std::min(tiles, (tiles + 1) / 2 + tiles / 5) : tiles);
}

const AttentionTest<AttentionPrefillWgmmaConfig> kernel = {.name = "attention_prefill_wgmma",
                                                           .make = attentionPrefillWgmma,
                                                           .grid = grid,
                                                           .tolerance = halfProbabilities,
                                                           .maps = true};

void addPrompts(Suite &suite) {
  const Scalar f16 = Scalar::F16;
  std::vector<AttentionSizes> sizes = prefillSizes();
  sizes.push_back({2, 300, 400, {90, 7}, false, true});
  for (bool mask : {false, true}) {
    AttentionPrefillWgmmaConfig c = attentionConfig<AttentionPrefillWgmmaConfig>(f16, f16, 64, 2);
    c.mask = mask;
    c.causal = !mask;
    for (c.splits = 1; c.splits <= 4; c.splits *= 2)
      attention(suite, kernel, c, sizes);
    c.splits = 4;
    attention(suite, kernel, c, {{1, 450, 460, {}}, {2, 200, 330, {100, 7}}});
    c.quantise = true;
    for (c.splits = 1; c.splits <= 4; c.splits *= 2)
      attention(suite, kernel, c, prefillSizes());
  }
  // More keys and values than L2 holds.
  attention(suite, kernel, attentionConfig<AttentionPrefillWgmmaConfig>(f16, f16, 64, 12),
            {{86, 65, 65, {}}, {172, 2, 2, {}}});
}

void addBfloats(Suite &suite) {
  AttentionTest<AttentionPrefillWgmmaConfig> bfloat = kernel;
  bfloat.tolerance = bfloatProbabilities;
  for (int shared : {0, 2})
    for (int splits : {1, 2, 4}) {
      AttentionPrefillWgmmaConfig c =
          attentionConfig<AttentionPrefillWgmmaConfig>(Scalar::BF16, Scalar::BF16, 64, 4);
      c.kvHeads = shared;
      c.splits = splits;
      c.mask = splits == 2;
      attention(suite, bfloat, c, shared ? sharedSizes() : prefillSizes());
      attention(suite, bfloat, c, {{1, 450, 460, {}}, {2, 200, 330, {101, 7}}});
    }
}

/// Six or eight heads share those of the state.
void addShared(Suite &suite) {
  for (int shared : {1, 2, 4})
    for (int splits : {1, 2, 4}) {
      AttentionPrefillWgmmaConfig c = attentionConfig<AttentionPrefillWgmmaConfig>(
          Scalar::F16, Scalar::F16, 64, shared == 2 ? 6 : 8);
      c.kvHeads = shared;
      c.splits = splits;
      c.mask = shared == 2;
      attention(suite, kernel, c, prefillSizes());
      attention(suite, kernel, c, {{1, 450, 460, {}}, {2, 200, 330, {101, 7}}});
      c.causal = shared != 4;
      c.quantise = shared == 1;
      attention(suite, kernel, c, sharedSizes());
    }
}

void addGiven(Suite &suite) {
  for (Given given : {Given::Scale, Given::ScaleAndZero}) {
    auto byScale = [&](AttentionPrefillWgmmaConfig c, const std::vector<AttentionSizes> &sizes) {
      c.quantise = true;
      c.given = given;
      attention(suite, kernel, c, sizes);
    };
    AttentionPrefillWgmmaConfig c =
        attentionConfig<AttentionPrefillWgmmaConfig>(Scalar::F16, Scalar::F16, 64, 2);
    for (c.splits = 1; c.splits <= 4; c.splits *= 2)
      byScale(c, prefillSizes());
  }
}

void addFp8(Suite &suite) {
  for (Given given : {Given::None, Given::Fp8Scale})
    for (int splits : {1, 2}) {
      AttentionPrefillWgmmaConfig c =
          attentionConfig<AttentionPrefillWgmmaConfig>(Scalar::F16, Scalar::F16, 64, 4);
      c.splits = splits;
      c.quantise = true;
      c.to = Scalar::F8E4M3;
      c.given = given;
      attention(suite, kernel, c, prefillSizes());
    }
}

void addCases(Suite &suite) {
  addPrompts(suite);
  addFp8(suite);
  addBfloats(suite);
  addShared(suite);
  addGiven(suite);
}

const Cases cases(addCases);
} // namespace attention_prefill_wgmma_test

} // namespace gpt2c::kernels
