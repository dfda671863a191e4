#include "tools/common/tuning/Tuner.h"

#include "tools/common/RuntimeError.h"
#include "tools/common/tuning/FunctionTimes.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"

#include <chrono>

namespace gpt2c {

TuningTable readTuning(llvm::StringRef path, llvm::ArrayRef<std::string> archs) {
  auto ignored = [&](const llvm::Twine &why) {
    llvm::errs() << "note: the tuning file '" << path << "' is ignored: " << why << "\n";
    return TuningTable(archs.empty() ? "" : archs.front());
  };
  auto file = llvm::MemoryBuffer::getFile(path, true);
  if (!file)
    return ignored(file.getError().message());
  auto table = TuningTable::parse((*file)->getBuffer());
  if (!table)
    return ignored(llvm::toString(table.takeError()));
  if (!llvm::is_contained(archs, table->arch()))
    return ignored("it is for " + table->arch() + ", the plan for " +
                   (archs.empty() ? "no GPU" : llvm::join(archs, ", ")));
  return std::move(*table);
}

void reportStale(llvm::StringRef path, const TunedChoices &choices) {
  if (choices.stale().empty())
    return;
  llvm::errs() << "note: the tuning file '" << path << "' is stale: " << choices.stale().size()
               << " of its choices are no candidates of this compiler and are ignored: "
               << llvm::join(choices.stale(), "; ") << "\n";
}

namespace {

/// Runs of everything for one time of one step, which is then good to half a microsecond; runs
/// where the fastest are timed again, and how many these are.
constexpr int firstRepetitions = 8, finalRepetitions = 40;
constexpr size_t finalists = 6;
/// Steps of the same key that are timed.
constexpr size_t stepsPerKey = 3;
/// What a choice has to gain alone, and a function may lose by chance.
constexpr double gain = 0.98, chance = 1.005;

class Tuner {
public:
  Tuner(const Module &module, CodegenOptions options, TuningTable &table, OpenBackend open,
        llvm::function_ref<void(const llvm::Twine &)> report, bool detail)
      : module_(module), options_(std::move(options)), table_(table), open_(open), report_(report),
        detail_(detail) {}

  llvm::Error run() {
    if (llvm::Error e = collectTrials())
      return e;
    if (trials_.empty())
      return llvm::Error::success();
    if (llvm::Error e = timeRounds(firstRepetitions))
      return e;
    keepFastest(finalists);
    times_.clear();
    if (llvm::Error e = timeRounds(finalRepetitions))
      return e;
    keepFastest(finalists);
    return chooseTogether();
  }

private:
  using Clock = std::chrono::steady_clock;
  using Samples = std::map<std::string, std::vector<double>>; ///< ms by choice
  using SessionPtr = std::unique_ptr<rt::Session>;

  /// All candidates of the ops that are not known yet and that some timed function has.
  llvm::Error collectTrials() {
    auto plan = openWith([&](llvm::StringRef key, llvm::ArrayRef<std::string> names) {
      trials_.try_emplace(key.str(), names.begin(), names.end());
      return size_t(0);
    });
    if (!plan)
      return plan.takeError();
    std::set<std::string> timed;
    calls_ = largestCalls(**plan);
    for (const LargestCall &call : calls_) {
      std::set<std::string> keys;
      for (const auto &step : (*plan)->backend().functions()[call.function]->steps)
        if (trials_.contains(step->choice_key) && !table_.find(step->choice_key))
          keys.insert(step->choice_key);
      timed.insert(keys.begin(), keys.end());
      keys_.push_back(std::move(keys));
    }
    std::erase_if(trials_, [&](const auto &trial) { return !timed.contains(trial.first); });
    for (const auto &[key, names] : trials_)
      model_[key] = names.front();
    return llvm::Error::success();
  }

  /// Round i takes trial i of every op that has so many, round 0 the model's plan.
  llvm::Error timeRounds(int repetitions) {
    size_t most = 0;
    for (const auto &[key, trials] : trials_)
      most = std::max(most, trials.size());
    for (size_t round = 0; round < most; ++round) {
      const auto start = Clock::now();
      ChoicesByKey choices;
      for (const auto &[key, trials] : trials_)
        choices[key] = trials[round < trials.size() ? round : 0];
      auto plan = compile(choices);
      if (!plan)
        return plan.takeError();
      const auto loaded = Clock::now();
      auto wanted = [&](const plan::StepT &step) {
        auto it = trials_.find(step.choice_key);
        return it != trials_.end() && round < it->second.size();
      };
      if (llvm::Error e = timeSteps(**plan, wanted, repetitions))
        return e;
      reportRound("timed candidate " + llvm::Twine(round + 1) + " of " + llvm::Twine(most), start,
                  loaded);
    }
    return llvm::Error::success();
  }

