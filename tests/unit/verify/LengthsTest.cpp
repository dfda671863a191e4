// Which constants of a graph meet lengths.
#include "verify/Lengths.h"

#include "ir/Text.h"

#include <gtest/gtest.h>

using namespace gpt2c;

namespace {

std::vector<int64_t> lengthsOf(const std::string &body) {
  auto module = parseModule("func @main(%ids: i64[batch, seq], %x: f32[batch, seq, 8]) -> "
                            "(f32[batch, seq, 8]) {\n" +
                                body + "  return %x\n}\n",
                            "test");
  if (!module) {
    ADD_FAILURE() << llvm::toString(module.takeError());
    return {};
  }
  return constantLengths(*(*module)->functions.front());
}

using Lengths = std::vector<int64_t>;

TEST(ConstantLengths, OfComparisonsAndArithmeticOfSizes) {
  EXPECT_EQ(lengthsOf("  %n = constant dense<11> : i64[]\n"
                      "  %eight = constant dense<8.0> : f32[]\n"
                      "  %s = shape(%x) : i64[3]\n"
                      "  %e = equal(%s, %n) : bool[3]\n"
                      "  %f = cast(%s) {to = f32} : f32[3]\n"
                      "  %d = div(%f, %eight) : f32[3]\n"),
            (Lengths{8, 11}));
}

TEST(ConstantLengths, OfSlicesAlongAxesOfNoFixedLength) {
  EXPECT_EQ(lengthsOf("  %a = slice(%x) {starts = [-20], ends = [2147483647], axes = [1]} : "
                      "f32[batch, min(seq, 20), 8]\n"
                      "  %b = slice(%x) {starts = [4], ends = [6], axes = [2]} : "
                      "f32[batch, seq, 2]\n"
                      "  %c = slice(%ids) {starts = [9], ends = [2147483647], axes = [1]} : "
                      "i64[batch, max(seq - 9, 0)]\n"),
            (Lengths{9, 20}));
}

TEST(ConstantLengths, NotOfWhatMeetsNumbersOfTheModel) {
  EXPECT_EQ(lengthsOf("  %eight = constant dense<8.0> : f32[]\n"
                      "  %d = div(%x, %eight) : f32[batch, seq, 8]\n"
                      "  %a = constant dense<64.0> : f32[]\n"
                      "  %b = mul(%a, %eight) : f32[]\n"),
            Lengths{});
}

} // namespace
