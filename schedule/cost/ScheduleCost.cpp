#include "schedule/cost/ScheduleCost.h"

#include "schedule/products/Operands.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <limits>

namespace gpt2c {

// Of an H200: a launch behind another one, and memory as kernels without reuse reach it.
constexpr double launch = 2, bytesPerMicrosecond = 3.9e6;
// Rows of weights of a byte that are no whole units of 16 bytes take as long as so many bytes an
// element, and beyond so many rows of x as long again for as many: no tiles read them.
constexpr double oddRowBytes = 2.5, rowsOfOdd = 16;

static double bytesOf(const Value *v, const SymbolBounds &bounds) {
  return v ? double(rangeOf(bytesOf(v), bounds).hi) : 0;
}

namespace {

/// Microseconds of launches on one machine, at the most rows there can be.
struct LaunchCosts {
  const SymbolBounds &bounds;
  const double launch, bytesPerMicrosecond;

  LaunchCosts(const SymbolBounds &bounds, const TargetRates &rates)
      : bounds(bounds), launch(gpt2c::launch * rates.launches()),
        bytesPerMicrosecond(gpt2c::bytesPerMicrosecond / rates.reads()) {}

  double own(const Op &op) const {
    double bytes = 0;
    for (const Value *v : op.operands())
      bytes += bytesOf(v, bounds);
    for (const Value *v : op.results())
      bytes += bytesOf(v, bounds);
    return launch + bytes / bytesPerMicrosecond;
  }

  /// What the weights of a product take from memory.
  double read(const LinearShape &s) const {
    const bool odd = isQuantised(s.w) && s.k % 16 != 0;
    const double bytes =
        odd ? oddRowBytes * std::max(1.0, double(s.rows) / rowsOfOdd) : infoOf(s.w).bits / 8.0;
    return double(s.n) * double(s.k) * bytes / bytesPerMicrosecond;
  }

  double product(const LinearGroup &group) const {
    const LinearProblem &p = group.problem;
    // Of few rows kernels have an estimate by which they are compared, others by configuration.
    const auto ofKernel = group.taken.kernel ? group.taken.kernel->microseconds(p) : std::nullopt,
               taken = ofKernel ? ofKernel : group.taken.microseconds;
    double cost = std::max(taken.value_or(0), launch + read(p));
    if (!group.int8)
      return cost;
    // Launches around it: rows that are quantised, weights that become floats, a quantised result.
    const double rows = bytesOf(group.product->operand(ops::Linear::X), bounds),
                 result = double(p.rows) * double(p.n) * scalarBytes(p.y);
    if (group.int8->rows == Int8Product::Quantised)
      cost += launch + 1.5 * rows / bytesPerMicrosecond;
    if (group.int8->widened) {
      const double floats = double(p.n) * double(p.k) * scalarBytes(p.w);
      cost += launch + (bytesOf(group.product->operand(ops::Linear::W), bounds) + floats) /
                           bytesPerMicrosecond;
    }
    if (group.int8->result == Int8Product::Behind)
      cost += launch + 1.5 * result / bytesPerMicrosecond;
    return cost;
  }

  double mlp(const MlpGroup &mlp) const {
    return std::max(mlp.taken.microseconds.value_or(0),
                    launch + read(mlp.problem.hidden) + read(mlp.problem.output));
  }
};

} // namespace

double microsecondsOf(const Schedule &schedule, const SymbolBounds &bounds,
                      const TargetRates &rates) {
  const LaunchCosts costs(bounds, rates);
  double sum = 0;
  for (const Group &group : schedule.groups) {
    if (group.get<RefusedGroup>())
      return std::numeric_limits<double>::infinity();
    if (const auto *linear = group.get<LinearGroup>())
      sum += costs.product(*linear);
    else if (const auto *mlp = group.get<MlpGroup>())
      sum += costs.mlp(*mlp);
    else if (const auto *own = group.get<OwnGroup>())
      sum += costs.own(*own->op);
  }
  return sum;
}

/// The products with weights that read what `op` makes.
static llvm::SmallVector<const Op *, 4> productsBehind(const Op &op) {
  llvm::SmallVector<const Op *, 4> products;
  for (const Value *v : op.results())
    for (const Use &use : v->uses())
      if (isProduct(*use.op) && !llvm::is_contained(products, use.op))
        products.push_back(use.op);
  return products;
}

llvm::DenseMap<const Op *, double> productMicroseconds(const Schedule &schedule,
                                                       const SymbolBounds &bounds,
                                                       const TargetRates &rates) {
  const LaunchCosts costs(bounds, rates);
  llvm::DenseMap<const Op *, double> out;
  for (const Group &group : schedule.groups) {
    if (const auto *linear = group.get<LinearGroup>()) {
      out[linear->product] += costs.product(*linear);
    } else if (const auto *mlp = group.get<MlpGroup>()) {
      const double all = costs.mlp(*mlp), hidden = costs.read(mlp->problem.hidden),
                   output = costs.read(mlp->problem.output);
      out[mlp->hidden] += all * hidden / (hidden + output);
      out[mlp->output] += all * output / (hidden + output);
    } else if (const auto *own = group.get<OwnGroup>()) {
      const auto products = productsBehind(*own->op);
      for (const Op *product : products)
        out[product] += costs.own(*own->op) / double(products.size());
    }
  }
  return out;
}

} // namespace gpt2c
