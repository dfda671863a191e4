#include "tools/gpt2c-run/Run.h"

#include "tools/runtime-common/Json.h"
#include "tools/runtime-common/Table.h"

#include <iostream>

namespace gpt2c {

const char *finishReason(const Answer &answer) {
  return answer.finish == rt::Finish::Caller ? "stop" : rt::nameOf(answer.finish);
}

static Json objectOf(const Answer &a, bool texts) {
  if (!a.skipped.empty())
    return {{"skipped", a.skipped}};
  Json one{{"prompt_ids", a.promptIds},
           {"ids", a.ids},
           {"finish_reason", finishReason(a)},
           {"timings",
            {{"first_token_ms", a.firstTokenSeconds * 1e3},
             {"last_token_ms", a.lastTokenSeconds * 1e3},
             {"decode_tokens_per_s", a.tokensPerSecond ? Json(*a.tokensPerSecond) : Json()}}}};
  if (!a.stop.empty())
    one["stop_reason"] = a.stop;
  if (texts)
    one["text"] = a.text;
  if (a.chosen.empty())
    return one;
  Json logprobs = Json::array();
  for (const rt::Choice &c : a.chosen) {
    Json top = Json::array();
    for (const rt::TokenLogprob &t : c.top)
      top.push_back({{"id", t.token}, {"logprob", t.logprob}});
    logprobs.push_back({{"id", c.token}, {"logprob", c.logprob}, {"top", std::move(top)}});
  }
  one["logprobs"] = std::move(logprobs);
  return one;
}

static double rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

/// New tokens behind the first ones, per second of the steps that made them.
static double decodeRate(std::span<const Answer> answers, const rt::Generated &g) {
  size_t count = 0;
  for (const Answer &a : answers)
    count += a.ids.empty() ? 0 : a.ids.size() - 1;
  return rate(double(count), g.decodeSeconds);
}

void printJson(std::span<const Answer> answers, const Outcome &outcome, bool texts) {
  Json sequences = Json::array();
  for (const Answer &a : answers)
    sequences.push_back(objectOf(a, texts));
  const rt::Generated &g = outcome.generated;
  const Json root{{"model", outcome.model},
                  {"device", outcome.device},
                  {"sequences", std::move(sequences)},
                  {"timings",
                   {{"load_ms", outcome.loadSeconds * 1e3},
                    {"prefill_ms", g.prefillSeconds * 1e3},
                    {"decode_ms", g.decodeSeconds * 1e3},
                    {"decode_steps", g.decodeSteps},
                    {"decode_tokens_per_s", decodeRate(answers, g)}}}};
  std::cout << line(root);
}

void printJsonLines(std::span<const Answer> answers, bool texts) {
  for (size_t i = 0; i < answers.size(); ++i) {
    Json one = objectOf(answers[i], texts);
    one["index"] = i;
    std::cout << line(one);
  }
}

void printIds(std::span<const Answer> answers) {
  for (const Answer &a : answers) {
    for (size_t i = 0; i < a.ids.size(); ++i)
      std::cout << (i ? "," : "") << a.ids[i];
    std::cout << "\n";
  }
}

void printTexts(std::span<const Answer> answers) {
  for (size_t i = 0; i < answers.size(); ++i)
    if (answers[i].skipped.empty())
      std::cout << "[" << i + 1 << "] " << answers[i].text << "\n";
}

void printSummary(std::span<const Answer> answers, const Outcome &outcome, int64_t context) {
  size_t promptTokens = 0, full = 0, count = 0;
  for (const Answer &a : answers) {
    promptTokens += a.promptIds.size();
    full += a.finish == rt::Finish::Context;
    count += a.skipped.empty();
  }
  const rt::Generated &g = outcome.generated;
  std::ostream &os = std::cerr;
  if (count > 1)
    os << count << " sequences, ";
  os << promptTokens << " prompt tokens in " << fixed(g.prefillSeconds * 1e3, 2) << " ms";
  if (g.decodeSteps > 0)
    os << "; then " << fixed(decodeRate(answers, g), 1) << " tokens/s ("
       << fixed(g.decodeSeconds * 1e3 / double(g.decodeSteps), 3) << " ms a step)";
  os << "; " << outcome.device << "\n";
  if (full)
    os << "note: " << (count > 1 ? std::to_string(full) + " answers end" : "the answer ends")
       << " because the context of " << context << " tokens is full; --slide=KEEP goes on\n";
}

} // namespace gpt2c
