// Ranks that run one function together, each with its own part of the weights and of the KV state.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

namespace gpt2c {

/// What one rank sees of the others. All ranks run the same ops in the same order, so the calls of
/// gather() meet.
class Group {
public:
  virtual ~Group() = default;
  /// From 0 to size() - 1.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Gives `mine` to every rank and waits for theirs: `all`, of size() * mine.size() bytes, is what
  /// each gave, in the order of ranks. An error names the rank that is missing.
  virtual llvm::Error gather(llvm::ArrayRef<char> mine, llvm::MutableArrayRef<char> all) = 0;

  /// That of this thread; null: there is one rank.
  static Group *current();

  /// While one lives, the ops of this thread run as that rank.
  class Scope {
  public:
    explicit Scope(Group *group);
    ~Scope();
    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;

  private:
    Group *before_;
  };
};

} // namespace gpt2c
