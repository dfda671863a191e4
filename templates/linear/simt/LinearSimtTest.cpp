// linear_simt against Y = epilogue(X W^T) in float64.
#include "templates/linear/simt/LinearSimt.h"

#include "tests/suite/kernels/LinearCandidates.h"
#include "tests/suite/kernels/LinearCases.h"

namespace gpt2c::kernels {

namespace linear_simt_test {

void simt(Suite &suite, const std::string &label, const LinearSimtConfig &c,
          const Epilogue &epilogue, const std::vector<Shape> &shapes) {
  tiled(suite, "linear_simt", linearSimt, label, c, {c.x, c.w, c.y}, epilogue, shapes);
}

void addCases(Suite &suite) {
  const Scalar f16 = Scalar::F16, bf16 = Scalar::BF16, f32 = Scalar::F32;
  const std::vector<Shape> small = smallShapes(), large = largeShapes();
  simt(suite, "32x64 f32 split 8 bias+residual", {f32, f32, f32, 32, 64, 16, 4, 4, 8},
       biasResidual(f32, f32), large);
  simt(suite, "64x64 8x4 f32 split 4 bias+gelu_tanh", {f32, f32, f32, 64, 64, 16, 8, 4, 4},
       biasGelu(f32, EpilogueStage::GeluTanh), large);
  simt(suite, "128x64x16 8x8 f32 bias", {f32, f32, f32, 128, 64, 16, 8, 8, 1}, bias(f32), large);
  simt(suite, "128x128 f32 bias", {f32, f32, f32, 128, 128, 8, 8, 8, 1}, bias(f32), large);
  simt(suite, "64x64 f32 bias+residual", {f32, f32, f32, 64, 64, 16, 4, 4, 1},
       biasResidual(f32, f32), large);
  simt(suite, "64x64 f32 split 3 bias+gelu_tanh", {f32, f32, f32, 64, 64, 8, 8, 4, 3},
       biasGelu(f32, EpilogueStage::GeluTanh), small);
  simt(suite, "64x64 f32 split 3 bias+relu_squared", {f32, f32, f32, 64, 64, 8, 8, 4, 3},
       biasGelu(f32, EpilogueStage::ReluSquared), small);
  simt(suite, "128x64 f32 all", {f32, f32, f32, 128, 64, 8, 8, 8, 1}, everything(f32), small);
  simt(suite, "64x64 f32 split 3 bias+gate", {f32, f32, f32, 64, 64, 8, 8, 4, 3},
       biasGate(f32, EpilogueStage::GeluErf), {{1, 4, 1}, {65, 132, 72}, {300, 768, 768}});
  simt(suite, "64x64 f32 split 3 bias+rotate", {f32, f32, f32, 64, 64, 8, 8, 4, 3},
       biasRotate(f32, rotate(f32, 12, 5, 20, EpilogueRotation::OfSequence)),
       {{1, 4, 1}, {65, 132, 72}, {300, 768, 768}});
  simt(suite, "64x64 f16 in f32 out plain", {f16, f16, f32, 64, 64, 8, 4, 4, 1}, plain, small);
  simt(suite, "64x64 f32 x i8 w split 2", {f32, Scalar::I8, f32, 64, 64, 16, 4, 4, 2},
       scaledBias(f32), large);
  simt(suite, "64x64 f16 bias+gelu_erf", {f16, f16, f16, 64, 64, 8, 4, 4, 1},
       biasGelu(f16, EpilogueStage::GeluErf), small);
  simt(suite, "64x64 bf16 bias+gelu_erf", {bf16, bf16, bf16, 64, 64, 8, 4, 4, 1},
       biasGelu(bf16, EpilogueStage::GeluErf), small);
}

void addCandidate(Suite &suite, const LinearCandidateCase &of, const LinearSimtConfig &c) {
  simt(suite, of.label, c, of.epilogue(), {{of.rows, 301, of.k}});
}

const Cases cases(addCases);
const LinearCandidates candidates("linear_simt", addCandidate);
} // namespace linear_simt_test

} // namespace gpt2c::kernels
