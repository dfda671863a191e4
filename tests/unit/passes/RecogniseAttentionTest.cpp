// Random spellings of attention: masks, scales, pasts and heads. Whatever the recogniser makes of
// them computes the same.
#include "tests/unit/passes/Preserved.h"
#include "tests/unit/passes/Spellings.h"

using namespace gpt2c;
using namespace gpt2c::test;

namespace {

enum class Past { None, Pair, Stacked };

class AttentionGraph : public Graph {
public:
  AttentionGraph(uint64_t seed, Mask mask) : Graph(seed), mask_(mask) {
    heads_ = 1 + choose.below(3);
    size_ = 1 + choose.below(4);
    past_ = choose.oneOf({Past::None, Past::Pair, Past::Stacked});
    keys_ = past_ == Past::None ? seq : ::past + seq;
    build();
  }

  std::vector<Tensor> inputs() {
    int64_t b = 2, s = 4, p = 3, total = past_ == Past::None ? s : p + s;
    std::vector<Tensor> tensors;
    for (unsigned i = 0; i < function.numArguments(); ++i) {
      const Value *a = function.argument(i);
      if (a == keyMask_) {
        // A query that sees nothing has no defined result: key 0 stays visible, and where the mask
        // hides that, every other key and the last.
        bool usual = mask_ == Mask::None || mask_ == Mask::Causal;
        Tensor t(DType::I64, {b, total});
        for (int64_t j = 0; j < t.count(); ++j)
          t.data<int64_t>()[j] = j % total == 0 ||
                                 (!usual && (j % total % 2 || j % total == total - 1)) ||
                                 choose.coin();
        tensors.push_back(t.cast(a->type.dtype));
      } else if (a->type.rank() == 3)
        tensors.push_back(randomInput({b, s, *a->type.shape[2].constant()}));
      else if (a->type.rank() == 4)
        tensors.push_back(randomInput({b, heads_, p, size_}));
      else
        tensors.push_back(randomInput({2, b, heads_, p, size_}));
    }
    return tensors;
  }

  bool hasKeyMask() const { return keyMask_; }
  int64_t heads() const { return heads_; }
  double scale() const { return scale_; }

private:
  /// Queries, keys and values [batch, seq, width]: arguments of their own, or thirds of one.
  llvm::SmallVector<Value *> sources() {
    int64_t width = heads_ * size_;
    llvm::SmallVector<Value *> parts;
    if (choose.coin()) {
      Value *qkv = argument({DType::F32, {batch, seq, Dim(3 * width)}}, "qkv");
      for (int64_t i = 0; i < 3; ++i)
        parts.push_back((*this)(
            OpCode::Slice, {qkv},
            {{"starts", Dims{i * width}}, {"ends", Dims{(i + 1) * width}}, {"axes", Dims{-1}}}));
    } else
      for (const char *name : {"q", "k", "v"})
        parts.push_back(argument({DType::F32, {batch, seq, Dim(width)}}, name));
    return parts;
  }

  Value *split(Value *x) {
    Value *four = (*this)(OpCode::Reshape, {x}, {{"shape", Dims{batch, seq, heads_, size_}}});
    return (*this)(OpCode::Transpose, {four}, {{"perm", Dims{0, 2, 1, 3}}});
  }

  Value *withPast(Value *x, int64_t part) {
    if (past_ == Past::None)
      return x;
    Value *before = nullptr;
    if (past_ == Past::Pair)
      before = argument({DType::F32, {batch, Dim(heads_), ::past, Dim(size_)}},
                        part ? "past_v" : "past_k");
    else {
      if (!stacked_)
        stacked_ = argument({DType::F32, {Dim(2), batch, Dim(heads_), ::past, Dim(size_)}}, "past");
      before = (*this)(OpCode::Gather, {stacked_, index(part)});
    }
    return (*this)(OpCode::Concat, {before, x}, {{"axis", int64_t(2)}});
  }

