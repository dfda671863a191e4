// Memory of tensors that is used again.
#include "ir/Storage.h"
#include "ir/Budget.h"
#include "ir/Executor.h"
#include "ir/Text.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

using namespace gpt2c;

namespace {

// Rows of a gated MLP with a residual.
constexpr const char *kBlock = R"(module @block {}

func @f(%x: f32[rows, 64], %g: f32[64], %w: f32[256, 64], %v: f32[64, 128]) -> (%y: f32[rows, 64]) {
  %n = rms_norm(%x, %g) : f32[rows, 64]
  %h = linear(%n, %w) : f32[rows, 256]
  %a = gated(%h) {activation = "silu"} : f32[rows, 128]
  %y = linear(%a, %v, none, %x) : f32[rows, 64]
  return %y
}
)";

Tensor ramp(llvm::ArrayRef<int64_t> shape) {
  Tensor t(DType::F32, shape);
  for (int64_t i = 0; i < t.count(); ++i)
    t.data<float>()[i] = float(i % 17 - 8) / 16;
  return t;
}

TEST(Storage, ACallAllocatesWhatThoseBeforeItDidNot) {
  auto module = parseModule(kBlock, "block");
  ASSERT_TRUE(bool(module)) << llvm::toString(module.takeError());
  Executor executor(*(*module)->function("f"));
  const std::vector<Tensor> weights{ramp({64}), ramp({256, 64}), ramp({64, 128})};
  auto call = [&](int64_t rows) {
    std::vector<Tensor> arguments{ramp({rows, 64})};
    arguments.insert(arguments.end(), weights.begin(), weights.end());
    return llvm::cantFail(executor.run(arguments))[0];
  };
  const Tensor plain = call(9);
  const auto pool = std::make_shared<StoragePool>();
  const StoragePool::Scope scope(pool);
  call(9);
  const size_t first = pool->allocations();
  EXPECT_GT(first, 0u);
  for (int i = 0; i < 3; ++i) {
    const Tensor again = call(9);
    EXPECT_EQ(std::memcmp(again.raw(), plain.raw(), plain.bytes()), 0);
  }
  EXPECT_EQ(pool->allocations(), first);
}

TEST(Storage, TensorsOutliveTheirPoolAndGoOnAnyThread) {
  Tensor kept;
  {
    const auto pool = std::make_shared<StoragePool>();
    const StoragePool::Scope scope(pool);
    kept = Tensor::zeros(DType::I32, {1000});
    Tensor other = Tensor::zeros(DType::I32, {1000});
    std::thread([gone = std::move(other)] {}).join();
    EXPECT_NE(Tensor(DType::I32, {1000}).raw(), kept.raw());
    EXPECT_EQ(pool->allocations(), 4u); // of two tensors the bytes, and what counts their copies
    for (int i = 0; i < 5; ++i)
      Tensor(DType::I32, {1000});
    EXPECT_EQ(pool->allocations(), 4u);
  }
  EXPECT_EQ(kept.asInt(999), 0);
  const auto unused = std::make_shared<StoragePool>();
  Tensor outside(DType::F32, {8});
  EXPECT_EQ(unused->allocations(), 0u);
}

TEST(Storage, NoMoreIsKeptThanWasUsed) {
  const auto pool = std::make_shared<StoragePool>();
  const StoragePool::Scope scope(pool);
  for (int64_t n = 1; n < 400; ++n) // sizes that share little
    Tensor::zeros(DType::F32, {n * 1000});
  const size_t before = pool->allocations();
  Tensor::zeros(DType::F32, {1000}); // gone, to make room for larger ones
  EXPECT_GT(pool->allocations(), before);
}

TEST(Storage, ABudgetGetsBackWhatItLent) {
  const auto pool = std::make_shared<StoragePool>();
  const StoragePool::Scope scope(pool);
  Budget budget(5000, INT64_MAX);
  for (int i = 0; i < 10; ++i)
    Tensor::zeros(DType::F32, {1000});
  Tensor first(DType::F32, {1000});
  EXPECT_THROW(Tensor(DType::F32, {1000}), TensorTooLarge);
}

} // namespace
