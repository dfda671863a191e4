#include "tools/gpt2c-run/Run.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>

namespace gpt2c {

llvm::StringRef finishReason(const Answer &answer) {
  switch (answer.finish) {
  case rt::Finish::Length:
    return "length";
  case rt::Finish::Context:
    return "context";
  case rt::Finish::Stop:
  case rt::Finish::Caller:
    return "stop";
  }
  llvm_unreachable("all reasons are named");
}

static llvm::json::Array arrayOf(const rt::Tokens &tokens) {
  llvm::json::Array values;
  for (int32_t t : tokens)
    values.push_back(t);
  return values;
}

/// JSON has no infinities: the log probability of a token that cannot come is null.
static llvm::json::Value number(double x) {
  return std::isfinite(x) ? llvm::json::Value(x) : llvm::json::Value(nullptr);
}

static llvm::json::Object objectOf(const Answer &a, bool texts) {
  llvm::json::Object one{
      {"prompt_ids", arrayOf(a.promptIds)},
      {"ids", arrayOf(a.ids)},
      {"finish_reason", finishReason(a)},
      {"timings", llvm::json::Object{{"first_token_ms", a.firstTokenSeconds * 1e3},
                                     {"last_token_ms", a.lastTokenSeconds * 1e3},
                                     {"decode_tokens_per_s", a.tokensPerSecond}}}};
  if (!a.stop.empty())
    one["stop_reason"] = llvm::json::fixUTF8(a.stop);
  if (texts)
    one["text"] = llvm::json::fixUTF8(a.text);
  if (a.chosen.empty())
    return one;
  llvm::json::Array logprobs;
  for (const rt::Choice &c : a.chosen) {
    llvm::json::Array top;
    for (const rt::TokenLogprob &t : c.top)
      top.push_back(llvm::json::Object{{"id", t.token}, {"logprob", number(t.logprob)}});
    logprobs.push_back(llvm::json::Object{
        {"id", c.token}, {"logprob", number(c.logprob)}, {"top", std::move(top)}});
  }
  one["logprobs"] = std::move(logprobs);
  return one;
}

static double rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

/// New tokens behind the first ones, per second of the steps that made them.
static double decodeRate(llvm::ArrayRef<Answer> answers, const rt::Generated &g) {
  size_t count = 0;
  for (const Answer &a : answers)
    count += a.ids.size() - 1;
  return rate(double(count), g.decodeSeconds);
}

void printJson(llvm::ArrayRef<Answer> answers, const Outcome &outcome, bool texts) {
  llvm::json::Array sequences;
  for (const Answer &a : answers)
    sequences.push_back(objectOf(a, texts));
  const rt::Generated &g = outcome.generated;
  llvm::json::Object root{
      {"model", llvm::json::fixUTF8(outcome.model)},
      {"device", llvm::json::fixUTF8(outcome.device)},
      {"sequences", std::move(sequences)},
      {"timings", llvm::json::Object{{"load_ms", outcome.loadSeconds * 1e3},
                                     {"prefill_ms", g.prefillSeconds * 1e3},
                                     {"decode_ms", g.decodeSeconds * 1e3},
                                     {"decode_steps", g.decodeSteps},
                                     {"decode_tokens_per_s", decodeRate(answers, g)}}}};
  llvm::outs() << llvm::json::Value(std::move(root)) << "\n";
}

void printJsonLines(llvm::ArrayRef<Answer> answers, bool texts) {
  for (size_t i = 0; i < answers.size(); ++i) {
    llvm::json::Object one = objectOf(answers[i], texts);
    one["index"] = int64_t(i);
    llvm::outs() << llvm::json::Value(std::move(one)) << "\n";
  }
}

void printIds(llvm::ArrayRef<Answer> answers) {
  for (const Answer &a : answers) {
    for (size_t i = 0; i < a.ids.size(); ++i)
      llvm::outs() << (i ? "," : "") << a.ids[i];
    llvm::outs() << "\n";
  }
}

void printTexts(llvm::ArrayRef<Answer> answers) {
  for (size_t i = 0; i < answers.size(); ++i)
    llvm::outs() << "[" << i + 1 << "] " << answers[i].text << "\n";
}

void printSummary(llvm::ArrayRef<Answer> answers, const Outcome &outcome, int64_t context) {
  size_t promptTokens = 0, full = 0;
  for (const Answer &a : answers) {
    promptTokens += a.promptIds.size();
    full += a.finish == rt::Finish::Context;
  }
  const rt::Generated &g = outcome.generated;
  llvm::raw_ostream &os = llvm::errs();
  if (answers.size() > 1)
    os << answers.size() << " sequences, ";
  os << promptTokens << " prompt tokens in " << llvm::format("%.2f ms", g.prefillSeconds * 1e3);
  if (g.decodeSteps > 0)
    os << llvm::format("; then %.1f tokens/s (%.3f ms a step)", decodeRate(answers, g),
                       g.decodeSeconds * 1e3 / double(g.decodeSteps));
  os << "; " << outcome.device << "\n";
  if (full)
    os << "note: "
       << (answers.size() > 1 ? std::to_string(full) + " answers end" : "the answer ends")
       << " because the context of " << context << " tokens is full; --slide=KEEP goes on\n";
}

} // namespace gpt2c
