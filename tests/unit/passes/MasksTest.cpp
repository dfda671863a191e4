// Every kind of mask, as exporters write it, against an attention written out here: what is
// recognised, and what it computes for every token that is not padding, in batches of different
// lengths.
#include "tests/unit/passes/Preserved.h"
#include "tests/unit/passes/Spellings.h"

using namespace gpt2c;
using namespace gpt2c::test;

namespace {

constexpr int64_t heads = 2, headDim = 3, width = heads * headDim, sequences = 3, tokens = 6;
constexpr int64_t lengths[sequences] = {6, 4, 1}; // tokens that are not padding

/// What query s of sequence b sees of key j in head h: nothing, or with a bias.
using Bias = std::function<std::optional<double>(int64_t b, int64_t h, int64_t s, int64_t j)>;

/// softmax(q k^T / sqrt(d) + bias) v for one element of [batch, tokens, width]; keys are rows of
/// [batch, count, width].
double attend(const Tensor &q, const Tensor &k, const Tensor &v, const Bias &bias, int64_t b,
              int64_t s, int64_t element) {
  int64_t h = element / headDim, keys = k.dim(1);
  auto at = [](const Tensor &t, int64_t row, int64_t token, int64_t e) {
    return t.data<double>()[(row * t.dim(1) + token) * t.dim(2) + e];
  };
  double sum = 0, out = 0;
  for (int64_t j = 0; j < keys; ++j) {
    auto added = bias(b, h, s, j);
    if (!added)
      continue;
    double dot = 0;
    for (int64_t d = 0; d < headDim; ++d)
      dot += at(q, b, s, h * headDim + d) * at(k, b, j, h * headDim + d);
    double weight = std::exp(dot / std::sqrt(double(headDim)) + *added);
    sum += weight;
    out += weight * at(v, b, j, element);
  }
  return out / sum;
}

enum class Kind { None, Causal, Left, Right, Additive, CausalAdditive };

class MaskGraph : public Graph {
public:
  MaskGraph(uint64_t seed, Kind kind) : Graph(seed), kind_(kind) {
    Value *parts[3];
    for (int i = 0; i < 3; ++i)
      parts[i] = split(argument({DType::F32, {batch, seq, Dim(width)}}, std::string(1, "qkv"[i])));
    Value *k = (*this)(OpCode::Transpose, {parts[1]}, {{"perm", Dims{0, 1, 3, 2}}});
    Value *scores = (*this)(OpCode::MatMul, {parts[0], k});
    scores = (*this)(OpCode::Div, {scores, scalar(std::sqrt(double(headDim)))});
    if (kind == Kind::Additive || kind == Kind::CausalAdditive)
      scores =
          either(OpCode::Add, scores, argument({DType::F32, {batch, heads, seq, seq}}, "bias"));
    if (kind != Kind::None && kind != Kind::Additive)
      scores = hide(*this, scores, visible(*this, Mask::Causal, seq, seq));
    if (padded()) {
      maskType_ = maskType(*this);
      Value *mask = argument({maskType_, {batch, seq}}, "attention_mask");
      mask = (*this)(OpCode::Reshape, {mask}, {{"shape", Dims{batch, 1, 1, seq}}});
      scores = hide(*this, scores, (*this)(OpCode::Cast, {mask}, {{"to", DType::Bool}}));
    }
    Value *p = (*this)(OpCode::Softmax, {scores});
    Value *out = (*this)(OpCode::MatMul, {p, parts[2]});
    out = (*this)(OpCode::Transpose, {out}, {{"perm", Dims{0, 2, 1, 3}}});
    ret({(*this)(OpCode::Reshape, {out}, {{"shape", Dims{batch, seq, width}}})});
  }

  bool padded() const { return kind_ == Kind::Left || kind_ == Kind::Right; }
  bool isToken(int64_t b, int64_t j) const {
    return kind_ == Kind::Left ? j >= tokens - lengths[b] : !padded() || j < lengths[b];
  }

  std::vector<Tensor> inputs() {
    std::vector<Tensor> in;
    for (int i = 0; i < 3; ++i)
      in.push_back(randomInput({sequences, tokens, width}));
    if (kind_ == Kind::Additive || kind_ == Kind::CausalAdditive)
      in.push_back(randomInput({sequences, heads, tokens, tokens}));
    if (padded()) {
      Tensor mask(DType::I64, {sequences, tokens});
      for (int64_t i = 0; i < mask.count(); ++i)
        mask.data<int64_t>()[i] = isToken(i / tokens, i % tokens);
      in.push_back(mask.cast(maskType_));
    }
    return in;
  }

private:
  Value *split(Value *x) {
    Value *four = (*this)(OpCode::Reshape, {x}, {{"shape", Dims{batch, seq, heads, headDim}}});
    return (*this)(OpCode::Transpose, {four}, {{"perm", Dims{0, 2, 1, 3}}});
  }

