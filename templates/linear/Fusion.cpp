#include "templates/linear/Fusion.h"

#include "templates/linear/parts/TmaTiles.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

bool isOnes(const Value *v) {
  const Op *c = v->def();
  if (!c || !c->is(OpCode::Constant) || !c->constant.valid())
    return false;
  for (int64_t i = 0; i < c->constant.count(); ++i)
    if (c->constant.asDouble(i) != 1)
      return false;
  return true;
}

bool isRowNorm(const Op &op) {
  using enum ops::LayerNorm::Operand; // rms_norm has no Bias
  const Type &x = op.operand(X)->type, &gain = op.operand(Scale)->type;
  bool lastAxis = op.is(OpCode::RmsNorm) || op.intAttr("axis") == -1 ||
                  op.intAttr("axis") == int64_t(x.rank()) - 1;
  bool vectors = gain.rank() == 1 && gain.shape[0] == x.shape.back() &&
                 (!op.operand(Bias) || op.operand(Bias)->type == gain);
  return lastAxis && vectors && x.shape.back().isConstant() && hasKernelTypes(op);
}

bool isFoldedNorm(const Op &op) {
  using enum ops::LayerNorm::Operand;
  return isNorm(op) && isRowNorm(op) && !op.operand(Bias) && isOnes(op.operand(Scale));
}

LinearProblem linearProblem(StepBuilder &b, const Op &op) {
  using enum ops::QuantizedLinear::Operand;
  const Value *x = op.operand(X), *w = op.operand(W);
  LinearShape s{scalarOf(x->type.dtype),
                scalarOf(w->type.dtype),
                scalarOf(op.result(0)->type.dtype),
                *w->type.shape[0].constant(),
                *w->type.shape[1].constant(),
                b.maximum(leading(x))};
  s.tf32 = b.pool().tf32 && s.x == Scalar::F32 && s.w == Scalar::F32 && s.k > 0 && s.k % 4 == 0;
  s.target = b.pool().target;
  s.batchInvariant = b.pool().batchInvariant();
  if (!op.is(OpCode::Linear) && lastDim(op.operand(WScale)) > 1)
    s.wGroup = s.k / lastDim(op.operand(WScale));
  if (!op.is(OpCode::Linear))
    s.xGroup = op.intAttr("x_group") == s.k ? 0 : op.intAttr("x_group");
  return s;
}

/// Whether the sums of its weights, times gain and shift, are known.
static bool hasNormSums(const Op &product, const Op &norm) {
  using enum ops::QuantizedLinear::Operand;
  using Norm = ops::LayerNorm;
  return isConstant(product.operand(W)) && isConstant(norm.operand(Norm::Scale)) &&
         (product.is(OpCode::Linear) || isConstant(product.operand(WScale))) &&
         (norm.is(OpCode::RmsNorm) || !norm.operand(Norm::Bias) ||
          isConstant(norm.operand(Norm::Bias)));
}

LinearProblem withNorm(LinearProblem p, const Op &product, const Op &norm) {
  p.fused.norm = norm.is(OpCode::RmsNorm) ? FusedNorm::Rms : FusedNorm::Layer;
  p.fused.gain = scalarOf(norm.operand(ops::LayerNorm::Scale)->type.dtype);
  p.fused.plainNorm = isFoldedNorm(norm);
  p.fused.normSums = hasNormSums(product, norm);
  return p;
}

/// Whether its rows are multiplied as they are, with int8 weights.
static bool takesInt8Weights(const Op &product) {
  using enum ops::QuantizedLinear::Operand;
  return product.is(OpCode::QuantizedLinear) && product.operand(X)->type.dtype != DType::I8 &&
         !product.operand(XScale);
}

