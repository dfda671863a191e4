#include "ir/Dim.h"

#include "ir/DimBounds.h"
#include "ir/Names.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/MathExtras.h"

#include <mutex>

namespace gpt2c {

namespace {
struct Names {
  std::mutex mutex;
  llvm::StringSet<> table;
};
/// By text. Equal texts are equal factors: the text form tells functions apart.
struct Factors {
  std::mutex mutex;
  llvm::StringMap<Dim::Factor> table;
};
} // namespace

static Names &internedNames() {
  static auto *names = new Names(); // never freed: interned names outlive every static
  return *names;
}

static Factors &internedFactors() {
  static auto *factors = new Factors();
  return *factors;
}

llvm::StringRef intern(llvm::StringRef s) {
  Names &names = internedNames();
  std::lock_guard<std::mutex> lock(names.mutex);
  return names.table.insert(s).first->getKey();
}

bool isInterned(llvm::StringRef s) {
  Names &names = internedNames();
  std::lock_guard<std::mutex> lock(names.mutex);
  return names.table.contains(s);
}

// Coefficients wrap on overflow: no dimension of a tensor that fits in memory comes near.
static int64_t wrappingAdd(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
static int64_t wrappingMul(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

Dim::Dim(int64_t constant) {
  if (constant != 0)
    terms_.push_back({constant, {}});
}

Dim Dim::symbol(llvm::StringRef name) {
  assert(!name.empty() && "a symbol needs a name");
  Factors &factors = internedFactors();
  std::lock_guard<std::mutex> lock(factors.mutex);
  auto [it, isNew] = factors.table.try_emplace(name);
  if (isNew)
    it->second.text = intern(name);
  return of(&it->second);
}

Dim Dim::of(const Factor *factor) {
  Dim d;
  d.terms_.push_back({1, {factor}});
  return d;
}

Dim Dim::factor(Factor::Kind kind, const Dim &of, int64_t by) {
  std::string text = kind == Factor::Kind::Positive
                         ? "max(" + of.str() + ", 0)"
                         : "floordiv(" + of.str() + ", " + std::to_string(by) + ")";
  Factors &factors = internedFactors();
  std::lock_guard<std::mutex> lock(factors.mutex);
  auto [it, isNew] = factors.table.try_emplace(text);
  if (isNew)
    it->second = {kind, it->getKey(), new Dim(of), by}; // lives as long as the table
  return Dim::of(&it->second);
}

bool Dim::isConstant() const {
  return terms_.empty() || (terms_.size() == 1 && terms_[0].factors.empty());
}

std::optional<int64_t> Dim::constant() const {
  if (terms_.empty())
    return 0;
  if (isConstant())
    return terms_[0].coefficient;
  return std::nullopt;
}

std::optional<llvm::StringRef> Dim::asSymbol() const {
  if (terms_.size() == 1 && terms_[0].coefficient == 1 && terms_[0].factors.size() == 1 &&
      !terms_[0].factors[0]->of)
    return terms_[0].factors[0]->text;
  return std::nullopt;
}

bool Dim::uses(llvm::StringRef symbol) const {
  bool found = false;
  forEachSymbol([&](llvm::StringRef s) { found |= s == symbol; });
  return found;
}

void Dim::forEachSymbol(llvm::function_ref<void(llvm::StringRef)> f) const {
  for (const Term &t : terms_)
    for (const Factor *factor : t.factors)
      factor->of ? factor->of->forEachSymbol(f) : f(factor->text);
}

bool Dim::isPolynomial() const {
  return llvm::all_of(terms_, [](const Term &t) {
    return llvm::all_of(t.factors, [](const Factor *f) { return !f->of; });
  });
}

size_t Dim::complexity() const {
  size_t n = 0;
  for (const Term &t : terms_) {
    n += 1;
    for (const Factor *f : t.factors)
      n += f->of ? 1 + f->of->complexity() : 1;
  }
  return n;
}

/// Symbols first, by text.
static bool factorBefore(const Dim::Factor *a, const Dim::Factor *b) {
  if (a == b)
    return false;
  return bool(a->of) != bool(b->of) ? !a->of : a->text < b->text;
}

/// Higher degree first, then by factors; the constant term comes last.
static bool before(const Dim::Term &a, const Dim::Term &b) {
  if (a.factors.size() != b.factors.size())
    return a.factors.size() > b.factors.size();
  return std::lexicographical_compare(a.factors.begin(), a.factors.end(), b.factors.begin(),
                                      b.factors.end(), factorBefore);
}

void Dim::normalise() {
  for (Term &t : terms_)
    llvm::sort(t.factors, factorBefore);
  llvm::sort(terms_, before);
  llvm::SmallVector<Term, 2> merged;
  for (Term &t : terms_) {
    if (!merged.empty() && merged.back().factors == t.factors)
      merged.back().coefficient = wrappingAdd(merged.back().coefficient, t.coefficient);
    else
      merged.push_back(std::move(t));
  }
  llvm::erase_if(merged, [](const Term &t) { return t.coefficient == 0; });
  terms_ = std::move(merged);
}

Dim Dim::operator+(const Dim &o) const {
  Dim r = *this;
  r.terms_.append(o.terms_.begin(), o.terms_.end());
  r.normalise();
  return r;
}

Dim Dim::operator-(const Dim &o) const { return *this + o * Dim(-1); }

Dim Dim::operator*(const Dim &o) const {
  Dim r;
  for (const Term &a : terms_)
    for (const Term &b : o.terms_) {
      Term t{wrappingMul(a.coefficient, b.coefficient), a.factors};
      t.factors.append(b.factors.begin(), b.factors.end());
      r.terms_.push_back(std::move(t));
    }
  r.normalise();
  return r;
}

/// a / b for single terms when exact.
static std::optional<Dim::Term> divideTerm(const Dim::Term &a, const Dim::Term &b) {
  // The most negative integer has no quotient by -1.
  if (b.coefficient != -1 && (b.coefficient == 0 || a.coefficient % b.coefficient != 0))
    return std::nullopt;
  Dim::Term q{b.coefficient == -1 ? wrappingMul(a.coefficient, -1) : a.coefficient / b.coefficient,
              a.factors};
  for (const Dim::Factor *f : b.factors) {
    auto it = llvm::find(q.factors, f);
    if (it == q.factors.end())
      return std::nullopt;
    q.factors.erase(it);
  }
  return q;
}

std::optional<Dim> Dim::exactDiv(const Dim &o) const {
  if (o.terms_.empty())
    return std::nullopt;
  if (*this == o)
    return Dim(1);
  // Long division by the leading term; it ends since each round removes the leading term of the
  // rest.
  Dim rest = *this, quotient;
  while (!rest.terms_.empty()) {
    auto q = divideTerm(rest.terms_[0], o.terms_[0]);
    if (!q)
      return std::nullopt;
    Dim part;
    part.terms_.push_back(*q);
    Dim next = rest - part * o;
    if (!next.terms_.empty() && !before(rest.terms_[0], next.terms_[0]))
      return std::nullopt;
    quotient = quotient + part;
    rest = std::move(next);
  }
  return quotient;
}

Dim Dim::substitute(llvm::StringRef symbol, const Dim &by) const {
  if (!uses(symbol))
    return *this;
  Dim r;
  for (const Term &t : terms_) {
    Dim product(t.coefficient);
    for (const Factor *f : t.factors)
      switch (f->kind) {
      case Factor::Kind::Symbol:
        product = product * (f->text == symbol ? by : Dim::symbol(f->text));
        break;
      case Factor::Kind::Positive:
        product = product * positive(f->of->substitute(symbol, by), {});
        break;
      case Factor::Kind::FloorDiv:
        product = product * floorDiv(f->of->substitute(symbol, by), f->by, {});
        break;
      }
    r = r + product;
  }
  return r.within({}); // functions of a sum that was symbols before may be of one form now
}

/// The value of a factor; none when a symbol is missing or the value exceeds 64 bits.
static std::optional<int64_t> evaluateFactor(const Dim::Factor &f, const SymbolMap &symbols) {
  if (!f.of) {
    auto it = symbols.find(f.text);
    return it == symbols.end() ? std::nullopt : std::optional(it->second);
  }
  auto of = f.of->evaluate(symbols);
  if (!of)
    return std::nullopt;
  return f.kind == Dim::Factor::Kind::Positive ? std::max<int64_t>(*of, 0)
                                               : llvm::divideFloorSigned(*of, f.by);
}

std::optional<int64_t> Dim::evaluate(const SymbolMap &symbols) const {
  int64_t sum = 0;
  for (const Term &t : terms_) {
    int64_t product = t.coefficient;
    for (const Factor *f : t.factors) {
      auto value = evaluateFactor(*f, symbols);
      if (!value || __builtin_mul_overflow(product, *value, &product))
        return std::nullopt;
    }
    if (__builtin_add_overflow(sum, product, &sum))
      return std::nullopt;
  }
  return sum;
}

size_t Dim::hash() const {
  llvm::hash_code h = llvm::hash_value(terms_.size());
  for (const Term &t : terms_) {
    h = llvm::hash_combine(h, t.coefficient);
    for (const Factor *f : t.factors)
      h = llvm::hash_combine(h, f->text);
  }
  return h;
}

Dim elementCount(llvm::ArrayRef<Dim> shape) {
  Dim n(1);
  for (const Dim &d : shape)
    n = n * d;
  return n;
}

} // namespace gpt2c
