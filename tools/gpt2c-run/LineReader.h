// Lines from whoever sits in front of the tool: edited and remembered on a terminal, plain
// otherwise.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace gpt2c {

class LineReader {
public:
  /// Edits where standard input and output are a terminal. The history is kept in
  /// $XDG_STATE_HOME/gpt2c/history, or that below ~/.local/state, as far as it can be written.
  LineReader();
  ~LineReader();
  LineReader(const LineReader &) = delete;

  /// Whether lines are edited, and a prompt is shown ahead of each.
  bool edits() const { return editor_ != nullptr; }

  /// The next line without its end; nothing at the end of the input.
  std::optional<std::string> read(const char *prompt);

private:
  struct Editor;
  std::unique_ptr<Editor> editor_;
};

} // namespace gpt2c
