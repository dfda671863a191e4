// One proof, whose steps share what they found before.
#include "passes/proof/RopeForm.h"

#include "passes/proof/Lengths.h"
#include "passes/proof/PositionProof.h"
#include "passes/quantize/Precision.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

#include <cmath>
#include <numbers>

namespace gpt2c {

static bool isLinearOp(const Op &op) {
  switch (op.code()) {
  case OpCode::Add:
  case OpCode::Sub:
  case OpCode::Mul:
  case OpCode::Neg:
  case OpCode::Cast:
  case OpCode::Concat:
  case OpCode::Slice:
  case OpCode::Reshape:
  case OpCode::Unsqueeze:
  case OpCode::Squeeze:
    return true;
  default:
    return false;
  }
}

namespace {

/// Whether values come from x, for those that `slice` holds.
class Dependence {
public:
  explicit Dependence(Value *x) { known_[x] = true; }
  bool of(Value *v) {
    auto it = known_.find(v);
    if (it != known_.end())
      return it->second;
    bool depends =
        v->def() && llvm::any_of(v->def()->operands(), [&](Value *o) { return o && of(o); });
    return known_[v] = depends;
  }

private:
  llvm::DenseMap<Value *, bool> known_;
};

/// One element of y: at most two elements of x of the same token and head, each times one number of
/// a factor's row, or 1.
struct Term {
  int64_t source = 0;
  Value *factor = nullptr;
  int64_t column = 0;
  double sign = 1;
};
using TurnedElement = llvm::SmallVector<Term, 2>;

class RopeProof {
public:
  RopeProof(const Function &f, Op *root, Value *x, int64_t context)
      : f_(f), root_(root), x_(x), lead_(x->type.rank() - 1),
        width_(x->type.shape.back().constant().value_or(0)), context_(context) {}

  std::optional<RopeForm> run(std::string &why) {
    RopeForm form;
    form.x = x_;
    std::vector<TurnedElement> elements;
    if (!isLinear(form.ops) || !findElements(elements) || !findPairs(elements, form))
      return std::nullopt;
    if (!evaluateFactors(form, why) || !findFrequencies(elements, form, why))
      return std::nullopt;
    makeTables(elements, form);
    form.tokenAxis =
        llvm::find(x_->type.shape, Dim::symbol(tokenSymbol())) - x_->type.shape.begin();
    return form;
  }

private:
  bool fits(const Value *v) const {
    return v->type.rank() > lead_ && isFloat(v->type.dtype) &&
           llvm::equal(llvm::ArrayRef<Dim>(v->type.shape).take_front(lead_),
                       llvm::ArrayRef<Dim>(x_->type.shape).take_front(lead_));
  }

  /// Slices and concatenations of the axes that heads do not share with their neighbours.
  bool staysInside(const Op &op, llvm::StringRef attr) const {
    if (!op.hasAttr(attr))
      return false;
    int64_t rank = op.operand(0)->type.rank();
    auto inside = [&](int64_t axis) { return (axis < 0 ? axis + rank : axis) >= int64_t(lead_); };
    if (op.is(OpCode::Concat))
      return inside(op.intAttr(attr));
    return llvm::all_of(op.dimsAttr(attr),
                        [&](const Dim &d) { return d.isConstant() && inside(*d.constant()); });
  }

  /// By structure: every op that x has a part in is linear in it and leaves tokens and heads where
  /// they are.
  bool isLinear(llvm::SmallVector<Op *> &ops) {
    Dependence onX(x_);
    BackwardSlice s =
        backwardSlice(root_->result(), [&](Value *v) { return !onX.of(v) || v == x_; });
    for (Op *op : s.ops) {
      unsigned from = llvm::count_if(op->operands(), [&](Value *o) { return o && onX.of(o); });
      if (op->numResults() != 1 || !fits(op->result()))
        return false;
      bool mul = op->is(OpCode::Mul), sum = op->is(OpCode::Add) || op->is(OpCode::Sub);
      if (!isLinearOp(*op) || (mul && from != 1) || (sum && from != 2) ||
          (op->is(OpCode::Concat) && (from != op->numOperands() || !staysInside(*op, "axis"))) ||
          (op->is(OpCode::Slice) && !staysInside(*op, "axes")))
        return false;
      if (mul)
        factors_.insert(op->operand(onX.of(op->operand(0)) ? 1 : 0));
    }
    ops = s.ops;
    return !factors_.empty() && factors_.size() <= 8 &&
           llvm::all_of(s.leaves, [&](Value *v) { return v == x_ || !onX.of(v); });
  }

