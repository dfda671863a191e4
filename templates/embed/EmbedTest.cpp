// embedding: rows of the token table and of the position table.
#include "templates/embed/Embed.h"

#include "tests/suite/kernels/Suite.h"

#include <algorithm>
#include <cmath>

namespace gpt2c::kernels {

namespace embed_test {

void embeddings(Suite &suite, EmbeddingConfig c) {
  int id = suite.kernel("embedding", [&](llvm::StringRef name) { return embedding(name, c); });
  for (int source : {0, 1, 2}) // no past, past, explicit positions
    suite.test(
        "embedding/d " + std::to_string(c.d) +
            (c.groups ? " i8 groups " + std::to_string(c.groups) : typeLabel(c.w)) +
            typeLabel(c.y) + (c.position ? "" : " no positions") +
            (c.parts ? " parts " + std::to_string(c.parts) : "") + " source " +
            std::to_string(source),
        [=](Run &run) {
          const int batch = 3, seq = 6, vocab = 50, table = 20;
          std::vector<int> ids = run.integers(batch * seq, 0, vocab - 1), past = {0, 7, 17};
          std::vector<int> positions = run.integers(batch * seq, 0, table - 1);
          Tensor idsTensor = run.integerInput(ids), pastTensor = run.integerInput(past),
                 positionsTensor = run.integerInput(positions);
          std::vector<double> rows = run.normal((size_t)vocab * c.d);
          if (c.groups)
            for (double &v : rows)
              v = std::clamp(std::round(40 * v), -127.0, 127.0);
          std::vector<double> factors((size_t)vocab * std::max(c.groups, 1), 1);
          for (size_t i = 0; c.groups && i < factors.size(); ++i)
            factors[i] = 0.01 * double(1 + i % 7);
          Tensor wte = run.input(rows, c.w), wpe = run.input(run.normal((size_t)table * c.d), c.p);
          Tensor scales = run.input(factors, Scalar::F32);
          Tensor y = run.output((size_t)batch * seq * c.d, c.y),
                 statistics =
                     run.output((size_t)batch * seq * 2 * std::max(c.parts, 1), Scalar::F32);
          std::vector<double> want(y.values.size());
          for (int t = 0; t < batch * seq; ++t) {
            int position = source == 2 ? positions[t] : (source == 1 ? past[t / seq] : 0) + t % seq;
            position = std::min(position, table - 1);
            for (int d = 0; d < c.d; ++d)
              want[(size_t)t * c.d + d] =
                  wte.values[(size_t)ids[t] * c.d + d] *
                      (c.groups ? scales.values[(size_t)ids[t] * c.groups + d / (c.d / c.groups)]
                                : 1) +
                  (c.position ? wpe.values[(size_t)position * c.d + d] : 0);
          }
          const Argument none = nullptr;
          run.launch(id, gridOf(c, rt::constantExpr(batch * seq)),
                     {{"ids", &idsTensor},
                      {"positions", source == 2 ? Argument(&positionsTensor) : none},
                      {"past", source == 1 ? Argument(&pastTensor) : none},
                      {"wteScale", c.groups ? Argument(&scales) : none},
                      {"wte", &wte},
                      {"wpe", &wpe},
                      {"y", &y},
                      {"statistics", &statistics},
                      {"seq", seq},
                      {"positionCount", table}});
          run.expectNear(y, want, roundingOf(c.y, 1e-7), {});
          if (c.parts == 0)
            return;
          std::vector<double> moments;
          for (int i = 0; i < c.parts * batch * seq; ++i) {
            const int t = i % (batch * seq);
            double mean = 0, square = 0;
            for (int d = 0; d < c.d; ++d)
              mean += want[(size_t)t * c.d + d] / c.d;
            for (int d = 0; d < c.d; ++d)
              square += std::pow(want[(size_t)t * c.d + d] - mean, 2);
            moments.insert(moments.end(), {mean, square / c.parts});
          }
          run.expectNear(statistics, moments, 1e-5, std::vector<double>(moments.size(), 1e-6));
        });
}

void addCases(Suite &suite) {
  const Scalar f16 = Scalar::F16, bf16 = Scalar::BF16, f32 = Scalar::F32;
  for (int d : {1, 7, 768, 1602}) {
    embeddings(suite, {f16, f16, f16, d, 128, true});
    embeddings(suite, {f16, f16, f16, d, 128, true, 0, 1});
    embeddings(suite, {f16, f16, f16, d, 128, true, 0, 6});
    embeddings(suite, {f16, f16, f32, d, 64, false});
    embeddings(suite, {f32, f32, f32, d, 128, true});
    embeddings(suite, {bf16, bf16, bf16, d, 128, true});
    embeddings(suite, {Scalar::I8, bf16, bf16, d, 64, false, 1});
    embeddings(suite, {Scalar::I8, f16, f16, d, 128, true, 1});
    embeddings(suite, {Scalar::I8, f32, f32, d, 64, false, d % 2 == 0 ? 2 : 1});
  }
}

const Cases cases(addCases);
} // namespace embed_test

} // namespace gpt2c::kernels
