// linear_tma_persistent against Y = epilogue(X W^T) in float64, with norms folded into the epilogue
// and statistics of Y.
#include "templates/linear/tma_persistent/LinearTmaPersistent.h"

#include "tests/suite/kernels/LinearCandidates.h"
#include "tests/suite/kernels/LinearTmaCases.h"

namespace gpt2c::kernels {

namespace linear_tma_persistent_test {

void tma(Suite &suite, const std::string &label, const LinearTmaPersistentConfig &c,
         const Epilogue &epilogue, const std::vector<Shape> &shapes) {
  const MakeKernel<LinearTmaPersistentConfig> make =
      [](llvm::StringRef name, const LinearTmaPersistentConfig &of, const Epilogue &behind) {
        return linearTmaPersistent(name, of, behind);
      };
  tma(suite, make, "linear_tma", label, c, epilogue, shapes);
}

void addBfloatCases(Suite &suite) {
  const Scalar bf16 = Scalar::BF16, f32 = Scalar::F32;
  const std::vector<Shape> several = {{1, 1, 8}, {129, 7, 136}, {500, 1000, 200}, {1024, 768, 768}};
  const std::vector<Shape> widths = {{1, 192, 64}, {70, 384, 192}, {300, 576, 768}};
  auto config = [&](int bn, int stages) {
    LinearTmaPersistentConfig c{bf16, bn, stages};
    c.w = bf16;
    return c;
  };
  LinearTmaPersistentConfig single = config(128, 2);
  single.y = f32;
  tma(suite, "persistent 128 bf16 to f32 all", single, everything(bf16), several);
  tma(suite, "persistent 96 bf16 bias+residual", config(96, 7), biasResidual(bf16, bf16), several);
  tma(suite, "persistent 128 bf16 bias+residual", config(128, 6), biasResidual(bf16, bf16),
      several);
  LinearTmaPersistentConfig counted = config(192, 5);
  counted.statistics = true;
  tma(suite, "persistent 192 bf16 bias+residual statistics", counted, biasResidual(bf16, bf16),
      widths);
  tma(suite, "persistent 144 bf16 bias+gelu_tanh", config(144, 6),
      biasGelu(bf16, EpilogueStage::GeluTanhHalf), several);
  LinearTmaPersistentConfig rms = config(192, 5);
  rms.normParts = 2;
  rms.rms = true;
  tma(suite, "persistent 192 bf16 rms_norm gate", rms, gate(EpilogueStage::Silu), widths);
  tma(suite, "persistent 192 bf16 rms_norm plain", rms, plain, widths);
}

/// Both warpgroups have 64 rows of each tile.
void addCooperative(Suite &suite, Scalar type) {
  const std::string name = type == Scalar::BF16 ? "bf16 " : "f16 ";
  const auto gelu = EpilogueStage::GeluTanhHalf;
  // Widths that tiles divide, and multiples of 64 that they do not.
  const std::vector<Shape> whole = {{1, 800, 64}, {300, 400, 192}, {1000, 1600, 264}};
  const std::vector<Shape> lines = {{70, 320, 72}, {300, 1600, 192}, {129, 512, 768}};
  const std::vector<Shape> several = {{1, 1, 8}, {129, 7, 136}, {500, 1000, 200}, {1024, 768, 768}};
  auto config = [&](int bn, int stages) {
    LinearTmaPersistentConfig c{type, bn, stages};
    c.w = type;
    c.cooperative = true;
    return c;
  };
  auto normed = [](LinearTmaPersistentConfig c, bool rms) {
    c.normParts = 2;
    c.rms = rms;
    return c;
  };
  auto counted = [](LinearTmaPersistentConfig c) {
    c.statistics = true;
    return c;
  };
  auto add = [&](const std::string &label, const LinearTmaPersistentConfig &c,
                 const Epilogue &epilogue, const std::vector<Shape> &shapes) {
    tma(suite, "cooperative " + name + label, c, epilogue, shapes);
  };
  add("256 bias", config(256, 4), bias(type), several);
  LinearTmaPersistentConfig groups = config(256, 4);
  groups.rasterGroup = 3; // of 8 rows of tiles
  add("256 groups bias", groups, bias(type),
      {{129, 512, 136}, {1000, 1280, 200}, {1024, 768, 768}});
  add("208 bias+gelu_tanh", config(208, 4), biasGelu(type, gelu), several);
  add("200 bias+gelu_tanh", config(200, 4), biasGelu(type, gelu), whole);
  add("200 norm bias+gelu_tanh", normed(config(200, 4), false), biasGelu(type, gelu), whole);
  add("160 norm bias", normed(config(160, 5), false), bias(type), whole);
  add("256 norm bias", normed(config(256, 4), false), bias(type), lines);
  add("256 rms_norm gate", normed(config(256, 4), true), gate(EpilogueStage::Silu), lines);
  add("192 rms_norm gate", normed(config(192, 4), true), gate(EpilogueStage::Silu), lines);
  add("256 rms_norm rotate", normed(config(256, 4), true), rotate(type, 128, 64, 3), lines);
  add("256 rms_norm plain", normed(config(256, 4), true), plain, lines);
  add("256 bias+residual", config(256, 4), biasResidual(type, type), lines);
  add("256 bias+residual statistics", counted(config(256, 4)), biasResidual(type, type), lines);
  add("192 bias+residual statistics", counted(config(192, 4)), biasResidual(type, type), lines);
  add("200 bias+residual statistics", counted(config(200, 4)), biasResidual(type, type), whole);
}

void addCases(Suite &suite) {
  addBfloatCases(suite);
  addCooperative(suite, Scalar::F16);
  addCooperative(suite, Scalar::BF16);
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  const std::vector<Shape> several = {{1, 1, 8}, {129, 7, 136}, {500, 1000, 200}, {1024, 768, 768}};
  auto normed = [](LinearTmaPersistentConfig c) {
    c.normParts = 2;
    return c;
  };
  auto rms = [&](LinearTmaPersistentConfig c) {
    c.rms = true;
    return normed(c);
  };
  auto counted = [](LinearTmaPersistentConfig c) {
    c.statistics = true;
    return c;
  };
  const std::vector<Shape> widths = {{1, 192, 64}, {70, 384, 192}, {300, 576, 768}};
  tma(suite, "persistent 96 f16 bias+residual", {f16, 96, 7}, biasResidual(f16, f16), several);
  tma(suite, "persistent 128 f16 bias+gelu_tanh", {f16, 128, 6},
      biasGelu(f16, EpilogueStage::GeluTanhHalf), several);
  tma(suite, "persistent 144 f16 bias", {f16, 144, 6}, bias(f16), several);
  tma(suite, "persistent 128 f32 all 2 stages", {f32, 128, 2}, everything(f16), several);
  tma(suite, "persistent 192 f16 bias+residual", {f16, 192, 5}, biasResidual(f16, f16), several);
  tma(suite, "persistent 128 f16 gate", {f16, 128, 6}, gate(EpilogueStage::Silu), widths);
  tma(suite, "persistent 192 f16 rms_norm gate", rms({f16, 192, 5}), gate(EpilogueStage::Silu),
      widths);
  tma(suite, "persistent 192 f16 rms_norm rotate", rms({f16, 192, 5}),
      rotate(f16, 64, 32, 5, EpilogueRotation::OfFirst), widths);
  tma(suite, "persistent 128 f16 bias+rotate", {f16, 128, 6},
      biasRotate(f16, rotate(f16, 80, 40, 3)), {{70, 320, 72}, {300, 1000, 192}});
  tma(suite, "persistent 192 f16 norm bias", normed({f16, 192, 5}), bias(f16), widths);
  tma(suite, "persistent 144 f16 norm bias", normed({f16, 144, 6}), bias(f16), widths);
  tma(suite, "persistent 128 f16 norm bias+gelu_tanh", normed({f16, 128, 6}),
      biasGelu(f16, EpilogueStage::GeluTanhHalf), widths);
  tma(suite, "persistent 192 f16 rms_norm plain", rms({f16, 192, 5}), plain, widths);
  tma(suite, "persistent 192 f16 bias+residual statistics", counted({f16, 192, 5}),
      biasResidual(f16, f16), widths);
  tma(suite, "persistent 128 f16 bias+residual statistics", counted({f16, 128, 6}),
      biasResidual(f16, f16), {{1, 128, 64}, {500, 768, 768}});
  LinearTmaPersistentConfig groups{f16, 192, 5};
  groups.rasterGroup = 3; // of 8 rows of tiles
  tma(suite, "persistent 192 f16 groups bias+residual", groups, biasResidual(f16, f16), several);
  // Gates in lines, of columns that tiles do not divide, and statistics of 64 columns each.
  const std::vector<Shape> lines = {{70, 320, 72}, {300, 1600, 192}, {129, 512, 768}};
  tma(suite, "persistent 192 f16 rms_norm gate lines", rms({f16, 192, 5}),
      gate(EpilogueStage::Silu), lines);
  tma(suite, "persistent 128 f16 bias+residual statistics of 64", counted({f16, 128, 6}),
      biasResidual(f16, f16), lines);
  tma(suite, "persistent 96 f16 bias+residual statistics", counted({f16, 96, 7}),
      biasResidual(f16, f16), widths);
}

void addCandidate(Suite &suite, const LinearCandidateCase &of, const LinearTmaPersistentConfig &c) {
  tma(suite, of.label, c, of.epilogue(), {tmaShape(of, c)});
}

const Cases cases(addCases);
const LinearCandidates candidates("linear_tma_persistent", addCandidate);
} // namespace linear_tma_persistent_test

} // namespace gpt2c::kernels
