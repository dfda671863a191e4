// One proof, whose steps share what they found before.
#include "passes/proof/Lengths.h"

#include "ir/Executor.h"
#include "passes/proof/masks/Probe.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>

namespace gpt2c {

//===-- evaluation --------------------------------------------------------------------------===//

/// Most evaluations of an op on one element that one proof may take.
constexpr int64_t mostLanes = int64_t(1) << 26;

namespace {

class LaneEvaluator {
public:
  using Reads = llvm::function_ref<std::optional<Tensor>(const Element &)>;
  LaneEvaluator(const Elements &elements, const LaneMap &symbols, int64_t count, Reads reads,
                bool float64)
      : elements_(elements), symbols_(symbols), count_(count), reads_(reads), float64_(float64) {}

  std::optional<Tensor> of(Elements::Ref e) {
    auto [it, isNew] = known_.try_emplace(e);
    if (isNew) {
      auto t = evaluate(*e);
      known_[e] = t;
      return t;
    }
    return it->second;
  }

private:
  using Numbers = std::optional<std::vector<int64_t>>;

  Numbers factor(const Dim::Factor &f) {
    if (f.kind == Dim::Factor::Kind::Symbol) {
      auto it = symbols_.find(f.text);
      return it == symbols_.end() ? Numbers() : it->second;
    }
    Numbers of = sumOf(*f.of);
    if (of)
      for (int64_t &v : *of)
        v = f.kind == Dim::Factor::Kind::Positive ? std::max<int64_t>(v, 0)
                                                  : llvm::divideFloorSigned(v, f.by);
    return of;
  }
  Numbers sumOf(const Dim &d) {
    std::vector<int64_t> sum(count_, 0);
    for (const Dim::Term &term : d.terms()) {
      std::vector<int64_t> product(count_, term.coefficient);
      for (const Dim::Factor *f : term.factors) {
        const Numbers values = factor(*f);
        if (!values)
          return std::nullopt;
        for (auto [p, v] : llvm::zip_equal(product, *values))
          p *= v;
      }
      for (auto [s, p] : llvm::zip_equal(sum, product))
        s += p;
    }
    return sum;
  }
  std::optional<Tensor> numbers(const Dim &d) {
    const Numbers sum = sumOf(d);
    if (!sum)
      return std::nullopt;
    Tensor t(DType::I64, {count_});
    llvm::copy(*sum, t.data<int64_t>());
    return t;
  }

  std::optional<Tensor> integers(const Element &e) {
    auto a = of(e.operands[0]), b = e.operands.size() > 1 ? of(e.operands[1]) : numbers(e.number);
    if (!a || !b)
      return std::nullopt;
    Tensor t(DType::I64, {count_});
    for (int64_t i = 0; i < count_; ++i) {
      const int64_t x = a->asInt(i), y = b->asInt(i);
      const bool divides = e.kind == Element::Quotient || e.kind == Element::Remainder;
      if (divides && (x < 0 || y < 1))
        return std::nullopt;
      int64_t &to = t.data<int64_t>()[i];
      switch (e.kind) {
      case Element::Sum:
        to = x + y;
        break;
      case Element::Times:
        to = x * y;
        break;
      case Element::Quotient:
        to = x / y;
        break;
      case Element::Remainder:
        to = x % y;
        break;
      case Element::Highest:
        to = std::max(x, y);
        break;
      default:
        to = std::min(x, y);
      }
    }
    return t;
  }

  /// Lanes of one tensor where the condition holds, of another elsewhere.
  std::optional<Tensor> choice(const Element &e) {
    auto a = of(e.operands[0]), b = of(e.operands[1]), x = of(e.operands[2]), y = of(e.operands[3]);
    if (!a || !b || !x || !y)
      return std::nullopt;
    if (isFloat(x->dtype()) != isFloat(y->dtype()) || byteSize(y->dtype()) > byteSize(x->dtype()))
      x = x->cast(y->dtype());
    Tensor other = y->cast(x->dtype()), t(x->dtype(), {count_});
    const size_t size = byteSize(t.dtype());
    for (int64_t i = 0; i < count_; ++i) {
      const Tensor &from = a->asInt(i) < b->asInt(i) ? *x : other;
      std::memcpy(static_cast<char *>(t.raw()) + i * size,
                  static_cast<const char *>(from.raw()) + i * size, size);
    }
    return t;
  }

