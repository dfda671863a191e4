#include "ir/Piecewise.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

static std::string clampText(const DimPiece::Clamp &c) {
  std::string text = (c.of - Dim(c.from)).str();
  if (c.mayBeNegative)
    text = "max(" + text + ", 0)";
  return c.width ? "min(" + text + ", " + std::to_string(*c.width) + ")" : text;
}

std::string Dim::str() const {
  std::string out;
  llvm::raw_string_ostream os(out);
  for (const DimPiece &p : piecesOf(*this)) {
    const bool negative = p.coefficient < 0;
    const uint64_t c = negative ? 0 - static_cast<uint64_t>(p.coefficient) : p.coefficient;
    os << (out.empty() ? (negative ? "-" : "") : negative ? " - " : " + ");
    llvm::SmallVector<std::string> factors;
    for (const Factor *f : p.factors)
      factors.push_back(f->text.str());
    if (p.clamp)
      factors.push_back(clampText(*p.clamp));
    if (c != 1 || factors.empty())
      factors.insert(factors.begin(), std::to_string(c));
    llvm::interleave(factors, os, "*");
  }
  return out.empty() ? "0" : out;
}

} // namespace gpt2c
