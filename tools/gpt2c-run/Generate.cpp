#include "runtime/session/SavedState.h"
#include "tools/gpt2c-run/Dialogue.h"
#include "tools/gpt2c-run/Run.h"
#include "tools/runtime-common/Report.h"
#include "tools/runtime-common/Tokens.h"

#include <algorithm>
#include <iostream>

namespace gpt2c {

namespace {

/// The prompts of a call and what becomes of them.
class Job {
public:
  Job(rt::Session &session, const rt::Tokenizer *tokenizer, const GenerateFlags &flags)
      : session_(session), tokenizer_(tokenizer), flags_(flags) {}

  rt::Status prepare(const Prompts &prompts);
  rt::Status run();
  void print();

private:
  rt::Status addPrompts(const Prompts &prompts);
  rt::Result<rt::Tokens> read(const std::string &prompt) const;
  /// Why a line of --prompt-lines has no answer; empty: it has one.
  std::string whyNot(const rt::Tokens &prompt) const;
  rt::TextOptions options(std::span<Answer *const> answers);

  rt::Session &session_;
  const rt::Tokenizer *tokenizer_; ///< null: there is none
  const GenerateFlags &flags_;
  std::optional<rt::Chat> chat_; ///< where prompts are turns of one
  std::vector<Answer> answers_;
  Outcome outcome_;
  OutputKind output_ = OutputKind::Text;
  bool shows_ = false; ///< the only answer is shown as it grows
};

} // namespace

rt::Status Job::prepare(const Prompts &prompts) {
  output_ = flags_.output;
  if (output_ == OutputKind::Auto)
    output_ = tokenizer_ ? OutputKind::Text : OutputKind::Ids;
  bool needsText = !prompts.texts.empty() || output_ == OutputKind::Text || !flags_.stops.empty();
  if (!tokenizer_ && needsText)
    return {rt::Code::Usage,
            "the plan has no tokenizer: use --ids and --output=ids, give --tokenizer, or "
            "compile the plan with gpt2c --tokenizer"};
  if (flags_.chat) {
    rt::Result<rt::Chat> chat = rt::Chat::of(*tokenizer_, flags_.chatTemplate);
    if (!chat)
      return chat.status();
    chat_ = chat.take();
  }
  if (rt::Status s = addPrompts(prompts); !s.ok())
    return s;
  shows_ = output_ == OutputKind::Text && answers_.size() == 1;
  return {};
}

std::string Job::whyNot(const rt::Tokens &prompt) const {
  if (prompt.empty())
    return "it is blank";
  const auto &kv = session_.plan().meta().kv;
  if (kv && int64_t(prompt.size()) > kv->max_context)
    return "it has " + std::to_string(prompt.size()) + " tokens, the plan's context is " +
           std::to_string(kv->max_context);
  return {};
}

rt::Result<rt::Tokens> Job::read(const std::string &prompt) const {
  if (chat_)
    return chat_->tokens(openingOf(flags_.system, prompt));
  return tokenizer_->encode(prompt, {.addBos = flags_.addBos});
}

rt::Status Job::addPrompts(const Prompts &prompts) {
  auto add = [&](std::string text, rt::Tokens ids, std::string skipped) {
    Answer a;
    a.text = flags_.echo ? text : "";
    a.prompt = std::move(text);
    if (skipped.empty())
      a.promptIds = std::move(ids);
    a.skipped = std::move(skipped);
    answers_.insert(answers_.end(), size_t(flags_.samples), a);
  };
  std::string last;
  for (const PromptText &prompt : prompts.texts) {
    const bool blank =
        !prompt.line.empty() && prompt.text.find_first_not_of(" \t") == std::string::npos;
    rt::Result<rt::Tokens> given = blank ? rt::Result<rt::Tokens>(rt::Tokens()) : read(prompt.text);
    if (!given)
      return given.status();
    rt::Tokens ids = given.take();
    std::string skipped;
    if (!prompt.line.empty())
      skipped = whyNot(ids);
    else if (ids.empty())
      return {rt::Code::Usage, "a prompt is empty: there is nothing to continue"};
    if (!skipped.empty()) {
      last = prompt.line + " is skipped: " + skipped;
      std::cerr << "note: " << last << "\n";
    }
    add(prompt.text, std::move(ids), std::move(skipped));
  }
  for (const std::string &text : prompts.ids) {
    rt::Result<rt::Tokens> ids = idsOf(text);
    if (!ids)
      return inContext("--ids", ids.status());
    add(tokenizer_ ? tokenizer_->decode(*ids) : "", ids.take(), "");
  }
  if (std::ranges::all_of(answers_, [](const Answer &a) { return !a.skipped.empty(); }))
    return {rt::Code::Usage,
            "no line of --prompt-lines can be continued" + (last.empty() ? "" : "; " + last)};
  return {};
}

rt::TextOptions Job::options(std::span<Answer *const> answers) {
  rt::TextOptions options;
  options.generate.maxNewTokens = flags_.newTokens;
  options.generate.minNewTokens = flags_.minTokens;
  options.generate.slide = flags_.slide;
  options.generate.keepsState = !flags_.loadState.empty();
  options.generate.stopTokens = flags_.stopIds;
  options.stops = flags_.stops;
  options.ignoreEos = flags_.ignoreEos;
  for (const Answer *a : answers) {
    options.generate.sampling.push_back(flags_.sampling);
    options.generate.sampling.back().seed += size_t(a - answers_.data()) % size_t(flags_.samples);
  }
  if (!shows_)
    return options;
  options.onToken = [](size_t, const rt::Choice &, std::string_view piece) {
    std::cout << piece << std::flush;
    return bool(std::cout);
  };
  options.onEnd = [](size_t, rt::Finish, std::string_view rest) { std::cout << rest << "\n"; };
  return options;
}

rt::Status Job::run() {
  if (!session_.hasKvState())
    std::cerr << "note: the plan has no KV state; every token runs the whole graph\n";
  std::vector<Answer *> answers;
  std::vector<rt::Tokens> prompts;
  for (Answer &a : answers_)
    if (a.skipped.empty()) {
      answers.push_back(&a);
      prompts.push_back(a.promptIds);
    }
  if (shows_)
    std::cout << answers_[0].text; // the prompt, with --echo
  rt::Result<rt::TextGenerated> made =
      generateText(session_, tokenizer_, prompts, options(answers));
  if (!made)
    return made.status();
  if (!flags_.loadState.empty())
    std::cerr << "note: the state had " << made->generated.keptTokens << " of the "
              << prompts[0].size() << " tokens of the prompt\n";
  outcome_ = {session_.plan().meta().model_name, session_.backend().name(), flags_.loadSeconds,
              std::move(made->generated)};
  for (size_t i = 0; i < answers.size(); ++i) {
    Answer &a = *answers[i];
    rt::TextAnswer &from = made->answers[i];
    a.finish = from.finish;
    a.text += from.text;
    if (from.stop >= 0)
      a.stop = flags_.stops[size_t(from.stop)];
    else if (from.finish == rt::Finish::Stop && tokenizer_ && !from.complete)
      a.stop = std::string(tokenizer_->tokenBytes(from.tokens.back()));
    a.firstTokenSeconds = from.firstTokenSeconds;
    a.lastTokenSeconds = from.lastTokenSeconds;
    a.tokensPerSecond = from.tokensPerSecond();
    a.ids = std::move(from.tokens);
    a.chosen = std::move(from.choices);
  }
  return {};
}

void Job::print() {
  switch (output_) {
  case OutputKind::Auto:
  case OutputKind::Text:
    if (!shows_)
      printTexts(answers_);
    break;
  case OutputKind::Ids:
    printIds(answers_);
    break;
  case OutputKind::Json:
    printJson(answers_, outcome_, tokenizer_ != nullptr);
    break;
  case OutputKind::JsonLines:
    printJsonLines(answers_, tokenizer_ != nullptr);
    break;
  }
  const auto &kv = session_.plan().meta().kv;
  if (std::cout.flush())
    printSummary(answers_, outcome_, kv ? kv->max_context : 0);
}

rt::Status generate(rt::Session &session, const rt::Tokenizer *tokenizer, const Prompts &prompts,
                    const GenerateFlags &flags) {
  Job job(session, tokenizer, flags);
  if (rt::Status s = job.prepare(prompts); !s.ok())
    return s;
  if (!flags.loadState.empty() && prompts.texts.size() + prompts.ids.size() != 1)
    return {rt::Code::Usage, "--load-state goes with one prompt"};
  if (!flags.loadState.empty())
    if (rt::Status s = rt::restoreState(session, flags.loadState); !s.ok())
      return inContext("--load-state", s);
  if (rt::Status s = job.run(); !s.ok())
    return s;
  job.print();
  if (!flags.saveState.empty())
    if (rt::Status s = rt::saveState(session, flags.saveState); !s.ok())
      return inContext("--save-state", s);
  return flushStdout();
}

} // namespace gpt2c
