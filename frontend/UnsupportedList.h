// Everything in a model that cannot be translated, to be reported at once.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <map>
#include <string>
#include <vector>

namespace gpt2c {

class UnsupportedList {
public:
  bool empty() const { return groups_.empty(); }
  void add(llvm::StringRef domain, llvm::StringRef op, int64_t opset, llvm::StringRef reason,
           std::string node);
  /// One error (Unsupported): a line for each operator, opset and reason, with the number of nodes
  /// and the first names.
  llvm::Error report() const;

private:
  struct Key {
    std::string op; // with its domain
    int64_t opset;
    std::string reason;
    auto operator<=>(const Key &) const = default;
  };
  std::map<Key, std::vector<std::string>> groups_;
};

} // namespace gpt2c
