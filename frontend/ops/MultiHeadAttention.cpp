// com.microsoft MultiHeadAttention: attention over projected queries, keys and values.
#include "frontend/Builders.h"
#include "frontend/ops/AttentionParts.h"
#include "frontend/ops/ContribMasks.h"

#include <cmath>

namespace gpt2c::onnxops {

namespace {

class MultiHeadLowering {
public:
  explicit MultiHeadLowering(NodeLowering &n) : n(n) {}

  /// Inputs: query [b, s, w] or all three [b, s, heads, 3, d]; key [b, t, w], both [b, t, heads, 2,
  /// d] or finished keys [b, heads, t, d]; value; bias of the projection?; key padding mask?;
  /// attention bias?; past keys?; past values?.
  void run() {
    heads_ = n.requiredInt("num_heads");
    refuse();
    if (n.failed())
      return;
    split();
    if (Value *past = n.optional(6)) {
      k_ = n.concat({past, k_}, 2);
      v_ = n.concat({n.in(7), v_}, 2);
    }
    n.out(1, k_);
    n.out(2, v_);
    auto size = NodeLowering::staticDim(q_, 3);
    double scale = n.floatAttr("scale", 0);
    if (n.failed())
      return;
    if (scale == 0 && !size)
      return void(n.unsupported("without a scale the head size must be known"));
    if (scale == 0)
      scale = 1 / std::sqrt(double(*size));
    Value *scores = n.matmul(q_, n.transpose(k_, {0, 1, 3, 2}));
    scores = n.mul(scores, n.scalarLike(scale, scores));
    if (Value *bias = n.optional(5))
      scores = n.add(scores, bias);
    scores = maskKeys(n, scores, n.optional(4), q_, k_);
    if (n.intAttr("unidirectional", 0))
      scores = maskFuture(n, scores, q_, k_);
    n.out(joinHeads(n, n.matmul(n.softmax(scores), v_)));
  }

private:
  void refuse() {
    if (n.has(8))
      n.unsupported("past_sequence_length, a buffer shared by past and present, is not supported");
    if (n.has(9))
      n.unsupported("cache_indirection is not supported");
    if (n.wants(3))
      n.unsupported("the scores as an output are not supported");
    if (n.has(6) != n.has(7))
      n.invalid("past_key and past_value must be given together");
  }

  /// q_, k_ and v_ as [b, heads, s, d].
  void split() {
    Value *query = n.in(0);
    if (n.failed())
      return;
    unsigned rank = query->type.rank();
    if (rank == 5) {
      if (n.has(1) || n.has(2))
        return void(n.invalid("key or value beside a query of rank 5, which holds all three"));
      q_ = withBias(joined(part(query, 3, 0)), 0);
      k_ = withBias(joined(part(query, 3, 1)), 1);
      v_ = withBias(joined(part(query, 3, 2)), 2);
      return;
    }
    Value *key = n.in(1);
    if (n.failed())
      return;
    if (rank != 3)
      return void(n.invalid("a query of rank " + llvm::Twine(rank)));
    q_ = withBias(query, 0);
    unsigned keyRank = key->type.rank();
    if ((keyRank == 5) == n.has(2))
      return void(n.invalid("a key of rank " + llvm::Twine(keyRank) +
                            (n.has(2) ? " beside a value" : " without a value")));
    if (keyRank == 4) {
      if (n.has(3))
        return void(n.unsupported("a bias beside finished keys is not supported"));
      k_ = key, v_ = n.in(2);
      return;
    }
    if (keyRank != 3 && keyRank != 5)
      return void(n.invalid("a key of rank " + llvm::Twine(keyRank)));
    k_ = withBias(keyRank == 5 ? joined(part(key, 2, 0)) : key, 1);
    v_ = withBias(keyRank == 5 ? joined(part(key, 2, 1)) : n.in(2), 2);
  }

  /// [b, s, heads, parts, d] -> [b, s, heads, d]
  Value *part(Value *x, int64_t parts, int64_t i) {
    if (NodeLowering::staticDim(x, 3) != parts)
      return n.invalid("axis 3 of a packed input must be " + llvm::Twine(parts) + ", not " +
                       x->type.shape[3].str());
    return n.squeeze(n.slice(x, 3, i, i + 1), {3});
  }

  /// [b, s, heads, d] -> [b, s, heads * d]
  Value *joined(Value *x) {
    auto size = NodeLowering::staticDim(x, 3);
    return n.reshape(x, {0, 0, size ? heads_ * *size : -1});
  }

  /// [b, s, w] plus its part of the bias, split into heads. The bias holds those of queries and
  /// keys, which are as wide as the query, then that of the values.
  Value *withBias(Value *x, int64_t i) {
    Value *bias = n.optional(3);
    if (!bias || n.failed())
      return splitHeads(n, x, heads_);
    auto width = NodeLowering::staticDim(x, 2);
    if (i == 0)
      width_ = width.value_or(0);
    if (!width || width_ == 0)
      return n.unsupported("the width of the query, key or value is not known");
    Value *own = n.slice(bias, 0, i * width_, i * width_ + *width);
    return splitHeads(n, n.add(x, own), heads_);
  }

  NodeLowering &n;
  int64_t heads_ = 0, width_ = 0;
  Value *q_ = nullptr, *k_ = nullptr, *v_ = nullptr;
};

} // namespace

void multiHeadAttention(NodeLowering &n) { MultiHeadLowering(n).run(); }

} // namespace gpt2c::onnxops
