// One proof, whose steps share what they found before.
#include "passes/proof/KvInterface.h"
#include "passes/proof/bounds/ScoreBound.h"
#include "passes/proof/masks/AttentionProbe.h"
#include "passes/proof/masks/MaskDependence.h"
#include "passes/proof/masks/MaskJudge.h"
#include "passes/proof/masks/MaskSizes.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

/// Sums of numbers beyond it may overflow.
constexpr double farAway = 1e30;

static bool isProduct(const Op *op) { return op->is(OpCode::MatMul) || op->is(OpCode::Linear); }

Op *scoreProduct(Value *probabilities) {
  if (probabilities->def() && isProduct(probabilities->def()))
    return nullptr;
  BackwardSlice s = backwardSlice(probabilities, [](Value *v) { return isProduct(v->def()); });
  Op *product = nullptr;
  for (Value *leaf : s.leaves) {
    if (!leaf->def())
      continue;
    if (product && product != leaf->def())
      return nullptr;
    product = leaf->def();
  }
  return product && product->is(OpCode::MatMul) ? product : nullptr;
}

bool MaskedSoftmax::readsAsBias(const Value *v) const {
  return llvm::any_of(biased.set_bits(),
                      [&](unsigned i) { return steps[i].operand == v || steps[i].fill == v; });
}

//===-- bounds ------------------------------------------------------------------------------===//

/// Limits that are not proven to do nothing are ops of their own.
static bool withinLimits(const Function &f, const ScorePath &path, Obstacle &why) {
  for (const ScoreLimit &l : path.limits) {
    if (isLowest(l.isMin ? -l.value : l.value, path.precision))
      continue; // it changes no finite score
    double scale = 1;
    bool masked = false;
    for (const ScoreStep &s : llvm::ArrayRef(path.steps).take_front(l.behind)) {
      masked |= !s.isScale();
      scale *= s.isScale() ? s.scale() : 1;
    }
    auto stays = [&](const std::string &reason) {
      why = l.op->describe() + " limits the scores at " + shortNumber(l.value) + ", and " + reason;
      why.op = l.op;
      why.attribute = "limit";
      return false;
    };
    if (masked)
      return stays("they are masked before it");
    Obstacle unbounded;
    Interval range = rangeOf(f, path.scores, unbounded);
    double most = range.magnitude() * std::abs(scale);
    double low = scale < 0 ? range.high * scale : range.low * scale,
           high = scale < 0 ? range.low * scale : range.high * scale;
    if (l.isMin ? high <= l.value : low >= l.value)
      continue;
    return stays(std::isfinite(most) ? "the weights let them reach " + shortNumber(most)
                                     : "no bound of them is known: " + unbounded.reason);
  }
  return true;
}

/// What may make a score infinite or NaN behind its product, of finite factors: a divisor that is
/// not known, a constant near the largest float or infinite (a mask that was added before something
/// else was done); null when there is nothing. Such a score is neither hidden by a number nor shown
/// beside others.
static const Op *notFinite(Value *scores) {
  auto isProductOrNorm = [](Value *v) {
    const Op *op = v->def();
    return op && (isProduct(op) || op->is(OpCode::LayerNorm) || op->is(OpCode::RmsNorm));
  };
  for (const Op *op : backwardSlice(scores, isProductOrNorm).ops) {
    if (op->is(OpCode::Div))
      if (auto divisor = scalarConstant(op->operand(ops::Div::B)); !divisor || *divisor == 0)
        return op;
    if (op->is(OpCode::Reciprocal) || op->is(OpCode::Log))
      return op;
    for (const Value *v : op->operands())
      if (v)
        if (auto c = scalarConstant(v); c && !(std::abs(*c) <= farAway))
          return op;
  }
  return nullptr;
}

bool holdsForScores(const Function &f, const MaskedSoftmax &mask, Value *scores, Obstacle &why) {
  if (const Op *op = notFinite(scores)) {
    why = op->describe() + ", in front of its scores, may make them infinite";
    why.op = op;
    why.attribute = "scale";
    return false;
  }
  if (std::isinf(mask.highestScore))
    return true;
  Obstacle unbounded;
  double most = rangeOf(f, scores, unbounded).magnitude();
  if (most <= mask.highestScore)
    return true;
  why = "its mask hides keys by a finite number, which is so only while no score is beyond " +
        shortNumber(mask.highestScore) +
        (std::isfinite(most) ? ", and the weights let them reach " + shortNumber(most)
                             : ", and no bound of them is known: " + unbounded.reason);
  return false;
}

//===-- what a step reads -------------------------------------------------------------------===//

