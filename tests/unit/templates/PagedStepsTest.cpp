// @steps as launches: a decode step over a state in the pages of @extend.
#include "codegen/StepBuilder.h"

#include "templates/Lowerings.h"

#include "ir/Text.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <gtest/gtest.h>

namespace gpt2c {
namespace {

struct PagedDecoder {
  std::string type = "f16", arch = "sm_90a";
  int heads = 4, kvHeads = 4, sequences = 32;
  bool rope = false;
};

/// A step of two layers, of attention and an MLP each.
struct PagedStep {
  static constexpr int columns = 5, pageTokens = 64, layers = 2;
  PlanPool pool;
  plan::FunctionT function;
  std::string error;

  explicit PagedStep(const PagedDecoder &d, bool paged = true) {
    const int headDim = 256 / d.heads, qkv = (d.heads + 2 * d.kvHeads) * headDim;
    const std::string row = d.type + "[batch, 1, 256]",
                      rowOfHeads = llvm::formatv("{0}[batch, 1, {1}]", d.type, qkv),
                      state = llvm::formatv("{0}[{1}, 2, slots, {2}, 320, {3}]", d.type, layers,
                                            d.kvHeads, headDim);
    std::string body;
    for (const char *name : {"cos", "sin"})
      body += llvm::formatv("  %{0} = constant dense<0.5> : f32[320, {1}]\n", name, headDim / 2);
    for (auto [name, shape] : {std::pair("one", std::string("256")),
                               {"wq", llvm::formatv("{0}, 256", qkv).str()},
                               {"w1", "512, 256"},
                               {"b1", "512"},
                               {"w2", "256, 512"}})
      body += llvm::formatv("  %{0} = constant dense<{1}> : {2}[{3}]\n", name,
                            llvm::StringRef(name) == "one" ? "1.0" : "0.5", d.type, shape);
    std::string x = "x", kv = "kv";
    for (int i = 0; i < layers; ++i) {
      const std::string from = d.rope ? "r" : "q";
      body += llvm::formatv("  %q{0} = linear(%{1}, %wq, none) : {2}\n", i, x, rowOfHeads);
      if (d.rope)
        body += llvm::formatv("  %r{0} = rope(%q{0}, %past, %cos, %sin) {{head_dim = {1}, heads = "
                              "{2}} : {3}\n",
                              i, headDim, d.heads + d.kvHeads, rowOfHeads);
      body += llvm::formatv("  %kv{0}, %a{0} = append_attention(%{1}, %{2}{0}, %past) {{layer = "
                            "{0}, num_heads = {3}, scale = 0.125} : {4}, {5}\n",
                            i, kv, from, d.heads, state, row);
      body += llvm::formatv(
          "  %n{0} = layer_norm(%a{0}, %one, none) : {1}\n"
          "  %h{0} = linear(%n{0}, %w1, %b1) {{activation = \"gelu_tanh\"} : {2}[batch, 1, 512]\n"
          "  %y{0} = linear(%h{0}, %w2, %one, %a{0}) : {1}\n",
          i, row, d.type);
      x = llvm::formatv("y{0}", i), kv = llvm::formatv("kv{0}", i);
    }
    auto module = parseModule("module @m {}\n\nfunc @decode(%x: " + row + ", %kv: " + state +
                                  ", %past: i32[batch]) -> (%y: " + row + ", %kv: " + state +
                                  ") {\n" + body + "  return %" + x + ", %" + kv + "\n}\n",
                              "test.ir");
    if (!module) {
      error = llvm::toString(module.takeError());
      return;
    }
    Function extend("extend");
    const DType dtype = (*module)->functions.front()->argument("kv")->type.dtype;
    extend.addArgument({dtype,
                        {Dim::symbol("pages"), Dim(layers), Dim(2), Dim(d.kvHeads), Dim(pageTokens),
                         Dim(headDim)}},
                       "kv");
    extend.addArgument({DType::I32, {Dim::symbol("sequences"), Dim(columns)}}, "tables");
    pool.target = Target::of({d.arch});
    StepBuilder b(pool, function, {{"batch", {1, d.sequences}}, {"slots", {32, 32}}});
    if (paged)
      b.usePages(extend);
    if (llvm::Error e = build(b, *(*module)->functions.front()))
      error = llvm::toString(std::move(e));
  }
  /// Launches whose kernels have such a name, without their hash.
  std::vector<const plan::StepT *> of(const std::string &kernel) const {
    std::vector<const plan::StepT *> list;
    for (auto &step : function.steps)
      if (const std::string &name = pool.kernels()[step->kernel].name;
          name.substr(0, name.rfind('_')) == kernel)
        list.push_back(step.get());
    return list;
  }
  const plan::ArgT &arg(const plan::StepT &step, const std::string &name) const {
    const auto &params = pool.kernels()[step.kernel].params;
    return *step.args[llvm::find(params, name) - params.begin()];
  }
  bool isTables(const plan::ArgT &arg) const {
    return arg.kind == plan::ArgKind::Input && function.inputs[arg.index]->name == "tables";
  }
};

TEST(PagedSteps, TheStateIsThatOfExtend) {
  const PagedStep s({});
  ASSERT_EQ(s.error, "");
  std::vector<std::string> names;
  for (auto &port : s.function.inputs)
    names.push_back(port->name);
  EXPECT_EQ(names,
            (std::vector<std::string>{"x", "kv", "past", "tables", "prefixes", "prefix_tiles"}));
  EXPECT_EQ(s.function.inputs[3]->shape.size(), 2u);
  for (auto *ports : {&s.function.inputs, &s.function.outputs})
    for (auto &port : *ports)
      EXPECT_EQ(port->role == plan::Role::KvState, port->shape.size() == 6);
}

TEST(PagedSteps, AttentionReadsThePages) {
  const PagedStep s({});
  ASSERT_EQ(s.error, "");
  const auto attention = s.of("attention_decode_mma");
  ASSERT_EQ(attention.size(), 2u);
  for (const plan::StepT *step : attention) {
    EXPECT_NE(s.pool.kernels()[step->kernel].text.find("PageTokens = 64"), std::string::npos);
    EXPECT_TRUE(s.isTables(s.arg(*step, "tables")));
  }
  const PagedStep whole({}, false);
  ASSERT_EQ(whole.error, "");
  EXPECT_EQ(whole.function.inputs.size(), 3u);
  EXPECT_NE(whole.pool.kernels()[whole.of("attention_decode_mma").front()->kernel].text.find(
                "PageTokens = 0"),
            std::string::npos);
}

TEST(PagedSteps, EveryKernelOfDecodeTakesThem) {
  EXPECT_EQ(PagedStep({.kvHeads = 2}).of("attention_decode_group").size(), 2u);
  EXPECT_EQ(PagedStep({.heads = 8, .kvHeads = 8, .sequences = 128}).of("attention_decode").size(),
            2u); // by a ring
  EXPECT_EQ(PagedStep({.type = "f32"}).of("attention_decode").size(), 2u);
  EXPECT_EQ(PagedStep({.type = "bf16", .arch = "sm_80"}).of("attention_decode_mma").size(), 2u);
}

TEST(PagedSteps, PrefixesAreComputedInFront) {
  for (const PagedDecoder &d : {PagedDecoder(), PagedDecoder{.kvHeads = 2},
                                PagedDecoder{.heads = 8, .kvHeads = 8, .sequences = 128},
                                PagedDecoder{.type = "bf16", .kvHeads = 2, .rope = true}}) {
    const PagedStep s(d);
    ASSERT_EQ(s.error, "");
    const auto prefixes = s.of("attention_prefix");
    ASSERT_EQ(prefixes.size(), 2u);
    // The launch right behind it adds up what it leaves.
    for (const plan::StepT *prefix : prefixes) {
      const auto at =
          llvm::find_if(s.function.steps, [&](auto &step) { return step.get() == prefix; });
      const plan::StepT &next = **std::next(at);
      for (const char *name : {"kv", "tables", "prefixParts"}) {
        const plan::ArgT &first = s.arg(*prefix, name), &second = s.arg(next, name);
        EXPECT_EQ(first.kind, second.kind) << name;
        EXPECT_EQ(first.index, second.index) << name;
      }
    }
  }
}

TEST(PagedSteps, OthersReadAllKeys) {
  for (const PagedDecoder &d : {PagedDecoder{.type = "f32"}, PagedDecoder{.sequences = 1}}) {
    const PagedStep s(d);
    ASSERT_EQ(s.error, "");
    EXPECT_TRUE(s.of("attention_prefix").empty());
    EXPECT_EQ(s.function.inputs.size(), 4u);
  }
  EXPECT_TRUE(PagedStep({}, false).of("attention_prefix").empty());
}

TEST(PagedSteps, QueriesAreTurnedInAttention) {
  for (int kvHeads : {2, 4}) {
    const PagedStep s({.kvHeads = kvHeads, .rope = true});
    ASSERT_EQ(s.error, "");
    EXPECT_TRUE(s.of("rope").empty());
    EXPECT_EQ(s.of(kvHeads == 2 ? "attention_decode_group" : "attention_decode").size(), 2u);
  }
}

TEST(PagedSteps, TheMlpBringsPagesNearer) {
  const PagedStep s({}), whole({}, false);
  ASSERT_EQ(s.error, "");
  const auto mlps = s.of("mlp_cluster");
  ASSERT_EQ(mlps.size(), 2u);
  EXPECT_TRUE(s.isTables(s.arg(*mlps[0], "tables")));
  EXPECT_EQ(s.arg(*mlps[1], "tables").kind, plan::ArgKind::Null); // there is no layer behind it
  EXPECT_EQ(whole.arg(*whole.of("mlp_cluster")[0], "tables").kind, plan::ArgKind::Null);
}

} // namespace
} // namespace gpt2c
