#include "frontend/checkpoint/Json.h"
#include "ir/Error.h"

#include <nlohmann/json.hpp>

#include <unordered_set>

namespace gpt2c {

using Json = nlohmann::json;

llvm::Expected<Json> parseObject(llvm::StringRef text, llvm::StringRef name, int deepest) {
  auto invalid = [&](const llvm::Twine &why) {
    return makeError(ExitCode::InvalidModel, "'" + name + "' " + why);
  };
  constexpr size_t mostBytes = 100'000'000;
  if (text.size() > mostBytes)
    return invalid("has " + llvm::Twine(text.size()) + " bytes of JSON, more than " +
                   llvm::Twine(mostBytes));
  std::vector<std::unordered_set<std::string>> keys;
  std::optional<std::string> twice;
  bool tooDeep = false;
  auto check = [&](int depth, Json::parse_event_t event, Json &value) {
    using Event = Json::parse_event_t;
    tooDeep |= depth >= deepest && (event == Event::object_start || event == Event::array_start);
    if (event == Event::object_start)
      keys.emplace_back();
    else if (event == Event::object_end)
      keys.pop_back();
    else if (event == Event::key && !twice &&
             !keys.back().insert(value.get_ref<const std::string &>()).second)
      twice = value.get_ref<const std::string &>();
    return !tooDeep && !twice;
  };
  Json json;
  try {
    json = Json::parse(text.begin(), text.end(), check);
  } catch (const Json::exception &e) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    llvm::StringRef message = e.what();
    return invalid("is no JSON: " +
                   (message.contains("] ") ? message.split("] ").second : message));
  }
  if (twice)
    return invalid("has the key '" + *twice + "' twice in one object");
  if (tooDeep)
    return invalid("has objects and lists in each other, more than " + llvm::Twine(deepest) +
                   " deep");
  if (!json.is_object())
    return invalid("holds no JSON object");
  return json;
}

std::optional<int64_t> asCount(const Json &value) {
  if (value.is_number_unsigned())
    if (auto n = value.get<uint64_t>(); n <= uint64_t(INT64_MAX))
      return int64_t(n);
  return std::nullopt;
}

} // namespace gpt2c
