// Ops of several ranks, each rank a thread; and functions that shard makes, run by all of them,
// give what the whole function gives, with the same bits on every rank.
#include "cpu/RankModule.h"
#include "ir/Builder.h"
#include "ir/Executor.h"
#include "ir/FunctionNames.h"
#include "ir/Text.h"
#include "runtime/group/ThreadLinks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <thread>

namespace gpt2c {
namespace {

using Results = std::vector<std::vector<Tensor>>; // by rank

/// What each rank gets of `f`; an error of any becomes a failure of the test, and its text the
/// result of `error`.
Results runRanks(const Function &f, int ranks,
                 const std::function<std::vector<Tensor>(int)> &arguments,
                 std::string *error = nullptr) {
  rt::ThreadLinks links(ranks);
  Results results(ranks);
  std::vector<std::string> errors(ranks);
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      LinkedGroup group(links.link(r));
      const Group::Scope scope(&group);
      auto out = Executor(f).run(arguments(r));
      if (out) {
        results[r] = std::move(*out);
        return;
      }
      errors[r] = llvm::toString(out.takeError());
      links.fail(r, {rt::Code::Unsupported, errors[r]});
    });
  for (std::thread &t : threads)
    t.join();
  for (const std::string &e : errors)
    if (error)
      *error += e + "\n";
    else
      EXPECT_EQ(e, "");
  return results;
}

std::unique_ptr<Module> parsed(const char *text) {
  auto module = parseModule(text, "<test>", {});
  EXPECT_TRUE(bool(module)) << llvm::toString(module.takeError());
  return std::move(*module);
}

Tensor floats(llvm::ArrayRef<float> values, llvm::ArrayRef<int64_t> shape) {
  return Tensor::of<float>(values, shape);
}

std::vector<float> valuesOf(const Tensor &t) {
  return {t.data<float>(), t.data<float>() + t.count()};
}

TEST(RankOps, AllReduceAddsInTheOrderOfRanks) {
  auto module = parsed(R"(
func @f(%x: f32[n]) -> (f32[n]) {
  %0 = all_reduce(%x) {ranks = 3} : f32[n]
  return %0
})");
  // In another order the sums are others: 1e8 + 4 is no float beside 1e8.
  const float given[3][2] = {{1e8f, 1}, {3, 2}, {-1e8f, 4}};
  const Results all =
      runRanks(*module->functions[0], 3, [&](int r) { return std::vector{floats(given[r], {2})}; });
  const float first = (1e8f + 3) + -1e8f;
  for (const auto &of : all)
    EXPECT_EQ(valuesOf(of[0]), (std::vector<float>{first, 7}));
}

TEST(RankOps, AllGatherJoinsAlongAnAxis) {
  auto module = parsed(R"(
func @f(%x: f32[n, 2]) -> (f32[n, 4], f32[2*n, 2]) {
  %0 = all_gather(%x) {ranks = 2} : f32[n, 4]
  %1 = all_gather(%x) {axis = 0, ranks = 2} : f32[2*n, 2]
  return %0, %1
})");
  const Results all = runRanks(*module->functions[0], 2, [](int r) {
    const float x = float(10 * r);
    return std::vector{floats({x, x + 1, x + 2, x + 3}, {2, 2})};
  });
  for (const auto &of : all) {
    EXPECT_EQ(valuesOf(of[0]), (std::vector<float>{0, 1, 10, 11, 2, 3, 12, 13}));
    EXPECT_EQ(valuesOf(of[1]), (std::vector<float>{0, 1, 2, 3, 10, 11, 12, 13}));
  }
}

TEST(RankOps, RankPartTakesUnits) {
  auto module = parsed(R"(
func @f(%x: f32[5, 2]) -> (f32[4, 2], f32[5, 1], f32[3, 2]) {
  %0 = rank_part(%x) {unit = 2, units = [2, 0, 1, -1], ranks = 2} : f32[4, 2]
  %1 = rank_part(%x) {axis = 1, unit = 1, units = [0, 1], ranks = 2} : f32[5, 1]
  %2 = rank_part(%x) {unit = 3, units = [0, 1], ranks = 2} : f32[3, 2]
  return %0, %1, %2
})");
  const Tensor x = floats({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, {5, 2});
  const Results all = runRanks(*module->functions[0], 2, [&](int) { return std::vector{x}; });
  EXPECT_EQ(valuesOf(all[0][0]), (std::vector<float>{8, 9, 0, 0, 0, 1, 2, 3})) << "cut off: zeros";
  EXPECT_EQ(valuesOf(all[1][0]), (std::vector<float>{4, 5, 6, 7, 0, 0, 0, 0}));
  EXPECT_EQ(valuesOf(all[1][1]), (std::vector<float>{1, 3, 5, 7, 9}));
  EXPECT_EQ(all[0][2].raw(), x.raw()) << "rows one behind the other are no copy";
  EXPECT_EQ(valuesOf(all[1][2]), (std::vector<float>{6, 7, 8, 9, 0, 0}));
}

TEST(RankOps, NeedAsManyRanksAsTheyAreFor) {
  auto module = parsed(R"(
func @f(%x: f32[n]) -> (f32[n]) {
  %0 = all_reduce(%x) {ranks = 2} : f32[n]
  return %0
})");
  auto alone = Executor(*module->functions[0]).run({floats({1}, {1})});
  ASSERT_FALSE(bool(alone));
  EXPECT_NE(llvm::toString(alone.takeError()).find("all_reduce: is for 2 ranks, here are 1"),
            std::string::npos);
}

TEST(RankOps, AFailureElsewhereEndsTheWait) {
  auto module = parsed(R"(
func @f(%x: f32[n], %i: i64[1]) -> (f32[1]) {
  %0 = gather(%x, %i) : f32[1]
  %1 = all_reduce(%0) {ranks = 2} : f32[1]
  return %1
})");
  std::string error;
  runRanks(
      *module->functions[0], 2,
      [](int r) {
        return std::vector{floats({1}, {1}), Tensor::of<int64_t>({r == 1 ? 7 : 0}, {1})};
      },
      &error);
  EXPECT_NE(error.find("all_reduce: rank 1 failed while rank 0 waited for it"), std::string::npos)
      << error;
  EXPECT_NE(error.find("index 7 is out of range"), std::string::npos) << error;
}

} // namespace
} // namespace gpt2c
