#include "runtime/device/FunctionCall.h"

#include "runtime/plan/Expr.h"

#include <gtest/gtest.h>

namespace gpt2c::rt {
namespace {

std::unique_ptr<plan::ExprT> of(plan::ExprT expr) {
  return std::make_unique<plan::ExprT>(std::move(expr));
}

/// @forward of x [past, 4] and y [seq, 4], both of up to 16, together of up to 20.
std::vector<std::unique_ptr<plan::FunctionT>> oneFunction() {
  auto f = std::make_unique<plan::FunctionT>();
  f->name = "forward";
  for (const char *name : {"past", "seq"}) {
    auto s = std::make_unique<plan::SymbolT>();
    s->name = name;
    s->max = 16;
    auto port = std::make_unique<plan::PortT>();
    port->name = std::string("of_") + name;
    port->shape.push_back(of(symbolExpr(int(f->symbols.size()))));
    port->shape.push_back(of(constantExpr(4)));
    f->symbols.push_back(std::move(s));
    f->inputs.push_back(std::move(port));
  }
  auto limit = std::make_unique<plan::SumLimitT>();
  limit->sum = of(combineExpr(ExprOp::Add, symbolExpr(0), symbolExpr(1)));
  limit->most = 20;
  f->limits.push_back(std::move(limit));
  std::vector<std::unique_ptr<plan::FunctionT>> list;
  list.push_back(std::move(f));
  return list;
}

TEST(FunctionCall, ASumBeyondItsLimitIsRefused) {
  auto functions = oneFunction();
  auto call = [&](int64_t past, int64_t seq) {
    const std::vector<std::vector<int64_t>> shapes = {{past, 4}, {seq, 4}};
    return chooseFunction(functions, nullptr, "forward", shapes, 0);
  };
  EXPECT_TRUE(call(16, 4));
  EXPECT_TRUE(call(4, 16));
  EXPECT_TRUE(call(0, 0));
  auto beyond = call(11, 10);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.status().code(), Code::Usage);
  EXPECT_EQ(beyond.status().message(),
            "@forward: a sum is 21 (past + seq), the plan takes at most 20");
  EXPECT_FALSE(call(17, 1)) << "a symbol beyond its own bound";
}

} // namespace
} // namespace gpt2c::rt
