// Functions of one op each, made from the op cases, that the code generator accepts.
#pragma once

#include "OpCases.h"

#include <map>
#include <set>

namespace gpt2c::suite {

struct CaseEntry {
  const OpCase *c;
  bool symbolic;
  CaseFunction made;
  std::string title() const { return c->title() + (symbolic ? ", symbolic" : ""); }
};

struct CaseFunctions {
  std::vector<CaseEntry> entries;
  unsigned notSymbolic = 0; // cases whose op wants constant sizes or has none
  /// Why the code generator refused a case, with the cases.
  std::map<std::string, std::vector<std::string>> refusals;
  std::set<OpCode> lowered; // ops with at least one case that became launches
};

/// Symbols of a symbolic case and their bounds: s<n> is n.
std::map<std::string, std::pair<int64_t, int64_t>> symbolBounds(const CaseFunction &made);
int64_t symbolValue(llvm::StringRef name);

CaseFunctions makeFunctions(llvm::ArrayRef<OpCase> cases, llvm::StringRef filter);

/// Of the cases that became launches in both forms, one form of each: every other one's symbolic.
void keepOneForm(CaseFunctions &functions);

} // namespace gpt2c::suite
