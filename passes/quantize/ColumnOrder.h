// The columns of a product in another order, at compile time.
#pragma once

#include "ir/Builder.h"

#include <map>
#include <vector>

namespace gpt2c {

class ColumnOrder {
public:
  /// Whether all that belongs to the columns of `product` are constants, and nothing is added to
  /// its rows or done to them: `product` is a linear or quantized_linear then.
  static bool isFree(const Op *product);
  /// The weights of a product.
  static const Tensor &weightsOf(const Op &product);

  /// A product like `product`, in front of it, whose column i is column order[i] of that one.
  /// Functions share what is made of one tensor.
  llvm::Expected<Value *> reorder(Function &f, Op &product, llvm::ArrayRef<int64_t> order);

private:
  Tensor rows(const Tensor &t, llvm::ArrayRef<int64_t> order);

  /// What was made, with what it was made of, so that no other tensor gets its address.
  std::map<std::pair<const void *, std::vector<int64_t>>, std::pair<Tensor, Tensor>> made_;
};

} // namespace gpt2c
