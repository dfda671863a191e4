// Members, items and methods of values, and global functions. All of them, by name.
#include "runtime/text/jinja/Library.h"
#include "runtime/text/unicode/Unicode.h"
#include "runtime/text/unicode/Utf8.h"

#include <algorithm>
#include <array>

namespace gpt2c::rt::jinja {
namespace {

constexpr std::int64_t kLongestRange = 100'000; // Jinja's

const std::string &textOf(const Value &value, const char *what) {
  if (!value.isString())
    throw Error{std::string(what) + " wants a string, not " + value.kind()};
  return value.string();
}

/// The string at a place of the arguments, or else what is given.
std::string textArgument(const Arguments &a, std::size_t index, const char *name,
                         std::string otherwise) {
  const Value *value = a.find(index, name);
  return !value || value->isNone() ? otherwise : textOf(*value, name);
}

std::int64_t numberArgument(const Arguments &a, std::size_t index, const char *name,
                            std::int64_t otherwise) {
  const Value *value = a.find(index, name);
  return !value || value->isNone() ? otherwise : value->integer();
}

/// Characters that strip takes: those given, or white space.
auto stripped(const Arguments &a) {
  const Value *given = a.find(0, "chars");
  std::string set = given && !given->isNone() ? textOf(*given, "strip") : "";
  const bool space = !given || given->isNone();
  return [set, space](std::string_view c) {
    return space ? isWhiteSpace(codePointAt(c, 0).value) || (c[0] >= 0x1C && c[0] <= 0x1F)
                 : set.find(c) != set.npos;
  };
}

Value strip(const std::string &text, const Arguments &a, bool left, bool right) {
  const auto takes = stripped(a);
  std::vector<std::string_view> all = characters(text);
  std::size_t begin = 0, end = all.size();
  while (left && begin < end && takes(all[begin]))
    ++begin;
  while (right && begin < end && takes(all[end - 1]))
    --end;
  std::string out;
  for (; begin < end; ++begin)
    out += all[begin];
  return out;
}

Value splitSpace(const std::string &text, std::int64_t most) {
  List out;
  std::string word;
  const std::vector<std::string_view> all = characters(text);
  std::size_t i = 0;
  auto space = [&](std::size_t at) { return isWhiteSpace(codePointAt(all[at], 0).value); };
  for (; i < all.size(); ++i) {
    if (!space(i)) {
      if (word.empty() && most >= 0 && std::int64_t(out.size()) == most)
        break;
      word += all[i];
    } else if (!word.empty()) {
      out.emplace_back(std::exchange(word, {}));
    }
  }
  for (std::size_t end = all.size(); i < end; ++i)
    word += all[i];
  if (!word.empty())
    out.emplace_back(most >= 0 && std::int64_t(out.size()) == most ? strip(word, {}, false, true)
                                                                   : Value(word));
  return out;
}

Value split(const std::string &text, const Arguments &a, bool fromRight) {
  const std::int64_t most = numberArgument(a, 1, "maxsplit", -1);
  const Value *separator = a.find(0, "sep");
  if (!separator || separator->isNone())
    return splitSpace(text, fromRight ? -1 : most);
  const std::string &by = textOf(*separator, "split");
  if (by.empty())
    throw Error{"split wants a separator that is not empty"};
  std::vector<std::size_t> cuts;
  if (fromRight) {
    for (std::size_t at = text.size(); (most < 0 || std::int64_t(cuts.size()) < most) &&
                                       at >= by.size() &&
                                       (at = text.rfind(by, at - by.size())) != text.npos;)
      cuts.insert(cuts.begin(), at);
  } else {
    for (std::size_t at = 0;
         (most < 0 || std::int64_t(cuts.size()) < most) && (at = text.find(by, at)) != text.npos;
         at += by.size())
      cuts.push_back(at);
  }
  List out;
  std::size_t begin = 0;
  for (const std::size_t cut : cuts) {
    out.emplace_back(text.substr(begin, cut - begin));
    begin = cut + by.size();
  }
  out.emplace_back(text.substr(begin));
  return out;
}

Value splitLines(const std::string &text) {
  List out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = text.find_first_of("\n\r", at);
    out.emplace_back(text.substr(at, end - at));
    if (end == text.npos)
      break;
    at = end + (text.compare(end, 2, "\r\n") == 0 ? 2 : 1);
  }
  return out;
}

Value replace(const std::string &text, const Arguments &a, Budget &budget) {
  const std::string from = textArgument(a, 0, "old", ""), to = textArgument(a, 1, "new", "");
  std::int64_t most = numberArgument(a, 2, "count", -1);
  std::string out;
  std::size_t at = 0;
  if (from.empty())
    throw Error{"replace wants a string that is not empty"};
  for (std::size_t found; most != 0 && (found = text.find(from, at)) != text.npos; --most) {
    out.append(text, at, found - at).append(to);
    budget.spend(to.size());
    at = found + from.size();
  }
  return out.append(text, at, text.npos);
}

/// Whether any of the texts (one, or a tuple) fits.
template <typename Fits> bool anyOf(const Arguments &a, Fits fits) {
  const Value *given = a.find(0, "prefix");
  if (!given)
    throw Error{"a string is missing"};
  if (!given->isList())
    return fits(textOf(*given, "startswith"));
  return std::ranges::any_of(given->list(),
                             [&](const Value &v) { return fits(textOf(v, "startswith")); });
}

std::string mapCase(const std::string &text, auto upper) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = codePointAt(text, at);
    if (!c.valid)
      out += text[at];
    else if (upper(c.value))
      appendUpper(out, c.value);
    else
      appendLower(out, c.value);
    at += c.length;
  }
  return out;
}

