#include "schedule/cost/ScheduleCost.h"

#include "schedule/cost/AttentionCost.h"
#include "schedule/products/Operands.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <limits>

namespace gpt2c {

// Of an H200: a launch behind another one, and memory as kernels without reuse reach it. Tiles take
// less among other launches than what they are compared by.
constexpr double launch = 1.8, bytesPerMicrosecond = 3.9e6, tilesAmongOthers = 0.87;
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
    if (op.is(OpCode::Embed) || op.is(OpCode::Gather))
      return rows(op.result()); // of its table it reads no more
    double bytes = 0;
    for (const Value *v : op.operands())
      bytes += bytesOf(v, bounds);
    for (const Value *v : op.results())
      bytes += bytesOf(v, bounds);
    return launch + bytes / bytesPerMicrosecond;
  }

  /// A launch that makes `result` of as many bytes.
  double rows(const Value *result) const {
    return launch + 2 * bytesOf(result, bounds) / bytesPerMicrosecond;
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
    double cost = std::max((ofKernel ? 1 : tilesAmongOthers) * taken.value_or(0), launch + read(p));
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

double microsecondsOf(const Group &group, const SymbolBounds &bounds, const TargetRates &rates) {
  const LaunchCosts costs(bounds, rates);
  if (group.get<RefusedGroup>())
    return std::numeric_limits<double>::infinity();
  if (const auto *linear = group.get<LinearGroup>())
    return costs.product(*linear);
  if (const auto *mlp = group.get<MlpGroup>())
    return costs.mlp(*mlp);
  if (const auto *attention = group.get<AttentionGroup>())
    return attentionMicroseconds(attention->problem, rates);
  if (const auto *paged = group.get<PagedGroup>())
    return attentionMicroseconds(paged->problem, rates);
  if (const auto *own = group.get<OwnGroup>())
    return costs.own(*own->op);
  if (const auto *embed = group.get<EmbedGroup>())
    return costs.rows(embed->embed->result());
  if (group.get<LargestGroup>())
    return costs.launch;
  if (const auto *sum = group.get<AllReduceGroup>())
    return costs.rows(sum->last->result());
  return 0;
}

double microsecondsOf(const Schedule &schedule, const SymbolBounds &bounds,
                      const TargetRates &rates) {
  double sum = 0;
  for (const Group &group : schedule.groups)
    sum += microsecondsOf(group, bounds, rates);
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
