// @generate: the stages of a decode step, what connects them, and what has none.
#include "PersistentStepTest.h"

#include "codegen/Nvrtc.h"
#include "ir/Error.h"

#include "llvm/Support/raw_ostream.h"

#include <set>

using namespace gpt2c;
using namespace gpt2c::generate_tests;

namespace {

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
  const auto embed = g.record<EmbedRecord>(0);
  const auto attention = g.record<AttentionRecord>(2);
  const auto qkv = g.linear(1), projection = g.linear(3), hidden = g.linear(4),
             output = g.linear(5);
  EXPECT_TRUE(isSame(embed.y, qkv.x)); // normalised
  EXPECT_TRUE(isSame(qkv.y, attention.qkv));
  EXPECT_TRUE(isSame(attention.out, projection.x));
  EXPECT_TRUE(isSame(attention.maxima, projection.terms.maxima));
  EXPECT_TRUE(isSame(embed.y, projection.residual));
  EXPECT_TRUE(isSame(projection.y, hidden.x));
  EXPECT_TRUE(isSame(hidden.y, output.x));
  EXPECT_TRUE(isSame(projection.y, output.residual));
  EXPECT_TRUE(isSame(output.y, g.record<LogitsRecord>(6).x));
  std::set<int> places;
  for (PlanWords::Word y :
       {embed.y, qkv.y, attention.out, attention.maxima, projection.y, hidden.y, output.y})
    places.insert(y->index);
  EXPECT_EQ(places.size(), 7u);
  EXPECT_EQ(g.port(g.record<LogitsRecord>(6).logits), "logits");
}

TEST(PersistentStep, UnitsAndChunksFollowTheWeights) {
  Generate g(decodeStep("f32"));
  ASSERT_EQ(g.error, "");
  const auto logits = g.record<LogitsRecord>(6);
  EXPECT_EQ(g.number(logits.stage.units), 3); // 20 rows, eight a unit
  EXPECT_EQ(g.number(logits.stage.rows), 20);
  const auto output = g.linear(5);
  EXPECT_EQ(g.number(output.stage.rowBytes), 512);
  EXPECT_EQ(g.low(output.stage.chunk), 128);  // 32 divides 32 and 128
  EXPECT_EQ(g.high(output.stage.chunk), 192); // 64 more than 128
  // Two heads, eight ranges of keys each.
  EXPECT_EQ(g.number(g.record<AttentionRecord>(2).stage.units), 16);
}

