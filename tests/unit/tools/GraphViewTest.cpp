#include "tools/common/report/GraphView.h"

#include "ir/Text.h"

#include "gtest/gtest.h"

namespace gpt2c {
namespace {

GraphView viewOfText(const std::string &body) {
  auto module = parseModule("module @m\n" + body, "test");
  EXPECT_TRUE(bool(module)) << llvm::toString(module.takeError());
  return viewOf(*(*module)->functions[0]);
}

TEST(GraphView, ConstantsAreLinesOfTheirReaders) {
  GraphView v = viewOfText(R"(func @f(%x: f32[n, 4], %y: f32[n, 4]) -> (f32[n, 4]) {
  %w = constant dense<1.0> : f32[4, 4]
  %0 = linear(%x, %w, none, %y) {activation = "relu"} : f32[n, 4] loc("a", "b")
  %1 = add(%0, %0) : f32[n, 4]
  return %1
})");
  EXPECT_EQ(v.arguments, (std::vector<std::string>{"x: f32[n, 4]", "y: f32[n, 4]"}));
  ASSERT_EQ(v.nodes.size(), 3u);
  EXPECT_EQ(v.nodes[0].title, "linear + residual");
  EXPECT_EQ(v.nodes[0].attributes, std::vector<std::string>{"activation = relu"});
  EXPECT_EQ(v.nodes[0].constants, std::vector<std::string>{"w: f32[4, 4]"});
  EXPECT_EQ(v.nodes[0].types, std::vector<std::string>{"f32[n, 4]"});
  EXPECT_EQ(v.nodes[0].inputs, (std::vector<int>{-1, -2}));
  EXPECT_EQ(v.nodes[0].from, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(v.nodes[0].cost.flops.str(), "32*n");
  EXPECT_EQ(v.nodes[1].inputs, std::vector<int>{0}) << "each input once";
}

/// embed (exp tanh relu) * count sqrt, as the layers of a model follow each other.
std::string layered(int count, bool different = false) {
  std::string text = "func @f(%x: f32[n]) -> (f32[n]) {\n  %0 = neg(%x) : f32[n]\n";
  int last = 0;
  auto op = [&](const std::string &name) {
    text += "  %" + std::to_string(last + 1) + " = " + name + "(%" + std::to_string(last) +
            ") : f32[n]\n";
    ++last;
  };
  for (int i = 0; i < count; ++i)
    for (const char *name : {"exp", "tanh", "relu"})
      op(different && i == count - 1 && std::string(name) == "tanh" ? "sin" : name);
  op("sqrt");
  return text + "  return %" + std::to_string(last) + "\n}";
}

TEST(GraphView, LayersThatLookAlikeAreARepeat) {
  Repeat r = findRepeat(viewOfText(layered(5)));
  EXPECT_EQ(r.first, 1u);
  EXPECT_EQ(r.period, 3u);
  EXPECT_EQ(r.count, 5u);
  EXPECT_EQ(r.representative(0), 0u);
  EXPECT_EQ(r.representative(1), 1u);
  EXPECT_EQ(r.representative(11), 2u);
  EXPECT_EQ(r.representative(15), 3u);
  EXPECT_EQ(r.representative(16), 16u);
}

TEST(GraphView, ALayerThatDiffersStaysOutOfTheRepeat) {
  Repeat r = findRepeat(viewOfText(layered(5, true)));
  EXPECT_EQ(r.count, 4u);
  EXPECT_EQ(r.period, 3u);
}

TEST(GraphView, NothingRepeatsInAGraphOfDifferentOps) {
  Repeat r = findRepeat(viewOfText(layered(1)));
  EXPECT_EQ(r.count, 1u);
  EXPECT_EQ(r.representative(2), 2u);
}

} // namespace
} // namespace gpt2c
