// One class with a function for each kind of statement and expression.
#include "runtime/text/jinja/Interpreter.h"

#include <algorithm>
#include <cmath>

namespace gpt2c::rt::jinja {
namespace {

using Kind = Expression::Kind;

constexpr int kDeepestCall = 200;
constexpr std::size_t kLongestText = std::size_t(16) << 20;

/// Names and their values; those of an outer scope are seen, not changed.
struct Scope {
  Scope *outer = nullptr;
  Dict names = {};

  const Value *find(std::string_view name) const {
    for (const Scope *scope = this; scope; scope = scope->outer)
      for (const auto &[known, value] : scope->names)
        if (known == name)
          return &value;
    return nullptr;
  }
  void set(const std::string &name, Value value) {
    for (auto &[known, old] : names)
      if (known == name) {
        old = std::move(value);
        return;
      }
    names.emplace_back(name, std::move(value));
  }
};

enum class Flow { Next, Break, Continue };

std::int64_t checked(__int128 value) {
  if (value > INT64_MAX || value < INT64_MIN)
    throw Error{"a number is too large"};
  return std::int64_t(value);
}

std::int64_t floorDivided(std::int64_t a, std::int64_t b) {
  const __int128 quotient = __int128(a) / b;
  return checked(quotient - (__int128(a) % b != 0 && (a < 0) != (b < 0)));
}

class Interpreter {
public:
  explicit Interpreter(std::time_t now) : now_(now) {}

  std::string run(const Block &block, Dict context) {
    Scope globals{nullptr, std::move(context)};
    std::string out;
    runBlock(block, globals, out);
    return out;
  }

private:
  class Depth {
  public:
    explicit Depth(int &depth) : depth_(depth) {
      if (++depth_ > kDeepestCall) {
        --depth_;
        throw Error{"the template calls itself too deeply"};
      }
    }
    ~Depth() { --depth_; }
    Depth(const Depth &) = delete;

  private:
    int &depth_;
  };

  void append(std::string &out, std::string_view text) {
    if (out.size() + text.size() > kLongestText)
      throw Error{"the text is longer than 16 MiB"};
    budget_.spend(text.size() / 16 + 1);
    out += text;
  }

  Flow runBlock(const Block &block, Scope &scope, std::string &out) {
    for (const auto &statement : block) {
      try {
        if (const Flow flow = runStatement(*statement, scope, out); flow != Flow::Next)
          return flow;
      } catch (Error &error) {
        if (!error.line)
          error.line = statement->line;
        throw;
      }
    }
    return Flow::Next;
  }

  Flow runStatement(const Statement &s, Scope &scope, std::string &out) {
    const Depth depth(depth_);
    budget_.step();
    switch (s.kind) {
    case Statement::Kind::Text:
      append(out, s.text);
      return Flow::Next;
    case Statement::Kind::Print:
      append(out, evaluate(*s.expression, scope).text());
      return Flow::Next;
    case Statement::Kind::If:
      for (const auto &[condition, body] : s.branches)
        if (evaluate(*condition, scope).truthy())
          return runBlock(body, scope, out);
      return runBlock(s.other, scope, out);
    case Statement::Kind::For:
      return runFor(s, scope, out);
    case Statement::Kind::Set:
      runSet(s, scope);
      return Flow::Next;
    case Statement::Kind::SetBlock: {
      Scope inner{&scope};
      std::string text;
      runBlock(s.body, inner, text);
      scope.set(s.targets[0], filtered(*s.expression, std::move(text), scope));
      return Flow::Next;
    }
    case Statement::Kind::Macro:
      scope.set(s.text, makeMacro(s, scope));
      return Flow::Next;
    case Statement::Kind::CallBlock:
      append(out, callWithBlock(s, scope).text());
      return Flow::Next;
    case Statement::Kind::FilterBlock: {
      Scope inner{&scope};
      std::string text;
      runBlock(s.body, inner, text);
      append(out, filtered(*s.expression, std::move(text), scope).text());
      return Flow::Next;
    }
    case Statement::Kind::Body:
      return runBlock(s.body, scope, out);
    case Statement::Kind::Break:
      return Flow::Break;
    case Statement::Kind::Continue:
      return Flow::Continue;
    }
    return Flow::Next;
  }

  /// The filters of `expression` over a text, which stands for the name "".
  Value filtered(const Expression &expression, std::string text, Scope &scope) {
    Scope inner{&scope};
    inner.set("", Value(std::move(text)));
    return evaluate(expression, inner);
  }