  void reportRound(const llvm::Twine &what, Clock::time_point start, Clock::time_point loaded) {
    auto seconds = [](auto from, auto to) {
      return std::chrono::duration<double>(to - from).count();
    };
    report_(what + (detail_ ? llvm::formatv(": {0:f2} s to compile and load, {1:f2} s to time",
                                            seconds(start, loaded), seconds(loaded, Clock::now()))
                                  .str()
                            : std::string()));
  }

  /// Leaves of every op's trials the model's choice and the fastest others, in this order.
  void keepFastest(size_t most) {
    for (auto &[key, trials] : trials_) {
      const Samples &samples = times_[key];
      if (detail_)
        report_(timesOf(key, samples));
      // A list may lack a candidate where what is in front of the op is another than the model's.
      std::erase_if(trials, [&](const std::string &name) { return !samples.contains(name); });
      const std::string &model = model_.at(key);
      llvm::sort(trials, [&](const std::string &a, const std::string &b) {
        return std::pair(a != model, mean(samples.at(a))) <
               std::pair(b != model, mean(samples.at(b)));
      });
      trials.resize(std::min(trials.size(), most));
    }
  }

  llvm::Expected<SessionPtr> openWith(Chooser chooser) {
    options_.choose = std::move(chooser);
    return openGenerated(module_, options_, open_);
  }

  /// With these choices, and the table's where there are none.
  llvm::Expected<SessionPtr> compile(const ChoicesByKey &choices) {
    return openWith([&](llvm::StringRef key, llvm::ArrayRef<std::string> names) {
      auto it = choices.find(key.str());
      if (it == choices.end())
        return TunedChoices(table_).choose(key, names);
      const auto *name = llvm::find(names, it->second);
      return name == names.end() ? size_t(0) : size_t(name - names.begin());
    });
  }

  llvm::Error timeSteps(rt::Session &session, rt::Backend::WantedSteps wanted, int repetitions) {
    for (const LargestCall &call : calls_) {
      std::map<std::string, size_t> seen;
      auto first = [&](const plan::StepT &step) {
        return wanted(step) && seen[step.choice_key]++ < stepsPerKey;
      };
      auto profile =
          session.backend().profile(call.name, call.prompts, call.past, repetitions, first);
      if (!profile)
        return toError(profile.status());
      for (const auto &time : profile->steps) {
        const plan::StepT &step = *profile->function->steps[time.step];
        times_[step.choice_key][step.choice].push_back(time.end - time.begin);
      }
    }
    return llvm::Error::success();
  }

  double timeOf(const std::string &key, const std::string &choice) {
    return mean(times_[key].at(choice));
  }

  /// The finalist that is the fastest alone, by key.
  ChoicesByKey fastestAlone() {
    ChoicesByKey out = model_;
    for (const auto &[key, trials] : trials_) {
      double best = gain * timeOf(key, model_.at(key));
      // A time is the difference of two runs: one below zero is noise, and says of neither that it
      // is faster.
      for (const std::string &name : trials)
        if (double time = timeOf(key, name); time > 0 && time < best) {
          best = time;
          out[key] = name;
        }
    }
    return out;
  }

  /// What of each function's time every key's steps are.
  std::vector<SharesByKey> sharesOf(rt::Session &session, llvm::ArrayRef<double> milliseconds) {
    std::vector<SharesByKey> out(calls_.size());
    for (size_t i = 0; i < calls_.size(); ++i)
      for (const auto &step : session.backend().functions()[calls_[i].function]->steps)
        if (keys_[i].contains(step->choice_key) && times_[step->choice_key].contains(step->choice))
          out[i][step->choice_key] +=
              std::max(0.0, timeOf(step->choice_key, step->choice)) / milliseconds[i];
    return out;
  }

  /// The plan of the model's choices beside that of others.
  llvm::Expected<CallTimes> compareWithModel(const ChoicesByKey &others,
                                             std::vector<SharesByKey> *shares) {
    auto model = compile(model_);
    if (!model)
      return model.takeError();
    auto other = compile(others);
    if (!other)
      return other.takeError();
    auto times =
        compareCalls(**model, **other, calls_, [&](size_t i) { return !keys_[i].empty(); });
    if (times && shares)
      *shares = sharesOf(**model, times->first);
    return times;
  }

  /// Gives those functions the model's choices back that take more than `most` of its time.
  void giveBack(llvm::ArrayRef<TimeRatio> ratios, double most, ChoicesByKey &choices) {
    for (const auto &[keys, ratio] : llvm::zip_equal(keys_, ratios))
      for (const std::string &key : keys)
        if (ratio.mean > most)
          choices[key] = model_.at(key);
  }

