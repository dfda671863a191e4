#include "server/http/Fields.h"

#include <cmath>
#include <limits>

namespace gpt2c::serve {

namespace json = boost::json;

std::string_view textOf(const json::value &value) {
  const json::string &s = value.get_string();
  return {s.data(), s.size()};
}

std::optional<double> numberOf(const json::value &value) {
  switch (value.kind()) {
  case json::kind::int64:
    return double(value.get_int64());
  case json::kind::uint64:
    return double(value.get_uint64());
  case json::kind::double_:
    return value.get_double();
  default:
    return std::nullopt;
  }
}

std::optional<int64_t> integerOf(const json::value &value) {
  if (value.is_int64())
    return value.get_int64();
  if (!value.is_double())
    return std::nullopt;
  const double number = value.get_double();
  if (number != std::floor(number) || std::abs(number) > 9e15)
    return std::nullopt;
  return int64_t(number);
}

std::optional<std::vector<int32_t>> idsOf(const json::value &value) {
  if (!value.is_array())
    return std::nullopt;
  std::vector<int32_t> out;
  for (const json::value &id : value.get_array()) {
    if (!id.is_int64() || id.get_int64() < std::numeric_limits<int32_t>::min() ||
        id.get_int64() > std::numeric_limits<int32_t>::max())
      return std::nullopt;
    out.push_back(int32_t(id.get_int64()));
  }
  return out;
}

void Fields::fail(const char *name, const std::string &message) {
  if (!error_)
    error_ = ApiError{.message = message, .param = name};
}

const json::value *Fields::find(const char *name) {
  known_.insert(name);
  const json::value *value = error_ ? nullptr : body_.if_contains(name);
  return value && !value->is_null() ? value : nullptr;
}

bool Fields::integer(const char *name, int64_t &to, int64_t least, int64_t most) {
  const json::value *value = find(name);
  if (!value)
    return false;
  const std::optional<int64_t> number = integerOf(*value);
  if (!number || *number < least || *number > most) {
    JsonWriter shown;
    shown.value(*value);
    fail(name, std::string(name) + " must be an integer from " + std::to_string(least) + " to " +
                   std::to_string(most) + ", and is " + shown.str().substr(0, 40));
    return false;
  }
  to = *number;
  return true;
}

bool Fields::integer(const char *name, int32_t &to, int32_t least, int32_t most) {
  int64_t wide = 0;
  if (!integer(name, wide, least, most))
    return false;
  to = int32_t(wide);
  return true;
}

bool Fields::number(const char *name, double &to) {
  const json::value *value = find(name);
  if (!value)
    return false;
  const std::optional<double> number = numberOf(*value);
  if (!number || !std::isfinite(*number)) {
    fail(name, std::string(name) + " must be a number");
    return false;
  }
  to = *number;
  return true;
}

bool Fields::boolean(const char *name, bool &to) {
  const json::value *value = find(name);
  if (!value)
    return false;
  if (!value->is_bool()) {
    fail(name, std::string(name) + " must be true or false");
    return false;
  }
  to = value->get_bool();
  return true;
}

bool Fields::text(const char *name, std::string &to) {
  const json::value *value = find(name);
  if (!value)
    return false;
  if (!value->is_string()) {
    fail(name, std::string(name) + " must be a string");
    return false;
  }
  to = textOf(*value);
  return true;
}

bool Fields::texts(const char *name, std::vector<std::string> &to, size_t most) {
  const json::value *value = find(name);
  if (!value)
    return false;
  if (value->is_string()) {
    to.emplace_back(textOf(*value));
    return true;
  }
  bool fits = value->is_array() && value->get_array().size() <= most;
  if (fits)
    for (const json::value &item : value->get_array()) {
      fits = fits && item.is_string();
      if (fits)
        to.emplace_back(textOf(item));
    }
  if (!fits)
    fail(name, std::string(name) + " must be a string or a list of at most " +
                   std::to_string(most) + " strings");
  return fits;
}

bool Fields::ids(const char *name, std::vector<int32_t> &to) {
  const json::value *value = find(name);
  if (!value)
    return false;
  std::optional<std::vector<int32_t>> ids = idsOf(*value);
  if (!ids) {
    fail(name, std::string(name) + " must be a list of token ids");
    return false;
  }
  to = std::move(*ids);
  return true;
}

void Fields::ignore(std::initializer_list<const char *> names) {
  known_.insert(names.begin(), names.end());
}

void Fields::refuse(const char *name, const char *harmless, const std::string &why) {
  const json::value *value = find(name);
  if (!value)
    return;
  JsonWriter shown;
  shown.value(*value);
  if (shown.str() != harmless)
    fail(name, std::string(name) + " is not supported: " + why);
}

void Fields::finish() {
  for (const auto &[name, value] : body_) {
    const std::string_view view(name.data(), name.size());
    if (!known_.contains(view) && !error_)
      error_ = ApiError{.message = "there is no field '" + std::string(view.substr(0, 80)) + "'",
                        .param = std::string(view.substr(0, 80)),
                        .code = "unknown_field"};
  }
}

} // namespace gpt2c::serve
