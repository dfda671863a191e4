#include "runtime/text/jinja/Value.h"

#include "runtime/text/unicode/Unicode.h"
#include "runtime/text/unicode/Utf8.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

namespace gpt2c::rt::jinja {
namespace {

constexpr int kDeepestValue = 200; // of values within values

/// As Python writes it: the shortest digits that read back the same, an exponent below -4 and from
/// 16 on.
std::string reprOf(double value) {
  if (std::isnan(value))
    return "nan";
  if (std::isinf(value))
    return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto end =
      std::to_chars(buffer, buffer + sizeof(buffer), value, std::chars_format::scientific);
  std::string text(buffer, end.ptr);
  const std::size_t e = text.find('e');
  const int exponent = std::atoi(text.c_str() + e + 1);
  if (exponent < -4 || exponent >= 16)
    return text;
  char fixed[400];
  const auto last = std::to_chars(fixed, fixed + sizeof(fixed), value, std::chars_format::fixed);
  text.assign(fixed, last.ptr);
  return text.find('.') == text.npos ? text + ".0" : text;
}

std::string pythonQuoted(std::string_view text) {
  const bool useDouble = text.find('\'') != text.npos && text.find('"') == text.npos;
  const char quote = useDouble ? '"' : '\'';
  std::string out(1, quote);
  for (const char c : text) {
    char hex[8];
    if (c == quote || c == '\\')
      out += {'\\', c};
    else if (c == '\n')
      out += "\\n";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\r')
      out += "\\r";
    else if (std::uint8_t(c) < 0x20 || c == 0x7F)
      out.append(
          hex, std::size_t(std::snprintf(hex, sizeof(hex), "\\x%02x", unsigned(std::uint8_t(c)))));
    else
      out += c;
  }
  return out + quote;
}

std::string jsonString(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    char hex[8];
    switch (c) {
    case '"':
      out += "\\\"";
      break;
    case '\\':
      out += "\\\\";
      break;
    case '\n':
      out += "\\n";
      break;
    case '\r':
      out += "\\r";
      break;
    case '\t':
      out += "\\t";
      break;
    case '\b':
      out += "\\b";
      break;
    case '\f':
      out += "\\f";
      break;
    default:
      if (std::uint8_t(c) < 0x20)
        out.append(hex, std::size_t(std::snprintf(hex, sizeof(hex), "\\u%04x", unsigned(c))));
      else
        out += c;
    }
  }
  return out + '"';
}

class JsonWriter {
public:
  JsonWriter(int indent, bool sortKeys, std::string_view item, std::string_view key)
      : indent_(indent), sortKeys_(sortKeys), item_(item), key_(key) {
    if (indent >= 0 && item_.ends_with(' '))
      item_.remove_suffix(1);
  }

  void write(const Value &value, int depth) {
    if (depth > kDeepestValue)
      throw Error{"a value is nested too deeply"};
    if (value.isString())
      out += jsonString(value.string());
    else if (value.isNone())
      out += "null";
    else if (value.isBool())
      out += value.truthy() ? "true" : "false";
    else if (value.isNumber())
      out += value.repr();
    else if (value.isList())
      writeAll(value.list(), "[]", depth, [&](const Value &item) { write(item, depth + 1); });
    else if (value.isDict())
      writeDict(value.dict(), depth);
    else
      throw Error{std::string(value.kind()) + " cannot become JSON"};
  }

  std::string out;

private:
  template <typename All, typename Each>
  void writeAll(const All &all, const char *brackets, int depth, Each each) {
    out += brackets[0];
    bool first = true;
    for (const auto &item : all) {
      out += first ? "" : item_;
      first = false;
      newLine(depth + 1);
      each(item);
    }
    if (!first)
      newLine(depth);
    out += brackets[1];
  }
  void writeDict(const Dict &dict, int depth) {
    Dict sorted;
    if (sortKeys_) {
      sorted = dict;
      std::ranges::stable_sort(sorted, {}, &Dict::value_type::first);
    }
    writeAll(sortKeys_ ? sorted : dict, "{}", depth, [&](const auto &entry) {
      out += jsonString(entry.first);
      out += key_;
      write(entry.second, depth + 1);
    });
  }
  void newLine(int depth) {
    if (indent_ >= 0)
      out.append("\n").append(std::size_t(indent_ * depth), ' ');
  }

  int indent_;
  bool sortKeys_;
  std::string_view item_, key_;
};

} // namespace

const Value *Arguments::find(std::size_t index, std::string_view name) const {
  for (const auto &[key, value] : named)
    if (key == name)
      return &value;
  return index < positional.size() ? &positional[index] : nullptr;
}

Value Value::makeNamespace(Dict values) {
  Value made;
  made.state_ = std::make_shared<Dict>(std::move(values));
  return made;
}

Value Value::makeTuple(List values) {
  Value made(std::move(values));
  made.tuple_ = true;
  return made;
}

