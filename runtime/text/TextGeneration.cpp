#include "runtime/text/TextGeneration.h"

#include "runtime/text/TextStream.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace gpt2c::rt {
namespace {

class Answers {
public:
  /// `room`: the most tokens that each answer can have.
  Answers(const Tokenizer *tokenizer, const TextOptions &options, std::vector<int32_t> ends,
          std::vector<int64_t> room)
      : tokenizer_(tokenizer), options_(options), ends_(std::move(ends)), room_(std::move(room)),
        answers_(room_.size()), streams_(room_.size(), TextStream(options.stops)),
        ended_(room_.size()) {}

  bool take(size_t index, const Choice &choice) {
    TextAnswer &a = answers_[index];
    a.lastTokenSeconds = std::chrono::duration<double>(Clock::now() - start_).count();
    if (a.tokens.empty())
      a.firstTokenSeconds = a.lastTokenSeconds;
    a.tokens.push_back(choice.token);
    if (wantsLogprobs(index))
      a.choices.push_back(choice);
    const bool ends = std::ranges::count(ends_, choice.token) > 0;
    TextStream &stream = streams_[index];
    std::string piece;
    if (tokenizer_ && !ends)
      piece = stream.push(tokenizer_->tokenBytes(choice.token));
    a.text += piece;
    a.stop = stream.stopIndex();
    const bool goesOn = !options_.onToken || options_.onToken(index, choice, piece);
    if (stream.stopped())
      end(index, Finish::Stop);
    else if (!goesOn)
      end(index, Finish::Caller);
    else if (ends)
      end(index, Finish::Stop);
    else if (int64_t(a.tokens.size()) >= options_.generate.maxNewTokens)
      end(index, Finish::Length);
    else if (int64_t(a.tokens.size()) >= room_[index])
      end(index, Finish::Context);
    return goesOn && !stream.stopped();
  }

  /// What the session says about those that no token ended, too.
  void endAll(const std::vector<Finish> &finish) {
    for (size_t i = 0; i < answers_.size(); ++i)
      if (!ended_[i])
        end(i, finish[i]);
  }

  std::vector<TextAnswer> release() { return std::move(answers_); }

private:
  void end(size_t index, Finish finish) {
    TextAnswer &a = answers_[index];
    ended_[index] = true;
    a.finish = finish;
    std::string rest = a.stop >= 0 ? "" : streams_[index].finish();
    a.text += rest;
    if (options_.onEnd)
      options_.onEnd(index, finish, rest);
  }

  bool wantsLogprobs(size_t index) const {
    const std::vector<SamplingParams> &all = options_.generate.sampling;
    return !all.empty() && all[all.size() == 1 ? 0 : index].logprobs >= 0;
  }

  using Clock = std::chrono::steady_clock;

  const Clock::time_point start_ = Clock::now();
  const Tokenizer *tokenizer_;
  const TextOptions &options_;
  std::vector<int32_t> ends_;
  std::vector<int64_t> room_;
  std::vector<TextAnswer> answers_;
  std::vector<TextStream> streams_;
  std::vector<bool> ended_;
};

} // namespace

std::optional<double> TextAnswer::tokensPerSecond() const {
  const double seconds = lastTokenSeconds - firstTokenSeconds;
  if (tokens.size() < 2 || !(seconds > 0))
    return std::nullopt;
  return double(tokens.size() - 1) / seconds;
}

int32_t endOfText(const Session &session, const Tokenizer *tokenizer) {
  const int32_t token = session.eosToken();
  return token < 0 && tokenizer ? tokenizer->eosToken() : token;
}

Result<TextGenerated> generateText(Session &session, const Tokenizer *tokenizer,
                                   std::span<const Tokens> prompts, const TextOptions &options) {
  if (!tokenizer && !options.stops.empty())
    return {Code::Usage, "stop strings need a tokenizer, and there is none"};
  if (std::ranges::count(options.stops, std::string()))
    return {Code::Usage, "a stop string is empty: it would end every answer before it begins"};
  GenerateOptions generate = options.generate;
  if (const int32_t eos = endOfText(session, tokenizer); eos >= 0 && !options.ignoreEos)
    generate.stopTokens.push_back(eos);
  // The last choice needs no room in the context.
  std::vector<int64_t> room(prompts.size(), INT64_MAX);
  if (session.hasKvState() && generate.slide < 0)
    for (size_t i = 0; i < prompts.size(); ++i)
      room[i] = session.plan().meta().kv->max_context - int64_t(prompts[i].size()) + 1;
  Answers answers(tokenizer, options, generate.stopTokens, std::move(room));
  generate.onToken = [&](size_t i, const Choice &choice) { return answers.take(i, choice); };
  Result<Generated> generated = session.generate(prompts, generate);
  if (!generated)
    return generated.status();
  answers.endAll(generated->finish);
  return TextGenerated{answers.release(), generated.take()};
}

} // namespace gpt2c::rt