std::string titled(const std::string &text, bool eachWord) {
  bool begins = true;
  return mapCase(text, [&](char32_t c) {
    const bool letter = isLetter(c);
    const bool up = begins && letter;
    begins = eachWord ? !letter : false;
    return up;
  });
}

template <typename Is> bool allOf(const std::string &text, Is is) {
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = codePointAt(text, at);
    if (!is(c.value))
      return false;
    at += c.length;
  }
  return !text.empty();
}

bool hasCase(const std::string &text, bool upper) {
  bool cased = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = codePointAt(text, at);
    std::string same, other;
    appendUtf8(same, c.value);
    (upper ? appendLower : appendUpper)(other, c.value);
    cased = cased || same != other;
    other.clear();
    (upper ? appendUpper : appendLower)(other, c.value);
    if (same != other)
      return false;
    at += c.length;
  }
  return cased;
}

std::int64_t find(const std::string &text, const std::string &what, bool last) {
  const std::size_t at = last ? text.rfind(what) : text.find(what);
  return at == text.npos ? -1
                         : std::int64_t(characters(std::string_view(text).substr(0, at)).size());
}

std::int64_t count(const std::string &text, const std::string &what) {
  std::int64_t found = 0;
  for (std::size_t at = 0; !what.empty() && (at = text.find(what, at)) != text.npos;
       at += what.size())
    ++found;
  return found;
}

std::string joined(const std::string &by, const Value &items, Budget &budget) {
  std::string out;
  bool first = true;
  for (const Value &item : items.items()) {
    out += first ? "" : by;
    out += textOf(item, "join");
    budget.spend(by.size() + item.string().size());
    first = false;
  }
  return out;
}

using StringMethod = Value (*)(const std::string &, const Arguments &, Budget &);

