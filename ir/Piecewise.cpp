#include "ir/Piecewise.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>

namespace gpt2c {

/// Larger numbers are not calculated with, so that no sum of products overflows.
constexpr int64_t largest = int64_t(1) << 40;
constexpr size_t mostBends = 64;

static bool isSmall(__int128 v) { return v >= -largest && v <= largest; }

/// The divisor of all coefficients, with the sign of the first; 0 for zero.
static int64_t contentOf(const Dim &d) {
  int64_t g = 0;
  for (const Dim::Term &t : d.terms())
    g = std::gcd(g, t.coefficient);
  return g != 0 && d.terms()[0].coefficient < 0 ? -g : g;
}

/// The constant term.
static int64_t constantOf(const Dim &d) {
  return !d.terms().empty() && d.terms().back().factors.empty() ? d.terms().back().coefficient : 0;
}

std::optional<Piecewise> Piecewise::from(const Dim &d) {
  Piecewise p;
  p.offset = constantOf(d);
  Dim rest = d - Dim(p.offset);
  for (const Dim::Term &t : d.terms()) {
    if (!isSmall(t.coefficient))
      return std::nullopt;
    if (llvm::all_of(t.factors, [](const Dim::Factor *f) { return !f->of; }))
      continue;
    const Dim::Factor *f = t.factors[0];
    if (t.factors.size() != 1 || f->kind != Dim::Factor::Kind::Positive || !f->of->isPolynomial())
      return std::nullopt;
    const int64_t constant = constantOf(*f->of);
    Dim x = *f->of - Dim(constant);
    if (!isSmall(constant) || (!p.bends.empty() && p.x != x))
      return std::nullopt;
    p.x = std::move(x);
    p.bends.push_back({-constant, t.coefficient});
    rest = rest - Dim::of(f) * Dim(t.coefficient);
  }
  if (p.bends.size() > mostBends)
    return std::nullopt;
  llvm::sort(p.bends, [](const Bend &a, const Bend &b) { return a.at < b.at; });
  if (rest == Dim(0))
    return p;
  if (p.bends.empty()) {
    p.slope = contentOf(rest);
    p.x = *rest.exactDiv(Dim(p.slope));
    return p;
  }
  auto slope = rest.exactDiv(p.x);
  if (!slope || !slope->isConstant())
    return std::nullopt;
  p.slope = *slope->constant();
  return p;
}

Dim Piecewise::dim() const {
  Dim d = Dim(offset) + x * Dim(slope);
  for (const Bend &b : bends)
    d = d + Dim::factor(Dim::Factor::Kind::Positive, x - Dim(b.at)) * Dim(b.change);
  return d;
}

int64_t Piecewise::at(int64_t value) const {
  __int128 sum = offset + __int128(slope) * value;
  for (const Bend &b : bends)
    if (value > b.at)
      sum += __int128(b.change) * (__int128(value) - b.at);
  constexpr DimRange all;
  return int64_t(std::clamp<__int128>(sum, all.lo, all.hi));
}

Piecewise Piecewise::minus(const Piecewise &g) const {
  Piecewise r = *this;
  r.x = slope == 0 && bends.empty() ? g.x : x;
  r.offset -= g.offset;
  r.slope -= g.slope;
  for (const Bend &b : g.bends)
    r.bends.push_back({b.at, -b.change});
  llvm::stable_sort(r.bends, [](const Bend &a, const Bend &b) { return a.at < b.at; });
  return r;
}

DimRange Piecewise::range(const DimRange &domain) const {
  constexpr DimRange all;
  DimRange r{all.hi, all.lo};
  auto add = [&](int64_t v) { r = {std::min(r.lo, v), std::max(r.hi, v)}; };
  int64_t lastSlope = slope;
  for (const Bend &b : bends) {
    lastSlope += b.change;
    if (b.at > domain.lo && b.at < domain.hi)
      add(at(b.at));
  }
  if (domain.lo != all.lo)
    add(at(domain.lo));
  if (domain.hi != all.hi)
    add(at(domain.hi));
  if (r.lo > r.hi) // neither a limit nor a bend
    add(offset);
  auto unbounded = [&](int64_t rising) {
    (rising > 0 ? r.hi : r.lo) = rising > 0 ? all.hi : all.lo;
  };
  if (domain.lo == all.lo && slope != 0)
    unbounded(-slope);
  if (domain.hi == all.hi && lastSlope != 0)
    unbounded(lastSlope);
  return r;
}

//===-- one form of a function ---------------------------------------------------------------===//

/// Integers around those where a piece of `f` is 0.
static void addRoots(const Piecewise &f, llvm::SmallVectorImpl<int64_t> &at) {
  __int128 offset = f.offset, slope = f.slope;
  auto add = [&] {
    if (slope == 0)
      return;
    __int128 root = -offset / slope; // toward zero
    for (int i = -2; i <= 2; ++i)
      if (isSmall(root + i))
        at.push_back(int64_t(root + i));
  };
  add();
  for (const Piecewise::Bend &b : f.bends) {
    offset -= __int128(b.change) * b.at;
    slope += b.change;
    at.push_back(b.at);
    add();
  }
}

std::optional<Dim> Dim::pointwise(llvm::ArrayRef<Dim> args,
                                  llvm::function_ref<int64_t(llvm::ArrayRef<int64_t>)> f,
                                  const DimBounds &bounds) {
  llvm::SmallVector<Piecewise, 3> functions;
  Dim x;
  for (const Dim &a : args) {
    auto p = Piecewise::from(a);
    if (!p || (p->x != Dim(0) && x != Dim(0) && p->x != x))
      return std::nullopt;
    if (p->x != Dim(0))
      x = p->x;
    functions.push_back(std::move(*p));
  }
  auto value = [&](int64_t at) {
    llvm::SmallVector<int64_t, 3> values;
    for (const Piecewise &p : functions)
      values.push_back(p.at(at));
    return f(values);
  };
  if (x == Dim(0))
    return Dim(value(0));
  const DimRange domain = x.range(bounds);
  if (domain.lo == domain.hi)
    return Dim(value(domain.lo));

  llvm::SmallVector<int64_t> at;
  for (const Piecewise &p : functions) {
    Piecewise less = p;
    less.offset -= 1;
    addRoots(p, at);
    addRoots(less, at);
    for (const Piecewise &other : functions)
      if (&other != &p)
        addRoots(p.minus(other), at);
  }
  llvm::sort(at);
  at.erase(llvm::unique(at), at.end());
  llvm::erase_if(at, [&](int64_t v) { return v <= domain.lo || v >= domain.hi; });

  constexpr DimRange all;
  const int64_t first = domain.lo != all.lo ? domain.lo : at.empty() ? 0 : at.front() - 1;
  Piecewise r;
  r.x = x;
  r.slope = value(first + 1) - value(first);
  const __int128 offset = value(first) - __int128(r.slope) * first;
  if (!isSmall(first) || !isSmall(offset))
    return std::nullopt;
  r.offset = int64_t(offset);
  for (int64_t k : at) {
    const int64_t change = value(k + 1) - 2 * value(k) + value(k - 1);
    if (!isSmall(change) || r.bends.size() == mostBends)
      return std::nullopt;
    if (change != 0)
      r.bends.push_back({k, change});
  }
  return r.dim();
}

//===-- sums ---------------------------------------------------------------------------------===//

using Factors = llvm::SmallVector<const Dim::Factor *, 2>;

static Dim product(int64_t coefficient, llvm::ArrayRef<const Dim::Factor *> factors) {
  Dim d(coefficient);
  for (const Dim::Factor *f : factors)
    d = d * Dim::of(f);
  return d;
}

/// The coefficient of the product of `factors` in `d`.
static int64_t coefficientOf(const Dim &d, llvm::ArrayRef<const Dim::Factor *> factors) {
  const Dim wanted = product(1, factors);
  for (const Dim::Term &t : d.terms())
    if (llvm::ArrayRef(t.factors) == llvm::ArrayRef(wanted.terms()[0].factors))
      return t.coefficient;
  return 0;
}

/// How often `d` has factors * x.
static int64_t slopeIn(const Dim &d, llvm::ArrayRef<const Dim::Factor *> factors, const Dim &x) {
  std::optional<int64_t> slope;
  for (const Dim::Term &t : x.terms()) {
    Factors all(factors);
    all.append(t.factors.begin(), t.factors.end());
    const int64_t c = coefficientOf(d, all);
    if (c % t.coefficient != 0 || slope.value_or(c / t.coefficient) != c / t.coefficient)
      return 0;
    slope = c / t.coefficient;
  }
  return slope.value_or(0);
}

llvm::SmallVector<DimGroup, 2> takeGroups(Dim &d) {
  auto positiveOf = [](const Dim::Term &t) -> const Dim::Factor * {
    for (const Dim::Factor *f : llvm::reverse(t.factors))
      if (f->kind == Dim::Factor::Kind::Positive)
        return f;
    return nullptr;
  };
  llvm::SmallVector<DimGroup, 2> groups;
  for (;;) {
    auto term = llvm::find_if(d.terms(), positiveOf);
    if (term == d.terms().end())
      return groups;
    DimGroup g;
    const Dim::Factor *positive = positiveOf(*term);
    g.factors = term->factors;
    g.factors.erase(llvm::find(g.factors, positive));
    Piecewise &p = g.function;
    p.x = *positive->of - Dim(constantOf(*positive->of));
    Dim taken;
    for (const Dim::Term &t : d.terms())
      for (const Dim::Factor *f : t.factors) {
        if (f->kind != Dim::Factor::Kind::Positive)
          continue;
        const int64_t k = -constantOf(*f->of);
        Factors others = t.factors;
        others.erase(llvm::find(others, f));
        if (*f->of + Dim(k) != p.x || others != g.factors)
          continue;
        p.bends.push_back({k, t.coefficient});
        taken = taken + product(t.coefficient, t.factors);
        break;
      }
    llvm::sort(p.bends, [](const auto &a, const auto &b) { return a.at < b.at; });
    p.slope = slopeIn(d, g.factors, p.x);
    d = d - taken - product(p.slope, g.factors) * p.x;
    groups.push_back(std::move(g));
  }
}

/// The pieces of factors * f(x) between the bends, for x of at least 0; where x may be negative,
/// the terms as they are.
static void addPieces(const DimGroup &g, llvm::SmallVectorImpl<DimPiece> &pieces) {
  const Piecewise &p = g.function;
  auto add = [&](int64_t coefficient, int64_t from, std::optional<int64_t> width, bool negative) {
    if (coefficient != 0)
      pieces.push_back({coefficient, g.factors, DimPiece::Clamp{p.x, from, width, negative}});
  };
  const bool isSize = p.x.range({}).lo >= 0 && p.bends.front().at >= 0;
  if (!isSize) {
    for (const Dim::Term &t : p.x.terms()) {
      DimPiece plain{p.slope * t.coefficient, g.factors, std::nullopt};
      plain.factors.append(t.factors.begin(), t.factors.end());
      if (p.slope != 0)
        pieces.push_back(std::move(plain));
    }
    for (const Piecewise::Bend &b : p.bends)
      add(b.change, b.at, std::nullopt, true);
    return;
  }
  int64_t slope = p.slope, from = 0;
  for (const Piecewise::Bend &b : p.bends) {
    if (b.at > from)
      add(slope, from, b.at - from, from > 0);
    slope += b.change;
    from = b.at;
  }
  add(slope, from, std::nullopt, from > 0);
}

llvm::SmallVector<DimPiece> piecesOf(const Dim &d) {
  Dim rest = d;
  llvm::SmallVector<DimPiece> pieces, bent;
  for (const DimGroup &g : takeGroups(rest))
    addPieces(g, bent);
  for (const Dim::Term &t : rest.terms())
    if (!t.factors.empty())
      pieces.push_back({t.coefficient, t.factors, std::nullopt});
  pieces.append(bent);
  if (int64_t constant = constantOf(rest))
    pieces.push_back({constant, {}, std::nullopt});
  return pieces;
}

} // namespace gpt2c