/// The norm before a product that may be computed with it, whatever kernels there are.
static Op *normBefore(StepBuilder &b, const Op &product) {
  Op *norm = product.operand(ops::Linear::X)->def();
  const bool floats = product.is(OpCode::Linear) || takesInt8Weights(product);
  return floats && b.pool().fuseNorm && !b.pool().batchInvariant() && norm && isNorm(*norm) &&
                 isRowNorm(*norm) &&
                 norm->operand(ops::LayerNorm::X)->type.dtype == norm->result()->type.dtype &&
                 product.operand(ops::Linear::W)->type.isStatic()
             ? norm
             : nullptr;
}

/// The gated behind a product that its kernel may apply, whatever kernels there are.
static Op *gateBehind(StepBuilder &b, const Op &product) {
  const Value *y = product.result(0);
  Op *gate = y->uses().size() == 1 ? y->uses()[0].op : nullptr;
  const bool floats = product.is(OpCode::Linear)
                          ? !product.operand(ops::Linear::Residual)
                          : takesInt8Weights(product) && product.intAttr("x_group") < 0 &&
                                !product.operand(ops::QuantizedLinear::Residual);
  // Where it pays depends on the number of rows.
  if (b.pool().batchInvariant() || !gate || !gate->is(OpCode::Gated) ||
      !gate->boolAttr("interleaved") || !floats || !hasKernelTypes(product) ||
      y->type.dtype != gate->result()->type.dtype || product.stringAttr("activation") != "none" ||
      !product.operand(ops::Linear::W)->type.isStatic())
    return nullptr;
  return gate;
}

/// The product by itself, or with its gate, and with the norm before it where there is one: with
/// what is known of the statistics of its rows.
static LinearProblem problemWith(StepBuilder &b, const Op &product, const Op *norm, bool gate) {
  LinearProblem p = linearProblem(b, product);
  p.fused.gate = gate;
  if (!norm)
    return p;
  p = withNorm(p, product, *norm);
  if (wantsNormStatistics(p))
    if (const auto *statistics = b.statistics(norm->operand(ops::LayerNorm::X))) {
      p.fused.normParts = statistics->parts;
      p.fused.normWidth = statistics->width;
    }
  return p;
}

/// Whether its norm is for the kernels that apply the gate behind it. A wide product is no
/// vocabulary then; but of 65 and more rows a launch of the norm takes no longer.
static bool isNormOfGate(StepBuilder &b, const Op &product) {
  return gateBehind(b, product) && b.maximum(leading(product.operand(ops::Linear::X))) <= 64;
}

Op *fusedNorm(StepBuilder &b, const Op &product) {
  Op *norm = normBefore(b, product);
  if (!norm)
    return nullptr;
  const bool fits = (isNormOfGate(b, product) && computes(problemWith(b, product, norm, true))) ||
                    computes(problemWith(b, product, norm, false));
  return fits ? norm : nullptr;
}

Op *fusedGate(StepBuilder &b, const Op &product) {
  Op *gate = gateBehind(b, product);
  if (!gate)
    return nullptr;
  const Op *norm = fusedNorm(b, product);
  LinearProblem p = problemWith(b, product, norm, false);
  LinearProblem gated = problemWith(b, product, norm, true);
  if (!computes(p) && !computes(gated)) // int8 weights that become floats first
    for (LinearProblem *each : {&p, &gated})
      static_cast<LinearShape &>(*each) = each->widened();
  const std::vector<LinearCandidate> with = linearCandidates(gated), without = linearCandidates(p);
  if (with.empty())
    return nullptr;
  // A launch by itself reads what the product has written and writes half as much.
  constexpr double launch = 2, bytesPerMicrosecond = 3e6;
  const double traffic = double(p.rows) * double(p.n) * scalarBytes(p.y) * 2 / bytesPerMicrosecond;
  const bool dearer = !without.empty() && with.front().microseconds &&
                      without.front().microseconds &&
                      *with.front().microseconds > *without.front().microseconds + launch + traffic;
  return dearer ? nullptr : gate;
}

