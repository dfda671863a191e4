#include "runtime/grammar/GrammarCheck.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <vector>

namespace gpt2c::rt {
namespace {

using Json = nlohmann::json;

Status usage(std::string message) { return {Code::Usage, std::move(message)}; }

std::string counted(size_t n, const char *what) { return std::to_string(n) + " " + what; }

//===-- schemas ------------------------------------------------------------------------------===//

/// Keywords that say something of values and are not supported.
constexpr std::array unsupported = {
    "not",          "if",          "then",         "else",        "dependentRequired",
    "dependencies", "contains",    "minContains",  "maxContains", "dependentSchemas",
    "$dynamicRef",  "uniqueItems", "$recursiveRef"};
/// Keywords that say nothing of values.
constexpr std::array annotations = {
    "title",    "description", "default", "examples", "deprecated",  "readOnly", "writeOnly",
    "$comment", "$schema",     "$id",     "$defs",    "definitions", "$anchor",  "discriminator"};
/// Keywords beside which others are not looked at.
constexpr std::array alone = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};
/// Keywords whose value is a number of repetitions.
constexpr std::array repeating = {"minLength", "maxLength",     "minItems",
                                  "maxItems",  "minProperties", "maxProperties"};

bool isAmong(std::span<const char *const> list, std::string_view word) {
  return std::ranges::any_of(list, [&](const char *w) { return word == w; });
}

/// The place of a part of a schema.
std::string inside(std::string place, std::string_view key, std::string_view part = {}) {
  place.append("/").append(key);
  return part.empty() ? place : place.append("/").append(part);
}

class SchemaCheck {
public:
  explicit SchemaCheck(const GrammarLimits &limits) : limits_(limits) {}

  Status check(const Json &schema, const std::string &place, int depth) {
    if (Status s = count(schema, place, depth); !s.ok())
      return s;
    if (schema.is_boolean())
      return {};
    if (!schema.is_object())
      return at(place, "must be an object, true or false");
    for (const auto &[key, value] : schema.items())
      if (Status s = checkKeyword(key, value, place); !s.ok())
        return s;
    if (Status s = checkAlone(schema, place); !s.ok())
      return s;
    return checkInner(schema, place, depth);
  }

private:
  static Status at(const std::string &place, const std::string &what) {
    return usage("json_schema: " + (place.empty() ? std::string("the schema") : place) + " " +
                 what);
  }

  Status count(const Json &, const std::string &place, int depth) {
    if (depth > limits_.depth)
      return at(place, "is nested deeper than " + std::to_string(limits_.depth) + " levels");
    if (++nodes_ > limits_.nodes)
      return at(place, "is one value more than the " + std::to_string(limits_.nodes) +
                           " that a schema may have");
    return {};
  }

  Status checkKeyword(const std::string &key, const Json &value, const std::string &place) const {
    if (key == "uniqueItems" && value.is_boolean() && !value.get<bool>())
      return {};
    if (isAmong(unsupported, key))
      return at(place, "has the keyword '" + key + "', which is not supported");
    if (isAmong(repeating, key) && value.is_number() &&
        std::abs(value.get<double>()) > double(limits_.repeats))
      return at(place, "has a " + key + " of more than " + std::to_string(limits_.repeats));
    if (key == "$ref" &&
        (!value.is_string() || !value.get_ref<const std::string &>().starts_with('#')))
      return at(place, "has a $ref that does not begin with '#': only the schema itself is looked "
                       "into");
    if (key == "multipleOf" && !value.is_number_integer())
      return at(place, "has a multipleOf that is no integer, which is not supported");
    if (key == "pattern" && value.is_string())
      return checkGrammar({.kind = GrammarText::Kind::Regex, .text = value.get<std::string>()},
                          limits_);
    return {};
  }

  /// A keyword whose neighbours XGrammar leaves out.
  Status checkAlone(const Json &schema, const std::string &place) const {
    const char *first = nullptr;
    for (const char *key : alone)
      if (!first && schema.contains(key))
        first = key;
    if (!first)
      return {};
    const bool literal = std::string_view(first) == "const" || std::string_view(first) == "enum";
    for (const auto &[key, value] : schema.items()) {
      if (key != first && !isAmong(annotations, key) && !(literal && key == "type"))
        return at(place, "has '" + key + "' beside '" + first +
                             "', which is not supported: put "
                             "both into one schema");
    }
    return {};
  }

