#include "passes/proof/bounds/ScorePath.h"

#include "passes/proof/masks/Probe.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace gpt2c {

bool ScoreStep::isScale() const {
  if (kind == Negate)
    return true;
  return (kind == Multiply || kind == Divide) && scalarConstant(operand);
}

double ScoreStep::scale() const {
  if (kind == Negate)
    return -1;
  return kind == Multiply ? *scalarConstant(operand) : 1 / *scalarConstant(operand);
}

bool isLowest(double value, DType precision) {
  return value <= (precision == DType::F16 ? -65504.0 : -1e30);
}

namespace {

/// What a value is to the softmax.
enum class Part : uint8_t {
  Scores,        // steps behind the scores
  Shifted,       // the same less the highest of its row
  Highest,       // the highest of the row `of`
  Powers,        // exp of Shifted
  Sum,           // the sum of the row `of` of Powers
  Inverse,       // 1 over that
  Probabilities, // steps behind the softmax
  IsNaN,         // where `of`, Probabilities, is NaN
  IsNumber,      // where it is not
};

struct Form {
  Part part;
  ScorePath path;
  Value *of = nullptr;
};

class PathFinder {
public:
  PathFinder(Value *scores, Value *probabilities, Obstacle &why) : scores_(scores), why_(why) {
    BackwardSlice slice = backwardSlice(probabilities, [&](Value *v) { return v == scores; });
    llvm::DenseSet<const Op *> ops(slice.ops.begin(), slice.ops.end());
    dependent_.insert(scores);
    const Function *f = scores->function();
    for (auto &op : f->ops())
      if (ops.contains(op.get()) &&
          llvm::any_of(op->operands(), [&](Value *v) { return v && dependent_.contains(v); }))
        for (Value *r : op->results())
          dependent_.insert(r);
    findPrecision();
  }

  std::optional<Form> form(Value *v) {
    if (v == scores_) {
      ScorePath path;
      path.scores = scores_;
      path.precision = precision_;
      return Form{Part::Scores, path};
    }
    return formOf(v->def());
  }

  bool dependsOnScores(Value *v) const { return v && dependent_.contains(v); }

private:
  /// Scores may be computed in a wider type than the rest of the graph.
  void findPrecision() {
    precision_ = scores_->type.dtype;
    auto narrow = [&](const Value *v) {
      while (v && v->def() && v->def()->is(OpCode::Cast)) {
        v = v->def()->operand(0);
        if (isFloat(v->type.dtype) && byteSize(v->type.dtype) < byteSize(precision_))
          precision_ = v->type.dtype;
      }
    };
    narrow(scores_);
    if (scores_->def() && scores_->def()->is(OpCode::MatMul))
      for (Value *v : scores_->def()->operands())
        narrow(v);
  }

  std::nullopt_t stop(Op *op, llvm::StringRef reason, llvm::StringRef attribute = "") {
    why_ = op->describe() + " " + reason.str();
    why_.op = op;
    why_.attribute = attribute.str();
    return std::nullopt;
  }
  std::nullopt_t isNoStep(Op *op) {
    return stop(op, "is no step from scores to probabilities under a mask");
  }

  std::optional<Form> formOf(Op *op) {
    llvm::SmallVector<unsigned, 2> at; // operands that depend on the scores
    for (auto [i, v] : llvm::enumerate(op->operands()))
      if (dependsOnScores(v))
        at.push_back(i);
    if (op->is(OpCode::Where) && at.front() == ops::Where::Condition)
      return guard(op);
    if (at.size() == 2)
      return ofTwo(op);
    if (at.size() != 1)
      return isNoStep(op);
    auto f = form(op->operand(at.front()));
    if (!f)
      return std::nullopt;
    switch (op->code()) {
    case OpCode::Add:
    case OpCode::Sub:
    case OpCode::Mul:
    case OpCode::Div:
    case OpCode::Where:
      return step(op, std::move(*f), at.front());
    case OpCode::Neg:
      if (f->part != Part::Scores)
        return isNoStep(op);
      f->path.steps.push_back({ScoreStep::Negate, op});
      return f;
    case OpCode::Min:
    case OpCode::Max:
      return limit(op, std::move(*f), at.front());
    case OpCode::Cast:
      return cast(op, std::move(*f));
    case OpCode::Reshape:
    case OpCode::Expand:
    case OpCode::Transpose:
      return copy(op, std::move(*f));
    default:
      return softmaxPart(op, std::move(*f));
    }
  }

  /// x op operand.
  std::optional<Form> step(Op *op, Form f, unsigned at) {
    ScoreStep s{ScoreStep::Add, op};
    s.operand = op->operand(1 - std::min(at, 1u));
    switch (op->code()) {
    case OpCode::Add:
      break;
    case OpCode::Sub:
      s.kind = at == 0 ? ScoreStep::Subtract : ScoreStep::SubtractFrom;
      break;
    case OpCode::Mul:
      s.kind = ScoreStep::Multiply;
      break;
    case OpCode::Div:
      if (at != 0)
        return isNoStep(op);
      s.kind = ScoreStep::Divide;
      break;
    default:
      s.kind = at == ops::Where::A ? ScoreStep::Keep : ScoreStep::Replace;
      s.operand = op->operand(ops::Where::Condition);
      s.fill = op->operand(at == ops::Where::A ? ops::Where::B : ops::Where::A);
    }
    if (s.operand->type.rank() > 4 || (s.fill && s.fill->type.rank() > 4))
      return isNoStep(op);
    if (f.part == Part::Scores)
      f.path.steps.push_back(s);
    else if (f.part == Part::Probabilities && (s.kind == ScoreStep::Multiply || s.selects()))
      f.path.after.push_back(s);
    else
      return isNoStep(op);
    return f;
  }

