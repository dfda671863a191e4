// A decode step of ranks with the sums over ranks in its products, as persistent kernels have it.
#include "schedule/RankStep.h"

#include "ir/Text.h"

#include <gtest/gtest.h>

namespace gpt2c {
namespace {

/// What stepOfRank() makes of a function with these ops, which end with one called %y; "": nothing.
std::string joined(const std::string &ops, const std::string &type = "f16[batch, 1, 16]") {
  const std::string text =
      "module @m {}\n\nfunc @decode_tp2(%x: f16[batch, 1, 16], %h: f16[batch, 1, 8]) -> (%y: " +
      type +
      ") {\n  %w = constant elided<\"1111111111111111\"> : f16[16, 8]\n"
      "  %w8 = constant elided<\"2222222222222222\"> : i8[16, 8]\n"
      "  %s = constant elided<\"3333333333333333\"> : f32[16, 1]\n"
      "  %b = constant elided<\"4444444444444444\"> : f16[16]\n" +
      ops + "  return %y\n}\n";
  auto module = parseModule(text, "test.ir");
  EXPECT_TRUE(bool(module)) << text;
  if (!module) {
    ADD_FAILURE() << llvm::toString(module.takeError());
    return "";
  }
  const auto f = stepOfRank(*(*module)->functions.front());
  if (!f)
    return "";
  std::string s;
  for (auto &op : f->ops())
    if (!op->is(OpCode::Constant) && !op->info().has(Terminator)) {
      s += (s.empty() ? "" : " ") + op->info().mnemonic.str();
      for (size_t i = 0; i < op->operands().size(); ++i)
        s += (i == 0 ? "(" : ", ") +
             (op->operands()[i] ? op->operands()[i]->name : std::string("none"));
      s += ")";
    }
  return s;
}

constexpr auto sums = "  %p = linear(%h, %w) {dtype = f32} : f32[batch, 1, 16]\n"
                      "  %r = all_reduce(%p) {ranks = 2} : f32[batch, 1, 16]\n"
                      "  %c = cast(%r) {to = f16} : f16[batch, 1, 16]\n";

TEST(RankStep, BiasAndResidualBehindASumAreThoseOfTheProduct) {
  EXPECT_EQ(joined(std::string(sums) + "  %d = add(%c, %b) : f16[batch, 1, 16]\n"
                                       "  %y = add(%d, %x) : f16[batch, 1, 16]\n"),
            "linear(h, w, b, x)");
  EXPECT_EQ(joined(std::string(sums) + "  %y = add(%c, %x) : f16[batch, 1, 16]\n"),
            "linear(h, w, none, x)");
}

TEST(RankStep, Int8ProductsKeepTheirScales) {
  EXPECT_EQ(joined("  %p = quantized_linear(%h, %w8, %s) {dtype = f32} : f32[batch, 1, 16]\n"
                   "  %r = all_reduce(%p) {ranks = 2} : f32[batch, 1, 16]\n"
                   "  %c = cast(%r) {to = f16} : f16[batch, 1, 16]\n"
                   "  %y = add(%c, %x) : f16[batch, 1, 16]\n"),
            "quantized_linear(h, w8, s, none, none, x)");
}

TEST(RankStep, WhatIsAddedBesidesStaysBehind) {
  // A bias comes ahead of the residual.
  EXPECT_EQ(joined(std::string(sums) + "  %d = add(%x, %c) : f16[batch, 1, 16]\n"
                                       "  %y = add(%d, %b) : f16[batch, 1, 16]\n"),
            "linear(h, w, none, x) add(d, b)");
  EXPECT_EQ(joined(std::string(sums) + "  %d = add(%c, %b) : f16[batch, 1, 16]\n"
                                       "  %y = add(%d, %b) : f16[batch, 1, 16]\n"),
            "linear(h, w, b, none) add(d, b)");
  EXPECT_EQ(joined(std::string(sums) + "  %d = add(%c, %x) : f16[batch, 1, 16]\n"
                                       "  %y = add(%d, %x) : f16[batch, 1, 16]\n"),
            "linear(h, w, none, x) add(d, x)");
}

TEST(RankStep, OtherSumsOverRanksHaveNoSuchForm) {
  // Of what is no product.
  EXPECT_EQ(joined("  %r = all_reduce(%x) {ranks = 2} : f16[batch, 1, 16]\n"
                   "  %y = add(%r, %b) : f16[batch, 1, 16]\n"),
            "");
  // Of a product that something else reads.
  EXPECT_EQ(joined("  %p = linear(%h, %w) : f16[batch, 1, 16]\n"
                   "  %r = all_reduce(%p) {ranks = 2} : f16[batch, 1, 16]\n"
                   "  %y = add(%r, %p) : f16[batch, 1, 16]\n"),
            "");
  // Each rank would add the residual of its product.
  EXPECT_EQ(joined("  %p = linear(%h, %w, none, %x) : f16[batch, 1, 16]\n"
                   "  %y = all_reduce(%p) {ranks = 2} : f16[batch, 1, 16]\n"),
            "");
  EXPECT_EQ(joined("  %p = linear(%h, %w) {activation = \"gelu_tanh\"} : f16[batch, 1, 16]\n"
                   "  %y = all_reduce(%p) {ranks = 2} : f16[batch, 1, 16]\n"),
            "");
}

TEST(RankStep, AStepOfOneIsNotAskedFor) {
  EXPECT_EQ(joined("  %y = linear(%h, %w, %b, %x) : f16[batch, 1, 16]\n"), "");
}

} // namespace
} // namespace gpt2c
