// Memory and work that an evaluation may take.
#pragma once

#include "ir/Type.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>

namespace gpt2c {

/// Elements times their size; none where the product passes what can be addressed (2^47 bytes) or a
/// dimension is negative.
std::optional<int64_t> tensorBytes(DType dtype, llvm::ArrayRef<int64_t> shape);

/// An error of InvalidModel where a type has, by its constant dimensions alone, more bytes than can
/// be addressed; `what` names the place. Inference checks each result so.
llvm::Error checkSize(const Type &type, const llvm::Twine &what);

/// Thrown where a tensor is larger than memory or than the budget it is made under. The reference
/// executor returns it as an error of code OutOfMemory that names the op.
class TensorTooLarge : public std::bad_alloc {
public:
  explicit TensorTooLarge(std::string message) : message_(std::move(message)) {}
  const char *what() const noexcept override { return message_.c_str(); }

private:
  std::string message_;
};

/// While it lives, tensors that this thread makes take at most `bytes` at a time, and the reference
/// executor refuses an op once those before it took `operations` by their cost. Budgets nest; the
/// innermost counts.
class Budget {
public:
  Budget(int64_t bytes, int64_t operations);
  ~Budget();
  Budget(const Budget &) = delete;
  Budget &operator=(const Budget &) = delete;

  /// Of this thread; null: none.
  static Budget *current();

  /// Takes `bytes`; the result, null without a budget, gives them back when its last copy goes.
  /// Throws TensorTooLarge.
  static std::shared_ptr<const void> takeBytes(int64_t bytes);
  /// False when the operations are used up.
  bool takeOperations(int64_t operations);

private:
  Budget *outer_;
  int64_t bytes_, operations_;
  std::shared_ptr<std::atomic<int64_t>> used_;
};

} // namespace gpt2c
