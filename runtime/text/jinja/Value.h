// The values of templates: what JSON has, and what a template makes. They behave as Python's do.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace gpt2c::rt::jinja {

/// What a template did wrong, with its line (0: not known).
struct Error {
  std::string message;
  int line = 0;
};

class Value;
using List = std::vector<Value>;
/// In the order in which keys were set; keys are texts.
using Dict = std::vector<std::pair<std::string, Value>>;

/// The arguments of a call.
struct Arguments {
  List positional;
  std::vector<std::pair<std::string, Value>> named;

  /// The argument at `index` or of this name; null: not given.
  const Value *find(std::size_t index, std::string_view name) const;
};
using Function = std::function<Value(const Arguments &)>;

struct Undefined {
  std::string name;
};
struct None {};

/// Immutable but for namespaces; copies share what they hold.
class Value {
public:
  Value() : state_(Undefined{}) {}
  Value(Undefined value) : state_(std::move(value)) {}
  Value(None value) : state_(value) {}
  Value(bool value) : state_(value) {}
  Value(std::int64_t value) : state_(value) {}
  Value(double value) : state_(value) {}
  Value(std::string value) : state_(std::make_shared<const std::string>(std::move(value))) {}
  Value(const char *value) : Value(std::string(value)) {}
  Value(List value) : state_(std::make_shared<const List>(std::move(value))) {}
  Value(Dict value) : state_(std::make_shared<const Dict>(std::move(value))) {}
  Value(Function value) : state_(std::make_shared<const Function>(std::move(value))) {}

  static Value makeNamespace(Dict values);
  static Value makeTuple(List values);
  static Value fromJson(const nlohmann::ordered_json &json);

  bool isUndefined() const { return std::holds_alternative<Undefined>(state_); }
  bool isNone() const { return std::holds_alternative<None>(state_); }
  bool isBool() const { return std::holds_alternative<bool>(state_); }
  bool isInteger() const { return std::holds_alternative<std::int64_t>(state_); }
  bool isFloat() const { return std::holds_alternative<double>(state_); }
  bool isNumber() const { return isInteger() || isFloat() || isBool(); }
  bool isString() const { return std::holds_alternative<StringPtr>(state_); }
  bool isList() const { return std::holds_alternative<ListPtr>(state_); }
  bool isDict() const { return std::holds_alternative<DictPtr>(state_); }
  bool isFunction() const { return std::holds_alternative<FunctionPtr>(state_); }
  bool isNamespace() const { return std::holds_alternative<SpacePtr>(state_); }

  const std::string &string() const { return *std::get<StringPtr>(state_); }
  const List &list() const { return *std::get<ListPtr>(state_); }
  const Dict &dict() const { return *std::get<DictPtr>(state_); }
  const Function &function() const { return *std::get<FunctionPtr>(state_); }
  Dict &space() const { return *std::get<SpacePtr>(state_); }
  /// Of a number; a bool counts as 0 or 1.
  std::int64_t integer() const;
  double real() const;

  bool truthy() const;
  /// "a string", "a number", .. for messages.
  const char *kind() const;
  /// What is printed. Error: an undefined value within a list prints nothing.
  std::string text() const;
  /// As Python shows it in a list: with quotes.
  std::string repr() const;
  /// The member of a dict or namespace; none: it lacks the key.
  std::optional<Value> member(std::string_view key) const;
  /// What a loop goes over: items of a list, keys of a dict, characters of a string.
  List items() const;

private:
  using StringPtr = std::shared_ptr<const std::string>;
  using ListPtr = std::shared_ptr<const List>;
  using DictPtr = std::shared_ptr<const Dict>;
  using FunctionPtr = std::shared_ptr<const Function>;
  using SpacePtr = std::shared_ptr<Dict>;

  std::variant<Undefined, None, bool, std::int64_t, double, StringPtr, ListPtr, DictPtr,
               FunctionPtr, SpacePtr>
      state_;
  bool tuple_ = false;
};

bool equal(const Value &a, const Value &b);
/// Of numbers, texts and lists. Error: values that have no order.
bool less(const Value &a, const Value &b);
/// Whether `container` has `item`. Error: it is no container.
bool contains(const Value &container, const Value &item);

/// JSON as Python's json.dumps writes it with ensure_ascii=False; an indent below 0: one line.
std::string toJson(const Value &value, int indent, bool sortKeys = false,
                   std::string_view item = ", ", std::string_view key = ": ");

/// Characters of a text, each as a text.
std::vector<std::string_view> characters(std::string_view text);

} // namespace gpt2c::rt::jinja
