// gather_last, argmax, argmax_parts, advance.
#include "templates/tokens/Tokens.h"

#include "tests/suite/kernels/DrawnRows.h"
#include "tests/suite/kernels/Suite.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace gpt2c::kernels {

namespace tokens_test {

void gather(Suite &suite, GatherLastConfig c) {
  int id = suite.kernel("tokens", [&](llvm::StringRef name) { return gatherLast(name, c); });
  for (bool lengths : {false, true})
    suite.test("gather_last/d " + std::to_string(c.d) + (c.x == Scalar::BF16 ? " bf16" : "") +
                   (lengths ? " lengths" : ""),
               [=](Run &run) {
                 const int batch = 4, seq = 5;
                 std::vector<int> length = {1, 5, 3, 0};
                 Tensor x = run.input(run.normal((size_t)batch * seq * c.d), c.x),
                        lengthTensor = run.integerInput(length);
                 Tensor y = run.output((size_t)batch * c.d, c.x);
                 std::vector<double> want;
                 for (int b = 0; b < batch; ++b) {
                   int last = std::max(0, (lengths ? length[b] : seq) - 1);
                   auto row = x.values.begin() + (size_t)(b * seq + last) * c.d;
                   want.insert(want.end(), row, row + c.d);
                 }
                 run.launch(id, gridOf(c, rt::constantExpr(batch)),
                            {{"x", &x},
                             {"length", lengths ? Argument(&lengthTensor) : Argument(nullptr)},
                             {"y", &y},
                             {"seq", seq}});
                 run.expectNear(y, want, 0, {});
               });
}

void argmaxCases(Suite &suite, ArgmaxConfig c) {
  int id = suite.kernel("tokens", [&](llvm::StringRef name) { return argmax(name, c); });
  for (int n : {1, 2, 257, 50257})
    for (int parts : {1, 16})
      suite.test(
          "argmax/" + typeName(c.x) + " n " + std::to_string(n) + " parts " + std::to_string(parts),
          [=](Run &run) {
            const int rows = 9;
            ArgmaxConfig shared = c;
            shared.parts = parts;
            const double inf = std::numeric_limits<double>::infinity();
            std::vector<double> v = run.normal((size_t)rows * n);
            auto row = [&](int r) { return v.begin() + (size_t)r * n; };
            std::fill_n(row(1), n, -2.0);        // all equal
            std::fill_n(row(2), n, NAN);         // nothing but NaN
            row(3)[n / 2] = NAN;                 // NaN never wins
            row(4)[n / 3] = row(4)[n - 1] = 100; // a tie
            row(5)[n - 1] = inf;                 //
            std::fill_n(row(6), n, -inf);        // -inf is a number
            row(7)[0] = NAN;                     //
            std::fill_n(row(8), n, -1.0);        // -0 equals 0
            row(8)[n / 2] = -0.0;
            row(8)[n - 1] = 0.0;
            Tensor logits = run.input(v, c.x), next = run.integerInput(std::vector<int>(rows, -1));
            Tensor best = run.zeroed(8 * rows), arrived = run.zeroed(4 * rows);
            const DrawnRows drawn(run, rows);
            std::vector<int> want(rows, 0), wantDrawn;
            for (int r = 0; r < rows; ++r) {
              int found = -1;
              for (int i = 0; i < n; ++i) {
                double e = logits.values[(size_t)r * n + i];
                if (!std::isnan(e) && (found < 0 || e > logits.values[(size_t)r * n + found]))
                  found = i;
              }
              want[r] = std::max(found, 0);
              const auto from = logits.values.begin() + (ptrdiff_t)r * n;
              if (!run.isDry())
                wantDrawn.push_back(drawn.choice(r, {from, from + n}, want[r]));
            }
            for (bool draws : {false, true, false}) {
              run.launch(id, gridOf(shared, rt::constantExpr(rows)),
                         {{"logits", &logits},
                          {"next", &next},
                          {"best", &best},
                          {"arrived", &arrived},
                          {"choices", draws ? Argument(&drawn.tensor) : Argument(nullptr)},
                          {"n", n}});
              run.expectEqual(run.readIntegers(next), draws ? wantDrawn : want, "next");
            }
          });
}

/// Keys are a score, in the upper half, and what the index lacks to 2^32 - 1.
void argmaxPartsCases(Suite &suite) {
  int id = suite.kernel("tokens", [&](llvm::StringRef name) { return argmaxParts(name); });
  for (int parts : {1, 31, 128, 393, 1600})
    suite.test("argmax_parts/parts " + std::to_string(parts), [=](Run &run) {
      const int rows = 7, best = 3 * parts / 4;
      std::vector<int> words, want;
      for (int r = 0; r < rows; ++r) {
        // Row 0 has no key at all, of equal scores the smallest index wins.
        for (int i = 0; i < parts; ++i) {
          const int index = i * 128 + (i * 37 + r) % 128, score = 1 + (i * 7919 + r) % 1000;
          const bool tie = i == best || i == parts - 1;
          words.push_back(r == 0 ? 0 : ~index);
          words.push_back(r == 0 ? 0 : tie ? 5000 : score);
          if (i == best)
            want.push_back(r == 0 ? 0 : index);
        }
      }
      Tensor keys = run.integerInput(words), next = run.integerInput(std::vector<int>(rows, -1));
      run.launch(id, argmaxPartsGrid(rt::constantExpr(rows)),
                 {{"best", &keys}, {"next", &next}, {"choices", nullptr}, {"parts", parts}});
      run.expectEqual(run.readIntegers(next), want, "next");
    });
}

void advanceCase(Suite &suite) {
  int id = suite.kernel("tokens", [&](llvm::StringRef name) { return advance(name); });
  suite.test("advance", [=](Run &run) {
    const int batch = 200, capacity = 3;
    std::vector<int> next = run.integers(batch, 0, 50256), ids(batch, -1),
                     past = run.integers(batch, 0, 1000);
    Tensor nextTensor = run.integerInput(next), idsTensor = run.integerInput(ids),
           pastTensor = run.integerInput(past);
    Tensor tokens = run.integerInput(std::vector<int>(capacity * batch, -1)),
           step = run.integerInput({0});
    std::vector<int> want(capacity * batch, -1);
    for (int turn = 0; turn < 4; ++turn) { // the ring wraps
      run.launch(id, blocks(1),
                 {{"next", &nextTensor},
                  {"ids", &idsTensor},
                  {"past", &pastTensor},
                  {"tokens", &tokens},
                  {"step", &step},
                  {"batch", batch},
                  {"capacity", capacity}});
      for (int b = 0; b < batch; ++b) {
        want[turn % capacity * batch + b] = next[b];
        past[b]++;
      }
      run.expectEqual(run.readIntegers(tokens), want, "tokens");
    }
    run.expectEqual(run.readIntegers(idsTensor), next, "ids");
    run.expectEqual(run.readIntegers(pastTensor), past, "past");
    run.expectEqual(run.readIntegers(step), std::vector<int>{4}, "step");
  });
}

void addCases(Suite &suite) {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  for (int d : {1, 7, 768, 1602}) {
    gather(suite, {f16, d, 64});
    gather(suite, {f32, d, 128});
    gather(suite, {Scalar::BF16, d, 64});
  }
  argmaxCases(suite, {f32, 256});
  argmaxCases(suite, {f16, 1024});
  argmaxCases(suite, {Scalar::BF16, 1024});
  argmaxPartsCases(suite);
  advanceCase(suite);
}

const Cases cases(addCases);
} // namespace tokens_test

} // namespace gpt2c::kernels