  static void assign(const std::vector<std::string> &targets, const Value &value, Scope &scope) {
    if (targets.size() == 1)
      return scope.set(targets[0], value);
    const List parts = value.items();
    if (parts.size() != targets.size())
      throw Error{"expected " + std::to_string(targets.size()) + " values, not " +
                  std::to_string(parts.size())};
    for (std::size_t i = 0; i < parts.size(); ++i)
      scope.set(targets[i], parts[i]);
  }

  void runSet(const Statement &s, Scope &scope) {
    Value value = evaluate(*s.expression, scope);
    if (s.text.empty())
      return assign(s.targets, value, scope);
    const Value *space = scope.find(s.targets[0]);
    if (!space || !space->isNamespace())
      throw Error{"only a namespace has attributes that are set"};
    for (auto &[name, old] : space->space())
      if (name == s.text) {
        old = std::move(value);
        return;
      }
    space->space().emplace_back(s.text, std::move(value));
  }

  static Value loopOf(const List &items, std::size_t index, int depth,
                      const std::shared_ptr<Value> &lastChanged) {
    const auto at = std::int64_t(index), size = std::int64_t(items.size());
    Dict loop = {
        {"index", at + 1},
        {"index0", at},
        {"revindex", size - at},
        {"revindex0", size - at - 1},
        {"first", at == 0},
        {"last", at + 1 == size},
        {"length", size},
        {"depth", std::int64_t(depth)},
        {"depth0", std::int64_t(depth - 1)},
        {"previtem", index ? items[index - 1] : Value(Undefined{"previtem"})},
        {"nextitem", index + 1 < items.size() ? items[index + 1] : Value(Undefined{"nextitem"})}};
    loop.emplace_back("cycle", Function([index](const Arguments &a) {
                        if (a.positional.empty())
                          throw Error{"cycle wants values"};
                        return a.positional[index % a.positional.size()];
                      }));
    loop.emplace_back("changed", Function([lastChanged](const Arguments &a) {
                        Value now = Value::makeTuple(a.positional);
                        const bool changed = !equal(*lastChanged, now);
                        *lastChanged = now;
                        return Value(changed);
                      }));
    return Value::makeNamespace(std::move(loop));
  }

  Flow runFor(const Statement &s, Scope &scope, std::string &out) {
    List items;
    for (Value &each : evaluateAll(*s.expression, scope)) {
      if (s.condition) {
        Scope inner{&scope};
        assign(s.targets, each, inner);
        if (!evaluate(*s.condition, inner).truthy())
          continue;
      }
      items.push_back(std::move(each));
    }
    if (items.empty())
      return runBlock(s.other, scope, out);
    const auto changed = std::make_shared<Value>();
    for (std::size_t i = 0; i < items.size(); ++i) {
      budget_.step();
      Scope inner{&scope};
      inner.set("loop", loopOf(items, i, 1, changed));
      assign(s.targets, items[i], inner);
      if (runBlock(s.body, inner, out) == Flow::Break)
        break;
    }
    return Flow::Next;
  }

  List evaluateAll(const Expression &expression, Scope &scope) {
    List items = evaluate(expression, scope).items();
    budget_.spend(items.size());
    return items;
  }

  /// The macro sees the scope that it stands in, which outlives every call of it.
  Value makeMacro(const Statement &s, Scope &scope) {
    return Function([this, &s, &scope](const Arguments &a) {
      const Depth depth(depth_);
      Scope inner{&scope};
      const std::size_t required = s.targets.size() - s.defaults.size();
      for (std::size_t i = 0; i < s.targets.size(); ++i) {
        if (const Value *given = a.find(i, s.targets[i]))
          inner.set(s.targets[i], *given);
        else if (i >= required)
          inner.set(s.targets[i], evaluate(*s.defaults[i - required], inner));
        else
          inner.set(s.targets[i], Undefined{s.targets[i]});
      }
      checkArguments(s, a);
      if (const Value *caller = a.find(SIZE_MAX, "caller"))
        inner.set("caller", *caller);
      std::string out;
      runBlock(s.body, inner, out);
      return Value(std::move(out));
    });
  }
  static void checkArguments(const Statement &s, const Arguments &a) {
    if (a.positional.size() > s.targets.size())
      throw Error{"the macro " + s.text + " takes " + std::to_string(s.targets.size()) +
                  " arguments"};
    for (const auto &entry : a.named)
      if (entry.first != "caller" && !std::ranges::count(s.targets, entry.first))
        throw Error{"the macro " + s.text + " has no argument " + entry.first};
  }

