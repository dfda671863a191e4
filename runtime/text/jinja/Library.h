// Filters, tests, methods and functions of templates, as Jinja and Python have them.
#pragma once

#include "runtime/text/jinja/Value.h"

#include <cstddef>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>

namespace gpt2c::rt::jinja {

/// Bounds what a template does. Each throws Error where it is passed.
class Budget {
public:
  void step() { spend(1); }
  /// `count` further steps, or bytes of a text that is made.
  void spend(std::size_t count);

private:
  std::size_t left_ = 3'000'000;
};

/// value | name(arguments). None: there is no such filter.
std::optional<Value> applyFilter(std::string_view name, const Value &value,
                                 const Arguments &arguments, Budget &budget);
/// value is name(arguments). None: there is no such test.
std::optional<bool> applyTest(std::string_view name, const Value &value,
                              const Arguments &arguments);

/// value.name: a method, else a member; undefined where there is neither.
Value attribute(const Value &value, const std::string &name, Budget &budget);
/// value[key]: a member or item, else, for a key that is a text, a method.
Value item(const Value &value, const Value &key, Budget &budget);
/// value[begin:end:step] of a list or text.
Value slice(const Value &value, const Value &begin, const Value &end, const Value &step);

/// range, dict, namespace, raise_exception, strftime_now at `now`. None: no such
/// function.
std::optional<Value> globalFunction(std::string_view name, std::time_t now, Budget &budget);

} // namespace gpt2c::rt::jinja
