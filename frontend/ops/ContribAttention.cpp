// com.microsoft Attention and QAttention: the projection to queries, keys and values included.
#include "frontend/Builders.h"
#include "frontend/ops/ContribMasks.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <numeric>

namespace gpt2c::onnxops {

namespace {

class ContribAttentionLowering {
public:
  explicit ContribAttentionLowering(NodeLowering &n) : n(n) {}

  /// Inputs: x[b, s, w], weights[w, q + k + v], bias[q + k + v]?, mask index?, past[2, b, h, p,
  /// d]?, attention bias?, length of the past?.
  void run() {
    if (n.has(6))
      shareBuffer();
    attend(n.in(0), n.in(1), {.bias = 2, .mask = 3, .past = 4, .scores = 5});
  }

  /// Inputs: x and weights in int8, bias?, their scales, mask index?, their zero points?, past?.
  void runQuantised() {
    Value *qx = n.in(0), *qw = n.in(1), *sx = n.in(3), *sw = n.in(4);
    Value *x = dequantised(n, qx, sx, n.optional(6), DType::F32, -1);
    Value *w = dequantised(n, qw, sw, n.optional(7), DType::F32, -1);
    attend(x, w, {.bias = 2, .mask = 5, .past = 8, .scores = none});
  }

private:
  static constexpr unsigned none = ~0U;
  /// Which inputs these are.
  struct Inputs {
    unsigned bias, mask, past, scores;
  };

  void attend(Value *x, Value *weights, Inputs in) {
    refuse();
    heads_ = n.requiredInt("num_heads");
    if (n.failed() || !findSizes(weights))
      return;
    Value *qkv = n.matmul(x, weights);
    if (Value *bias = n.optional(in.bias))
      qkv = n.add(qkv, bias);
    q_ = head(qkv, 0);
    k_ = head(qkv, 1);
    v_ = head(qkv, 2);
    if (Value *past = n.optional(in.past)) {
      k_ = n.concat({n.squeeze(n.slice(past, 0, 0, 1), {0}), k_}, 2);
      v_ = n.concat({n.squeeze(n.slice(past, 0, 1, 2), {0}), v_}, 2);
    }
    if (n.wants(1))
      n.out(1, n.concat({n.unsqueeze(k_, {0}), n.unsqueeze(v_, {0})}, 0));

    const int64_t headDim = sizes_[0] / heads_;
    double scale = n.floatAttr("scale", 0);
    if (scale == 0)
      scale = 1 / std::sqrt(double(headDim));
    Value *scores = n.matmul(q_, n.transpose(k_, {0, 1, 3, 2}));
    scores = n.mul(scores, n.scalarLike(scale, scores));
    if (Value *bias = n.optional(in.scores))
      scores = n.add(scores, bias);
    scores = maskKeys(n, scores, n.optional(in.mask), q_, k_);
    if (n.intAttr("unidirectional", 0))
      scores = maskFuture(n, scores, q_, k_);
    Value *y = n.matmul(n.softmax(scores), v_);
    n.out(n.reshape(n.transpose(y, {0, 2, 1, 3}), {0, 0, sizes_[2]}));
  }

  void shareBuffer() { n.unsupported("a buffer shared by past and present is not supported"); }
  void refuse() {
    if (n.intAttr("do_rotary", 0))
      n.unsupported("do_rotary is not supported");
    if (n.intAttr("past_present_share_buffer", 0))
      shareBuffer();
  }

  /// The widths of queries, keys and values.
  bool findSizes(Value *weights) {
    if (auto given = n.intsAttr("qkv_hidden_sizes"))
      sizes_ = *given;
    else if (auto all = NodeLowering::staticDim(weights, 1))
      sizes_.assign(3, *all / 3);
    else
      n.unsupported("the width of the weights, " + weights->type.str() + ", is not known");
    if (n.failed())
      return false;
    bool fits = heads_ > 0 && sizes_.size() == 3 && sizes_[0] == sizes_[1] &&
                llvm::all_of(sizes_, [&](int64_t s) {
                  return s > 0 && s <= INT64_MAX / 3 && s % heads_ == 0;
                });
    if (!fits)
      n.invalid("num_heads and the hidden sizes do not fit together");
    return fits;
  }

  /// [b, s, h * d] columns of part i -> [b, h, s, d]
  Value *head(Value *qkv, unsigned i) {
    int64_t begin = std::accumulate(sizes_.begin(), sizes_.begin() + i, int64_t(0));
    Value *part = n.slice(qkv, 2, begin, begin + sizes_[i]);
    return n.transpose(n.reshape(part, {0, 0, heads_, sizes_[i] / heads_}), {0, 2, 1, 3});
  }

  NodeLowering &n;
  int64_t heads_ = 0;
  std::vector<int64_t> sizes_;
  Value *q_ = nullptr, *k_ = nullptr, *v_ = nullptr;
};

} // namespace

void contribAttention(NodeLowering &n) { ContribAttentionLowering(n).run(); }

void qAttention(NodeLowering &n) { ContribAttentionLowering(n).runQuantised(); }

} // namespace gpt2c::onnxops