constexpr std::pair<std::string_view, StringMethod> kStringMethods[] = {
    {"strip", [](auto &s, auto &a, auto &) { return strip(s, a, true, true); }},
    {"lstrip", [](auto &s, auto &a, auto &) { return strip(s, a, true, false); }},
    {"rstrip", [](auto &s, auto &a, auto &) { return strip(s, a, false, true); }},
    {"split", [](auto &s, auto &a, auto &) { return split(s, a, false); }},
    {"rsplit", [](auto &s, auto &a, auto &) { return split(s, a, true); }},
    {"splitlines", [](auto &s, auto &, auto &) { return splitLines(s); }},
    {"replace", [](auto &s, auto &a, auto &b) { return replace(s, a, b); }},
    {"join",
     [](auto &s, auto &a, auto &b) {
       const Value *items = a.find(0, "iterable");
       return Value(joined(s, items ? *items : Value(), b));
     }},
    {"startswith",
     [](auto &s, auto &a, auto &) {
       return Value(anyOf(a, [&](auto &t) { return s.starts_with(t); }));
     }},
    {"endswith", [](auto &s, auto &a,
                    auto &) { return Value(anyOf(a, [&](auto &t) { return s.ends_with(t); })); }},
    {"upper",
     [](auto &s, auto &, auto &) { return Value(mapCase(s, [](char32_t) { return true; })); }},
    {"lower",
     [](auto &s, auto &, auto &) { return Value(mapCase(s, [](char32_t) { return false; })); }},
    {"title", [](auto &s, auto &, auto &) { return Value(titled(s, true)); }},
    {"capitalize", [](auto &s, auto &, auto &) { return Value(titled(s, false)); }},
    {"find",
     [](auto &s, auto &a, auto &) { return Value(find(s, textArgument(a, 0, "sub", ""), false)); }},
    {"rfind",
     [](auto &s, auto &a, auto &) { return Value(find(s, textArgument(a, 0, "sub", ""), true)); }},
    {"count",
     [](auto &s, auto &a, auto &) { return Value(count(s, textArgument(a, 0, "sub", ""))); }},
    {"isdigit", [](auto &s, auto &,
                   auto &) { return Value(allOf(s, [](char32_t c) { return isNumeric(c); })); }},
    {"isspace", [](auto &s, auto &,
                   auto &) { return Value(allOf(s, [](char32_t c) { return isWhiteSpace(c); })); }},
    {"isalpha", [](auto &s, auto &,
                   auto &) { return Value(allOf(s, [](char32_t c) { return isLetter(c); })); }},
    {"isalnum",
     [](auto &s, auto &, auto &) {
       return Value(allOf(s, [](char32_t c) { return isLetter(c) || isNumeric(c); }));
     }},
    {"isupper", [](auto &s, auto &, auto &) { return Value(hasCase(s, true)); }},
    {"islower", [](auto &s, auto &, auto &) { return Value(hasCase(s, false)); }},
    {"removeprefix",
     [](auto &s, auto &a, auto &) {
       const std::string prefix = textArgument(a, 0, "prefix", "");
       return Value(s.starts_with(prefix) ? s.substr(prefix.size()) : s);
     }},
    {"removesuffix",
     [](auto &s, auto &a, auto &) {
       const std::string suffix = textArgument(a, 0, "suffix", "");
       return Value(s.ends_with(suffix) ? s.substr(0, s.size() - suffix.size()) : s);
     }},
};

Value stringMethod(const std::string &text, std::string_view name, Budget &budget) {
  for (const auto &[known, method] : kStringMethods)
    if (known == name)
      return Function([text, method = method, &budget](const Arguments &a) {
        budget.spend(text.size());
        return method(text, a, budget);
      });
  return Undefined{std::string(name)};
}

List dictItems(const Dict &dict) {
  List out;
  for (const auto &[key, value] : dict)
    out.push_back(Value::makeTuple({Value(key), value}));
  return out;
}

Value dictMethod(const Value &value, std::string_view name) {
  if (name == "items")
    return Function([value](const Arguments &) { return Value(dictItems(value.dict())); });
  if (name == "keys")
    return Function([value](const Arguments &) { return Value(value.items()); });
  if (name == "values")
    return Function([value](const Arguments &) {
      List out;
      for (const auto &entry : value.dict())
        out.push_back(entry.second);
      return Value(out);
    });
  if (name == "get")
    return Function([value](const Arguments &a) {
      const Value *key = a.find(0, "key"), *otherwise = a.find(1, "default");
      auto found = key && key->isString() ? value.member(key->string()) : std::nullopt;
      return found ? *found : otherwise ? *otherwise : Value(None{});
    });
  if (name == "copy")
    return Function([value](const Arguments &) { return value; });
  return Undefined{std::string(name)};
}

Value listMethod(const Value &value, std::string_view name) {
  if (name == "count")
    return Function([value](const Arguments &a) {
      const Value *item = a.find(0, "value");
      return Value(std::int64_t(std::ranges::count_if(
          value.list(), [&](const Value &v) { return item && equal(v, *item); })));
    });
  if (name == "index")
    return Function([value](const Arguments &a) {
      const Value *item = a.find(0, "value");
      for (std::size_t i = 0; item && i < value.list().size(); ++i)
        if (equal(value.list()[i], *item))
          return Value(std::int64_t(i));
      throw Error{"the list has no such item"};
    });
  return Undefined{std::string(name)};
}

Value method(const Value &value, const std::string &name, Budget &budget) {
  if (value.isString())
    return stringMethod(value.string(), name, budget);
  if (value.isDict())
    return dictMethod(value, name);
  if (value.isList())
    return listMethod(value, name);
  return Undefined{name};
}

void needsDefined(const Value &value, const std::string &name) {
  if (value.isUndefined())
    throw Error{"an undefined value has no \"" + name + "\""};
}

