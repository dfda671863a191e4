// @steps: the step in clusters over a state in pages.
#include "PersistentStepTest.h"

#include "codegen/Nvrtc.h"

#include "runtime/plan/FunctionNames.h"

namespace gpt2c {
namespace {

using namespace generate_tests;

/// What is read of an @extend over the state of decodeStep(): 5 pages of a sequence.
std::unique_ptr<Function> extendOf(const Sizes &sizes, int64_t pageTokens = clusterPageTokens,
                                   DType dtype = DType::F16) {
  auto f = std::make_unique<Function>(rt::functions::extend);
  f->addArgument({dtype,
                  {Dim::symbol("pages"), Dim(1), Dim(2), Dim(sizes.heads), Dim(pageTokens),
                   Dim(sizes.width / sizes.heads)}},
                 "kv");
  f->addArgument({DType::I32, {Dim::symbol("sequences"), Dim(5)}}, "tables");
  return f;
}
Generate stepsOf(const Sizes &sizes, const Function &extend, int64_t rows = 1, bool hopper = true) {
  return Generate(decodeStep("f16", "gelu_tanh", greedy, sizes), rows, hopper, {}, &extend);
}

TEST(PersistentPages, TheStateIsThatOfExtend) {
  const auto extend = extendOf(clustered);
  for (int64_t rows : {1, 2, 4, 8, 16}) {
    Generate g = stepsOf(clustered, *extend, rows);
    ASSERT_EQ(g.error, "");
    EXPECT_EQ(g.function.name, rt::functions::steps);
    ASSERT_EQ(g.function.steps.size(), 5u);
    EXPECT_EQ(g.function.steps.back()->op, "arg_max");
    std::vector<std::string> names;
    for (auto &port : g.function.inputs)
      names.push_back(port->name);
    EXPECT_EQ(names, (std::vector<std::string>{"ids", "kv", "past", "tables", "choices"}));
    for (auto *ports : {&g.function.inputs, &g.function.outputs})
      for (auto &port : *ports)
        EXPECT_EQ(port->role == plan::Role::KvState, port->shape.size() == 6);
    EXPECT_NE(g.pool.kernels()[0].text.find("/*PageColumns=*/5"), std::string::npos);
  }
}

/// Those that are left are for what chooses behind the step.
TEST(PersistentPages, LeaveMultiprocessors) {
  const auto extend = extendOf(clustered);
  for (int64_t rows : {1, 16}) {
    const Generate g = stepsOf(clustered, *extend, rows);
    ASSERT_EQ(g.error, "");
    const plan::StepT &step = *g.function.steps.front();
    const int64_t blocks = 8 * (step.clusters + step.spare_clusters);
    EXPECT_GE(blocks, 96);
    EXPECT_TRUE(leavesProcessors(g.function, 4, g.pool.target));
    EXPECT_TRUE(leavesProcessors(g.function, 132 - blocks, g.pool.target));
    EXPECT_FALSE(leavesProcessors(g.function, 133 - blocks, g.pool.target));
  }
}

TEST(PersistentPages, SharesTakeThemToo) {
  const Sizes sizes{1024, 16, 512, "one"};
  const auto extend = extendOf(sizes);
  for (int64_t rows : {1, 2, 8, 16}) {
    Generate g = stepsOf(sizes, *extend, rows);
    ASSERT_EQ(g.error, "");
    ASSERT_EQ(g.function.steps.size(), 5u);
    EXPECT_EQ(g.function.steps.back()->op, "arg_max");
    const std::string &text = g.pool.kernels()[0].text;
    EXPECT_NE(text.find("SharesConfig"), std::string::npos);
    EXPECT_NE(text.find("/*PageColumns=*/5"), std::string::npos);
    const auto step = g.record<StepRecord>(4);
    EXPECT_EQ(g.port(step.stage.weights), "tables");
    EXPECT_TRUE(isNull(step.tokens) && isNull(step.stepIndex));
    // They do not draw, so nothing says that they could.
    EXPECT_TRUE(isNull(g.record<VocabularyRecord>(3).choices));
    EXPECT_EQ(std::ranges::count(g.function.inputs, "choices", [](auto &i) { return i->name; }), 0);
  }
  EXPECT_NE(stepsOf(sizes, *extend, 17).error.find("of up to 16 sequences"), std::string::npos);
  EXPECT_NE(stepsOf(sizes, *extendOf(sizes, 128)).error.find("its state is in other pages"),
            std::string::npos);
}

TEST(PersistentPages, CompileForHopper) {
  auto nvrtc = Nvrtc::load();
  if (!nvrtc) {
    llvm::consumeError(nvrtc.takeError());
    GTEST_SKIP() << "no NVRTC";
  }
  for (auto &[sizes, rows] : {std::pair(clustered, 1), {Sizes{1024, 16, 512, "one"}, 4}}) {
    const auto extend = extendOf(sizes);
    const Generate g = stepsOf(sizes, *extend, rows);
    ASSERT_EQ(g.error, "");
    auto image = (*nvrtc)->compile(moduleSource(g.pool.kernels()), "test.cu", "sm_90a");
    EXPECT_TRUE(bool(image)) << (image ? "" : llvm::toString(image.takeError()));
  }
}

TEST(PersistentPages, NothingIsAdvanced) {
  const auto extend = extendOf(clustered);
  Generate g = stepsOf(clustered, *extend);
  ASSERT_EQ(g.error, "");
  const auto step = g.record<StepRecord>(4);
  EXPECT_EQ(g.number(step.steps), 1);
  EXPECT_EQ(g.port(step.stage.weights), "tables");
  EXPECT_EQ(g.number(step.stage.rows), 5);
  EXPECT_EQ(g.port(step.next), "next");
  EXPECT_TRUE(isNull(step.tokens) && isNull(step.stepIndex));
  EXPECT_EQ(g.port(g.record<VocabularyRecord>(3).choices), "choices");
  Generate whole(decodeStep("f16", "gelu_tanh", greedy, clustered));
  EXPECT_EQ(whole.port(whole.record<StepRecord>(4).tokens), "tokens");
  EXPECT_TRUE(isNull(whole.record<VocabularyRecord>(3).choices));
  EXPECT_NE(whole.pool.kernels()[0].text.find("/*PageColumns=*/0"), std::string::npos);
}

TEST(PersistentPages, OtherStepsHaveNone) {
  const Sizes small;
  auto errorOf = [](const Sizes &sizes, const std::unique_ptr<Function> &extend,
                    bool hopper = true) { return stepsOf(sizes, *extend, 1, hopper).error; };
  for (const std::string &error :
       {errorOf(small, extendOf(small)),                // no clusters of its sizes
        errorOf(clustered, extendOf(clustered), false), // nor on this architecture
        errorOf(clustered, extendOf(clustered, 128)),   // pages of another size
        errorOf(clustered, extendOf(clustered, 64, DType::F32))})
    EXPECT_NE(error.find("a state in pages"), std::string::npos) << error;
}

} // namespace
} // namespace gpt2c
