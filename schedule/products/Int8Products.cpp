// Products with weights of a byte: of rows in the same type where a kernel multiplies them, else of
// floating-point rows, with a quantize or dequantize beside what no kernel does itself.
#include "schedule/FunctionScheduler.h"

namespace gpt2c {

// Operands of both ops; those of one alone have its name before them.
using ops::QuantizedLinear::X, ops::QuantizedLinear::XScale, ops::QuantizedLinear::Bias;
using Requantized = ops::RequantizedLinear;

/// Elements of a row of k that share a scale, as int8 products have them: 0: a row, -1: all.
static int64_t rowGroupOf(const Op &op, int64_t k) {
  const Value *scale = op.operand(XScale);
  if (isQuantised(op.operand(X)->type.dtype))
    return scale->type.rank() == 0 ? -1 : groupOf(scale, k);
  const int64_t group = op.intAttr("x_group");
  return scale ? -1 : group == k ? 0 : group;
}

/// Whether the kernel of such a product may quantise what it stores, as far as the op says.
static bool mayQuantise(const Op &op, int64_t k, int64_t group, Given given) {
  return given != Given::None ||
         (k % 16 == 0 && !op.operand(Requantized::YScale) && (group == 64 || group == 128));
}

/// Whether a kernel finds scales for groups of the result's columns.
static bool quantisesGroups(const LinearFamily &family, LinearProblem p, const Int8Product &form) {
  p.int8.yGroup = form.resultGroup;
  return family.computes(p);
}

void FunctionScheduler::addInt8Wishes(LinearProblem &p, const Op &op,
                                      const Int8Product &form) const {
  // Whatever is added last.
  const Value *residual = residualOf(op), *bias = op.operand(Bias);
  p.int8.residual = residual && !isReadInPlace(residual) && scalarOf(residual) == Scalar::F16 &&
                    p.y == Scalar::F16;
  // After a norm or attention some SMs are still busy. If two blocks fit on one they may pile up
  // there; so ask for more than half of its shared memory. Products without groups that follow
  // products begin on each other's SMs.
  const Op *before = op.operand(X)->def();
  p.int8.oneCtaPerSm = form.rowGroup >= 0 || !before || !before->is(OpCode::RequantizedLinear);
  p.int8.halfBias = bias && scalarOf(bias) == Scalar::F16;
}

std::optional<std::string> FunctionScheduler::int8(Op &op, LinearGroup &group) const {
  LinearProblem &s = group.problem;
  const LinearFamily &family = kernels_.linear;
  const bool requantised = op.is(OpCode::RequantizedLinear);
  const Value *bias = op.operand(Bias);
  Int8Product form;
  // Floating-point rows that a kernel reads as they are; for x_group >= 0 it quantises them.
  const bool floatRows = isFloat(op.operand(X)->type.dtype) && !op.operand(XScale) &&
                         (op.intAttr("x_group") < 0 || family.computes(s));
  const Value *yScale = requantised ? op.operand(Requantized::YScale) : nullptr,
              *yZero = requantised ? op.operand(Requantized::YZero) : nullptr;
  const Given given = givenOf(yScale, yZero, scalarOf(op.result(0)));
  if (yZero && given == Given::None)
    return "zero points are constants";

  // A quantised result: by the kernel of int8 rows when its scale is given or its scales are of 64
  // or 128 columns, else in a step of its own. What is stored in between has the type of the plan.
  if (requantised) {
    const int64_t columns = op.intAttr("y_group") == s.n ? 0 : op.intAttr("y_group");
    form.resultGroup = yScale ? -1 : columns;
    form.result = !floatRows && mayQuantise(op, s.k, columns, given) ? Int8Product::InEpilogue
                                                                     : Int8Product::Behind;
    if (form.result == Int8Product::Behind)
      s.y = bias ? scalarOf(bias) : isQuantised(s.x) ? Scalar::F32 : s.x;
  }
  if (!floatRows) {
    form.rows = isQuantised(s.x) ? Int8Product::Given : Int8Product::Quantised;
    form.rowGroup = rowGroupOf(op, s.k);
    s.x = s.w;
  }
  s.int8.group = form.rowGroup;
  form.integers = !floatRows && family.computes(s);
  if (form.result == Int8Product::InEpilogue &&
      (!form.integers || !(given != Given::None || quantisesGroups(family, s, form)))) {
    form.result = Int8Product::Behind;
    s.y = bias ? scalarOf(bias) : Scalar::F32;
  }
  if (form.result == Int8Product::InEpilogue && given == Given::None)
    s.int8.yGroup = form.resultGroup;
  const unsigned offset =
      requantised ? unsigned(Requantized::SumOffset) : unsigned(ops::QuantizedLinear::SumOffset);
  if (op.operand(offset) && !form.integers)
    return "sums of 2^17 and more products have no offset";
  if (form.integers) {
    form.rowScales = form.rowGroup == 0 && !family.leaderComputes(s.with({.rowScales = true}));
    addInt8Wishes(s, op, form);
  } else {
    form.widened = !floatRows || !family.computes(s);
    s.int8 = {};
    if (!floatRows)
      s.x = Scalar::F32;
    if (form.widened)
      static_cast<LinearShape &>(s) = s.widened();
  }
  group.int8 = form;
  return std::nullopt;
}

std::string int8Key(const LinearGroup &group) {
  std::string key = (" in " + dtypeName(group.problem.x)).str();
  if (group.int8->rowGroup > 0)
    key += " groups=" + std::to_string(group.int8->rowGroup);
  if (group.problem.int8.yGroup > 0)
    key += " y_group=" + std::to_string(group.problem.int8.yGroup);
  if (group.int8->result == Int8Product::InEpilogue && group.problem.int8.yGroup == 0)
    key += " y quantised by a given scale";
  return key;
}

} // namespace gpt2c
