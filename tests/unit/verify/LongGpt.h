// A GPT-2 of one layer whose mask is stored, as older exporters write it, with 96 positions.
#pragma once

#include "passes/Pipeline.h"
#include "tests/unit/passes/Spellings.h"

namespace gpt2c::test {

class LongGpt : public Graph {
public:
  static constexpr int64_t context = 96, heads = 2, headDim = 4, width = heads * headDim,
                           vocabulary = 37;

  explicit LongGpt(uint64_t seed = 1) : Graph(seed) {
    build();
    unsigned number = 0;
    for (auto &op : function.ops())
      op->addLocations({intern("node_" + std::to_string(number++))});
  }

  /// Runs the pipeline on a copy of the graph.
  llvm::Expected<Module> compiled(const PassOptions &options = {}) const {
    Module m;
    m.functions.push_back(function.clone(function.name()));
    std::vector<Remark> remarks;
    PassContext context(m, options, remarks);
    if (llvm::Error e = runPipeline(context, {}))
      return e;
    return m;
  }

  Value *mask = nullptr;    ///< bool[context, context], stored
  Value *queries = nullptr; ///< the weights [width, 3 width] that give queries, keys and values

private:
  Value *linear(Value *x, int64_t k, int64_t n, Value **kept = nullptr) {
    Value *w = random({k, n});
    if (kept)
      *kept = w;
    return (*this)(OpCode::Add, {(*this)(OpCode::MatMul, {x, w}), random({n})});
  }

  Value *head(Value *qkv, int64_t part, llvm::ArrayRef<int64_t> perm) {
    Value *one = (*this)(OpCode::Slice, {qkv},
                         {{"starts", Dims{part * width}},
                          {"ends", Dims{(part + 1) * width}},
                          {"axes", Dims{int64_t(2)}}});
    Value *four = (*this)(OpCode::Reshape, {one}, {{"shape", Dims{batch_, seq_, heads, headDim}}});
    return (*this)(OpCode::Transpose, {four}, {{"perm", Dims(perm.begin(), perm.end())}});
  }

  Value *attention(Value *x) {
    Value *qkv = linear(x, width, 3 * width, &queries);
    Value *q = head(qkv, 0, {0, 2, 1, 3}), *k = head(qkv, 1, {0, 2, 3, 1}),
          *v = head(qkv, 2, {0, 2, 1, 3});
    Value *scores = (*this)(OpCode::Mul, {(*this)(OpCode::MatMul, {q, k}), scalar(0.5)});
    Value *seen =
        (*this)(OpCode::Slice, {mask},
                {{"starts", Dims{0, 0}}, {"ends", Dims{seq_, seq_}}, {"axes", Dims{0, 1}}});
    scores = (*this)(OpCode::Where, {seen, scores, scalar(-INFINITY)});
    Value *p = (*this)(OpCode::Softmax, {scores});
    Value *out =
        (*this)(OpCode::Transpose, {(*this)(OpCode::MatMul, {p, v})}, {{"perm", Dims{0, 2, 1, 3}}});
    out = (*this)(OpCode::Reshape, {out}, {{"shape", Dims{batch_, seq_, width}}});
    return linear(out, width, width);
  }

  Value *normOf(Value *x) {
    return (*this)(OpCode::LayerNorm, {x, random({width}), random({width})});
  }

  void build() {
    Value *ids = argument({DType::I64, {batch_, seq_}}, "input_ids");
    Tensor causal(DType::Bool, {context, context});
    for (int64_t i = 0; i < context * context; ++i)
      causal.data<uint8_t>()[i] = i % context <= i / context;
    mask = Builder(function).constant(causal);
    Value *positions =
        (*this)(OpCode::Range, {}, {{"start", Dims{0}}, {"limit", Dims{seq_}}, {"delta", Dims{1}}});
    Value *x =
        (*this)(OpCode::Add, {(*this)(OpCode::Gather, {random({vocabulary, width}), ids}),
                              (*this)(OpCode::Gather, {random({context, width}), positions})});
    x = (*this)(OpCode::Add, {x, attention(normOf(x))});
    Value *hidden = gelu(*this, linear(normOf(x), width, 2 * width), true, 1);
    x = (*this)(OpCode::Add, {x, linear(hidden, 2 * width, width)});
    ret({(*this)(OpCode::MatMul, {normOf(x), random({width, vocabulary})})});
    function.resultNames = {"logits"};
  }

  const Dim batch_ = Dim::symbol("batch"), seq_ = Dim::symbol("seq");
};

} // namespace gpt2c::test
