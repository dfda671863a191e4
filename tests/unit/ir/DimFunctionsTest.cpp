// Minima, maxima, quotients and choices of dimensions against integers, over every small value of
// the symbols.
#include "ir/Calculate.h"
#include "ir/Literals.h"

#include <gtest/gtest.h>
#include <random>

using namespace gpt2c;

namespace {

constexpr int64_t most = 14; // of each symbol
const char *const names[] = {"past", "seq"};

int64_t floorDiv(int64_t a, int64_t b) { return a / b - (a % b < 0); }

/// A dimension and what it should be for each pair of values.
struct Checked {
  Dim dim;
  std::vector<int64_t> values;
};

template <typename F> std::vector<int64_t> overValues(F f) {
  std::vector<int64_t> out;
  for (int64_t past = 0; past <= most; ++past)
    for (int64_t seq = 0; seq <= most; ++seq)
      out.push_back(f(past, seq));
  return out;
}

std::vector<int64_t> valuesOf(const Dim &d) {
  return overValues([&](int64_t past, int64_t seq) {
    SymbolMap symbols;
    symbols["past"] = past;
    symbols["seq"] = seq;
    return *d.evaluate(symbols);
  });
}

Dim parsed(const std::string &text) {
  TokenStream s(text, "dim");
  Dim d;
  EXPECT_FALSE(parseDim(s, d)) << text << ": " << llvm::toString(s.takeError());
  return d;
}

/// Integers, for what a plan calculates.
struct Integers {
  int64_t past, seq;
  int64_t constant(int64_t n) const { return n; }
  int64_t symbol(std::string_view name) const { return name == "past" ? past : seq; }
  int64_t add(int64_t a, int64_t b) const { return a + b; }
  int64_t multiply(int64_t a, int64_t b) const { return a * b; }
  int64_t min(int64_t a, int64_t b) const { return std::min(a, b); }
  int64_t max(int64_t a, int64_t b) const { return std::max(a, b); }
  int64_t floorDiv(int64_t a, int64_t b) const { return ::floorDiv(a, b); }
};

class RandomDims {
public:
  RandomDims(unsigned seed, unsigned symbols) : random_(seed), symbols_(symbols) {}

  Checked make(int depth) {
    switch (depth == 0 ? below(2) : below(8)) {
    case 0: {
      const int64_t c = int64_t(below(25)) - 12;
      return {Dim(c), overValues([&](int64_t, int64_t) { return c; })};
    }
    case 1: {
      const bool past = below(symbols_) == 1;
      return {Dim::symbol(names[!past]),
              overValues([&](int64_t p, int64_t s) { return past ? p : s; })};
    }
    case 2: {
      const int64_t n = 1 + below(5);
      Checked a = make(depth - 1);
      for (int64_t &v : a.values)
        v = floorDiv(v, n);
      return {Dim::floorDiv(a.dim, n, {}), a.values};
    }
    case 3: {
      Checked test = make(depth - 1), a = make(depth - 1), b = make(depth - 1);
      for (size_t i = 0; i < a.values.size(); ++i)
        a.values[i] = test.values[i] < 0 ? a.values[i] : b.values[i];
      return {Dim::select(test.dim, a.dim, b.dim, {}), a.values};
    }
    case 4:
      return both(depth, [](auto &a, auto &b) { return a - b; }, std::minus<int64_t>());
    case 5:
      return both(depth, [](auto &a, auto &b) { return a + b; }, std::plus<int64_t>());
    case 6:
      return both(
          depth, [](auto &a, auto &b) { return Dim::min(a, b, {}); },
          [](int64_t a, int64_t b) { return std::min(a, b); });
    default:
      return both(
          depth, [](auto &a, auto &b) { return Dim::max(a, b, {}); },
          [](int64_t a, int64_t b) { return std::max(a, b); });
    }
  }

private:
  size_t below(size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(random_); }
  template <typename D, typename I> Checked both(int depth, D ofDims, I ofIntegers) {
    Checked a = make(depth - 1), b = make(depth - 1);
    for (size_t i = 0; i < a.values.size(); ++i)
      a.values[i] = ofIntegers(a.values[i], b.values[i]);
    return {ofDims(a.dim, b.dim), a.values};
  }

