// linear_mma against Y = epilogue(X W^T) in float64; with int8 operands sums equal an int32
// reference bit for bit.
#include "templates/linear/mma/LinearMma.h"

#include "tests/suite/kernels/Int8Cases.h"
#include "tests/suite/kernels/LinearCandidates.h"

namespace gpt2c::kernels {

namespace linear_mma_test {

void mma(Suite &suite, const std::string &label, const LinearMmaConfig &c, const Epilogue &epilogue,
         const std::vector<Shape> &shapes) {
  tiled(suite, "linear_mma", linearMma, label, c, {c.x, c.x, c.y}, epilogue, shapes);
}
void int8Mma(Suite &suite, const std::string &label, LinearMmaConfig c, const Epilogue &epilogue,
             const std::vector<Shape> &shapes) {
  c.x = Scalar::I8;
  int8Product(suite, "linear_mma_int8", linearMma, label, c, epilogue, shapes);
}

void addHalfCases(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  const std::vector<Shape> small = smallShapes(), large = largeShapes();
  mma(suite, "128x128x32 f16 bias", {f16, 128, 128, 32, 2, 4, 4, 1}, bias(f16), large);
  mma(suite, "128x128x64 f16 bias+gelu_tanh", {f16, 128, 128, 64, 2, 2, 3, 1},
      biasGelu(f16, EpilogueStage::GeluTanh), large);
  mma(suite, "128x64x32 f32 bias f32", {f32, 128, 64, 32, 4, 1, 4, 1}, bias(f32), small);
  mma(suite, "64x64x32 f16 bias+residual", {f16, 64, 64, 32, 2, 2, 4, 1}, biasResidual(f16, f16),
      large);
  mma(suite, "64x64x64 f16 bias+residual f32", {f16, 64, 64, 64, 2, 2, 4, 1},
      biasResidual(f32, f32), small);
  mma(suite, "64x64x64 f32 split 4 bias+gelu_erf", {f32, 64, 64, 64, 2, 2, 3, 4},
      biasGelu(f16, EpilogueStage::GeluErf), large);
  mma(suite, "64x64x64 f16 split 4 gate", {f16, 64, 64, 64, 2, 2, 3, 4}, gate(EpilogueStage::Silu),
      {{1, 2, 1}, {65, 130, 36}, {300, 768, 768}});
  const std::vector<Shape> pairs = {{1, 2, 1}, {65, 130, 36}, {300, 768, 768}};
  mma(suite, "64x64x64 f16 split 4 rotate", {f16, 64, 64, 64, 2, 2, 3, 4}, rotate(f16, 64, 32, 2),
      pairs);
  mma(suite, "64x128x32 f16 bias+rotate", {f16, 64, 128, 32, 2, 4, 4, 1},
      biasRotate(f16, rotate(f16, 10, 3, 7, EpilogueRotation::OfFirst)), pairs);
  mma(suite, "32x64x64 f16 all", {f16, 32, 64, 64, 1, 4, 3, 1}, everything(f16), small);
  mma(suite, "16x64x64 f32 plain", {f32, 16, 64, 64, 1, 4, 4, 1}, plain, small);
}

void addBfloatCases(Suite &suite) {
  const Scalar bf16 = Scalar::BF16, f32 = Scalar::F32;
  const std::vector<Shape> small = smallShapes(), large = largeShapes();
  mma(suite, "64x128x32 bf16 bias+residual", {bf16, 64, 128, 32, 2, 4, 4, 1, bf16},
      biasResidual(bf16, bf16), large);
  mma(suite, "64x128x32 bf16 to f32", {f32, 64, 128, 32, 2, 4, 4, 1, bf16}, bias(bf16), small);
  mma(suite, "64x64x64 bf16 split 4 bias+gelu_tanh", {bf16, 64, 64, 64, 2, 2, 3, 4, bf16},
      biasGelu(bf16, EpilogueStage::GeluTanh), large);
  mma(suite, "64x128x32 bf16 gate", {bf16, 64, 128, 32, 2, 4, 4, 1, bf16},
      gate(EpilogueStage::Silu), {{1, 2, 1}, {65, 130, 36}, {300, 768, 768}});
  mma(suite, "16x64x64 bf16 all", {bf16, 16, 64, 64, 1, 4, 4, 1, bf16}, everything(bf16), small);
}

void addInt8Cases(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32, i8 = Scalar::I8;
  const Epilogue gelu = dequantisedGelu(), residual = scaledResidual();
  for (Given given : {Given::Scale, Given::ScaleAndZero})
    givenProduct<LinearMmaConfig>(suite, "linear_mma_int8_given", linearMma,
                                  "64x64x64 bias+gelu_tanh", {i8, 64, 64, 64, 2, 2, 4, 1, i8}, gelu,
                                  given, {{1, 1, 1}, {33, 7, 13}, {129, 130, 784}, {70, 96, 203}});
  std::vector<Shape> odd = int8Shapes();
  odd.insert(odd.end(), {{1, 1, 1}, {33, 7, 13}, {3, 129, 770}});
  int8Mma(suite, "64x64x64 sums", {f32, 64, 64, 64, 2, 2, 4}, plain, odd);
  int8Mma(suite, "64x128x64 split 3 bias+gelu_tanh", {f16, 64, 128, 64, 2, 4, 3, 3}, gelu, odd);
  int8Mma(suite, "64x64x64 x in 64 bias+residual", {f16, 64, 64, 64, 2, 2, 3, 1, i8, 64}, residual,
          groupsOf64());
  int8Mma(suite, "64x128x64 y in 128 bias+gelu_tanh", {i8, 64, 128, 64, 4, 1, 3, 1, i8, 0, 128},
          gelu, wholeGroups());
}

void addCases(Suite &suite) {
  addHalfCases(suite);
  addBfloatCases(suite);
  addInt8Cases(suite);
}

void addCandidate(Suite &suite, const LinearCandidateCase &of, const LinearMmaConfig &c) {
  mma(suite, of.label, c, of.epilogue(), {{of.rows, 301, of.k}});
}

const Cases cases(addCases);
const LinearCandidates candidates("linear_mma", addCandidate);
} // namespace linear_mma_test

} // namespace gpt2c::kernels
