// Session::generate: prompts in groups of the plan's batch, each through the KV state, or through
// the whole graph where there is none.
#include "runtime/sampling/Logits.h"
#include "runtime/session/Session.h"

#include <algorithm>
#include <chrono>
#include <optional>

namespace gpt2c::rt {
namespace {

class Stopwatch {
public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// A prompt and what has become of it.
struct Sequence {
  size_t index = 0;               ///< of the prompt
  Tokens window;                  ///< the tokens that the next choice depends on
  int64_t given = 0;              ///< new tokens so far
  std::optional<Sampler> sampler; ///< none: the device's greedy choice
  std::optional<Finish> finish;
};

class Generation {
public:
  Generation(Session &session, std::span<const Tokens> prompts, const GenerateOptions &options)
      : session_(session), options_(options) {
    out_.tokens.resize(prompts.size());
    const AnswerBounds bounds{int32_t(session.plan().meta().vocab_size), options.minNewTokens,
                              options.stopTokens};
    for (size_t i = 0; i < prompts.size(); ++i) {
      Sequence &s = sequences_.emplace_back();
      s.index = i;
      s.window = prompts[i];
      const SamplingParams p = options.sampling.empty()
                                   ? SamplingParams()
                                   : options.sampling[options.sampling.size() == 1 ? 0 : i];
      if (Sampler::isNeeded(p, bounds))
        s.sampler.emplace(p, prompts[i], bounds);
    }
  }

  Result<Generated> run() {
    bool cached = session_.hasKvState();
    size_t most = cached ? size_t(session_.plan().meta().kv->max_batch) : 1;
    for (size_t i = 0; i < sequences_.size(); i += most) {
      std::span<Sequence> group(sequences_.data() + i, std::min(most, sequences_.size() - i));
      if (Status s = cached ? runCached(group) : runWhole(group[0]); !s.ok())
        return s;
    }
    for (const Sequence &s : sequences_)
      out_.finish.push_back(*s.finish);
    return std::move(out_);
  }

private:
  using Running = std::vector<Sequence *>;

  /// Tokens that a window may have: the context's, and without a KV state the last choice's too.
  int64_t context() const {
    return session_.hasKvState() ? session_.plan().meta().kv->max_context : INT64_MAX;
  }

  /// Whether the caller wants no more; then all sequences that have not ended have.
  bool interrupted() {
    if (!options_.goesOn || options_.goesOn())
      return false;
    for (Sequence &s : sequences_)
      if (!s.finish)
        s.finish = Finish::Caller;
    return true;
  }

  void add(Sequence &s, const Choice &choice) {
    s.window.push_back(choice.token);
    ++s.given;
    out_.tokens[s.index].push_back(choice.token);
    if (options_.onToken && !options_.onToken(s.index, choice))
      s.finish = Finish::Caller;
    else if (choice.completes || std::ranges::count(options_.stopTokens, choice.token))
      s.finish = Finish::Stop;
    else if (s.given >= options_.maxNewTokens)
      s.finish = Finish::Length;
  }

  /// The token behind a sequence from what the device made: `next`, or `logits` where it samples.
  Status addNext(Sequence &s, int32_t next, std::span<const float> logits) {
    if (s.finish)
      return {};
    if (!s.sampler) {
      add(s, {.token = next});
      return {};
    }
    Result<Choice> choice = s.sampler->choose(logits);
    if (!choice)
      return {choice.status().code(),
              "sequence " + std::to_string(s.index + 1) + ": " + choice.status().message()};
    add(s, *choice);
    return {};
  }

  Status addStep(const Running &running, const StepOutput &step) {
    size_t width = step.logits.size() / running.size();
    for (size_t b = 0; b < running.size(); ++b)
      if (Status s =
              addNext(*running[b], step.next[b], std::span(step.logits).subspan(b * width, width));
          !s.ok())
        return s;
    return {};
  }

  static Status checkStep(const Running &running, const StepOutput &step) {
    const size_t width = step.logits.size() / running.size();
    for (size_t b = 0; b < running.size(); ++b)
      if (Status s = checkLogits(std::span(step.logits).subspan(b * width, width),
                                 int64_t(running[b]->index), int64_t(running[b]->window.size()));
          !s.ok())
        return s;
    return {};
  }

  static bool samples(const Running &running) {
    return std::ranges::any_of(running, [](Sequence *s) { return s->sampler && !s->finish; });
  }

  /// Drops what has ended, and ends or cuts what fills the context.
  void regroup(Running &running) {
    std::erase_if(running, [](Sequence *s) { return s->finish.has_value(); });
    for (Sequence *s : running) {
      int64_t length = int64_t(s->window.size());
      if (length <= context())
        continue;
      if (options_.slide < 0) {
        s->finish = Finish::Context;
        continue;
      }
      int64_t dropped = std::max<int64_t>(length - context(), (length - options_.slide) / 2);
      s->window.erase(s->window.begin() + options_.slide,
                      s->window.begin() + options_.slide + dropped);
    }
    std::erase_if(running, [](Sequence *s) { return s->finish.has_value(); });
  }

  /// Tokens of a window that need not be computed; the last one is, for the logits behind it.
  int32_t keptOf(const Running &running) const {
    if (!options_.keepsState || sequences_.size() != 1 || session_.lengths().size() != 1)
      return 0;
    const Tokens &window = running[0]->window;
    const std::span<const int32_t> held = session_.held(0);
    const auto end = std::ranges::mismatch(window, held).in1;
    return int32_t(std::min<int64_t>(end - window.begin(), int64_t(window.size()) - 1));
  }

