// com.microsoft Attention: the projection to queries, keys and values included.
#include "frontend/Builders.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <limits>
#include <numeric>

namespace gpt2c::onnxops {

namespace {

class ContribAttentionLowering {
public:
  explicit ContribAttentionLowering(NodeLowering &n) : n(n) {}

  /// Inputs: x[b, s, w], weights[w, q + k + v], bias[q + k + v]?, mask index?, past[2, b, h, p,
  /// d]?, attention bias?.
  void run() {
    refuse();
    Value *x = n.in(0), *weights = n.in(1);
    heads_ = n.requiredInt("num_heads");
    if (n.failed() || !findSizes(weights))
      return;
    Value *qkv = n.matmul(x, weights);
    if (Value *bias = n.optional(2))
      qkv = n.add(qkv, bias);
    q_ = head(qkv, 0);
    k_ = head(qkv, 1);
    v_ = head(qkv, 2);
    if (Value *past = n.optional(4)) {
      k_ = n.concat({n.squeeze(n.slice(past, 0, 0, 1), {0}), k_}, 2);
      v_ = n.concat({n.squeeze(n.slice(past, 0, 1, 2), {0}), v_}, 2);
    }
    if (n.wants(1))
      n.out(1, n.concat({n.unsqueeze(k_, {0}), n.unsqueeze(v_, {0})}, 0));

    double scale = n.floatAttr("scale", 0);
    if (scale == 0)
      scale = 1 / std::sqrt(double(sizes_[0] / heads_));
    Value *scores = n.matmul(q_, n.transpose(k_, {0, 1, 3, 2}));
    scores = n.mul(scores, n.scalarLike(scale, scores));
    if (Value *bias = n.optional(5))
      scores = n.add(scores, bias);
    scores = maskKeys(scores);
    if (n.intAttr("unidirectional", 0))
      scores = maskFuture(scores);
    Value *y = n.matmul(n.softmax(scores), v_);
    n.out(n.reshape(n.transpose(y, {0, 2, 1, 3}), {0, 0, sizes_[2]}));
  }

private:
  void refuse() {
    if (n.intAttr("do_rotary", 0))
      n.unsupported("do_rotary is not supported");
    if (n.intAttr("past_present_share_buffer", 0) || n.has(6))
      n.unsupported("a buffer shared by past and present is not supported");
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
                llvm::all_of(sizes_, [&](int64_t s) { return s > 0 && s % heads_ == 0; });
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

  /// The mask adds `mask_filter_value` to the scores of hidden keys. Its forms: 0 and 1 for each
  /// key [b, total] or for each query and key [b, s, total]; the number of visible keys [b]; end
  /// and start of the visible keys [2 b].
  Value *maskKeys(Value *scores) {
    Value *mask = n.optional(3);
    if (!mask || n.failed())
      return scores;
    Value *visible = nullptr;
    switch (mask->type.rank()) {
    case 1:
      visible = visibleRange(mask);
      break;
    case 2:
      visible = n.unsqueeze(n.cast(mask, DType::Bool), {1, 2});
      break;
    case 3:
      visible = n.unsqueeze(n.cast(mask, DType::Bool), {1});
      break;
    default:
      return n.unsupported("a mask index of rank " + llvm::Twine(mask->type.rank()) +
                           " is not supported");
    }
    double hidden = n.floatAttr("mask_filter_value", -10000.0);
    Value *low = n.scalarLike(hidden, scores);
    return n.add(scores, n.where(visible, n.scalarLike(0, scores), low));
  }

  /// [b, 1, 1, total]
  Value *visibleRange(Value *mask) {
    Value *key = n.cast(n.iota(n.sizeOf(k_, 2)), mask->type.dtype);
    if (n.failed())
      return nullptr;
    const Dim &length = mask->type.shape[0], &batch = q_->type.shape[0];
    auto column = [&](Value *v) { return n.unsqueeze(v, {1, 2, 3}); };
    if (length == batch)
      return n.emit(OpCode::Less, {key, column(mask)});
    if (length != batch * Dim(2))
      return n.unsupported("a mask index of length " + length.str() + " for a batch of " +
                           batch.str() + " is not supported");
    Value *ends = column(n.slice(mask, 0, 0, batch));
    Value *starts = column(n.slice(mask, 0, batch, length));
    return n.emit(OpCode::And,
                  {n.emit(OpCode::GreaterEqual, {key, starts}), n.emit(OpCode::Less, {key, ends})});
  }

  /// Query i sees key j when j <= past + i; other scores become the lowest finite number.
  Value *maskFuture(Value *scores) {
    Value *all = n.sizeOf(k_, 2), *fresh = n.sizeOf(q_, 2);
    Value *past = n.sub(all, fresh);
    Value *row = n.unsqueeze(n.add(n.iota(fresh), past), {1});
    Value *visible = n.emit(OpCode::LessEqual, {n.unsqueeze(n.iota(all), {0}), row});
    if (n.failed())
      return nullptr;
    double lowest =
        scores->type.dtype == DType::F16 ? -65504.0 : double(std::numeric_limits<float>::lowest());
    return n.where(visible, scores, n.scalarLike(lowest, scores));
  }

  NodeLowering &n;
  int64_t heads_ = 0;
  std::vector<int64_t> sizes_;
  Value *q_ = nullptr, *k_ = nullptr, *v_ = nullptr;
};

} // namespace

void contribAttention(NodeLowering &n) { ContribAttentionLowering(n).run(); }

} // namespace gpt2c::onnxops
