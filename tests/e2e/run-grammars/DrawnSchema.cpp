#include "tests/e2e/run-grammars/DrawnSchema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <regex>

namespace gpt2c::e2e {

using Json = nlohmann::ordered_json;

//===-- drawn -------------------------------------------------------------------------------===//

static const std::array kNames = {"a",  "name",   "x y", "\"q\"", "\xc3\xa9t\xc3\xa9",
                                  "id", "list_of"};
static const std::array kPatterns = {"^[a-f]{2,4}$", "^(yes|no)$", "^[0-9]{4}-[0-9]{2}$",
                                     "^a+b?c*$"};

Json DrawnSchemas::next() {
  Json schema = object(0);
  if (below(3) == 0)
    schema["$defs"] = {{"shared", any(3)}};
  else
    schema["$defs"] = {{"shared", {{"type", "boolean"}}}};
  return schema;
}

Json DrawnSchemas::any(int depth) {
  switch (below(depth < 3 ? 9 : 5)) {
  case 0:
  case 1:
    return string();
  case 2:
    return number();
  case 3:
    return literal();
  case 4:
    return {{"type", below(2) ? "boolean" : "null"}};
  case 5:
    return array(depth + 1);
  case 6:
    return {{"anyOf", Json::array({any(depth + 1), any(depth + 1)})}};
  case 7:
    return depth ? Json{{"$ref", "#/$defs/shared"}} : object(depth + 1);
  default:
    return object(depth + 1);
  }
}

Json DrawnSchemas::object(int depth) {
  Json schema{{"type", "object"}, {"properties", Json::object()}, {"required", Json::array()}};
  for (int n = 1 + below(4); n > 0; --n) {
    const char *name = kNames[size_t(below(int(kNames.size())))];
    if (schema["properties"].contains(name))
      continue;
    schema["properties"][name] = any(depth + 1);
    if (below(3))
      schema["required"].push_back(name);
  }
  if (below(3) == 0)
    schema["additionalProperties"] = false;
  return schema;
}

Json DrawnSchemas::array(int depth) {
  Json schema{{"type", "array"}, {"items", any(depth + 1)}};
  const int least = below(3);
  if (least)
    schema["minItems"] = least;
  schema["maxItems"] = least + below(3);
  return schema;
}

Json DrawnSchemas::string() {
  Json schema{{"type", "string"}};
  if (below(3) == 0) {
    schema["pattern"] = kPatterns[size_t(below(int(kPatterns.size())))];
    return schema;
  }
  const int least = below(4);
  if (least)
    schema["minLength"] = least;
  schema["maxLength"] = least + below(8);
  return schema;
}

Json DrawnSchemas::number() {
  const int least = below(2000) - 1000;
  Json schema{{"type", below(4) ? "integer" : "number"}};
  if (below(3)) {
    schema["minimum"] = least;
    schema["maximum"] = least + below(500);
  }
  return schema;
}

Json DrawnSchemas::literal() {
  const Json values = Json::array({"red", "a \"b\"", 3, -4.5, true, nullptr, "\n", "\xe2\x82\xac"});
  if (below(2))
    return {{"const", values[size_t(below(int(values.size())))]}};
  Json list = Json::array();
  for (int n = 1 + below(4); n > 0; --n)
    list.push_back(values[size_t(below(int(values.size())))]);
  return {{"enum", list}};
}

//===-- looked at ---------------------------------------------------------------------------===//

static size_t charactersOf(const std::string &text) {
  size_t n = 0;
  for (const char c : text)
    n += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return n;
}

static bool isOfType(const Json &value, const std::string &type) {
  if (type == "integer") // one may have more digits than 64 bits
    return value.is_number() && value.get<double>() == std::floor(value.get<double>());
  if (type == "number")
    return value.is_number();
  return (type == "object" && value.is_object()) || (type == "array" && value.is_array()) ||
         (type == "string" && value.is_string()) || (type == "boolean" && value.is_boolean()) ||
         (type == "null" && value.is_null());
}

/// The value is of the type that the schema asks for.
static bool fitsType(const Json &value, const Json &schema, const Json &root, std::string &why) {
  if (value.is_string()) {
    const auto &text = value.get_ref<const std::string &>();
    const size_t n = charactersOf(text);
    if (schema.contains("pattern"))
      return std::regex_match(text, std::regex(schema["pattern"].get<std::string>()));
    return n >= schema.value("minLength", size_t{0}) && n <= schema.value("maxLength", SIZE_MAX);
  }
  if (value.is_number())
    return value.get<double>() >= schema.value("minimum", -1e300) &&
           value.get<double>() <= schema.value("maximum", 1e300);
  if (value.is_array()) {
    if (value.size() < schema.value("minItems", size_t{0}) ||
        value.size() > schema.value("maxItems", SIZE_MAX))
      return false;
    for (const Json &item : value)
      if (!fits(item, schema["items"], root, why))
        return false;
  }
  if (value.is_object()) {
    for (const Json &name : schema["required"])
      if (!value.contains(name.get<std::string>()))
        return false;
    for (const auto &[name, inner] : value.items()) // no other property comes
      if (!schema["properties"].contains(name) ||
          !fits(inner, schema["properties"][name], root, why))
        return false;
  }
  return true;
}

bool fits(const Json &value, const Json &schema, const Json &root, std::string &why) {
  bool good = true;
  if (schema.contains("$ref"))
    return fits(value, root["$defs"]["shared"], root, why);
  if (schema.contains("anyOf"))
    good = fits(value, schema["anyOf"][0], root, why) || fits(value, schema["anyOf"][1], root, why);
  else if (schema.contains("const"))
    good = value == schema["const"];
  else if (schema.contains("enum"))
    good = std::ranges::count(schema["enum"], value) > 0;
  else
    good = isOfType(value, schema["type"]) && fitsType(value, schema, root, why);
  if (!good && why.empty())
    why = value.dump(-1, ' ', false, Json::error_handler_t::replace) + " does not fit " +
          schema.dump();
  return good;
}

} // namespace gpt2c::e2e