// Members of records by their names: what the loader puts in the place of each.
TEST(PersistentStep, RecordsOfBlocksAreWhatWasMeant) {
  Generate g(decodeStep("f32"));
  ASSERT_EQ(g.error, "");
  const auto embed = g.record<EmbedRecord>(0);
  EXPECT_EQ(g.low(embed.stage.kind), EmbedStage);
  EXPECT_EQ(g.number(embed.stage.units), 8); // 32 columns of 4 bytes
  EXPECT_TRUE(isNull(embed.stage.weights));
  EXPECT_EQ(g.shapeOf(embed.tokens), (std::vector<int64_t>{20, 32}));
  EXPECT_EQ(g.shapeOf(embed.positions), (std::vector<int64_t>{64, 32}));
  EXPECT_EQ(g.number(embed.positionCount), 64);
  EXPECT_TRUE(isNull(embed.scales));

  const auto attention = g.record<AttentionRecord>(2);
  EXPECT_EQ(g.low(attention.stage.kind), AttentionStage);
  EXPECT_TRUE(isNull(attention.stage.weights));
  EXPECT_EQ(g.port(attention.kv), "kv");
  EXPECT_EQ(g.number(attention.layer), 0);
  EXPECT_EQ(attention.batchMax->kind, plan::ArgKind::I32);
  EXPECT_EQ(g.number(attention.context), 64);
  EXPECT_EQ(attention.scale->f32, 0.25f);
  EXPECT_EQ(g.number(attention.batch), 1);

  const auto hidden = g.linear(4);
  EXPECT_GE(g.low(hidden.stage.kind), LinearStage);
  EXPECT_EQ(g.high(hidden.stage.kind), 1); // 16 units of 132 blocks: one a round
  EXPECT_EQ(g.number(hidden.stage.units), 16);
  EXPECT_EQ(g.shapeOf(hidden.stage.weights), (std::vector<int64_t>{128, 32}));
  EXPECT_EQ(g.number(hidden.stage.rows), 128);
  EXPECT_EQ(g.number(hidden.stage.rowBytes), 128);
  EXPECT_TRUE(isNull(hidden.terms.maxima));
  EXPECT_EQ(g.elements(hidden.terms.gain), std::vector<double>(32, 0.5));
  EXPECT_EQ(hidden.terms.epsilon->f32, 1e-5f);
  EXPECT_EQ(g.elements(hidden.terms.sums), std::vector<double>(128, 8));
  EXPECT_TRUE(isNull(hidden.terms.bias));
  EXPECT_TRUE(isNull(hidden.terms.scales));
  EXPECT_TRUE(isNull(hidden.residual));
  // The same form has the same kind, another one another.
  EXPECT_NE(g.low(hidden.stage.kind), g.low(g.linear(5).stage.kind));

  const auto logits = g.record<LogitsRecord>(6);
  EXPECT_EQ(g.shapeOf(logits.stage.weights), (std::vector<int64_t>{20, 32}));
  EXPECT_EQ(logits.terms.epsilon->f32, 1e-5f);
  EXPECT_EQ(g.number(logits.batch), 1);

  const auto step = g.record<StepRecord>(7);
  EXPECT_EQ(g.number(step.stage.units), 0);
  EXPECT_EQ(g.number(step.steps), 1);
  EXPECT_EQ(g.port(step.ids), "ids");
  EXPECT_EQ(g.port(step.past), "past");
  EXPECT_EQ(g.port(step.next), "next");
  EXPECT_EQ(g.port(step.tokens), "tokens");
  EXPECT_EQ(g.port(step.stepIndex), "step");
  EXPECT_EQ(step.channels->kind, plan::ArgKind::Scratch);
  EXPECT_EQ(step.channels->index, 0);
  EXPECT_EQ(g.number(step.channelBytes), 4 * g.number(step.copyBytes));
  EXPECT_EQ(g.number(step.batch), 1);
  EXPECT_EQ(g.function.scratch_bytes,
            uint64_t(2 * g.number(step.channelBytes) + 8 * choiceWords(1)));
}

