#include "tools/runtime-common/Json.h"

#include <cmath>
#include <utility>

namespace gpt2c {

/// Doubles that are whole become integers.
static void makeWhole(Json &value) {
  if (value.is_structured())
    for (Json &element : value)
      makeWhole(element);
  else if (value.is_number_float())
    if (const double d = value.get<double>(); std::fabs(d) < 1e15 && d == std::trunc(d))
      value = int64_t(d);
}

static std::string textOf(Json value, int indent) {
  makeWhole(value);
  return value.dump(indent, ' ', false, Json::error_handler_t::replace);
}

std::string line(Json value) { return textOf(std::move(value), -1) + "\n"; }

std::string pretty(Json value) { return textOf(std::move(value), 2) + "\n"; }

std::string numberText(double value) { return textOf(value, -1); }

Json parseJson(const std::string &text, std::string &error) {
  try {
    return Json::parse(text);
  } catch (const Json::exception &e) {
    error = e.what();
    return Json(Json::value_t::discarded);
  }
}

} // namespace gpt2c
