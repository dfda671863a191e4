#include "tools/common/report/Dot.h"

#include "ir/Text.h"

#include "gtest/gtest.h"

namespace gpt2c {
namespace {

std::string dotOf(llvm::StringRef text, llvm::ArrayRef<std::string> functions = {}) {
  auto module = parseModule(text, "test");
  EXPECT_TRUE(bool(module)) << llvm::toString(module.takeError());
  std::string out;
  llvm::raw_string_ostream os(out);
  writeDot(**module, functions, os);
  return out;
}

bool has(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

constexpr const char *twoFunctions = R"(
module @m
func @a(%x: f32[n, 4]) -> (f32[n, 4]) {
  %0 = relu(%x) : f32[n, 4] loc("one")
  %w = constant dense<1.0> : f32[4, 4]
  %1 = linear(%0, %w) {activation = "relu"} : f32[n, 4] loc("two", "three")
  return %1
}
func @b(%x: f32[n]) -> (f32[n]) {
  %0 = neg(%x) : f32[n]
  return %0
}
)";

TEST(Dot, OpsAreBoxesAndFusedNodesClusters) {
  std::string dot = dotOf(twoFunctions);
  EXPECT_TRUE(has(dot, "f0_0 [label = \"relu\\l-> f32[n, 4]\\lfrom one\\l\"];")) << dot;
  EXPECT_TRUE(has(dot, "subgraph cluster_f0_1 {\n      label = \"2 nodes\"")) << dot;
  EXPECT_TRUE(has(dot, "\"linear\\lactivation = relu\\lw: f32[4, 4]\\l-> f32[n, 4]\\l\"")) << dot;
  EXPECT_TRUE(has(dot, "f0_0 -> f0_1;")) << dot;
  EXPECT_FALSE(has(dot, "constant")) << "constants are lines of their readers\n" << dot;
  EXPECT_TRUE(has(dot, "f1_in0 -> f1_0;")) << dot;
}

TEST(Dot, FunctionsCanBeChosen) {
  std::string dot = dotOf(twoFunctions, {"b"});
  EXPECT_FALSE(has(dot, "\"@a\""));
  EXPECT_TRUE(has(dot, "\"@b\""));
}

TEST(Dot, NamesCannotEndAString) {
  std::string dot = dotOf(R"(
module @"a\"]; b"
func @f(%x: f32[n]) -> (f32[n]) {
  %0 = neg(%x) : f32[n] loc("evil\"];\\")
  return %0
}
)");
  EXPECT_TRUE(has(dot, R"(digraph "a\"]; b" {)")) << dot;
  EXPECT_TRUE(has(dot, R"(from evil\"];\\\l")")) << dot;
}

} // namespace
} // namespace gpt2c