  /// Symbols for one sequence of `tokens` tokens: what a factor calls the axis in front of its
  /// last.
  bool sizes(int64_t tokens, SymbolMap &symbols) const {
    symbols = probeSymbols(f_, 0);
    for (const Dim &d : x_->type.shape)
      d.forEachSymbol([&](llvm::StringRef s) { symbols[s] = 1; });
    for (Value *v : factors_)
      for (const Dim &d : v->type.shape)
        if (auto symbol = d.asSymbol(); symbol && *symbol == tokenSymbol())
          symbols[*symbol] = tokens;
    return !tokenSymbol().empty();
  }

  /// The last axis of the factors that has no constant size.
  llvm::StringRef tokenSymbol() const {
    for (Value *v : factors_)
      for (const Dim &d : llvm::reverse(v->type.shape))
        if (!d.isConstant())
          return d.asSymbol().value_or("");
    return "";
  }

  /// x as many tokens as elements, token t a one at place t, and for each factor a row of random
  /// numbers: the same for all tokens, or `perToken`. Gives y as [rows, width].
  std::optional<Tensor> turnOnes(bool perToken, std::vector<Tensor> &numbers) {
    SymbolMap symbols;
    if (width_ < 2 || width_ > 1024 || !sizes(width_, symbols))
      return std::nullopt;
    auto shape = concreteShape(x_->type, symbols);
    auto *axis = llvm::find(x_->type.shape, Dim::symbol(tokenSymbol()));
    if (!shape || product(*shape) > (int64_t(1) << 24) || axis == x_->type.shape.end())
      return std::nullopt;
    size_t tokenAxis = axis - x_->type.shape.begin();
    if (tokenAxis >= lead_)
      return std::nullopt;
    inner_ = product(llvm::ArrayRef(*shape).slice(tokenAxis + 1, lead_ - tokenAxis - 1));
    Tensor ones = Tensor::zeros(DType::F64, *shape);
    for (int64_t row = 0; row < ones.count() / width_; ++row)
      ones.data<double>()[row * width_ + token(row)] = 1;
    Executor::Bindings bound{{x_, ones}};
    numbers.clear();
    for (Value *factor : factors_) {
      auto size = concreteShape(factor->type, symbols);
      if (!size)
        return std::nullopt;
      int64_t last = size->empty() ? 1 : size->back(), count = product(*size);
      bool rows = count == width_ * last && count != last;
      if (!rows && count != last)
        return std::nullopt;
      Tensor all = randomTensor(*size, 71 + (uint64_t(numbers.size() + 8 * perToken) << 32));
      for (int64_t i = last; i < count && !perToken; ++i)
        all.data<double>()[i] = all.data<double>()[i % last];
      bound[factor] = all;
      numbers.push_back(Tensor(DType::F64, {rows ? width_ : 1, last}));
      std::copy_n(all.data<double>(), count, numbers.back().data<double>());
    }
    auto y = probe(f_, root_->result(), bound, symbols);
    return y && y->shape() == llvm::ArrayRef<int64_t>(*shape) ? y : std::nullopt;
  }

  /// The token of a row of y, with heads in front of the tokens or behind them.
  int64_t token(int64_t row) const { return row / inner_ % width_; }

  /// Which number stands in which place of y says what is added where. Numbers of each token's own
  /// then show that tokens and heads keep to themselves.
  bool findElements(std::vector<TurnedElement> &elements) {
    std::vector<Tensor> numbers;
    auto y = turnOnes(/*perToken=*/false, numbers);
    if (!y)
      return false;
    elements.assign(width_, {});
    for (int64_t t = 0; t < width_; ++t)
      for (int64_t i = 0; i < width_; ++i)
        if (double value = y->data<double>()[t * inner_ * width_ + i])
          if (!addTerm(elements[i], t, value, numbers))
            return false;
    y = turnOnes(/*perToken=*/true, numbers);
    for (int64_t row = 0; y && row < y->count() / width_; ++row)
      for (int64_t i = 0; i < width_; ++i) {
        double expected = 0;
        for (const Term &term : elements[i])
          if (term.source == token(row))
            expected += valueOf(term, numbers, token(row));
        if (y->data<double>()[row * width_ + i] != expected)
          return false;
      }
    return y.has_value();
  }

