#include "passes/proof/bounds/ChainBound.h"

#include "passes/Rewrite.h"
#include "passes/proof/masks/Probe.h"

#include "llvm/ADT/DenseMap.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace gpt2c {

namespace {

constexpr double boundless = std::numeric_limits<double>::infinity();

/// A closed interval; ends may be infinite. Results are wider than the exact ones by more than
/// their rounding.
struct Range {
  double low, high;

  static Range any() { return {-boundless, boundless}; }
  static Range of(double a, double b) {
    if (std::isnan(a) || std::isnan(b))
      return any();
    auto out = [](double v) { return std::abs(v) * 0x1p-50 + std::numeric_limits<double>::min(); };
    if (a > b)
      std::swap(a, b);
    return {std::isinf(a) ? a : a - out(a), std::isinf(b) ? b : b + out(b)};
  }
  bool contains(double v) const { return low <= v && v <= high; }
  double magnitude() const { return std::max(std::abs(low), std::abs(high)); }
  /// The distance to zero.
  double least() const { return contains(0) ? 0 : std::min(std::abs(low), std::abs(high)); }
};

Range operator+(Range a, Range b) { return Range::of(a.low + b.low, a.high + b.high); }
Range operator-(Range a) { return {-a.high, -a.low}; }
Range operator*(Range a, Range b) {
  const double ends[] = {a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high};
  double low = boundless, high = -boundless;
  for (double e : ends) {
    if (std::isnan(e))
      return Range::any(); // zero times what has no bound
    low = std::min(low, e);
    high = std::max(high, e);
  }
  return Range::of(low, high);
}
Range inverse(Range a) { return a.contains(0) ? Range::any() : Range::of(1 / a.low, 1 / a.high); }

/// Value and slope over an interval of x.
struct Bound {
  Range value, slope;
};

/// A function that grows, with a slope that falls with the distance of its argument from zero.
Bound bell(Range u, Range du, double (*f)(double), double (*slope)(double)) {
  return {Range::of(f(u.low), f(u.high)), Range::of(slope(u.magnitude()), slope(u.least())) * du};
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double sigmoidSlope(double x) { return 1 / (2 + std::exp(x) + std::exp(-x)); }
double tanhSlope(double x) { return 1 / (std::cosh(x) * std::cosh(x)); }
double erfSlope(double x) { return 2 / std::sqrt(std::numbers::pi) * std::exp(-x * x); }

/// x^n over an interval.
Range power(Range x, double n) {
  auto at = [&](double v) { return std::pow(v, n); };
  const bool whole = n == std::floor(n), even = whole && std::fmod(n, 2) == 0;
  if (!whole && x.low < 0)
    return Range::any();
  if (n < 0 && x.contains(0))
    return Range::any();
  if (even && x.contains(0))
    return Range::of(0, at(x.magnitude()));
  return Range::of(at(x.low), at(x.high));
}

/// The chain as a list of ops on numbered values.
class Chain {
public:
  Chain(Value *root, Value *x) {
    numbers_[x] = 0;
    BackwardSlice slice = backwardSlice(root, [&](Value *v) { return v == x; });
    llvm::SmallVector<Op *> ops;
    for (auto &op : root->def()->function()->ops())
      if (slice.contains(op.get()))
        ops.push_back(op.get());
    for (Op *op : ops) {
      Step step{op->code(), {0, 0}, scalarConstant(op->result())};
      for (unsigned i = 0; i < op->numOperands() && i < 2; ++i)
        step.operands[i] = numbers_.lookup(op->operand(i));
      if (op->is(OpCode::Pow))
        step.constant = scalarConstant(op->operand(ops::Pow::B));
      numbers_[op->result()] = unsigned(steps_.size()) + 1;
      steps_.push_back(step);
    }
    values_.resize(steps_.size() + 1);
  }

  Bound over(double low, double high) {
    values_[0] = {{low, high}, {1, 1}};
    for (size_t i = 0; i < steps_.size(); ++i)
      values_[i + 1] = run(steps_[i]);
    return values_.back();
  }

private:
  struct Step {
    OpCode code;
    unsigned operands[2];
    std::optional<double> constant; // of a constant; the exponent of a power
  };

  Bound run(const Step &s) const {
    const auto &[u, du] = values_[s.operands[0]];
    const auto &[v, dv] = values_[s.operands[1]];
    switch (s.code) {
    case OpCode::Constant:
      return {{*s.constant, *s.constant}, {0, 0}};
    case OpCode::Cast:
      return {u, du};
    case OpCode::Neg:
      return {-u, -du};
    case OpCode::Add:
      return {u + v, du + dv};
    case OpCode::Sub:
      return {u + -v, du + -dv};
    case OpCode::Mul:
      if (s.operands[0] == s.operands[1])
        return {power(u, 2), Range{2, 2} * u * du};
      return {u * v, u * dv + du * v};
    case OpCode::Div: {
      const Range w = inverse(v);
      return {u * w, w * (du + -(u * w * dv))};
    }
    case OpCode::Reciprocal: {
      const Range w = inverse(u);
      return {w, -(w * w * du)};
    }
    case OpCode::Sqrt:
      return {power(u, 0.5), Range{0.5, 0.5} * power(u, -0.5) * du};
    case OpCode::Pow: {
      const double n = *s.constant;
      return {power(u, n), Range{n, n} * power(u, n - 1) * du};
    }
    case OpCode::Exp: {
      const Range e = Range::of(std::exp(u.low), std::exp(u.high));
      return {e, e * du};
    }
    case OpCode::Tanh:
      return bell(u, du, std::tanh, tanhSlope);
    case OpCode::Erf:
      return bell(u, du, std::erf, erfSlope);
    case OpCode::Sigmoid:
      return bell(u, du, sigmoid, sigmoidSlope);
    default:
      return {Range::any(), Range::any()};
    }
  }

  llvm::DenseMap<const Value *, unsigned> numbers_;
  std::vector<Step> steps_;
  std::vector<Bound> values_;
};

/// Halvings of the interval between two points.
constexpr unsigned mostHalvings = 12;

class Comparison {
public:
  Comparison(Value *root, Value *x, const SmoothFunction &formula, llvm::ArrayRef<double> points,
             llvm::ArrayRef<double> distances, double tolerance)
      : chain_(root, x), formula_(formula), points_(points), distances_(distances),
        tolerance_(tolerance) {}

  /// Where between two points the distance may grow; many are passed at once where they can.
  std::optional<double> between(size_t first, size_t last) {
    const double a = points_[first], b = points_[last];
    if (a == b || isNear(a, b, distances_[first], distances_[last]))
      return std::nullopt;
    if (last == first + 1)
      return isNearInParts(a, b, distances_[first], distances_[last], 0)
                 ? std::nullopt
                 : std::optional(a + (b - a) / 2);
    const size_t middle = first + (last - first) / 2;
    auto left = between(first, middle);
    return left ? left : between(middle, last);
  }

private:
  /// Whether the distance stays small from `a`, where it is `atA`, to `b`, where it is `atB`.
  bool isNear(double a, double b, double atA, double atB) {
    const double allowed =
        tolerance_ * std::min(std::abs(a), std::abs(b)) + std::numeric_limits<float>::denorm_min();
    const Bound bound = chain_.over(a, b);
    const double width = b - a, slope = formula_.slope(a), nearest = Range{a, b}.least();
    double bend = std::min(1.2, 4 / (nearest * nearest)) * width;
    if (nearest >= 8)
      bend = std::min(bend, 2 * std::exp(-nearest / 2));
    const Range slopes = bound.slope + Range{-slope - bend, bend - slope};
    // It grows from both ends; in between these meet.
    if (std::max({atA, atB, (atA + atB + width * slopes.magnitude()) / 2}) <= allowed)
      return true;
    const double from = formula_.value(a), reach = width * (std::abs(slope) + bend);
    return std::max(bound.value.high - from, from - bound.value.low) + reach <= allowed;
  }

  bool isNearInParts(double a, double b, double atA, double atB, unsigned halvings) {
    if (isNear(a, b, atA, atB))
      return true;
    if (halvings == mostHalvings)
      return false;
    const double middle = a + (b - a) / 2, there = formula_.value(middle);
    const Range value = chain_.over(middle, middle).value;
    const double at = std::max(std::abs(value.low - there), std::abs(value.high - there));
    return isNearInParts(a, middle, atA, at, halvings + 1) &&
           isNearInParts(middle, b, at, atB, halvings + 1);
  }

  Chain chain_;
  const SmoothFunction &formula_;
  llvm::ArrayRef<double> points_, distances_;
  double tolerance_;
};

} // namespace

std::optional<double> unboundedBetween(Value *root, Value *x, const SmoothFunction &formula,
                                       llvm::ArrayRef<double> points,
                                       llvm::ArrayRef<double> distances, double tolerance) {
  if (points.size() < 2)
    return std::nullopt;
  return Comparison(root, x, formula, points, distances, tolerance).between(0, points.size() - 1);
}

} // namespace gpt2c
