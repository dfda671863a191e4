// ONNX Attention, opsets 23 and 24.
#include "frontend/Builders.h"
#include "frontend/ops/AttentionParts.h"

#include <cmath>
#include <limits>

namespace gpt2c::onnxops {

namespace {

constexpr double minusInfinity = -std::numeric_limits<double>::infinity();

class AttentionLowering {
public:
  explicit AttentionLowering(NodeLowering &n) : n(n) {}

  /// Inputs: Q, K, V, mask?, past keys?, past values?, numbers of keys that count [b]? (opset 24).
  /// Outputs: Y, present keys, present values, scores.
  void run() {
    q = n.in(0), k = n.in(1), v = n.in(2);
    mask = n.optional(3);
    lengths = n.optional(6);
    refuse();
    if (n.failed())
      return;
    bool packed = q->type.rank() == 3;
    if (packed) {
      q = splitHeads(n, q, n.requiredInt("q_num_heads"));
      k = splitHeads(n, k, n.requiredInt("kv_num_heads"));
      v = splitHeads(n, v, n.requiredInt("kv_num_heads"));
    }
    Value *newKeys = k;
    if (Value *past = n.optional(4)) {
      k = n.concat({past, k}, 2);
      v = n.concat({n.in(5), v}, 2);
    }
    n.out(1, k);
    n.out(2, v);
    shareHeads();
    Value *scores = scaledScores();
    giveScores(0, scores);
    scores = softcap(n, scores, n.floatAttr("softcap", 0));
    giveScores(1, scores);
    scores = applyMasks(scores, newKeys);
    giveScores(2, scores);
    Value *p = probabilities(scores);
    giveScores(3, p);
    Value *y = n.matmul(p, v);
    if (packed)
      y = joinHeads(n, y);
    n.out(y);
  }

private:
  void refuse() {
    int64_t mode = n.intAttr("qk_matmul_output_mode", 0);
    if (mode < 0 || mode > 3)
      n.invalid("qk_matmul_output_mode must be 0, 1, 2 or 3, not " + llvm::Twine(mode));
    if (n.has(4) != n.has(5))
      n.invalid("past_key and past_value must be given together");
    if (lengths && n.opset() < 24)
      n.invalid("input 6, nonpad_kv_seqlen, exists from opset 24 on");
    if (lengths && (n.has(4) || n.wants(1) || n.wants(2)))
      n.invalid("nonpad_kv_seqlen together with past or present keys");
    if (n.failed())
      return;
    unsigned rank = q->type.rank();
    if ((rank != 3 && rank != 4) || k->type.rank() != rank || v->type.rank() != rank)
      n.invalid("Q, K and V must all have rank 3 or 4");
    if (mask && mask->type.dtype != DType::Bool && mask->type.dtype != q->type.dtype)
      n.unsupported("a mask of type " + mask->type.str() + " for a query of type " + q->type.str());
    if (lengths && lengths->type.rank() != 1)
      n.invalid("nonpad_kv_seqlen must have rank 1");
  }

  /// The output that qk_matmul_output_mode asks for.
  void giveScores(int64_t mode, Value *scores) {
    if (n.wants(3) && n.intAttr("qk_matmul_output_mode", 0) == mode)
      n.out(3, scores);
  }

  /// Fewer key heads than query heads: each serves a group of neighbouring query heads.
  void shareHeads() {
    if (n.failed() || q->type.shape[1] == k->type.shape[1])
      return;
    auto heads = NodeLowering::staticDim(q, 1), shared = NodeLowering::staticDim(k, 1);
    if (!heads || !shared) {
      n.unsupported("the numbers of heads, " + q->type.shape[1].str() + " and " +
                    k->type.shape[1].str() + ", are not known");
      return;
    }
    k = repeatHeads(n, k, *heads);
    v = repeatHeads(n, v, *heads);
  }

  /// (q sqrt(scale)) (k sqrt(scale))^T
  Value *scaledScores() {
    if (n.failed())
      return nullptr;
    double scale = n.floatAttr("scale", 0);
    if (!n.hasAttr("scale")) {
      auto size = NodeLowering::staticDim(q, 3);
      if (!size || *size == 0)
        return n.unsupported("without a scale the head size must be known");
      scale = 1 / std::sqrt(double(*size));
    }
    if (scale < 0)
      return n.invalid("the scale is negative");
    Value *root = n.scalarLike(std::sqrt(scale), q);
    Value *scaledQueries = n.mul(q, root);
    return n.matmul(scaledQueries, n.transpose(n.mul(k, root), {0, 1, 3, 2}));
  }

  Value *applyMasks(Value *scores, Value *newKeys) {
    if (mask && !n.failed()) {
      padMask();
      scores = mask && mask->type.dtype == DType::Bool ? hideScores(n, scores, mask)
                                                       : n.add(scores, mask);
    }
    if (lengths) {
      lengths = n.unsqueeze(n.cast(lengths, DType::I64), {1, 2, 3});
      Value *key = n.iota(n.sizeOf(k, 2));
      scores = hideScores(n, scores, n.emit(OpCode::Less, {key, lengths}));
    }
    if (n.intAttr("is_causal", 0)) {
      // Query i sees key j when j <= before + i, where before = all keys that count - new ones.
      Value *all = n.sizeOf(k, 2), *queries = n.sizeOf(q, 2);
      Value *before = lengths ? n.sub(lengths, queries) : n.sub(all, n.sizeOf(newKeys, 2));
      Value *key = n.unsqueeze(n.iota(all), {0}), *query = n.iota(queries);
      Value *row =
          lengths ? n.add(n.unsqueeze(query, {1}), before) : n.unsqueeze(n.add(query, before), {1});
      scores = hideScores(n, scores, n.emit(OpCode::LessEqual, {key, row}));
    }
    return scores;
  }

  /// A mask for fewer keys than there are hides the rest.
  void padMask() {
    auto have = NodeLowering::staticDim(mask, -1), need = NodeLowering::staticDim(k, 2);
    if (!have || !need || *have >= *need || *have == 1)
      return;
    Value *fill = mask->type.dtype == DType::Bool ? n.scalar(0, DType::Bool)
                                                  : n.scalarLike(minusInfinity, mask);
    llvm::SmallVector<Value *, 4> dims;
    int64_t last = mask->type.rank() - 1;
    for (int64_t d = 0; d < last; ++d)
      dims.push_back(n.sizeOf(mask, d));
    dims.push_back(n.ints({*need - *have}));
    mask = n.concat({mask, n.emit(OpCode::Expand, {fill, n.concat(dims, 0)})}, last);
  }

  /// Softmax over the keys; where all keys of a row may be hidden, that row counts as zeros.
  Value *probabilities(Value *scores) {
    if (n.failed())
      return nullptr;
    DType type = scores->type.dtype;
    if (n.intAttr("softmax_precision", 0))
      if (auto wide = n.dtypeAttr("softmax_precision"))
        scores = n.cast(scores, *wide);
    Value *p = mask || lengths ? softmaxOrZeros(n, scores) : n.softmax(scores);
    return n.failed() ? nullptr : n.cast(p, type);
  }

  NodeLowering &n;
  Value *q = nullptr, *k = nullptr, *v = nullptr, *mask = nullptr, *lengths = nullptr;
};

} // namespace

void attention(NodeLowering &n) { AttentionLowering(n).run(); }

} // namespace gpt2c::onnxops