  /// A term's number in the row of a token; factors of one row have the same for all.
  double valueOf(const Term &term, llvm::ArrayRef<Tensor> rows, int64_t token) const {
    if (!term.factor)
      return 1;
    const Tensor &row =
        rows[std::find(factors_.begin(), factors_.end(), term.factor) - factors_.begin()];
    return term.sign * row.data<double>()[(row.dim(0) == 1 ? 0 : token) * row.dim(1) + term.column];
  }

  bool addTerm(TurnedElement &element, int64_t source, double value,
               llvm::ArrayRef<Tensor> numbers) {
    Term term{source};
    if (value == 1)
      return element.push_back(term), true;
    for (auto [factor, row] : llvm::zip_equal(factors_, numbers))
      for (int64_t i = 0; i < row.dim(1); ++i)
        if (double n = row.data<double>()[i]; n == value || n == -value) {
          element.push_back({source, factor, i, n == value ? 1.0 : -1.0});
          return true;
        }
    return false; // a product of several
  }

  /// Which elements are turned with which.
  bool findPairs(std::vector<TurnedElement> &elements, RopeForm &form) {
    auto turned = [](const TurnedElement &e) {
      return e.size() == 2 && e[0].factor && e[1].factor;
    };
    int64_t count = llvm::count_if(elements, turned);
    if (count < 2 || count % 2 != 0)
      return false;
    pairs_ = count / 2;
    for (int64_t i = 0; i < width_; ++i) {
      TurnedElement &e = elements[i];
      if (i >= count ? e.size() != 1 || e[0].factor || e[0].source != i : !turned(e))
        return false;
      if (i < count && e[0].source != i)
        std::swap(e[0], e[1]);
    }
    int64_t partner = elements[0][1].source;
    form.interleaved = partner == 1 && pairs_ > 1;
    for (int64_t i = 0; i < count; ++i) {
      int64_t other = form.interleaved ? i ^ 1 : i < pairs_ ? i + pairs_ : i - pairs_;
      if (elements[i][0].source != i || elements[i][1].source != other)
        return false;
    }
    return true;
  }

  /// The axis of a table along which positions choose: where it is cut to the tokens, or gathered.
  static int64_t rowAxis(const Op &op) {
    const int64_t rank = op.operand(0)->type.rank();
    auto inFront = [&](int64_t axis) { return axis < 0 ? axis + rank : axis; };
    if (op.is(OpCode::Gather))
      return inFront(op.intAttr("axis"));
    for (int64_t axis = 0; axis < rank; ++axis)
      if (!op.result()->type.shape[axis].isConstant())
        return axis;
    return rank - 2;
  }

  /// Rows of a table that a factor is read from; `exact` is how well its elements are rounded.
  void boundByTables(const BackwardSlice &s) {
    for (Op *op : s.ops)
      if ((op->is(OpCode::Gather) || op->is(OpCode::Slice)) && op->operand(0)->def() &&
          op->operand(0)->def()->is(OpCode::Constant) && op->operand(0)->type.rank() >= 2 &&
          isFloat(op->operand(0)->type.dtype)) {
        const Type &table = op->operand(0)->type;
        const int64_t axis = rowAxis(*op), rows = *table.shape[axis].constant();
        positions_ = tables_ ? std::min(positions_, rows) : rows;
        tables_ = true;
        rounding_ = isNarrow(table.dtype) ? 2 * unitRoundoff(table.dtype) : 0x1p-22;
        // Frequencies were found to so many digits at every power of two, so they wander no more.
        wander_ = table.dtype == DType::BF16 ? 2 : std::numeric_limits<double>::infinity();
      }
  }

  /// Where the axis of a token is, in positions and factors.
  int64_t tokenAxisOf(const Value *v) const {
    for (size_t i = v->type.rank(); i-- > 0;)
      if (v->type.shape[i] == Dim::symbol(tokenSymbol()))
        return int64_t(i);
    return -1;
  }

