// What a pass may not change about a graph: its values in double precision.
#pragma once

#include "ir/Executor.h"
#include "ir/Text.h"
#include "passes/Pipeline.h"
#include "tests/unit/passes/RandomGraph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

namespace gpt2c::test {

inline unsigned countOps(const Function &f, OpCode code) {
  return llvm::count_if(f.ops(), [&](auto &op) { return op->is(code); });
}

/// Calls `test` with each seed; stops at the first that fails and names it.
inline void forSeeds(const std::function<void(uint64_t)> &test, uint64_t seeds = 250) {
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
  PassOptions passOptions;
  PassContext context(g.module, passOptions, remarks);
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