  std::optional<Tensor> constant(const Element &e) {
    const Op *op = e.value->def();
    if (!op || !op->is(OpCode::Constant) || !op->constant.valid())
      return reads_ ? reads_(e) : std::nullopt;
    const Tensor &from = op->constant;
    if (packedElements(from.dtype()) > 1)
      return std::nullopt;
    std::vector<int64_t> at(count_, 0);
    for (auto [axis, index] : llvm::enumerate(e.operands)) {
      auto values = of(index);
      if (!values)
        return std::nullopt;
      for (int64_t i = 0; i < count_; ++i) {
        const int64_t v = values->asInt(i);
        if (v < 0 || v >= from.dim(int(axis)))
          return std::nullopt;
        at[i] = at[i] * from.dim(int(axis)) + v;
      }
    }
    Tensor t(from.dtype(), {count_});
    const size_t size = byteSize(t.dtype());
    for (int64_t i = 0; i < count_; ++i)
      std::memcpy(static_cast<char *>(t.raw()) + i * size,
                  static_cast<const char *>(from.raw()) + at[i] * size, size);
    return t;
  }

  /// The type of a value here.
  DType typeOf(const Value *v) const {
    return float64_ && isFloat(v->type.dtype) ? DType::F64 : v->type.dtype;
  }

  std::optional<Tensor> computed(const Element &e) {
    const DType dtype = typeOf(e.op->result());
    if (e.op->is(OpCode::MatMul) || e.op->is(OpCode::Linear))
      return product(e, dtype);
    std::vector<Tensor> operands;
    for (auto [i, o] : llvm::enumerate(e.operands)) {
      auto t = of(o);
      if (!t)
        return std::nullopt;
      operands.push_back(t->cast(typeOf(e.op->operand(i))));
    }
    auto out = evaluateOp(const_cast<Op &>(*e.op), operands, {}, float64_);
    if (!out) {
      llvm::consumeError(out.takeError());
      return std::nullopt;
    }
    return (*out)[0].count() == count_ ? std::optional((*out)[0].reshaped({count_})) : std::nullopt;
  }

  /// A matrix product of one summand.
  std::optional<Tensor> product(const Element &e, DType dtype) {
    auto a = of(e.operands[0]), b = of(e.operands[1]);
    if (!a || !b)
      return std::nullopt;
    Tensor t(DType::F64, {count_});
    for (int64_t i = 0; i < count_; ++i)
      t.data<double>()[i] = a->asDouble(i) * b->asDouble(i);
    return t.cast(dtype);
  }

  /// Each lane has its own number of elements.
  std::optional<Tensor> reduced(const Element &e) {
    if (!e.op->info().has(Reduction))
      return std::nullopt; // a running sum
    const DType dtype = typeOf(e.op->result());
    Tensor out(dtype, {count_});
    const size_t size = byteSize(dtype);
    int64_t left = mostLanes;
    for (int64_t lane = 0; lane < count_; ++lane) {
      SymbolMap own;
      for (auto &s : symbols_)
        own[s.getKey()] = s.getValue()[lane];
      llvm::SmallVector<int64_t, 2> extents;
      int64_t n = 1;
      for (llvm::StringRef s : e.bound) {
        auto extent = elements_.extentOf(s)->evaluate(own);
        if (!extent || *extent < 1)
          return std::nullopt;
        extents.push_back(*extent);
        n *= *extent;
      }
      if ((left -= n) < 0)
        return std::nullopt;
      LaneMap inner;
      for (auto &s : own)
        inner[s.getKey()].assign(n, s.getValue());
      for (int64_t i = 0; i < n; ++i)
        for (size_t b = extents.size(), rest = i; b-- > 0; rest /= extents[b])
          inner[e.bound[b]].push_back(int64_t(rest % extents[b]));
      auto body = LaneEvaluator(elements_, inner, n, reads_, float64_).of(e.operands[0]);
      auto value = body ? reduce(e, *body) : std::nullopt;
      if (!value)
        return std::nullopt;
      std::memcpy(static_cast<char *>(out.raw()) + lane * size, value->raw(), size);
    }
    return out;
  }

  std::optional<Tensor> reduce(const Element &e, const Tensor &body) {
    const Value *x = e.op->operand(0);
    llvm::SmallVector<int64_t, 4> shape(x->type.rank(), 1);
    int64_t axis = 0;
    if (e.op->hasAttr("axes") && !e.op->dimsAttr("axes").empty())
      axis = e.op->intsAttr("axes")[0];
    shape[axis < 0 ? axis + int64_t(shape.size()) : axis] = body.count();
    auto out =
        evaluateOp(const_cast<Op &>(*e.op), {body.cast(typeOf(x)).reshaped(shape)}, {}, float64_);
    if (!out) {
      llvm::consumeError(out.takeError());
      return std::nullopt;
    }
    if ((*out)[0].count() != 1)
      return std::nullopt;
    return (*out)[0].cast(typeOf(e.op->result()));
  }

