// linear_tf32_wgmma against Y = epilogue(X W^T) in float64.
#include "templates/linear/tf32_wgmma/LinearTf32Wgmma.h"

#include "tests/suite/kernels/LinearCandidates.h"
#include "tests/suite/kernels/LinearCases.h"

namespace gpt2c::kernels {

namespace linear_tf32_wgmma_test {

void tf32(Suite &suite, const std::string &group, const std::string &label,
          const LinearTf32WgmmaConfig &c, const Epilogue &epilogue,
          const std::vector<Shape> &shapes) {
  int id =
      suite.kernel(group, [&](llvm::StringRef name) { return linearTf32Wgmma(name, c, epilogue); });
  for (Shape s : shapes)
    suite.test(
        caseOf(group, label, s),
        [=](Run &run) {
          Problem p(run, s, Scalar::F32, Scalar::F32, c.y, epilogue);
          // A float is two halves to a tensor map.
          check(run, id, p, gridFor(c, s), p.mapped(c.bm, c.bn, 2 * s.k, 2 * s.k), c.y);
        },
        true);
}

void addCases(Suite &suite) {
  const Scalar f32 = Scalar::F32;
  const std::vector<Shape> shapes = tf32Shapes();
  tf32(suite, "linear_tf32 wgmma", "128x96 bias+gelu_tanh", {f32, 128, 96, 5, 1},
       biasGelu(f32, EpilogueStage::GeluTanh), shapes);
  tf32(suite, "linear_tf32 wgmma", "128x72 bias", {f32, 128, 72, 2, 1}, bias(f32), shapes);
  tf32(suite, "linear_tf32 wgmma", "64x64 split 2 bias+residual", {f32, 64, 64, 6, 2},
       biasResidual(f32, f32), shapes);
  tf32(suite, "linear_tf32 wgmma", "128x96 gate", {f32, 128, 96, 5, 1}, gate(EpilogueStage::Silu),
       {{1, 4, 4}, {65, 132, 72}, {300, 768, 768}});
  tf32(suite, "linear_tf32 wgmma", "64x64 split 2 gate", {f32, 64, 64, 6, 2},
       gate(EpilogueStage::Silu), {{65, 132, 72}, {300, 768, 768}});
  tf32(suite, "linear_tf32 wgmma", "128x96 rotate", {f32, 128, 96, 5, 1},
       rotate(f32, 80, 20, 3, EpilogueRotation::OfFirst), {{65, 132, 72}, {300, 768, 768}});
  tf32(suite, "linear_tf32 wgmma", "128x48 split 3 all", {f32, 128, 48, 3, 3}, everything(f32),
       shapes);
}

void addCandidate(Suite &suite, const LinearCandidateCase &of, const LinearTf32WgmmaConfig &c) {
  tf32(suite, of.group("linear_tf32") + " wgmma", of.label, c, of.epilogue(),
       {{of.rows, 301, of.k}});
}

const Cases cases(addCases);
const LinearCandidates candidates("linear_tf32_wgmma", addCandidate);
} // namespace linear_tf32_wgmma_test

} // namespace gpt2c::kernels
