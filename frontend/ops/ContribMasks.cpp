#include "frontend/ops/ContribMasks.h"

#include <limits>

namespace gpt2c::onnxops {

/// [b, 1, 1, total]
static Value *visibleRange(NodeLowering &n, Value *mask, Value *q, Value *k) {
  Value *key = n.cast(n.iota(n.sizeOf(k, 2)), mask->type.dtype);
  if (n.failed())
    return nullptr;
  const Dim &length = mask->type.shape[0], &batch = q->type.shape[0];
  auto column = [&](Value *v) { return n.unsqueeze(v, {1, 2, 3}); };
  if (length == batch)
    return n.emit(OpCode::Less, {key, column(mask)});
  if (length != batch * Dim(2))
    return n.unsupported("a mask of length " + length.str() + " for a batch of " + batch.str() +
                         " is not supported");
  Value *ends = column(n.slice(mask, 0, 0, batch));
  Value *starts = column(n.slice(mask, 0, batch, length));
  return n.emit(OpCode::And,
                {n.emit(OpCode::GreaterEqual, {key, starts}), n.emit(OpCode::Less, {key, ends})});
}

Value *maskKeys(NodeLowering &n, Value *scores, Value *mask, Value *q, Value *k) {
  if (!mask || n.failed())
    return scores;
  Value *visible = nullptr;
  switch (mask->type.rank()) {
  case 1:
    visible = visibleRange(n, mask, q, k);
    break;
  case 2:
    visible = n.unsqueeze(n.cast(mask, DType::Bool), {1, 2});
    break;
  case 3:
    visible = n.unsqueeze(n.cast(mask, DType::Bool), {1});
    break;
  default:
    return n.unsupported("a mask of rank " + llvm::Twine(mask->type.rank()) + " is not supported");
  }
  double hidden = n.floatAttr("mask_filter_value", -10000.0);
  Value *low = n.scalarLike(hidden, scores);
  return n.add(scores, n.where(visible, n.scalarLike(0, scores), low));
}

Value *maskFuture(NodeLowering &n, Value *scores, Value *q, Value *k) {
  Value *all = n.sizeOf(k, 2), *fresh = n.sizeOf(q, 2);
  Value *past = n.sub(all, fresh);
  Value *row = n.unsqueeze(n.add(n.iota(fresh), past), {1});
  Value *visible = n.emit(OpCode::LessEqual, {n.unsqueeze(n.iota(all), {0}), row});
  if (n.failed())
    return nullptr;
  // The least finite number of the type.
  const DType type = scores->type.dtype;
  double lowest = type == DType::F16    ? -65504.0
                  : type == DType::BF16 ? -0x1.fep127
                                        : double(std::numeric_limits<float>::lowest());
  return n.where(visible, scores, n.scalarLike(lowest, scores));
}

} // namespace gpt2c::onnxops