  Value *scaled(Value *x, double by) {
    scale_ *= float(by);
    return either(OpCode::Mul, x, scalar(by));
  }

  void build() {
    auto parts = sources();
    Value *q = split(parts[0]), *k = withPast(split(parts[1]), 0),
          *v = withPast(split(parts[2]), 1);
    k = (*this)(OpCode::Transpose, {k}, {{"perm", Dims{0, 1, 3, 2}}});
    double third = choose.oneOf({1.0, 0.5, 0.8});
    if (choose.coin())
      q = scaled(q, third);
    if (choose.coin())
      k = scaled(k, third);
    Value *scores = (*this)(OpCode::MatMul, {q, k});
    if (choose.coin())
      scores = scaled(scores, 0.25);
    if (mask_ != Mask::None)
      scores = hide(*this, scores, visible(*this, mask_, seq, keys_));
    if (choose.coin()) {
      keyMask_ = argument({maskType(*this), {batch, keys_}}, "attention_mask");
      Value *four = (*this)(OpCode::Reshape, {keyMask_}, {{"shape", Dims{batch, 1, 1, keys_}}});
      scores = hide(*this, scores, (*this)(OpCode::Cast, {four}, {{"to", DType::Bool}}));
    }
    Value *probabilities = (*this)(OpCode::Softmax, {scores});
    if (choose.coin())
      probabilities = (*this)(OpCode::Where,
                              {(*this)(OpCode::IsNaN, {probabilities}), scalar(0), probabilities});
    Value *out = (*this)(OpCode::MatMul, {probabilities, v});
    out = (*this)(OpCode::Transpose, {out}, {{"perm", Dims{0, 2, 1, 3}}});
    ret({(*this)(OpCode::Reshape, {out}, {{"shape", Dims{batch, seq, heads_ * size_}}})});
  }

  Mask mask_;
  Past past_ = Past::None;
  Dim keys_;
  int64_t heads_ = 1, size_ = 1;
  double scale_ = 1;
  Value *keyMask_ = nullptr, *stacked_ = nullptr;
};

void testAttention(uint64_t seed, Mask mask) {
  AttentionGraph g(seed, mask);
  std::vector<Tensor> inputs = g.inputs();
  expectPreserved(g, {"recognise-attention", "simplify", "cse"}, inputs, 1e-5);
  EXPECT_EQ(countOps(g.function, OpCode::Attention), 1u) << toText(g.function);
  EXPECT_EQ(countOps(g.function, OpCode::MatMul), 0u);
  EXPECT_EQ(countOps(g.function, OpCode::Softmax), 0u);
  bool usual = mask != Mask::AntiCausal;
  for (auto &op : g.function.ops())
    if (op->is(OpCode::Attention)) {
      EXPECT_EQ(op->boolAttr("causal"), mask == Mask::Causal || mask == Mask::Window);
      EXPECT_EQ(op->intAttr("window"), mask == Mask::Window ? 2 : 0);
      EXPECT_EQ(op->intAttr("num_heads"), g.heads());
      EXPECT_NEAR(op->floatAttr("scale"), g.scale(), 1e-6 * g.scale());
      EXPECT_EQ(op->operand(6) != nullptr, !usual);
      EXPECT_TRUE(!usual || (op->operand(5) != nullptr) == g.hasKeyMask());
    }
}

TEST(RecogniseAttention, Unmasked) {
  forSeeds([](uint64_t seed) { testAttention(seed, Mask::None); });
}
TEST(RecogniseAttention, Causal) {
  forSeeds([](uint64_t seed) { testAttention(seed, Mask::Causal); });
}
TEST(RecogniseAttention, Window) {
  forSeeds([](uint64_t seed) { testAttention(seed, Mask::Window); });
}
// Any other mask is added to the scores.
TEST(RecogniseAttention, AntiCausal) {
  forSeeds([](uint64_t seed) { testAttention(seed, Mask::AntiCausal); });
}

} // namespace
