#include "server/requests/ToolCalls.h"

#include "server/http/Fields.h"

#include <algorithm>
#include <optional>

namespace gpt2c::serve {

namespace json = boost::json;

namespace {

constexpr std::string_view kHermesBegin = "<tool_call>", kHermesEnd = "</tool_call>";
constexpr std::string_view kMistral = "[TOOL_CALLS]", kMistralArguments = "[ARGS]";
constexpr std::string_view kPythonTag = "<|python_tag|>";
constexpr std::string_view kSpace = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kSpace), text.size()));
  return text.substr(0, text.find_last_not_of(kSpace) + 1);
}

/// How much of the end of `text` may be the beginning of `marker`.
size_t possible(std::string_view text, std::string_view marker) {
  size_t n = std::min(text.size(), marker.size() - 1);
  while (!text.ends_with(marker.substr(0, n)))
    --n;
  return n;
}

/// The end of the object or list that `text` begins with; npos where it does not end.
size_t endOfValue(std::string_view text) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      i += c == '\\';
      quoted = c != '"';
      continue;
    }
    quoted = c == '"';
    depth += c == '{' || c == '[';
    depth -= c == '}' || c == ']';
    if (depth == 0)
      return i + 1;
  }
  return text.npos;
}

std::optional<ToolCall> callOf(const json::value &value) {
  const json::object *call = value.if_object();
  const json::value *name = call ? call->if_contains("name") : nullptr;
  if (!name || !name->is_string())
    return std::nullopt;
  const json::value *arguments = call->if_contains("arguments");
  if (!arguments)
    arguments = call->if_contains("parameters");
  if (!arguments)
    return ToolCall{std::string(textOf(*name)), "{}"};
  if (arguments->is_string())
    return ToolCall{std::string(textOf(*name)), std::string(textOf(*arguments))};
  JsonWriter text;
  text.value(*arguments);
  return ToolCall{std::string(textOf(*name)), text.take()};
}

/// Calls that are values of JSON, one behind the other or in a list; none where anything else is
/// there.
std::vector<ToolCall> callsOf(std::string_view text) {
  std::vector<ToolCall> out;
  for (text = trimmed(text); !text.empty();) {
    const size_t end = text[0] == '{' || text[0] == '[' ? endOfValue(text) : text.npos;
    if (end == text.npos)
      return {};
    const auto parsed = parseJson(text.substr(0, end));
    const json::value *value = std::get_if<json::value>(&parsed);
    if (!value)
      return {};
    const json::array alone{*value};
    for (const json::value &item : value->is_array() ? value->get_array() : alone) {
      std::optional<ToolCall> call = callOf(item);
      if (!call)
        return {};
      out.push_back(std::move(*call));
    }
    text.remove_prefix(end);
    text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n;,"), text.size()));
  }
  return out;
}

/// name[ARGS]{..} or name{..}, one behind the other.
std::vector<ToolCall> namedCallsOf(std::string_view text) {
  std::vector<ToolCall> out;
  for (text = trimmed(text); !text.empty(); text = trimmed(text)) {
    if (text.starts_with(kMistral))
      text = trimmed(text.substr(kMistral.size()));
    const size_t brace = text.find('{');
    const size_t end = brace == text.npos ? brace : endOfValue(text.substr(brace));
    if (end == text.npos)
      return {};
    std::string_view name = text.substr(0, brace);
    name = trimmed(name.substr(0, name.find(kMistralArguments)));
    const std::string_view arguments = text.substr(brace, end);
    if (name.empty() || name.find_first_of("[]\"") != name.npos ||
        !std::holds_alternative<json::value>(parseJson(arguments)))
      return {};
    out.push_back({std::string(name), std::string(arguments)});
    text.remove_prefix(brace + end);
  }
  return out;
}

} // namespace