  Status checkInner(const Json &schema, const std::string &place, int depth) {
    for (const char *key : {"properties", "patternProperties", "$defs", "definitions"})
      if (auto it = schema.find(key); it != schema.end() && it->is_object()) {
        if (int64_t(it->size()) > limits_.names)
          return at(place, "has more than " + std::to_string(limits_.names) + " " + key);
        for (const auto &[name, value] : it->items())
          if (Status s = check(value, inside(place, key, name), depth + 1); !s.ok())
            return s;
      }
    for (const char *key : {"anyOf", "oneOf", "allOf", "prefixItems"})
      if (auto it = schema.find(key); it != schema.end() && it->is_array())
        for (size_t i = 0; i < it->size(); ++i)
          if (Status s = check((*it)[i], inside(place, key, std::to_string(i)), depth + 1); !s.ok())
            return s;
    for (const char *key : {"items", "additionalProperties", "propertyNames", "unevaluatedItems",
                            "unevaluatedProperties"})
      if (auto it = schema.find(key); it != schema.end() && !it->is_array())
        if (Status s = check(*it, inside(place, key), depth + 1); !s.ok())
          return s;
    for (const char *key : {"enum", "const"})
      if (auto it = schema.find(key); it != schema.end())
        if (Status s = countAll(*it, inside(place, key), depth + 1); !s.ok())
          return s;
    return {};
  }

  Status countAll(const Json &value, const std::string &place, int depth) {
    if (Status s = count(value, place, depth); !s.ok() || !value.is_structured())
      return s;
    for (const Json &item : value)
      if (Status s = countAll(item, place, depth + 1); !s.ok())
        return s;
    return {};
  }

  const GrammarLimits &limits_;
  int64_t nodes_ = 0;
};

/// Parses no deeper than what is looked at, since a parser that recurses has a stack.
Status checkSchema(const std::string &text, const GrammarLimits &limits) {
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted)
      i += c == '\\';
    if (c == '"')
      quoted = !quoted;
    if (quoted)
      continue;
    depth += c == '{' || c == '[';
    depth -= c == '}' || c == ']';
    if (depth > 4 * limits.depth)
      return usage("json_schema: byte " + std::to_string(i) + " is nested deeper than " +
                   std::to_string(4 * limits.depth) + " levels");
  }
  try {
    return SchemaCheck(limits).check(Json::parse(text), "", 0);
  } catch (const Json::parse_error &e) {
    const std::string_view what = e.what();
    const size_t told = what.find("parse error");
    return usage("json_schema: no JSON: " + std::string(what.substr(told == what.npos ? 0 : told)));
  } catch (const Json::exception &e) {
    return usage(std::string("json_schema: ") + e.what());
  }
}

//===-- regular expressions and EBNF --------------------------------------------------------===//

/// The number that `text` begins with, and what is behind it; below 0: none.
int64_t numberAt(std::string_view &text) {
  int64_t n = -1;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), n);
  if (read.ec == std::errc::result_out_of_range)
    n = INT64_MAX;
  text.remove_prefix(size_t(read.ptr - text.data()));
  return n;
}

Status checkRules(std::string_view text, const GrammarLimits &limits) {
  int64_t rules = 0;
  for (size_t at = text.find("::="); at != text.npos; at = text.find("::=", at + 3))
    if (++rules > limits.names)
      return usage("grammar: it has more than " + std::to_string(limits.names) + " rules");
  return {};
}

/// Bounds of nesting, and of the length with all repetitions {m,n} written out. Works for both
/// forms: literals in quotes, classes and what is behind a backslash are one element each.
class RepeatCheck {
public:
  RepeatCheck(std::string_view text, const char *name, bool quotes, const GrammarLimits &limits)
      : text_(text), name_(name), quotes_(quotes), limits_(limits) {}

  Status check() {
    for (size_t i = 0; i < text_.size(); ++i)
      if (Status s = take(i); !s.ok())
        return s;
    return {};
  }

private:
  Status take(size_t &i) {
    const char c = text_[i];
    if (c == '(') {
      lengths_.push_back(0);
      if (int64_t(lengths_.size()) > limits_.depth)
        return at(i, "is nested deeper than " + std::to_string(limits_.depth) + " groups");
    } else if (c == ')' && lengths_.size() > 1) {
      const int64_t group = lengths_.back();
      lengths_.pop_back();
      add(group);
    } else if (c == '{') {
      return repeat(i);
    } else {
      i = endOfElement(i);
      add(quotes_ && c != '[' && c != '"' ? 0 : 1); // names and signs of EBNF are no characters
    }
    return tooLong(i);
  }