  Value callWithBlock(const Statement &s, Scope &scope) {
    const Expression &call = *s.expression;
    Arguments arguments = argumentsOf(call, scope);
    arguments.named.emplace_back("caller", makeMacro(s, scope));
    return callValue(evaluate(*call.children[0], scope), arguments);
  }

  // Expressions

  Arguments argumentsOf(const Expression &e, Scope &scope) {
    Arguments arguments;
    for (std::size_t i = 1; i < e.children.size(); ++i)
      arguments.positional.push_back(evaluate(*e.children[i], scope));
    for (const auto &[name, value] : e.named)
      arguments.named.emplace_back(name, evaluate(*value, scope));
    return arguments;
  }

  Value callValue(const Value &callee, const Arguments &arguments) {
    if (!callee.isFunction())
      throw Error{std::string(callee.kind()) + " cannot be called"};
    return callee.function()(arguments);
  }

  Value evaluate(const Expression &e, Scope &scope) {
    const Depth depth(depth_);
    budget_.step();
    switch (e.kind) {
    case Kind::Literal:
      return e.value;
    case Kind::Name:
      return nameOf(e.name, scope);
    case Kind::List:
    case Kind::Tuple: {
      List items;
      for (const auto &child : e.children)
        items.push_back(evaluate(*child, scope));
      return e.kind == Kind::List ? Value(std::move(items)) : Value::makeTuple(std::move(items));
    }
    case Kind::Dict:
      return dictOf(e, scope);
    case Kind::Attribute:
      return attribute(evaluate(*e.children[0], scope), e.name, budget_);
    case Kind::Item: {
      const Value value = evaluate(*e.children[0], scope);
      return item(value, evaluate(*e.children[1], scope), budget_);
    }
    case Kind::Slice:
      return sliceOf(e, scope);
    case Kind::Call: {
      const Value callee = evaluate(*e.children[0], scope);
      return callValue(callee, argumentsOf(e, scope));
    }
    case Kind::Filter: {
      const Value value = evaluate(*e.children[0], scope);
      if (auto result = applyFilter(e.name, value, argumentsOf(e, scope), budget_))
        return *result;
      throw Error{"the filter " + e.name + " is not known", e.line};
    }
    case Kind::Test: {
      const Value value = evaluate(*e.children[0], scope);
      if (auto result = applyTest(e.name, value, argumentsOf(e, scope)))
        return *result;
      throw Error{"the test " + e.name + " is not known", e.line};
    }
    case Kind::Unary:
      return unary(e.name, evaluate(*e.children[0], scope));
    case Kind::Binary:
      return binary(e, scope);
    case Kind::Compare:
      return compare(e, scope);
    case Kind::Conditional:
      if (evaluate(*e.children[1], scope).truthy())
        return evaluate(*e.children[0], scope);
      return e.children[2] ? evaluate(*e.children[2], scope) : Value();
    }
    return {};
  }

  Value nameOf(const std::string &name, Scope &scope) {
    if (const Value *value = scope.find(name))
      return *value;
    if (auto function = globalFunction(name, now_, budget_))
      return *function;
    return Undefined{name};
  }

  Value dictOf(const Expression &e, Scope &scope) {
    Dict dict;
    for (std::size_t i = 0; i + 1 < e.children.size(); i += 2) {
      const std::string key = evaluate(*e.children[i], scope).text();
      Value value = evaluate(*e.children[i + 1], scope);
      auto known = std::ranges::find(dict, key, &Dict::value_type::first);
      if (known != dict.end())
        known->second = std::move(value);
      else
        dict.emplace_back(key, std::move(value));
    }
    return dict;
  }

  Value sliceOf(const Expression &e, Scope &scope) {
    Value parts[3];
    const Value value = evaluate(*e.children[0], scope);
    for (std::size_t i = 0; i < 3; ++i)
      parts[i] = e.children[i + 1] ? evaluate(*e.children[i + 1], scope) : Value(None{});
    Value out = slice(value, parts[0], parts[1], parts[2]);
    budget_.spend(out.isString() ? out.string().size() : out.list().size());
    return out;
  }

  static Value unary(const std::string &op, const Value &value) {
    if (op == "not")
      return !value.truthy();
    if (!value.isNumber())
      throw Error{std::string(value.kind()) + " has no sign"};
    if (op == "+")
      return value.isBool() ? Value(value.integer()) : value;
    return value.isFloat() ? Value(-value.real()) : Value(checked(-__int128(value.integer())));
  }

