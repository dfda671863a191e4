// Losses, which exports of a model in training have beside its logits.
#include "frontend/Builders.h"

#include <numeric>

namespace gpt2c::onnxops {

/// Of log probabilities [n, classes, ..] and labels [n, ..]: what the labels' classes are given for
/// -log(probability), by the weight of their class, 0 for labels that are to be ignored.
static void lossOf(NodeLowering &n, Value *logs) {
  Value *labels = n.in(1), *weights = n.optional(2), *counted = nullptr;
  const std::string reduction = n.stringAttr("reduction", "mean");
  const bool ignores = n.hasAttr("ignore_index");
  const int64_t ignored = n.intAttr("ignore_index", 0);
  if (n.failed())
    return;
  if (logs->type.rank() < 2 || labels->type.rank() + 1 != logs->type.rank())
    return (void)n.invalid("scores are [n, classes, ..] and labels [n, ..]");
  if (ignores) {
    counted = n.emit(OpCode::Not, {n.equal(labels, n.scalarLike(double(ignored), labels))});
    labels = n.where(counted, labels, n.scalarLike(0, labels));
  }
  if (n.failed())
    return;
  Value *given =
      n.emit(OpCode::GatherElements, {logs, n.unsqueeze(labels, {1})}, {{"axis", int64_t(1)}});
  Value *loss = n.emit(OpCode::Neg, {n.squeeze(given, {1})});
  Value *weight =
      weights ? n.emit(OpCode::Gather, {weights, labels}, {{"axis", int64_t(0)}}) : nullptr;
  if (counted) {
    Value *one = n.cast(counted, logs->type.dtype);
    weight = weight ? n.mul(weight, one) : one;
  }
  if (weight)
    loss = n.mul(loss, weight);
  if (counted)
    loss = n.where(counted, loss, n.scalarLike(0, loss));
  if (n.failed() || reduction == "none")
    return n.out(loss);
  std::vector<int64_t> axes(loss->type.rank());
  std::iota(axes.begin(), axes.end(), 0);
  if (reduction != "sum" && reduction != "mean")
    return (void)n.invalid("reduction is '" + reduction + "', not none, sum or mean");
  if (reduction == "mean" && !weight)
    return n.out(n.reduce(OpCode::ReduceMean, loss, axes, false));
  Value *sum = n.reduce(OpCode::ReduceSum, loss, axes, false);
  if (reduction == "mean") {
    Value *all = n.reduce(OpCode::ReduceSum, weight, axes, false);
    sum = n.div(sum, all);
  }
  n.out(sum);
}

void softmaxCrossEntropyLoss(NodeLowering &n) {
  Value *logs = logSoftmaxOf(n, n.in(0), 1);
  if (n.failed())
    return;
  lossOf(n, logs);
  if (n.wants(1))
    n.out(1, logs);
}

void negativeLogLikelihoodLoss(NodeLowering &n) {
  if (Value *logs = n.in(0))
    lossOf(n, logs);
}

} // namespace gpt2c::onnxops
