#include "runtime/plan/Golden.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

namespace gpt2c::rt {
namespace {

constexpr size_t kTop = 4, kProjections = 16;
/// How many times t s one logit may be off.
constexpr double kElement = 6;

/// Steele, Lea and Flood, "Fast splittable pseudorandom number generators" (OOPSLA 2014).
uint64_t splitmix64(uint64_t i) {
  uint64_t z = (i + 1) * 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

/// The sums of a row, in double precision.
struct Row {
  explicit Row(std::span<const float> logits);
  double logprob(float logit) const { return logit - shift; }

  int64_t finite = 0;
  double mean = 0, deviation = 0;
  double shift = 0; ///< log sum exp
  double projections[kProjections] = {};
};

Row::Row(std::span<const float> logits) {
  double sum = 0, largest = -std::numeric_limits<double>::infinity();
  for (float x : logits)
    if (std::isfinite(x)) {
      ++finite;
      sum += x;
      largest = std::max<double>(largest, x);
    }
  if (finite == 0)
    return;
  mean = sum / double(finite);
  double squares = 0, exponentials = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i]))
      continue;
    const double d = logits[i] - mean;
    squares += d * d;
    exponentials += std::exp(logits[i] - float(largest));
    const uint64_t signs = splitmix64(i);
    for (size_t j = 0; j < kProjections; ++j)
      projections[j] += signs >> j & 1 ? d : -d;
  }
  deviation = std::sqrt(squares / double(finite));
  shift = largest + std::log(exponentials);
  for (double &p : projections)
    p /= std::sqrt(double(finite));
}

std::string number(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", x);
  return text;
}

std::string against(const std::string &what, double got, double expected) {
  return what + " is " + number(got) + " instead of " + number(expected);
}

} // namespace

plan::GoldenRowT goldenRow(std::span<const float> logits) {
  const Row row(logits);
  plan::GoldenRowT out;
  out.mean = float(row.mean);
  out.deviation = float(row.deviation);
  out.finite = row.finite;
  out.projections.assign(row.projections, row.projections + kProjections);
  std::vector<int32_t> ids;
  for (size_t i = 0; i < logits.size(); ++i)
    if (std::isfinite(logits[i]))
      ids.push_back(int32_t(i));
  const size_t count = std::min(kTop, ids.size());
  std::ranges::partial_sort(ids, ids.begin() + ptrdiff_t(count), [&](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  ids.resize(count);
  for (int32_t id : ids)
    out.top_logprobs.push_back(float(row.logprob(logits[id])));
  out.top_ids = std::move(ids);
  return out;
}

GoldenDifference compareGolden(const plan::GoldenRowT &golden, std::span<const float> logits,
                               double tolerance) {
  const Row row(logits);
  GoldenDifference out;
  auto problem = [&](std::string text) {
    if (out.problem.empty())
      out.problem = std::move(text);
  };
  if (row.finite != golden.finite || golden.projections.size() != kProjections) {
    out.error = std::numeric_limits<double>::infinity();
    problem(std::to_string(row.finite) + " logits are finite instead of " +
            std::to_string(golden.finite));
    return out;
  }
  double squares = 0;
  for (size_t j = 0; j < kProjections; ++j) {
    const double d = row.projections[j] - golden.projections[j];
    squares += d * d;
  }
  const double scale = golden.deviation, distance = std::sqrt(squares / kProjections);
  out.error = distance == 0 ? 0 : distance / scale;
  if (!(out.error <= tolerance))
    problem("the logits are off by " + number(out.error) + " of a row where " + number(tolerance) +
            " is allowed");
  if (!(std::fabs(row.mean - golden.mean) <= tolerance * std::hypot(golden.mean, scale)))
    problem(against("the mean of the logits", row.mean, golden.mean));
  for (size_t k = 0; k < golden.top_ids.size(); ++k) {
    const size_t id = size_t(golden.top_ids[k]);
    const double got =
        id < logits.size() ? row.logprob(logits[id]) : std::numeric_limits<double>::quiet_NaN();
    if (!(std::fabs(got - golden.top_logprobs[k]) <= kElement * tolerance * scale))
      problem(against("the log probability of token " + std::to_string(id), got,
                      golden.top_logprobs[k]));
  }
  return out;
}

bool mayFollow(const plan::GoldenRowT &golden, int32_t token, double tolerance) {
  for (size_t k = 0; k < golden.top_ids.size(); ++k)
    if (golden.top_ids[k] == token)
      return golden.top_logprobs[k] >=
             golden.top_logprobs[0] - kElement * tolerance * double(golden.deviation);
  return false;
}

} // namespace gpt2c::rt
