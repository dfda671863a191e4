// JSON in and out: Boost.JSON reads, with bounds; what is written is one text that grows, so that
// an event of a stream costs no tree.
#pragma once

#include "server/http/ApiError.h"

#include <boost/json/value.hpp>

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

namespace gpt2c::serve {

/// Objects and arrays may lie so deep in each other.
inline constexpr int kJsonDepth = 64;

/// The value of a text that is one JSON value, or what is wrong with it and where.
std::variant<boost::json::value, ApiError> parseJson(std::string_view text);

/// Writes values one behind the other; commas come by themselves.
class JsonWriter {
public:
  JsonWriter &object() { return open('{'); }
  JsonWriter &array() { return open('['); }
  /// Ends the object or array that was begun last.
  JsonWriter &end();
  /// Of an object: what the next value is called. It is a name that needs no escapes.
  JsonWriter &key(std::string_view name);

  /// Bytes that are no UTF-8 become U+FFFD each.
  JsonWriter &text(std::string_view value);
  JsonWriter &textOrNull(std::string_view value) { return value.empty() ? null() : text(value); }
  JsonWriter &integer(int64_t value);
  /// The shortest text that reads as the same number; numbers that JSON does not have as null.
  JsonWriter &number(double value);
  JsonWriter &boolean(bool value) { return raw(value ? "true" : "false"); }
  JsonWriter &null() { return raw("null"); }
  JsonWriter &value(const boost::json::value &value);
  /// A value that is JSON already.
  JsonWriter &raw(std::string_view json);

  const std::string &str() const { return out_; }
  std::string take() { return std::move(out_); }

private:
  JsonWriter &open(char bracket);
  void separate();

  std::string out_, closing_;
  bool comma_ = false;
};

} // namespace gpt2c::serve
