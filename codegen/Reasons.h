// Why a plan lacks something, on which architectures.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <map>
#include <string>
#include <vector>

namespace gpt2c {

/// Reasons in the order in which they are found, each once.
class Reasons {
public:
  void add(const std::string &why, llvm::ArrayRef<std::string> archs) {
    llvm::append_range(archsOf_[why], archs);
  }
  bool empty() const { return archsOf_.empty(); }
  /// Each, and in front of one that does not hold for all of the plan's architectures those that it
  /// holds for: "for sm_80, sm_86: why".
  std::vector<std::string> texts(llvm::ArrayRef<std::string> all) const {
    std::vector<std::string> out;
    for (const auto &[why, archs] : archsOf_)
      out.push_back((archs.size() < all.size() ? "for " + llvm::join(archs, ", ") + ": " : "") +
                    why);
    return out;
  }
  /// All of them on one line.
  std::string text(llvm::ArrayRef<std::string> all) const { return llvm::join(texts(all), "; "); }

private:
  llvm::MapVector<std::string, std::vector<std::string>, std::map<std::string, unsigned>> archsOf_;
};

} // namespace gpt2c
