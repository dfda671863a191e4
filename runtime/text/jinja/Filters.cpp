// Filters and tests. All of them, by name.
#include "runtime/text/jinja/Library.h"
#include "runtime/text/unicode/Unicode.h"
#include "runtime/text/unicode/Utf8.h"

#include <algorithm>
#include <cmath>

namespace gpt2c::rt::jinja {
namespace {

Value callMethodOf(const Value &value, const char *name, const Arguments &arguments,
                   Budget &budget) {
  return attribute(Value(value.text()), name, budget).function()(arguments);
}

const Value &needed(const Arguments &a, std::size_t index, const char *name) {
  const Value *value = a.find(index, name);
  if (!value)
    throw Error{std::string("the argument ") + name + " is missing"};
  return *value;
}

bool flagArgument(const Arguments &a, std::size_t index, const char *name, bool otherwise) {
  const Value *value = a.find(index, name);
  return value ? value->truthy() : otherwise;
}

std::int64_t lengthOf(const Value &value) {
  if (value.isString())
    return std::int64_t(characters(value.string()).size());
  if (value.isDict())
    return std::int64_t(value.dict().size());
  if (!value.isList() && !value.isUndefined())
    throw Error{std::string(value.kind()) + " has no length"};
  return std::int64_t(value.items().size());
}

/// "a.b.0" of a value; an integer is an index.
Value path(const Value &value, const Value &name, Budget &budget) {
  if (!name.isString())
    return item(value, name, budget);
  Value at = value;
  std::string_view left = name.string();
  while (!left.empty()) {
    const std::size_t end = std::min(left.find('.'), left.size());
    const std::string part(left.substr(0, end));
    left.remove_prefix(std::min(end + 1, left.size()));
    const bool index = !part.empty() && part.size() < 10 &&
                       std::ranges::all_of(part, [](char c) { return c >= '0' && c <= '9'; });
    at = item(at, index ? Value(std::int64_t(std::stol(part))) : Value(part), budget);
  }
  return at;
}

Arguments from(const Arguments &a, std::size_t first) {
  Arguments rest = a;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() +
                            std::ptrdiff_t(std::min(first, a.positional.size())));
  return rest;
}

bool passes(const Value &value, const Arguments &a, std::size_t test) {
  const Value *name = a.find(test, "");
  if (!name)
    return value.truthy();
  auto result = applyTest(name->text(), value, from(a, test + 1));
  if (!result)
    throw Error{"the test " + name->text() + " is not known"};
  return *result;
}

/// select, reject, selectattr, rejectattr.
Value choose(const Value &value, const Arguments &a, bool byAttribute, bool keeps, Budget &budget) {
  List out;
  for (const Value &each : value.items()) {
    budget.step();
    const Value looked = byAttribute ? path(each, needed(a, 0, ""), budget) : each;
    if (passes(looked, a, byAttribute ? 1 : 0) == keeps)
      out.push_back(each);
  }
  return out;
}

Value map(const Value &value, const Arguments &a, Budget &budget) {
  List out;
  const Value *name = a.find(SIZE_MAX, "attribute");
  const Value *otherwise = a.find(SIZE_MAX, "default");
  for (const Value &each : value.items()) {
    budget.step();
    if (name) {
      Value found = path(each, *name, budget);
      out.push_back(found.isUndefined() && otherwise ? *otherwise : found);
      continue;
    }
    auto result = applyFilter(needed(a, 0, "filter").text(), each, from(a, 1), budget);
    if (!result)
      throw Error{"the filter " + a.positional[0].text() + " is not known"};
    out.push_back(*result);
  }
  return out;
}

Value lowered(const Value &value, Budget &budget) {
  return value.isString() ? callMethodOf(value, "lower", {}, budget) : value;
}

Value sortKey(const Value &value, const Value *name, bool caseSensitive, Budget &budget) {
  const Value looked = name && !name->isNone() ? path(value, *name, budget) : value;
  return caseSensitive ? looked : lowered(looked, budget);
}

Value sorted(const Value &value, const Arguments &a, Budget &budget) {
  const bool reverse = flagArgument(a, 0, "reverse", false);
  const bool exact = flagArgument(a, 1, "case_sensitive", false);
  const Value *name = a.find(2, "attribute");
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value &each : value.items()) {
    budget.spend(16);
    keyed.emplace_back(sortKey(each, name, exact, budget), each);
  }
  std::ranges::stable_sort(keyed, [&](const auto &x, const auto &y) {
    return reverse ? less(y.first, x.first) : less(x.first, y.first);
  });
  List out;
  for (auto &entry : keyed)
    out.push_back(std::move(entry.second));
  return out;
}

