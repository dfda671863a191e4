// Calls of tools in the text of an answer, by the form that a family of models writes them in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gpt2c::serve {

enum class ToolFormat {
  None,
  Hermes,  ///< <tool_call>{"name":..,"arguments":..}</tool_call>; Qwen's, too
  Llama3,  ///< an answer that is {"name":..,"parameters":..}, several between semicolons
  Mistral, ///< [TOOL_CALLS] and a list of calls, or name[ARGS]{..}
};

/// The form that the model's chat template speaks of; None where it speaks of none.
ToolFormat toolFormatOf(std::string_view chatTemplate);

/// What is around the JSON of a call's arguments, of the tool that is so called.
struct CallForm {
  std::string begin, end;
};
CallForm formOfCall(ToolFormat format, std::string_view name);

struct ToolCall {
  std::string name;
  std::string arguments; ///< JSON
};

/// Parts an answer, as it grows, into content and calls. What only looks like a call is content.
class ToolStream {
public:
  explicit ToolStream(ToolFormat format) : format_(format) {}

  struct Piece {
    std::string content;
    std::vector<ToolCall> calls;
  };
  /// Takes the next text of the answer.
  Piece push(std::string_view text);
  /// What was held back, of an answer that has ended.
  Piece finish();

private:
  void step(Piece &piece);
  bool beginsCall(Piece &piece);

  ToolFormat format_;
  std::string held_;
  bool inCall_ = false;
  bool begun_ = false; ///< content came, or a call
  bool called_ = false;
};

} // namespace gpt2c::serve
