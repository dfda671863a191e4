// What the reference executor does not run.
#include "ir/Executor.h"
#include "ir/Text.h"

#include <gtest/gtest.h>

using namespace gpt2c;

TEST(Executor, HoldsToTheLimitsOfAFunction) {
  auto m = parseModule(R"(
func @f(%x: f32[seq]) -> (f32[seq]) where seq <= 5 {
  %y = neg(%x) : f32[seq]
  return %y
}
)",
                       "test");
  ASSERT_TRUE(bool(m)) << llvm::toString(m.takeError());
  Executor executor(*(*m)->functions[0]);
  EXPECT_TRUE(bool(executor.run({Tensor::zeros(DType::F32, {5})})));
  auto more = executor.run({Tensor::zeros(DType::F32, {6})});
  ASSERT_FALSE(bool(more));
  EXPECT_EQ(llvm::toString(more.takeError()), "@f takes at most 5 of seq, 6 given");
}
