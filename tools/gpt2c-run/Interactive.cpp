// gpt2c-run -i: a text that grows by turns, one of the user and one of the model.
#include "ir/Error.h"
#include "runtime/text/TextGeneration.h"
#include "tools/common/CommandLine.h"
#include "tools/common/RuntimeError.h"
#include "tools/common/Tokens.h"
#include "tools/gpt2c-run/LineReader.h"
#include "tools/gpt2c-run/Run.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <csignal>

#include <termios.h>
#include <unistd.h>

namespace gpt2c {

namespace {

volatile std::sig_atomic_t answering = 0, interrupted = 0;
termios terminal;
bool hasTerminal = false;

/// Ctrl-C: ends the answer that grows, and the program where none does or it was asked to before.
void onInterrupt(int) {
  if (answering && !interrupted) {
    interrupted = 1;
    return;
  }
  if (hasTerminal)
    tcsetattr(STDIN_FILENO, TCSANOW, &terminal); // line editing changes it
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, "\n", 1);
  _exit(130);
}

void catchInterrupts() {
  hasTerminal = tcgetattr(STDIN_FILENO, &terminal) == 0;
  struct sigaction action{};
  action.sa_handler = onInterrupt;
  action.sa_flags = SA_RESTART;
  sigaction(SIGINT, &action, nullptr);
}

constexpr const char *kHelp =
    R"(  TEXT          goes on behind the text so far; \ at the end of a line: another line follows
  //TEXT        the same for a text that begins with /
  (empty line)  the model goes on by itself
  /regen        another answer in place of the last one
  /read FILE    the text in FILE, without its last newline
  /clear        forget the text
  /exit         leave, as the end of the input does
  Ctrl-C        ends an answer, and leaves where there is none
)";

class Conversation {
public:
  Conversation(rt::Session &session, const rt::Tokenizer &tokenizer, const GenerateFlags &flags)
      : session_(session), tokenizer_(tokenizer), flags_(flags), seed_(flags.sampling.seed) {}

  llvm::Error run(const Prompts &prompts);

private:
  /// Text and commands joined from lines that end in a backslash; nothing at the end of the input.
  std::optional<std::string> readTurn();
  /// False leaves.
  llvm::Expected<bool> obey(llvm::StringRef command);
  llvm::Error say(llvm::StringRef text);
  llvm::Error regenerate();
  /// Generates behind text_ and shows it. An error of the user's making is told, and leaves the
  /// text as it was ahead of this turn.
  llvm::Error answer();
  rt::Tokens window() const;
  rt::TextOptions options();

  rt::Session &session_;
  const rt::Tokenizer &tokenizer_;
  const GenerateFlags &flags_;
  LineReader lines_;
  std::string text_;       ///< all turns
  size_t answerBegin_ = 0; ///< of the last answer in text_
  size_t turnBegin_ = 0;   ///< of the last turn
  bool hasAnswer_ = false;
  uint64_t seed_;
};

} // namespace

std::optional<std::string> Conversation::readTurn() {
  std::optional<std::string> turn = lines_.read("> ");
  while (turn && llvm::StringRef(*turn).ends_with("\\")) {
    turn->back() = '\n';
    std::optional<std::string> more = lines_.read(". ");
    if (!more) {
      turn->pop_back();
      break;
    }
    *turn += *more;
  }
  return turn;
}

/// The tokens that an answer depends on: all, or with --slide what a full context leaves.
rt::Tokens Conversation::window() const {
  rt::Tokens ids = tokenizer_.encode(text_);
  const auto &kv = session_.plan().meta().kv;
  if (!kv || flags_.slide < 0)
    return ids;
  const int64_t most = kv->max_context - 1, length = int64_t(ids.size());
  if (length > most && flags_.slide < most) {
    const int64_t dropped = std::max(length - most, (length - flags_.slide) / 2);
    ids.erase(ids.begin() + flags_.slide, ids.begin() + flags_.slide + dropped);
  }
  return ids;
}

rt::TextOptions Conversation::options() {
  rt::TextOptions out;
  out.generate.maxNewTokens = flags_.newTokens;
  out.generate.slide = flags_.slide;
  out.generate.stopTokens = flags_.stopIds;
  out.generate.sampling = {flags_.sampling};
  out.generate.sampling[0].seed = seed_;
  out.stops = flags_.stops;
  out.ignoreEos = flags_.ignoreEos;
  out.onToken = [this](size_t, const rt::Choice &, std::string_view piece) {
    text_ += piece;
    llvm::outs() << piece;
    llvm::outs().flush();
    return !interrupted && !llvm::outs().has_error();
  };
  out.onEnd = [this](size_t, rt::Finish, std::string_view rest) {
    text_ += rest;
    llvm::outs() << rest << "\n";
    llvm::outs().flush();
  };
  return out;
}

