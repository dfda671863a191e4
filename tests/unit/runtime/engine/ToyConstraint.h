// A constraint without a grammar: the i-th token of an answer is i modulo 3, or from the `least`-th
// on one that ends it; it is complete behind `most` tokens.
#pragma once

#include "runtime/sampling/Constraint.h"
#include "runtime/sampling/Random.h"

#include <algorithm>
#include <vector>

namespace gpt2c::rt::toy {

class StepConstraint final : public Constraint {
public:
  StepConstraint(int32_t vocabulary, int least, int most, std::vector<int32_t> ends = {})
      : vocabulary_(vocabulary), least_(least), most_(most), ends_(std::move(ends)) {}

  std::unique_ptr<TokenFilter> begin() const override { return std::make_unique<Filter>(*this); }
  int32_t vocabulary() const override { return vocabulary_; }
  std::span<const int32_t> ends() const override { return ends_; }

private:
  bool isEnd(int32_t token) const {
    return std::find(ends_.begin(), ends_.end(), token) != ends_.end();
  }

  class Filter final : public TokenFilter {
  public:
    explicit Filter(const StepConstraint &of) : of_(of) {}
    bool accept(int32_t token) override {
      if (!mayFollow(token))
        return false;
      ended_ = of_.isEnd(token);
      ++count_;
      return true;
    }
    void fill(std::span<uint32_t> allowed) override {
      std::ranges::fill(allowed, 0U);
      for (int32_t t = 0; t < of_.vocabulary_; ++t)
        allowed[size_t(t) / 32] |= uint32_t(mayFollow(t)) << (t % 32);
    }
    bool complete() override { return ended_ || count_ >= of_.most_; }

  private:
    bool mayFollow(int32_t token) const {
      if (ended_)
        return false;
      return of_.isEnd(token) ? count_ >= of_.least_
                              : count_ < of_.most_ && token % 3 == count_ % 3;
    }
    const StepConstraint &of_;
    int count_ = 0;
    bool ended_ = false;
  };

  int32_t vocabulary_;
  int least_, most_;
  std::vector<int32_t> ends_;
};

/// Of most of an answer's tokens one alone may come, drawn by the seed; of the others those that
/// StepConstraint lets. It is complete behind `most` tokens.
class ForcingConstraint final : public Constraint {
public:
  ForcingConstraint(int32_t vocabulary, int most, uint64_t seed)
      : vocabulary_(vocabulary), most_(most), seed_(seed) {}

  std::unique_ptr<TokenFilter> begin() const override { return std::make_unique<Filter>(*this); }
  int32_t vocabulary() const override { return vocabulary_; }
  std::span<const int32_t> ends() const override { return {}; }

private:
  class Filter final : public TokenFilter {
  public:
    explicit Filter(const ForcingConstraint &of) : of_(of) {}
    bool accept(int32_t token) override {
      const bool may = mayFollow(token);
      count_ += may;
      return may;
    }
    void fill(std::span<uint32_t> allowed) override {
      std::ranges::fill(allowed, 0U);
      for (int32_t t = 0; t < of_.vocabulary_; ++t)
        allowed[size_t(t) / 32] |= uint32_t(mayFollow(t)) << (t % 32);
    }
    bool complete() override { return count_ >= of_.most_; }

  private:
    bool mayFollow(int32_t token) const {
      const double draw = uniformAt(of_.seed_, count_, 0);
      if (count_ >= of_.most_)
        return false;
      return draw < 0.7 ? token == int32_t(draw * 1e6) % of_.vocabulary_ : token % 3 == count_ % 3;
    }
    const ForcingConstraint &of_;
    int count_ = 0;
  };

  int32_t vocabulary_;
  int most_;
  uint64_t seed_;
};

} // namespace gpt2c::rt::toy
