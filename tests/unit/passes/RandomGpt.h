// Small GPT-2 graphs as some exporter might write them: every part in one of its spellings, with or
// without past, attention mask and position ids; now and then a part that is no GPT-2.
#pragma once

#include "tests/unit/passes/Spellings.h"

namespace gpt2c::test {

class RandomGpt : public Graph {
public:
  enum class Past { None, Pair, Stacked };
  static constexpr int64_t positions = 12;

  explicit RandomGpt(Choices choices) : Graph(choices) {
    heads = 1 + choose.below(3);
    size_ = choose.oneOf({2, 3, 4});
    layers = 1 + choose.below(2);
    vocabulary = 5 + choose.below(4);
    past = choose.oneOf({Past::None, Past::None, Past::Pair, Past::Stacked});
    // One graph in four has a part that is not GPT-2's.
    odd_ = choose.below(4) == 0 ? 1 + choose.below(5) : 0;
    build();
  }

  int64_t headDim() const { return size_; }
  /// Whether a compiler that knows its spellings makes @prefill and @decode of it.
  bool isGpt() const { return odd_ == 0; }

  /// Whether what padding computes reaches the logits of other tokens.
  bool mixesTokens() const { return is(MixedTokens); }

  int64_t heads, layers, vocabulary;
  Past past;
  Value *keyMask = nullptr, *positionIds = nullptr;

private:
  enum Odd { QuickGelu = 1, NotCausal = 2, WindowMask = 3, RmsNorms = 4, MixedTokens = 5 };
  bool is(Odd o) const { return odd_ == o; }
  int64_t width() const { return heads * size_; }

  //===-- inputs ----------------------------------------------------------------------------===//

  Value *tokens() {
    ids_ = argument({DType::I64, {batch_, seq_}}, "input_ids");
    if (choose.coin())
      keyMask = argument({maskType(*this), {batch_, keys_}}, "attention_mask");
    Value *table = random({positions, width()});
    wte_ = random({vocabulary, width()});
    return either(OpCode::Add, (*this)(OpCode::Gather, {wte_, ids_}), places(table));
  }

  Value *places(Value *table) {
    if (choose.below(4) == 0)
      return (*this)(
          OpCode::Slice, {table},
          {{"starts", Dims{keys_ - seq_}}, {"ends", Dims{keys_}}, {"axes", Dims{int64_t(0)}}});
    return (*this)(OpCode::Gather, {table, positionIndex()});
  }

  Value *positionIndex() {
    unsigned spelling = choose.below(keyMask ? 3 : 2);
    if (spelling == 0)
      return positionIds = argument({DType::I64, {batch_, seq_}}, "position_ids");
    if (spelling == 1) {
      Value *range =
          (*this)(OpCode::Range, {},
                  {{"start", Dims{keys_ - seq_}}, {"limit", Dims{keys_}}, {"delta", Dims{1}}});
      return choose.coin() ? (*this)(OpCode::Reshape, {range}, {{"shape", Dims{1, seq_}}}) : range;
    }
    // cumsum(mask) - 1, 1 where hidden; the last seq of them
    Value *ones = (*this)(OpCode::Cast, {keyMask}, {{"to", DType::I64}});
    Value *sum = (*this)(OpCode::Sub, {(*this)(OpCode::CumSum, {ones, index(1)}), index(1)});
    Value *shown = (*this)(OpCode::Cast, {keyMask}, {{"to", DType::Bool}});
    Value *all = (*this)(OpCode::Where, {shown, sum, index(1)});
    return (*this)(
        OpCode::Slice, {all},
        {{"starts", Dims{keys_ - seq_}}, {"ends", Dims{keys_}}, {"axes", Dims{int64_t(1)}}});
  }

  //===-- parts -----------------------------------------------------------------------------===//

  /// x w + b, on [batch, seq, k] or on its rows.
  Value *product(Value *x, int64_t n) {
    int64_t k = *x->type.shape.back().constant();
    Value *w = choose.coin() ? random({k, n})
                             : (*this)(OpCode::Transpose, {random({n, k})}, {{"perm", Dims{1, 0}}});
    bool rows = choose.coin();
    if (rows)
      x = (*this)(OpCode::Reshape, {x}, {{"shape", Dims{batch_ * seq_, k}}});
    Value *y = either(OpCode::Add, (*this)(OpCode::MatMul, {x, w}), random({n}));
    return rows ? (*this)(OpCode::Reshape, {y}, {{"shape", Dims{batch_, seq_, n}}}) : y;
  }

  Value *normOf(Value *x) {
    if (is(RmsNorms))
      return norm(*this, x, width(), {.rms = true});
    if (choose.below(3) == 0)
      return (*this)(OpCode::LayerNorm, {x, random({width()}), random({width()})});
    return norm(*this, x, width(), {});
  }

  Value *activation(Value *x) {
    if (is(QuickGelu))
      return (*this)(OpCode::Mul,
                     {x, (*this)(OpCode::Sigmoid, {(*this)(OpCode::Mul, {x, scalar(1.702)})})});
    return gelu(*this, x, choose.coin(), 1);
  }

