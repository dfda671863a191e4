// @generate: the stages of a decode step, what connects them, and what has none.
#include "templates/persistent/PersistentStep.h"

#include "codegen/Nvrtc.h"
#include "ir/Error.h"
#include "ir/Text.h"
#include "runtime/Expr.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

#include <gtest/gtest.h>

using namespace gpt2c;

namespace {

struct Sizes {
  int width = 32, heads = 2, vocabulary = 20;
  std::string gain = "g"; ///< of the norm of the MLP
};
const std::string greedy = "arg_max(%logits) {axis = -1, keepdims = false, dtype = i32}";

/// A decode step of one layer. `choice` makes %next of %logits.
std::string decodeStep(const std::string &t, const std::string &activation = "gelu_tanh",
                       const std::string &choice = greedy, const Sizes &sizes = {}) {
  auto str = [](int n) { return std::to_string(n); };
  auto constant = [&](const std::string &name, const std::string &shape) {
    return "  %" + name + " = constant weight<\"" + hashText(llvm::xxh3_64bits(shape)) +
           "\"> : " + t + "[" + shape + "]\n";
  };
  const std::string d = str(sizes.width), hidden = str(4 * sizes.width), qkv = str(3 * sizes.width),
                    heads = str(sizes.heads), vocabulary = str(sizes.vocabulary);
  std::string kv = t + "[1, 2, slots, " + heads + ", 64, " + str(sizes.width / sizes.heads) + "]",
              row = t + "[batch, 1, " + d + "]";
  return "func @decode(%ids: i32[batch, 1], %kv: " + kv +
         ", %past: i32[batch]) -> (%next: i32[batch], %logits: f32[batch, " + vocabulary +
         "], %kv: " + kv + ") {\n" + constant("wte", vocabulary + ", " + d) +
         constant("wpe", "64, " + d) + constant("g", d) + "  %one = constant dense<1.0> : " + t +
         "[" + d + "]\n  %zero = constant dense<0.0> : " + t + "[" + d + "]\n" +
         constant("wqkv", qkv + ", " + d) + constant("bqkv", qkv) + constant("wo", d + ", " + d) +
         constant("w1", hidden + ", " + d) + constant("w2", d + ", " + hidden) + constant("b2", d) +
         "  %x = embed(%ids, %wte, %wpe, %past) : " + row +
         "\n  %n1 = layer_norm(%x, %one, %zero) : " + row +
         "\n  %qkv = linear(%n1, %wqkv, %bqkv) : " + t + "[batch, 1, " + qkv + "]" +
         "\n  %state, %a = append_attention(%kv, %qkv, %past) {layer = 0, num_heads = " + heads +
         ", scale = 0.25} : " + kv + ", " + row + "\n  %x1 = linear(%a, %wo, none, %x) : " + row +
         "\n  %n2 = layer_norm(%x1, %" + sizes.gain + ", none) : " + row +
         "\n  %h = linear(%n2, %w1) {activation = \"" + activation + "\"} : " + t + "[batch, 1, " +
         hidden + "]" + "\n  %x2 = linear(%h, %w2, %b2, %x1) : " + row +
         "\n  %n3 = layer_norm(%x2, %g, %g) : " + row +
         "\n  %l = linear(%n3, %wte) {dtype = f32} : f32[batch, 1, " + vocabulary +
         "]\n  %logits = reshape(%l) {shape = [batch, " + vocabulary + "]} : f32[batch, " +
         vocabulary + "]\n  %next = " + choice +
         " : i32[batch]\n  return %next, %logits, %state\n}\n";
}
/// Of the sizes that thread block clusters have a kernel for.
const Sizes clustered = {768, 12, 12800, "one"};

struct Generate {
  plan::FunctionT function;
  PlanPool pool;
  std::string error;

