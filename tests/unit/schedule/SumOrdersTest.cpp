// Which order of sums a product has in all versions of a function.
#include "schedule/products/SumOrders.h"

#include "ir/Error.h"
#include "ir/Text.h"

#include <gtest/gtest.h>

namespace gpt2c {
namespace {

class SumOrdersTest : public testing::Test {
protected:
  void SetUp() override {
    auto parsed = parseModule(R"(module @m {}
func @f(%x: f32[4, 8], %w: f32[6, 8]) -> (%y: f32[4, 6]) {
  %y = linear(%x, %w) : f32[4, 6]
  return %y
}
)",
                              "test");
    ASSERT_TRUE(bool(parsed)) << llvm::toString(parsed.takeError());
    module_ = std::move(*parsed);
    op_ = module_->function("f")->ops().begin()->get();
  }
  size_t choose(const std::vector<SumOption> &options) { return orders_.choose(*op_, options); }

  std::unique_ptr<Module> module_;
  Op *op_ = nullptr;
  SumOrders orders_;
};

TEST_F(SumOrdersTest, TheOrderThatAllHaveAndThatCostsLeastIsTaken) {
  const std::vector<SumOption> few = {{"a", "split", 1.0}, {"b", "whole", 2.0}, {"c", "odd", 1.5}},
                               many = {
                                   {"d", "whole", 10.0}, {"e", "odd", 30.0}, {"f", "whole", 8.0}};
  orders_.beginVersion("few");
  EXPECT_EQ(choose(few), 0u); // the fastest, before anything is decided
  orders_.beginVersion("many");
  EXPECT_EQ(choose(many), 0u);
  ASSERT_FALSE(bool(orders_.decide()));
  EXPECT_EQ(choose(few), 1u);
  EXPECT_EQ(choose(many), 2u); // the cheapest of that order
  const auto costs = orders_.estimates();
  ASSERT_EQ(costs.size(), 2u);
  EXPECT_EQ(costs[0].version, "few");
  EXPECT_EQ(costs[0].cheapest, 1.0);
  EXPECT_EQ(costs[0].taken, 2.0);
  EXPECT_EQ(costs[1].cheapest, 8.0);
  EXPECT_EQ(costs[1].taken, 8.0);
}

TEST_F(SumOrdersTest, WithoutAModelTheOrderOfTheListCounts) {
  orders_.beginVersion("few");
  choose(
      {{"a", "split", std::nullopt}, {"b", "whole", std::nullopt}, {"c", "whole", std::nullopt}});
  ASSERT_FALSE(bool(orders_.decide()));
  EXPECT_EQ(choose({{"b", "whole", std::nullopt}, {"a", "split", std::nullopt}}), 1u);
  EXPECT_EQ(orders_.estimates()[0].unknown, 1u);
}

TEST_F(SumOrdersTest, VersionsWithoutACommonOrderAreRefusedWithBoth) {
  orders_.beginVersion("up to 1 rows");
  choose({{"a", "split", 1.0}});
  orders_.beginVersion("up to 8 rows");
  choose({{"b", "whole", 1.0}});
  llvm::Error e = orders_.decide();
  ASSERT_TRUE(bool(e));
  std::string text;
  llvm::raw_string_ostream os(text);
  EXPECT_EQ(printError(std::move(e), os), ExitCode::Unsupported);
  for (const char *part : {"linear", "up to 1 rows: split", "up to 8 rows: whole"})
    EXPECT_NE(text.find(part), std::string::npos) << text;
}

} // namespace
} // namespace gpt2c
