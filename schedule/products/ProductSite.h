// A product with weights where it stands: all that its kernel is asked about, read once.
#pragma once

#include "schedule/products/LinearProblem.h"

namespace gpt2c {

/// What stands beside an op and has a launch of its own all the same.
struct NearMiss {
  std::string what; ///< "norm", "gate", "mlp", "rope", "statistics"
  std::string why;
};

/// What its kernel may compute beside a product, whatever kernels there are.
struct ProductSite {
  LinearProblem own;                ///< the product by itself
  LinearFusions normed = {};        ///< what the norm before it is; none where there is no norm
  Op *norm = nullptr;               ///< before it
  Op *end = nullptr;                ///< behind it
  const ProductEnd *form = nullptr; ///< what `end` is
  /// The norm is for the kernels that compute the end. A wide product is no vocabulary then; but of
  /// more rows a launch of the norm takes no longer.
  bool normOfEnd = false;
  const RowStatistics *statistics = nullptr; ///< that the rows of the norm were left with
  bool statisticsWished = false;             ///< of its result
  bool statisticsOfEnd = false;              ///< of what a sum over ranks becomes
  bool choice = false; ///< the index of the largest element of each row is asked for
};

} // namespace gpt2c
