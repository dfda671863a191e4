#include "tools/common/tuning/TuningDescent.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"

#include <cmath>
#include <optional>
#include <set>

namespace gpt2c {

namespace {

/// Keys that are less than this of a function stay as they are.
constexpr double leastShare = 0.03;
/// What a choice has to gain, beside two standard errors; what it may lose to be tried again.
constexpr double wins = 0.997, close = 1.015;
constexpr int sweeps = 2;

class Descent {
public:
  Descent(llvm::ArrayRef<SharesByKey> functions,
          const std::map<std::string, std::vector<std::string>> &candidates, ChoicesByKey best,
          CompareChoices compare)
      : functions_(functions), candidates_(candidates), best_(std::move(best)), compare_(compare) {
    for (const SharesByKey &shares : functions) {
      std::vector<std::pair<double, std::string>> keys;
      for (const auto &[key, share] : shares)
        if (share >= leastShare && candidates.contains(key))
          keys.emplace_back(-share, key);
      llvm::sort(keys);
      order_.push_back(std::move(keys));
    }
  }

  llvm::Expected<ChoicesByKey> run() {
    std::set<std::string> changed;
    for (int sweep = 0; sweep < sweeps; ++sweep) {
      const std::set<std::string> before = std::move(changed);
      changed.clear();
      tried_ = hopeless_;
      for (;;) {
        std::vector<Trial> trials = next(sweep > 0 ? &before : nullptr);
        if (trials.empty())
          break;
        if (llvm::Error e = attempt(trials, changed))
          return e;
      }
    }
    return best_;
  }

private:
  using Trial = std::pair<std::string, std::string>; ///< key and choice

  /// Trials that share no function. With `changed`, only of functions in which another key than the
  /// one to be tried is among these.
  std::vector<Trial> next(const std::set<std::string> *changed) const {
    std::vector<bool> busy(functions_.size());
    std::vector<Trial> trials;
    for (size_t f = 0; f < functions_.size(); ++f) {
      std::optional<Trial> trial = busy[f] ? std::nullopt : untried(f, changed);
      if (!trial)
        continue;
      auto has = [&](size_t other) { return functions_[other].contains(trial->first); };
      auto all = llvm::seq<size_t>(0, functions_.size());
      if (llvm::any_of(all, [&](size_t other) { return busy[other] && has(other); }))
        continue; // waits for its turn
      for (size_t other : all)
        busy[other] = busy[other] || has(other);
      trials.push_back(std::move(*trial));
    }
    return trials;
  }

  std::optional<Trial> untried(size_t f, const std::set<std::string> *changed) const {
    for (const auto &[share, key] : order_[f]) {
      auto isNew = [&, &key = key](const std::string &other) {
        return other != key && functions_[f].contains(other);
      };
      if (changed && llvm::none_of(*changed, isNew))
        continue;
      for (const std::string &choice : candidates_.at(key))
        if (choice != best_.at(key) && !tried_.contains({key, choice}))
          return Trial(key, choice);
    }
    return std::nullopt;
  }

  llvm::Error attempt(llvm::ArrayRef<Trial> trials, std::set<std::string> &changed) {
    ChoicesByKey trial = best_;
    for (const auto &[key, choice] : trials)
      trial[key] = choice;
    auto ratios = compare_(best_, trial);
    if (!ratios)
      return ratios.takeError();
    for (const auto &[key, choice] : trials) {
      const TimeRatio ratio = ratioOf(key, *ratios);
      tried_.insert({key, choice});
      if (ratio.mean + 2 * ratio.error < wins) {
        tried_.insert({key, best_.at(key)});
        best_[key] = choice;
        changed.insert(key);
      } else if (ratio.mean > close) {
        hopeless_.insert({key, choice});
      }
    }
    return llvm::Error::success();
  }

  /// The mean of the functions that the key matters to.
  TimeRatio ratioOf(const std::string &key, llvm::ArrayRef<TimeRatio> ratios) const {
    double mean = 0, variance = 0;
    int count = 0;
    for (const auto &[shares, ratio] : llvm::zip_equal(functions_, ratios)) {
      auto share = shares.find(key);
      if (share == shares.end() || share->second < leastShare)
        continue;
      mean += ratio.mean;
      variance += ratio.error * ratio.error;
      ++count;
    }
    return {mean / count, std::sqrt(variance) / count};
  }

  llvm::ArrayRef<SharesByKey> functions_;
  const std::map<std::string, std::vector<std::string>> &candidates_;
  ChoicesByKey best_;
  CompareChoices compare_;
  std::vector<std::vector<std::pair<double, std::string>>> order_; ///< of each function's keys
  std::set<Trial> tried_, hopeless_;                               ///< in this sweep; in any
};

} // namespace

llvm::Expected<ChoicesByKey>
descend(llvm::ArrayRef<SharesByKey> functions,
        const std::map<std::string, std::vector<std::string>> &candidates, ChoicesByKey best,
        CompareChoices compare) {
  return Descent(functions, candidates, std::move(best), compare).run();
}

} // namespace gpt2c
