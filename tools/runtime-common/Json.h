// JSON as the tools print it: keys in alphabetical order, whole numbers without a point, bytes that
// are no UTF-8 replaced, numbers that JSON does not have as null.
#pragma once

#include <nlohmann/json.hpp>

#include <string>

namespace gpt2c {

using Json = nlohmann::json;

/// The value on a line of its own.
std::string line(Json value);
/// The value over many lines.
std::string pretty(Json value);
/// A number as JSON has it.
std::string numberText(double value);

/// The value of a text that may be no JSON; discarded then, with why in `error`.
Json parseJson(const std::string &text, std::string &error);

} // namespace gpt2c
