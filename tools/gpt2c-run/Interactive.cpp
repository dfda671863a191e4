// gpt2c-run -i: a text or a chat that grows by turns, one of the user and one of the model.
#include "runtime/text/TextGeneration.h"
#include "tools/gpt2c-run/Dialogue.h"
#include "tools/gpt2c-run/LineReader.h"
#include "tools/gpt2c-run/Run.h"
#include "tools/runtime-common/Files.h"
#include "tools/runtime-common/Report.h"
#include "tools/runtime-common/Table.h"

#include <algorithm>
#include <csignal>
#include <iostream>

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

constexpr const char *kTextHelp =
    R"(  TEXT          goes on behind the text so far; \ at the end of a line: another line follows
  //TEXT        the same for a text that begins with /
  (empty line)  the model goes on by itself
  /regen        another answer in place of the last one
  /read FILE    the text in FILE, without its last newline
  /clear        forget the text
  /exit         leave, as the end of the input does
  Ctrl-C        ends an answer, and leaves where there is none
)";

constexpr const char *kChatHelp =
    R"(  TEXT          says TEXT to the model; \ at the end of a line: another line follows
  //TEXT        the same for a text that begins with /
  /regen        another answer in place of the last one
  /read FILE    says the text in FILE, without its last newline
  /system TEXT  the system prompt from the next turn on; without TEXT there is none
  /clear        forget the chat; the system prompt stays
  /exit         leave, as the end of the input does
  Ctrl-C        ends an answer, and leaves where there is none
)";

class Conversation {
public:
  Conversation(rt::Session &session, const rt::Tokenizer &tokenizer, const GenerateFlags &flags,
               std::unique_ptr<Dialogue> dialogue)
      : session_(session), tokenizer_(tokenizer), flags_(flags), dialogue_(std::move(dialogue)),
        seed_(flags.sampling.seed) {}

  rt::Status run(const Prompts &prompts);

private:
  void greet() const;
  /// Text and commands joined from lines that end in a backslash; nothing at the end of the input.
  std::optional<std::string> readTurn();
  /// False leaves.
  rt::Result<bool> obey(std::string_view command);
  rt::Status say(std::string_view text);
  rt::Status regenerate();
  /// Generates behind the last turn and shows it. An error of the user's making is told, and takes
  /// the turn back.
  rt::Status answer();
  rt::Result<rt::TextGenerated> generate(const rt::Tokens &prompt);
  /// The tokens that an answer depends on: all, or with --slide what a full context leaves.
  rt::Result<rt::Tokens> window() const;
  rt::TextOptions options();

  rt::Session &session_;
  const rt::Tokenizer &tokenizer_;
  const GenerateFlags &flags_;
  std::unique_ptr<Dialogue> dialogue_;
  LineReader lines_;
  std::string shown_; ///< of the answer that grows
  uint64_t seed_;
};

} // namespace