  /// The last byte of the character, class or literal that begins there.
  size_t endOfElement(size_t i) const {
    const char c = text_[i];
    const char end = c == '[' ? ']' : quotes_ && c == '"' ? '"' : quotes_ && c == '#' ? '\n' : '\0';
    if (c == '\\')
      return i + 1;
    if (!end)
      return i;
    for (++i; i < text_.size() && text_[i] != end; ++i)
      i += text_[i] == '\\';
    return i;
  }

  Status repeat(size_t i) {
    std::string_view rest = text_.substr(i + 1);
    const int64_t least = numberAt(rest);
    if (least < 0)
      return {};
    int64_t most = least;
    if (rest.starts_with(',')) {
      rest.remove_prefix(1);
      rest.remove_prefix(std::min(rest.find_first_not_of(' '), rest.size()));
      most = std::max(least, numberAt(rest));
    }
    if (most > limits_.repeats)
      return at(i, "repeats more than " + std::to_string(limits_.repeats) + " times");
    lengths_.back() += last_ * std::max<int64_t>(most - 1, 0);
    last_ *= std::max<int64_t>(most, 1);
    return tooLong(i);
  }

  void add(int64_t length) {
    lengths_.back() += length;
    last_ = length;
  }

  Status tooLong(size_t i) const {
    if (lengths_.back() <= limits_.nodes)
      return {};
    return at(i, "ends more than " + std::to_string(limits_.nodes) +
                     " characters, with repetitions written out");
  }

  Status at(size_t byte, const std::string &what) const {
    return usage(std::string(name_) + ": what is at byte " + std::to_string(byte) + " " + what);
  }

  std::string_view text_;
  const char *name_;
  bool quotes_;
  const GrammarLimits &limits_;
  std::vector<int64_t> lengths_ = {0}; ///< of the groups that are open
  int64_t last_ = 0;                   ///< length of the last element
};

Status checkBytes(const GrammarText &what, const GrammarLimits &limits) {
  size_t bytes = what.text.size();
  for (const std::string &choice : what.choices)
    bytes += choice.size();
  for (const GrammarText::Call &call : what.calls)
    bytes += call.begin.size() + call.schema.size() + call.end.size();
  if (bytes > limits.bytes)
    return usage(std::string(nameOf(what.kind)) + ": it has " + counted(bytes, "bytes") +
                 ", at most " + std::to_string(limits.bytes) + " are taken");
  const size_t parts = std::max(what.choices.size(), what.calls.size());
  if (parts > limits.choices)
    return usage(std::string(nameOf(what.kind)) + ": it has " + counted(parts, "choices") +
                 ", at most " + std::to_string(limits.choices) + " are taken");
  return {};
}

} // namespace

const char *nameOf(GrammarText::Kind kind) {
  switch (kind) {
  case GrammarText::Kind::Json:
    return "json_object";
  case GrammarText::Kind::Schema:
    return "json_schema";
  case GrammarText::Kind::Regex:
    return "regex";
  case GrammarText::Kind::Ebnf:
    return "grammar";
  case GrammarText::Kind::Choice:
    return "choice";
  case GrammarText::Kind::Call:
    break;
  }
  return "tools";
}

Status checkGrammar(const GrammarText &what, const GrammarLimits &limits) {
  if (Status s = checkBytes(what, limits); !s.ok())
    return s;
  switch (what.kind) {
  case GrammarText::Kind::Json:
    return {};
  case GrammarText::Kind::Schema:
    return checkSchema(what.text, limits);
  case GrammarText::Kind::Regex:
  case GrammarText::Kind::Ebnf:
    if (what.text.find_first_not_of(" \t\r\n") == std::string::npos)
      return usage(std::string(nameOf(what.kind)) + ": it is empty");
    if (Status s = checkRules(what.text, limits); what.kind == GrammarText::Kind::Ebnf && !s.ok())
      return s;
    return RepeatCheck(what.text, nameOf(what.kind), what.kind == GrammarText::Kind::Ebnf, limits)
        .check();
  case GrammarText::Kind::Choice:
    if (what.choices.empty())
      return usage("choice: there is none");
    for (const std::string &choice : what.choices)
      if (choice.empty())
        return usage("choice: one of them is empty");
    return {};
  case GrammarText::Kind::Call:
    break;
  }
  if (what.calls.empty())
    return usage("tools: there is none");
  for (const GrammarText::Call &call : what.calls)
    if (Status s = checkSchema(call.schema, limits); !s.ok())
      return s;
  return {};
}

} // namespace gpt2c::rt