Value dictSorted(const Value &value, const Arguments &a, Budget &budget) {
  const bool exact = flagArgument(a, 0, "case_sensitive", false);
  const Value *by = a.find(1, "by");
  const bool reverse = flagArgument(a, 2, "reverse", false);
  if (!value.isDict())
    throw Error{"dictsort wants a dict"};
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto &[key, each] : value.dict()) {
    budget.spend(16);
    const Value looked = by && by->text() == "value" ? each : Value(key);
    keyed.emplace_back(exact ? looked : lowered(looked, budget),
                       Value::makeTuple({Value(key), each}));
  }
  std::ranges::stable_sort(keyed, [&](const auto &x, const auto &y) {
    return reverse ? less(y.first, x.first) : less(x.first, y.first);
  });
  List out;
  for (auto &entry : keyed)
    out.push_back(std::move(entry.second));
  return out;
}

Value unique(const Value &value, const Arguments &a, Budget &budget) {
  const bool exact = flagArgument(a, 0, "case_sensitive", false);
  const Value *name = a.find(1, "attribute");
  List keys, out;
  for (const Value &each : value.items()) {
    const Value key = sortKey(each, name, exact, budget);
    budget.spend(keys.size() + 1);
    if (std::ranges::any_of(keys, [&](const Value &known) { return equal(known, key); }))
      continue;
    keys.push_back(key);
    out.push_back(each);
  }
  return out;
}

Value extreme(const Value &value, const Arguments &a, bool largest, Budget &budget) {
  const bool exact = flagArgument(a, 0, "case_sensitive", false);
  const Value *name = a.find(1, "attribute");
  Value best, bestKey;
  for (const Value &each : value.items()) {
    const Value key = sortKey(each, name, exact, budget);
    if (bestKey.isUndefined() || (largest ? less(bestKey, key) : less(key, bestKey))) {
      best = each;
      bestKey = key;
    }
  }
  return best;
}

Value sum(const Value &value, const Arguments &a, Budget &budget) {
  const Value *name = a.find(0, "attribute"), *start = a.find(1, "start");
  Value total = start ? *start : Value(std::int64_t(0));
  for (const Value &each : value.items()) {
    const Value v = name && !name->isNone() ? path(each, *name, budget) : each;
    if (!v.isNumber() || !total.isNumber())
      throw Error{"sum wants numbers"};
    if (v.isFloat() || total.isFloat())
      total = total.real() + v.real();
    else
      total = std::int64_t(std::uint64_t(total.integer()) + std::uint64_t(v.integer()));
  }
  return total;
}

Value join(const Value &value, const Arguments &a, Budget &budget) {
  const Value *by = a.find(0, "d"), *name = a.find(1, "attribute");
  std::string out;
  bool first = true;
  for (const Value &each : value.items()) {
    const std::string text = (name ? path(each, *name, budget) : each).text();
    if (!first && by)
      out += by->text();
    budget.spend(text.size() + 1 + (by ? by->text().size() : 0));
    out += text;
    first = false;
  }
  return out;
}

Value indent(const Value &value, const Arguments &a, Budget &budget) {
  const Value *width = a.find(0, "width");
  const bool first = flagArgument(a, 1, "first", false), blank = flagArgument(a, 2, "blank", false);
  std::string by;
  if (!width)
    by = "    ";
  else if (width->isString())
    by = width->string();
  else
    by.assign(std::size_t(std::clamp<std::int64_t>(width->integer(), 0, 1000)), ' ');
  const std::string text = value.text();
  std::string out = first ? by : "";
  for (std::size_t i = 0; i < text.size(); ++i) {
    out += text[i];
    const bool empty = i + 1 == text.size() ? !blank : text[i + 1] == '\n' && !blank;
    if (text[i] == '\n' && (!empty || blank)) {
      budget.spend(by.size());
      out += by;
    }
  }
  return out;
}

