#include "ir/DimBounds.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

namespace gpt2c {

int64_t DimBounds::leastOf(llvm::StringRef symbol) const {
  auto it = least_.find(symbol);
  return it == least_.end() ? 0 : it->second;
}

void DimBounds::atLeast(llvm::StringRef symbol, int64_t least) {
  least_[symbol] = std::max(leastOf(symbol), least);
}

bool DimBounds::atMost(const Dim &sum, int64_t most) {
  Dim symbols = sum;
  for (const Dim::Term &t : sum.terms()) {
    if (!t.factors.empty() && t.coefficient < 0)
      return false;
    if (!t.factors.empty())
      continue;
    if (__builtin_sub_overflow(most, t.coefficient, &most))
      return false;
    symbols = symbols - Dim(t.coefficient);
  }
  if (symbols.isConstant() || !symbols.isPolynomial() || symbols.range(*this).hi <= most)
    return false;
  llvm::erase_if(limits_, [&](const Limit &l) { return l.sum == symbols; });
  limits_.push_back({std::move(symbols), most});
  return true;
}

DimRange DimBounds::of(llvm::StringRef symbol) const {
  DimRange range;
  range.lo = leastOf(symbol);
  for (const Limit &l : limits_) {
    int64_t rest = l.most, coefficient = 0;
    bool valid = true;
    for (const Dim::Term &t : l.sum.terms()) {
      if (t.factors.size() == 1 && t.factors[0]->text == symbol) {
        coefficient = t.coefficient;
        continue;
      }
      int64_t least = t.coefficient;
      for (const Dim::Factor *f : t.factors)
        valid &= !__builtin_mul_overflow(least, leastOf(f->text), &least);
      valid &= !__builtin_sub_overflow(rest, least, &rest);
    }
    if (valid && coefficient > 0)
      range.hi = std::min(range.hi, llvm::divideFloorSigned(rest, coefficient));
  }
  range.hi = std::max(range.hi, range.lo);
  return range;
}

void DimBounds::substitute(llvm::StringRef symbol, const Dim &by) {
  for (const Limit &l : std::exchange(limits_, {}))
    atMost(l.sum.substitute(symbol, by), l.most);
}

} // namespace gpt2c
