#include "ir/Budget.h"

namespace gpt2c {

static thread_local Budget *innermost = nullptr;

std::optional<int64_t> tensorBytes(DType dtype, llvm::ArrayRef<int64_t> shape) {
  constexpr int64_t addressable = int64_t(1) << 47;
  int64_t count = 1;
  bool empty = false, fits = true;
  for (int64_t d : shape) {
    if (d < 0)
      return std::nullopt;
    empty |= d == 0;
    fits = fits && !__builtin_mul_overflow(count, d, &count) &&
           count <= addressable * 8 / int64_t(infoOf(dtype).bits);
  }
  if (empty)
    return 0;
  return fits ? std::optional(storedBytes(dtype, count)) : std::nullopt;
}

Budget::Budget(int64_t bytes, int64_t operations)
    : outer_(innermost), bytes_(bytes), operations_(operations),
      used_(std::make_shared<std::atomic<int64_t>>(0)) {
  innermost = this;
}

Budget::~Budget() { innermost = outer_; }

Budget *Budget::current() { return innermost; }

std::shared_ptr<const void> Budget::takeBytes(int64_t bytes) {
  if (!innermost)
    return nullptr;
  auto used = innermost->used_;
  if (bytes > innermost->bytes_ - *used)
    throw TensorTooLarge("a tensor of " + std::to_string(bytes) + " bytes beside " +
                         std::to_string(*used) + " is above the " +
                         std::to_string(innermost->bytes_) + " that an evaluation may take");
  *used += bytes;
  return std::shared_ptr<const void>(used.get(), [used, bytes](const void *) { *used -= bytes; });
}

bool Budget::takeOperations(int64_t operations) {
  if (operations > operations_)
    return false;
  operations_ -= operations;
  return true;
}

} // namespace gpt2c
