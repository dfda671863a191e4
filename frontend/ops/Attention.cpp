// ONNX Attention, opset 23.
#include "frontend/Builders.h"

#include <cmath>
#include <limits>

namespace gpt2c::onnxops {

namespace {

constexpr double minusInfinity = -std::numeric_limits<double>::infinity();

class AttentionLowering {
public:
  explicit AttentionLowering(NodeLowering &n) : n(n) {}

  void run() {
    q = n.in(0), k = n.in(1), v = n.in(2);
    mask = n.optional(3);
    refuse();
    if (n.failed())
      return;
    bool packed = q->type.rank() == 3;
    if (packed) {
      q = splitHeads(q, n.requiredInt("q_num_heads"));
      k = splitHeads(k, n.requiredInt("kv_num_heads"));
      v = splitHeads(v, n.requiredInt("kv_num_heads"));
    }
    Value *newKeys = k;
    if (Value *past = n.optional(4)) {
      k = n.concat({past, k}, 2);
      v = n.concat({n.in(5), v}, 2);
    }
    n.out(1, k);
    n.out(2, v);
    repeatHeads();
    Value *scores = scaledScores();
    scores = applyMasks(scores, newKeys);
    Value *y = n.matmul(probabilities(scores), v);
    if (packed)
      y = joinHeads(y);
    n.out(y);
  }

private:
  void refuse() {
    if (n.floatAttr("softcap", 0) != 0)
      n.unsupported("softcap is not supported");
    if (n.wants(3))
      n.unsupported("the scores as an output are not supported");
    if (n.has(6))
      n.unsupported("nonpad_kv_seqlen is not supported");
    if (n.has(4) != n.has(5))
      n.invalid("past_key and past_value must be given together");
    if (n.failed())
      return;
    unsigned rank = q->type.rank();
    if ((rank != 3 && rank != 4) || k->type.rank() != rank || v->type.rank() != rank)
      n.invalid("Q, K and V must all have rank 3 or 4");
    if (mask && mask->type.dtype != DType::Bool && mask->type.dtype != q->type.dtype)
      n.unsupported("a mask of type " + mask->type.str() + " for a query of type " + q->type.str());
  }

  /// [b, s, h * d] -> [b, h, s, d]
  Value *splitHeads(Value *x, int64_t heads) {
    if (n.failed())
      return nullptr;
    auto width = NodeLowering::staticDim(x, 2);
    if (heads < 1 || (width && *width % heads != 0)) {
      n.invalid("a width of " + x->type.shape[2].str() + " does not split into " +
                llvm::Twine(heads) + " heads");
      return nullptr;
    }
    return n.transpose(n.reshape(x, {0, 0, heads, width ? *width / heads : -1}), {0, 2, 1, 3});
  }

  /// [b, h, s, d] -> [b, s, h * d]
  Value *joinHeads(Value *x) {
    auto heads = NodeLowering::staticDim(x, 1), size = NodeLowering::staticDim(x, 3);
    return n.reshape(n.transpose(x, {0, 2, 1, 3}), {0, 0, heads && size ? *heads * *size : -1});
  }

  /// Fewer key heads than query heads: each serves a group of neighbouring query heads.
  void repeatHeads() {
    if (n.failed() || q->type.shape[1] == k->type.shape[1])
      return;
    auto heads = NodeLowering::staticDim(q, 1), shared = NodeLowering::staticDim(k, 1);
    if (!heads || !shared) {
      n.unsupported("the numbers of heads, " + q->type.shape[1].str() + " and " +
                    k->type.shape[1].str() + ", are not known");
      return;
    }
    if (*shared == 0 || *heads % *shared != 0) {
      n.invalid(llvm::Twine(*heads) + " query heads cannot share " + llvm::Twine(*shared) +
                " key heads");
      return;
    }
    k = repeat(k, *heads, *heads / *shared);
    v = repeat(v, *heads, *heads / *shared);
  }

  Value *repeat(Value *x, int64_t heads, int64_t group) {
    auto size = NodeLowering::staticDim(x, 3);
    if (!size) {
      n.unsupported("the head size is not known");
      return nullptr;
    }
    Value *tiled =
        n.emit(OpCode::Tile, {n.unsqueeze(x, {2})}, {{"repeats", toDims({1, 1, group, 1, 1})}});
    return n.reshape(tiled, {0, heads, -1, *size});
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
      scores = mask && mask->type.dtype == DType::Bool
                   ? n.where(mask, scores, n.scalarLike(minusInfinity, scores))
                   : n.add(scores, mask);
    }
    if (n.intAttr("is_causal", 0)) {
      // Query i sees key j when j <= past + i, where past = all keys - new keys.
      Value *all = n.sizeOf(k, 2);
      Value *past = n.sub(all, n.sizeOf(newKeys, 2));
      Value *row = n.unsqueeze(n.add(n.iota(n.sizeOf(q, 2)), past), {1});
      Value *visible = n.emit(OpCode::LessEqual, {n.unsqueeze(n.iota(all), {0}), row});
      scores = n.where(visible, scores, n.scalarLike(minusInfinity, scores));
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

  /// Softmax over the keys; a row in which all keys are masked is all -inf, its softmax NaN, and
  /// counts as zeros.
  Value *probabilities(Value *scores) {
    if (n.failed())
      return nullptr;
    DType type = scores->type.dtype;
    if (n.intAttr("softmax_precision", 0))
      if (auto wide = n.dtypeAttr("softmax_precision"))
        scores = n.cast(scores, *wide);
    Value *p = n.softmax(scores);
    if (mask) {
      Value *empty = n.emit(OpCode::IsNaN, {p});
      p = n.where(empty, n.scalarLike(0, p), p);
    }
    return n.failed() ? nullptr : n.cast(p, type);
  }

  NodeLowering &n;
  Value *q = nullptr, *k = nullptr, *v = nullptr, *mask = nullptr;
};

} // namespace

void attention(NodeLowering &n) { AttentionLowering(n).run(); }

} // namespace gpt2c::onnxops