  explicit Generate(const std::string &decode, int64_t rows = 1, bool hopper = true,
                    bool clustersOnly = false) {
    ParseOptions options;
    options.weights = [](uint64_t, const Type &type) {
      std::vector<int64_t> shape;
      int64_t count = 1;
      for (const Dim &d : type.shape)
        count *= shape.emplace_back(*d.constant());
      return Tensor::of<float>(std::vector<float>(count, 0.5f), shape).cast(type.dtype);
    };
    auto module = parseModule("module @m {}\n\n" + decode, "test.ir", options);
    pool.target = Target::of({hopper ? "sm_90a" : "sm_90"});
    if (!module)
      error = llvm::toString(module.takeError());
    else if (llvm::Error e =
                 buildPersistentStep(pool, function, *(*module)->functions.front(),
                                     {{"batch", {1, rows}}, {"slots", {1, 4}}}, rows, clustersOnly))
      error = llvm::toString(std::move(e));
  }
  const plan::ArgT &word(size_t stage, size_t i) const { return *function.steps[stage]->args[i]; }
  int64_t number(size_t stage, size_t i) const {
    std::vector<int64_t> symbols(function.symbols.size(), 1);
    auto value = rt::evalExpr(*word(stage, i).expr, symbols);
    return value ? *value : -1;
  }
};

TEST(PersistentStep, HasAStageForEachOpThatIsNotPartOfAnother) {
  Generate g(decodeStep("f16"));
  ASSERT_EQ(g.error, "");
  std::vector<std::string> ops;
  for (auto &s : g.function.steps) {
    ops.push_back(s->op);
    EXPECT_EQ(s->mode, plan::LaunchMode::Stage);
    EXPECT_EQ(s->kernel, g.function.steps[0]->kernel);
  }
  EXPECT_EQ(ops, (std::vector<std::string>{"embed", "layer_norm+linear+bias", "append_attention",
                                           "linear+residual", "layer_norm+linear+gelu_tanh",
                                           "linear+bias+residual", "layer_norm+linear",
                                           "arg_max+advance"}));
  EXPECT_EQ(g.function.name, "generate");
}

TEST(PersistentStep, StagesMeetAtChannels) {
  Generate g(decodeStep("f32"));
  ASSERT_EQ(g.error, "");
  auto same = [&](size_t a, size_t i, size_t b, size_t j) {
    return g.word(a, i).kind == plan::ArgKind::Scratch && g.word(a, i).index == g.word(b, j).index;
  };
  EXPECT_TRUE(same(0, 9, 1, 6));  // the embedding, normalised
  EXPECT_TRUE(same(1, 7, 2, 6));  // qkv
  EXPECT_TRUE(same(2, 8, 3, 6));  // the parts of attention
  EXPECT_TRUE(same(2, 9, 3, 8));  // and their maxima
  EXPECT_TRUE(same(0, 9, 3, 14)); // the residual
  EXPECT_FALSE(same(0, 9, 3, 7));
  EXPECT_EQ(g.word(6, 7).kind, plan::ArgKind::Output); // logits
}

TEST(PersistentStep, UnitsAndChunksFollowTheWeights) {
  Generate g(decodeStep("f32"));
  ASSERT_EQ(g.error, "");
  EXPECT_EQ(g.number(6, 1), 3); // 20 rows, eight a unit
  EXPECT_EQ(g.number(6, 3), 20);
  EXPECT_EQ(g.number(5, 4), 512);             // bytes of a row
  EXPECT_EQ(g.number(5, 5), 128 | 192 << 16); // 32 divides 32 and 128; 64 more than 128
  EXPECT_EQ(g.number(2, 1), 16);              // two heads, eight ranges of keys each
}

TEST(PersistentStep, SeveralSequencesShareTheRowsOfAnOperand) {
  Generate g(decodeStep("f16"), 4);
  ASSERT_EQ(g.error, "");
  EXPECT_EQ(g.number(0, 1), 16); // four rows of 64 bytes
  EXPECT_EQ(g.number(2, 1), 16); // four sequences, two heads, two ranges of keys each
  EXPECT_NE(Generate(decodeStep("f32"), 4).error.find("in fp16 only"), std::string::npos);
}

/// Elements of the weight that a word of a stage points at.
std::vector<double> elements(const Generate &g, size_t stage, size_t i) {
  const plan::ArgT &a = g.word(stage, i);
  std::vector<double> values;
  if (a.kind == plan::ArgKind::Weight)
    for (int64_t j = 0, n = g.pool.weights()[a.index].count(); j < n; ++j)
      values.push_back(g.pool.weights()[a.index].asDouble(j));
  return values;
}

TEST(PersistentStep, NormsBecomeConstantsOfTheirProducts) {
  Generate g(decodeStep("f16"));
  ASSERT_EQ(g.error, "");
  // Weights, biases and vectors are 0.5, rows have 32 elements.
  EXPECT_EQ(g.word(1, 9).kind, plan::ArgKind::Null);           // no gain
  EXPECT_EQ(elements(g, 1, 11), std::vector<double>(96, 16));  // the sums of the weights' rows
  EXPECT_EQ(elements(g, 1, 12), std::vector<double>(96, 0.5)); // the bias alone
  EXPECT_EQ(elements(g, 6, 9), std::vector<double>(32, 0.5));  // a gain below 1
  EXPECT_EQ(elements(g, 6, 11), std::vector<double>(20, 8));   // weights times gain
  EXPECT_EQ(elements(g, 6, 12), std::vector<double>(20, 8));   // weights times shift
  EXPECT_TRUE(elements(g, 4, 12).empty());                     // neither bias nor shift
}

std::vector<std::string> opsOf(const Generate &g) {
  std::vector<std::string> ops;
  for (auto &s : g.function.steps)
    ops.push_back(s->op);
  return ops;
}

TEST(PersistentStep, ClustersTakeHalvesOfLayers) {
  Generate g(decodeStep("f16", "gelu_tanh", greedy, clustered));
  ASSERT_EQ(g.error, "");
  EXPECT_EQ(opsOf(g), (std::vector<std::string>{
                          "embed", "layer_norm+linear+bias+append_attention+linear+residual",
                          "layer_norm+linear+gelu_tanh+linear+bias+residual", "layer_norm+linear",
                          "arg_max+advance"}));
  for (auto &s : g.function.steps) {
    EXPECT_EQ(s->clusters, 12u);
    EXPECT_EQ(s->cluster_blocks, 8u);
    EXPECT_EQ(s->spare_clusters, 0u); // so few rows the vocabulary has
  }
  EXPECT_NE(g.function.steps[1]->past_bytes, nullptr);
  // Partial sums of twelve heads, and those of as many parts of the MLP behind them.
  EXPECT_EQ(g.word(1, 10).index, 0);
  EXPECT_EQ(g.word(2, 10).index, 12 * 768 * 4);
  EXPECT_EQ(elements(g, 1, 3), std::vector<double>(2304, 0.5));
  EXPECT_EQ(elements(g, 1, 8), std::vector<double>(768, 0)); // no bias: zeros
  EXPECT_EQ(elements(g, 2, 8), std::vector<double>(768, 0.5));
  EXPECT_EQ(g.word(1, 5).kind, plan::ArgKind::Null); // no gain
  EXPECT_EQ(elements(g, 3, 5), std::vector<double>(768, 0.5));
  EXPECT_EQ(g.word(3, 7).kind, plan::ArgKind::Output); // logits
}

TEST(PersistentStep, ClustersTakeSeveralSequences) {
  for (int64_t rows : {2, 4, 8, 16}) {
    Generate g(decodeStep("f16", "gelu_tanh", greedy, clustered), rows);
    ASSERT_EQ(g.error, "");
    EXPECT_EQ(g.function.steps[0]->clusters, 12u);
    // Partial sums are fp16, of eight rows at least.
    EXPECT_EQ(g.word(2, 10).index, 12 * 768 * std::max<int64_t>(rows, 8) * 2);
    EXPECT_NE(g.pool.kernels()[0].text.find("Sequences = " + std::to_string(rows)),
              std::string::npos);
  }
}

TEST(PersistentStep, ClustersOnlyIsNothingElse) {
  Generate g(decodeStep("f16"), 2, true, true);
  EXPECT_NE(g.error.find("in thread block clusters only"), std::string::npos) << g.error;
  Generate many(decodeStep("f16"), 16);
  EXPECT_NE(many.error.find("in thread block clusters only"), std::string::npos) << many.error;
  Generate tooMany(decodeStep("f16", "gelu_tanh", greedy, clustered), 32);
  EXPECT_NE(tooMany.error.find("no more than 16 sequences"), std::string::npos) << tooMany.error;
}

TEST(PersistentStep, ClustersAreForTheirSizesOnly) {
  auto stages = [](const Sizes &sizes, int64_t rows = 1, bool hopper = true) {
    Generate g(decodeStep("f16", "gelu_tanh", greedy, sizes), rows, hopper);
    EXPECT_EQ(g.error, "");
    return g.function.steps.size();
  };
  EXPECT_EQ(stages(clustered), 5u);
  EXPECT_EQ(stages(clustered, 1, false), 8u);      // other architectures
  EXPECT_EQ(stages(clustered, 8), 5u);             // as many sequences as a cluster has blocks
  EXPECT_EQ(stages(clustered, 16), 5u);            // twice as many
  EXPECT_EQ(stages({768, 24, 12800, "one"}), 8u);  // heads of 32
  EXPECT_EQ(stages({1024, 16, 25600, "one"}), 8u); // more clusters than there are
  EXPECT_EQ(stages({768, 12, 12800, "g"}), 8u);    // a gain of one norm alone
  EXPECT_EQ(stages({768, 12, 2048, "one"}), 8u);   // a ring that holds more than a step
}

TEST(PersistentStep, SaysWhatHasNoStage) {
  Generate choice(decodeStep("f32", "none",
                             "arg_max(%logits) {axis = -1, keepdims = false, dtype = i32, "
                             "select_last_index = true}"));
  EXPECT_NE(choice.error.find("only the choice of the next token"), std::string::npos)
      << choice.error;
  std::string other = decodeStep("f32");
  size_t at = other.find("%n3 = layer_norm(%x2, %g, %g)");
  other.replace(at, std::string("%n3 = layer_norm(%x2, %g, %g)").size(), "%n3 = exp(%x2)");
  EXPECT_NE(Generate(other).error.find("there is no stage for it"), std::string::npos);
}

TEST(PersistentStep, CompilesForEveryArchitecture) {
  auto nvrtc = Nvrtc::load();
  if (!nvrtc) {
    llvm::consumeError(nvrtc.takeError());
    GTEST_SKIP() << "no NVRTC";
  }
  for (const char *type : {"f16", "f32"}) {
    Generate g(decodeStep(type, "gelu_erf"), type == std::string("f16") ? 2 : 1);
    ASSERT_EQ(g.error, "");
    Generate clusters(decodeStep(type, "gelu_erf", greedy, clustered));
    ASSERT_EQ(clusters.error, "");
    ASSERT_EQ(clusters.function.steps[0]->clusters, 12u);
    Generate several(decodeStep("f16", "gelu_erf", greedy, clustered),
                     type == std::string("f16") ? 4 : 16);
    ASSERT_EQ(several.error, "");
    for (const char *arch : {"sm_80", "sm_90a"})
      for (const Generate *step : {&g, &clusters, &several}) {
        auto image = (*nvrtc)->compile(moduleSource(step->pool.kernels()), "test.cu", arch);
        EXPECT_TRUE(bool(image)) << (image ? "" : llvm::toString(image.takeError()));
      }
  }
}

} // namespace
