// What decides by lengths is found, and keeps its type in double precision.
#include "ir/Decisions.h"
#include "ir/Executor.h"
#include "ir/Text.h"

#include <gtest/gtest.h>

using namespace gpt2c;

/// A window of f16: 5 times the factor is 1 in f16 and less in a wider type. The factor also scales
/// what the graph is given.
static const char *window = R"(
func @f(%ids: i64[seq], %x: f16[seq]) -> (f16[seq], bool[seq], f16[seq], bool[seq]) {
  %at = range() {start = [0], limit = [seq], delta = [1]} : i64[seq]
  %far = cast(%at) {to = f16} : f16[seq]
  %factor = constant dense<0.19995117> : f16[]
  %part = mul(%far, %factor) : f16[seq]
  %one = constant dense<1.0> : f16[]
  %near = less(%part, %one) : bool[seq]
  %y = mul(%x, %factor) : f16[seq]
  %high = greater(%y, %one) : bool[seq]
  %steps = floor(%part) : f16[seq]
  return %y, %near, %steps, %high
}
)";

static const Value *named(const Function &f, llvm::StringRef name) {
  for (auto &op : f.ops())
    if (op->numResults() == 1 && op->result()->name == name)
      return op->result();
  return nullptr;
}

TEST(Decisions, AreWhatComparesAndRoundsNumbers) {
  auto m = parseModule(window, "test");
  ASSERT_TRUE(bool(m)) << llvm::toString(m.takeError());
  const Function &f = *(*m)->functions[0];
  for (const char *name : {"near", "high", "steps"})
    EXPECT_TRUE(isDecision(*named(f, name)->def())) << name;
  for (const char *name : {"at", "far", "part", "y"})
    EXPECT_FALSE(isDecision(*named(f, name)->def())) << name;
}

TEST(Decisions, HangOnLengthsAlone) {
  auto m = parseModule(window, "test");
  ASSERT_TRUE(bool(m)) << llvm::toString(m.takeError());
  const Function &f = *(*m)->functions[0];
  const OpSet ops = decidingOps(f);
  for (const char *name : {"far", "factor", "part", "one", "steps"})
    EXPECT_TRUE(ops.contains(named(f, name)->def())) << name;
  EXPECT_FALSE(ops.contains(named(f, "y")->def())); // of an argument
  EXPECT_EQ(ops.size(), 5u);
  // A value that is given is no function of lengths.
  llvm::SmallVector<const Op *> all;
  for (auto &op : f.ops())
    all.push_back(op.get());
  EXPECT_TRUE(decidingOps(all, [&](const Value *v) { return v == named(f, "far"); }).empty());
}

TEST(Decisions, KeepTheirTypesInDoublePrecision) {
  auto m = parseModule(window, "test");
  ASSERT_TRUE(bool(m)) << llvm::toString(m.takeError());
  const Function &f = *(*m)->functions[0];
  Tensor ids(DType::I64, {7}), zeros(DType::I64, {7});
  std::fill_n(ids.data<int64_t>(), 7, 0);
  std::fill_n(zeros.data<int64_t>(), 7, 0);
  for (bool float64 : {false, true}) {
    auto out = Executor(f, {.float64 = float64}).run({ids, zeros.cast(DType::F16)});
    ASSERT_TRUE(bool(out)) << llvm::toString(out.takeError());
    for (int64_t i = 0; i < 7; ++i) {
      EXPECT_EQ((*out)[1].asInt(i), i < 5) << i;
      EXPECT_EQ((*out)[2].asDouble(i), i < 5 ? 0 : 1) << i;
    }
    EXPECT_EQ((*out)[0].dtype(), float64 ? DType::F64 : DType::F16);
    EXPECT_EQ((*out)[2].dtype(), float64 ? DType::F64 : DType::F16);
  }
}

TEST(Decisions, LeaveTheirConstantsToOtherOps) {
  auto m = parseModule(window, "test");
  ASSERT_TRUE(bool(m)) << llvm::toString(m.takeError());
  const Function &f = *(*m)->functions[0];
  Tensor ids(DType::I64, {1}), x(DType::F64, {1});
  ids.data<int64_t>()[0] = 0;
  x.data<double>()[0] = 1.0 / 3;
  auto out = Executor(f, {.float64 = true}).run({ids, x});
  ASSERT_TRUE(bool(out)) << llvm::toString(out.takeError());
  EXPECT_EQ((*out)[0].asDouble(0), (1.0 / 3) * 0.199951171875);
}