  /// By structure: a token's row of a factor depends on its own position, on no other token and on
  /// no length, but for parts that are the same for every length.
  bool isOfOwnTokens(Value *factor, Value *positions, std::string &why) const {
    Elements elements;
    auto at = elements.variablesOf(factor);
    const int64_t axis = tokenAxisOf(factor);
    const Elements::Ref token = axis < 0 ? elements.number(0) : at[axis];
    Lengths lengths{Dim::symbol(tokenSymbol()), Dim::symbol(tokenSymbol()), positions_};
    const int64_t own = positions ? tokenAxisOf(positions) : -1;
    if (own >= 0) {
      // Positions that count behind a past tell its length.
      auto places = elements.variablesOf(positions);
      const Elements::Ref e = elements.at(positions, places);
      if (e->kind == Element::Number) {
        const Dim past = e->number - places[own]->number;
        if (!past.isConstant() && elements.isNonNegative(past))
          lengths.keys = lengths.keys + past;
      }
      elements.takeAsNonNegative(positions); // others are no part of the plan
      elements.define(positions, [&, positions, own](Elements::Indices of) {
        return of[own] == token ? elements.read(positions, of) : nullptr;
      });
    }
    Allowed allowed;
    allowed.number = [&](const Dim &d) {
      return onlyUses(d, [&](llvm::StringRef name) {
        const Dim *extent = elements.extentOf(name);
        return extent && (extent->isConstant() || (!positions && d == token->number));
      });
    };
    allowed.read = [&](const Element &e) {
      return e.value == positions && llvm::all_of(e.operands, [&](Elements::Ref i) {
               return llvm::is_contained(at, i) || i == elements.number(0);
             });
    };
    auto foreign = DependenceProof(elements, lengths, allowed).foreign(elements.at(factor, at));
    if (foreign)
      why = "of its factors " + foreign->reason;
    return !foreign;
  }

  /// The factors at every position, as rows of doubles.
  bool evaluateFactors(RopeForm &form, std::string &why) {
    llvm::SetVector<Value *> integers;
    for (Value *factor : factors_) {
      BackwardSlice s = backwardSlice(factor, [](Value *v) { return !isFloat(v->type.dtype); });
      boundByTables(s);
      for (Value *leaf : s.leaves) {
        if (isFloat(leaf->type.dtype))
          return why = "its factors come from a floating-point input", false;
        integers.insert(leaf);
      }
    }
    if (integers.size() > 1)
      return why = "its factors come from several integers", false;
    if (!tables_)
      positions_ = context_ > 0 ? context_ : comparedTokens;
    form.positionsCompared = positions_;
    SymbolMap symbols;
    if (positions_ < 2 || !sizes(positions_, symbols))
      return why = "its number of tokens has no name", false;
    for (Value *factor : factors_)
      if (!isOfOwnTokens(factor, integers.empty() ? nullptr : integers[0], why))
        return false;
    Executor::Bindings bound;
    if (!integers.empty()) {
      form.positions = integers[0];
      auto shape = concreteShape(form.positions->type, symbols);
      if (!shape || product(*shape) != positions_)
        return why = "its positions are not those of tokens", false;
      Tensor iota(DType::I64, *shape);
      for (int64_t i = 0; i < positions_; ++i)
        iota.data<int64_t>()[i] = i;
      bound[form.positions] = iota;
    } else if (!tables_)
      return why = "its factors come from no positions", false;
    for (Value *factor : factors_) {
      auto t = probe(f_, factor, bound, symbols, &why);
      if (!t)
        return false;
      int64_t last = t->rank() ? t->dim(-1) : 1, count = t->count();
      if (count != last && count != positions_ * last)
        return why = "its factors are not one row for each position", false;
      values_.push_back(Tensor(DType::F64, {count / last, last}));
      std::copy_n(t->data<double>(), count, values_.back().data<double>());
    }
    return true;
  }

  double at(const Term &t, int64_t position) const { return valueOf(t, values_, position); }

