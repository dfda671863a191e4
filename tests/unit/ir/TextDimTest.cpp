// Symbols and coefficients at their limits.
#include "ir/Builder.h"
#include "ir/Literals.h"
#include "ir/Text.h"

#include <gtest/gtest.h>
#include <limits>

using namespace gpt2c;

static std::string reprinted(llvm::StringRef text) {
  TokenStream s(text, "dim");
  Dim d;
  if (parseDim(s, d))
    return llvm::toString(s.takeError());
  return d.str();
}

TEST(TextDimTest, Canonical) {
  EXPECT_EQ(reprinted("seq + past"), "past + seq");
  EXPECT_EQ(reprinted("3*b*2*a - a*b"), "5*a*b");
  EXPECT_EQ(reprinted("-a - -1"),
            "dim:1:6: error: expected a dimension: an integer or a symbol, found '-'\n"
            "-a - -1\n     ^\n");
  EXPECT_EQ(reprinted("-a + 1 - 1"), "-a");
  EXPECT_EQ(reprinted("0*a"), "0");
}

TEST(TextDimTest, Extremes) {
  EXPECT_EQ(reprinted("-9223372036854775808"), "-9223372036854775808");
  EXPECT_EQ(reprinted("9223372036854775807*n"), "9223372036854775807*n");
  EXPECT_EQ(reprinted("n*n - 9223372036854775808*n"), "n*n - 9223372036854775808*n");
  EXPECT_NE(reprinted("9223372036854775808").find("integer out of range"), std::string::npos);
  EXPECT_NE(reprinted("99999999999999999999999").find("integer out of range"), std::string::npos);
  Dim low(std::numeric_limits<int64_t>::min()), n = Dim::symbol("n");
  EXPECT_EQ(*low.exactDiv(Dim(-1)), low);
  EXPECT_EQ(low.evaluate({}), std::numeric_limits<int64_t>::min());
  SymbolMap symbols;
  symbols["n"] = int64_t(1) << 40;
  EXPECT_EQ((n * n).evaluate(symbols), std::nullopt);
  EXPECT_EQ((n + n).evaluate(symbols), int64_t(1) << 41);
}

TEST(TextDimTest, NewSymbolsAreNew) {
  // A text may use the spelling of the symbols that inference makes.
  std::string shape = "u0";
  for (int i = 1; i < 100; ++i)
    shape += ", u" + std::to_string(i);
  std::string text = "func @f(%x: f32[" + shape + "]) -> (f32[" + shape + "]) {\n  return %x\n}\n";
  auto m = parseModule(text, "text");
  ASSERT_TRUE(!!m) << llvm::toString(m.takeError());
  Function &f = *(*m)->functions[0];
  Value *x = f.argument(0u);
  Builder b(f, f.terminator());
  auto found = b.value(OpCode::NonZero, {x});
  ASSERT_TRUE(!!found) << llvm::toString(found.takeError());
  Dim made = (*found)->type.shape[1];
  ASSERT_TRUE(made.asSymbol());
  for (const Dim &d : x->type.shape)
    EXPECT_NE(d, made);
}
