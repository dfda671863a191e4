// How large the symbols of a function, and what is computed of them, may be.
#pragma once

#include "ir/DimBounds.h"

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace gpt2c {

/// Bounds of the symbols of the function being compiled.
using SymbolBounds = std::map<std::string, std::pair<int64_t, int64_t>>;

/// a * b of numbers that are not negative; INT64_MAX where that does not fit.
int64_t saturatingMultiply(int64_t a, int64_t b);

/// Of a symbol that nothing is known about: 0 to 65536.
std::pair<int64_t, int64_t> boundsOf(const SymbolBounds &bounds, llvm::StringRef symbol);
/// How small and how large `d` gets where every symbol lies within its bounds, and sums of them
/// within the limits of the function; the smallest or largest number there is when that does not
/// fit.
DimRange rangeOf(const Dim &d, const SymbolBounds &bounds, DimBounds limits = {});

} // namespace gpt2c