std::string escaped(const std::string &text) {
  std::string out;
  for (const char c : text)
    out += c == '&'    ? "&amp;"
           : c == '<'  ? "&lt;"
           : c == '>'  ? "&gt;"
           : c == '"'  ? "&#34;"
           : c == '\'' ? "&#39;"
                       : std::string(1, c);
  return out;
}

Value toInteger(const Value &value, const Arguments &a) {
  const Value *otherwise = a.find(0, "default");
  if (value.isNumber())
    return value.integer();
  if (value.isString()) {
    const std::string &text = value.string();
    char *end = nullptr;
    const long long read = std::strtoll(text.c_str(), &end, 10);
    if (end != text.c_str() && *end == 0)
      return std::int64_t(read);
    const double real = std::strtod(text.c_str(), &end);
    if (end != text.c_str() && *end == 0 && std::abs(real) < 9e18)
      return std::int64_t(real);
  }
  return otherwise ? *otherwise : Value(std::int64_t(0));
}

Value toFloat(const Value &value, const Arguments &a) {
  const Value *otherwise = a.find(0, "default");
  if (value.isNumber())
    return value.real();
  if (value.isString()) {
    char *end = nullptr;
    const double read = std::strtod(value.string().c_str(), &end);
    if (end != value.string().c_str() && *end == 0)
      return read;
  }
  return otherwise ? *otherwise : Value(0.0);
}

Value rounded(const Value &value, const Arguments &a) {
  const Value *digits = a.find(0, "precision"), *method = a.find(1, "method");
  const double scale = std::pow(10.0, digits ? double(digits->integer()) : 0.0);
  const std::string how = method ? method->text() : "common";
  const double scaled = value.real() * scale;
  return (how == "ceil"    ? std::ceil(scaled)
          : how == "floor" ? std::floor(scaled)
                           : std::nearbyint(scaled)) /
         scale;
}

Value jsonText(const Value &value, const Arguments &a) {
  const Value *indent = a.find(1, "indent");
  // transformers' filter has (x, ensure_ascii, indent, separators, sort_keys).
  const Value *separators = a.find(2, "separators");
  std::string item = ", ", key = ": ";
  if (separators && separators->isList() && separators->list().size() == 2) {
    item = separators->list()[0].text();
    key = separators->list()[1].text();
  }
  if (flagArgument(a, 0, "ensure_ascii", false))
    throw Error{"tojson with ensure_ascii is not known"};
  return toJson(
      value,
      indent && !indent->isNone() ? int(std::clamp<std::int64_t>(indent->integer(), 0, 100)) : -1,
      flagArgument(a, 3, "sort_keys", false), item, key);
}

Value reversed(const Value &value) {
  List items = value.items();
  std::ranges::reverse(items);
  if (!value.isString())
    return items;
  std::string text;
  for (const Value &c : items)
    text += c.string();
  return text;
}

Value batch(const Value &value, const Arguments &a) {
  const std::int64_t size = needed(a, 0, "linecount").integer();
  if (size < 1)
    throw Error{"batch wants a number of at least 1"};
  List out, row;
  for (const Value &each : value.items()) {
    row.push_back(each);
    if (std::int64_t(row.size()) == size)
      out.emplace_back(std::exchange(row, {}));
  }
  if (const Value *fill = a.find(1, "fill_with"); fill && !row.empty())
    while (std::int64_t(row.size()) < std::min<std::int64_t>(size, 100000))
      row.push_back(*fill);
  if (!row.empty())
    out.emplace_back(row);
  return out;
}

Value otherwise(const Value &value, const Arguments &a) {
  const Value *given = a.find(0, "default_value");
  const bool falsy = flagArgument(a, 1, "boolean", false);
  if (value.isUndefined() || (falsy && !value.truthy()))
    return given ? *given : Value("");
  return value;
}