  Status runCached(std::span<Sequence> group) {
    Running running;
    for (Sequence &s : group)
      running.push_back(&s);
    for (bool first = true; !running.empty() && !interrupted(); first = false) {
      Stopwatch time;
      const int32_t kept = keptOf(running);
      std::vector<Tokens> windows;
      for (Sequence *s : running)
        windows.emplace_back(s->window.begin() + kept, s->window.end());
      if (first)
        out_.keptTokens = kept;
      const std::vector<int32_t> past(running.size(), kept);
      // The logits behind the prompts are looked at even where the device chooses.
      Result<StepOutput> step = session_.prefill(windows, past, first || samples(running));
      if (!step)
        return step.status();
      if (Status s = checkStep(running, *step); !s.ok())
        return s;
      if (Status s = addStep(running, *step); !s.ok())
        return s;
      (first ? out_.prefillSeconds : out_.decodeSeconds) += time.seconds();
      out_.decodeSteps += !first;
      Stopwatch decodeTime;
      if (Status s = decode(running); !s.ok())
        return s;
      out_.decodeSeconds += decodeTime.seconds();
      regroup(running);
    }
    return {};
  }

  /// Steps until all have ended or one, ended or not, fills the context.
  Status decode(const Running &running) {
    for (;;) {
      int64_t left = 0, longest = *std::ranges::max_element(session_.lengths());
      for (Sequence *s : running)
        if (!s->finish)
          left = std::max(left, options_.maxNewTokens - s->given);
      int64_t steps = std::min(left, context() - longest);
      if (steps == 0 || interrupted())
        return {};
      if (samples(running)) {
        if (Status s = sampledStep(running); !s.ok())
          return s;
        continue;
      }
      steps = std::min<int64_t>(steps, session_.backend().decodeChunk());
      Result<std::vector<Tokens>> more = session_.decode(int(steps));
      if (!more)
        return more.status();
      out_.decodeSteps += steps;
      for (const Tokens &next : *more)
        for (size_t b = 0; b < running.size(); ++b)
          if (Status s = addNext(*running[b], next[b], {}); !s.ok())
            return s;
    }
  }

  Status sampledStep(const Running &running) {
    Tokens last;
    for (Sequence *s : running)
      last.push_back(s->window.back());
    Result<StepOutput> step = session_.step(last, true);
    if (!step)
      return step.status();
    ++out_.decodeSteps;
    return addStep(running, *step);
  }

  Status runWhole(Sequence &s) {
    for (bool first = true; !s.finish && !interrupted(); first = false) {
      Stopwatch time;
      Result<HostTensor> all = session_.lastLogits(s.window);
      // A graph that ran one token fewer has no further positions.
      if (!all && all.status().code() == Code::Unsupported && s.given > 0) {
        s.finish = Finish::Context;
        return {};
      }
      if (!all)
        return all.status();
      std::span<const float> logits = all->values<float>().last(size_t(all->shape.back()));
      if (Status status = checkLogits(logits, int64_t(s.index), int64_t(s.window.size()));
          !status.ok())
        return status;
      if (!s.sampler)
        s.sampler.emplace(SamplingParams(), s.window);
      if (Status status = addNext(s, -1, logits); !status.ok())
        return status;
      (first ? out_.prefillSeconds : out_.decodeSeconds) += time.seconds();
      out_.decodeSteps += !first;
    }
    return {};
  }

  Session &session_;
  const GenerateOptions &options_;
  std::vector<Sequence> sequences_;
  Generated out_;
};

} // namespace

Status Session::checkGeneration(std::span<const Tokens> prompts,
                                const GenerateOptions &options) const {
  if (options.maxNewTokens < 1)
    return Status(Code::Usage, std::to_string(options.maxNewTokens) +
                                   " new tokens are asked for: at least one is needed");
  if (prompts.empty())
    return Status(Code::Usage, "no sequence is given");
  if (plan_->meta().batch_invariant && !hasKvState())
    return needsKvState();
  if (options.sampling.size() > 1 && options.sampling.size() != prompts.size())
    return Status(Code::Usage, std::to_string(options.sampling.size()) +
                                   " sets of sampling parameters are given for " +
                                   std::to_string(prompts.size()) + " prompts");
  for (const SamplingParams &p : options.sampling)
    if (Status s = checkSampling(p, plan_->meta().vocab_size); !s.ok())
      return s;
  int64_t context = plan_->meta().kv ? plan_->meta().kv->max_context : INT64_MAX;
  if (options.slide >= 0 && options.slide > context / 2)
    return Status(Code::Usage, "sliding keeps " + std::to_string(options.slide) +
                                   " tokens; at most half of the context of " +
                                   std::to_string(context) + " can be kept");
  for (size_t b = 0; b < prompts.size(); ++b) {
    std::string what = "prompt " + std::to_string(b + 1);
    if (prompts[b].empty())
      return Status(Code::Usage, what + " is empty: at least one token is needed");
    if (Status s = checkIds(prompts[b], what); !s.ok())
      return s;
    if (Status s = checkLength(int64_t(prompts[b].size()), what); !s.ok())
      return s;
  }
  return {};
}

Result<Generated> Session::generate(std::span<const Tokens> prompts,
                                    const GenerateOptions &options) {
  if (Status s = checkGeneration(prompts, options); !s.ok())
    return s;
  return Generation(*this, prompts, options).run();
}

} // namespace gpt2c::rt
