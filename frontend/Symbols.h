// ONNX's dimension names -> symbols of the IR.
#pragma once

#include "ir/Type.h"

#include "llvm/ADT/StringSet.h"

namespace gpt2c {

class Symbols {
public:
  /// The symbol for a dim_param: the name itself where it is an identifier, otherwise with other
  /// characters replaced. Equal names give equal symbols, different names different ones.
  Dim named(llvm::StringRef dimParam);
  /// A new symbol whose name starts with `hint`.
  Dim fresh(llvm::StringRef hint);

private:
  std::string unique(llvm::StringRef wish);

  llvm::StringMap<std::string> byName_;
  llvm::StringSet<> used_;
};

} // namespace gpt2c