std::optional<std::string> Conversation::readTurn() {
  std::optional<std::string> turn = lines_.read("> ");
  while (turn && turn->ends_with("\\")) {
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

rt::Result<rt::Tokens> Conversation::window() const {
  rt::Result<rt::Tokens> ids = dialogue_->prompt();
  const auto &kv = session_.plan().meta().kv;
  if (!ids || !kv || flags_.slide < 0)
    return ids;
  const int64_t most = kv->max_context - 1, length = int64_t(ids->size());
  if (length > most && flags_.slide < most) {
    const int64_t dropped = std::max(length - most, (length - flags_.slide) / 2);
    ids->erase(ids->begin() + flags_.slide, ids->begin() + flags_.slide + dropped);
  }
  return ids;
}

rt::TextOptions Conversation::options() {
  rt::TextOptions out;
  out.generate.maxNewTokens = flags_.newTokens;
  out.generate.minNewTokens = flags_.minTokens;
  out.generate.slide = flags_.slide;
  out.generate.stopTokens = flags_.stopIds;
  out.generate.sampling = {flags_.sampling};
  out.generate.sampling[0].seed = seed_;
  out.generate.keepsState = true;
  out.stops = flags_.stops;
  out.ignoreEos = flags_.ignoreEos;
  out.onToken = [this](size_t, const rt::Choice &, std::string_view piece) {
    shown_ += piece;
    std::cout << piece << std::flush;
    return !interrupted && std::cout;
  };
  out.onEnd = [this](size_t, rt::Finish, std::string_view rest) {
    shown_ += rest;
    std::cout << rest << std::endl;
  };
  return out;
}

rt::Result<rt::TextGenerated> Conversation::generate(const rt::Tokens &prompt) {
  shown_.clear();
  interrupted = 0;
  answering = 1;
  rt::Result<rt::TextGenerated> made = generateText(session_, &tokenizer_, {&prompt, 1}, options());
  answering = 0;
  return made;
}

static void printTurn(size_t promptTokens, const rt::TextGenerated &made) {
  const rt::TextAnswer &a = made.answers[0];
  const rt::Generated &g = made.generated;
  const double seconds = g.prefillSeconds + g.decodeSeconds;
  std::cerr << "[" << promptTokens << " + " << a.tokens.size() << " tokens, ";
  if (g.keptTokens)
    std::cerr << g.keptTokens << " of them kept, ";
  std::cerr << fixed(double(a.tokens.size()) / std::max(seconds, 1e-9), 1) << " tokens/s";
  if (interrupted)
    std::cerr << ", interrupted";
  if (a.finish == rt::Finish::Context)
    std::cerr << ", the context is full: /clear, or --slide=KEEP";
  std::cerr << "]\n";
}

rt::Status Conversation::answer() {
  const rt::Result<rt::Tokens> prompt = window();
  rt::Result<rt::TextGenerated> made =
      prompt ? generate(*prompt) : rt::Result<rt::TextGenerated>(prompt.status());
  if (!made && made.status().code() != rt::Code::Usage)
    return made.status();
  if (!made) {
    dialogue_->takeBack();
    std::cerr << "error: " << made.status().message() << "\n"
              << "note: this turn is taken back; /clear begins anew\n";
    return {};
  }
  dialogue_->answer(shown_);
  printTurn(prompt->size(), *made);
  return {};
}

rt::Status Conversation::say(std::string_view text) {
  if (!dialogue_->say(text)) {
    std::cerr << "note: there is no text to go on with yet\n";
    return {};
  }
  return answer();
}

rt::Status Conversation::regenerate() {
  if (!dialogue_->reopen()) {
    std::cerr << "note: there is no answer yet\n";
    return {};
  }
  if (flags_.sampling.isGreedy())
    std::cerr << "note: the most probable tokens are the same again; --temperature samples\n";
  ++seed_;
  return answer();
}

rt::Result<bool> Conversation::obey(std::string_view command) {
  auto goesOn = [](const rt::Status &s) {
    return s.ok() ? rt::Result<bool>(true) : rt::Result<bool>(s);
  };
  const size_t space = std::min(command.find(' '), command.size());
  const std::string_view name = command.substr(0, space);
  std::string argument(command.substr(space));
  argument.erase(0, argument.find_first_not_of(" \t"));
  argument.erase(argument.find_last_not_of(" \t") + 1);
  if (name == "/exit")
    return false;
  if (name == "/regen")
    return goesOn(regenerate());
  if (name == "/clear") {
    dialogue_->clear();
  } else if (name == "/system") {
    if (rt::Status s = dialogue_->instruct(argument); !s.ok())
      std::cerr << "error: " << s.message() << "\n";
  } else if (name == "/help") {
    std::cerr << (flags_.chat ? kChatHelp : kTextHelp);
  } else if (name == "/read" && !argument.empty()) {
    rt::Result<std::string> text = readInput(argument);
    if (text)
      return goesOn(say(std::string_view(*text).substr(0, text->size() - text->ends_with('\n'))));
    std::cerr << "error: " << text.status().message() << "\n";
  } else {
    std::cerr << "error: there is no command '" << command << "'; /help lists them, and //"
              << " begins a text with /\n";
  }
  return true;
}

void Conversation::greet() const {
  std::cerr << session_.backend().name() << "; " << (flags_.chat ? "a chat" : "one text")
            << " by turns; /help lists the commands\n";
  if (tokenizer_.texts().sampling && !flags_.advised)
    std::cerr << "note: the model's makers advise how to sample; --sampling=model does so\n";
}

rt::Status Conversation::run(const Prompts &prompts) {
  catchInterrupts();
  if (lines_.edits())
    greet();
  for (const PromptText &prompt : prompts.texts)
    if (rt::Status s = say(prompt.text); !s.ok())
      return s;
  while (std::optional<std::string> turn = readTurn()) {
    const std::string_view text = *turn;
    const bool isText = !text.starts_with("/") || text.starts_with("//");
    if (isText) {
      if (rt::Status s = say(text.substr(text.starts_with("//"))); !s.ok())
        return s;
    } else {
      rt::Result<bool> goesOn = obey(text);
      if (!goesOn)
        return goesOn.status();
      if (!*goesOn)
        break;
    }
    if (rt::Status s = flushStdout(); !s.ok())
      return s;
  }
  if (lines_.edits())
    std::cout << "\n"; // behind the prompt
  return {};
}

rt::Status interact(rt::Session &session, const rt::Tokenizer &tokenizer, const Prompts &prompts,
                    const GenerateFlags &flags) {
  std::unique_ptr<Dialogue> dialogue;
  if (flags.chat) {
    rt::Result<rt::Chat> chat = rt::Chat::of(tokenizer, flags.chatTemplate);
    if (!chat)
      return chat.status();
    dialogue = chatDialogue(chat.take(), flags.system);
  } else {
    dialogue = textDialogue(tokenizer, flags.addBos);
  }
  return Conversation(session, tokenizer, flags, std::move(dialogue)).run(prompts);
}

} // namespace gpt2c
