// linear_tf32 against Y = epilogue(X W^T) in float64.
#include "templates/linear/tf32/LinearTf32.h"

#include "tests/suite/kernels/LinearCandidates.h"
#include "tests/suite/kernels/LinearCases.h"

namespace gpt2c::kernels {

namespace linear_tf32_test {

void tf32(Suite &suite, const std::string &group, const std::string &label,
          const LinearTf32Config &c, const Epilogue &epilogue, const std::vector<Shape> &shapes) {
  tiled(suite, group, linearTf32, label, c, {Scalar::F32, Scalar::F32, c.y}, epilogue, shapes);
}

void addTiles(Suite &suite) {
  const Scalar f32 = Scalar::F32;
  const std::vector<Shape> shapes = tf32Shapes();
  tf32(suite, "linear_tf32", "128x96 bias+gelu_tanh", {f32, 128, 96, 4, 2, 4, 1, 1},
       biasGelu(f32, EpilogueStage::GeluTanh), shapes);
  tf32(suite, "linear_tf32", "128x72 bias", {f32, 128, 72, 8, 1, 4, 1, 1}, bias(f32), shapes);
  tf32(suite, "linear_tf32", "128x96 split 4 bias+residual", {f32, 128, 96, 4, 2, 4, 4, 1},
       biasResidual(f32, f32), shapes);
  const std::vector<Shape> quads = {{1, 4, 4}, {65, 132, 72}, {300, 768, 768}};
  tf32(suite, "linear_tf32", "128x96 gate", {f32, 128, 96, 4, 2, 4, 1, 1},
       gate(EpilogueStage::Silu), quads);
  tf32(suite, "linear_tf32", "128x96 split 4 gate", {f32, 128, 96, 4, 2, 4, 4, 1},
       gate(EpilogueStage::Silu), quads);
  tf32(suite, "linear_tf32", "128x96 split 4 rotate", {f32, 128, 96, 4, 2, 4, 4, 1},
       rotate(f32, 64, 32, 2), quads);
  tf32(suite, "linear_tf32", "64x80 2 stages all", {f32, 64, 80, 2, 2, 2, 1, 1}, everything(f32),
       shapes);
  tf32(suite, "linear_tf32", "32x64 split 3 plain", {f32, 32, 64, 2, 4, 6, 3, 1}, plain, shapes);
  tf32(suite, "linear_tf32", "16x32 bias", {f32, 16, 32, 1, 4, 3, 1, 2}, bias(f32), shapes);
}

void addExtremes(Suite &suite) {
  const Scalar f32 = Scalar::F32;
  // Both parts of a number are exact at any magnitude.
  const LinearTf32Config config{f32, 64, 96, 2, 2, 3, 1, 1};
  const int id = suite.kernel(
      "linear_tf32", [&](llvm::StringRef name) { return linearTf32(name, config, plain); });
  suite.test("linear_tf32/64x96 magnitudes of 2^-30 to 2^30", [=](Run &run) {
    const Shape s{70, 100, 1024};
    Problem p(run, s, f32, f32, f32, plain);
    for (Tensor *t : {&p.x, &p.w}) {
      std::vector<double> values = t->values;
      const std::vector<int> exponents = run.integers(values.size(), -30, 30);
      for (size_t i = 0; i < values.size(); ++i)
        values[i] = std::ldexp(values[i], exponents[i]);
      *t = run.input(values, f32);
    }
    p.compute(p.x.values, p.w.values, plain, f32);
    check(run, id, p, gridFor(config, s), p.arguments(), f32);
  });
  suite.test("linear_tf32/64x96 NaN stays NaN", [=](Run &run) {
    const Shape s{3, 5, 64};
    Problem p(run, s, f32, f32, f32, plain);
    std::vector<double> values = p.x.values;
    values[s.k + 7] = NAN;
    p.x = run.input(values, f32);
    p.compute(p.x.values, p.w.values, plain, f32);
    run.launch(id, gridFor(config, s), p.arguments());
    run.expectNear(p.y, p.want, relative(f32), p.bound);
  });
}

void addCases(Suite &suite) {
  addTiles(suite);
  addExtremes(suite);
}

void addCandidate(Suite &suite, const LinearCandidateCase &of, const LinearTf32Config &c) {
  tf32(suite, of.group("linear_tf32"), of.label, c, of.epilogue(), {{of.rows, 301, of.k}});
}

const Cases cases(addCases);
const LinearCandidates candidates("linear_tf32", addCandidate);
} // namespace linear_tf32_test

} // namespace gpt2c::kernels