TEST(PersistentStep, RecordsOfClustersAreWhatWasMeant) {
  Generate g(decodeStep("f16", "gelu_tanh", greedy, clustered));
  ASSERT_EQ(g.error, "");
  const auto embed = g.record<ClusterEmbedRecord>(0);
  EXPECT_EQ(g.shapeOf(embed.tokens), (std::vector<int64_t>{12800, 768}));
  EXPECT_EQ(g.shapeOf(embed.positions), (std::vector<int64_t>{64, 768}));
  EXPECT_EQ(g.number(embed.positionCount), 64);
  EXPECT_TRUE(isNull(embed.scales));

  const auto head = g.record<HeadRecord>(1);
  EXPECT_EQ(head.half.first.normScale->f32, 1);
  EXPECT_EQ(g.shapeOf(head.half.first.weights), (std::vector<int64_t>{2304, 768}));
  EXPECT_EQ(g.elements(head.half.first.sums), std::vector<double>(2304, 384));
  EXPECT_EQ(g.elements(head.half.first.bias), std::vector<double>(2304, 0.5));
  EXPECT_TRUE(isNull(head.half.first.scales));
  EXPECT_TRUE(isNull(head.half.first.gain));
  EXPECT_EQ(head.half.first.epsilon->f32, 1e-5f);
  EXPECT_EQ(g.shapeOf(head.half.weights), (std::vector<int64_t>{768, 768}));
  EXPECT_EQ(g.elements(head.half.bias), std::vector<double>(768, 0)); // none: zeros
  EXPECT_TRUE(isNull(head.half.scales));
  EXPECT_EQ(g.port(head.kv), "kv");
  EXPECT_EQ(g.number(head.layer), 0);
  EXPECT_EQ(head.batchMax->kind, plan::ArgKind::I32);
  EXPECT_EQ(g.number(head.context), 64);
  EXPECT_EQ(head.scale->f32, 0.25f);

  const auto mlp = g.record<HalfRecord>(2);
  EXPECT_EQ(g.shapeOf(mlp.first.weights), (std::vector<int64_t>{3072, 768}));
  EXPECT_EQ(g.elements(mlp.first.bias), std::vector<double>(3072, 0));
  EXPECT_EQ(g.shapeOf(mlp.weights), (std::vector<int64_t>{768, 3072}));
  EXPECT_EQ(g.elements(mlp.bias), std::vector<double>(768, 0.5));
  // Partial sums of twelve heads, and those of as many parts of the MLP behind them.
  EXPECT_EQ(head.half.partials->index, 0);
  EXPECT_EQ(mlp.partials->index, 12 * 768 * 4);

  const auto vocabulary = g.record<VocabularyRecord>(3);
  EXPECT_EQ(g.shapeOf(vocabulary.first.weights), (std::vector<int64_t>{12800, 768}));
  EXPECT_EQ(g.elements(vocabulary.first.gain), std::vector<double>(768, 0.5));
  EXPECT_EQ(g.elements(vocabulary.first.sums), std::vector<double>(12800, 192));
  EXPECT_EQ(g.elements(vocabulary.first.bias), std::vector<double>(12800, 192)); // the shift
  EXPECT_EQ(g.port(vocabulary.logits), "logits");

  const auto step = g.record<StepRecord>(4);
  EXPECT_EQ(g.port(step.ids), "ids");
  EXPECT_EQ(g.number(step.channelBytes), g.number(step.copyBytes)); // one copy
  EXPECT_EQ(g.function.scratch_bytes,
            uint64_t(2 * g.number(step.channelBytes) + 8 * clusterChoiceWords(1)));
}

TEST(PersistentStep, SeveralSequencesShareTheRowsOfAnOperand) {
  Generate g(decodeStep("f16"), 4);
  ASSERT_EQ(g.error, "");
  EXPECT_EQ(g.number(g.record<EmbedRecord>(0).stage.units), 16); // four rows of 64 bytes
  // Four sequences, two heads, two ranges of keys each.
  EXPECT_EQ(g.number(g.record<AttentionRecord>(2).stage.units), 16);
  EXPECT_NE(Generate(decodeStep("f32"), 4).error.find("several sequences have no stages in fp32"),
            std::string::npos);
}

TEST(PersistentStep, NormsBecomeConstantsOfTheirProducts) {
  Generate g(decodeStep("f16"));
  ASSERT_EQ(g.error, "");
  // Weights, biases and vectors are 0.5, rows have 32 elements.
  const auto qkv = g.linear(1).terms, hidden = g.linear(4).terms,
             logits = g.record<LogitsRecord>(6).terms;
  EXPECT_TRUE(isNull(qkv.gain));
  EXPECT_EQ(g.elements(qkv.sums), std::vector<double>(96, 16)); // of the weights' rows
  EXPECT_EQ(g.elements(qkv.bias), std::vector<double>(96, 0.5));
  EXPECT_EQ(g.elements(logits.gain), std::vector<double>(32, 0.5)); // below 1
  EXPECT_EQ(g.elements(logits.sums), std::vector<double>(20, 8));   // weights times gain
  EXPECT_EQ(g.elements(logits.bias), std::vector<double>(20, 8));   // weights times shift
  EXPECT_TRUE(isNull(hidden.bias));                                 // neither bias nor shift
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
}

