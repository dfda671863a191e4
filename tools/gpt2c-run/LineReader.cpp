#include "tools/gpt2c-run/LineReader.h"

#include <clocale>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>

#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

namespace gpt2c {

struct LineReader::Editor {
  EditLine *line = nullptr;
  History *history = nullptr;
  HistEvent event{};
  std::string file; ///< empty: the history is not kept
  const char *prompt = "";

  Editor() {
    useUtf8();
    line = el_init("gpt2c-run", stdin, stdout, stderr);
    history = history_init();
    ::history(history, &event, H_SETSIZE, 1000);
    ::history(history, &event, H_SETUNIQUE, 1);
    el_set(line, EL_CLIENTDATA, this);
    el_set(
        line, EL_PROMPT, +[](EditLine *e) {
          Editor *self = nullptr;
          el_get(e, EL_CLIENTDATA, &self);
          return const_cast<char *>(self->prompt);
        });
    el_set(line, EL_EDITOR, "emacs");
    el_set(line, EL_HIST, ::history, history);
    el_source(line, nullptr); // ~/.editrc
    openHistory();
  }

  ~Editor() {
    history_end(history);
    el_end(line);
  }

  /// libedit reads characters by the locale; one that knows no more than ASCII would lose text.
  static void useUtf8() {
    std::setlocale(LC_CTYPE, "");
    if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0)
      std::setlocale(LC_CTYPE, "C.UTF-8");
  }

  void openHistory() {
    std::filesystem::path path;
    if (const char *state = std::getenv("XDG_STATE_HOME"); state && *state == '/')
      path = state;
    else if (const char *home = std::getenv("HOME"); home && *home == '/')
      path = std::filesystem::path(home) / ".local" / "state";
    else
      return;
    path /= "gpt2c";
    std::error_code error;
    if (std::filesystem::create_directories(path, error))
      std::filesystem::permissions(path, std::filesystem::perms::owner_all, error);
    if (error)
      return;
    file = (path / "history").string();
    ::history(history, &event, H_LOAD, file.c_str());
  }

  void remember(const char *text) {
    if (text[std::strspn(text, " \t\r\n")] == '\0')
      return;
    ::history(history, &event, H_ENTER, text);
    if (!file.empty())
      ::history(history, &event, H_SAVE, file.c_str());
  }
};

LineReader::LineReader() {
  if (isatty(STDIN_FILENO) && isatty(STDOUT_FILENO))
    editor_ = std::make_unique<Editor>();
}

LineReader::~LineReader() = default;

std::optional<std::string> LineReader::read(const char *prompt) {
  std::string text;
  if (!editor_) {
    if (!std::getline(std::cin, text))
      return std::nullopt;
  } else {
    editor_->prompt = prompt;
    int count = 0;
    const char *line = el_gets(editor_->line, &count);
    if (!line || count <= 0)
      return std::nullopt;
    editor_->remember(line);
    text.assign(line, size_t(count));
  }
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r'))
    text.pop_back();
  return text;
}

} // namespace gpt2c
