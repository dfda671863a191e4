#include "frontend/checkpoint/Config.h"
#include "frontend/checkpoint/Json.h"
#include "ir/Error.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <nlohmann/json.hpp>

#include <cmath>

namespace gpt2c {

using Json = nlohmann::json;

struct Config::State {
  Json root;
  std::string name, wayOut;
  std::vector<std::string> invalid, unsupported;
};

llvm::Expected<Config> Config::parse(llvm::StringRef text, llvm::StringRef name,
                                     llvm::StringRef wayOut) {
  auto json = parseObject(text, name, 16);
  if (!json)
    return json.takeError();
  auto state = std::make_shared<State>();
  state->root = std::move(*json);
  state->name = name.str();
  state->wayOut = wayOut.str();
  const Json &root = state->root;
  return Config(std::move(state), root, "");
}

const Json *Config::find(llvm::StringRef key) {
  read_.insert(key);
  auto found = object_->find(key.str());
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

bool Config::has(llvm::StringRef key) const {
  auto found = object_->find(key.str());
  return found != object_->end() && !found->is_null();
}

bool Config::mentions(llvm::StringRef key) const { return object_->contains(key.str()); }

bool Config::isFlag(llvm::StringRef key) const {
  auto found = object_->find(key.str());
  return found != object_->end() && found->is_boolean();
}

bool Config::isText(llvm::StringRef key) const {
  auto found = object_->find(key.str());
  return found != object_->end() && found->is_string();
}

bool Config::isList(llvm::StringRef key) const {
  auto found = object_->find(key.str());
  return found != object_->end() && found->is_array();
}

std::vector<std::string> Config::keys() const {
  std::vector<std::string> keys;
  for (const auto &entry : object_->items())
    keys.push_back(entry.key());
  return keys;
}

void Config::invalid(llvm::StringRef key, const llvm::Twine &why) {
  state_->invalid.push_back(("'" + where_ + key + "' " + why).str());
}

/// A value in a message: short, whatever it is.
static std::string shown(const Json &value) {
  constexpr size_t most = 60;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > most ? text.substr(0, most) + ".." : text;
}

void Config::unsupported(llvm::StringRef key, const llvm::Twine &why) {
  auto found = object_->find(key.str());
  const std::string value = found == object_->end() ? "not given" : shown(*found);
  state_->unsupported.push_back(("'" + where_ + key + "' is " + value + ": " + why).str());
}

/// So that products of two sizes stay far from the end of 64 bits.
static constexpr int64_t mostSize = 1 << 28;

std::optional<int64_t> Config::maybeSize(llvm::StringRef key) {
  const Json *value = find(key);
  if (!value)
    return std::nullopt;
  auto size = asCount(*value);
  if (size && *size >= 1 && *size <= mostSize)
    return size;
  invalid(key, "is " + shown(*value) + ", which is no size");
  return 1;
}

bool Config::isWholeRow(llvm::StringRef key) {
  const Json *value = find(key);
  return value && *value == -1;
}

int64_t Config::count(llvm::StringRef key, int64_t ifAbsent) {
  const Json *value = find(key);
  return value && *value == 0 ? 0 : maybeSize(key).value_or(ifAbsent);
}

int64_t Config::size(llvm::StringRef key, std::optional<int64_t> ifAbsent) {
  if (!has(key) && !ifAbsent)
    invalid(key, "is missing");
  return maybeSize(key).value_or(ifAbsent.value_or(1));
}

std::optional<double> Config::maybePositive(llvm::StringRef key) {
  const Json *value = find(key);
  if (!value)
    return std::nullopt;
  if (value->is_number())
    if (auto number = value->get<double>(); std::isfinite(number) && number > 0)
      return number;
  invalid(key, "is " + shown(*value) + ", which is no number above 0");
  return 1;
}

double Config::positive(llvm::StringRef key, std::optional<double> ifAbsent) {
  if (!has(key) && !ifAbsent)
    invalid(key, "is missing");
  return maybePositive(key).value_or(ifAbsent.value_or(1));
}

bool Config::flag(llvm::StringRef key, bool ifAbsent) {
  const Json *value = find(key);
  if (value && !value->is_boolean())
    invalid(key, "is " + shown(*value) + ", neither true nor false");
  return value && value->is_boolean() ? value->get<bool>() : ifAbsent;
}

std::string Config::text(llvm::StringRef key, llvm::StringRef ifAbsent) {
  const Json *value = find(key);
  if (value && !value->is_string())
    invalid(key, "is " + shown(*value) + ", which is no text");
  return value && value->is_string() ? value->get<std::string>() : ifAbsent.str();
}

std::vector<std::string> Config::texts(llvm::StringRef key) {
  const Json *value = find(key);
  std::vector<std::string> out;
  if (value && value->is_array() && llvm::all_of(*value, [](auto &v) { return v.is_string(); }))
    for (const Json &entry : *value)
      out.push_back(entry.get<std::string>());
  else if (value)
    invalid(key, "is " + shown(*value) + ", which is no list of texts");
  return out;
}

std::vector<int64_t> Config::counts(llvm::StringRef key) {
  const Json *value = find(key);
  std::vector<int64_t> out;
  if (value && value->is_array() && llvm::all_of(*value, [](auto &v) { return bool(asCount(v)); }))
    for (const Json &entry : *value)
      out.push_back(*asCount(entry));
  else if (value)
    invalid(key, "is " + shown(*value) + ", which is no list of counts");
  return out;
}

std::optional<Config> Config::object(llvm::StringRef key) {
  const Json *value = find(key);
  if (value && value->is_object())
    return Config(state_, *value, (where_ + key + ".").str());
  if (value)
    invalid(key, "is " + shown(*value) + ", which is no object");
  return std::nullopt;
}

void Config::refuseUnreadBut(llvm::ArrayRef<llvm::StringRef> keys) {
  for (const auto &[key, value] : object_->items())
    if (!read_.contains(key) && !value.is_null() && !llvm::is_contained(keys, key))
      unsupported(key, "a key that is not known may change what the model computes");
}

llvm::Error Config::takeError() {
  if (!state_->invalid.empty())
    return makeError(ExitCode::InvalidModel,
                     state_->name + ": " + llvm::join(state_->invalid, "; "));
  if (state_->unsupported.empty())
    return llvm::Error::success();
  return makeError(ExitCode::Unsupported, state_->name + " asks for what is not known here:\n  " +
                                              llvm::join(state_->unsupported, "\n  ") + "\n" +
                                              state_->wayOut);
}

} // namespace gpt2c
