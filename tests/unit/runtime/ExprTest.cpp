#include "runtime/plan/Expr.h"

#include <gtest/gtest.h>

#include <random>

namespace gpt2c::rt {
namespace {

plan::ExprT code(std::vector<int64_t> words) {
  plan::ExprT expr;
  expr.code = std::move(words);
  return expr;
}

const std::vector<int64_t> kValues = {7, 3};
const std::vector<std::string> kNames = {"batch", "seq"};

int64_t valueOf(const plan::ExprT &expr) {
  Result<int64_t> value = evalExpr(expr, kValues);
  EXPECT_TRUE(value.ok()) << value.status().message();
  return value.ok() ? *value : -999;
}

TEST(Expr, EvaluatesEveryOperation) {
  plan::ExprT a = symbolExpr(0), b = symbolExpr(1);
  EXPECT_EQ(valueOf(combineExpr(ExprOp::Add, a, b)), 10);
  EXPECT_EQ(valueOf(combineExpr(ExprOp::Sub, a, b)), 4);
  EXPECT_EQ(valueOf(combineExpr(ExprOp::Mul, a, b)), 21);
  EXPECT_EQ(valueOf(combineExpr(ExprOp::CeilDiv, a, b)), 3);
  EXPECT_EQ(valueOf(combineExpr(ExprOp::Min, a, b)), 3);
  EXPECT_EQ(valueOf(combineExpr(ExprOp::Max, a, b)), 7);
}

TEST(Expr, CeilDivRoundsTowardPlusInfinity) {
  auto ceilDiv = [](int64_t a, int64_t b) {
    return valueOf(code({0, a, 0, b, int64_t(ExprOp::CeilDiv), 0}));
  };
  EXPECT_EQ(ceilDiv(6, 3), 2);
  EXPECT_EQ(ceilDiv(7, 3), 3);
  EXPECT_EQ(ceilDiv(-7, 3), -2);
  EXPECT_EQ(ceilDiv(7, -3), -2);
  EXPECT_EQ(ceilDiv(-7, -3), 3);
  EXPECT_EQ(ceilDiv(0, 5), 0);
}

TEST(Expr, RefusesWhatHasNoValue) {
  const std::vector<std::pair<plan::ExprT, const char *>> cases = {
      {code({}), "0 code words"},
      {code({0}), "1 code words"},
      {code({9, 0}), "unknown operation 9"},
      {code({-1, 0}), "unknown operation -1"},
      {code({1, 2}), "symbol 2 of 2"},
      {code({1, -1}), "symbol -1 of 2"},
      {code({2, 0}), "binary operation on 0 values"},
      {code({0, 1, 2, 0}), "binary operation on 1 values"},
      {code({0, 1, 0, 1}), "2 values left"},
      {code({0, 1, 0, 1, 2, 5}), "operand 5"},
      {code({0, 1, 0, 0, 5, 0}), "divides by zero"},
      {code({0, INT64_MIN, 0, -1, 5, 0}), "exceeds 64 bits"},
      {code({0, INT64_MAX, 0, 1, 2, 0}), "exceeds 64 bits"},
      {code({0, INT64_MIN, 0, 1, 3, 0}), "exceeds 64 bits"},
      {code({0, INT64_MAX, 0, 2, 4, 0}), "exceeds 64 bits"},
  };
  for (const auto &[expr, reason] : cases) {
    Result<int64_t> value = evalExpr(expr, kValues);
    ASSERT_FALSE(value.ok()) << reason;
    EXPECT_EQ(value.status().code(), Code::Corrupt);
    EXPECT_NE(value.status().message().find(reason), std::string::npos) << value.status().message();
  }
}

TEST(Expr, StackDepthIsBounded) {
  std::vector<int64_t> words;
  for (int i = 0; i < kMaxExprDepth; ++i)
    words.insert(words.end(), {0, 1});
  for (int i = 1; i < kMaxExprDepth; ++i)
    words.insert(words.end(), {2, 0});
  EXPECT_EQ(valueOf(code(words)), kMaxExprDepth);
  words.insert(words.begin(), {0, 1});
  words.insert(words.end(), {2, 0});
  EXPECT_FALSE(evalExpr(code(words), kValues).ok());
}

TEST(Expr, PrintsWithThePrecedenceOfArithmetic) {
  plan::ExprT a = symbolExpr(0), b = symbolExpr(1), c = constantExpr(4);
  auto text = [](const plan::ExprT &expr) {
    Result<std::string> printed = printExpr(expr, kNames);
    return printed.ok() ? *printed : printed.status().message();
  };
  plan::ExprT sum = combineExpr(ExprOp::Add, a, b);
  EXPECT_EQ(text(combineExpr(ExprOp::Mul, sum, c)), "(batch + seq) * 4");
  EXPECT_EQ(text(combineExpr(ExprOp::Add, combineExpr(ExprOp::Mul, a, b), c)), "batch * seq + 4");
  EXPECT_EQ(text(combineExpr(ExprOp::Sub, a, sum)), "batch - (batch + seq)");
  EXPECT_EQ(text(combineExpr(ExprOp::CeilDiv, sum, c)), "ceildiv(batch + seq, 4)");
  EXPECT_EQ(text(combineExpr(ExprOp::Min, a, combineExpr(ExprOp::Max, b, c))),
            "min(batch, max(seq, 4))");
}

TEST(Expr, CombineFolds) {
  plan::ExprT a = symbolExpr(0), zero = constantExpr(0), one = constantExpr(1);
  EXPECT_EQ(combineExpr(ExprOp::Mul, constantExpr(6), constantExpr(7)).code, constantExpr(42).code);
  EXPECT_EQ(combineExpr(ExprOp::Add, a, zero).code, a.code);
  EXPECT_EQ(combineExpr(ExprOp::Add, zero, a).code, a.code);
  EXPECT_EQ(combineExpr(ExprOp::Mul, one, a).code, a.code);
  EXPECT_EQ(combineExpr(ExprOp::CeilDiv, a, one).code, a.code);
  EXPECT_EQ(combineExpr(ExprOp::Sub, zero, a).code.size(), 6u);
  // An overflow is left for the evaluation to report.
  EXPECT_EQ(combineExpr(ExprOp::Add, constantExpr(INT64_MAX), one).code.size(), 6u);
}

/// Random expressions: whatever the range analysis accepts evaluates, and to a value inside the
/// range.
TEST(Expr, RangesHoldForAllValues) {
  std::mt19937_64 random(7);
  const std::vector<Range> bounds = {{0, 4}, {1, 3}};
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::vector<int64_t> words;
    int depth = 0;
    for (int i = 0; i < 12 || depth != 1; ++i) {
      if (depth < 2 || (i < 12 && random() % 2)) {
        int64_t c =
            random() % 40 == 0 ? INT64_MAX - int64_t(random() % 3) : int64_t(random() % 9) - 2;
        if (random() % 2)
          words.insert(words.end(), {0, c});
        else
          words.insert(words.end(), {1, int64_t(random() % 2)});
        ++depth;
      } else {
        words.insert(words.end(), {int64_t(2 + random() % 6), 0});
        --depth;
      }
    }
    plan::ExprT expr = code(words);
    Result<Range> range = exprRange(expr, bounds);
    if (!range)
      continue;
    ++accepted;
    for (int64_t a = bounds[0].lo; a <= bounds[0].hi; ++a)
      for (int64_t b = bounds[1].lo; b <= bounds[1].hi; ++b) {
        Result<int64_t> value = evalExpr(expr, std::vector<int64_t>{a, b});
        ASSERT_TRUE(value.ok()) << value.status().message();
        ASSERT_LE(range->lo, *value);
        ASSERT_GE(range->hi, *value);
      }
  }
  EXPECT_GT(accepted, 1000);
}

} // namespace
} // namespace gpt2c::rt