  Value binary(const Expression &e, Scope &scope) {
    Value left = evaluate(*e.children[0], scope);
    if (e.name == "and")
      return left.truthy() ? evaluate(*e.children[1], scope) : left;
    if (e.name == "or")
      return left.truthy() ? left : evaluate(*e.children[1], scope);
    const Value right = evaluate(*e.children[1], scope);
    if (e.name == "~" || (e.name == "+" && left.isString() && right.isString())) {
      std::string text = left.text() + right.text();
      budget_.spend(text.size() / 16 + 1);
      if (text.size() > kLongestText)
        throw Error{"a text is longer than 16 MiB"};
      return text;
    }
    if (e.name == "+" && left.isList() && right.isList()) {
      List items = left.list();
      items.insert(items.end(), right.list().begin(), right.list().end());
      budget_.spend(items.size());
      return items;
    }
    auto counts = [](const Value &v) { return v.isInteger() || v.isBool(); };
    if (e.name == "*" && (left.isString() || left.isList()) && counts(right))
      return repeated(left, right.integer());
    if (e.name == "*" && (right.isString() || right.isList()) && counts(left))
      return repeated(right, left.integer());
    if (!left.isNumber() || !right.isNumber())
      throw Error{std::string(left.kind()) + " " + e.name + " " + right.kind() + " has no meaning",
                  e.line};
    return arithmetic(e.name, left, right);
  }

  Value repeated(const Value &value, std::int64_t times) {
    const std::size_t size = value.isString() ? value.string().size() : value.list().size();
    times = std::max<std::int64_t>(times, 0);
    if (size && std::uint64_t(times) > kLongestText / size)
      throw Error{"a text is longer than 16 MiB"};
    budget_.spend(size * std::size_t(times));
    std::string text;
    List items;
    for (std::int64_t i = 0; size && i < times; ++i)
      if (value.isString())
        text += value.string();
      else
        items.insert(items.end(), value.list().begin(), value.list().end());
    return value.isString() ? Value(std::move(text)) : Value(std::move(items));
  }

  static Value arithmetic(const std::string &op, const Value &left, const Value &right) {
    const bool real = left.isFloat() || right.isFloat();
    if ((op == "/" || op == "//" || op == "%") && right.real() == 0)
      throw Error{"a division by zero"};
    if (op == "/")
      return left.real() / right.real();
    if (op == "**")
      return power(left, right);
    if (real) {
      const double a = left.real(), b = right.real();
      return op == "+"    ? a + b
             : op == "-"  ? a - b
             : op == "*"  ? a * b
             : op == "//" ? std::floor(a / b)
                          : a - b * std::floor(a / b);
    }
    const std::int64_t a = left.integer(), b = right.integer();
    if (op == "//")
      return floorDivided(a, b);
    if (op == "%")
      return checked(__int128(a) - __int128(b) * floorDivided(a, b));
    return checked(op == "+" ? __int128(a) + b : op == "-" ? __int128(a) - b : __int128(a) * b);
  }

  static Value power(const Value &left, const Value &right) {
    if (left.isFloat() || right.isFloat() || right.integer() < 0)
      return std::pow(left.real(), right.real());
    std::int64_t out = 1;
    if (right.integer() > 64 && std::abs(left.integer()) > 1)
      throw Error{"a number is too large"};
    for (std::int64_t i = 0; i < std::min<std::int64_t>(right.integer(), 65); ++i)
      out = checked(__int128(out) * left.integer());
    return out;
  }

  Value compare(const Expression &e, Scope &scope) {
    Value left = evaluate(*e.children[0], scope);
    for (std::size_t i = 0; i < e.operators.size(); ++i) {
      Value right = evaluate(*e.children[i + 1], scope);
      const std::string &op = e.operators[i];
      const bool holds = op == "=="   ? equal(left, right)
                         : op == "!=" ? !equal(left, right)
                         : op == "<"  ? less(left, right)
                         : op == ">"  ? less(right, left)
                         : op == "<=" ? !less(right, left)
                         : op == ">=" ? !less(left, right)
                         : op == "in" ? contains(right, left)
                                      : !contains(right, left);
      if (!holds)
        return false;
      left = std::move(right);
    }
    return true;
  }

  std::time_t now_;
  Budget budget_;
  int depth_ = 0;
};

} // namespace

std::string render(const Block &block, Dict context, std::time_t now) {
  return Interpreter(now).run(block, std::move(context));
}

} // namespace gpt2c::rt::jinja