Value endOf(const List &items, bool first) {
  return items.empty() ? Value() : first ? items.front() : items.back();
}

using Filter = Value (*)(const Value &, const Arguments &, Budget &);

constexpr std::pair<std::string_view, Filter> kFilters[] = {
    {"tojson", [](auto &v, auto &a, auto &) { return jsonText(v, a); }},
    {"trim", [](auto &v, auto &a, auto &b) { return callMethodOf(v, "strip", a, b); }},
    {"length", [](auto &v, auto &, auto &) { return Value(lengthOf(v)); }},
    {"count", [](auto &v, auto &, auto &) { return Value(lengthOf(v)); }},
    {"upper", [](auto &v, auto &, auto &b) { return callMethodOf(v, "upper", {}, b); }},
    {"lower", [](auto &v, auto &, auto &b) { return callMethodOf(v, "lower", {}, b); }},
    {"title", [](auto &v, auto &, auto &b) { return callMethodOf(v, "title", {}, b); }},
    {"capitalize", [](auto &v, auto &, auto &b) { return callMethodOf(v, "capitalize", {}, b); }},
    {"replace", [](auto &v, auto &a, auto &b) { return callMethodOf(v, "replace", a, b); }},
    {"default", [](auto &v, auto &a, auto &) { return otherwise(v, a); }},
    {"d", [](auto &v, auto &a, auto &) { return otherwise(v, a); }},
    {"join", [](auto &v, auto &a, auto &b) { return join(v, a, b); }},
    {"map", [](auto &v, auto &a, auto &b) { return map(v, a, b); }},
    {"select", [](auto &v, auto &a, auto &b) { return choose(v, a, false, true, b); }},
    {"reject", [](auto &v, auto &a, auto &b) { return choose(v, a, false, false, b); }},
    {"selectattr", [](auto &v, auto &a, auto &b) { return choose(v, a, true, true, b); }},
    {"rejectattr", [](auto &v, auto &a, auto &b) { return choose(v, a, true, false, b); }},
    {"sort", [](auto &v, auto &a, auto &b) { return sorted(v, a, b); }},
    {"dictsort", [](auto &v, auto &a, auto &b) { return dictSorted(v, a, b); }},
    {"unique", [](auto &v, auto &a, auto &b) { return unique(v, a, b); }},
    {"min", [](auto &v, auto &a, auto &b) { return extreme(v, a, false, b); }},
    {"max", [](auto &v, auto &a, auto &b) { return extreme(v, a, true, b); }},
    {"sum", [](auto &v, auto &a, auto &b) { return sum(v, a, b); }},
    {"reverse", [](auto &v, auto &, auto &) { return reversed(v); }},
    {"list", [](auto &v, auto &, auto &) { return Value(v.items()); }},
    {"batch", [](auto &v, auto &a, auto &) { return batch(v, a); }},
    {"first", [](auto &v, auto &, auto &) { return endOf(v.items(), true); }},
    {"last", [](auto &v, auto &, auto &) { return endOf(v.items(), false); }},
    {"items",
     [](auto &v, auto &, auto &b) {
       if (!v.isUndefined() && !v.isDict())
         throw Error{std::string(v.kind()) + " has no items"};
       return v.isUndefined() ? Value(List()) : attribute(v, "items", b).function()({});
     }},
    {"string", [](auto &v, auto &, auto &) { return Value(v.text()); }},
    {"safe", [](auto &v, auto &, auto &) { return v; }},
    {"escape", [](auto &v, auto &, auto &) { return Value(escaped(v.text())); }},
    {"e", [](auto &v, auto &, auto &) { return Value(escaped(v.text())); }},
    {"indent", [](auto &v, auto &a, auto &b) { return indent(v, a, b); }},
    {"int", [](auto &v, auto &a, auto &) { return toInteger(v, a); }},
    {"float", [](auto &v, auto &a, auto &) { return toFloat(v, a); }},
    {"round", [](auto &v, auto &a, auto &) { return rounded(v, a); }},
    {"abs",
     [](auto &v, auto &, auto &) {
       return v.isFloat() ? Value(std::abs(v.real())) : Value(std::int64_t(std::abs(v.integer())));
     }},
    {"attr",
     [](auto &v, auto &a, auto &b) { return attribute(v, needed(a, 0, "name").text(), b); }},
    {"wordcount",
     [](auto &v, auto &, auto &b) { return Value(lengthOf(callMethodOf(v, "split", {}, b))); }},
};