  std::optional<Form> limit(Op *op, Form f, unsigned at) {
    auto value = scalarConstant(op->operand(1 - at));
    if (f.part != Part::Scores || !value)
      return isNoStep(op);
    f.path.limits.push_back({op, *value, op->is(OpCode::Min), f.path.steps.size()});
    return f;
  }

  std::optional<Form> cast(Op *op, Form f) {
    DType to = op->result()->type.dtype;
    if (!isFloat(to) || (to != precision_ && byteSize(to) <= byteSize(precision_)))
      return stop(op, "rounds below the precision of the scores", "to");
    return f;
  }

  /// A copy that changes nothing, or drops or adds the last axis of a row's number.
  std::optional<Form> copy(Op *op, Form f) {
    const Shape &from = op->operand(0)->type.shape, &to = op->result()->type.shape;
    if (from == to && !op->is(OpCode::Transpose))
      return f;
    bool ofRow = f.part == Part::Highest || f.part == Part::Sum || f.part == Part::Inverse;
    if (!op->is(OpCode::Reshape) || !ofRow)
      return isNoStep(op);
    Shape column(f.of->type.shape);
    column.back() = Dim(1);
    return to == column ? std::optional(f) : isNoStep(op);
  }

  static bool isLastAxis(int64_t axis, const Value *v) {
    return axis == -1 || axis == int64_t(v->type.rank()) - 1;
  }
  static bool reducesRows(const Op *op) {
    const Dims *axes = std::get_if<Dims>(op->attr("axes"));
    auto axis = axes && axes->size() == 1 ? (*axes)[0].constant() : std::nullopt;
    return op->numOperands() == 1 && axis && isLastAxis(*axis, op->operand(0));
  }

  std::optional<Form> softmaxPart(Op *op, Form f) {
    Value *x = op->operand(0);
    auto becomes = [&](bool fits, Part part, Value *of) -> std::optional<Form> {
      if (!fits)
        return isNoStep(op);
      f.part = part;
      f.of = of;
      return f;
    };
    switch (op->code()) {
    case OpCode::Softmax:
      if (!isLastAxis(op->intAttr("axis"), x))
        return stop(op, "is not along the keys", "axis");
      return becomes(f.part == Part::Scores || f.part == Part::Shifted, Part::Probabilities,
                     nullptr);
    case OpCode::ReduceMax:
      return becomes(f.part == Part::Scores && reducesRows(op), Part::Highest, x);
    case OpCode::Exp:
      return becomes(f.part == Part::Shifted, Part::Powers, nullptr);
    case OpCode::ReduceSum:
      return becomes(f.part == Part::Powers && reducesRows(op), Part::Sum, x);
    case OpCode::Reciprocal:
      return becomes(f.part == Part::Sum, Part::Inverse, f.of);
    case OpCode::IsNaN:
      return becomes(f.part == Part::Probabilities, Part::IsNaN, x);
    case OpCode::Not:
      return becomes(f.part == Part::IsNaN, Part::IsNumber, f.of);
    default:
      return isNoStep(op);
    }
  }

  /// x - max x, e / sum e, e * (1 / sum e).
  std::optional<Form> ofTwo(Op *op) {
    auto a = form(op->operand(0));
    auto b = a ? form(op->operand(1)) : std::nullopt;
    if (!b)
      return std::nullopt;
    Value *x = op->operand(0), *ofRow = op->operand(1);
    if (op->is(OpCode::Mul) && a->part == Part::Inverse) {
      std::swap(a, b);
      std::swap(x, ofRow);
    }
    Shape column(x->type.shape);
    column.back() = Dim(1);
    bool ofX = b->of == x && ofRow->type.shape == column;
    if (op->is(OpCode::Sub) && a->part == Part::Scores && b->part == Part::Highest && ofX)
      a->part = Part::Shifted;
    else if (a->part == Part::Powers && ofX &&
             ((op->is(OpCode::Div) && b->part == Part::Sum) ||
              (op->is(OpCode::Mul) && b->part == Part::Inverse)))
      a->part = Part::Probabilities;
    else
      return isNoStep(op);
    return a;
  }

  /// where(is_nan(p), 0, p)
  std::optional<Form> guard(Op *op) {
    auto condition = form(op->operand(ops::Where::Condition));
    if (!condition)
      return std::nullopt;
    bool nan = condition->part == Part::IsNaN;
    if (!nan && condition->part != Part::IsNumber)
      return isNoStep(op);
    Value *p = op->operand(ops::Where::A), *zero = op->operand(ops::Where::B);
    if (nan)
      std::swap(p, zero);
    if (p != condition->of || dependsOnScores(zero) || scalarConstant(zero) != 0.0)
      return isNoStep(op);
    condition->part = Part::Probabilities;
    condition->path.guarded = true;
    return condition;
  }

  Value *scores_;
  Obstacle &why_;
  DType precision_ = DType::F32;
  llvm::DenseSet<const Value *> dependent_;
};

} // namespace

std::optional<ScorePath> findScorePath(Value *scores, Value *probabilities, Obstacle &why) {
  PathFinder finder(scores, probabilities, why);
  if (!finder.dependsOnScores(probabilities)) {
    why = "they do not depend on the scores";
    return std::nullopt;
  }
  auto form = finder.form(probabilities);
  if (!form)
    return std::nullopt;
  if (form->part != Part::Probabilities) {
    why = "there is no softmax between them";
    why.op = probabilities->def();
    return std::nullopt;
  }
  return std::move(form->path);
}

} // namespace gpt2c
