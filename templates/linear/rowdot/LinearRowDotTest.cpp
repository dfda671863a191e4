// linear_rowdot against Y = epilogue(norm(X) W^T) in float64.
#include "templates/linear/rowdot/LinearRowDot.h"

#include "tests/suite/kernels/LinearCandidates.h"
#include "tests/suite/kernels/LinearCases.h"

namespace gpt2c::kernels {

namespace linear_rowdot_test {

void rowDot(Suite &suite, const std::string &label, const LinearRowDotConfig &c,
            const Epilogue &epilogue, const std::vector<Shape> &shapes) {
  fewRows(suite, "linear_rowdot", linearRowDot, label, c, {c.x, c.w}, epilogue, shapes);
}

void addInt4Cases(Suite &suite) {
  const Scalar f16 = Scalar::F16, bf16 = Scalar::BF16, f32 = Scalar::F32;
  for (Scalar x : {f16, bf16, f32})
    for (int rows : {1, 8})
      for (auto [k, wGroup] : {std::pair(48, 16), {768, 128}, {1040, 8}, {200, 0}})
        for (bool zeros : {false, true}) {
          LinearRowDotConfig c{x, Scalar::I4, x, f32, rows, 2, k == 768 ? 2 : 1, 4, k};
          c.wGroup = wGroup;
          c.wZeros = zeros;
          if (k == 48)
            c.norm = NormKind::Rms;
          rowDot(suite,
                 "rows " + std::to_string(rows) + " " + dtypeName(x).str() + " x i4 w in " +
                     std::to_string(wGroup) + (zeros ? " zeros" : ""),
                 c, wGroup ? bias(x) : scaledBias(x), {{rows, 301, k}});
        }
}

void addCases(Suite &suite) {
  addInt4Cases(suite);
  const Scalar f16 = Scalar::F16, bf16 = Scalar::BF16, f32 = Scalar::F32;
  for (int rows : {1, 2, 4, 8}) {
    std::string tag = "rows " + std::to_string(rows);
    auto shapes = [&](int k) {
      std::vector<Shape> list = {{rows, 768, k}, {rows, 1021, k}, {rows, 1, k}};
      if (rows > 1)
        list.push_back({rows - 1, 65, k});
      return list;
    };
    rowDot(suite, tag + " f16 bias", {f16, f16, f16, f32, rows, 2, 1, 8, 768}, bias(f16),
           shapes(768));
    rowDot(suite, tag + " f16 ksplit bias+residual", {f16, f16, f16, f32, rows, 2, 4, 8, 3072},
           biasResidual(f16, f16), shapes(3072));
    rowDot(suite, tag + " f16 norm bias+gelu",
           {f16, f16, f16, f16, rows, 2, 1, 8, 768, NormKind::Layer},
           biasGelu(f16, EpilogueStage::GeluTanh), shapes(768));
    rowDot(suite, tag + " f16 ksplit gate", {f16, f16, f16, f32, rows, 2, 4, 8, 3072},
           gate(EpilogueStage::Silu), {{rows, 768, 3072}, {rows, 66, 3072}, {rows, 2, 3072}});
    rowDot(suite, tag + " f16 ksplit rotate", {f16, f16, f16, f32, rows, 2, 4, 8, 3072},
           rotate(f16, 32, 16, 2), {{rows, 768, 3072}, {rows, 66, 3072}, {rows, 2, 3072}});
    rowDot(suite, tag + " f32 bias+rotate", {f32, f32, f32, f32, rows, 4, 1, 4, 768},
           biasRotate(f32, rotate(f32, 6, 2, 9)), {{rows, 768, 768}, {rows, 2, 768}});
    rowDot(suite, tag + " f32 rms bias+gate",
           {f32, f32, f32, f32, rows, 4, 1, 4, 768, NormKind::Rms},
           biasGate(f32, EpilogueStage::GeluErf), {{rows, 768, 768}, {rows, 2, 768}});
    rowDot(suite, tag + " f32 norm plain",
           {f32, f32, f32, f32, rows, 1, 2, 4, 768, NormKind::Layer}, plain, shapes(768));
    rowDot(suite, tag + " f32 bias+residual", {f32, f32, f32, f32, rows, 4, 1, 4, 3072},
           biasResidual(f32, f32), shapes(3072));
    rowDot(suite, tag + " f32 bias+last rows", {f32, f32, f32, f32, rows, 4, 1, 4, 3072},
           biasLastRows(f32), shapes(3072));
    rowDot(suite, tag + " bf16 bias+residual", {bf16, bf16, bf16, f32, rows, 2, 4, 8, 3072},
           biasResidual(bf16, bf16), shapes(3072));
    rowDot(suite, tag + " bf16 rms gate",
           {bf16, bf16, bf16, bf16, rows, 2, 1, 8, 768, NormKind::Rms}, gate(EpilogueStage::Silu),
           {{rows, 768, 768}, {rows, 2, 768}});
    rowDot(suite, tag + " bf16 norm to f32",
           {bf16, bf16, f32, bf16, rows, 2, 1, 8, 770, NormKind::Layer}, plain, shapes(770));
    rowDot(suite, tag + " bf16 x fp8 w", {bf16, Scalar::F8E4M3, bf16, f32, rows, 2, 1, 8, 768},
           scaledBias(bf16), {{rows, 301, 768}});
    rowDot(suite, tag + " bf16 x i8 w", {bf16, Scalar::I8, bf16, f32, rows, 2, 1, 8, 768},
           scaledBias(bf16), shapes(768));
    for (int k : {1, 13, 40, 770, 1604})
      rowDot(suite, tag + " f16 rms", {f16, f16, f32, f32, rows, 3, 1, 4, k, NormKind::Rms}, plain,
             shapes(k));
    rowDot(suite, tag + " f16 x i8 w norm",
           {f16, Scalar::I8, f16, f32, rows, 2, 1, 8, 768, NormKind::Layer},
           scaledBias(f16, EpilogueStage::GeluTanh), shapes(768));
    for (int k : {13, 770, 1600})
      rowDot(suite, tag + " f32 x i8 w", {f32, Scalar::I8, f32, f32, rows, 1, 2, 4, k},
             scaledBias(f32), shapes(k));
    for (int k : {5, 102, 1600})
      rowDot(suite, tag + " f32 x f16 w", {f32, f16, f32, f32, rows, 1, 1, 4, k}, everything(f32),
             shapes(k));
  }
}

void addCandidate(Suite &suite, const LinearCandidateCase &of, const LinearRowDotConfig &c) {
  fewRows(suite, of.group("linear_rowdot"), linearRowDot, of.label, c, {c.x, c.w}, of.epilogue(),
          {{of.rows, 301, of.k}});
}

const Cases cases(addCases);
const LinearCandidates candidates("linear_rowdot", addCandidate);
} // namespace linear_rowdot_test

} // namespace gpt2c::kernels