/// Whether `v` chooses rows of a table, as ids do: then it is no mask, though its zeros may hide.
static bool choosesRows(const Value *v) {
  return llvm::any_of(v->uses(), [&](const Use &u) {
    switch (u.op->code()) {
    case OpCode::Cast:
    case OpCode::Reshape:
    case OpCode::Unsqueeze:
    case OpCode::Squeeze:
      return choosesRows(u.op->result());
    case OpCode::Gather:
      return u.operand == ops::Gather::Indices && isFloat(u.op->result()->type.dtype);
    default:
      return false;
    }
  });
}

/// Whether a step hides keys, or may, by the token ids: `ids`, or a leaf that chooses rows. A bias
/// that such rows are read from, of numbers that hide nothing, does not.
static bool hidesByIds(const Function &f, const ScoreStep &step, const Value *ids) {
  auto readsIds = [ids](Value *v) {
    return v && llvm::any_of(backwardSlice(v, [](Value *) { return false; }).leaves,
                             [ids](Value *leaf) { return leaf == ids || choosesRows(leaf); });
  };
  if (!readsIds(step.operand) && !readsIds(step.fill))
    return false;
  Obstacle unbounded;
  return step.selects() || rangeOf(f, step.operand, unbounded).magnitude() > farAway;
}

namespace {

/// Steps by what they are computed from.
struct StepKinds {
  llvm::SmallBitVector masks; // no scales
  llvm::SmallBitVector given; // masks that depend on more than indices and the key mask
  Value *keyMask = nullptr;
  Obstacle why; // of the first that is given
};

} // namespace

static const Value *idsOf(const Function &f) {
  KvInterface io;
  findIndexInputs(const_cast<Function &>(f), io);
  return io.ids;
}

static StepKinds kindsOf(const Function &f, const ScorePath &path) {
  StepKinds kinds;
  kinds.masks.resize(path.steps.size());
  kinds.given.resize(path.steps.size());
  const Shape &s = path.scores->type.shape;
  for (auto [i, step] : llvm::enumerate(path.steps)) {
    if (step.isScale())
      continue;
    kinds.masks.set(i);
    llvm::SmallVector<Value *, 2> leaves;
    for (Value *v : {step.operand, step.fill})
      if (v)
        for (Value *leaf : backwardSlice(v, [](Value *) { return false; }).leaves)
          if (!llvm::is_contained(leaves, leaf))
            leaves.push_back(leaf);
    for (Value *leaf : leaves) {
      bool perKey = leaf->type.rank() == 2 && leaf->type.shape[0] == s[0] &&
                    leaf->type.shape[1] == s[3] && !choosesRows(leaf) && leaf != idsOf(f);
      const bool counts = perKey && !isByOwnEntries(path, step, leaf);
      if (perKey && !counts && (!kinds.keyMask || kinds.keyMask == leaf)) {
        kinds.keyMask = leaf;
        continue;
      }
      kinds.given.set(i);
      if (!kinds.why.reason.empty())
        continue;
      kinds.why =
          "between scores and probabilities the graph also reads argument " + leaf->name + " " +
          leaf->type.str() +
          (perKey && counts ? ", of which each key is not told by its own entry"
                            : ", which is not an attention mask [batch, keys] of ones and zeros");
      kinds.why.op = step.op;
      kinds.why.attribute = "mask";
    }
  }
  return kinds;
}

//===-- bias --------------------------------------------------------------------------------===//

/// Whether the steps in `which` can be a bias. What they select must be minus infinity to any
/// score, or to scores no higher than `highest` is lowered to.
static bool isBias(const ScorePath &path, const llvm::SmallBitVector &which, double scale,
                   double &highest, Obstacle &why) {
  bool adds = llvm::any_of(which.set_bits(), [&](unsigned i) { return !path.steps[i].selects(); });
  double after = 1; // scales behind the step
  for (size_t i = path.steps.size(); i-- > 0;) {
    const ScoreStep &s = path.steps[i];
    if (s.isScale())
      after *= s.scale();
    if (s.kind == ScoreStep::SubtractFrom)
      after = -after;
    if (!which.test(i))
      continue;
    auto fails = [&](const std::string &reason) {
      why = s.op->describe() + " " + reason;
      why.op = s.op;
      why.attribute = "mask";
      return false;
    };
    if (s.kind == ScoreStep::Multiply || s.kind == ScoreStep::Divide)
      return fails("scales the scores by more than one number");
    if (!s.selects())
      continue;
    auto fill = scalarConstant(s.fill);
    double low = fill ? *fill * after : NAN;
    if (fill && isLowest(low, path.precision))
      continue;
    double most = (-low - underflowBound) / std::abs(scale);
    if (adds || !(most > 0))
      return fails("puts " + (fill ? shortNumber(*fill) : "a value of the graph") +
                   " in the place of scores, which does not hide them");
    highest = std::min(highest, most);
  }
  return true;
}

//===-- classification ----------------------------------------------------------------------===//

