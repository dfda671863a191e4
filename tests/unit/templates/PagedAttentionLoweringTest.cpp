// Attention over pages: which kernel a version of @extend has, and how its tensor maps follow the
// number of pages.
#include "tests/unit/templates/LoweredText.h"

#include "runtime/plan/Expr.h"

#include "llvm/Support/FormatVariadic.h"

#include <gtest/gtest.h>

#include <string>

namespace gpt2c {
namespace {

struct Call {
  std::string type = "f16", arch = "sm_90a", attrs = "";
  int heads = 8, kvHeads = 2, headDim = 64;
  int64_t rows = 256, pieces = 12, sequences = 8;
};

/// The step that computes attention; its kernel's name is without the hash.
struct Built {
  std::string kernel;
  std::unique_ptr<plan::StepT> step;
};

Built build(const Call &c) {
  const std::string row = llvm::formatv("{0}", (c.heads + 2 * c.kvHeads) * c.headDim),
                    qkv = c.type + "[1, rows, " + row + "]",
                    y = llvm::formatv("{0}[1, rows, {1}]", c.type, c.heads * c.headDim),
                    kv = llvm::formatv("{0}[pages, 3, 2, {1}, 64, {2}]", c.type, c.kvHeads,
                                       c.headDim);
  const std::string text =
      "module @m {}\n\nfunc @f(%qkv: " + qkv + ", %kv: " + kv +
      ", %pieces: i32[pieces, 4], %tables: i32[sequences, 16]) -> (%y: " + y + ", %next: " + kv +
      ") {\n  %next, %y = append_attention(%kv, %qkv, %pieces, %tables) {layer = 1, num_heads = " +
      std::to_string(c.heads) + ", scale = 0.125, paged = true" + c.attrs + "} : " + kv + ", " + y +
      "\n  return %y, %next\n}\n";
  LoweredText lowered(text, c.arch,
                      {{"rows", {1, c.rows}},
                       {"pieces", {1, c.pieces}},
                       {"sequences", {1, c.sequences}},
                       {"pages", {1, 1 << 24}}});
  if (lowered.function.steps.empty())
    return {};
  auto &last = lowered.function.steps.back();
  return {lowered.kernelOf(*last), std::move(last)};
}

TEST(PagedAttentionLowering, ManyRowsAreTilesOfHopper) {
  const std::string tiles = "attention_pages_wgmma", wide = "attention_pages_wide",
                    other = "attention_pages";
  EXPECT_EQ(build({}).kernel, tiles);
  EXPECT_EQ(build({.type = "bf16"}).kernel, tiles);
  EXPECT_EQ(build({.kvHeads = 8}).kernel, tiles);
  EXPECT_EQ(build({.rows = 17}).kernel, tiles);
  EXPECT_EQ(build({.rows = 16}).kernel, other);
  EXPECT_EQ(build({.rows = 129, .sequences = 9}).kernel, tiles);
  EXPECT_EQ(build({.rows = 128, .sequences = 9}).kernel, other);
  EXPECT_EQ(build({.type = "f32"}).kernel, other);
  EXPECT_EQ(build({.headDim = 80}).kernel, wide);
  EXPECT_EQ(build({.headDim = 80, .rows = 16}).kernel, other);
  EXPECT_EQ(build({.headDim = 72}).kernel, other);
  EXPECT_EQ(build({.arch = "sm_80", .headDim = 80}).kernel, other);
  EXPECT_EQ(build({.arch = "sm_80"}).kernel, other);
  EXPECT_EQ(build({.attrs = ", window = 32"}).kernel, wide);
}

TEST(PagedAttentionLowering, MapsFollowTheNumberOfPages) {
  const Built built = build({});
  ASSERT_TRUE(built.step);
  std::vector<const plan::TensorMapT *> maps;
  for (auto &arg : built.step->args)
    if (arg->map)
      maps.push_back(arg->map.get());
  ASSERT_EQ(maps.size(), 2U); // of rows, and of the state: in the order of the function's symbols
  EXPECT_EQ(maps[0]->columns, (8 + 2 * 2) * 64);
  EXPECT_EQ(maps[1]->columns, 64);
  const auto range = [](const plan::ExprT &e, rt::Range pages) {
    // qkv's rows come first, then those of the state, the pieces and the sequences.
    const rt::Range symbols[] = {{200, 200}, pages, {4, 4}, {1, 1}};
    return *rt::exprRange(e, symbols);
  };
  EXPECT_EQ(range(*maps[0]->rows, {5, 5}).hi, 200);
  EXPECT_EQ(range(*maps[1]->matrices, {5, 5}).hi, 5 * 3 * 2 * 2);
  EXPECT_EQ(range(*maps[1]->matrices, {1, 1}).lo, 3 * 2 * 2);
}

} // namespace
} // namespace gpt2c