Value range(const Arguments &a) {
  const std::size_t count = a.positional.size();
  if (count < 1 || count > 3)
    throw Error{"range wants one to three numbers"};
  const std::int64_t begin = count > 1 ? a.positional[0].integer() : 0;
  const std::int64_t end = a.positional[count > 1 ? 1 : 0].integer();
  const std::int64_t step = count > 2 ? a.positional[2].integer() : 1;
  if (step == 0)
    throw Error{"range wants a step that is not 0"};
  List out;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end; i += step) {
    if (std::int64_t(out.size()) >= kLongestRange)
      throw Error{"range has more than 100000 numbers"};
    out.emplace_back(i);
  }
  return out;
}

Dict namedOf(const Arguments &a) {
  Dict out;
  if (!a.positional.empty() && a.positional[0].isDict())
    out = a.positional[0].dict();
  for (const auto &[name, value] : a.named)
    std::erase_if(out, [&](auto &entry) { return entry.first == name; }),
        out.emplace_back(name, value);
  return out;
}

Value timeText(const Arguments &a, std::time_t now) {
  const std::string format = textArgument(a, 0, "format", "");
  std::tm local{};
  localtime_r(&now, &local);
  std::string out(format.size() * 4 + 256, '\0');
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &local));
  return out;
}

} // namespace

void Budget::spend(std::size_t count) {
  if (count > left_)
    throw Error{"the template goes on for too long"};
  left_ -= count;
}

Value attribute(const Value &value, const std::string &name, Budget &budget) {
  needsDefined(value, name);
  if (value.isNamespace())
    return value.member(name).value_or(Value(Undefined{name}));
  if (Value found = method(value, name, budget); !found.isUndefined())
    return found;
  return value.member(name).value_or(Value(Undefined{name}));
}

Value item(const Value &value, const Value &key, Budget &budget) {
  if (key.isString()) {
    needsDefined(value, key.string());
    if (auto found = value.member(key.string()))
      return *found;
    return value.isDict() || value.isString() || value.isList()
               ? method(value, key.string(), budget)
               : Value(Undefined{key.string()});
  }
  needsDefined(value, key.text());
  if (!key.isInteger() && !key.isBool())
    return Undefined{key.text()};
  if (!value.isList() && !value.isString())
    return Undefined{key.text()};
  const List all = value.isString() ? value.items() : List();
  const List &items = value.isString() ? all : value.list();
  const auto size = std::int64_t(items.size());
  const std::int64_t index = key.integer() + (key.integer() < 0 ? size : 0);
  return index < 0 || index >= size ? Value(Undefined{key.text()}) : items[std::size_t(index)];
}

Value slice(const Value &value, const Value &begin, const Value &end, const Value &step) {
  needsDefined(value, "slice");
  if (!value.isList() && !value.isString())
    throw Error{std::string(value.kind()) + " has no slices"};
  auto given = [](const Value &v) { return !v.isUndefined() && !v.isNone(); };
  const List items = value.items();
  const auto size = std::int64_t(items.size());
  const std::int64_t by = given(step) ? step.integer() : 1;
  if (by == 0)
    throw Error{"a slice wants a step that is not 0"};
  auto clamp = [&](const Value &v, std::int64_t otherwise) {
    if (!given(v))
      return otherwise;
    const std::int64_t at = v.integer() < 0 ? v.integer() + size : v.integer();
    return by > 0 ? std::clamp<std::int64_t>(at, 0, size)
                  : std::clamp<std::int64_t>(at, -1, size - 1);
  };
  const std::int64_t first = clamp(begin, by > 0 ? 0 : size - 1),
                     last = clamp(end, by > 0 ? size : -1);
  List out;
  for (std::int64_t i = first; by > 0 ? i < last : i > last; i += by)
    out.push_back(items[std::size_t(i)]);
  if (!value.isString())
    return out;
  std::string text;
  for (const Value &character : out)
    text += character.string();
  return text;
}

std::optional<Value> globalFunction(std::string_view name, std::time_t now, Budget &budget) {
  if (name == "range")
    return Function([&budget](const Arguments &a) {
      Value out = range(a);
      budget.spend(out.list().size());
      return out;
    });
  if (name == "dict")
    return Function([](const Arguments &a) { return Value(namedOf(a)); });
  if (name == "namespace")
    return Function([](const Arguments &a) { return Value::makeNamespace(namedOf(a)); });
  if (name == "raise_exception")
    return Function([](const Arguments &a) -> Value {
      throw Error{a.positional.empty() ? "" : a.positional[0].text()};
    });
  if (name == "strftime_now")
    return Function([now](const Arguments &a) { return timeText(a, now); });
  return std::nullopt;
}

} // namespace gpt2c::rt::jinja
