// mlp_cluster: both products of an MLP against float64.
#include "templates/linear/mlp_cluster/MlpCluster.h"

#include "tests/suite/kernels/Suite.h"

#include <algorithm>
#include <cmath>

namespace gpt2c::kernels {

namespace mlp_cluster_test {

double activated(Activation activation, double v) {
  if (activation == Activation::GeluTanh)
    return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  if (activation == Activation::GeluErf)
    return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0)));
  return activation == Activation::Relu ? std::max(v, 0.0) : v;
}

/// `paged`: the state ahead lies in pages of 16 tokens.
void mlp(Suite &suite, const MlpClusterConfig &c, const std::vector<int> &rowCounts,
         bool paged = false) {
  int id = suite.kernel("mlp_cluster", [&](llvm::StringRef name) { return mlpCluster(name, c); });
  for (int m : rowCounts)
    suite.test(
        "mlp_cluster/" + std::to_string(c.d) + " x " + std::to_string(c.hidden) + " " +
            infoOf(c.activation).name.str() + (c.p == Scalar::F16 ? "" : " biases f32") +
            (c.heads ? " state ahead" : "") + (paged ? " in pages" : "") + "/rows " +
            std::to_string(m),
        [=](Run &run) {
          const size_t d = c.d, hidden = c.hidden, count = (size_t)m * d;
          std::vector<double> values = run.normal(count);
          for (double &v : values)
            v += 3; // the norm's mean
          Tensor x = run.input(values, Scalar::F16),
                 residual = run.input(run.normal(count), Scalar::F16);
          Tensor w1 = run.input(run.normal(hidden * d, 0.05), Scalar::F16),
                 w2 = run.input(run.normal(d * hidden, 0.05), Scalar::F16);
          Tensor b1 = run.input(run.normal(hidden), c.p), b2 = run.input(run.normal(d), c.p);
          std::vector<double> sums(hidden), units(d, std::exp2(-16));
          for (size_t i = 0; i < hidden; ++i)
            for (size_t k = 0; k < d; ++k)
              sums[i] += w1.values[i * d + k];
          Tensor sums1 = run.input(sums, Scalar::F32), unit = run.input(units, Scalar::F32);
          Tensor y = run.output(count, Scalar::F16), again = run.output(count, Scalar::F16);
          Tensor words = run.zeroed(d * 16 * 8);
          const float epsilon = 1e-5f;
          constexpr int context = 48;
          std::vector<int> lengths(m); // some beyond the context, as behind its end
          for (int r = 0; r < m; ++r)
            lengths[r] = r * 7 % (paged ? context : 60);
          constexpr int columns = 3, pageTokens = context / columns;
          std::vector<int> pages;
          for (int i = 0; i < columns * m; ++i)
            pages.push_back(columns * m - 1 - i);
          Tensor tables = run.integerInput(pages);
          Tensor past = run.integerInput(lengths);
          Tensor kv = run.zeroed(size_t(2) * 2 * m * std::max(c.heads, 1) * context * 64 * 2);
          const bool state = c.heads > 0;
          // The second launch finds the words as the first has left them.
          for (const Tensor *to : {&y, &again})
            run.launch(id, gridOf(c),
                       {{"x", &x},
                        {"w1", &w1},
                        {"sums1", &sums1},
                        {"b1", &b1},
                        {"epsilon", epsilon},
                        {"w2", &w2},
                        {"units", &unit},
                        {"b2", &b2},
                        {"residual", &residual},
                        {"y", to},
                        {"words", &words},
                        {"m", m},
                        {"kv", state && to == &y ? Argument(&kv) : Argument(nullptr)},
                        {"past", &past},
                        {"tables", paged ? Argument(&tables) : Argument(nullptr)},
                        {"layer", 1},
                        {"batch", m},
                        {"batchMax", paged ? 2 : m}, // layers
                        {"context", paged ? pageTokens : context},
                        {"tableStride", columns}});
          if (run.isDry())
            return;
          std::vector<double> want(count), bound(count), h(hidden), off(hidden);
          for (int r = 0; r < m; ++r) {
            const double *row = &x.values[(size_t)r * d];
            double mean = 0, square = 0;
            for (size_t k = 0; k < d; ++k)
              mean += row[k] / d;
            for (size_t k = 0; k < d; ++k)
              square += (row[k] - mean) * (row[k] - mean) / d;
            const double scale = 1 / std::sqrt(square + epsilon);
            for (size_t i = 0; i < hidden; ++i) {
              double sum = 0, size = 0;
              for (size_t k = 0; k < d; ++k) {
                sum += (row[k] - mean) * w1.values[i * d + k];
                size += std::fabs(row[k] * w1.values[i * d + k]);
              }
              h[i] = activated(c.activation, sum * scale + b1.values[i]);
              // fp16, and gelu by tanh.approx; sums in fp32.
              off[i] = std::fabs(h[i]) / 1024 + std::fabs(sum * scale + b1.values[i]) / 4096 +
                       size * scale * 2e-6;
            }
            for (size_t n = 0; n < d; ++n) {
              const size_t at = (size_t)r * d + n;
              double sum = b2.values[n] + residual.values[at], squares = 0;
              for (size_t i = 0; i < hidden; ++i) {
                sum += h[i] * w2.values[n * hidden + i];
                squares += std::pow(off[i] * w2.values[n * hidden + i], 2);
              }
              want[at] = sum;
              bound[at] = 4 * std::sqrt(squares) + 17 * units[n];
            }
          }
          run.expectNear(y, want, 1.02 / 2048, bound);
          run.expect(run.read(y) == run.read(again), "the second launch has another result");
        },
        true);
}

void addCases(Suite &suite) {
  mlp(suite, {Scalar::F16, 768, 3072, Activation::GeluTanh}, {1, 9, 17, 32});
  mlp(suite, {Scalar::F32, 256, 256, Activation::None}, {2, 32});
  mlp(suite, {Scalar::F16, 512, 1024, Activation::Relu}, {31});
  mlp(suite, {Scalar::F32, 1024, 4096, Activation::GeluErf}, {25, 32});
  mlp(suite, {Scalar::F16, 256, 512, Activation::Relu, 3, 64}, {1, 32});
  mlp(suite, {Scalar::F16, 256, 512, Activation::Relu, 3, 64}, {1, 32}, true);
}

const Cases cases(addCases);
} // namespace mlp_cluster_test

} // namespace gpt2c::kernels