  /// The angle at position 1 gives a frequency, those at 2, 4, 8 ... give it more digits; then all
  /// positions are compared.
  bool findFrequencies(llvm::ArrayRef<TurnedElement> elements, RopeForm &form, std::string &why) {
    form.scale = at(elements[0][0], 0);
    for (int64_t k = 0; k < pairs_; ++k) {
      int64_t i = form.interleaved ? 2 * k : k, j = form.interleaved ? i + 1 : k + pairs_;
      double frequency = 0;
      for (int64_t p = 1; p < positions_; p *= 2) {
        double angle = std::atan2(-at(elements[i][1], p), at(elements[i][0], p));
        double turns = std::round((frequency * double(p) - angle) / (2 * std::numbers::pi));
        frequency = (angle + 2 * std::numbers::pi * turns) / double(p);
      }
      for (int64_t p = 0; p < positions_; ++p) {
        double a = double(p) * frequency, c = form.scale * std::cos(a),
               s = form.scale * std::sin(a);
        double off =
            std::max({std::abs(at(elements[i][0], p) - c), std::abs(at(elements[i][1], p) + s),
                      std::abs(at(elements[j][0], p) - c), std::abs(at(elements[j][1], p) - s)});
        const double wander = 2 + std::min(std::abs(a), wander_);
        if (!(off <= (tables_ ? rounding_ : 1e-9) * std::abs(form.scale) * wander))
          return why = "pair " + std::to_string(k) + " is off by " + std::to_string(off) +
                       " at position " + std::to_string(p),
                 false;
      }
      form.frequencies.push_back(frequency);
    }
    return true;
  }

  /// One cosine and one sine for each pair, of its first element.
  void makeTables(llvm::ArrayRef<TurnedElement> elements, RopeForm &form) const {
    form.cos = Tensor(DType::F32, {positions_, pairs_});
    form.sin = Tensor(DType::F32, {positions_, pairs_});
    for (int64_t p = 0; p < positions_; ++p)
      for (int64_t k = 0; k < pairs_; ++k) {
        const TurnedElement &e = elements[form.interleaved ? 2 * k : k];
        form.cos.data<float>()[p * pairs_ + k] = float(at(e[0], p));
        form.sin.data<float>()[p * pairs_ + k] = float(-at(e[1], p));
      }
  }

  static int64_t product(llvm::ArrayRef<int64_t> dims) {
    int64_t n = 1;
    for (int64_t d : dims)
      n *= d;
    return n;
  }

  const Function &f_;
  Op *root_;
  Value *x_;
  size_t lead_;
  int64_t width_, context_, pairs_ = 0, positions_ = 0, inner_ = 1;
  bool tables_ = false;
  double rounding_ = 0, wander_ = std::numeric_limits<double>::infinity();
  llvm::SetVector<Value *> factors_;
  std::vector<Tensor> values_;
};

} // namespace

/// Values of the root's shape that it may turn, nearest first: those it reaches, through slices
/// among others, by linear ops.
static llvm::SmallVector<Value *> turnedValues(Op *root) {
  llvm::SmallVector<Value *> order{root->result()}, found;
  const Shape &shape = root->result()->type.shape;
  bool slices = false;
  for (size_t i = 0; i < order.size() && order.size() < 40; ++i) {
    const Op *op = order[i]->def();
    if (!op || !isLinearOp(*op))
      continue;
    slices |= op->is(OpCode::Slice);
    for (Value *o : op->operands()) {
      if (!o || !isFloat(o->type.dtype) || o->type.rank() < shape.size() ||
          llvm::is_contained(order, o) || constantOp(o))
        continue;
      order.push_back(o);
      if (o->type.shape == shape)
        found.push_back(o);
    }
  }
  return slices ? found : llvm::SmallVector<Value *>();
}

std::optional<RopeForm> ropeForm(const Function &f, Op *root, int64_t context, std::string &why) {
  bool ends = root->is(OpCode::Add) || root->is(OpCode::Concat) || root->is(OpCode::Reshape) ||
              root->is(OpCode::Cast);
  if (!ends || root->result()->type.rank() < 3 || !isFloat(root->result()->type.dtype))
    return std::nullopt;
  for (Value *x : turnedValues(root))
    if (auto form = RopeProof(f, root, x, context).run(why))
      return form;
  return std::nullopt;
}

} // namespace gpt2c
