// Products of int8: every level has the exact sums, the largest there can be among them.
#include "ir/ops/IntegerProduct.h"

#include <gtest/gtest.h>

#include <array>
#include <random>
#include <vector>

namespace gpt2c {
namespace {

TEST(IntegerProduct, IsExactAtEveryLevel) {
  std::mt19937 random(7);
  std::uniform_int_distribution<int> any(-128, 127);
  for (auto [m, n, k] : {std::array<int64_t, 3>{1, 1, 1},
                         {1, 4, 64},
                         {2, 9, 15},
                         {3, 5, 100},
                         {5, 13, 129},
                         {4, 8, 576},
                         {7, 6, 131071}})
    for (bool extreme : {false, true}) {
      const int64_t pad = 3; // rows are further apart than they are long
      std::vector<int8_t> a(m * (k + pad)), b(n * (k + pad));
      for (int8_t &x : a)
        x = int8_t(extreme ? -128 : any(random));
      for (int8_t &x : b)
        x = int8_t(extreme ? (random() % 2 ? -128 : 127) : any(random));
      for (int level = 0; level <= int(machineLevel()); ++level) {
        std::vector<int32_t> c(m * (n + 1), 12345);
        integerProduct({a.data(), k + pad}, {b.data(), k + pad, true}, {c.data(), n + 1}, m, n, k,
                       CpuLevel(level));
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            int64_t sum = 0;
            for (int64_t l = 0; l < k; ++l)
              sum += int64_t(a[i * (k + pad) + l]) * b[j * (k + pad) + l];
            ASSERT_EQ(c[i * (n + 1) + j], sum)
                << m << " x " << n << " x " << k << " at level " << level;
          }
          ASSERT_EQ(c[i * (n + 1) + n], 12345) << "behind the row";
        }
      }
    }
}

} // namespace
} // namespace gpt2c