ToolFormat toolFormatOf(std::string_view chatTemplate) {
  auto speaksOf = [&](std::string_view word) {
    return chatTemplate.find(word) != chatTemplate.npos;
  };
  if (speaksOf(kHermesBegin))
    return ToolFormat::Hermes;
  if (speaksOf(kMistral))
    return ToolFormat::Mistral;
  if (speaksOf(kPythonTag) || (speaksOf("\"parameters\"") && speaksOf("ipython")))
    return ToolFormat::Llama3;
  return ToolFormat::None;
}

CallForm formOfCall(ToolFormat format, std::string_view name) {
  JsonWriter quoted;
  quoted.text(name);
  const std::string head = "{\"name\": " + quoted.str() + ", ";
  if (format == ToolFormat::Llama3)
    return {head + "\"parameters\": ", "}"};
  const std::string begin = head + "\"arguments\": ";
  if (format == ToolFormat::Mistral)
    return {std::string(kMistral) + "[" + begin, "}]"};
  return {std::string(kHermesBegin) + "\n" + begin, "}\n" + std::string(kHermesEnd)};
}

/// Whether what is held begins a call. What is surely content goes to the piece.
bool ToolStream::beginsCall(Piece &piece) {
  if (format_ == ToolFormat::Llama3) {
    if (begun_) {
      piece.content += std::exchange(held_, {});
      return false;
    }
    const std::string_view text = trimmed(held_);
    if (text.starts_with('{') || text.starts_with(kPythonTag))
      return true;
    if (!kPythonTag.starts_with(text)) {
      piece.content += std::exchange(held_, {});
      begun_ = true;
    }
    return false;
  }
  const std::string_view marker = format_ == ToolFormat::Hermes ? kHermesBegin : kMistral;
  const size_t at = held_.find(marker);
  const size_t sure = at == held_.npos ? held_.size() - possible(held_, marker) : at;
  // Nothing but white space between calls and behind them is no content.
  if (!called_ || !trimmed(std::string_view(held_).substr(0, sure)).empty())
    piece.content += held_.substr(0, sure);
  held_.erase(0, sure);
  return at != held_.npos && held_.starts_with(marker);
}

void ToolStream::step(Piece &piece) {
  while (!held_.empty()) {
    if (!inCall_ && !beginsCall(piece))
      return;
    inCall_ = true;
    if (format_ != ToolFormat::Hermes)
      return; // to the answer's end
    const size_t end = held_.find(kHermesEnd);
    if (end == held_.npos)
      return;
    const std::string_view body =
        std::string_view(held_).substr(kHermesBegin.size(), end - kHermesBegin.size());
    std::vector<ToolCall> calls = callsOf(body);
    called_ = called_ || !calls.empty();
    if (calls.empty())
      piece.content += held_.substr(0, end + kHermesEnd.size());
    std::ranges::move(calls, std::back_inserter(piece.calls));
    held_.erase(0, end + kHermesEnd.size());
    inCall_ = false;
  }
}

ToolStream::Piece ToolStream::push(std::string_view text) {
  if (format_ == ToolFormat::None)
    return {std::string(text), {}};
  Piece piece;
  held_ += text;
  step(piece);
  return piece;
}

ToolStream::Piece ToolStream::finish() {
  Piece piece;
  const std::string held = std::exchange(held_, {});
  if (inCall_) {
    std::string_view text = held;
    if (format_ == ToolFormat::Llama3) {
      text = trimmed(text);
      text.remove_prefix(text.starts_with(kPythonTag) ? kPythonTag.size() : 0);
      piece.calls = callsOf(text);
    } else if (format_ == ToolFormat::Mistral) {
      text.remove_prefix(kMistral.size());
      const bool list = trimmed(text).starts_with('[') || trimmed(text).starts_with('{');
      piece.calls = list ? callsOf(text) : namedCallsOf(text);
    } else {
      piece.calls = callsOf(text.substr(kHermesBegin.size()));
    }
  }
  if (piece.calls.empty() && !(called_ && trimmed(held).empty()))
    piece.content = held;
  return piece;
}

} // namespace gpt2c::serve