/// The type of the weights of the product whose epilogue a norm of `v` is folded into; null: none
/// does.
static const Type *normedWeights(StepBuilder &b, Value *v) {
  for (const Use &norm : v->uses())
    if (norm.operand == ops::LayerNorm::X && isNorm(*norm.op))
      for (const Use &product : norm.op->result()->uses())
        if (product.operand == ops::Linear::X &&
            (product.op->is(OpCode::Linear) || product.op->is(OpCode::QuantizedLinear)))
          if (const Op *n = normBefore(b, *product.op);
              n &&
              wantsNormStatistics(problemWith(b, *product.op, n, isNormOfGate(b, *product.op))))
            return &product.op->operand(ops::Linear::W)->type;
  return nullptr;
}

bool wantsStatistics(StepBuilder &b, Value *v) { return normedWeights(b, v) != nullptr; }

/// Whether a product that differs from `op` in its operands alone wants statistics of its result:
/// to leave some that nobody reads costs less than a kernel without them.
static bool twinWantsStatistics(StepBuilder &b, const Op &op) {
  auto sameTypes = [](const Value *a, const Value *v) {
    return !a || !v ? a == v : a->type == v->type;
  };
  return llvm::any_of(op.function()->ops(), [&](const auto &other) {
    return other->is(op.code()) && other->numOperands() == op.numOperands() &&
           llvm::all_of_zip(other->operands(), op.operands(), sameTypes) &&
           other->stringAttr("activation") == op.stringAttr("activation") &&
           wantsStatistics(b, other->result());
  });
}

bool leavesStatistics(StepBuilder &b, const Op &product) {
  return wantsStatistics(b, product.result(0)) || twinWantsStatistics(b, product);
}

int64_t statisticsWidthOfPeers(StepBuilder &b, Value *v) {
  const Type *weights = normedWeights(b, v);
  for (const auto &op : v->function()->ops()) {
    if (!weights || !op->is(OpCode::Linear) || op->result()->type != v->type)
      continue;
    const Type *others = normedWeights(b, op->result());
    if (!others || *others != *weights)
      continue;
    const LinearProblem p = linearProblem(b, *op).with({.statistics = true});
    if (!leaderComputes(p))
      continue;
    const LinearCandidate first = linearCandidates(p).front();
    if (auto *tma = first.get<LinearTmaConfig>(); tma && tma->statistics)
      return statisticsWidth(*tma);
  }
  return lastDim(v);
}

/// The value that a product adds to its rows.
static const Value *residualOf(const Op &op) {
  return op.is(OpCode::Linear)            ? op.operand(ops::Linear::Residual)
         : op.is(OpCode::QuantizedLinear) ? op.operand(ops::QuantizedLinear::Residual)
                                          : nullptr;
}

bool isReadInPlace(const Value *v) {
  const Op *op = v->def();
  return op && op->is(OpCode::GatherLast) && hasKernelTypes(*op) &&
         op->operand(ops::GatherLast::Length)->type.dtype == DType::I32 && !v->uses().empty() &&
         llvm::all_of(v->uses(), [&](const Use &u) {
           return residualOf(*u.op) == v && llvm::count(u.op->operands(), v) == 1;
         });
}

bool keepsRows(const Op &op) {
  if (!op.is(OpCode::Reshape) && !op.is(OpCode::Cast))
    return false;
  const Type &from = op.operand(0)->type, &to = op.result()->type;
  return from.rank() > 0 && to.rank() > 0 && from.shape.back() == to.shape.back() &&
         (from.dtype == to.dtype || (to.dtype == DType::F32 && byteSize(from.dtype) == 2));
}

/// Whether the index of the largest element of each row is asked for.
bool hasGreedyChoice(const Value *v) {
  return llvm::any_of(v->uses(), [](const Use &u) {
    if (keepsRows(*u.op))
      return hasGreedyChoice(u.op->result());
    return u.op->is(OpCode::ArgMax);
  });
}

} // namespace gpt2c