Value Value::fromJson(const nlohmann::ordered_json &json) {
  using Json = nlohmann::ordered_json;
  switch (json.type()) {
  case Json::value_t::string:
    return json.get<std::string>();
  case Json::value_t::boolean:
    return json.get<bool>();
  case Json::value_t::number_integer:
    return json.get<std::int64_t>();
  case Json::value_t::number_unsigned:
    if (json.get<std::uint64_t>() > std::uint64_t(INT64_MAX))
      return json.get<double>();
    return json.get<std::int64_t>();
  case Json::value_t::number_float:
    return json.get<double>();
  case Json::value_t::array: {
    List items;
    for (const Json &item : json)
      items.push_back(fromJson(item));
    return items;
  }
  case Json::value_t::object: {
    Dict members;
    for (const auto &[key, item] : json.items())
      members.emplace_back(key, fromJson(item));
    return members;
  }
  default:
    return None{};
  }
}

std::int64_t Value::integer() const {
  if (isBool())
    return std::get<bool>(state_);
  if (isFloat()) {
    const double value = std::get<double>(state_);
    if (!(std::abs(value) < 9e18))
      throw Error{"a number is too large"};
    return std::int64_t(value);
  }
  if (!isInteger())
    throw Error{std::string(kind()) + " is no number"};
  return std::get<std::int64_t>(state_);
}

double Value::real() const { return isFloat() ? std::get<double>(state_) : double(integer()); }

bool Value::truthy() const {
  if (isUndefined() || isNone())
    return false;
  if (isNumber())
    return real() != 0;
  if (isString())
    return !string().empty();
  if (isList())
    return !list().empty();
  if (isDict())
    return !dict().empty();
  return true;
}

const char *Value::kind() const {
  static constexpr const char *kNames[] = {
      "an undefined value", "None",   "a bool", "an integer", "a float",
      "a string",           "a list", "a dict", "a function", "a namespace"};
  return kNames[state_.index()];
}

std::string Value::text() const {
  if (isString())
    return string();
  return isUndefined() ? std::string() : repr();
}

std::string Value::repr() const {
  if (isNone())
    return "None";
  if (isBool())
    return truthy() ? "True" : "False";
  if (isInteger())
    return std::to_string(integer());
  if (isFloat())
    return reprOf(real());
  if (isString())
    return pythonQuoted(string());
  if (isUndefined())
    return "Undefined";
  if (!isList() && !isDict())
    throw Error{std::string(kind()) + " cannot be printed"};
  std::string out;
  auto separate = [&] { out += out.empty() ? "" : ", "; };
  if (isDict()) {
    for (const auto &[key, value] : dict()) {
      separate();
      out += pythonQuoted(key) + ": " + value.repr();
    }
    return "{" + out + "}";
  }
  for (const Value &item : list()) {
    separate();
    out += item.repr();
  }
  if (tuple_)
    return "(" + out + (list().size() == 1 ? ",)" : ")");
  return "[" + out + "]";
}

std::optional<Value> Value::member(std::string_view key) const {
  if (!isDict() && !isNamespace())
    return std::nullopt;
  for (const auto &[name, value] : isDict() ? dict() : space())
    if (name == key)
      return value;
  return std::nullopt;
}

List Value::items() const {
  if (isList())
    return list();
  List out;
  if (isUndefined())
    return out;
  if (isDict()) {
    for (const auto &entry : dict())
      out.emplace_back(entry.first);
    return out;
  }
  if (!isString())
    throw Error{std::string(kind()) + " is nothing to go over"};
  for (std::string_view character : characters(string()))
    out.emplace_back(std::string(character));
  return out;
}

bool equal(const Value &a, const Value &b) {
  if (a.isNumber() && b.isNumber())
    return a.isFloat() || b.isFloat() ? a.real() == b.real() : a.integer() == b.integer();
  if (a.isString() && b.isString())
    return a.string() == b.string();
  if (a.isList() && b.isList())
    return std::ranges::equal(a.list(), b.list(), equal);
  if (a.isDict() && b.isDict())
    return a.dict().size() == b.dict().size() && std::ranges::all_of(a.dict(), [&](auto &entry) {
             auto other = b.member(entry.first);
             return other && equal(entry.second, *other);
           });
  return (a.isNone() && b.isNone()) || (a.isUndefined() && b.isUndefined());
}

bool less(const Value &a, const Value &b) {
  if (a.isNumber() && b.isNumber())
    return a.isFloat() || b.isFloat() ? a.real() < b.real() : a.integer() < b.integer();
  if (a.isString() && b.isString())
    return a.string() < b.string();
  if (a.isList() && b.isList())
    return std::ranges::lexicographical_compare(a.list(), b.list(), less);
  throw Error{std::string(a.kind()) + " and " + b.kind() + " have no order"};
}

bool contains(const Value &container, const Value &item) {
  if (container.isString()) {
    if (!item.isString())
      throw Error{"'in' a string wants a string"};
    return container.string().find(item.string()) != std::string::npos;
  }
  if (container.isDict())
    return item.isString() && container.member(item.string());
  return std::ranges::any_of(container.items(), [&](const Value &v) { return equal(v, item); });
}

std::string toJson(const Value &value, int indent, bool sortKeys, std::string_view item,
                   std::string_view key) {
  JsonWriter writer(indent, sortKeys, item, key);
  writer.write(value, 0);
  return std::move(writer.out);
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = codePointAt(text, at).length;
    out.push_back(text.substr(at, length));
    at += length;
  }
  return out;
}

} // namespace gpt2c::rt::jinja
