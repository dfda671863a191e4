// Small random graphs, and what a pass may not change about them: their values in double precision.
#pragma once

#include "ir/Builder.h"
#include "ir/Executor.h"
#include "ir/Text.h"
#include "ir/Verifier.h"
#include "passes/Pipeline.h"

#include "llvm/ADT/STLExtras.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

namespace gpt2c::test {

/// Random choices from a seed.
class Choices {
public:
  explicit Choices(uint64_t seed) : engine_(seed * 2654435761u + 1) {}
  uint64_t below(uint64_t n) { return engine_() % n; }
  bool coin() { return below(2); }
  double real(double from, double to) {
    return from + (to - from) * double(engine_() >> 11) / double(1ull << 53);
  }
  template <typename T> T oneOf(std::initializer_list<T> values) {
    return values.begin()[below(values.size())];
  }

private:
  std::mt19937_64 engine_;
};

/// A module with one function under construction. Inference errors end the test program: graphs
/// here are well typed.
class Graph {
public:
  explicit Graph(uint64_t seed)
      : choose(seed), function(*module.addFunction("f")), builder_(function) {}

  Value *argument(Type type, std::string name) {
    return function.addArgument(std::move(type), std::move(name));
  }
  Value *operator()(OpCode code, llvm::ArrayRef<Value *> operands,
                    llvm::ArrayRef<NamedAttr> attrs = {}) {
    return llvm::cantFail(builder_.value(code, operands, attrs));
  }
  /// A commutative op, its operands in either order.
  Value *either(OpCode code, Value *a, Value *b) {
    return choose.coin() ? (*this)(code, {a, b}) : (*this)(code, {b, a});
  }
  Value *scalar(double v) {
    Tensor t = Tensor::scalar<float>(float(v));
    return builder_.constant(choose.coin() ? t : t.reshaped({1}));
  }
  Value *index(int64_t v) { return builder_.constant(Tensor::scalar<int64_t>(v)); }
  /// Random floats in [-1, 1].
  Value *random(llvm::ArrayRef<int64_t> shape) {
    Tensor t(DType::F32, shape);
    for (int64_t i = 0; i < t.count(); ++i)
      t.data<float>()[i] = float(choose.real(-1, 1));
    return builder_.constant(t);
  }
  void ret(llvm::ArrayRef<Value *> values) { builder_.ret(values); }

  Tensor randomInput(llvm::ArrayRef<int64_t> shape) {
    Tensor t(DType::F64, shape);
    for (int64_t i = 0; i < t.count(); ++i)
      t.data<double>()[i] = choose.real(-2, 2);
    return t;
  }

  Choices choose;
  Module module;
  Function &function;

private:
  Builder builder_;
};

inline unsigned countOps(const Function &f, OpCode code) {
  return llvm::count_if(f.ops(), [&](auto &op) { return op->is(code); });
}

/// Calls `test` with each seed; stops at the first that fails and names it.
inline void forSeeds(const std::function<void(uint64_t)> &test) {
  constexpr uint64_t seeds = 250;
  for (uint64_t seed = 0; seed < seeds && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    test(seed);
  }
}

/// Runs passes on the graph and expects the same results, in double precision, as before on
/// `inputs`.
inline void expectPreserved(Graph &g, llvm::ArrayRef<llvm::StringRef> passes,
                            llvm::ArrayRef<Tensor> inputs, double tolerance = 1e-6) {
  std::string before = toText(g.function);
  auto run = [&] { return Executor(g.function, {.float64 = true}).run(inputs); };
  auto expected = run();
  ASSERT_TRUE(bool(expected)) << llvm::toString(expected.takeError()) << before;
  std::vector<Remark> remarks;
  PassContext context(g.module, {}, remarks);
  PipelineOptions options;
  options.verifyEach = true;
  for (llvm::StringRef name : passes) {
    llvm::Error e = runPass(*findPass(name), context, options);
    ASSERT_FALSE(bool(e)) << llvm::toString(std::move(e)) << before;
  }
  auto actual = run();
  ASSERT_TRUE(bool(actual)) << llvm::toString(actual.takeError()) << toText(g.function);
  ASSERT_EQ(actual->size(), expected->size());
  for (auto [a, e] : llvm::zip(*actual, *expected)) {
    ASSERT_EQ(a.shape(), e.shape());
    for (int64_t i = 0; i < a.count(); ++i) {
      double was = e.asDouble(i), is = a.asDouble(i);
      ASSERT_TRUE(std::abs(is - was) <= tolerance * (1 + std::abs(was)) ||
                  (std::isnan(is) && std::isnan(was)))
          << "element " << i << " was " << was << ", is " << is << "\nbefore: " << before
          << "after: " << toText(g.function);
    }
  }
}

} // namespace gpt2c::test