llvm::Error Conversation::answer() {
  answerBegin_ = text_.size();
  const rt::Tokens prompt = window();
  interrupted = 0;
  answering = 1;
  rt::Result<rt::TextGenerated> made = generateText(session_, &tokenizer_, {&prompt, 1}, options());
  answering = 0;
  if (!made && made.status().code() != rt::Code::Usage)
    return toError(made.status());
  if (!made) {
    text_.resize(turnBegin_);
    hasAnswer_ = false;
    llvm::errs() << "error: " << made.status().message() << "\n"
                 << "note: this turn is taken back; /clear begins a new text\n";
    return llvm::Error::success();
  }
  hasAnswer_ = true;
  const rt::TextAnswer &a = made->answers[0];
  const rt::Generated &g = made->generated;
  const double seconds = g.prefillSeconds + g.decodeSeconds;
  llvm::errs() << "[" << prompt.size() << " + " << a.tokens.size() << " tokens, "
               << llvm::format("%.1f tokens/s", double(a.tokens.size()) / std::max(seconds, 1e-9));
  if (interrupted)
    llvm::errs() << ", interrupted";
  if (a.finish == rt::Finish::Context)
    llvm::errs() << ", the context is full: /clear, or --slide=KEEP";
  llvm::errs() << "]\n";
  return llvm::Error::success();
}

llvm::Error Conversation::say(llvm::StringRef text) {
  turnBegin_ = text_.size();
  if (text.empty() && text_.empty()) {
    llvm::errs() << "note: there is no text to go on with yet\n";
    return llvm::Error::success();
  }
  if (!text_.empty() && !text.empty())
    text_ += "\n";
  text_ += text;
  return answer();
}

llvm::Error Conversation::regenerate() {
  if (!hasAnswer_) {
    llvm::errs() << "note: there is no answer yet\n";
    return llvm::Error::success();
  }
  if (flags_.sampling.isGreedy())
    llvm::errs() << "note: the most probable tokens are the same again; --temperature samples\n";
  ++seed_;
  text_.resize(answerBegin_);
  return answer();
}

llvm::Expected<bool> Conversation::obey(llvm::StringRef command) {
  auto goesOn = [](llvm::Error e) {
    return e ? llvm::Expected<bool>(std::move(e)) : llvm::Expected<bool>(true);
  };
  auto [name, argument] = command.split(' ');
  argument = argument.trim();
  if (name == "/exit")
    return false;
  if (name == "/regen")
    return goesOn(regenerate());
  if (name == "/clear") {
    text_.clear();
    hasAnswer_ = false;
  } else if (name == "/help") {
    llvm::errs() << kHelp;
  } else if (name == "/read" && !argument.empty()) {
    auto buffer = llvm::MemoryBuffer::getFile(argument);
    if (buffer) {
      llvm::StringRef text = (*buffer)->getBuffer();
      text.consume_back("\n");
      return goesOn(say(text));
    }
    llvm::errs() << "error: cannot read '" << argument << "': " << buffer.getError().message()
                 << "\n";
  } else {
    llvm::errs() << "error: there is no command '" << command << "'; /help lists them, and //"
                 << " begins a text with /\n";
  }
  return true;
}

llvm::Error Conversation::run(const Prompts &prompts) {
  catchInterrupts();
  if (lines_.edits())
    llvm::errs() << session_.backend().name() << "; /help lists the commands\n";
  for (const std::string &text : prompts.texts)
    if (llvm::Error e = say(text))
      return e;
  while (std::optional<std::string> turn = readTurn()) {
    llvm::StringRef text = *turn;
    const bool isText = !text.starts_with("/") || text.starts_with("//");
    if (isText) {
      if (llvm::Error e = say(text.starts_with("//") ? text.drop_front() : text))
        return e;
    } else {
      auto goesOn = obey(text);
      if (!goesOn)
        return goesOn.takeError();
      if (!*goesOn)
        break;
    }
    if (llvm::outs().has_error()) {
      const std::string why = llvm::outs().error().message();
      llvm::outs().clear_error();
      return makeError(ExitCode::Io, "cannot write to stdout: " + why);
    }
  }
  if (lines_.edits())
    llvm::outs() << "\n"; // behind the prompt
  return llvm::Error::success();
}

llvm::Error interact(rt::Session &session, const Prompts &prompts, const GenerateFlags &flags) {
  auto tokenizer = openTokenizer(session.plan(), flags.tokenizer);
  if (!tokenizer)
    return tokenizer.takeError();
  if (!*tokenizer)
    return makeError(ExitCode::Usage, "the plan has no tokenizer, which -i needs: give "
                                      "--tokenizer, or compile the plan with gpt2c --tokenizer");
  return Conversation(session, **tokenizer, flags).run(prompts);
}

} // namespace gpt2c
