#include "ir/Error.h"
#include "tools/common/RuntimeError.h"
#include "tools/common/Tokens.h"
#include "tools/gpt2c-run/Run.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

namespace gpt2c {

namespace {

/// The prompts of a call and what becomes of them.
class Job {
public:
  Job(rt::Session &session, const GenerateFlags &flags) : session_(session), flags_(flags) {}

  llvm::Error prepare(const Prompts &prompts);
  llvm::Error run();
  void print();

private:
  llvm::Error addPrompts(const Prompts &prompts);
  rt::TextOptions options();

  rt::Session &session_;
  const GenerateFlags &flags_;
  std::optional<rt::Tokenizer> tokenizer_;
  std::vector<Answer> answers_;
  Outcome outcome_;
  OutputKind output_ = OutputKind::Text;
  bool shows_ = false; ///< the only answer is shown as it grows
};

} // namespace

llvm::Error Job::prepare(const Prompts &prompts) {
  auto tokenizer = openTokenizer(session_.plan(), flags_.tokenizer);
  if (!tokenizer)
    return tokenizer.takeError();
  tokenizer_ = std::move(*tokenizer);
  output_ = flags_.output;
  if (output_ == OutputKind::Auto)
    output_ = tokenizer_ ? OutputKind::Text : OutputKind::Ids;
  bool needsText = !prompts.texts.empty() || output_ == OutputKind::Text || !flags_.stops.empty();
  if (!tokenizer_ && needsText)
    return makeError(ExitCode::Usage,
                     "the plan has no tokenizer: use --ids and --output=ids, give --tokenizer, or "
                     "compile the plan with gpt2c --tokenizer");
  if (llvm::Error e = addPrompts(prompts))
    return e;
  shows_ = output_ == OutputKind::Text && answers_.size() == 1;
  return llvm::Error::success();
}

llvm::Error Job::addPrompts(const Prompts &prompts) {
  auto add = [&](std::string text, rt::Tokens ids) {
    Answer a;
    a.text = flags_.echo ? text : "";
    a.prompt = std::move(text);
    a.promptIds = std::move(ids);
    answers_.insert(answers_.end(), size_t(flags_.samples), a);
  };
  for (const std::string &text : prompts.texts) {
    add(text, tokenizer_->encode(text));
    if (answers_.back().promptIds.empty())
      return makeError(ExitCode::Usage, "a prompt is empty: there is nothing to continue");
  }
  for (const std::string &text : prompts.ids) {
    auto ids = parseIds(text);
    if (!ids)
      return inContext("--ids", ids.takeError());
    add(tokenizer_ ? tokenizer_->decode(*ids) : "", std::move(*ids));
  }
  return llvm::Error::success();
}

rt::TextOptions Job::options() {
  rt::TextOptions options;
  options.generate.maxNewTokens = flags_.newTokens;
  options.generate.slide = flags_.slide;
  options.generate.stopTokens = flags_.stopIds;
  options.stops = flags_.stops;
  options.ignoreEos = flags_.ignoreEos;
  for (size_t i = 0; i < answers_.size(); ++i) {
    options.generate.sampling.push_back(flags_.sampling);
    options.generate.sampling.back().seed += i % size_t(flags_.samples);
  }
  if (!shows_)
    return options;
  options.onToken = [](size_t, const rt::Choice &, std::string_view piece) {
    llvm::outs() << piece;
    llvm::outs().flush();
    return !llvm::outs().has_error();
  };
  options.onEnd = [](size_t, rt::Finish, std::string_view rest) { llvm::outs() << rest << "\n"; };
  return options;
}

llvm::Error Job::run() {
  if (!session_.hasKvState())
    llvm::errs() << "note: the plan has no KV state; every token runs the whole graph\n";
  std::vector<rt::Tokens> prompts;
  for (const Answer &a : answers_)
    prompts.push_back(a.promptIds);
  if (shows_)
    llvm::outs() << answers_[0].text; // the prompt, with --echo
  rt::Result<rt::TextGenerated> made =
      generateText(session_, tokenizer_ ? &*tokenizer_ : nullptr, prompts, options());
  if (!made)
    return toError(made.status());
  outcome_ = {session_.plan().meta().model_name, session_.backend().name(), flags_.loadSeconds,
              std::move(made->generated)};
  for (size_t i = 0; i < answers_.size(); ++i) {
    Answer &a = answers_[i];
    rt::TextAnswer &from = made->answers[i];
    a.finish = from.finish;
    a.text += from.text;
    if (from.stop >= 0)
      a.stop = flags_.stops[size_t(from.stop)];
    else if (from.finish == rt::Finish::Stop && tokenizer_)
      a.stop = std::string(tokenizer_->tokenBytes(from.tokens.back()));
    a.firstTokenSeconds = from.firstTokenSeconds;
    a.lastTokenSeconds = from.lastTokenSeconds;
    a.tokensPerSecond = from.tokensPerSecond();
    a.ids = std::move(from.tokens);
    a.chosen = std::move(from.choices);
  }
  return llvm::Error::success();
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
    printJson(answers_, outcome_, tokenizer_.has_value());
    break;
  case OutputKind::JsonLines:
    printJsonLines(answers_, tokenizer_.has_value());
    break;
  }
  const auto &kv = session_.plan().meta().kv;
  llvm::outs().flush();
  if (!llvm::outs().has_error())
    printSummary(answers_, outcome_, kv ? kv->max_context : 0);
}

llvm::Error generate(rt::Session &session, const Prompts &prompts, const GenerateFlags &flags) {
  Job job(session, flags);
  if (llvm::Error e = job.prepare(prompts))
    return e;
  if (llvm::Error e = job.run())
    return e;
  job.print();
  if (llvm::outs().has_error()) {
    std::string why = llvm::outs().error().message();
    llvm::outs().clear_error();
    return makeError(ExitCode::Io, "cannot write to stdout: " + why);
  }
  return llvm::Error::success();
}

} // namespace gpt2c
