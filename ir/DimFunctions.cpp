// Minima, maxima, quotients and choices of dimensions, and what bounds make of them.
#include "ir/Piecewise.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

#include <numeric>

namespace gpt2c {

/// The product of the symbols that all terms have.
static Dim commonSymbols(const Dim &d) {
  llvm::SmallVector<const Dim::Factor *, 2> common;
  for (const Dim::Factor *f : d.terms()[0].factors)
    if (!f->of)
      common.push_back(f);
  for (const Dim::Term &t : d.terms()) {
    auto rest = t.factors;
    llvm::erase_if(common, [&](const Dim::Factor *f) {
      auto it = llvm::find(rest, f);
      const bool missing = it == rest.end();
      if (!missing)
        rest.erase(it);
      return missing;
    });
  }
  Dim product(1);
  for (const Dim::Factor *f : common)
    product = product * Dim::of(f);
  return product;
}

static int64_t commonDivisor(const Dim &d) {
  int64_t g = 0;
  for (const Dim::Term &t : d.terms())
    g = std::gcd(g, t.coefficient);
  return g;
}

/// f + k for one factor f of a kind, as f and k.
static std::optional<std::pair<const Dim::Factor *, int64_t>> asFactor(const Dim &d,
                                                                       Dim::Factor::Kind kind) {
  auto terms = d.terms();
  if (terms.empty() || terms.size() > 2 || terms[0].coefficient != 1 ||
      terms[0].factors.size() != 1 || terms[0].factors[0]->kind != kind ||
      (terms.size() == 2 && !terms[1].factors.empty()))
    return std::nullopt;
  return std::pair(terms[0].factors[0], terms.size() == 2 ? terms[1].coefficient : 0);
}

Dim Dim::positive(const Dim &d, const DimBounds &bounds) {
  const DimRange range = d.range(bounds);
  if (range.lo >= 0)
    return d;
  if (range.hi <= 0)
    return 0;
  if (Dim common = commonSymbols(d); !common.isConstant())
    return common * positive(*d.exactDiv(common), bounds);
  auto relu = [](llvm::ArrayRef<int64_t> v) { return std::max<int64_t>(v[0], 0); };
  if (auto known = pointwise({d}, relu, bounds))
    return *known;
  if (Dim divisor = commonDivisor(d); divisor != Dim(1))
    if (auto rest = d.exactDiv(divisor))
      return divisor * positive(*rest, bounds);
  if (d.terms()[0].coefficient < 0)
    return d + positive(Dim(0) - d, bounds);
  if (auto p = asFactor(d, Factor::Kind::Positive)) // max(max(a, 0) - k, 0) = max(a - k, 0)
    return positive(*p->first->of + Dim(p->second), bounds);
  if (auto q = asFactor(
          d, Factor::Kind::FloorDiv)) // max(floor(a / n) + k, 0) = floor(max(a + n*k, 0) / n)
    return floorDiv(positive(*q->first->of + Dim(q->first->by) * Dim(q->second), bounds),
                    q->first->by, bounds);
  return factor(Factor::Kind::Positive, d);
}

Dim Dim::max(const Dim &a, const Dim &b, const DimBounds &bounds) {
  return b + positive(a - b, bounds);
}
Dim Dim::min(const Dim &a, const Dim &b, const DimBounds &bounds) {
  return a - positive(a - b, bounds);
}

Dim Dim::floorDiv(const Dim &d, int64_t by, const DimBounds &bounds) {
  assert(by >= 1 && "divides by a number of at least 1");
  if (by == 1)
    return d;
  // d = by * quotient + rest, the coefficients of rest between 0 and by.
  Dim quotient, rest;
  for (const Term &t : d.terms()) {
    Dim factors(1);
    for (const Factor *f : t.factors)
      factors = factors * of(f);
    const int64_t q = llvm::divideFloorSigned(t.coefficient, by);
    quotient = quotient + factors * Dim(q);
    rest = rest + factors * Dim(t.coefficient - q * by);
  }
  const DimRange range = rest.range(bounds);
  if (range.lo >= 0 && range.hi < by)
    return quotient;
  const int64_t constant =
      rest.terms().back().factors.empty() ? rest.terms().back().coefficient : 0;
  Dim symbols = rest - Dim(constant);
  if (const int64_t g = std::gcd(by, commonDivisor(symbols)); g > 1)
    return quotient + floorDiv(*symbols.exactDiv(Dim(g)) + Dim(constant / g), by / g, bounds);
  int64_t product;
  if (auto q = asFactor(rest, Factor::Kind::FloorDiv);
      q && !__builtin_mul_overflow(by, q->first->by, &product))
    return quotient + floorDiv(*q->first->of + Dim(q->first->by) * Dim(q->second), product, bounds);
  return quotient + factor(Factor::Kind::FloorDiv, rest, by);
}

Dim Dim::select(const Dim &test, const Dim &ifNegative, const Dim &otherwise,
                const DimBounds &bounds) {
  const DimRange range = test.range(bounds);
  if (range.hi < 0 || ifNegative == otherwise)
    return ifNegative;
  if (range.lo >= 0)
    return otherwise;
  auto choose = [](llvm::ArrayRef<int64_t> v) { return v[0] < 0 ? v[1] : v[2]; };
  if (auto known = pointwise({test, ifNegative, otherwise}, choose, bounds))
    return *known;
  const Dim minus = Dim(0) - test;
  const Dim isNegative = positive(minus, bounds) - positive(minus - Dim(1), bounds); // 1 or 0
  return otherwise + (ifNegative - otherwise) * isNegative;
}

Dim Dim::within(const DimBounds &bounds) const {
  if (isPolynomial())
    return *this;
  Dim r;
  for (const Term &t : terms_) {
    Dim product(t.coefficient);
    for (const Factor *f : t.factors)
      switch (f->kind) {
      case Factor::Kind::Symbol:
        product = product * of(f);
        break;
      case Factor::Kind::Positive:
        product = product * positive(f->of->within(bounds), bounds);
        break;
      case Factor::Kind::FloorDiv:
        product = product * floorDiv(f->of->within(bounds), f->by, bounds);
        break;
      }
    r = r + product;
  }
  if (r.isPolynomial())
    return r;
  auto same = pointwise({r}, [](llvm::ArrayRef<int64_t> v) { return v[0]; }, bounds);
  return same ? *same : r;
}

//===-- ranges -------------------------------------------------------------------------------===//

constexpr int64_t noLeast = DimRange().lo, noMost = DimRange().hi;

static bool isUnbounded(int64_t v) { return v == noLeast || v == noMost; }

/// The sum of two limits of the same side.
static int64_t add(int64_t a, int64_t b) {
  if (isUnbounded(a) || isUnbounded(b))
    return isUnbounded(a) ? a : b;
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? (a > 0 ? noMost : noLeast) : sum;
}
static int64_t multiply(int64_t a, int64_t b) {
  int64_t product;
  if (a == 0 || b == 0)
    return 0;
  if (isUnbounded(a) || isUnbounded(b) || __builtin_mul_overflow(a, b, &product))
    return (a > 0) == (b > 0) ? noMost : noLeast;
  return product;
}

static DimRange operator+(const DimRange &a, const DimRange &b) {
  return {add(a.lo, b.lo), add(a.hi, b.hi)};
}
static DimRange operator*(const DimRange &a, const DimRange &b) {
  const int64_t corners[] = {multiply(a.lo, b.lo), multiply(a.lo, b.hi), multiply(a.hi, b.lo),
                             multiply(a.hi, b.hi)};
  return {*llvm::min_element(corners), *llvm::max_element(corners)};
}
static DimRange number(int64_t n) { return {n, n}; }
static DimRange intersect(const DimRange &a, const DimRange &b) {
  return {std::max(a.lo, b.lo), std::min(a.hi, b.hi)};
}

static int64_t floorOf(int64_t v, int64_t by) {
  return isUnbounded(v) ? v : llvm::divideFloorSigned(v, by);
}
static int64_t ceilOf(int64_t v, int64_t by) {
  return isUnbounded(v) ? v : llvm::divideCeilSigned(v, by);
}

/// How many times a range is looked at in another way than term by term, one within the other.
using Effort = int;
static DimRange rangeOf(const Dim &d, const DimBounds &bounds, Effort effort);

static DimRange factorRange(const Dim::Factor &f, const DimBounds &bounds, Effort effort) {
  if (!f.of)
    return bounds.of(f.text);
  const DimRange of = rangeOf(*f.of, bounds, effort - 1);
  if (f.kind == Dim::Factor::Kind::Positive)
    return {std::max<int64_t>(of.lo, 0), std::max<int64_t>(of.hi, 0)};
  return {floorOf(of.lo, f.by), floorOf(of.hi, f.by)};
}

static DimRange productRange(llvm::ArrayRef<const Dim::Factor *> factors, const DimBounds &bounds,
                             Effort effort) {
  DimRange r = number(1);
  for (const Dim::Factor *f : factors)
    r = r * factorRange(*f, bounds, effort);
  return r;
}

/// Of the terms, each at its limits; of limited sums together.
static DimRange termsRange(const Dim &d, const DimBounds &bounds, Effort effort) {
  DimRange r = number(0);
  for (const Dim::Term &t : d.terms())
    r = r + number(t.coefficient) * productRange(t.factors, bounds, effort);
  return r;
}

/// How often `d` has the whole of a limited sum, all with the sign of `sign`.
static int64_t multiplesOf(const DimBounds::Limit &limit, const Dim &d, int sign) {
  int64_t times = noMost;
  for (const Dim::Term &s : limit.sum.terms()) {
    auto t = llvm::find_if(d.terms(), [&](const Dim::Term &t) { return t.factors == s.factors; });
    const int64_t c = t == d.terms().end() ? 0 : t->coefficient;
    times = std::min(times, (c > 0) == (sign > 0) ? std::abs(c) / s.coefficient : 0);
  }
  return times;
}

static DimRange polynomialRange(const Dim &d, const DimBounds &bounds, Effort effort) {
  DimRange r = termsRange(d, bounds, effort);
  for (const DimBounds::Limit &limit : bounds.limits())
    for (int sign : {1, -1})
      if (const int64_t times = sign * multiplesOf(limit, d, sign); times != 0) {
        const DimRange sum{termsRange(limit.sum, bounds, effort).lo, limit.most};
        r = intersect(r,
                      number(times) * sum + termsRange(d - limit.sum * Dim(times), bounds, effort));
      }
  return r;
}

/// Takes c*(max(a, 0) - max(b, 0)) with a >= b, which lies between 0 and a - b, out of `d`.
static std::optional<DimRange> takeDifference(Dim &d, const DimBounds &bounds) {
  auto single = [](const Dim::Term &t) {
    return t.factors.size() == 1 && t.factors[0]->kind == Dim::Factor::Kind::Positive;
  };
  for (const Dim::Term &less : d.terms())
    for (const Dim::Term &more : d.terms()) {
      if (!single(less) || !single(more) || less.coefficient > 0 || more.coefficient < 0)
        continue;
      const Dim difference = *more.factors[0]->of - *less.factors[0]->of;
      if (difference.isConstant() || !difference.isPolynomial())
        continue;
      const DimRange range = polynomialRange(difference, bounds, 0);
      if (range.lo < 0)
        continue;
      const int64_t times = std::min(-less.coefficient, more.coefficient);
      d = d - (Dim::of(more.factors[0]) - Dim::of(less.factors[0])) * Dim(times);
      return number(times) * DimRange{0, range.hi};
    }
  return std::nullopt;
}

static DimRange sumRange(Dim d, const DimBounds &bounds, Effort effort) {
  if (d.isPolynomial())
    return polynomialRange(d, bounds, effort);
  DimRange r = number(0);
  while (auto taken = takeDifference(d, bounds))
    r = r + *taken;
  for (const DimGroup &g : takeGroups(d))
    r = r + productRange(g.factors, bounds, effort) *
                g.function.range(rangeOf(g.function.x, bounds, effort - 1));
  return r + polynomialRange(d, bounds, effort);
}

/// c * max(a, 0) is 0 or c * a.
static DimRange rangeByChoice(const Dim &d, const DimBounds &bounds, Effort effort) {
  DimRange r;
  int tried = 0;
  constexpr int most = 3;
  for (const Dim::Term &t : llvm::reverse(d.terms())) {
    if (t.factors.size() != 1 || t.factors[0]->kind != Dim::Factor::Kind::Positive ||
        ++tried > most)
      continue;
    const Dim without = d - Dim::of(t.factors[0]) * Dim(t.coefficient);
    const DimRange zero = rangeOf(without, bounds, effort - 1),
                   above = rangeOf(without + *t.factors[0]->of * Dim(t.coefficient), bounds,
                                   effort - 1);
    r = intersect(r, {std::min(zero.lo, above.lo), std::max(zero.hi, above.hi)});
  }
  return r;
}

/// n * floor(a / n) lies between a - n + 1 and a, together with what else depends on a.
static DimRange rangeByQuotient(const Dim &d, const DimBounds &bounds, Effort effort) {
  for (const Dim::Term &t : d.terms()) {
    const Dim::Factor *f = t.factors.size() == 1 ? t.factors[0] : nullptr;
    if (!f || f->kind != Dim::Factor::Kind::FloorDiv)
      continue;
    const Dim rest = (d - Dim::of(f) * Dim(t.coefficient)) * Dim(f->by);
    const Dim least = *f->of - Dim(f->by - 1), c(t.coefficient);
    const Dim low = rest + c * (t.coefficient > 0 ? least : *f->of),
              high = rest + c * (t.coefficient > 0 ? *f->of : least);
    return {ceilOf(rangeOf(low, bounds, effort - 1).lo, f->by),
            floorOf(rangeOf(high, bounds, effort - 1).hi, f->by)};
  }
  return {};
}

static DimRange rangeOf(const Dim &d, const DimBounds &bounds, Effort effort) {
  DimRange r = sumRange(d, bounds, effort);
  if (effort <= 0 || d.isPolynomial())
    return r;
  if (r.lo < 0 && r.hi > 0)
    r = intersect(r, rangeByChoice(d, bounds, effort));
  return intersect(r, rangeByQuotient(d, bounds, effort));
}

DimRange Dim::range(const DimBounds &bounds) const {
  if (isPolynomial())
    return polynomialRange(*this, bounds, 0);
  constexpr size_t small = 40, large = 120; // what is longer is looked at less closely
  const size_t length = complexity();
  return rangeOf(*this, bounds, length <= small ? 3 : length <= large ? 1 : 0);
}

} // namespace gpt2c
