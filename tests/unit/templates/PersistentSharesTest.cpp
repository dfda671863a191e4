// @generate of one sequence in shares of thread block clusters: which steps have it, and which do
// not.
#include "PersistentStepTest.h"

#include "codegen/Nvrtc.h"
#include "templates/decode_step/common/DecodeKernels.h"

#include <bit>

using namespace gpt2c;
using namespace gpt2c::generate_tests;

namespace {

/// A decode step of one layer whose heads turn and share keys, with an RMS norm and a gated MLP.
struct Llama {
  int heads = 8, keyHeads = 2, headDim = 64, hidden = 1024, vocabulary = 300, context = 64;
  std::string activation = "silu", rope = "head_dim = 64, heads = 10", gate = "interleaved = true";
  std::string attention; ///< further attributes
  bool turns = true;
  std::string type = "f16";

  std::string text() const {
    auto str = [](int n) { return std::to_string(n); };
    auto constant = [&](const std::string &name, const std::string &t, const std::string &shape) {
      return "  %" + name + " = constant weight<\"" +
             hashText(llvm::xxh3_64bits(name + t + shape)) + "\"> : " + t + "[" + shape + "]\n";
    };
    const std::string &t = type;
    const std::string d = str(heads * headDim), qkv = str((heads + 2 * keyHeads) * headDim),
                      pairs = str(headDim / 2), v = str(vocabulary), h = str(hidden),
                      h2 = str(2 * hidden);
    const std::string kv = t + "[1, 2, slots, " + str(keyHeads) + ", " + str(context) + ", " +
                           str(headDim) + "]",
                      row = t + "[batch, 1, " + d + "]", packed = t + "[batch, 1, " + qkv + "]";
    std::string s = "func @decode(%ids: i32[batch, 1], %kv: " + kv +
                    ", %past: i32[batch]) -> (%next: i32[batch], %logits: f32[batch, " + v +
                    "], %kv: " + kv + ") {\n" + constant("wte", t, v + ", " + d) +
                    "  %one = constant dense<1.0> : " + t + "[" + d + "]\n" + constant("g", t, d) +
                    constant("wqkv", t, qkv + ", " + d) + constant("wo", t, d + ", " + d) +
                    constant("w1", t, h2 + ", " + d) + constant("w2", t, d + ", " + h) +
                    constant("cos", "f32", "64, " + pairs) +
                    "  %sin = constant dense<0.25> : f32[64, " + pairs + "]\n" +
                    "  %x = embed(%ids, %wte) : " + row + "\n  %n1 = rms_norm(%x, %one) : " + row +
                    "\n  %p = linear(%n1, %wqkv) : " + packed;
    if (turns)
      s += "\n  %qkv = rope(%p, %past, %cos, %sin) {" + rope + "} : " + packed;
    s += std::string("\n  %state, %a = append_attention(%kv, ") + (turns ? "%qkv" : "%p") +
         ", %past) {layer = 0, num_heads = " + str(heads) + ", scale = 0.125" + attention +
         "} : " + kv + ", " + row + "\n  %x1 = linear(%a, %wo, none, %x) : " + row +
         "\n  %n2 = rms_norm(%x1, %one) : " + row + "\n  %u = linear(%n2, %w1) : " + t +
         "[batch, 1, " + h2 + "]\n  %h = gated(%u) {activation = \"" + activation + "\"" +
         (gate.empty() ? "" : ", " + gate) + "} : " + t + "[batch, 1, " + h +
         "]\n  %x2 = linear(%h, %w2, none, %x1) : " + row + "\n  %n3 = rms_norm(%x2, %g) : " + row +
         "\n  %l = linear(%n3, %wte) {dtype = f32} : f32[batch, 1, " + v +
         "]\n  %logits = reshape(%l) {shape = [batch, " + v + "]} : f32[batch, " + v +
         "]\n  %next = " + greedy + " : i32[batch]\n  return %next, %logits, %state\n}\n";
    return s;
  }
};

TEST(PersistentShares, OneSequenceOfAnyShapeIsDividedIntoShares) {
  for (const Sizes &sizes :
       {Sizes{1024, 16, 25600, "one"}, Sizes{1600, 25, 512, "one"}, Sizes{960, 12, 512, "one"},
        Sizes{704, 11, 512, "one"}, Sizes{256, 4, 512, "one"}, Sizes{32, 2, 20, "one"},
        Sizes{768, 24, 12800, "one"}, Sizes{768, 12, 2048, "one"}}) {
    Generate g(decodeStep("f16", "gelu_tanh", greedy, sizes));
    ASSERT_EQ(g.error, "");
    ASSERT_EQ(g.function.steps.size(), 5u) << sizes.width;
    EXPECT_NE(g.pool.kernels()[0].text.find("SharesConfig"), std::string::npos);
    const auto &step = *g.function.steps[1];
    EXPECT_GE(step.clusters, unsigned(sizes.heads));
    // Partial sums of all heads, then of all clusters.
    const auto head = g.record<HeadRecord>(1);
    const auto mlp = g.record<HalfRecord>(2);
    EXPECT_EQ(head.half.partials->index, 0);
    EXPECT_GE(mlp.partials->index, sizes.heads * sizes.width * 4);
    EXPECT_GE(g.number(g.record<StepRecord>(4).channelBytes),
              mlp.partials->index + int64_t(step.clusters + step.spare_clusters) * sizes.width * 4);
  }
  // In fp32 or elsewhere there is none.
  const Sizes one{1024, 16, 512, "one"};
  EXPECT_EQ(Generate(decodeStep("f32", "gelu_tanh", greedy, one)).function.steps.size(), 8u);
  EXPECT_EQ(Generate(decodeStep("f16", "gelu_tanh", greedy, one), 1, false).function.steps.size(),
            8u);
}

TEST(PersistentShares, HeadsMayTurnAndShareKeysAndMlpsHaveGates) {
  Generate g(Llama{}.text());
  ASSERT_EQ(g.error, "");
  std::vector<std::string> ops;
  for (auto &s : g.function.steps)
    ops.push_back(s->op);
  EXPECT_EQ(ops, (std::vector<std::string>{"embed",
                                           "rms_norm+linear+rope+append_attention+linear+residual",
                                           "rms_norm+linear+gated+linear+residual",
                                           "rms_norm+linear", "arg_max+advance"}));
  const auto embed = g.record<ClusterEmbedRecord>(0);
  EXPECT_EQ(g.shapeOf(embed.cosines), (std::vector<int64_t>{64, 32}));
  EXPECT_EQ(g.shapeOf(embed.sines), (std::vector<int64_t>{64, 32}));
  EXPECT_EQ(g.elements(embed.cosines)[0], 0.5);
  EXPECT_EQ(g.elements(embed.sines)[0], 0.25);
  EXPECT_EQ(g.number(embed.angleCount), 64);
  const auto head = g.record<HeadRecord>(1);
  const auto mlp = g.record<HalfRecord>(2);
  EXPECT_EQ(g.shapeOf(head.half.first.weights), (std::vector<int64_t>{12 * 64, 512}));
  EXPECT_EQ(g.shapeOf(head.half.weights), (std::vector<int64_t>{512, 512}));
  EXPECT_EQ(g.shapeOf(mlp.first.weights), (std::vector<int64_t>{2048, 512}));
  EXPECT_EQ(g.shapeOf(mlp.weights), (std::vector<int64_t>{512, 1024}));
  // Without sums of rows, and without addends.
  for (PlanWords::Word w :
       {head.half.first.sums, head.half.first.bias, head.half.bias, mlp.first.sums, mlp.first.bias,
        mlp.bias, g.record<VocabularyRecord>(3).first.bias})
    EXPECT_TRUE(isNull(w));
  const std::string &text = g.pool.kernels()[0].text;
  for (const char *part : {"/*KeyHeads=*/2", "/*Rotary=*/32", "/*Gated=*/true", "/*Bias=*/false",
                           "/*FinalBias=*/false", "epilogue::silu(v)"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
}

TEST(PersistentShares, EachPartOfALlamaHasThemAlone) {
  Llama turns; // as many keys as heads
  turns.keyHeads = 8;
  turns.rope = "head_dim = 64, heads = 16";
  Llama shared; // without a rotary embedding
  shared.turns = false;
  Llama relu;
  relu.activation = "relu";
  for (const Llama &l : {turns, shared, relu}) {
    Generate g(l.text());
    ASSERT_EQ(g.error, "");
    EXPECT_EQ(g.function.steps.size(), 5u);
  }
}

TEST(PersistentShares, SeveralSequencesAreEightOrSixteenRows) {
  const Sizes sizes{1024, 16, 512, "one"};
  Llama bfloats;
  bfloats.type = "bf16";
  for (const std::string &text :
       {decodeStep("f16", "gelu_tanh", greedy, sizes), Llama{}.text(), bfloats.text()})
    for (int rows : {2, 4, 8, 16}) {
      Generate g(text, rows);
      ASSERT_EQ(g.error, "");
      ASSERT_EQ(g.function.steps.size(), 5u);
      const KernelSource &kernel = g.pool.kernels()[0];
      const int padded = rows <= 8 ? 8 : 16;
      for (const std::string &part : {"/*Rows=*/" + std::to_string(padded),
                                      std::string("/*Ranks=*/8"), std::string("shares::runRows<")})
        EXPECT_NE(kernel.text.find(part), std::string::npos) << part;
      EXPECT_EQ(kernel.headers[0], "templates/decode_step/shares/rows.cuh");
      // Partial sums of two bytes, of whole tiles of a slice.
      const auto &step = *g.function.steps[1];
      EXPECT_EQ(step.cluster_blocks, 8u);
      const int64_t width = g.shapeOf(g.record<HeadRecord>(1).half.weights)[0],
                    columns = 8 * ((width / 8 + 15) / 16 * 16),
                    clusters = step.clusters + step.spare_clusters;
      EXPECT_GE(g.number(g.record<StepRecord>(4).channelBytes),
                g.record<HalfRecord>(2).partials->index + clusters * columns * padded * 2);
    }
  // More, and heads of which none is a multiple of 16 elements, have none.
  EXPECT_NE(Generate(decodeStep("f16", "gelu_tanh", greedy, sizes), 17).error, "");
  const Sizes odd{8 * 40, 8, 512, "one"};
  EXPECT_EQ(Generate(decodeStep("f16", "gelu_tanh", greedy, odd), 1).function.steps.size(), 5u);
  EXPECT_EQ(Generate(decodeStep("f16", "gelu_tanh", greedy, odd), 8).function.steps.size(), 8u);
}

TEST(PersistentShares, AreLeftOutWhereTheyAreNotWanted) {
  // Heads with keys of their own, two of them a cluster: launches are faster for two sequences.
  DecoderShape shape;
  shape.layers.resize(12);
  shape.type = shape.weights = shape.lastWeights = DType::F16;
  shape.width = 1024, shape.hidden = 4096, shape.vocabulary = 50257, shape.context = 1024;
  shape.heads = shape.keyHeads = 16, shape.headDim = 64;
  DecodeProblem p{.shape = &shape, .rows = 2, .type = DType::F16};
  p.target = Target::of({"sm_90a"});
  EXPECT_EQ(decodeSharesKernel().slower(p), "") << "they are asked for";
  p.asked = false;
  EXPECT_NE(decodeSharesKernel().slower(p).find("they would take "), std::string::npos);
  p.rows = 1;
  EXPECT_EQ(decodeSharesKernel().slower(p), "");
  shape.width = 1004; // no vectors
  EXPECT_NE(decodeSharesKernel().refusal(p), "");
  EXPECT_EQ(decodeSharesKernel().slower(p), "");
}

TEST(PersistentShares, Bf16HasSharesAlone) {
  Llama llama;
  llama.type = "bf16";
  for (const std::string &text :
       {decodeStep("bf16", "gelu_tanh", greedy, {768, 12, 12800, "one"}),
        decodeStep("bf16", "gelu_tanh", greedy, {704, 11, 512, "one"}), llama.text()}) {
    Generate g(text);
    ASSERT_EQ(g.error, "");
    ASSERT_EQ(g.function.steps.size(), 5u);
    const KernelSource &kernel = g.pool.kernels()[0];
    for (const char *part : {"/*T=*/persistent::Element::BF16", "/*W=*/persistent::Element::BF16",
                             "/*Embedding=*/persistent::Element::BF16"})
      EXPECT_NE(kernel.text.find(part), std::string::npos) << part;
    EXPECT_NE(llvm::find(kernel.headers, "templates/device/elements_bf16.cuh"),
              kernel.headers.end());
  }
  const std::string text = decodeStep("bf16");
  EXPECT_NE(Generate(text, 1, false).error.find("bf16 has stages only in shares"),
            std::string::npos);
}

/// Linears of `step` in int8, with a scale for each row; embedding and vocabulary alike. With
/// `group` those of the layers are in int4, in groups with a scale and a zero point each.
std::string inInt8(std::string step, const std::string &vocabulary, int group = 0) {
  auto replace = [&](const std::string &from, const std::string &to) {
    for (size_t at = 0; (at = step.find(from, at)) != std::string::npos; at += to.size())
      step.replace(at, from.size(), to);
  };
  auto shapeOf = [&](const std::string &name) {
    const size_t at = step.find("%" + name + " = constant"), open = step.find(": f16[", at) + 6;
    return step.substr(open, step.find(']', open) - open);
  };
  std::string scales;
  for (const std::string name : {"wte", "wqkv", "wo", "w1", "w2"}) {
    const std::string shape = shapeOf(name), rows = shape.substr(0, shape.find(','));
    const size_t at = step.find("%" + name + " = constant"), type = step.find("f16[" + shape, at);
    const bool inGroups = group > 0 && name != "wte";
    const int columns = std::stoi(shape.substr(shape.find(' ')));
    const std::string groups = inGroups ? std::to_string(columns / group) : "1";
    step.replace(type, 3, inGroups ? "i4" : "i8");
    scales.append("  %s_").append(name).append(" = constant dense<0.5> : f32[");
    scales.append(rows).append(", ").append(groups).append("]\n");
    if (inGroups)
      scales.append("  %z_")
          .append(name)
          .append(" = constant dense<-3> : i8[")
          .append(rows)
          .append(", ")
          .append(groups)
          .append("]\n");
  }
  scales += "  %groups = constant dense<0.5> : f32[" + vocabulary + ", 1]\n";
  step.insert(step.find("{\n") + 2, scales);
  auto zero = [&](const std::string &name) { return group > 0 ? ", none, %z_" + name + ")" : ")"; };
  const std::string noResidual = group > 0 ? ", none" : "",
                    noBias = group > 0 ? ", none, none" : "";
  replace("embed(%ids, %wte, %wpe, %past)",
          "embed(%ids, %wte, %wpe, %past, none, %groups) {dtype = f16}");
  replace("linear(%n1, %wqkv, %bqkv)",
          "quantized_linear(%n1, %wqkv, %s_wqkv, none, %bqkv" + noResidual + zero("wqkv"));
  replace("linear(%a, %wo, none, %x)",
          "quantized_linear(%a, %wo, %s_wo, none, none, %x" + zero("wo"));
  replace("linear(%n2, %w1)",
          "quantized_linear(%n2, %w1, %s_w1" + (group > 0 ? ", none" + noBias : "") + zero("w1"));
  replace("linear(%h, %w2, %b2, %x1)",
          "quantized_linear(%h, %w2, %s_w2, none, %b2, %x1" + zero("w2"));
  replace("linear(%n3, %wte)", "quantized_linear(%n3, %wte, %s_wte)");
  return step;
}

TEST(PersistentShares, WeightsMayBeInt8WithAScaleForEachRow) {
  const Sizes sizes{1024, 16, 512, "one"};
  Generate g(inInt8(decodeStep("f16", "gelu_tanh", greedy, sizes), "512"));
  ASSERT_EQ(g.error, "");
  ASSERT_EQ(g.function.steps.size(), 5u);
  const auto embed = g.record<ClusterEmbedRecord>(0);
  const auto head = g.record<HeadRecord>(1);
  const auto mlp = g.record<HalfRecord>(2);
  const auto last = g.record<VocabularyRecord>(3);
  EXPECT_EQ(g.shapeOf(embed.scales), (std::vector<int64_t>{512, 1}));
  EXPECT_EQ(g.elements(head.half.first.scales), std::vector<double>(3 * 1024, 0.5));
  EXPECT_EQ(g.elements(head.half.scales), std::vector<double>(1024, 0.5));
  EXPECT_EQ(g.elements(mlp.first.scales), std::vector<double>(4 * 1024, 0.5));
  EXPECT_EQ(g.elements(mlp.scales), std::vector<double>(1024, 0.5));
  EXPECT_EQ(g.elements(last.first.scales), std::vector<double>(512, 0.5));
  for (const char *part : {"/*T=*/persistent::Element::F16", "/*W=*/persistent::Element::I8",
                           "/*Embedding=*/persistent::Element::I8", "/*Groups=*/1,"})
    EXPECT_NE(g.pool.kernels()[0].text.find(part), std::string::npos) << part;
}

TEST(PersistentShares, WeightsMayBeOfFourBitsInGroups) {
  const Sizes sizes{1024, 16, 512, "one"};
  for (int rows : {1, 8}) {
    Generate g(inInt8(decodeStep("f16", "gelu_tanh", greedy, sizes), "512", 64), rows);
    ASSERT_EQ(g.error, "");
    ASSERT_EQ(g.function.steps.size(), 5u);
    const auto head = g.record<HeadRecord>(1);
    const auto mlp = g.record<HalfRecord>(2);
    EXPECT_EQ(g.shapeOf(head.half.first.scales), (std::vector<int64_t>{3 * 1024, 16}));
    EXPECT_EQ(g.shapeOf(mlp.scales), (std::vector<int64_t>{1024, 64}));
    // 0.5, with the zero point -3 and 8 in its last bits.
    for (double scale : g.elements(mlp.first.scales))
      EXPECT_EQ(std::bit_cast<uint32_t>(float(scale)), 0x3f000005u);
    EXPECT_EQ(g.elements(g.record<VocabularyRecord>(3).first.scales),
              std::vector<double>(512, 0.5));
    for (const char *part :
         {"/*W=*/persistent::Element::I4", "/*WeightGroup=*/64", "/*Last=*/persistent::Element::I8",
          "/*LastGroup=*/0", "/*Embedding=*/persistent::Element::I8"})
      EXPECT_NE(g.pool.kernels()[0].text.find(part), std::string::npos) << part;
  }
  // In groups of 16 lanes would read several at once.
  EXPECT_NE(Generate(inInt8(decodeStep("f16", "gelu_tanh", greedy, sizes), "512", 16)).error, "");
}

TEST(PersistentShares, WeightsMayBePackedWithoutLoss) {
  Llama llama;
  llama.type = "bf16";
  llama.hidden = 2048; // of fewer columns a slot has no room for packed ones of an output
  const StepWish packs = {.packs = true, .packsLast = true, .packsAsked = true};
  for (int rows : {1, 8}) {
    Generate g(llama.text(), rows, true, packs);
    ASSERT_EQ(g.error, "");
    const auto head = g.record<HeadRecord>(1);
    const auto mlp = g.record<HalfRecord>(2);
    const auto last = g.record<VocabularyRecord>(3).first;
    auto expect = [&](PlanWords::Word weights, PlanWords::Word words, int64_t n, int64_t k) {
      const int64_t blocks = n * k / 32 * 48, ofWords = n * (k / 256) * 4;
      EXPECT_EQ(g.shapeOf(weights), std::vector<int64_t>{blocks + ofWords});
      EXPECT_EQ(words->index, weights->index);
      ASSERT_TRUE(words->expr);
      EXPECT_EQ(*rt::evalExpr(*words->expr, {}), blocks);
    };
    expect(head.half.first.weights, head.half.first.scales, 12 * 64, 512);
    expect(head.half.weights, head.half.scales, 512, 512);
    expect(mlp.first.weights, mlp.first.scales, 4096, 512);
    expect(mlp.weights, mlp.scales, 512, 2048);
    expect(last.weights, last.scales, 300, 512);
    // Rows of the table of tokens are looked up as they are.
    EXPECT_EQ(g.shapeOf(g.record<ClusterEmbedRecord>(0).tokens), (std::vector<int64_t>{300, 512}));
    const KernelSource &kernel = g.pool.kernels()[0];
    for (const char *part : {"/*W=*/persistent::Element::BF16", "/*WeightGroup=*/0",
                             "/*Packed=*/true", "/*PackedLast=*/true"})
      EXPECT_NE(kernel.text.find(part), std::string::npos) << part;
    EXPECT_EQ(llvm::count(kernel.headers, "templates/device/packed.cuh"), 1);
    // What is not asked for is slower.
    Generate plain(llama.text(), rows, true, {.packs = true, .packsLast = true});
    EXPECT_NE(plain.pool.kernels()[0].text.find("/*Packed=*/false, /*PackedLast=*/false"),
              std::string::npos);
  }
  // Rows of hidden columns are no whole blocks: only the vocabulary is packed.
  llama.hidden = 1008;
  Generate g(llama.text(), 1, true, packs);
  ASSERT_EQ(g.error, "");
  for (const char *part : {"/*Packed=*/false", "/*PackedLast=*/true"})
    EXPECT_NE(g.pool.kernels()[0].text.find(part), std::string::npos) << part;
  // Floats of other kinds are not.
  EXPECT_NE(Generate(Llama{}.text(), 1, true, packs)
                .pool.kernels()[0]
                .text.find("/*Packed=*/false, /*PackedLast=*/false"),
            std::string::npos);
}

TEST(PersistentShares, SayWhatTheyHaveNot) {
  auto error = [](const Llama &l, int64_t rows = 1, bool hopper = true) {
    return Generate(l.text(), rows, hopper).error;
  };
  auto expect = [](const std::string &error, const char *why) {
    EXPECT_NE(error.find("@decode has no persistent kernel: "), std::string::npos) << error;
    EXPECT_NE(error.find(why), std::string::npos) << error;
  };
  expect(error({}, 17),
         "a rotary embedding has a stage only in shares of thread block clusters, and "
         "those are of up to 16 sequences");
  expect(error({}, 1, false), "the architectures have no wgmma, TMA, clusters");
  Llama wide;
  wide.type = "f32";
  expect(error(wide), "those are in fp16 or bf16");
  Llama pairs;
  pairs.rope += ", interleaved = true, to_halves = true";
  expect(error(pairs), "only heads that turn with the position");
  Llama some;
  some.rope = "head_dim = 64, heads = 8"; // of q alone
  expect(error(some), "only of all heads of q and k");
  Llama halves;
  halves.gate = "";
  expect(error(halves), "a gate and its value in turn");
  Llama window;
  window.attention = ", window = 8";
  expect(error(window), "a window of keys has no stage");
}

TEST(PersistentShares, TakeContextsOfMoreKeysThanARingHolds) {
  Llama keys;
  keys.context = 1 << 16;
  EXPECT_EQ(Generate(keys.text(), 1, true).error, "");
  EXPECT_EQ(Generate(keys.text(), 8, true).error, "");
}

TEST(PersistentShares, CompileForHopper) {
  auto nvrtc = Nvrtc::load();
  if (!nvrtc) {
    llvm::consumeError(nvrtc.takeError());
    GTEST_SKIP() << "no NVRTC";
  }
  Llama one;
  Llama uneven; // several clusters with the same keys, an MLP that laps the ring
  uneven.heads = 12;
  uneven.keyHeads = 3;
  uneven.rope = "head_dim = 64, heads = 15";
  uneven.hidden = 8008;
  Llama bfloats = uneven;
  bfloats.type = "bf16";
  const std::string gpt = decodeStep("f16", "gelu_tanh", greedy, {1024, 16, 512, "one"});
  for (const std::string &text : {one.text(), uneven.text(), bfloats.text(), gpt,
                                  inInt8(gpt, "512"), inInt8(gpt, "512", 128)})
    for (int rows : {1, 8, 16}) {
      Generate g(text, rows);
      ASSERT_EQ(g.error, "");
      EXPECT_NE(g.pool.kernels()[0].text.find("SharesConfig"), std::string::npos);
      auto image = (*nvrtc)->compile(moduleSource(g.pool.kernels()), "test.cu", "sm_90a");
      EXPECT_TRUE(bool(image)) << (image ? "" : llvm::toString(image.takeError()));
    }
}

} // namespace
