#include "frontend/Symbols.h"

#include "llvm/ADT/StringExtras.h"

namespace gpt2c {

static std::string identifier(llvm::StringRef name) {
  std::string out;
  for (char c : name.trim()) {
    if (llvm::isAlnum(c) || c == '_' || c == '.')
      out += c;
    else if (c == '+')
      out += "plus";
    else if (out.empty() || out.back() != '_')
      out += '_';
  }
  if (out.empty() || llvm::isDigit(out[0]) || out[0] == '.')
    out.insert(0, "d_");
  return out;
}

std::string Symbols::unique(llvm::StringRef wish) {
  std::string base = identifier(wish), name = base;
  for (unsigned i = 1; !used_.insert(name).second; ++i)
    name = base + "_" + std::to_string(i);
  return name;
}

Dim Symbols::named(llvm::StringRef dimParam) {
  auto it = byName_.find(dimParam);
  if (it == byName_.end())
    it = byName_.try_emplace(dimParam, unique(dimParam)).first;
  return Dim::symbol(it->second);
}

Dim Symbols::fresh(llvm::StringRef hint) { return Dim::symbol(unique(hint)); }

} // namespace gpt2c
