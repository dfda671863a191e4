// What tests of @generate share: a decode step as text, and the function made of it.
#pragma once

#include "ir/Text.h"
#include "runtime/plan/Expr.h"
#include "templates/decode_step/common/PersistentStep.h"
#include "templates/decode_step/common/records.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/xxhash.h"

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace gpt2c::generate_tests {

using namespace gpt2c::persistent;

struct Sizes {
  int width = 32, heads = 2, vocabulary = 20;
  std::string gain = "g"; ///< of the norm of the MLP
};
inline const std::string greedy = "arg_max(%logits) {axis = -1, keepdims = false, dtype = i32}";

/// A decode step of one layer. `choice` makes %next of %logits.
inline std::string decodeStep(const std::string &t, const std::string &activation = "gelu_tanh",
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
inline const Sizes clustered = {768, 12, 12800, "one"};

/// What stands for a word of a record here: its argument in the plan.
struct PlanWords {
  using Word = const plan::ArgT *;
  using Integer = Word;
  using Real = Word;
  using Pair = Word;
  using Units = Word;
  using Size = Word;
  using Channel = Word;
  using Unused = Word;
  template <typename> using Address = Word;
};

struct Generate {
  plan::FunctionT function;
  PlanPool pool;
  std::string error;

  /// `paged`: @extend, over whose state the step is made; null: @generate is.
  explicit Generate(const std::string &decode, int64_t rows = 1, bool hopper = true,
                    StepWish forms = {}, const Function *paged = nullptr) {
    ParseOptions options;
    options.weights = [](uint64_t, const Type &type) {
      std::vector<int64_t> shape;
      int64_t count = 1;
      for (const Dim &d : type.shape)
        count *= shape.emplace_back(*d.constant());
      return Tensor::of<float>(std::vector<float>(count, 0.5f), shape).cast(type.dtype);
    };
    auto module = parseModule("module @m {}\n\n" + decode, "test.ir", options);
    pool.target = Target::of({hopper ? "sm_90a" : "sm_80"});
    pool.packs = forms.packs;
    if (!module)
      error = llvm::toString(module.takeError());
    else if (llvm::Error e = build(*(*module)->functions.front(), rows, forms, paged))
      error = llvm::toString(std::move(e));
  }
  llvm::Error build(Function &decode, int64_t rows, StepWish forms, const Function *paged) {
    SymbolBounds bounds = {{"batch", {1, rows}}, {"slots", {1, 4}}, {"pages", {1, 100}}};
    return paged ? buildPagedStep(pool, function, decode, *paged, bounds, rows, forms)
                 : buildPersistentStep(pool, function, decode, bounds, rows, forms);
  }
  /// The record of a stage.
  template <template <typename> class R> R<PlanWords> record(size_t stage) const {
    std::array<PlanWords::Word, wordsOf<R>> words = {};
    const auto &args = function.steps[stage]->args;
    EXPECT_EQ(args.size(), words.size());
    for (size_t i = 0; i < args.size() && i < words.size(); ++i)
      words[i] = args[i].get();
    return std::bit_cast<R<PlanWords>>(words);
  }
  LinearRecord<PlanWords> linear(size_t stage) const { return record<LinearRecord>(stage); }
  int64_t number(PlanWords::Word word) const {
    EXPECT_EQ(word->kind, plan::ArgKind::I32);
    std::vector<int64_t> symbols(function.symbols.size(), 1);
    auto value = rt::evalExpr(*word->expr, symbols);
    return value ? *value : -1;
  }
  int64_t low(PlanWords::Word word) const { return number(word) & 0xffff; }
  int64_t high(PlanWords::Word word) const { return number(word) >> 16; }
  /// Elements of the weight at an address; none: there is no weight.
  std::vector<double> elements(PlanWords::Word word) const {
    std::vector<double> values;
    if (word->kind == plan::ArgKind::Weight)
      for (int64_t i = 0, n = pool.weights()[word->index].count(); i < n; ++i)
        values.push_back(pool.weights()[word->index].asDouble(i));
    return values;
  }
  std::vector<int64_t> shapeOf(PlanWords::Word word) const {
    EXPECT_EQ(word->kind, plan::ArgKind::Weight);
    const Tensor &t = pool.weights()[word->index];
    return {t.shape().begin(), t.shape().end()};
  }
  /// The name of the input or output at an address.
  std::string port(PlanWords::Word word) const {
    return word->kind == plan::ArgKind::Input    ? function.inputs[word->index]->name
           : word->kind == plan::ArgKind::Output ? function.outputs[word->index]->name
                                                 : "";
  }
};

inline bool isNull(PlanWords::Word word) { return word->kind == plan::ArgKind::Null; }
/// Whether both are one place in scratch.
inline bool isSame(PlanWords::Word a, PlanWords::Word b) {
  return a->kind == plan::ArgKind::Scratch && b->kind == plan::ArgKind::Scratch &&
         a->index == b->index;
}

} // namespace gpt2c::generate_tests
