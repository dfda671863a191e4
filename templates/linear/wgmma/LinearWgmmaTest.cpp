// linear_wgmma against Y = epilogue(X W^T) in float64.
#include "templates/linear/wgmma/LinearWgmma.h"

#include "tests/suite/kernels/LinearCandidates.h"
#include "tests/suite/kernels/LinearCases.h"

namespace gpt2c::kernels {

namespace linear_wgmma_test {

void wgmma(Suite &suite, const std::string &label, const LinearWgmmaConfig &c,
           const Epilogue &epilogue, const std::vector<Shape> &shapes) {
  tiled(suite, "linear_wgmma", linearWgmma, label, c, {c.x, c.x, c.y}, epilogue, shapes);
}

void addCases(Suite &suite) {
  const Scalar f16 = Scalar::F16, bf16 = Scalar::BF16, f32 = Scalar::F32;
  const std::vector<Shape> aligned = alignedShapes();
  wgmma(suite, "128x128 f16 bias+gelu_tanh", {f16, 128, 128, 3, 1},
        biasGelu(f16, EpilogueStage::GeluTanh), aligned);
  wgmma(suite, "128x192 f16 bias+residual", {f16, 128, 192, 3, 1}, biasResidual(f16, f16), aligned);
  wgmma(suite, "64x128 f16 bias+gelu_tanh", {f16, 64, 128, 4, 1},
        biasGelu(f16, EpilogueStage::GeluTanh), aligned);
  wgmma(suite, "128x64 f32 all", {f32, 128, 64, 3, 1}, everything(f16), aligned);
  wgmma(suite, "64x64 f32 plain", {f32, 64, 64, 6, 1}, plain, aligned);
  wgmma(suite, "64x64 f16 bias+residual", {f16, 64, 64, 6, 1}, biasResidual(f16, f16), aligned);
  wgmma(suite, "64x64 f16 split 2 bias+residual", {f16, 64, 64, 6, 2}, biasResidual(f16, f16),
        aligned);
  wgmma(suite, "64x64 f16 split 2 gate", {f16, 64, 64, 6, 2}, gate(EpilogueStage::Silu),
        {{1, 2, 8}, {70, 130, 264}, {200, 384, 1024}});
  wgmma(suite, "128x192 bf16 bias+residual", {bf16, 128, 192, 3, 1, bf16}, biasResidual(bf16, bf16),
        aligned);
  wgmma(suite, "128x64 bf16 to f32 all", {f32, 128, 64, 3, 1, bf16}, everything(bf16), aligned);
  wgmma(suite, "64x64 bf16 split 2 gate", {bf16, 64, 64, 6, 2, bf16}, gate(EpilogueStage::Silu),
        {{1, 2, 8}, {70, 130, 264}, {200, 384, 1024}});
  wgmma(suite, "64x64 f16 split 2 rotate", {f16, 64, 64, 6, 2}, rotate(f16, 64, 32, 2),
        {{1, 2, 8}, {70, 130, 264}, {200, 384, 1024}});
  wgmma(suite, "64x64 f16 split 4 bias", {f16, 64, 64, 6, 4}, bias(f16), aligned);
}

void addCandidate(Suite &suite, const LinearCandidateCase &of, const LinearWgmmaConfig &c) {
  wgmma(suite, of.label, c, of.epilogue(), {{of.rows, 301, of.k}});
}

const Cases cases(addCases);
const LinearCandidates candidates("linear_wgmma", addCandidate);
} // namespace linear_wgmma_test

} // namespace gpt2c::kernels
