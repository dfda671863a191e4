#include "schedule/cost/Bounds.h"

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

DimRange rangeOf(const Dim &d, const SymbolBounds &bounds, DimBounds limits) {
  d.forEachSymbol([&](llvm::StringRef s) {
    auto [lo, hi] = boundsOf(bounds, s);
    limits.atLeast(s, lo);
    limits.atMost(Dim::symbol(s), hi);
  });
  return d.range(limits);
}

} // namespace gpt2c
