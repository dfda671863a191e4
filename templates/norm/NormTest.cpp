// layer_norm and rms_norm, with and without a residual.
#include "templates/norm/Norm.h"

#include "tests/suite/kernels/Suite.h"

#include <cmath>

namespace gpt2c::kernels {

namespace norm_test {

void norm(Suite &suite, LayerNormConfig c, const std::vector<int> &rowCounts) {
  int id = suite.kernel("layer_norm", [&](llvm::StringRef name) { return layerNorm(name, c); });
  std::string label = std::string(c.rms ? "rms_norm" : "layer_norm") +
                      (c.residual ? "+residual" : "") + "/d " + std::to_string(c.d) + " threads " +
                      std::to_string(c.threads) +
                      (c.rows > 1 ? " rows " + std::to_string(c.rows) : "") + typeLabel(c.x) +
                      (c.given == Given::None       ? ""
                       : c.given == Given::Scale    ? " given"
                       : c.given == Given::Fp8Scale ? " given to fp8"
                                                    : " given with zero");
  for (int rows : rowCounts)
    suite.test(label + "/rows " + std::to_string(rows), [=](Run &run) {
      size_t count = (size_t)rows * c.d;
      // A mean far from zero: a single-pass variance would fail here.
      auto offset = [&](std::vector<double> v) {
        for (double &e : v)
          e += 8;
        return v;
      };
      Tensor x = run.input(offset(run.normal(count)), c.x),
             residual = run.input(run.normal(count), c.x);
      Tensor gain = run.input(run.normal(c.d), c.p), shift = run.input(run.normal(c.d), c.p);
      Tensor y = run.output(count, c.y), sum = run.output(count, c.x);
      const float epsilon = 1e-5f;
      Arguments arguments = {{"x", &x},     {"residual", &residual}, {"gain", &gain}, {"y", &y},
                             {"sum", &sum}, {"epsilon", epsilon},    {"rows", rows}};
      arguments.set("shift", c.rms ? Argument(nullptr) : Argument(&shift));
      setGiven(c.given, arguments);
      run.launch(id, gridOf(c, rt::constantExpr(rows)), arguments);
      std::vector<double> want(count), bound(count), wantSum(count);
      for (int r = 0; r < rows; ++r) {
        std::vector<double> v(c.d);
        double mean = 0, square = 0;
        for (int i = 0; i < c.d; ++i) {
          v[i] = x.values[(size_t)r * c.d + i] +
                 (c.residual ? residual.values[(size_t)r * c.d + i] : 0);
          wantSum[(size_t)r * c.d + i] = v[i];
          mean += v[i] / c.d;
        }
        if (c.rms)
          mean = 0;
        for (int i = 0; i < c.d; ++i)
          square += (v[i] - mean) * (v[i] - mean) / c.d;
        double scale = 1 / std::sqrt(square + epsilon);
        for (int i = 0; i < c.d; ++i) {
          size_t at = (size_t)r * c.d + i;
          double g = gain.values[i], s = c.rms ? 0 : shift.values[i];
          want[at] = (v[i] - mean) * scale * g + s;
          // fp32: the mean is off by its rounding, which the scale enlarges.
          bound[at] = 4e-6 * (std::fabs(v[i]) + std::fabs(mean)) * scale * std::fabs(g) +
                      1e-6 * std::fabs(s) + 1e-7;
          if (c.given != Given::None) { // near the middle of two steps either is right
            want[at] = givenValue(c.given, want[at]);
            bound[at] = bound[at] * givenInverse + halfStep(c.y, want[at]);
          }
        }
      }
      run.expectNear(y, want, c.given != Given::None ? 0 : roundingOf(c.y, 2e-6), bound);
      if (c.residual)
        run.expectNear(sum, wantSum, roundingOf(c.x, 1e-6), {});
    });
}

void addCases(Suite &suite) {
  const Scalar f16 = Scalar::F16, bf16 = Scalar::BF16, f32 = Scalar::F32;
  for (int d : {1, 3, 13, 64, 100, 768, 1600, 5000})
    for (bool residual : {false, true}) {
      norm(suite, {f16, f16, f16, d, 128, false, residual}, {1, 7});
      norm(suite, {f32, f16, f32, d, d > 1024 ? 256 : 64, false, residual}, {1, 5});
      norm(suite, {f32, f32, f32, d, 32, true, residual}, {1, 3});
      if (d <= 2048)
        norm(suite, {f16, f16, f16, d, 32, false, residual, 4}, {1, 7});
    }
  for (int d : {3, 100, 768, 5000})
    for (bool rms : {false, true}) {
      norm(suite, {bf16, bf16, bf16, d, 128, rms, true}, {1, 7});
      if (d <= 2048)
        norm(suite, {bf16, bf16, bf16, d, 32, rms, false, 4}, {1, 7});
    }
  for (Given given : {Given::Scale, Given::ScaleAndZero})
    for (int d : {3, 100, 768, 5000}) {
      norm(suite, {f16, Scalar::I8, f16, d, 128, false, false, 1, given}, {1, 7});
      if (d <= 2048)
        norm(suite, {f32, Scalar::I8, f32, d, 32, d == 100, true, 4, given}, {1, 7});
    }
  for (int d : {3, 768}) {
    norm(suite, {f16, Scalar::F8E4M3, f16, d, 128, false, false, 1, Given::Fp8Scale}, {1, 7});
    norm(suite, {bf16, Scalar::F8E4M3, bf16, d, 32, true, false, 4, Given::Fp8Scale}, {1, 7});
  }
  norm(suite, {f16, f16, f16, 50257, 1024, false, false}, {2});
}

const Cases cases(addCases);
} // namespace norm_test

} // namespace gpt2c::kernels
