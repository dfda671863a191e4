#include "ir/Dim.h"

#include "ir/Names.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

#include <mutex>

namespace gpt2c {

namespace {
struct Names {
  std::mutex mutex;
  llvm::StringSet<> table;
};
} // namespace

static Names &internedNames() {
  static auto *names = new Names(); // never freed: interned names outlive every static
  return *names;
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
  Dim d;
  d.terms_.push_back({1, {intern(name)}});
  return d;
}

bool Dim::isConstant() const {
  return terms_.empty() || (terms_.size() == 1 && terms_[0].symbols.empty());
}

std::optional<int64_t> Dim::constant() const {
  if (terms_.empty())
    return 0;
  if (isConstant())
    return terms_[0].coefficient;
  return std::nullopt;
}

std::optional<llvm::StringRef> Dim::asSymbol() const {
  if (terms_.size() == 1 && terms_[0].coefficient == 1 && terms_[0].symbols.size() == 1)
    return terms_[0].symbols[0];
  return std::nullopt;
}

bool Dim::uses(llvm::StringRef symbol) const {
  return llvm::any_of(terms_, [&](const Term &t) { return llvm::is_contained(t.symbols, symbol); });
}

/// Higher degree first, then by names; the constant term comes last.
static bool before(const Dim::Term &a, const Dim::Term &b) {
  if (a.symbols.size() != b.symbols.size())
    return a.symbols.size() > b.symbols.size();
  return std::lexicographical_compare(a.symbols.begin(), a.symbols.end(), b.symbols.begin(),
                                      b.symbols.end());
}

void Dim::normalise() {
  for (Term &t : terms_)
    llvm::sort(t.symbols);
  llvm::sort(terms_, before);
  llvm::SmallVector<Term, 2> merged;
  for (Term &t : terms_) {
    if (!merged.empty() && merged.back().symbols == t.symbols)
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
      Term t{wrappingMul(a.coefficient, b.coefficient), a.symbols};
      t.symbols.append(b.symbols.begin(), b.symbols.end());
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
              a.symbols};
  for (llvm::StringRef s : b.symbols) {
    auto it = llvm::find(q.symbols, s);
    if (it == q.symbols.end())
      return std::nullopt;
    q.symbols.erase(it);
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
    for (llvm::StringRef s : t.symbols)
      product = product * (s == symbol ? by : Dim::symbol(s));
    r = r + product;
  }
  return r;
}

std::optional<int64_t> Dim::evaluate(const SymbolMap &symbols) const {
  int64_t sum = 0;
  for (const Term &t : terms_) {
    int64_t product = t.coefficient;
    for (llvm::StringRef s : t.symbols) {
      auto it = symbols.find(s);
      if (it == symbols.end())
        return std::nullopt;
      if (__builtin_mul_overflow(product, it->second, &product))
        return std::nullopt;
    }
    if (__builtin_add_overflow(sum, product, &sum))
      return std::nullopt;
  }
  return sum;
}

std::string Dim::str() const {
  if (terms_.empty())
    return "0";
  std::string out;
  llvm::raw_string_ostream os(out);
  for (size_t i = 0; i < terms_.size(); ++i) {
    const Term &t = terms_[i];
    bool negative = t.coefficient < 0;
    uint64_t c = negative ? 0 - static_cast<uint64_t>(t.coefficient) : t.coefficient;
    if (i > 0)
      os << (negative ? " - " : " + ");
    else if (negative)
      os << "-";
    if (t.symbols.empty()) {
      os << c;
      continue;
    }
    if (c != 1)
      os << c << "*";
    llvm::interleave(t.symbols, os, "*");
  }
  return out;
}

size_t Dim::hash() const {
  llvm::hash_code h = llvm::hash_value(terms_.size());
  for (const Term &t : terms_) {
    h = llvm::hash_combine(h, t.coefficient);
    for (llvm::StringRef s : t.symbols)
      h = llvm::hash_combine(h, s);
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
