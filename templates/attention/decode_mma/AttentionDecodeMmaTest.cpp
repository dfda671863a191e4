// attention_decode_mma against float64.
#include "templates/attention/decode_mma/AttentionDecodeMma.h"

#include "tests/suite/kernels/AttentionCases.h"

namespace gpt2c::kernels {

namespace attention_decode_mma_test {

/// As launchAttention has it.
Grid grid(const AttentionDecodeMmaConfig &c, const AttentionSizes &s, int queries) {
  return blocks(c.splits, c.heads, int64_t(s.batch) * queries);
}

const AttentionTest<AttentionDecodeMmaConfig> kernel = {
    .name = "attention_decode_mma", .make = attentionDecodeMma, .grid = grid};

std::vector<AttentionSizes> mmaSizes() {
  std::vector<AttentionSizes> sizes = decodeSizes(), longer = ringSizes();
  sizes.insert(sizes.end(), longer.begin(), longer.end());
  return sizes;
}

void addSplits(Suite &suite) {
  const Scalar f16 = Scalar::F16;
  for (int headDim : {16, 48, 64, 80, 96, 128})
    for (int splits : {1, 3, 4, 6}) {
      AttentionDecodeMmaConfig c = attentionConfig<AttentionDecodeMmaConfig>(f16, f16, headDim, 3);
      c.queries = 4;
      c.splits = splits;
      c.cluster = splits > 3;
      c.mask = splits == 4 || headDim == 48;
      c.causal = headDim != 96;
      attention(suite, kernel, c, mmaSizes());
      if (headDim == 64)
        for (const AttentionDecodeMmaConfig &candidate :
             attentionCandidateConfigs<AttentionDecodeMmaConfig>(attentionDecodeMmaKernel(), 4, c))
          attention(suite, kernel, candidate, mmaSizes());
    }
}

/// What is rounded to bf16 twice is off by 2^-16.
void addBfloat(Suite &suite) {
  AttentionTest<AttentionDecodeMmaConfig> bfloat = kernel;
  bfloat.tolerance = 3e-5;
  for (int headDim : {48, 64, 128})
    for (int splits : {1, 4}) {
      AttentionDecodeMmaConfig c =
          attentionConfig<AttentionDecodeMmaConfig>(Scalar::BF16, Scalar::BF16, headDim, 3);
      c.queries = 4;
      c.splits = splits;
      c.cluster = splits > 3;
      c.mask = headDim == 48;
      c.causal = headDim != 128;
      attention(suite, bfloat, c, mmaSizes());
    }
}

/// An int8 state.
void addBytes(Suite &suite) {
  AttentionTest<AttentionDecodeMmaConfig> bytes = kernel;
  bytes.tolerance = halfProbabilities;
  for (int headDim : {32, 64, 96, 128})
    for (int pages : {0, 64}) {
      AttentionDecodeMmaConfig c =
          attentionConfig<AttentionDecodeMmaConfig>(Scalar::F16, Scalar::I8, headDim, 3);
      c.pageTokens = pages;
      c.queries = 4;
      c.splits = headDim == 64 ? 1 : 4;
      c.cluster = c.splits > 1;
      attention(suite, bytes, c, pages ? pageSizes() : ringSizes());
    }
}

void addPages(Suite &suite) {
  for (Scalar t : {Scalar::F16, Scalar::BF16}) {
    AttentionTest<AttentionDecodeMmaConfig> test = kernel;
    test.tolerance = t == Scalar::BF16 ? 3e-5 : kernel.tolerance;
    for (int headDim : {16, 64, 128})
      for (int splits : {1, 4}) {
        AttentionDecodeMmaConfig c = attentionConfig<AttentionDecodeMmaConfig>(t, t, headDim, 3);
        c.pageTokens = headDim == 128 ? 128 : 64;
        c.queries = 4;
        c.splits = splits;
        c.cluster = splits > 1;
        attention(suite, test, c, pageSizes());
      }
  }
}

void addGiven(Suite &suite) {
  for (Given given : {Given::Scale, Given::ScaleAndZero}) {
    auto byScale = [&](AttentionDecodeMmaConfig c, const std::vector<AttentionSizes> &sizes) {
      c.quantise = true;
      c.given = given;
      attention(suite, kernel, c, sizes);
    };
    for (int splits : {1, 4}) {
      AttentionDecodeMmaConfig c =
          attentionConfig<AttentionDecodeMmaConfig>(Scalar::F16, Scalar::F16, 64, 3);
      c.queries = 4;
      c.splits = splits;
      c.cluster = splits == 4;
      byScale(c, mmaSizes());
    }
  }
}

void addCases(Suite &suite) {
  addSplits(suite);
  addBfloat(suite);
  addPages(suite);
  addBytes(suite);
  addGiven(suite);
}

const Cases cases(addCases);
} // namespace attention_decode_mma_test

} // namespace gpt2c::kernels
