#include "runtime/text/TextGeneration.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace gpt2c::rt {
namespace {

class Answers {
public:
  /// `rules`: of each answer.
  Answers(const Tokenizer *tokenizer, const TextOptions &options, std::span<AnswerRules> rules)
      : options_(options), answers_(rules.size()) {
    for (AnswerRules &r : rules)
      streams_.emplace_back(std::move(r), tokenizer);
  }

  /// False where the session cannot know that the answer has ended.
  bool take(size_t index, const Choice &choice) {
    AnswerPiece piece = streams_[index].push(choice);
    add(index, piece);
    const bool goesOn = !options_.onToken || options_.onToken(index, choice, piece.text);
    if (!goesOn && !piece.finish) {
      piece = streams_[index].end(Finish::Caller);
      add(index, piece);
      end(index, piece);
    } else if (piece.finish) {
      end(index, {.finish = piece.finish}); // onToken has had its text
    }
    return goesOn && piece.stopString < 0;
  }

  /// What the session says about those that no token ended, too.
  void endAll(const std::vector<Finish> &finish) {
    for (size_t i = 0; i < answers_.size(); ++i)
      if (!streams_[i].ended()) {
        const AnswerPiece piece = streams_[i].end(finish[i]);
        add(i, piece);
        end(i, piece);
      }
  }

  std::vector<TextAnswer> release() { return std::move(answers_); }

private:
  void add(size_t index, const AnswerPiece &piece) {
    const double seconds = std::chrono::duration<double>(Clock::now() - start_).count();
    answers_[index].add(piece, seconds, wantsLogprobs(index));
  }

  void end(size_t index, const AnswerPiece &piece) {
    if (options_.onEnd)
      options_.onEnd(index, *piece.finish, piece.text);
  }

  bool wantsLogprobs(size_t index) const {
    const std::vector<SamplingParams> &all = options_.generate.sampling;
    return !all.empty() && all[all.size() == 1 ? 0 : index].logprobs >= 0;
  }

  using Clock = std::chrono::steady_clock;

  const Clock::time_point start_ = Clock::now();
  const TextOptions &options_;
  std::vector<TextAnswer> answers_;
  std::vector<AnswerStream> streams_;
};

} // namespace

std::optional<double> TextAnswer::tokensPerSecond() const {
  const double seconds = lastTokenSeconds - firstTokenSeconds;
  if (tokens.size() < 2 || !(seconds > 0))
    return std::nullopt;
  return double(tokens.size() - 1) / seconds;
}

void TextAnswer::add(const AnswerPiece &piece, double seconds, bool wantsLogprobs) {
  text += piece.text;
  if (piece.choice) {
    complete = piece.choice->completes && piece.stopToken < 0;
    lastTokenSeconds = seconds;
    if (tokens.empty())
      firstTokenSeconds = seconds;
    tokens.push_back(piece.choice->token);
    if (wantsLogprobs)
      choices.push_back(*piece.choice);
  }
  if (piece.finish) {
    finish = *piece.finish;
    stop = piece.stopString;
  }
}

std::vector<int32_t> endsOfText(int32_t eosToken, const Tokenizer *tokenizer) {
  std::vector<int32_t> ends;
  if (tokenizer)
    ends = tokenizer->texts().ends;
  if (eosToken >= 0 && !std::ranges::count(ends, eosToken))
    ends.insert(ends.begin(), eosToken);
  return ends;
}

std::vector<Tokens> badWordsOf(const Tokenizer &tokenizer, std::span<const std::string> words) {
  std::vector<Tokens> out;
  for (const std::string &word : words) {
    const size_t begin = std::min(word.find_first_not_of(' '), word.size());
    for (const char *space : {"", " "}) {
      Tokens tokens = tokenizer.encode(space + word.substr(begin), {.allowSpecial = false});
      if (!tokens.empty() && std::ranges::count(out, tokens) == 0)
        out.push_back(std::move(tokens));
    }
  }
  return out;
}

SamplingParams advisedSampling(const SamplingAdvice &advice) {
  SamplingParams out{.repetitionPenalty = advice.repetitionPenalty};
  if (!advice.sample)
    return out;
  out.temperature = advice.temperature;
  out.topK = advice.topK;
  out.topP = advice.topP;
  out.minP = advice.minP;
  return out;
}

Result<TextGenerated> generateText(Session &session, const Tokenizer *tokenizer,
                                   std::span<const Tokens> prompts, const TextOptions &options) {
  if (!tokenizer && !options.stops.empty())
    return {Code::Usage, "stop strings need a tokenizer, and there is none"};
  if (std::ranges::count(options.stops, std::string()))
    return {Code::Usage, "a stop string is empty: it would end every answer before it begins"};
  GenerateOptions generate = options.generate;
  if (!options.ignoreEos)
    for (const int32_t end : endsOfText(session, tokenizer))
      generate.stopTokens.push_back(end);
  // Without a KV state the graph says at which token its context is full.
  const bool endsByContext = session.hasKvState() && generate.slide < 0;
  std::vector<AnswerRules> rules;
  for (const Tokens &prompt : prompts) {
    AnswerRules &r = rules.emplace_back(AnswerRules{.maxTokens = generate.maxNewTokens,
                                                    .minTokens = generate.minNewTokens,
                                                    .stopTokens = generate.stopTokens,
                                                    .stops = options.stops});
    if (endsByContext)
      r.room = roomBehind(int64_t(prompt.size()), session.plan().meta().kv->max_context);
  }
  Answers answers(tokenizer, options, rules);
  generate.onToken = [&](size_t i, const Choice &choice) { return answers.take(i, choice); };
  Result<Generated> generated = session.generate(prompts, generate);
  if (!generated)
    return generated.status();
  answers.endAll(generated->finish);
  return TextGenerated{answers.release(), generated.take()};
}

} // namespace gpt2c::rt
