// linear_tma_persistent against Y = epilogue(X W^T) in float64, with norms out of the sums and
// statistics of Y.
#include "templates/linear/tma_persistent/LinearTmaPersistent.h"

#include "tests/suite/kernels/LinearCandidates.h"
#include "tests/suite/kernels/LinearTmaCases.h"

namespace gpt2c::kernels {

namespace linear_tma_persistent_test {

void tma(Suite &suite, const std::string &label, const LinearTmaConfig &c, const Epilogue &epilogue,
         const std::vector<Shape> &shapes) {
  tma(suite, linearTmaPersistent, "linear_tma", label, c, epilogue, shapes);
}

void addBfloatCases(Suite &suite) {
  const Scalar bf16 = Scalar::BF16, f32 = Scalar::F32;
  const std::vector<Shape> several = {{1, 1, 8}, {129, 7, 136}, {500, 1000, 200}, {1024, 768, 768}};
  const std::vector<Shape> widths = {{1, 192, 64}, {70, 384, 192}, {300, 576, 768}};
  auto config = [&](int bn, int stages) {
    LinearTmaConfig c{bf16, 128, bn, stages, 1, 1, true};
    c.w = bf16;
    return c;
  };
  LinearTmaConfig single = config(128, 2);
  single.y = f32;
  tma(suite, "persistent 128 bf16 to f32 all", single, everything(bf16), several);
  tma(suite, "persistent 96 bf16 bias+residual", config(96, 7), biasResidual(bf16, bf16), several);
  tma(suite, "persistent 128 bf16 bias+residual", config(128, 6), biasResidual(bf16, bf16),
      several);
  LinearTmaConfig counted = config(192, 5);
  counted.statistics = true;
  tma(suite, "persistent 192 bf16 bias+residual statistics", counted, biasResidual(bf16, bf16),
      widths);
  tma(suite, "persistent 144 bf16 bias+gelu_tanh", config(144, 6),
      biasGelu(bf16, EpilogueStage::GeluTanhHalf), several);
  LinearTmaConfig rms = config(192, 5);
  rms.normParts = 2;
  rms.rms = true;
  tma(suite, "persistent 192 bf16 rms_norm gate", rms, gate(EpilogueStage::Silu), widths);
  tma(suite, "persistent 192 bf16 rms_norm plain", rms, plain, widths);
}

void addCases(Suite &suite) {
  addBfloatCases(suite);
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  const std::vector<Shape> several = {{1, 1, 8}, {129, 7, 136}, {500, 1000, 200}, {1024, 768, 768}};
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
  tma(suite, "persistent 96 f16 bias+residual", {f16, 128, 96, 7, 1, 1, true},
      biasResidual(f16, f16), several);
  tma(suite, "persistent 128 f16 bias+gelu_tanh", {f16, 128, 128, 6, 1, 1, true},
      biasGelu(f16, EpilogueStage::GeluTanhHalf), several);
  tma(suite, "persistent 144 f16 bias", {f16, 128, 144, 6, 1, 1, true}, bias(f16), several);
  tma(suite, "persistent 128 f32 all 2 stages", {f32, 128, 128, 2, 1, 1, true}, everything(f16),
      several);
  tma(suite, "persistent 192 f16 bias+residual", {f16, 128, 192, 5, 1, 1, true},
      biasResidual(f16, f16), several);
  tma(suite, "persistent 128 f16 gate", {f16, 128, 128, 6, 1, 1, true}, gate(EpilogueStage::Silu),
      widths);
  tma(suite, "persistent 192 f16 rms_norm gate", rms({f16, 128, 192, 5, 1, 1, true}),
      gate(EpilogueStage::Silu), widths);
  tma(suite, "persistent 192 f16 norm bias", normed({f16, 128, 192, 5, 1, 1, true}), bias(f16),
      widths);
  tma(suite, "persistent 144 f16 norm bias", normed({f16, 128, 144, 6, 1, 1, true}), bias(f16),
      widths);
  tma(suite, "persistent 128 f16 norm bias+gelu_tanh", normed({f16, 128, 128, 6, 1, 1, true}),
      biasGelu(f16, EpilogueStage::GeluTanhHalf), widths);
  tma(suite, "persistent 192 f16 rms_norm plain", rms({f16, 128, 192, 5, 1, 1, true}), plain,
      widths);
  tma(suite, "persistent 192 f16 bias+residual statistics", counted({f16, 128, 192, 5, 1, 1, true}),
      biasResidual(f16, f16), widths);
  tma(suite, "persistent 128 f16 bias+residual statistics", counted({f16, 128, 128, 6, 1, 1, true}),
      biasResidual(f16, f16), {{1, 128, 64}, {500, 768, 768}});
  tma(suite, "persistent 96 f16 bias+residual statistics", counted({f16, 128, 96, 7, 1, 1, true}),
      biasResidual(f16, f16), widths);
}

void addCandidate(Suite &suite, const LinearCandidateCase &of, const LinearTmaConfig &c) {
  tma(suite, of.label, c, of.epilogue(), {tmaShape(of, c)});
}

const Cases cases(addCases);
const LinearCandidates candidates("linear_tma_persistent", addCandidate);
} // namespace linear_tma_persistent_test

} // namespace gpt2c::kernels
