// One class: what elements are and how they are compared. What ops make of them is beside this.
#include "passes/proof/Element.h"

#include "ir/ops/Common.h"

#include "llvm/ADT/STLExtras.h"

#include <bit>
#include <tuple>

namespace gpt2c {

/// Names of indices begin with a character that no name of a model has.
static std::string indexName(size_t i) { return "#" + std::to_string(i); }

//===-- nodes -------------------------------------------------------------------------------===//

static int compareDims(const Dim &a, const Dim &b) {
  if (a.terms().size() != b.terms().size())
    return a.terms().size() < b.terms().size() ? -1 : 1;
  for (auto [x, y] : llvm::zip_equal(a.terms(), b.terms())) {
    if (x.coefficient != y.coefficient)
      return x.coefficient < y.coefficient ? -1 : 1;
    auto text = [](const Dim::Factor *f) { return f->text; };
    const auto xs = llvm::map_range(x.factors, text), ys = llvm::map_range(y.factors, text);
    if (x.factors != y.factors)
      return std::lexicographical_compare(xs.begin(), xs.end(), ys.begin(), ys.end()) ? -1 : 1;
  }
  return 0;
}

bool onlyUses(const Dim &d, llvm::function_ref<bool(llvm::StringRef)> allowed) {
  bool all = true;
  d.forEachSymbol([&](llvm::StringRef s) { all &= allowed(s); });
  return all;
}

bool Elements::Before::operator()(const Element &a, const Element &b) const {
  auto key = [](const Element &e) { return std::tie(e.kind, e.value, e.op, e.operands, e.bound); };
  if (key(a) != key(b))
    return key(a) < key(b);
  const auto x = std::bit_cast<uint64_t>(a.real), y = std::bit_cast<uint64_t>(b.real);
  if (x != y)
    return x < y;
  return compareDims(a.number, b.number) < 0;
}

Elements::Ref Elements::make(Element e) {
  auto &made = made_[e];
  if (!made)
    made = std::make_unique<Element>(std::move(e));
  return made.get();
}

Dim Elements::variable(const Dim &extent) {
  std::string name = indexName(extents_.size());
  extents_[name] = extent;
  return Dim::symbol(name);
}

llvm::SmallVector<Elements::Ref, 4> Elements::variablesOf(const Value *v) {
  llvm::SmallVector<Ref, 4> indices;
  for (const Dim &d : v->type.shape)
    indices.push_back(number(d == Dim(1) ? Dim(0) : variable(d)));
  return indices;
}

const Dim *Elements::extentOf(llvm::StringRef symbol) const {
  auto it = extents_.find(symbol);
  return it == extents_.end() ? nullptr : &it->second;
}

void Elements::stopAt(const Value *v) {
  define(v, [this, v](Indices indices) { return read(v, indices); });
}

Elements::Ref Elements::number(const Dim &d) {
  return make({.kind = Element::Number, .number = d});
}

Elements::Ref Elements::real(double v) { return make({.kind = Element::Real, .real = v}); }

Elements::Ref Elements::read(const Value *v, Indices indices) {
  return make({.kind = Element::Read,
               .value = v,
               .operands = llvm::SmallVector<Ref, 4>(indices.begin(), indices.end())});
}

Elements::Ref Elements::unknown(const Op *op) { return make({.kind = Element::Unknown, .op = op}); }

Elements::Ref Elements::computed(const Op *op, llvm::ArrayRef<Ref> operands) {
  return make({.kind = Element::Computed,
               .op = op,
               .operands = llvm::SmallVector<Ref, 4>(operands.begin(), operands.end())});
}

//===-- integers ----------------------------------------------------------------------------===//

/// The highest or lowest that `d` can be, as a function of lengths; none where it has a minimum or
/// quotient of indices, or one that may be negative.
static std::optional<Dim> extremeOf(const Elements &elements, const Dim &d, bool highest) {
  Dim extreme;
  for (const Dim::Term &t : d.terms()) {
    Dim term(t.coefficient);
    for (const Dim::Factor *f : t.factors) {
      if (f->kind != Dim::Factor::Kind::Symbol) {
        const Dim function = Dim::of(f);
        if (function.range(DimBounds()).lo < 0 ||
            !onlyUses(function, [&](llvm::StringRef s) { return !elements.extentOf(s); }))
          return std::nullopt;
        term = term * function;
        continue;
      }
      const Dim *extent = elements.extentOf(f->text);
      const bool grows = (t.coefficient > 0) == highest;
      term = term * (!extent ? Dim::symbol(f->text) : grows ? *extent - Dim(1) : Dim(0));
    }
    extreme = extreme + term;
  }
  return extreme;
}

bool Elements::isNonNegative(const Dim &d) const {
  auto always = [&](const Dim &x) {
    const std::optional<Dim> lowest = extremeOf(*this, x, /*highest=*/false);
    return lowest && isLessEqual(Dim(0), *lowest, DimBounds()) == true;
  };
  return always(d) || llvm::any_of(facts_, [&](const Dim &fact) { return always(d - fact); });
}

bool Elements::isNonNegative(Ref e) const {
  auto of = [&](unsigned i) { return isNonNegative(e->operands[i]); };
  switch (e->kind) {
  case Element::Number:
    return isNonNegative(e->number);
  case Element::Sum:
  case Element::Lowest:
    return of(0) && of(1);
  case Element::Highest:
    return of(0) || of(1);
  case Element::Times:
    return of(0) && isNonNegative(e->number);
  case Element::Quotient:
  case Element::Remainder:
    return true;
  case Element::Choice:
    return of(2) && of(3);
  case Element::Read: {
    if (nonNegative_.contains(e->value))
      return true;
    const Op *op = e->value->def();
    if (!op || !op->is(OpCode::Constant) || !op->constant.valid() ||
        !isInteger(op->constant.dtype()))
      return false;
    for (int64_t i = 0; i < op->constant.count(); ++i)
      if (op->constant.asInt(i) < 0)
        return false;
    return true;
  }
  default:
    return false;
  }
}

Elements::Ref Elements::sum(Ref a, Ref b) {
  // Numbers come last, and are one.
  Dim total;
  auto apart = [&](Ref e) -> Ref {
    const bool is = e->kind == Element::Number,
               ends = e->kind == Element::Sum && e->operands[1]->kind == Element::Number;
    if (is || ends)
      total = total + (is ? e->number : e->operands[1]->number);
    return is ? nullptr : ends ? e->operands[0] : e;
  };
  Ref x = apart(a), y = apart(b);
  if (x && y)
    x = make({.kind = Element::Sum, .operands = {x, y}});
  else if (y)
    x = y;
  if (!x || total == Dim(0))
    return x ? x : number(total);
  return make({.kind = Element::Sum, .operands = {x, number(total)}});
}

Elements::Ref Elements::times(Ref a, const Dim &by) {
  if (by == Dim(1))
    return a;
  if (a->kind == Element::Number)
    return number(a->number * by);
  if (a->kind == Element::Sum)
    return sum(times(a->operands[0], by), times(a->operands[1], by));
  if (a->kind == Element::Times)
    return times(a->operands[0], a->number * by);
  return make({.kind = Element::Times, .number = by, .operands = {a}});
}

Elements::Parts Elements::divide(Ref a, const Dim &by) {
  if (a->kind == Element::Sum) {
    Parts x = divide(a->operands[0], by), y = divide(a->operands[1], by);
    return {sum(x.whole, y.whole), sum(x.rest, y.rest)};
  }
  if (a->kind == Element::Times)
    if (auto q = a->number.exactDiv(by))
      return {times(a->operands[0], *q), number(0)};
  if (a->kind != Element::Number || !a->number.isPolynomial())
    return {number(0), a};
  // Of each product of indices by itself: what it is multiplied by is a polynomial in lengths.
  std::map<std::vector<llvm::StringRef>, Dim> factors;
  for (const Dim::Term &t : a->number.terms()) {
    std::vector<llvm::StringRef> indices;
    Dim factor(t.coefficient);
    for (const Dim::Factor *f : t.factors)
      if (extentOf(f->text))
        indices.push_back(f->text);
      else
        factor = factor * Dim::symbol(f->text);
    Dim &all = factors[indices];
    all = all + factor;
  }
  Dim whole, rest;
  for (auto &[indices, factor] : factors) {
    Dim product(1);
    for (llvm::StringRef s : indices)
      product = product * Dim::symbol(s);
    if (auto q = factor.exactDiv(by)) {
      whole = whole + product * *q;
      continue;
    }
    auto c = factor.constant(), n = by.constant();
    const int64_t part = c && n && *n > 0 ? *c / *n - (*c % *n < 0) : 0;
    whole = whole + product * Dim(part);
    rest = rest + product * (factor - Dim(part) * by);
  }
  return {number(whole), number(rest)};
}

std::optional<Dim> Elements::mostOf(Ref e) const {
  auto of = [&](unsigned i) { return mostOf(e->operands[i]); };
  switch (e->kind) {
  case Element::Number:
    return extremeOf(*this, e->number, /*highest=*/true);
  case Element::Sum: {
    auto a = of(0), b = a ? of(1) : std::nullopt;
    return b ? std::optional(*a + *b) : std::nullopt;
  }
  case Element::Times: {
    auto a = isNonNegative(e->number) ? of(0) : std::nullopt;
    return a ? std::optional(*a * e->number) : std::nullopt;
  }
  case Element::Quotient: {
    auto a = of(0);
    auto c = a ? a->constant() : std::nullopt, n = e->number.constant();
    return c && n && *c >= 0 ? std::optional(Dim(*c / *n)) : std::nullopt;
  }
  case Element::Remainder:
    return e->number - Dim(1);
  default:
    return std::nullopt;
  }
}

bool Elements::isBelow(Ref e, const Dim &d) const {
  if (e->kind == Element::Number)
    return isNonNegative(d - Dim(1) - e->number);
  auto most = mostOf(e);
  return most && isNonNegative(d - Dim(1) - *most);
}

Elements::Ref Elements::quotient(Ref a, const Dim &by) {
  if (by == Dim(1))
    return a;
  Parts parts = divide(a, by);
  if (!isNonNegative(parts.rest))
    return make({.kind = Element::Quotient, .number = by, .operands = {a}});
  if (isBelow(parts.rest, by))
    return parts.whole;
  return sum(parts.whole,
             make({.kind = Element::Quotient, .number = by, .operands = {parts.rest}}));
}

Elements::Ref Elements::remainder(Ref a, const Dim &by) {
  if (by == Dim(1))
    return number(0);
  Parts parts = divide(a, by);
  if (!isNonNegative(parts.rest))
    return make({.kind = Element::Remainder, .number = by, .operands = {a}});
  if (isBelow(parts.rest, by))
    return parts.rest;
  return make({.kind = Element::Remainder, .number = by, .operands = {parts.rest}});
}

Elements::Ref Elements::highest(Ref a, Ref b) {
  if (a->kind == Element::Number && b->kind == Element::Number) {
    if (isNonNegative(a->number - b->number))
      return a;
    if (isNonNegative(b->number - a->number))
      return b;
  }
  return a == b ? a : make({.kind = Element::Highest, .operands = {a, b}});
}

Elements::Ref Elements::lowest(Ref a, Ref b) {
  if (a->kind == Element::Number && b->kind == Element::Number) {
    if (isNonNegative(a->number - b->number))
      return b;
    if (isNonNegative(b->number - a->number))
      return a;
  }
  return a == b ? a : make({.kind = Element::Lowest, .operands = {a, b}});
}

Elements::Ref Elements::choice(Ref a, Ref b, Ref ifLess, Ref otherwise) {
  if (ifLess == otherwise)
    return ifLess;
  if (a->kind == Element::Number && b->kind == Element::Number) {
    if (isNonNegative(b->number - a->number - Dim(1)))
      return ifLess;
    if (isNonNegative(a->number - b->number))
      return otherwise;
    // Where both sides are the same as far as the condition holds, it decides nothing.
    const Dim fact = b->number - a->number - Dim(1);
    if (facts_.empty() && assuming(otherwise, fact) == ifLess)
      return otherwise;
    if (auto symbol = (Dim(-1) * fact).asSymbol();
        symbol && extentOf(*symbol) && substitute(otherwise, *symbol, Dim(0)) == ifLess)
      return otherwise;
    // By the distance alone, in which lengths may cancel.
    b = number(0);
    a = number(Dim(-1) - fact);
  }
  return make({.kind = Element::Choice, .operands = {a, b, ifLess, otherwise}});
}

Elements::Ref Elements::assuming(Ref e, const Dim &fact) {
  facts_.push_back(fact);
  std::map<Ref, Ref> done;
  auto run = [&](auto &self, Ref x) -> Ref {
    if (auto it = done.find(x); it != done.end())
      return it->second;
    llvm::SmallVector<Ref, 4> operands;
    for (Ref o : x->operands)
      operands.push_back(self(self, o));
    return done[x] = operands.empty() ? x : remade(x, operands, x->number);
  };
  Ref result = run(run, e);
  facts_.pop_back();
  return result;
}

/// `e` over other operands.
Elements::Ref Elements::remade(Ref e, llvm::ArrayRef<Ref> of, const Dim &by) {
  switch (e->kind) {
  case Element::Number:
    return number(by);
  case Element::Real:
    return e;
  case Element::Sum:
    return sum(of[0], of[1]);
  case Element::Times:
    return times(of[0], by);
  case Element::Quotient:
    return quotient(of[0], by);
  case Element::Remainder:
    return remainder(of[0], by);
  case Element::Highest:
    return highest(of[0], of[1]);
  case Element::Lowest:
    return lowest(of[0], of[1]);
  case Element::Choice:
    return choice(of[0], of[1], of[2], of[3]);
  case Element::Read:
    return read(e->value, of);
  case Element::Computed:
    return ofElementwise(*e->op, of);
  case Element::Reduced: {
    Element copy = *e;
    copy.operands.assign(of.begin(), of.end());
    return make(std::move(copy));
  }
  case Element::Unknown:
    return e;
  }
  return e;
}

Elements::Ref Elements::substitute(Ref e, llvm::StringRef symbol, const Dim &by) {
  std::map<Ref, Ref> done;
  auto run = [&](auto &self, Ref x) -> Ref {
    if (auto it = done.find(x); it != done.end())
      return it->second;
    llvm::SmallVector<Ref, 4> operands;
    for (Ref o : x->operands)
      operands.push_back(self(self, o));
    Dim number = x->number.substitute(symbol, by);
    bool same = number == x->number && llvm::equal(operands, x->operands);
    return done[x] = same ? x : remade(x, operands, number);
  };
  return run(run, e);
}

std::optional<int64_t> valueOf(const Element *e, const SymbolMap &symbols) {
  auto of = [&](unsigned i) { return valueOf(e->operands[i], symbols); };
  auto both = [&](auto f) -> std::optional<int64_t> {
    auto a = of(0), b = a ? of(1) : std::nullopt;
    return b ? std::optional(f(*a, *b)) : std::nullopt;
  };
  auto withNumber = [&](auto f) -> std::optional<int64_t> {
    auto a = of(0), b = a ? e->number.evaluate(symbols) : std::nullopt;
    return b ? std::optional(f(*a, *b)) : std::nullopt;
  };
  switch (e->kind) {
  case Element::Number:
    return e->number.evaluate(symbols);
  case Element::Sum:
    return both([](int64_t a, int64_t b) { return wrapAdd(a, b); });
  case Element::Times:
    return withNumber([](int64_t a, int64_t b) { return wrapMul(a, b); });
  case Element::Quotient:
  case Element::Remainder: {
    auto a = of(0), b = a ? e->number.evaluate(symbols) : std::nullopt;
    if (!b || *b <= 0 || *a < 0)
      return std::nullopt;
    return e->kind == Element::Quotient ? *a / *b : *a % *b;
  }
  case Element::Highest:
    return both([](int64_t a, int64_t b) { return std::max(a, b); });
  case Element::Lowest:
    return both([](int64_t a, int64_t b) { return std::min(a, b); });
  case Element::Choice: {
    auto a = of(0), b = a ? of(1) : std::nullopt;
    if (!b)
      return std::nullopt;
    return of(*a < *b ? 2 : 3);
  }
  case Element::Read: {
    const Op *op = e->value->def();
    if (!op || !op->is(OpCode::Constant) || !op->constant.valid() ||
        !isInteger(op->constant.dtype()))
      return std::nullopt;
    int64_t at = 0;
    for (unsigned i = 0; i < e->operands.size(); ++i) {
      auto index = of(i);
      if (!index || *index < 0 || *index >= op->constant.dim(int(i)))
        return std::nullopt;
      at = at * op->constant.dim(int(i)) + *index;
    }
    return op->constant.asInt(at);
  }
  default:
    return std::nullopt;
  }
}

} // namespace gpt2c