  llvm::SmallVector<Value *> queriesKeysValues(Value *x) {
    llvm::SmallVector<Value *> parts;
    if (choose.coin()) {
      Value *qkv = product(x, 3 * width());
      for (int64_t i = 0; i < 3; ++i)
        parts.push_back((*this)(OpCode::Slice, {qkv},
                                {{"starts", Dims{i * width()}},
                                 {"ends", Dims{(i + 1) * width()}},
                                 {"axes", Dims{choose.oneOf({int64_t(-1), int64_t(2)})}}}));
    } else
      for (int i = 0; i < 3; ++i)
        parts.push_back(product(x, width()));
    return parts;
  }

  Value *split(Value *x) {
    Value *four = (*this)(OpCode::Reshape, {x}, {{"shape", Dims{batch_, seq_, heads, size_}}});
    return (*this)(OpCode::Transpose, {four}, {{"perm", Dims{0, 2, 1, 3}}});
  }

  /// Past and new keys (part 0) or values (part 1).
  Value *joined(Value *x, int64_t part, Value *&stacked, unsigned layer) {
    if (past == Past::None)
      return x;
    std::string number = std::to_string(layer);
    Value *before = nullptr;
    if (past == Past::Pair)
      before = argument({DType::F32, {batch_, Dim(heads), Dim::symbol("past"), Dim(size_)}},
                        "past_key_values." + number + (part ? ".value" : ".key"));
    else {
      if (!stacked)
        stacked =
            argument({DType::F32, {Dim(2), batch_, Dim(heads), Dim::symbol("past"), Dim(size_)}},
                     "past_" + number);
      before = (*this)(OpCode::Gather, {stacked, index(part)});
    }
    return (*this)(OpCode::Concat, {before, x}, {{"axis", int64_t(2)}});
  }

  Value *attention(Value *x, unsigned layer) {
    auto parts = queriesKeysValues(x);
    Value *stacked = nullptr;
    Value *q = split(parts[0]), *k = joined(split(parts[1]), 0, stacked, layer),
          *v = joined(split(parts[2]), 1, stacked, layer);
    if (past != Past::None && choose.coin()) {
      presents_.push_back(k);
      presents_.push_back(v);
    }
    Value *transposed = (*this)(OpCode::Transpose, {k}, {{"perm", Dims{0, 1, 3, 2}}});
    double root = std::sqrt(double(size_));
    Value *scores = nullptr;
    switch (choose.below(3)) {
    case 0:
      scores = (*this)(OpCode::Div, {(*this)(OpCode::MatMul, {q, transposed}), scalar(root)});
      break;
    case 1:
      scores = either(OpCode::Mul, (*this)(OpCode::MatMul, {q, transposed}), scalar(1 / root));
      break;
    default: // half of it on each side
      q = either(OpCode::Mul, q, scalar(1 / std::sqrt(root)));
      transposed = either(OpCode::Mul, transposed, scalar(1 / std::sqrt(root)));
      scores = (*this)(OpCode::MatMul, {q, transposed});
    }
    Mask mask = is(WindowMask) ? Mask::Window : Mask::Causal;
    if (!is(NotCausal))
      scores = hide(*this, scores, visible(*this, mask, seq_, keys_));
    if (keyMask) {
      Value *four = (*this)(OpCode::Reshape, {keyMask}, {{"shape", Dims{batch_, 1, 1, keys_}}});
      scores = hide(*this, scores, (*this)(OpCode::Cast, {four}, {{"to", DType::Bool}}));
    }
    Value *p = (*this)(OpCode::Softmax, {scores});
    if (choose.coin())
      p = (*this)(OpCode::Where, {(*this)(OpCode::IsNaN, {p}), scalar(0), p});
    Value *out =
        (*this)(OpCode::Transpose, {(*this)(OpCode::MatMul, {p, v})}, {{"perm", Dims{0, 2, 1, 3}}});
    return product((*this)(OpCode::Reshape, {out}, {{"shape", Dims{batch_, seq_, width()}}}),
                   width());
  }

  void build() {
    keys_ = past == Past::None ? seq_ : Dim::symbol("past") + seq_;
    Value *x = tokens();
    for (unsigned i = 0; i < layers; ++i) {
      x = either(OpCode::Add, x, attention(normOf(x), i));
      x = either(OpCode::Add, x, product(activation(product(normOf(x), 2 * width())), width()));
    }
    if (is(MixedTokens))
      x = (*this)(OpCode::Add, {x, (*this)(OpCode::CumSum, {x, index(1)})});
    Value *table = choose.coin() ? wte_ : random({vocabulary, width()});
    Value *logits = (*this)(
        OpCode::MatMul, {normOf(x), (*this)(OpCode::Transpose, {table}, {{"perm", Dims{1, 0}}})});
    llvm::SmallVector<Value *> results{logits};
    results.append(presents_);
    ret(results);
    function.resultNames = {"logits"};
    for (size_t i = 0; i < presents_.size(); ++i)
      function.resultNames.push_back("present." + std::to_string(i));
  }

  const Dim batch_ = Dim::symbol("batch"), seq_ = Dim::symbol("seq");
  Dim keys_;
  int64_t size_ = 1;
  unsigned odd_ = 0;
  Value *ids_ = nullptr, *wte_ = nullptr;
  llvm::SmallVector<Value *> presents_;
};

} // namespace gpt2c::test
