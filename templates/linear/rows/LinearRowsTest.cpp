// linear_rows against Y = epilogue(norm(X) W^T) in float64.
#include "templates/linear/rows/LinearRows.h"

#include "tests/suite/kernels/FoldedNormCases.h"
#include "tests/suite/kernels/LinearCandidates.h"

namespace gpt2c::kernels {

namespace linear_rows_test {

void rows(Suite &suite, const std::string &group, const std::string &label,
          const LinearRowsConfig &c, const Epilogue &epilogue, const std::vector<Shape> &shapes,
          Norm norm = {}) {
  foldedRows<LinearRowsConfig>(suite, group, linearRows, label, c, epilogue, shapes, norm);
}

void addBfloatCases(Suite &suite) {
  const Scalar bf16 = Scalar::BF16, f32 = Scalar::F32;
  for (int m : {8, 16, 32, 64}) {
    const std::string group = "linear_rows bf16 " + std::to_string(m);
    auto shapes = [&](int k) {
      return std::vector<Shape>{{m, 768, k}, {m - 3, 1022, k}, {1, 2, k}};
    };
    auto config = [&](int k, NormKind norm = NormKind::None) {
      LinearRowsConfig c;
      c.x = c.w = c.y = bf16;
      c.rows = m;
      c.k = k;
      c.norm = norm;
      c.pairs = true;
      c.groups = m <= 32 ? 2 : 1;
      return c;
    };
    for (int k : {40, 768}) {
      LinearRowsConfig c = config(k);
      rows(suite, group, "bias+residual", c, biasResidual(bf16, bf16), shapes(k));
      rows(suite, group, "gate", c, biasGate(bf16, EpilogueStage::GeluTanh), shapes(k));
      c.y = f32;
      c.pairs = false;
      rows(suite, group, "to f32", c, everything(bf16), {{m, 1021, k}, {1, 1, k}, {m - 1, 65, k}});
      c = config(k, NormKind::Rms);
      c.p = k == 768 ? bf16 : f32;
      rows(suite, group, "rms gate", c, gate(EpilogueStage::Silu), shapes(k));
      c.norm = NormKind::Layer;
      rows(suite, group, "norm bias+gelu", c, biasGelu(bf16, EpilogueStage::GeluTanh), shapes(k));
      for (double offset : {0.0, 30.0})
        rows(suite, group, "norm alone, offset " + std::to_string(int(offset)), c, bias(bf16),
             shapes(k), {offset, false});
    }
    for (int splits : {2, 4}) {
      LinearRowsConfig c = config(3072);
      c.splits = splits;
      rows(suite, group, "bias+last rows splits " + std::to_string(splits), c, biasLastRows(bf16),
           shapes(3072));
    }
  }
}

void addInt4Cases(Suite &suite) {
  const Scalar f16 = Scalar::F16, bf16 = Scalar::BF16;
  for (int m : {8, 16, 32, 64})
    for (Scalar x : {f16, bf16}) {
      const std::string group =
          "linear_rows i4 w " + std::to_string(m) + (x == bf16 ? " bf16" : "");
      auto config = [&](int k, int wGroup, bool zeros) {
        LinearRowsConfig c;
        c.x = c.y = x;
        c.w = Scalar::I4;
        c.rows = m;
        c.k = k;
        c.wGroup = wGroup;
        c.wZeros = zeros;
        return c;
      };
      auto odd = [&](int k) { return std::vector<Shape>{{m, 333, k}, {1, 1, k}}; };
      auto even = [&](int k) { return std::vector<Shape>{{m - 3, 302, k}, {1, 2, k}}; };
      auto label = [](int wGroup, bool zeros, const char *what) {
        return "in groups of " + std::to_string(wGroup) + (zeros ? " with zeros " : " ") + what;
      };
      // Loads of 4, 8 and 16 bytes, warps without weights, an end of K within a chunk.
      for (auto [k, wGroup] : {std::pair(96, 32), {768, 64}, {1024, 128}, {640, 128}, {1152, 384}})
        for (bool zeros : {false, true}) {
          LinearRowsConfig c = config(k, wGroup, zeros);
          c.warps = k == 640 ? 3 : 4;
          rows(suite, group, label(wGroup, zeros, "bias"), c, bias(x), odd(k));
          if (k != 768)
            continue;
          c.pairs = true;
          c.groups = m <= 32 ? 2 : 1;
          c.norm = zeros ? NormKind::Layer : NormKind::Rms;
          rows(suite, group, label(wGroup, zeros, "norm gate"), c, gate(EpilogueStage::Silu),
               even(k));
          c.norm = NormKind::Layer;
          rows(suite, group, label(wGroup, zeros, "norm bias+residual"), c, biasResidual(x, x),
               even(k));
        }
      for (int k : {8, 200, 768}) { // one scale a row
        LinearRowsConfig c = config(k, 0, k == 200);
        rows(suite, group, label(0, k == 200, "bias"), c, scaledBias(x), odd(k));
      }
      LinearRowsConfig c = config(3072, 128, true);
      c.splits = 2;
      c.pairs = true;
      rows(suite, group, label(128, true, "splits 2"), c, biasResidual(x, x), even(3072));
    }
}

void addCases(Suite &suite) {
  addBfloatCases(suite);
  addInt4Cases(suite);
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  for (int m : {8, 16, 32, 64}) {
    const std::string group = "linear_rows " + std::to_string(m);
    auto shapes = [&](int k) {
      return std::vector<Shape>{{m, 768, k}, {m - 3, 1022, k}, {1, 2, k}};
    };
    auto odd = [&](int k) { return std::vector<Shape>{{m, 1021, k}, {1, 1, k}, {m - 1, 65, k}}; };
    auto config = [&](int k) {
      LinearRowsConfig c;
      c.rows = m;
      c.k = k;
      return c;
    };
    for (int k : {8, 40, 768, 776, 3072}) {
      LinearRowsConfig c = config(k);
      rows(suite, group, "f16 bias", c, bias(f16), odd(k));
      c.pairs = true;
      c.groups = m <= 32 ? 2 : 1;
      c.warps = k == 3072 ? 16 / c.groups : 4;
      rows(suite, group, "f16 2 groups bias+residual", c, biasResidual(f16, f16), shapes(k));
      c.y = f32;
      rows(suite, group, "f32 all", c, everything(f16), shapes(k));
    }
    for (int splits : {2, 4, 8}) {
      LinearRowsConfig c = config(3072);
      c.splits = splits;
      c.groups = splits == 4 && m <= 32 ? 2 : 1;
      c.pairs = splits != 2;
      rows(suite, group, "f16 bias+residual splits " + std::to_string(splits), c,
           biasResidual(f16, f16), c.pairs ? shapes(3072) : odd(3072));
      rows(suite, group, "f16 bias+last rows splits " + std::to_string(splits), c,
           biasLastRows(f16), c.pairs ? shapes(3072) : odd(3072));
    }
    for (int k : {104, 768}) {
      LinearRowsConfig c = config(k);
      c.p = k == 768 ? f16 : f32;
      c.norm = NormKind::Layer;
      rows(suite, group, "f16 norm bias+gelu", c, biasGelu(f16, EpilogueStage::GeluTanh), odd(k));
      c.pairs = true;
      c.groups = m <= 32 ? 2 : 1;
      for (double offset : {0.0, 30.0})
        rows(suite, group, "f16 norm alone, offset " + std::to_string(int(offset)), c, bias(f16),
             shapes(k), {offset, false});
      c.norm = NormKind::Rms;
      c.y = f32;
      rows(suite, group, "f32 rms", c, plain, shapes(k));
      c.w = Scalar::I8;
      c.norm = NormKind::Layer;
      c.y = f16;
      rows(suite, group, "i8 w norm bias+gelu", c, scaledBias(f16, EpilogueStage::GeluTanh),
           shapes(k));
      c.w = Scalar::F8E4M3;
      rows(suite, group, "fp8 w norm bias", c, scaledBias(f16), {{m, 768, k}});
    }
    for (int k : {40, 768}) {
      LinearRowsConfig c = config(k);
      c.pairs = true;
      c.groups = m <= 32 ? 2 : 1;
      rows(suite, group, "f16 bias+gate", c, biasGate(f16, EpilogueStage::GeluTanh), shapes(k));
      c.norm = NormKind::Rms;
      rows(suite, group, "f16 rms gate", c, gate(EpilogueStage::Silu), shapes(k));
      rows(suite, group, "f16 rms rotate", c, rotate(f16, 64, 32, 7), shapes(k));
      c.w = Scalar::I8;
      rows(suite, group, "i8 w rms gate", c, scaledGate(EpilogueStage::Silu), shapes(k));
    }
    {
      LinearRowsConfig c = config(3072);
      c.pairs = true;
      c.splits = 2;
      rows(suite, group, "f16 gate splits 2", c, gate(EpilogueStage::Gate), shapes(3072));
    }
    for (int k : {16, 768, 1600}) {
      LinearRowsConfig c = config(k);
      c.w = Scalar::I8;
      rows(suite, group, "i8 w bias", c, scaledBias(f16), odd(k));
      c.w = Scalar::F8E4M3;
      rows(suite, group, "fp8 w bias", c, scaledBias(f16), odd(k));
    }
    for (int wGroup : {32, 128}) {
      LinearRowsConfig c = config(768);
      c.w = Scalar::I8;
      c.wGroup = wGroup;
      c.warps = 6;
      rows(suite, group, "i8 w in groups of " + std::to_string(wGroup), c, bias(f16), odd(768));
      c.norm = NormKind::Layer;
      rows(suite, group, "i8 w in groups of " + std::to_string(wGroup) + " norm", c, bias(f16),
           odd(768));
      c.norm = NormKind::None;
      c.w = Scalar::F8E4M3;
      rows(suite, group, "fp8 w in groups of " + std::to_string(wGroup), c, bias(f16), odd(768));
    }
  }
}

void addCandidate(Suite &suite, const LinearCandidateCase &of, const LinearRowsConfig &c) {
  rows(suite, of.group("linear_rows"), of.label, c, of.epilogue(), {{of.rows, 302, of.k}});
}

const Cases cases(addCases);
const LinearCandidates candidates("linear_rows", addCandidate);
} // namespace linear_rows_test

} // namespace gpt2c::kernels