  Kind kind_;
  DType maskType_ = DType::I64;
};

void testMask(uint64_t seed, Kind kind) {
  MaskGraph g(seed, kind);
  std::vector<Tensor> in = g.inputs();
  std::vector<Remark> remarks;
  PassOptions options;
  PassContext context(g.module, options, remarks);
  for (llvm::StringRef pass : {"recognise-attention", "simplify"})
    ASSERT_FALSE(bool(runPass(*findPass(pass), context, {})));

  bool causal = kind != Kind::None && kind != Kind::Additive,
       biased = kind == Kind::Additive || kind == Kind::CausalAdditive;
  ASSERT_EQ(countOps(g.function, OpCode::Attention), 1u) << toText(g.function);
  ASSERT_EQ(countOps(g.function, OpCode::Softmax), 0u);
  for (auto &op : g.function.ops())
    if (op->is(OpCode::Attention)) {
      EXPECT_EQ(op->boolAttr("causal"), causal);
      EXPECT_EQ(op->operand(5) != nullptr, g.padded());
      EXPECT_EQ(op->operand(6) != nullptr, biased);
    }

  auto out = Executor(g.function, {.float64 = true}).run(in);
  ASSERT_TRUE(bool(out)) << llvm::toString(out.takeError());
  auto bias = [&](int64_t b, int64_t h, int64_t s, int64_t j) -> std::optional<double> {
    if ((causal && j > s) || !g.isToken(b, j))
      return std::nullopt;
    return biased ? in[3].asDouble(((b * heads + h) * tokens + s) * tokens + j) : 0;
  };
  for (int64_t i = 0; i < (*out)[0].count(); ++i) {
    int64_t b = i / width / tokens, s = i / width % tokens;
    if (g.isToken(b, s)) {
      ASSERT_NEAR((*out)[0].asDouble(i), attend(in[0], in[1], in[2], bias, b, s, i % width), 1e-6)
          << "sequence " << b << ", token " << s << "\n"
          << toText(g.function);
    }
  }
}

TEST(Masks, None) {
  forSeeds([](uint64_t seed) { testMask(seed, Kind::None); }, 30);
}
TEST(Masks, Causal) {
  forSeeds([](uint64_t seed) { testMask(seed, Kind::Causal); }, 30);
}
TEST(Masks, CausalWithLeftPadding) {
  forSeeds([](uint64_t seed) { testMask(seed, Kind::Left); }, 60);
}
TEST(Masks, CausalWithRightPadding) {
  forSeeds([](uint64_t seed) { testMask(seed, Kind::Right); }, 60);
}
TEST(Masks, Additive) {
  forSeeds([](uint64_t seed) { testMask(seed, Kind::Additive); }, 30);
}
TEST(Masks, CausalAndAdditive) {
  forSeeds([](uint64_t seed) { testMask(seed, Kind::CausalAdditive); }, 30);
}

// Prompts of different lengths, padded on the right, appended behind pasts of different lengths:
// every token sees its own past and nothing of the padding, now and in the step after.
TEST(Masks, KvStateOfDifferentLengths) {
  constexpr int64_t context = 16, slots = 4, pasts[sequences] = {0, 5, 3};
  Graph g(1);
  Value *kv = g.argument({DType::F32, {1, 2, slots, heads, context, headDim}}, "kv"),
        *past = g.argument({DType::I32, {batch}}, "past");
  Value *qkv[3];
  for (int i = 0; i < 3; ++i)
    qkv[i] = g.argument({DType::F32, {batch, seq, Dim(width)}}, std::string(1, "qkv"[i]));
  Value *next = g(OpCode::KvAppend, {kv, qkv[1], qkv[2], past}, {{"layer", int64_t(0)}});
  Value *out =
      g(OpCode::CachedAttention, {qkv[0], next, past},
        {{"layer", int64_t(0)}, {"num_heads", heads}, {"scale", 1 / std::sqrt(double(headDim))}});
  g.ret({out, next});

  // All keys and values there will be, in the order of their tokens.
  Tensor k = g.randomInput({sequences, context, width}), v = g.randomInput(k.shape());
  Tensor state(DType::F64, {1, 2, slots, heads, context, headDim});
  std::fill_n(state.data<double>(), state.count(), 100.0); // must not be seen
  auto place = [&](int64_t part, int64_t b, int64_t t, int64_t e) -> double & {
    return state
        .data<double>()[(((part * slots + b) * heads + e / headDim) * context + t) * headDim +
                        e % headDim];
  };
  for (int64_t b = 0; b < sequences; ++b)
    for (int64_t t = 0; t < pasts[b]; ++t)
      for (int64_t e = 0; e < width; ++e) {
        place(0, b, t, e) = k.asDouble((b * context + t) * width + e);
        place(1, b, t, e) = v.asDouble((b * context + t) * width + e);
      }
  auto step = [&](llvm::ArrayRef<int64_t> before, llvm::ArrayRef<int64_t> count, int64_t longest) {
    Tensor q = g.randomInput({sequences, longest, width}), newK(DType::F64, q.shape()),
           newV(DType::F64, q.shape());
    for (int64_t i = 0; i < newK.count(); ++i) {
      int64_t b = i / width / longest, s = i / width % longest, e = i % width;
      bool isToken = s < count[b];
      int64_t from = (b * context + before[b] + s) * width + e;
      newK.data<double>()[i] = isToken ? k.asDouble(from) : 50;
      newV.data<double>()[i] = isToken ? v.asDouble(from) : 50;
    }
    auto result =
        Executor(g.function, {.float64 = true})
            .run({state,
                  Tensor::of<int64_t>({before.begin(), before.end()}, {sequences}).cast(DType::I32),
                  q, newK, newV});
    ASSERT_TRUE(bool(result)) << llvm::toString(result.takeError());
    for (int64_t i = 0; i < q.count(); ++i) {
      int64_t b = i / width / longest, s = i / width % longest;
      auto bias = [&](int64_t, int64_t, int64_t, int64_t j) -> std::optional<double> {
        return j <= before[b] + s ? std::optional(0.0) : std::nullopt;
      };
      if (s < count[b]) {
        ASSERT_NEAR((*result)[0].asDouble(i), attend(q, k, v, bias, b, s, i % width), 1e-9)
            << "sequence " << b << ", token " << s;
      }
    }
    state = (*result)[1];
  };
  step(pasts, lengths, tokens);
  int64_t after[sequences];
  for (int64_t b = 0; b < sequences; ++b)
    after[b] = pasts[b] + lengths[b];
  step(after, {1, 1, 1}, 1);
}

} // namespace
