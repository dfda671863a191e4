// linear_ring against Y = epilogue(norm(X) W^T) in float64.
#include "templates/linear/ring/LinearRing.h"

#include "tests/suite/kernels/FoldedNormCases.h"
#include "tests/suite/kernels/LinearCandidates.h"

namespace gpt2c::kernels {

namespace linear_ring_test {

void ring(Suite &suite, const std::string &group, const std::string &label,
          const LinearRingConfig &c, const Epilogue &epilogue, const std::vector<Shape> &shapes,
          Norm norm = {}) {
  foldedRows<LinearRingConfig>(suite, group, linearRing, label, c, epilogue, shapes, norm);
}

void addBfloatCases(Suite &suite) {
  const Scalar bf16 = Scalar::BF16, f32 = Scalar::F32;
  for (int m : {8, 16, 32}) {
    const std::string group = "linear_ring bf16 " + std::to_string(m);
    auto config = [&](int k, int columns, int chunks) {
      LinearRingConfig c;
      c.x = c.w = c.y = bf16;
      c.rows = m;
      c.k = k;
      c.columns = columns;
      c.chunks = chunks;
      c.slots = 3;
      return c;
    };
    auto shapes = [&](int k) {
      return std::vector<Shape>{{m, 768, k}, {m - 3, 1021, k}, {1, 1, k}, {1, 66, k}};
    };
    auto even = [&](int k) {
      return std::vector<Shape>{{m, 768, k}, {m - 3, 1022, k}, {1, 2, k}, {1, 66, k}};
    };
    for (int k : {96, 704}) {
      LinearRingConfig c = config(k, 38, k == 704 ? 2 : 1);
      ring(suite, group, "bias+residual", c, biasResidual(bf16, bf16), shapes(k));
      ring(suite, group, "bias+gate", c, biasGate(bf16, EpilogueStage::GeluErf), even(k));
      c.y = f32;
      ring(suite, group, "to f32", c, everything(bf16), shapes(k));
      c.y = bf16;
      c.norm = NormKind::Rms;
      c.p = k == 704 ? bf16 : f32;
      ring(suite, group, "rms gate", c, gate(EpilogueStage::Silu), even(k));
      c.norm = NormKind::Layer;
      ring(suite, group, "norm bias+gelu", c, biasGelu(bf16, EpilogueStage::GeluTanh), shapes(k));
      for (double offset : {0.0, 30.0})
        ring(suite, group, "norm alone, offset " + std::to_string(int(offset)), c, bias(bf16),
             shapes(k), {offset, false});
    }
    for (int splits : {2, 4}) {
      LinearRingConfig c = config(3072, 48, 1);
      c.splits = splits;
      ring(suite, group, "bias+last rows splits " + std::to_string(splits), c, biasLastRows(bf16),
           shapes(3072));
    }
  }
}

/// Weights of four bits.
void addNibbleCases(Suite &suite) {
  const Scalar bf16 = Scalar::BF16, f32 = Scalar::F32;
  for (Scalar x : {Scalar::F16, bf16})
    for (int m : {8, 16, 32}) {
      const std::string group =
          "linear_ring i4 w " + std::to_string(m) + (x == bf16 ? " bf16" : "");
      auto config = [&](int k, int wGroup, bool zeros, int warps) {
        LinearRingConfig c;
        c.x = c.y = x;
        c.w = Scalar::I4;
        c.rows = m;
        c.k = k;
        c.columns = 38;
        c.slots = 3;
        c.wGroup = wGroup;
        c.wZeros = zeros;
        c.warps = warps;
        return c;
      };
      auto shapes = [&](int k) {
        return std::vector<Shape>{{m, 768, k}, {m - 3, 1022, k}, {1, 2, k}, {1, 66, k}};
      };
      for (int k : {128, 704, 1024}) {
        const int wGroup = k == 128 ? 128 : k == 704 ? 64 : 256;
        LinearRingConfig c = config(k, wGroup, k != 128, k == 1024 ? 8 : 7);
        c.chunks = k == 1024 ? 2 : 1;
        ring(suite, group, "bias+residual", c, biasResidual(x, x), shapes(k));
        ring(suite, group, "bias+gate", c, biasGate(x, EpilogueStage::GeluErf), shapes(k));
        c.y = f32;
        c.norm = NormKind::Layer;
        ring(suite, group, "norm bias+last rows", c, biasLastRows(x), shapes(k));
        c.norm = NormKind::Rms;
        c.y = x;
        ring(suite, group, "rms gate", c, gate(EpilogueStage::Silu), shapes(k));
      }
      LinearRingConfig c = config(3072, 32, true, 8);
      c.columns = 48;
      c.splits = 4;
      ring(suite, group, "bias splits 4", c, bias(x), shapes(3072));
    }
}

void addCases(Suite &suite) {
  addBfloatCases(suite);
  addNibbleCases(suite);
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  for (int m : {8, 16, 32}) {
    const std::string group = "linear_ring " + std::to_string(m);
    // Blocks with all, one and some of their columns, and several slots of eight.
    auto shapes = [&](int k) {
      return std::vector<Shape>{{m, 768, k}, {m - 3, 1021, k}, {1, 1, k}, {1, 66, k}};
    };
    auto config = [&](int k, int columns, int chunks, int slots) {
      LinearRingConfig c;
      c.rows = m;
      c.k = k;
      c.columns = columns;
      c.chunks = chunks;
      c.slots = slots;
      return c;
    };
    ring(suite, group, "f16 all", config(64, 5, 1, 1), everything(f16), shapes(64));
    for (int k : {96, 704, 1600}) {
      LinearRingConfig c = config(k, 37, k == 704 ? 2 : 1, 3);
      ring(suite, group, "f16 bias+residual", c, biasResidual(f16, f16), shapes(k));
      c.y = f32;
      c.slots = 2;
      ring(suite, group, "f32 bias+last rows", c, biasLastRows(f16), shapes(k));
      c.norm = NormKind::Layer;
      c.y = f16;
      c.p = k == 704 ? f16 : f32;
      ring(suite, group, "f16 norm bias+gelu", c, biasGelu(f16, EpilogueStage::GeluTanh),
           shapes(k));
      for (double offset : {0.0, 30.0})
        ring(suite, group, "f16 norm alone, offset " + std::to_string(int(offset)), c, bias(f16),
             shapes(k), {offset, false});
      c.norm = NormKind::Rms;
      c.y = f32;
      ring(suite, group, "f32 rms", c, plain, shapes(k));
    }
    for (int splits : {1, 2, 4}) {
      LinearRingConfig c = config(3072, splits == 4 ? 49 : 13, splits == 1 ? 3 : 1, 3);
      if (m == 32 && splits == 1)
        continue; // rows are more than registers
      c.splits = splits;
      ring(suite, group, "f16 bias+residual splits " + std::to_string(splits), c,
           biasResidual(f16, f16), shapes(3072));
      c.w = Scalar::I8;
      ring(suite, group, "i8 w bias splits " + std::to_string(splits), c, scaledBias(f16),
           shapes(3072));
      c.w = Scalar::F8E4M3;
      ring(suite, group, "fp8 w bias splits " + std::to_string(splits), c, scaledBias(f16),
           {{m, 768, 3072}});
    }
    auto even = [&](int k) {
      return std::vector<Shape>{{m, 768, k}, {m - 3, 1022, k}, {1, 2, k}, {1, 66, k}};
    };
    for (int k : {96, 704}) {
      LinearRingConfig c = config(k, 38, k == 704 ? 2 : 1, 3);
      ring(suite, group, "f16 bias+gate", c, biasGate(f16, EpilogueStage::GeluErf), even(k));
      c.norm = NormKind::Rms;
      ring(suite, group, "f16 rms gate", c, gate(EpilogueStage::Silu), even(k));
      ring(suite, group, "f16 rms rotate", c, rotate(f16, 64, 32, 7), even(k));
    }
    for (int splits : {2, 4}) {
      LinearRingConfig c = config(3072, 48, 1, 3);
      c.splits = splits;
      ring(suite, group, "f16 gate splits " + std::to_string(splits), c, gate(EpilogueStage::Silu),
           even(3072));
      c.w = Scalar::I8;
      ring(suite, group, "i8 w gate splits " + std::to_string(splits), c,
           scaledGate(EpilogueStage::Silu), even(3072));
    }
    for (int k : {64, 768}) {
      LinearRingConfig c = config(k, 24, k == 64 ? 1 : 2, 4);
      c.w = Scalar::I8;
      c.norm = NormKind::Layer;
      ring(suite, group, "i8 w norm bias+gelu", c, scaledBias(f16, EpilogueStage::GeluTanh),
           shapes(k));
    }
  }
}

/// A smaller product, of two blocks or more and a rest.
void addCandidate(Suite &suite, const LinearCandidateCase &of, const LinearRingConfig &c) {
  ring(suite, of.group("linear_ring"), of.label, c, of.epilogue(),
       {{of.rows, 2 * c.columns + 5, of.k}});
}

const Cases cases(addCases);
const LinearCandidates candidates("linear_ring", addCandidate);
} // namespace linear_ring_test

} // namespace gpt2c::kernels