TEST(PersistentStep, ClustersTakeSeveralSequences) {
  for (int64_t rows : {2, 4, 8, 16}) {
    Generate g(decodeStep("f16", "gelu_tanh", greedy, clustered), rows);
    ASSERT_EQ(g.error, "");
    EXPECT_EQ(g.function.steps[0]->clusters, 12u);
    // Partial sums are fp16, of eight rows at least.
    EXPECT_EQ(g.record<HalfRecord>(2).partials->index, 12 * 768 * std::max<int64_t>(rows, 8) * 2);
    EXPECT_NE(g.pool.kernels()[0].text.find("/*Sequences=*/" + std::to_string(rows)),
              std::string::npos);
  }
}

TEST(PersistentStep, ClustersOnlyIsNothingElse) {
  Generate g(decodeStep("f16"), 2, true, {.asked = false, .stages = false});
  EXPECT_NE(g.error.find("in thread block clusters only"), std::string::npos) << g.error;
  Generate many(decodeStep("f16"), 16);
  EXPECT_NE(many.error.find("in thread block clusters only"), std::string::npos) << many.error;
  Generate tooMany(decodeStep("f16", "gelu_tanh", greedy, clustered), 32);
  EXPECT_NE(tooMany.error.find("no more than 16 sequences"), std::string::npos) << tooMany.error;
}

TEST(PersistentStep, ClustersAreForTheirSizesOnly) {
  bool shares = false; // expected
  auto stages = [&](const Sizes &sizes, int64_t rows = 1, bool hopper = true) {
    Generate g(decodeStep("f16", "gelu_tanh", greedy, sizes), rows, hopper);
    EXPECT_EQ(g.error, "");
    EXPECT_EQ(g.pool.kernels()[0].text.find("ClustersConfig") == std::string::npos,
              g.function.steps.size() == 8 || shares);
    return g.function.steps.size();
  };
  EXPECT_EQ(stages(clustered), 5u);
  EXPECT_EQ(stages(clustered, 1, false), 8u);   // other architectures
  EXPECT_EQ(stages(clustered, 8), 5u);          // as many sequences as a cluster has blocks
  EXPECT_EQ(stages(clustered, 16), 5u);         // twice as many
  EXPECT_EQ(stages({768, 12, 12800, "g"}), 8u); // a gain of one norm alone
  shares = true;
  EXPECT_EQ(stages({768, 24, 12800, "one"}, 2), 5u);  // heads of 32
  EXPECT_EQ(stages({1024, 16, 25600, "one"}, 2), 5u); // more clusters than there are
  EXPECT_EQ(stages({768, 12, 2048, "one"}, 2), 5u);   // a ring that holds more than a step
}

TEST(PersistentStep, ClustersAreForOneChainOfStages) {
  // A layer whose MLP reads x beside attention: its first product comes ahead of it.
  std::string step = decodeStep("f16", "gelu_tanh", greedy, clustered);
  const size_t from = step.find("  %n2 = "), to = step.find("  %x2 = ");
  std::string hidden = step.substr(from, to - from);
  step.erase(from, to - from);
  hidden.replace(hidden.find("(%x1,"), 5, "(%x,");
  step.insert(step.find("  %state, "), hidden);
  Generate g(step);
  ASSERT_EQ(g.error, "");
  EXPECT_EQ(g.function.steps.size(), 8u);
  EXPECT_EQ(g.function.steps[0]->clusters, 0u);
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
    Generate shares(decodeStep("f16", "gelu_erf", greedy, {600, 5, 512, "one"}));
    ASSERT_EQ(shares.error, "");
    ASSERT_EQ(shares.function.steps.size(), 5u);
    for (const char *arch : {"sm_80", "sm_90a"})
      for (const Generate *step : {&g, &clusters, &several, &shares}) {
        auto image = (*nvrtc)->compile(moduleSource(step->pool.kernels()), "test.cu", arch);
        EXPECT_TRUE(bool(image)) << (image ? "" : llvm::toString(image.takeError()));
      }
  }
}

} // namespace
