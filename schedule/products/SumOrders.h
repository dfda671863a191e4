// The orders in which the products of a batch-invariant plan are summed up.
//
// A function has versions for numbers of rows, and each would take the kernels that are fastest for
// them. In a batch-invariant plan a product has one order of sums in all versions. So they are
// built twice: the first time each says which orders there are and what they cost, then one order
// is decided on for each product, and the second time the cheapest kernel of that order is taken.
#pragma once

#include "ir/Function.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/Error.h"

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace gpt2c {

/// One of the configurations that may compute a product.
struct SumOption {
  std::string name;
  std::string order;                  ///< KernelRecord::sumOrder
  std::optional<double> microseconds; ///< where there is a model of its costs
};

class SumOrders {
public:
  /// A version is built from here on.
  void beginVersion(std::string what) { versions_.push_back(std::move(what)); }
  /// Before decide() the first of the options, which are noted; then the cheapest one that has the
  /// order decided on. Those without a model of their costs are behind the others.
  size_t choose(const Op &op, llvm::ArrayRef<SumOption> options);
  /// For each product the order that all versions have and that costs least: the sum over versions
  /// of how many times as much as the cheapest it takes. Fails where versions have none in common.
  llvm::Error decide();

  /// What an order costs in a version beside the cheapest there, over all products with a model, in
  /// microseconds.
  struct Estimate {
    std::string version;
    double cheapest = 0, taken = 0;
    unsigned unknown = 0; ///< products without a model
  };
  std::vector<Estimate> estimates() const;

private:
  struct Offer {
    size_t version;
    std::map<std::string, double> costs = {}; ///< the least of each order
    bool modelled = false;
  };
  llvm::MapVector<const Op *, std::vector<Offer>> offers_;
  llvm::DenseMap<const Op *, std::string> decided_;
  std::vector<std::string> versions_;
};

} // namespace gpt2c
