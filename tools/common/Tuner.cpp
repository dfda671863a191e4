#include "tools/common/Tuner.h"

#include "tools/common/RuntimeError.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"

#include <chrono>
#include <numeric>

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
constexpr int repetitions = 8, finalRepetitions = 40;
constexpr size_t finalists = 3;
/// Steps of the same key that are timed.
constexpr size_t stepsPerKey = 3;
/// What a choice has to gain, and a function may lose by chance.
constexpr double gain = 0.98, chance = 1.01;

double mean(llvm::ArrayRef<double> v) {
  return std::accumulate(v.begin(), v.end(), 0.0) / v.size();
}

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
    if (llvm::Error e = timeRounds(repetitions))
      return e;
    keepFinalists();
    if (llvm::Error e = timeRounds(finalRepetitions))
      return e;
    choose();
    return keepWhatPays();
  }

private:
  using Clock = std::chrono::steady_clock;
  using Samples = std::map<std::string, std::vector<double>>; ///< ms by choice

  /// All candidates of the ops that are not known yet and that some timed function has.
  llvm::Error collectTrials() {
    auto plan = compile([&](llvm::StringRef key, llvm::ArrayRef<std::string> names) {
      trials_.try_emplace(key.str(), names.begin(), names.end());
      return size_t(0);
    });
    if (!plan)
      return plan.takeError();
    std::set<std::string> timed;
    llvm::Error e = forEachFunction(**plan, [&](const plan::FunctionT &function, auto &&...) {
      for (const auto &step : function.steps)
        if (!table_.find(step->choice_key))
          timed.insert(step->choice_key);
      return llvm::Error::success();
    });
    std::erase_if(trials_, [&](const auto &trial) { return !timed.contains(trial.first); });
    return e;
  }

  /// Round i takes trial i of every op that has so many, round 0 the model's plan.
  llvm::Error timeRounds(int repetitions) {
    size_t most = 0;
    for (const auto &[key, trials] : trials_)
      most = std::max(most, trials.size());
    for (size_t round = 0; round < most; ++round) {
      const auto start = Clock::now();
      auto plan = compile([&](llvm::StringRef key, llvm::ArrayRef<std::string> names) {
        auto it = trials_.find(key.str());
        if (it == trials_.end())
          return TunedChoices(table_).choose(key, names);
        const std::string &name = it->second[round < it->second.size() ? round : 0];
        return size_t(llvm::find(names, name) - names.begin());
      });
      if (!plan)
        return plan.takeError();
      const auto loaded = Clock::now();
      auto wanted = [&](const plan::StepT &step) {
        auto it = trials_.find(step.choice_key);
        return it != trials_.end() && round < it->second.size();
      };
      if (llvm::Error e = timeSteps(**plan, wanted, repetitions))
        return e;
      if (round == 0) {
        before_.clear();
        if (llvm::Error e = timeFunctions(**plan, before_))
          return e;
      }
      auto seconds = [&](auto from, auto to) {
        return std::chrono::duration<double>(to - from).count();
      };
      report_("timed candidate " + llvm::Twine(round + 1) + " of " + llvm::Twine(most) +
              (detail_ ? llvm::formatv(": {0:f2} s to compile and load, {1:f2} s to time",
                                       seconds(start, loaded), seconds(loaded, Clock::now()))
                             .str()
                       : std::string()));
    }
    return llvm::Error::success();
  }

  /// Leaves of every op's trials the model's choice and the fastest others.
  void keepFinalists() {
    for (auto &[key, trials] : trials_) {
      const Samples &samples = times_[key];
      if (detail_)
        report_(timesOf(key, samples));
      const std::string model = trials.front();
      llvm::sort(trials, [&](const std::string &a, const std::string &b) {
        return std::pair(a != model, mean(samples.at(a))) <
               std::pair(b != model, mean(samples.at(b)));
      });
      trials.resize(std::min(trials.size(), finalists));
    }
    times_.clear();
  }

  llvm::Expected<std::unique_ptr<rt::Session>> compile(Chooser chooser) {
    options_.choose = std::move(chooser);
    return openGenerated(module_, options_, open_);
  }

  /// Calls f(function, prompts, past) with the largest call of every function of the KV state.
  template <typename F> llvm::Error forEachFunction(rt::Session &session, F f) {
    for (const auto &function : session.plan().meta().functions) {
      const bool decode = function->name == "decode";
      if (!session.plan().meta().kv || (!decode && function->name != "prefill"))
        continue;
      auto largest = [&](llvm::StringRef name) -> int64_t {
        for (const auto &symbol : function->symbols)
          if (symbol->name == name)
            return symbol->max;
        return 1;
      };
      const int64_t context = session.plan().meta().kv->max_context;
      rt::Tokens prompt(decode ? 1 : largest("seq"));
      std::iota(prompt.begin(), prompt.end(), 0);
      for (int32_t &id : prompt)
        id = int32_t(id * 7919ll % session.plan().meta().vocab_size);
      std::vector<rt::Tokens> prompts(largest("batch"), prompt);
      std::vector<int32_t> past(prompts.size(), decode ? int32_t(context / 2) : 0);
      if (llvm::Error e = f(*function, prompts, past))
        return e;
    }
    return llvm::Error::success();
  }

  llvm::Error timeSteps(rt::Session &session, rt::Backend::WantedSteps wanted, int repetitions) {
    return forEachFunction(
        session,
        [&](const plan::FunctionT &function, const auto &prompts, const auto &past) -> llvm::Error {
          std::map<std::string, size_t> seen;
          auto first = [&](const plan::StepT &step) {
            return wanted(step) && seen[step.choice_key]++ < stepsPerKey;
          };
          auto profile =
              session.backend().profile(function.name, prompts, past, repetitions, first);
          if (!profile)
            return toError(profile.status());
          for (const auto &time : profile->steps) {
            const plan::StepT &step = *profile->function->steps[time.step];
            times_[step.choice_key][step.choice].push_back(time.end - time.begin);
          }
          return llvm::Error::success();
        });
  }

  /// Milliseconds of each function as a whole, in the order of the plan.
  llvm::Error timeFunctions(rt::Session &session, std::vector<double> &out) {
    return forEachFunction(
        session,
        [&](const plan::FunctionT &function, const auto &prompts, const auto &past) -> llvm::Error {
          const plan::StepT *last = function.steps.back().get();
          auto profile =
              session.backend().profile(function.name, prompts, past, 2 * repetitions,
                                        [&](const plan::StepT &step) { return &step == last; });
          if (!profile)
            return toError(profile.status());
          out.push_back(profile->steps.empty() ? 0 : profile->steps.back().end);
          return llvm::Error::success();
        });
  }

  void choose() {
    for (auto &[key, choices] : times_) {
      const std::string &model = trials_[key].front();
      const double modelTime = mean(choices[model]);
      TuningTable::Entry best{model, modelTime * 1e3, modelTime * 1e3};
      // A time is the difference of two runs: one below zero is noise, and says of neither that it
      // is faster.
      for (auto &[name, samples] : choices)
        if (double time = mean(samples);
            time > 0 && time * 1e3 < best.microseconds && time < gain * modelTime)
          best = {name, time * 1e3, modelTime * 1e3};
      table_.set(key, best);
      if (detail_)
        report_("finally " + timesOf(key, choices));
    }
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

  /// Steps overlap, so that a faster step may have left its work to the next one. Functions that
  /// are not faster as a whole go back to the model's choices.
  llvm::Error keepWhatPays() {
    auto plan = compile([&](llvm::StringRef key, llvm::ArrayRef<std::string> names) {
      return TunedChoices(table_).choose(key, names);
    });
    if (!plan)
      return plan.takeError();
    std::vector<double> after;
    if (llvm::Error e = timeFunctions(**plan, after))
      return e;
    size_t i = 0;
    return forEachFunction(
        **plan,
        [&](const plan::FunctionT &function, const auto &prompts, const auto &) -> llvm::Error {
          const double from = before_[i], to = after[i];
          ++i;
          const bool slower = to > chance * from;
          size_t changed = 0;
          std::set<std::string> keys;
          for (const auto &step : function.steps)
            if (times_.contains(step->choice_key) && keys.insert(step->choice_key).second) {
              const std::string &model = trials_[step->choice_key].front();
              changed += step->choice != model;
              if (slower) {
                const double time = table_.find(step->choice_key)->modelMicroseconds;
                table_.set(step->choice_key, {model, time, time});
              }
            }
          report_(llvm::formatv(
                      "{0} batch {1}{2}: {3:f4} ms by the cost model, {4:f4} ms tuned, {5} of "
                      "{6} choices differ{7}",
                      function.name, prompts.size(),
                      function.name == "prefill" ? " tokens " + std::to_string(prompts[0].size())
                                                 : std::string(),
                      from, to, changed, keys.size(), slower ? "; not taken" : "")
                      .str());
          return llvm::Error::success();
        });
  }

  const Module &module_;
  CodegenOptions options_;
  TuningTable &table_;
  OpenBackend open_;
  llvm::function_ref<void(const llvm::Twine &)> report_;
  const bool detail_;
  std::map<std::string, std::vector<std::string>> trials_; ///< candidates by key
  std::map<std::string, Samples> times_;                   ///< by key
  std::vector<double> before_;
};

} // namespace

llvm::Error tune(const Module &module, CodegenOptions options, TuningTable &table, OpenBackend open,
                 llvm::function_ref<void(const llvm::Twine &)> report, bool detail) {
  options.progress = nullptr;
  return Tuner(module, std::move(options), table, open, report, detail).run();
}

} // namespace gpt2c