  /// Steps overlap: a faster one may have left its work to the next, or taken its place on the
  /// SMs. So whole functions decide what stands.
  llvm::Error chooseTogether() {
    ChoicesByKey begin = fastestAlone();
    std::vector<SharesByKey> shares;
    auto times = compareWithModel(begin, &shares);
    if (!times)
      return times.takeError();
    if (detail_)
      reportFunctions("by single steps", begin, *times, 1);
    giveBack(times->ratios, 1, begin);

    for (auto &[key, trials] : trials_)
      llvm::sort(trials, [&, &key = key](const std::string &a, const std::string &b) {
        return timeOf(key, a) < timeOf(key, b);
      });
    auto found = descend(
        shares, trials_, std::move(begin),
        [&](const ChoicesByKey &best, const ChoicesByKey &trial) { return compare(best, trial); });
    standing_ = nullptr; // memory of the device
    if (!found)
      return found.takeError();

    auto end = compareWithModel(*found, nullptr);
    if (!end)
      return end.takeError();
    reportFunctions("tuned", *found, *end, chance);
    giveBack(end->ratios, chance, *found);
    for (const auto &[key, choice] : *found)
      table_.set(key, {choice, std::max(0.0, timeOf(key, choice) * 1e3),
                       std::max(0.0, timeOf(key, model_.at(key)) * 1e3)});
    return llvm::Error::success();
  }

  llvm::Expected<std::vector<TimeRatio>> compare(const ChoicesByKey &best,
                                                 const ChoicesByKey &trial) {
    const auto start = Clock::now();
    if (!standing_ || standingChoices_ != best) {
      standing_ = nullptr;
      auto plan = compile(best);
      if (!plan)
        return plan.takeError();
      standing_ = std::move(*plan);
      standingChoices_ = best;
    }
    auto candidate = compile(trial);
    if (!candidate)
      return candidate.takeError();
    const auto loaded = Clock::now();
    auto differs = [&](size_t i) {
      return llvm::any_of(keys_[i],
                          [&](const std::string &key) { return best.at(key) != trial.at(key); });
    };
    auto times = compareCalls(*standing_, **candidate, calls_, differs);
    if (!times)
      return times.takeError();
    reportRound("timed functions with other choices, " + llvm::Twine(++comparisons_), start,
                loaded);
    if (detail_)
      reportTrials(best, trial, times->ratios);
    return std::move(times->ratios);
  }

  void reportFunctions(llvm::StringRef how, const ChoicesByKey &choices, const CallTimes &times,
                       double most) {
    for (size_t i = 0; i < calls_.size(); ++i) {
      if (keys_[i].empty())
        continue;
      size_t changed = 0;
      for (const std::string &key : keys_[i]) {
        changed += choices.at(key) != model_.at(key);
        if (detail_ && choices.at(key) != model_.at(key))
          report_(key + ": " + choices.at(key) + " instead of " + model_.at(key));
      }
      report_(llvm::formatv("{0}: {1:f4} ms by the cost model, {2:f4} ms {3}, {4} of {5} choices "
                            "differ{6}",
                            calls_[i].describe(), times.first[i], times.second[i], how, changed,
                            keys_[i].size(), times.ratios[i].mean > most ? "; not taken" : "")
                  .str());
    }
  }

  void reportTrials(const ChoicesByKey &best, const ChoicesByKey &trial,
                    llvm::ArrayRef<TimeRatio> ratios) {
    for (size_t i = 0; i < calls_.size(); ++i)
      for (const std::string &key : keys_[i])
        if (best.at(key) != trial.at(key))
          report_(llvm::formatv("{0}: {1}: {2} instead of {3} takes {4:f4} +- {5:f4} of the time",
                                calls_[i].describe(), key, trial.at(key), best.at(key),
                                ratios[i].mean, ratios[i].error)
                      .str());
  }

  /// Every candidate of an op, the fastest first.
  static std::string timesOf(llvm::StringRef key, const Samples &choices) {
    std::vector<std::pair<double, std::string>> sorted;
    for (const auto &[name, samples] : choices)
      sorted.emplace_back(mean(samples), name);
    llvm::sort(sorted);
    std::string line = key.str() + ":";
    for (const auto &[time, name] : sorted)
      line +=
          llvm::formatv("{0} {1} {2:f2} us", time == sorted[0].first ? "" : ",", name, time * 1e3);
    return line;
  }

  const Module &module_;
  CodegenOptions options_;
  TuningTable &table_;
  OpenBackend open_;
  llvm::function_ref<void(const llvm::Twine &)> report_;
  const bool detail_;
  std::vector<LargestCall> calls_;
  std::vector<std::set<std::string>> keys_;                ///< on trial, by call
  std::map<std::string, std::vector<std::string>> trials_; ///< candidates by key
  ChoicesByKey model_;
  std::map<std::string, Samples> times_; ///< by key
  SessionPtr standing_;                  ///< the plan of the choices that stand for now
  ChoicesByKey standingChoices_;
  int comparisons_ = 0;
};

} // namespace

llvm::Error tune(const Module &module, CodegenOptions options, TuningTable &table, OpenBackend open,
                 llvm::function_ref<void(const llvm::Twine &)> report, bool detail) {
  options.progress = nullptr;
  return Tuner(module, std::move(options), table, open, report, detail).run();
}

} // namespace gpt2c
