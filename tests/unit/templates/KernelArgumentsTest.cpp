// How the kernel suite binds arguments to a kernel's parameters.
#include "tests/suite/kernels/Arguments.h"

#include <gtest/gtest.h>

namespace gpt2c::kernels {

namespace {
KernelSource kernel() {
  KernelSource k;
  k.name = "k0";
  k.params = {"x", "m", "epsilon"};
  return k;
}

std::string errorOf(const Arguments &arguments) {
  auto list = arguments.inOrder(kernel());
  return list ? "" : toString(list.takeError());
}
} // namespace

TEST(KernelArguments, StandInTheOrderOfTheParameters) {
  auto list = Arguments{{"epsilon", 0.5F}, {"m", 3}, {"x", nullptr}}.inOrder(kernel());
  ASSERT_TRUE(bool(list)) << toString(list.takeError());
  ASSERT_EQ(list->size(), 3U);
  EXPECT_TRUE(std::holds_alternative<std::nullptr_t>((*list)[0]));
  EXPECT_EQ(std::get<int>((*list)[1]), 3);
  EXPECT_EQ(std::get<float>((*list)[2]), 0.5F);
}

TEST(KernelArguments, NamesWhatIsMissingAndWhatIsUnknown) {
  EXPECT_EQ(errorOf({{"x", nullptr}, {"rows", 3}}),
            "k0 takes x, m, epsilon: its parameter 'm' has no argument; its parameter 'epsilon' "
            "has no argument; it has no parameter 'rows'");
}

TEST(KernelArguments, WhatIsOfferedMayBeUnknown) {
  Arguments all{{"x", nullptr}, {"m", 3}, {"epsilon", 0.5F}};
  EXPECT_EQ(errorOf(all.offer("n", 4)), "");
  EXPECT_NE(errorOf(all.set("n", 4)), "");
  EXPECT_EQ(errorOf(all.drop("n")), "");
  EXPECT_NE(errorOf(all.drop("m")), "");
  EXPECT_EQ(errorOf(all.offer("m", 4)), "");
}

} // namespace gpt2c::kernels
