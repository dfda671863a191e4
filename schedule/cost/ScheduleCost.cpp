#include "schedule/cost/ScheduleCost.h"

#include "schedule/products/Operands.h"

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

static double ownCost(const Op &op, const SymbolBounds &bounds) {
  double bytes = 0;
  for (const Value *v : op.operands())
    bytes += bytesOf(v, bounds);
  for (const Value *v : op.results())
    bytes += bytesOf(v, bounds);
  return launch + bytes / bytesPerMicrosecond;
}

/// What the weights of a product take from memory.
static double readCost(const LinearShape &s) {
  const bool odd = isQuantised(s.w) && s.k % 16 != 0;
  const double bytes =
      odd ? oddRowBytes * std::max(1.0, double(s.rows) / rowsOfOdd) : scalarBytes(s.w);
  return double(s.n) * double(s.k) * bytes / bytesPerMicrosecond;
}

static double productCost(const LinearGroup &group, const SymbolBounds &bounds) {
  const LinearProblem &p = group.problem;
  double cost = std::max(group.taken.microseconds.value_or(0), launch + readCost(p));
  if (!group.int8)
    return cost;
  // Launches around it: rows that are quantised, weights that become floats, a quantised result.
  const double rows = bytesOf(group.product->operand(ops::Linear::X), bounds),
               result = double(p.rows) * double(p.n) * scalarBytes(p.y);
  if (group.int8->rows == Int8Product::Quantised)
    cost += launch + 1.5 * rows / bytesPerMicrosecond;
  if (group.int8->widened)
    cost += launch + double(p.n) * double(p.k) * (1 + scalarBytes(p.w)) / bytesPerMicrosecond;
  if (group.int8->result == Int8Product::Behind)
    cost += launch + 1.5 * result / bytesPerMicrosecond;
  return cost;
}

double microsecondsOf(const Schedule &schedule, const SymbolBounds &bounds) {
  double sum = 0;
  for (const Group &group : schedule.groups) {
    if (group.get<RefusedGroup>())
      return std::numeric_limits<double>::infinity();
    if (const auto *linear = group.get<LinearGroup>())
      sum += productCost(*linear, bounds);
    else if (const auto *mlp = group.get<MlpGroup>())
      sum += std::max(mlp->taken.microseconds.value_or(0),
                      launch + readCost(mlp->problem.hidden) + readCost(mlp->problem.output));
    else if (const auto *own = group.get<OwnGroup>())
      sum += ownCost(*own->op, bounds);
  }
  return sum;
}

} // namespace gpt2c
