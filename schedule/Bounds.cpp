#include "schedule/Bounds.h"

namespace gpt2c {

int64_t saturatingMultiply(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

std::pair<int64_t, int64_t> boundsOf(const SymbolBounds &bounds, llvm::StringRef symbol) {
  constexpr int64_t unknown =
      1 << 16; // a dimension of an exported graph that nothing is known about
  auto it = bounds.find(symbol.str());
  return it == bounds.end() ? std::pair<int64_t, int64_t>{0, unknown} : it->second;
}

static int64_t extreme(const Dim &d, const SymbolBounds &bounds, bool up) {
  int64_t sum = 0;
  for (const Dim::Term &t : d.terms()) {
    bool high = (t.coefficient > 0) == up;
    int64_t size = t.coefficient < 0 ? -std::max(t.coefficient, -INT64_MAX) : t.coefficient;
    for (llvm::StringRef s : t.symbols) {
      auto [least, most] = boundsOf(bounds, s);
      size = saturatingMultiply(size, high ? most : least);
    }
    if (__builtin_add_overflow(sum, t.coefficient < 0 ? -size : size, &sum))
      return up ? INT64_MAX : INT64_MIN;
  }
  return sum;
}

int64_t largest(const Dim &d, const SymbolBounds &bounds) { return extreme(d, bounds, true); }
int64_t smallest(const Dim &d, const SymbolBounds &bounds) { return extreme(d, bounds, false); }

} // namespace gpt2c
