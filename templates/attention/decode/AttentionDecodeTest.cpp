// attention_decode against float64.
#include "templates/attention/decode/AttentionDecode.h"

#include "tests/suite/kernels/AttentionCases.h"

namespace gpt2c::kernels {

namespace attention_decode_test {

/// As launchAttention has it.
Grid grid(const AttentionDecodeConfig &c, const AttentionSizes &s, int queries) {
  return blocks(c.splits, c.heads, int64_t(s.batch) * queries);
}

const AttentionTest<AttentionDecodeConfig> kernel = {
    .name = "attention_decode", .make = attentionDecode, .grid = grid};

/// Of which the last query of each sequence is computed.
std::vector<AttentionSizes> lastSizes() {
  return {{1, 1, 8, {}}, {1, 130, 140, {}}, {3, 70, 600, {500, 0, 31}}, {2, 33, 90, {17, 3}, true}};
}

void addSplits(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  for (int headDim : {1, 2, 3, 5, 8, 40, 64, 80, 128, 256})
    for (Scalar t : {f16, f32})
      for (int splits : {1, 3, 8}) {
        AttentionDecodeConfig c = attentionConfig<AttentionDecodeConfig>(t, t, headDim, 3);
        c.splits = splits;
        c.mask = splits == 3;
        c.append = splits != 8;
        c.causal = headDim != 40;
        attention(suite, kernel, c, decodeSizes());
      }
  for (int headDim : {3, 64, 80, 256})
    for (Scalar t : {f16, f32})
      for (int splits : {2, 4, 8}) {
        AttentionDecodeConfig c = attentionConfig<AttentionDecodeConfig>(t, t, headDim, 3);
        c.splits = splits;
        c.cluster = true;
        c.warps = splits == 8 ? 8 : 4;
        c.mask = splits == 2;
        attention(suite, kernel, c, decodeSizes());
      }
}

void addLast(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  for (int headDim : {3, 40, 64, 80, 256})
    for (Scalar t : {f16, f32})
      for (int splits : {1, 3, 8}) {
        AttentionDecodeConfig c = attentionConfig<AttentionDecodeConfig>(t, t, headDim, 3);
        c.last = true;
        c.splits = splits;
        c.cluster = splits == 8;
        c.mask = splits == 3;
        c.append = headDim != 80;
        attention(suite, kernel, c, lastSizes());
      }
  AttentionDecodeConfig mixed = attentionConfig<AttentionDecodeConfig>(f32, f16, 64, 2);
  attention(suite, kernel, mixed, {{2, 1, 40, {5, 20}}});
  mixed.last = true;
  attention(suite, kernel, mixed, lastSizes());
  AttentionDecodeConfig wide = attentionConfig<AttentionDecodeConfig>(f32, f32, 1000, 1);
  attention(suite, kernel, wide, {{1, 1, 40, {30}}});
}

void addBfloats(Suite &suite) {
  const Scalar bf16 = Scalar::BF16;
  for (int headDim : {3, 64, 80, 128})
    for (int splits : {1, 4}) {
      AttentionDecodeConfig c = attentionConfig<AttentionDecodeConfig>(bf16, bf16, headDim, 4);
      c.splits = splits;
      c.cluster = splits > 1;
      c.mask = splits == 4;
      attention(suite, kernel, c, decodeSizes());
      AttentionDecodeConfig shared = c;
      shared.kvHeads = 2;
      shared.append = false;
      shared.window = headDim == 64 ? 8 : 0;
      attention(suite, kernel, shared, sharedSizes());
      c.last = true;
      attention(suite, kernel, c, lastSizes());
    }
  AttentionDecodeConfig ring = attentionConfig<AttentionDecodeConfig>(bf16, bf16, 64, 4);
  ring.ring = 4;
  attention(suite, kernel, ring, ringSizes());
}

/// Rows of the state that are copied in bulk.
void addRings(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  for (int headDim : {8, 64, 80, 128, 256})
    for (Scalar t : {f16, f32})
      for (int splits : {1, 4}) {
        AttentionDecodeConfig c = attentionConfig<AttentionDecodeConfig>(t, t, headDim, 3);
        c.splits = splits;
        c.cluster = splits > 1;
        c.ring = headDim == 80 ? 3 : 4;
        c.mask = splits == 4;
        attention(suite, kernel, c, ringSizes());
        c.mask = false;
        c.queries = 4;
        c.ropePairs = headDim / 2;
        c.headNorm = splits == 4;
        attention(suite, kernel, c, ringSizes());
      }
  for (Scalar t : {f16, f32}) {
    AttentionDecodeConfig model = attentionConfig<AttentionDecodeConfig>(t, t, 64, 3);
    model.bulk = true;
    for (const AttentionDecodeConfig &candidate :
         attentionCandidateConfigs<AttentionDecodeConfig>(attentionDecodeKernel(), 1, model))
      attention(suite, kernel, candidate, decodeSizes());
  }
}

/// Six heads share those of the state.
void addShared(Suite &suite) {
  for (int shared : {1, 2, 3})
    for (int headDim : {16, 64, 80, 128})
      for (Scalar t : {Scalar::F16, Scalar::F32})
        for (bool last : {false, true})
          for (int splits : {1, 4}) {
            AttentionDecodeConfig c = attentionConfig<AttentionDecodeConfig>(t, t, headDim, 6);
            c.kvHeads = shared;
            c.append = false;
            c.mask = shared == 3;
            c.last = last;
            c.splits = splits;
            c.cluster = splits > 1;
            attention(suite, kernel, c, last ? lastSizes() : decodeSizes());
          }
}

/// Heads of the state that are shared, and queries and new keys that are turned.
void addSharedAppends(Suite &suite) {
  for (Scalar t : {Scalar::F16, Scalar::BF16, Scalar::F32})
    for (int headDim : {16, 64, 80, 128})
      for (int variant = 0; variant < 3; ++variant) {
        AttentionDecodeConfig c = attentionConfig<AttentionDecodeConfig>(t, t, headDim, 6);
        c.kvHeads = variant == 0 ? 2 : variant == 1 ? 1 : 6;
        c.splits = variant == 0 ? 1 : 4;
        c.cluster = c.splits > 1;
        c.mask = headDim == 80;
        c.window = headDim == 16 ? 8 : 0;
        c.queries = 4;
        if (variant < 2) // own heads have cases
          attention(suite, kernel, c, decodeSizes());
        c.ropePairs = variant == 1 ? headDim / 4 : headDim / 2;
        c.ropeInterleaved = variant == 2;
        c.ropeTable = variant == 1 ? t : Scalar::F32;
        attention(suite, kernel, c, decodeSizes());
        c.headNorm = true;
        if (variant != 2)
          attention(suite, kernel, c, decodeSizes());
      }
  AttentionDecodeConfig ring =
      attentionConfig<AttentionDecodeConfig>(Scalar::F16, Scalar::F16, 64, 4);
  ring.ring = 4;
  ring.queries = 4;
  ring.ropePairs = 32;
  attention(suite, kernel, ring, ringSizes());
}

/// Scores with a soft cap, and with slopes, of numbers of heads that are a power of 2 or none.
void addScores(Suite &suite) {
  for (Scalar t : {Scalar::F16, Scalar::F32})
    for (auto [cap, alibi, heads] : {std::tuple(2.0f, false, 4), {0.0f, true, 8}, {3.0f, true, 6}})
      for (int splits : {1, 4}) {
        AttentionDecodeConfig c = attentionConfig<AttentionDecodeConfig>(t, t, 64, heads);
        c.softCap = cap;
        c.alibi = alibi;
        c.splits = splits;
        c.cluster = splits > 1;
        attention(suite, kernel, c, decodeSizes());
        c.kvHeads = 2;
        c.append = false;
        attention(suite, kernel, c, decodeSizes());
      }
}

/// Queries that see the last keys alone.
void addWindows(Suite &suite) {
  for (int window : {1, 8, 100})
    for (Scalar t : {Scalar::F16, Scalar::F32})
      for (bool last : {false, true})
        for (int splits : {1, 4}) {
          AttentionDecodeConfig c = attentionConfig<AttentionDecodeConfig>(t, t, 64, 4);
          c.window = window;
          c.last = last;
          c.splits = splits;
          c.cluster = splits > 1;
          c.mask = window == 8;
          attention(suite, kernel, c, last ? lastSizes() : decodeSizes());
          c.kvHeads = 2;
          c.append = false;
          attention(suite, kernel, c, last ? lastSizes() : decodeSizes());
        }
}

/// States in pages: with and without a ring, heads that share keys, windows, a rotary embedding.
void addPages(Suite &suite) {
  for (Scalar t : {Scalar::F16, Scalar::BF16, Scalar::F32})
    for (int headDim : {16, 64, 80})
      for (int variant = 0; variant < (headDim == 64 ? 4 : 1); ++variant) {
        AttentionDecodeConfig c = attentionConfig<AttentionDecodeConfig>(t, t, headDim, 4);
        c.pageTokens = headDim == 80 ? 128 : 64;
        c.splits = variant == 0 ? 1 : 4;
        c.cluster = variant == 2;
        c.queries = 4;
        if (variant == 2) {
          c.kvHeads = 2;
          c.ropePairs = headDim / 2;
        }
        if (variant == 3)
          c.window = 100;
        attention(suite, kernel, c, pageSizes());
        c.ring = 4;
        if (variant < 2)
          attention(suite, kernel, c, pageSizes());
      }
}

/// States of bytes, in pages and with a place for each sequence.
void addBytes(Suite &suite) {
  for (Scalar bytes : {Scalar::I8, Scalar::F8E4M3})
    for (Scalar t : {Scalar::F16, Scalar::BF16, Scalar::F32})
      for (int headDim : {12, 64, 80})
        for (int pages : {0, 64}) {
          AttentionDecodeConfig c = attentionConfig<AttentionDecodeConfig>(t, bytes, headDim, 4);
          c.pageTokens = pages;
          c.splits = headDim == 80 ? 4 : 1;
          c.cluster = c.splits > 1;
          c.aligned = headDim != 12;
          c.queries = 4;
          c.kvHeads = pages && headDim == 64 ? 2 : 0;
          c.ropePairs = pages && headDim == 64 && t != Scalar::F32 ? 32 : 0;
          c.window = headDim == 12 ? 100 : 0;
          auto sizes = pages ? pageSizes() : ringSizes();
          attention(suite, kernel, c, sizes);
          c.ring = 4;
          if (headDim != 12)
            attention(suite, kernel, c, sizes);
        }
}

void addGiven(Suite &suite) {
  for (Given given : {Given::Scale, Given::ScaleAndZero}) {
    auto byScale = [&](AttentionDecodeConfig c, const std::vector<AttentionSizes> &sizes) {
      c.quantise = true;
      c.given = given;
      attention(suite, kernel, c, sizes);
    };
    for (int headDim : {3, 64})
      for (int splits : {1, 3, 8}) {
        const Scalar type = headDim == 3 ? Scalar::F32 : Scalar::F16;
        AttentionDecodeConfig c = attentionConfig<AttentionDecodeConfig>(type, type, headDim, 3);
        c.splits = splits;
        c.cluster = splits == 8;
        byScale(c, decodeSizes());
        c.last = true;
        byScale(c, lastSizes());
      }
  }
}

void addCases(Suite &suite) {
  addSplits(suite);
  addBfloats(suite);
  addLast(suite);
  addRings(suite);
  addShared(suite);
  addSharedAppends(suite);
  addWindows(suite);
  addScores(suite);
  addPages(suite);
  addBytes(suite);
  addGiven(suite);
}

const Cases cases(addCases);
} // namespace attention_decode_test

} // namespace gpt2c::kernels
