// linear_tma against Y = epilogue(X W^T) in float64, with norms folded into the epilogue and
// statistics of Y.
#include "templates/linear/tma/LinearTma.h"

#include "tests/suite/kernels/LinearCandidates.h"
#include "tests/suite/kernels/LinearTmaCases.h"

namespace gpt2c::kernels {

namespace linear_tma_test {

void tma(Suite &suite, const std::string &label, const LinearTmaConfig &c, const Epilogue &epilogue,
         const std::vector<Shape> &shapes) {
  tma(suite, linearTma, "linear_tma", label, c, epilogue, shapes);
}

void addBfloatCases(Suite &suite) {
  const Scalar bf16 = Scalar::BF16, f32 = Scalar::F32;
  const std::vector<Shape> uneven = {{1, 1, 8}, {70, 130, 264}, {200, 384, 1024}};
  const std::vector<Shape> widths = {{1, 192, 64}, {70, 384, 192}, {300, 576, 768}};
  auto config = [&](int bm, int bn, int stages, int splitK, int blocks) {
    LinearTmaConfig c{bf16, bm, bn, stages, splitK, blocks};
    c.w = bf16;
    return c;
  };
  auto rms = [&](LinearTmaConfig c) {
    c.rms = true;
    c.normParts = 2;
    return c;
  };
  auto counted = [](LinearTmaConfig c) {
    c.statistics = true;
    return c;
  };
  LinearTmaConfig single = config(128, 128, 4, 1, 1);
  single.y = f32;
  tma(suite, "128x128 bf16 to f32 bias", single, bias(bf16), uneven);
  tma(suite, "64x48 bf16 bias+residual", config(64, 48, 7, 1, 2), biasResidual(bf16, bf16), uneven);
  tma(suite, "64x96 bf16 split 2 all", config(64, 96, 5, 2, 1), everything(bf16), uneven);
  tma(suite, "128x192 bf16 bias+gelu_tanh", config(128, 192, 5, 1, 1),
      biasGelu(bf16, EpilogueStage::GeluTanhHalf), widths);
  tma(suite, "64x48 bf16 split 3 gate", config(64, 48, 7, 3, 1), gate(EpilogueStage::Silu),
      {{1, 2, 8}, {70, 130, 264}, {200, 384, 1024}});
  tma(suite, "128x96 bf16 rms_norm gate", rms(config(128, 96, 6, 1, 1)), gate(EpilogueStage::Silu),
      widths);
  tma(suite, "64x48 bf16 split 3 rms_norm plain", rms(config(64, 48, 7, 3, 1)), plain, widths);
  tma(suite, "128x96 bf16 bias+residual statistics", counted(config(128, 96, 6, 1, 1)),
      biasResidual(bf16, bf16), widths);
  tma(suite, "128x96 bf16 rms_norm rotate", rms(config(128, 96, 6, 1, 1)), rotate(bf16, 96, 48, 2),
      widths);
  tma(suite, "128x256 bf16 rms_norm gate", rms(config(128, 256, 4, 1, 1)),
      gate(EpilogueStage::Silu), {{70, 512, 192}, {300, 768, 768}});
  tma(suite, "128x200 bf16 bias", config(128, 200, 4, 1, 1), bias(bf16),
      {{1, 800, 64}, {70, 1600, 192}});
  LinearTmaConfig few = config(64, 64, 6, 2, 1);
  few.xRows = 32;
  tma(suite, "64x64 bf16 split 2 bias few rows", few, bias(bf16), {{1, 1, 136}, {32, 130, 264}});
  tma(suite, "64x64 bf16 bias statistics", counted(config(64, 64, 6, 1, 2)), bias(bf16), widths);
}

void addCases(Suite &suite) {
  addBfloatCases(suite);
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  // The kernels are made for n and k.
  const std::vector<Shape> uneven = {{1, 1, 8}, {129, 7, 136}, {70, 130, 264}, {200, 384, 1024}};
  auto normed = [](LinearTmaConfig c) {
    c.normParts = 2;
    return c;
  };
  auto rms = [&](LinearTmaConfig c) {
    c.rms = true;
    return normed(c);
  };
  auto counted = [](LinearTmaConfig c) {
    c.statistics = true;
    return c;
  };
  const std::vector<Shape> widths = {{1, 192, 64}, {70, 384, 192}, {300, 576, 768}};
  tma(suite, "64x32 f16 bias", {f16, 64, 32, 8, 1, 2}, bias(f16), uneven);
  tma(suite, "64x48 f16 bias+residual", {f16, 64, 48, 7, 1, 2}, biasResidual(f16, f16), uneven);
  tma(suite, "64x48 f16 bias+last rows", {f16, 64, 48, 7, 1, 2}, biasLastRows(f16), uneven);
  tma(suite, "64x48 f16 split 3 bias+residual", {f16, 64, 48, 7, 3, 1}, biasResidual(f16, f16),
      uneven);
  tma(suite, "64x96 f16 split 2 all", {f16, 64, 96, 5, 2, 1}, everything(f16), uneven);
  tma(suite, "64x64 f32 split 4 plain", {f32, 64, 64, 6, 4, 1}, plain, uneven);
  tma(suite, "64x144 f16 bias", {f16, 64, 144, 4, 1, 1}, bias(f16), uneven);
  tma(suite, "128x96 f16 bias+gelu_tanh", {f16, 128, 96, 6, 1, 1},
      biasGelu(f16, EpilogueStage::GeluTanh), uneven);
  tma(suite, "128x192 f16 bias+residual", {f16, 128, 192, 5, 1, 1}, biasResidual(f16, f16), uneven);
  tma(suite, "128x128 f32 2 stages bias", {f32, 128, 128, 2, 1, 1}, bias(f32), uneven);
  const std::vector<Shape> pairs = {{1, 2, 8}, {70, 130, 264}, {200, 384, 1024}};
  tma(suite, "64x48 f16 bias+gate", {f16, 64, 48, 7, 1, 2}, biasGate(f16, EpilogueStage::GeluTanh),
      pairs);
  tma(suite, "64x48 f16 split 3 gate", {f16, 64, 48, 7, 3, 1}, gate(EpilogueStage::Silu), pairs);
  tma(suite, "128x96 f16 rms_norm gate", rms({f16, 128, 96, 6, 1, 1}), gate(EpilogueStage::Silu),
      widths);
  // Heads of 64, 128, 80 in part, and of pairs that quads of columns do not divide.
  const auto first = EpilogueRotation::OfFirst, sequence = EpilogueRotation::OfSequence;
  tma(suite, "64x64 f16 rms_norm rotate", rms({f16, 64, 64, 6, 1, 2}),
      rotate(f16, 64, 32, 4, first), widths);
  tma(suite, "128x192 f16 bias+rotate", {f16, 128, 192, 5, 1, 1},
      biasRotate(f16, rotate(f16, 128, 64, 2, sequence)), widths);
  tma(suite, "64x96 f16 split 2 rotate", {f16, 64, 96, 5, 2, 1}, rotate(f16, 80, 20, 3, first),
      widths);
  tma(suite, "64x48 f16 bias+rotate", {f16, 64, 48, 7, 1, 2},
      biasRotate(f16, rotate(f16, 10, 3, 9, first, f16)), pairs);
  const std::vector<Shape> wide = {{1, 800, 64}, {70, 1600, 192}, {300, 3200, 768}};
  tma(suite, "128x200 f16 norm bias+gelu_tanh", normed({f16, 128, 200, 4, 1, 1}),
      biasGelu(f16, EpilogueStage::GeluTanhHalf), wide);
  tma(suite, "128x160 f16 norm bias", normed({f16, 128, 160, 5, 1, 1}), bias(f16), wide);
  tma(suite, "128x200 f16 bias+residual", {f16, 128, 200, 4, 1, 1}, biasResidual(f16, f16), uneven);
  tma(suite, "128x256 f16 rms_norm gate", rms({f16, 128, 256, 4, 1, 1}), gate(EpilogueStage::Silu),
      {{70, 512, 192}, {300, 768, 768}});
  tma(suite, "128x256 f16 split 2 bias+residual", {f16, 128, 256, 3, 2, 1}, biasResidual(f16, f16),
      uneven);
  tma(suite, "64x48 f16 norm bias", normed({f16, 64, 48, 7, 1, 2}), bias(f16), widths);
  tma(suite, "64x48 f16 split 3 norm bias", normed({f16, 64, 48, 7, 3, 1}), bias(f16), widths);
  tma(suite, "128x96 f16 norm bias+gelu_tanh", normed({f16, 128, 96, 6, 1, 1}),
      biasGelu(f16, EpilogueStage::GeluTanhHalf), widths);
  tma(suite, "64x48 f16 split 3 rms_norm plain", rms({f16, 64, 48, 7, 3, 1}), plain, widths);
  tma(suite, "128x96 f16 rms_norm bias", rms({f16, 128, 96, 6, 1, 1}), bias(f16), widths);
  tma(suite, "64x48 f16 bias+residual statistics", counted({f16, 64, 48, 7, 1, 2}),
      biasResidual(f16, f16), widths);
  tma(suite, "64x48 f16 split 3 bias+residual statistics", counted({f16, 64, 48, 7, 3, 1}),
      biasResidual(f16, f16), widths);
  tma(suite, "128x96 f16 split 2 bias+residual statistics", counted({f16, 128, 96, 6, 2, 1}),
      biasResidual(f16, f16), widths);
  tma(suite, "128x192 f16 bias+residual statistics", counted({f16, 128, 192, 5, 1, 1}),
      biasResidual(f16, f16), widths);
}

void addCandidate(Suite &suite, const LinearCandidateCase &of, const LinearTmaConfig &c) {
  tma(suite, of.label, c, of.epilogue(), {tmaShape(of, c)});
}

const Cases cases(addCases);
const LinearCandidates candidates("linear_tma", addCandidate);
} // namespace linear_tma_test

} // namespace gpt2c::kernels