using Test = bool (*)(const Value &, const Arguments &);
template <bool (*Is)(const Value &, const Value &)>
bool against(const Value &v, const Arguments &a) {
  return Is(v, needed(a, 0, "other"));
}
bool same(const Value &a, const Value &b) {
  return equal(a, b) && std::string_view(a.kind()) == b.kind();
}
bool isSequence(const Value &v) {
  return v.isList() || v.isDict() || v.isString() || v.isUndefined();
}
bool notEqual(const Value &a, const Value &b) { return !equal(a, b); }
bool atMost(const Value &a, const Value &b) { return !less(b, a); }
bool atLeast(const Value &a, const Value &b) { return !less(a, b); }
bool greater(const Value &a, const Value &b) { return less(b, a); }
bool isIn(const Value &a, const Value &b) { return contains(b, a); }

constexpr std::pair<std::string_view, Test> kTests[] = {
    {"defined", [](auto &v, auto &) { return !v.isUndefined(); }},
    {"undefined", [](auto &v, auto &) { return v.isUndefined(); }},
    {"none", [](auto &v, auto &) { return v.isNone(); }},
    {"string", [](auto &v, auto &) { return v.isString(); }},
    {"number", [](auto &v, auto &) { return v.isNumber(); }},
    {"integer", [](auto &v, auto &) { return v.isInteger(); }},
    {"float", [](auto &v, auto &) { return v.isFloat(); }},
    {"boolean", [](auto &v, auto &) { return v.isBool(); }},
    {"true", [](auto &v, auto &) { return v.isBool() && v.truthy(); }},
    {"false", [](auto &v, auto &) { return v.isBool() && !v.truthy(); }},
    {"mapping", [](auto &v, auto &) { return v.isDict(); }},
    {"sequence", [](auto &v, auto &) { return isSequence(v); }},
    {"iterable", [](auto &v, auto &) { return isSequence(v); }},
    {"callable", [](auto &v, auto &) { return v.isFunction(); }},
    {"odd", [](auto &v, auto &) { return v.integer() % 2 != 0; }},
    {"even", [](auto &v, auto &) { return v.integer() % 2 == 0; }},
    {"divisibleby",
     [](auto &v, auto &a) {
       const std::int64_t by = needed(a, 0, "num").integer();
       if (by == 0)
         throw Error{"divisibleby wants a number that is not 0"};
       return by == -1 || v.integer() % by == 0;
     }},
    {"upper",
     [](auto &v, auto &) {
       Budget b;
       return attribute(v.text(), "isupper", b).function()({}).truthy();
     }},
    {"lower",
     [](auto &v, auto &) {
       Budget b;
       return attribute(v.text(), "islower", b).function()({}).truthy();
     }},
    {"sameas", against<same>},
    {"eq", against<equal>},
    {"equalto", against<equal>},
    {"==", against<equal>},
    {"ne", against<notEqual>},
    {"!=", against<notEqual>},
    {"lt", against<less>},
    {"<", against<less>},
    {"lessthan", against<less>},
    {"le", against<atMost>},
    {"<=", against<atMost>},
    {"gt", against<greater>},
    {">", against<greater>},
    {"greaterthan", against<greater>},
    {"ge", against<atLeast>},
    {">=", against<atLeast>},
    {"in", against<isIn>},
};

} // namespace

std::optional<Value> applyFilter(std::string_view name, const Value &value,
                                 const Arguments &arguments, Budget &budget) {
  for (const auto &[known, filter] : kFilters)
    if (known == name)
      return filter(value, arguments, budget);
  return std::nullopt;
}

std::optional<bool> applyTest(std::string_view name, const Value &value,
                              const Arguments &arguments) {
  for (const auto &[known, test] : kTests)
    if (known == name)
      return test(value, arguments);
  return std::nullopt;
}

} // namespace gpt2c::rt::jinja
