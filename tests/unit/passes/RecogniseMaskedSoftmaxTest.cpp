// Random spellings of a softmax of given scores: scales, masks of several kinds together, guards.
// Whatever the recogniser makes of them computes the same.
#include "tests/unit/passes/Preserved.h"
#include "tests/unit/passes/Spellings.h"

using namespace gpt2c;
using namespace gpt2c::test;

namespace {

class SoftmaxGraph : public Graph {
public:
  SoftmaxGraph(uint64_t seed, Mask mask) : Graph(seed), mask_(mask) {
    keys_ = choose.coin() ? seq : ::past + seq;
    build();
  }

  std::vector<Tensor> inputs() {
    int64_t b = 2, s = 4, total = keys_ == seq ? s : 3 + s;
    std::vector<Tensor> tensors;
    for (unsigned i = 0; i < function.numArguments(); ++i) {
      const Value *a = function.argument(i);
      if (a->type.rank() == 2) {
        Tensor t(DType::I64, {b, total});
        for (int64_t j = 0; j < t.count();
             ++j) // key 0 stays visible, so that no query sees nothing
          t.data<int64_t>()[j] = j % total == 0 || choose.coin();
        tensors.push_back(t.cast(a->type.dtype));
      } else {
        bool scores = a->name == "scores";
        tensors.push_back(randomInput({b, scores ? 3 : 1, scores ? s : 1, total}));
      }
    }
    return tensors;
  }

  double scale() const { return scale_; }
  bool hasBias() const { return bias_; }
  const Value *keyMask() const { return keyMask_; }
  bool isPlain() const { return plain_; }

private:
  Value *scaled(Value *x) {
    if (choose.coin())
      return x;
    plain_ = false;
    const double by = choose.oneOf({0.125, 0.5, 0.3});
    if (choose.coin()) {
      scale_ = 1 / float(by);
      return (*this)(OpCode::Div, {x, scalar(by)});
    }
    scale_ = float(by);
    return either(OpCode::Mul, x, scalar(by));
  }

  void build() {
    Value *x = argument({DType::F32, {batch, Dim(3), seq, keys_}}, "scores");
    x = scaled(x);
    if (mask_ != Mask::None) {
      plain_ = false;
      x = hide(*this, x, visible(*this, mask_, seq, keys_));
    }
    if (choose.coin()) {
      plain_ = false;
      DType type = choose.oneOf({DType::I64, DType::I32, DType::Bool, DType::F32});
      keyMask_ = argument({type, {batch, keys_}}, "attention_mask");
      Value *four = (*this)(OpCode::Reshape, {keyMask_}, {{"shape", Dims{batch, 1, 1, keys_}}});
      if (type != DType::Bool)
        four = (*this)(OpCode::Cast, {four}, {{"to", DType::Bool}});
      x = hide(*this, x, four);
    }
    if (choose.below(3) == 0) {
      plain_ = false;
      bias_ = argument({DType::F32, {batch, Dim(1), Dim(1), keys_}}, "bias");
      x = either(OpCode::Add, x, bias_);
    }
    Value *p = (*this)(OpCode::Softmax, {x}, {{"axis", int64_t(choose.coin() ? -1 : 3)}});
    if (choose.coin()) {
      plain_ = false;
      p = (*this)(OpCode::Where, {(*this)(OpCode::IsNaN, {p}), scalar(0), p});
    }
    ret({p});
  }

  Mask mask_;
  Dim keys_;
  double scale_ = 1;
  bool plain_ = true; ///< a softmax and nothing else
  Value *keyMask_ = nullptr, *bias_ = nullptr;
};

void testSoftmax(uint64_t seed, Mask mask) {
  SoftmaxGraph g(seed, mask);
  std::vector<Tensor> inputs = g.inputs();
  expectPreserved(g, {"recognise-masked-softmax", "simplify", "cse"}, inputs, 1e-5);
  EXPECT_EQ(countOps(g.function, OpCode::MaskedSoftmax), g.isPlain() ? 0u : 1u)
      << toText(g.function);
  EXPECT_EQ(countOps(g.function, OpCode::Softmax), g.isPlain() ? 1u : 0u);
  for (auto &op : g.function.ops())
    if (op->is(OpCode::MaskedSoftmax)) {
      EXPECT_EQ(op->boolAttr("causal"), mask == Mask::Causal);
      EXPECT_NEAR(op->floatAttr("scale"), g.scale(), 1e-6 * g.scale());
      EXPECT_EQ(op->operand(1) != nullptr, g.keyMask() != nullptr);
      EXPECT_EQ(op->numOperands() > 2 && op->operand(2), g.hasBias());
    }
}

TEST(RecogniseMaskedSoftmax, Unmasked) {
  forSeeds([](uint64_t seed) { testSoftmax(seed, Mask::None); });
}
TEST(RecogniseMaskedSoftmax, Causal) {
  forSeeds([](uint64_t seed) { testSoftmax(seed, Mask::Causal); });
}

} // namespace
