// Which of several configurations computes an op. The compiler's own choice is a model of the
// costs; a file may hold what was measured. Both are names, so that a file outlives the compiler
// that wrote it: what it says is taken where it still names a candidate and ignored elsewhere.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <functional>
#include <map>
#include <set>
#include <string>

namespace gpt2c {

/// The index of the candidate to take; the model's choice is the first. `key` tells what the choice
/// depends on: "layer_norm+linear+bias rows=8 n=2304 k=768 f16 x f16".
using Chooser = std::function<size_t(llvm::StringRef key, llvm::ArrayRef<std::string> candidates)>;

/// Measured choices for one architecture.
class TuningTable {
public:
  struct Entry {
    std::string choice;
    double microseconds = 0;      ///< of one launch of it
    double modelMicroseconds = 0; ///< of the model's choice
  };

  explicit TuningTable(std::string arch = {}) : arch_(std::move(arch)) {}
  /// Fails where the text is no tuning file; errors have no code.
  static llvm::Expected<TuningTable> parse(llvm::StringRef text);
  /// The text of the file; the same entries give the same text.
  std::string text() const;

  const std::string &arch() const { return arch_; }
  const std::map<std::string, Entry, std::less<>> &entries() const { return entries_; }
  const Entry *find(llvm::StringRef key) const;
  void set(llvm::StringRef key, Entry entry) { entries_[key.str()] = std::move(entry); }

private:
  std::string arch_;
  std::map<std::string, Entry, std::less<>> entries_;
};

/// Chooses by a table and counts what came of it.
class TunedChoices {
public:
  explicit TunedChoices(const TuningTable &table) : table_(table) {}
  size_t choose(llvm::StringRef key, llvm::ArrayRef<std::string> candidates);

  /// Keys that the table decided.
  const std::set<std::string> &used() const { return used_; }
  /// Keys whose choice in the table is no candidate of this compiler.
  const std::set<std::string> &stale() const { return stale_; }

private:
  const TuningTable &table_;
  std::set<std::string> used_, stale_;
};

} // namespace gpt2c
