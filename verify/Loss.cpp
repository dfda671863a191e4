#include "verify/Loss.h"

#include <algorithm>
#include <cmath>

namespace gpt2c {

/// Log probabilities.
static std::vector<double> logSoftmax(llvm::ArrayRef<double> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (double v : logits)
    sum += std::exp(v - largest);
  std::vector<double> out(logits.begin(), logits.end());
  for (double &v : out)
    v -= largest + std::log(sum);
  return out;
}

void Loss::addDivergence(llvm::ArrayRef<double> got, llvm::ArrayRef<double> expected) {
  auto isFinite = [](double v) { return std::isfinite(v); };
  if (!std::all_of(got.begin(), got.end(), isFinite) ||
      !std::all_of(expected.begin(), expected.end(), isFinite))
    return;
  const std::vector<double> q = logSoftmax(got), p = logSoftmax(expected);
  meanProbability_.resize(p.size());
  for (size_t i = 0; i < p.size(); ++i) {
    const double probability = std::exp(p[i]);
    divergence_ += probability * (p[i] - q[i]);
    entropy_ -= probability * p[i];
    meanProbability_[i] += probability;
  }
  ++divergences_;
}

void Loss::add(const Tensor &got, const Tensor &expected, RowScale scale) {
  for (double e : rowErrors(got, expected, scale))
    errors_.push_back(e);
  if (scale != RowScale::Logits || expected.count() == 0)
    return;
  const int64_t width = expected.dim(-1);
  std::vector<double> g(width), e(width);
  for (int64_t r = 0; r < expected.count() / width; ++r) {
    got.load(r * width, g);
    expected.load(r * width, e);
    addDivergence(g, e);
  }
}

void Loss::add(const Loss &other) {
  errors_.insert(errors_.end(), other.errors_.begin(), other.errors_.end());
  meanProbability_.resize(std::max(meanProbability_.size(), other.meanProbability_.size()));
  for (size_t i = 0; i < other.meanProbability_.size(); ++i)
    meanProbability_[i] += other.meanProbability_[i];
  divergence_ += other.divergence_;
  entropy_ += other.entropy_;
  divergences_ += other.divergences_;
}

double Loss::median() const {
  if (errors_.empty())
    return 0;
  std::vector<double> sorted = errors_;
  auto middle = sorted.begin() + int64_t(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

double Loss::information() const {
  double entropyOfMean = 0;
  for (double sum : meanProbability_)
    if (const double p = sum / double(divergences_); p > 0)
      entropyOfMean -= p * std::log(p);
  return divergences_ > 0 ? std::max(0.0, entropyOfMean - entropy_ / double(divergences_)) : 0;
}

} // namespace gpt2c
