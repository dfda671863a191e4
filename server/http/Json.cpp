#include "server/http/Json.h"

#include "runtime/text/unicode/Utf8.h"

#include <boost/json/parse.hpp>

#include <charconv>
#include <cmath>

namespace gpt2c::serve {

namespace json = boost::json;

std::variant<json::value, ApiError> parseJson(std::string_view text) {
  json::parse_options options;
  options.max_depth = kJsonDepth;
  boost::system::error_code error;
  json::value value = json::parse({text.data(), text.size()}, error, {}, options);
  if (error == json::error::too_deep)
    return ApiError{.message = "the body's JSON is deeper than " + std::to_string(kJsonDepth) +
                               " objects and arrays"};
  if (error)
    return ApiError{.message = "the body is no JSON: " + error.message()};
  return value;
}

void JsonWriter::separate() {
  if (comma_)
    out_ += ',';
  comma_ = true;
}

JsonWriter &JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  closing_ += bracket == '{' ? '}' : ']';
  comma_ = false;
  return *this;
}

JsonWriter &JsonWriter::end() {
  out_ += closing_.back();
  closing_.pop_back();
  comma_ = true;
  return *this;
}

JsonWriter &JsonWriter::key(std::string_view name) {
  separate();
  out_ += '"';
  out_ += name;
  out_ += "\":";
  comma_ = false;
  return *this;
}

JsonWriter &JsonWriter::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}

static void escape(std::string &out, char c) {
  static constexpr char digits[] = "0123456789abcdef";
  switch (c) {
  case '"':
  case '\\':
    out += '\\';
    out += c;
    return;
  case '\n':
    out += "\\n";
    return;
  case '\r':
    out += "\\r";
    return;
  case '\t':
    out += "\\t";
    return;
  default:
    out += "\\u00";
    out += digits[c >> 4];
    out += digits[c & 15];
  }
}

JsonWriter &JsonWriter::text(std::string_view value) {
  separate();
  out_ += '"';
  while (!value.empty()) {
    const auto byte = static_cast<unsigned char>(value[0]);
    size_t length = 1;
    if (byte < 0x20 || byte == '"' || byte == '\\' || byte == 0x7f)
      escape(out_, value[0]);
    else if (byte < 0x80)
      out_ += value[0];
    else if (size_t n = rt::utf8SequenceLength(value); n > 0)
      out_ += value.substr(0, length = n);
    else
      out_ += "\xEF\xBF\xBD";
    value.remove_prefix(length);
  }
  out_ += '"';
  return *this;
}

JsonWriter &JsonWriter::integer(int64_t value) {
  char text[24];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return raw({text, size_t(end - text)});
}

JsonWriter &JsonWriter::number(double value) {
  if (!std::isfinite(value))
    return null();
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  return raw({text, size_t(end - text)});
}

JsonWriter &JsonWriter::value(const json::value &value) {
  switch (value.kind()) {
  case json::kind::object:
    object();
    for (const auto &[name, member] : value.get_object()) {
      text({name.data(), name.size()});
      out_ += ':';
      comma_ = false;
      this->value(member);
    }
    return end();
  case json::kind::array:
    array();
    for (const json::value &member : value.get_array())
      this->value(member);
    return end();
  case json::kind::string:
    return text({value.get_string().data(), value.get_string().size()});
  case json::kind::bool_:
    return boolean(value.get_bool());
  case json::kind::int64:
    return integer(value.get_int64());
  case json::kind::uint64: {
    const std::string digits = std::to_string(value.get_uint64());
    return raw(digits);
  }
  case json::kind::double_:
    return number(value.get_double());
  case json::kind::null:
    break;
  }
  return null();
}

} // namespace gpt2c::serve