  std::mt19937 random_;
  unsigned symbols_;
};

TEST(DimFunctionsTest, AreWhatIntegersAre) {
  for (unsigned seed = 0; seed < 1500; ++seed) {
    Checked c = RandomDims(seed, 1 + seed % 2).make(1 + seed % 3);
    if (c.dim.complexity() > 150) // inference gives these up
      continue;
    ASSERT_EQ(valuesOf(c.dim), c.values) << "seed " << seed << ": " << c.dim.str();
    EXPECT_EQ(parsed(c.dim.str()), c.dim) << "seed " << seed << ": " << c.dim.str();
    const auto calculated = overValues(
        [&](int64_t past, int64_t seq) { return calculate(c.dim, Integers{past, seq}); });
    EXPECT_EQ(calculated, c.values) << "seed " << seed << ": " << c.dim.str();
    const DimRange range = c.dim.range({});
    for (int64_t v : c.values)
      ASSERT_TRUE(range.lo <= v && v <= range.hi)
          << "seed " << seed << ": " << c.dim.str() << " is " << v << " outside [" << range.lo
          << ", " << range.hi << "]";
  }
}

TEST(DimFunctionsTest, BoundsKeepWhatTheyAllow) {
  DimBounds bounds;
  bounds.atLeast("seq", 1);
  ASSERT_TRUE(bounds.atMost(parsed("past + seq"), 12));
  for (unsigned seed = 0; seed < 1500; ++seed) {
    Checked c = RandomDims(seed, 1 + seed % 2).make(1 + seed % 3);
    if (c.dim.complexity() > 150)
      continue;
    const Dim simple = c.dim.within(bounds);
    const DimRange range = simple.range(bounds);
    const auto values = valuesOf(simple);
    for (int64_t past = 0, i = 0; past <= most; ++past)
      for (int64_t seq = 0; seq <= most; ++seq, ++i)
        if (seq >= 1 && past + seq <= 12) {
          ASSERT_EQ(values[i], c.values[i]) << "seed " << seed << ": " << c.dim.str() << " as "
                                            << simple.str() << " at " << past << ", " << seq;
          ASSERT_TRUE(range.lo <= values[i] && values[i] <= range.hi)
              << "seed " << seed << ": " << simple.str();
        }
  }
}

TEST(DimFunctionsTest, OneSymbolHasOneForm) {
  // What is equal for every value is equal in representation, quotients aside.
  auto same = [](const char *a, const char *b) {
    EXPECT_EQ(parsed(a), parsed(b)) << a << ", " << b;
  };
  same("max(seq - 8, 0) + min(seq, 8)", "seq");
  same("min(8, seq)", "8 - max(8 - seq, 0)");
  same("min(min(seq, 8), 5)", "min(seq, 5)");
  same("max(max(seq - 3, 0) - max(seq - 9, 0) - 6, 0)", "0");
  same("max(2*seq - 6, 0)", "2*max(seq - 3, 0)");
  same("max(2*seq - 5, 0)", "max(seq - 2, 0) + max(seq - 3, 0)");
  same("max(past - seq, 0) - max(seq - past, 0)", "past - seq");
  same("max(batch*seq - 8*batch, 0)", "batch*max(seq - 8, 0)");
  same("min(past + seq, 8) + max(seq + past - 8, 0)", "past + seq");
  same("floordiv(seq, 2) + floordiv(seq, 2)", "2*floordiv(2*seq, 4)");
  same("floordiv(floordiv(seq + 1, 2), 3)", "floordiv(seq + 1, 6)");
  same("max(floordiv(seq - 9, 2), 0)", "floordiv(max(seq - 9, 0), 2)");
  same("floordiv(4*seq + 5, 4)", "seq + 1");
}

TEST(DimFunctionsTest, Text) {
  auto prints = [](const char *text, const char *as) { EXPECT_EQ(parsed(text).str(), as); };
  prints("min(seq, 8)", "min(seq, 8)");
  prints("seq - max(seq - 8, 0)", "min(seq, 8)");
  prints("max(0, seq - 8)", "max(seq - 8, 0)");
  prints("max(seq - 3, 0) - max(seq - 9, 0)", "min(max(seq - 3, 0), 6)");
  prints("64*batch*min(seq, 8) - 1", "64*batch*min(seq, 8) - 1");
  prints("1 + min(past + seq, 8)", "min(past + seq, 8) + 1");
  prints("floordiv(seq + 1, 2) - 1", "floordiv(seq + 1, 2) - 1");
  prints("min", "min"); // a symbol
  auto refused = [](const char *text, const char *why) {
    TokenStream s(text, "dim");
    Dim d;
    ASSERT_TRUE(parseDim(s, d)) << text;
    const std::string message = llvm::toString(s.takeError());
    EXPECT_NE(message.find(why), std::string::npos) << message;
  };
  refused("floordiv(seq, 0)", "a number of at least 1");
  refused("floordiv(seq, past)", "a number of at least 1");
  refused("mean(seq, 2)", "no function of dimensions");
  refused("min(seq)", "','");
  std::string deep = "seq";
  for (int i = 0; i < 1000; ++i)
    deep = "max(" + deep + ", 1)";
  refused(deep.c_str(), "too deep");
}

TEST(DimFunctionsTest, LimitsDecide) {
  DimBounds bounds;
  EXPECT_TRUE(bounds.atMost(parsed("past + seq + 1"), 1025));
  EXPECT_FALSE(bounds.atMost(parsed("past + seq"), 2000)) << "known";
  EXPECT_FALSE(bounds.atMost(parsed("past - seq"), 3)) << "no sum";
  EXPECT_EQ(bounds.of("seq"), (DimRange{0, 1024}));
  bounds.atLeast("past", 24);
  EXPECT_EQ(bounds.of("seq"), (DimRange{0, 1000}));
  EXPECT_EQ(parsed("min(past + seq, 1024) - min(past, 1024)").within(bounds), parsed("seq"));
  EXPECT_EQ(parsed("2*past + 2*seq").range(bounds), (DimRange{48, 2048}));
  EXPECT_EQ(parsed("min(seq, 1)").within(bounds), parsed("min(seq, 1)"));
  bounds.atLeast("seq", 1);
  EXPECT_EQ(parsed("min(seq, 1)").within(bounds), parsed("1"));
  bounds.substitute("seq", Dim(1));
  EXPECT_EQ(bounds.of("past"), (DimRange{24, 1023}));
}

} // namespace
