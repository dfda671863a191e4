#include "frontend/Builders.h"

namespace gpt2c::onnxops {

void argMax(NodeLowering &n) {
  int64_t axis = n.intAttr("axis", 0);
  bool keepDims = n.intAttr("keepdims", 1), last = n.intAttr("select_last_index", 0);
  n.out(n.emit(OpCode::ArgMax, {n.in(0)},
               {{"axis", axis}, {"keepdims", keepDims}, {"select_last_index", last}}));
}

void cumSum(NodeLowering &n) {
  bool exclusive = n.intAttr("exclusive", 0), reverse = n.intAttr("reverse", 0);
  n.out(
      n.emit(OpCode::CumSum, {n.in(0), n.in(1)}, {{"exclusive", exclusive}, {"reverse", reverse}}));
}

void gather(NodeLowering &n) {
  int64_t axis = n.intAttr("axis", 0);
  if (n.in(0) && axis < 0) // from the end
    axis += n.in(0)->type.rank();
  n.out(n.emit(OpCode::Gather, {n.in(0), n.in(1)}, {{"axis", axis}}));
}

void gatherElements(NodeLowering &n) {
  int64_t axis = n.intAttr("axis", 0);
  n.out(n.emit(OpCode::GatherElements, {n.in(0), n.in(1)}, {{"axis", axis}}));
}

void gatherND(NodeLowering &n) {
  int64_t batchDims = n.intAttr("batch_dims", 0);
  n.out(n.emit(OpCode::GatherND, {n.in(0), n.in(1)}, {{"batch_dims", batchDims}}));
}

void scatterND(NodeLowering &n) {
  std::string reduction = n.stringAttr("reduction", "none");
  if (reduction != "none")
    n.unsupported("reduction '" + reduction + "' is not supported");
  n.out(n.emit(OpCode::ScatterND, {n.in(0), n.in(1), n.in(2)}));
}

void oneHot(NodeLowering &n) {
  int64_t axis = n.intAttr("axis", -1);
  n.out(n.emit(OpCode::OneHot, {n.in(0), n.in(1), n.in(2)}, {{"axis", axis}}));
}

} // namespace gpt2c::onnxops