  std::optional<Tensor> evaluate(const Element &e) {
    switch (e.kind) {
    case Element::Number:
      return numbers(e.number);
    case Element::Real: {
      Tensor t(DType::F64, {count_});
      std::fill_n(t.data<double>(), count_, e.real);
      return t;
    }
    case Element::Choice:
      return choice(e);
    case Element::Read:
      return constant(e);
    case Element::Computed:
      return computed(e);
    case Element::Reduced:
      return reduced(e);
    case Element::Unknown:
      return std::nullopt;
    default:
      return integers(e);
    }
  }

  const Elements &elements_;
  const LaneMap &symbols_;
  int64_t count_;
  Reads reads_;
  bool float64_;
  std::map<Elements::Ref, std::optional<Tensor>> known_;
};

} // namespace

std::optional<Tensor>
evaluateLanes(const Elements &elements, Elements::Ref e, const LaneMap &symbols, int64_t count,
              llvm::function_ref<std::optional<Tensor>(const Element &)> reads, bool float64) {
  return LaneEvaluator(elements, symbols, count, reads, float64).of(e);
}

//===-- dependence --------------------------------------------------------------------------===//

/// Symbols of an element that are lengths, apart from indices.
static void collectLengths(const Elements &elements, Elements::Ref e,
                           llvm::SetVector<llvm::StringRef> &lengths,
                           std::map<Elements::Ref, bool> &seen) {
  if (!seen.try_emplace(e, true).second)
    return;
  auto add = [&](auto &self, const Dim &d) -> void {
    d.forEachSymbol([&](llvm::StringRef s) {
      if (const Dim *extent = elements.extentOf(s))
        self(self, *extent);
      else
        lengths.insert(s);
    });
  };
  add(add, e->number);
  for (llvm::StringRef s : e->bound)
    add(add, *elements.extentOf(s));
  for (Elements::Ref o : e->operands)
    collectLengths(elements, o, lengths, seen);
}

llvm::SetVector<llvm::StringRef> lengthsIn(const Elements &elements, Elements::Ref e) {
  llvm::SetVector<llvm::StringRef> lengths;
  std::map<Elements::Ref, bool> seen;
  collectLengths(elements, e, lengths, seen);
  return lengths;
}

/// Whether `e` is the same for all indices and reads nothing but constants.
bool DependenceProof::isOfLengths(Elements::Ref e) {
  llvm::SmallVector<llvm::StringRef, 4> bound;
  auto run = [&](auto &self, Elements::Ref x) -> bool {
    const Op *from = x->kind == Element::Read ? x->value->def() : nullptr;
    if (x->kind == Element::Unknown ||
        (x->kind == Element::Read && (!from || !from->is(OpCode::Constant))))
      return false;
    if (!onlyUses(x->number, [&](llvm::StringRef s) {
          return !elements_.extentOf(s) || llvm::is_contained(bound, s);
        }))
      return false;
    const size_t outer = bound.size();
    bound.append(x->bound.begin(), x->bound.end());
    bool all = llvm::all_of(x->operands, [&](Elements::Ref o) { return self(self, o); });
    bound.truncate(outer);
    return all;
  };
  auto [it, isNew] = ofLengths_.try_emplace(e, false);
  if (isNew)
    it->second = run(run, e);
  return it->second;
}

static std::string nameOf(const Op *op) { return op ? op->describe() : "the graph"; }

/// Why a function of lengths is not one number; none where it is.
std::optional<Obstacle> DependenceProof::varies(Elements::Ref e, const Op *reader) {
  const llvm::SetVector<llvm::StringRef> lengths = lengthsIn(elements_, e);
  if (lengths.empty())
    return std::nullopt;
  const Op *op = e->op ? e->op : reader;
  auto because = [&](const std::string &why) { return Obstacle{nameOf(op) + " " + why, op}; };
  for (llvm::StringRef s : lengths)
    if (!lengths_.queries.uses(s) && !lengths_.keys.uses(s))
      return because("depends on a size '" + s.str() + "', which is no number of tokens");
  // All lengths that the graph may have.
  std::vector<llvm::StringRef> symbols(lengths.begin(), lengths.end());
  for (const Dim *d : {&lengths_.queries, &lengths_.keys})
    d->forEachSymbol([&](llvm::StringRef s) {
      if (!llvm::is_contained(symbols, s))
        symbols.push_back(s);
    });
  const int64_t most = lengths_.context;
  if (symbols.size() > 2)
    return because("depends on lengths in more ways than can be tried");
  // Of all tokens together their number is enough, and of one length that length.
  bool byKeys = false;
  if (symbols.size() == 2 && lengths_.keys == Dim::symbol(symbols[0]) + Dim::symbol(symbols[1])) {
    const Dim before = Dim::symbol(symbols[0]) - Dim::symbol(symbols[1]);
    Elements::Ref ofKeys = elements_.substitute(e, symbols[0], before);
    byKeys = !lengthsIn(elements_, ofKeys).contains(symbols[1]);
    e = byKeys ? ofKeys : e;
  }
  const bool byOne = symbols.size() < 2 || lengths.size() == 1 || byKeys;
  if (!byOne && most * most / 2 > mostLanes)
    return because("depends on lengths in more ways than can be tried");
  LaneMap lanes;
  std::vector<int64_t> keys; // of each lane
  SymbolMap own;
  auto add = [&](int64_t first, int64_t second) {
    own[symbols[0]] = first;
    if (symbols.size() > 1)
      own[symbols[1]] = second;
    auto q = lengths_.queries.evaluate(own), k = lengths_.keys.evaluate(own);
    if (!byKeys && (!q || !k || *q < 1 || *q > *k || *k > most))
      return false;
    for (auto &s : own)
      lanes[s.getKey()].push_back(s.getValue());
    keys.push_back(byKeys ? first : *k);
    return true;
  };
  auto difference = [&]() -> std::optional<Obstacle> {
    const int64_t count = int64_t(keys.size());
    auto values = count ? evaluateLanes(elements_, e, lanes, count) : std::nullopt;
    if (!values)
      return because("depends on the number of tokens in a way that cannot be evaluated");
    const size_t size = byteSize(values->dtype());
    const char *bytes = static_cast<const char *>(std::as_const(*values).raw());
    for (int64_t i = 1; i < count; ++i)
      if (std::memcmp(bytes, bytes + i * size, size) != 0)
        return because("depends on the number of tokens: it is " +
                       shortNumber(values->asDouble(i)) + " for " + std::to_string(keys[i]) + ", " +
                       shortNumber(values->asDouble(0)) + " for fewer");
    return std::nullopt;
  };
  for (int64_t first = byKeys ? 1 : 0; first <= most; ++first) {
    if (byOne) {
      // With no past before the tokens, or one token behind it.
      if (!add(first, 0) && symbols.size() > 1)
        add(first, 1);
      continue;
    }
    for (int64_t second = 0; second <= most - first; ++second)
      add(first, second);
    // What varies nearly always does so along one line of lengths.
    if (first <= 1 && !keys.empty())
      if (auto why = difference())
        return why;
  }
  return difference();
}

std::optional<Obstacle> DependenceProof::walk(Elements::Ref e, const Op *reader) {
  if (!seen_.try_emplace(e, true).second)
    return std::nullopt;
  if (e->kind != Element::Read && isOfLengths(e))
    return varies(e, reader);
  auto because = [&](const Op *op, const std::string &why) {
    return Obstacle{nameOf(op) + " " + why, op};
  };
  switch (e->kind) {
  case Element::Unknown:
    return because(e->op, "may depend on the number of tokens or on other tokens");
  case Element::Reduced:
    if (!allowed_.reduced || !allowed_.reduced(*e))
      return because(e->op, "looks at other tokens");
    return std::nullopt;
  case Element::Read: {
    const Op *from = e->value->def();
    if (!from || !from->is(OpCode::Constant)) {
      if (allowed_.read(*e))
        return std::nullopt;
      return because(reader, "reads " +
                                 (from ? from->describe() : "input '" + e->value->name + "'") +
                                 " where other tokens stand");
    }
    break;
  }
  default:
    if (!e->number.isConstant() && !allowed_.number(e->number))
      return because(reader, "depends on where tokens stand in a way of its own");
    break;
  }
  const Op *op = e->op ? e->op : reader;
  for (Elements::Ref o : e->operands)
    if (auto why = walk(o, op))
      return why;
  return std::nullopt;
}

std::optional<Obstacle> DependenceProof::foreign(Elements::Ref e) { return walk(e, nullptr); }

} // namespace gpt2c
