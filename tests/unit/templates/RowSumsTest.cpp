#include "codegen/StepBuilder.h"

#include <gtest/gtest.h>

namespace gpt2c {
namespace {

TEST(RowSums, AreSummedOverColumns) {
  PlanPool pool;
  Tensor w = Tensor::of<float>({1, 2, 3, 4, 5, 6}, {2, 3}).cast(DType::F16);
  Tensor factors = Tensor::of<float>({1, 0, -2}, {3});
  int plain = pool.rowSums(w, nullptr), scaled = pool.rowSums(w, &factors);
  EXPECT_NE(plain, scaled);
  EXPECT_EQ(pool.rowSums(w, nullptr), plain);
  EXPECT_EQ(pool.rowSums(w, &factors), scaled);
  auto elements = [&](int index) {
    const Tensor &t = pool.weights()[index];
    EXPECT_EQ(t.dtype(), DType::F32);
    EXPECT_EQ(t.shape(), llvm::ArrayRef<int64_t>({2}));
    return std::pair(t.asDouble(0), t.asDouble(1));
  };
  EXPECT_EQ(elements(plain), std::pair(6.0, 15.0));
  EXPECT_EQ(elements(scaled), std::pair(-5.0, -8.0));
}

} // namespace
} // namespace gpt2c