namespace {

class Classifier {
public:
  Classifier(const Function &f, const ScorePath &path, int64_t context, bool windows)
      : f_(f), path_(path), kinds_(kindsOf(f, path)), context_(context), windows_(windows) {}

  std::optional<MaskedSoftmax> run(Obstacle &why);

private:
  std::optional<MaskedSoftmax> tryWith(const llvm::SmallBitVector &biased, Obstacle &why);
  bool runTables(Obstacle &why);

  const Function &f_;
  const ScorePath &path_;
  StepKinds kinds_;
  int64_t context_;
  bool windows_;
  std::vector<MaskTable> tables_, after_;
  std::string missing_;
};

} // namespace

/// Tables of all steps that depend on nothing but indices and the key mask.
bool Classifier::runTables(Obstacle &why) {
  llvm::SmallBitVector evaluated = kinds_.masks;
  evaluated.reset(kinds_.given);
  if (evaluated.none() && path_.after.empty())
    return true;
  MaskSizes sizes(f_, path_, evaluated, kinds_.keyMask, context_);
  tables_ = sizes.tables(why);
  missing_ = sizes.missing();
  if (tables_.empty())
    return false;
  why = Obstacle();
  std::string reason;
  llvm::SmallBitVector all(path_.after.size(), true);
  for (const MaskTable &t : tables_) {
    if (path_.after.empty())
      break;
    auto after = MaskTable::evaluate(f_, path_.after, all, kinds_.keyMask, t.size(), reason);
    if (!after) {
      why = "what its probabilities are multiplied with cannot be evaluated: " + reason;
      why.op = path_.after.front().op;
      return false;
    }
    after_.push_back(std::move(*after));
  }
  return true;
}

/// The steps in `biased` as a bias, the others none, causal or padding.
std::optional<MaskedSoftmax> Classifier::tryWith(const llvm::SmallBitVector &biased,
                                                 Obstacle &why) {
  llvm::SmallBitVector rest = kinds_.masks;
  rest.reset(biased);
  MaskedSoftmax result;
  result.steps.assign(path_.steps.begin(), path_.steps.end());
  result.biased = biased;
  result.limited = !path_.limits.empty();
  double scale = 1;
  for (const ScoreStep &s : path_.steps)
    scale *= s.isScale() ? s.scale() : s.kind == ScoreStep::SubtractFrom ? -1 : 1;
  MaskJudge judge(path_, rest, windows_);
  if (rest.any()) {
    if (!missing_.empty()) {
      why = missing_;
      return std::nullopt;
    }
    for (const MaskTable &t : tables_)
      if (!judge.see(t)) {
        why = judge.reason();
        return std::nullopt;
      }
    scale = judge.scale();
    result.causal = judge.isCausal();
    result.window = judge.window();
    result.highestScore = judge.highestScore();
    for (unsigned i : rest.set_bits())
      for (Value *v : {path_.steps[i].operand, path_.steps[i].fill})
        if (v && kinds_.keyMask &&
            backwardSlice(v, [](Value *) { return false; }).hasLeaf(kinds_.keyMask))
          result.keyMask = kinds_.keyMask;
  }
  if (!std::isfinite(scale) || scale == 0) {
    why = "its scale is " + shortNumber(scale);
    return std::nullopt;
  }
  result.scale = scale;
  if (biased.any()) {
    if (std::isfinite(result.highestScore)) {
      why = "beside another mask it hides keys by a finite number";
      return std::nullopt;
    }
    if (!isBias(path_, biased, scale, result.highestScore, why))
      return std::nullopt;
  }
  // Rows and probabilities behind all masks together.
  llvm::SmallBitVector evaluated = kinds_.masks;
  evaluated.reset(kinds_.given);
  for (auto [i, t] : llvm::enumerate(tables_))
    if ((biased.any() || !path_.after.empty()) &&
        !rowsAsInGraph(path_, evaluated, biased, t, path_.after.empty() ? nullptr : &after_[i],
                       why))
      return std::nullopt;
  return result;
}

std::optional<MaskedSoftmax> Classifier::run(Obstacle &why) {
  if (!withinLimits(f_, path_, why))
    return std::nullopt;
  // The first tokens of a sequence may all be hidden: the graph's rows of such are no zeros.
  const Value *ids = kinds_.given.any() ? idsOf(f_) : nullptr;
  for (unsigned i : kinds_.given.set_bits())
    if (hidesByIds(f_, path_.steps[i], ids)) {
      why = path_.steps[i].op->describe() + " hides keys by their token ids, and what the graph " +
            "makes of a query whose keys are all hidden is not known";
      why.op = path_.steps[i].op;
      why.attribute = "mask";
      return std::nullopt;
    }
  if (!runTables(why))
    return std::nullopt;
  // No bias; then one step of what is no scale; then all of them.
  std::vector<llvm::SmallBitVector> sets{kinds_.given};
  llvm::SmallBitVector own = kinds_.masks;
  own.reset(kinds_.given);
  for (unsigned i : own.set_bits()) {
    sets.push_back(kinds_.given);
    sets.back().set(i);
  }
  if (own.count() > 1)
    sets.push_back(kinds_.masks);
  Obstacle first = kinds_.why;
  for (const llvm::SmallBitVector &set : sets) {
    Obstacle reason;
    auto found = tryWith(set, reason);
    Obstacle bound;
    if (found && holdsForScores(f_, *found, path_.scores, bound)) {
      if (found->hasBias())
        why = first;
      return found;
    }
    if (found)
      reason = bound;
    if (first.reason.empty())
      first = reason;
  }
  why = first;
  return std::nullopt;
}

std::optional<MaskedSoftmax> probeMaskedSoftmax(const Function &f, Value *scores,
                                                Value *probabilities, int64_t context, bool windows,
                                                Obstacle &why) {
  if (scores->type.rank() != 4 || probabilities->type.rank() != 4) {
    why = "scores " + scores->type.str() + " and probabilities " + probabilities->type.str() +
          " are not both [batch, heads, queries, keys]";
    return std::nullopt;
  }
  auto path = findScorePath(scores, probabilities, why);
  if (!path)
    return std::nullopt;
  return Classifier(f, *path, context, windows).run(why);
}

//===-- operands ----------------------------------------------------------------------------===//

llvm::Expected<Value *> keyMaskOperand(Builder &b, const MaskedSoftmax &mask) {
  if (!mask.keyMask)
    return nullptr;
  DType dtype = mask.keyMask->type.dtype;
  if (dtype == DType::I32 || dtype == DType::I64 || dtype == DType::Bool)
    return mask.keyMask;
  return b.value(OpCode::Cast, {mask.keyMask}, {{"to", DType::Bool}});
}

/// The bias behind one more step of it; `bias` is null before the first.
static llvm::Expected<Value *> biasBehind(Builder &b, const ScoreStep &s, Value *bias,
                                          DType dtype) {
  auto scalar = [&](double v) { return b.constant(Tensor::scalar(v).cast(dtype)); };
  Value *given = s.operand;
  if (!s.selects() && given->type.dtype != dtype) {
    auto cast = b.value(OpCode::Cast, {given}, {{"to", dtype}});
    if (!cast)
      return cast;
    given = *cast;
  }
  switch (s.kind) {
  case ScoreStep::Add:
    return bias ? b.value(OpCode::Add, {bias, given}) : given;
  case ScoreStep::Subtract:
  case ScoreStep::SubtractFrom: {
    bool from = s.kind == ScoreStep::SubtractFrom;
    if (bias)
      return b.value(OpCode::Sub, {from ? given : bias, from ? bias : given});
    return from ? given : b.value(OpCode::Mul, {given, scalar(-1)});
  }
  default: {
    // A row that is all hidden by a finite number has shares, not zeros.
    auto fill = scalarConstant(s.fill);
    bool finite = fill && std::isfinite(*fill) && dtype == DType::F32;
    Value *shown = bias ? bias : scalar(0);
    Value *hidden = scalar(finite ? std::numeric_limits<float>::lowest() : -INFINITY);
    bool keeps = s.kind == ScoreStep::Keep;
    return b.value(OpCode::Where, {given, keeps ? shown : hidden, keeps ? hidden : shown});
  }
  }
}

llvm::Expected<Value *> scoreBias(Builder &b, const MaskedSoftmax &mask, DType dtype) {
  auto scalar = [&](double v) { return b.constant(Tensor::scalar(v).cast(dtype)); };
  llvm::Expected<Value *> bias = nullptr;
  double scale = 1; // of what stands so far
  for (auto [i, s] : llvm::enumerate(mask.steps)) {
    if (s.isScale())
      scale *= *bias ? s.scale() : 1;
    if (!mask.biased.test(i)) {
      if (s.kind == ScoreStep::SubtractFrom && *bias)
        scale = -scale;
      continue;
    }
    if (*bias && std::abs(scale - 1) > 1e-9)
      bias = b.value(OpCode::Mul, {*bias, scalar(scale)});
    scale = 1;
    if (!bias)
      return bias;
    bias = biasBehind(b, s, *bias, dtype);
    if (!bias)
      return bias;
  }
  if (std::abs(scale - 1) > 1e-9)
    bias = b.value(OpCode::Mul, {*bias, scalar(scale)});
  if (!bias || (*bias)->type.rank() == 4)
    return bias;
  Dims shape(4 - (*bias)->type.rank(), Dim(1));
  shape.insert(shape.end(), (*bias)->type.shape.begin(), (*bias)->type.shape.end());
  return b.value(OpCode::Reshape, {*bias}, {{"shape", shape}});
}

} // namespace gpt2c
