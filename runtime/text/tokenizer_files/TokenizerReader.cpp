#include "runtime/text/tokenizer_files/TokenizerReader.h"

#include "runtime/plan/ForeignFile.h"
#include "runtime/text/tokenizer/ByteAlphabet.h"

#include <nlohmann/json.hpp>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <unordered_set>

namespace gpt2c::rt {
namespace {

using Json = nlohmann::json;

/// The usual names of the token that ends a text, for files that do not say.
constexpr const char *kEnds[] = {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"};

} // namespace

Result<std::string> readWholeFile(const std::string &path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text;
  if (in)
    text.assign(std::istreambuf_iterator<char>(in), {});
  if (!in)
    return {Code::Io, path + ": cannot read: " + std::strerror(errno ? errno : EIO)};
  if (const std::string kind = foreignFile(text); !kind.empty())
    return {Code::Io, path + ": " + kind};
  return text;
}

Result<Json> readJson(const std::string &path) {
  Result<std::string> text = readWholeFile(path);
  if (!text)
    return text.status();
  std::vector<std::unordered_set<std::string>> keys;
  std::optional<std::string> duplicate;
  auto callback = [&](int, Json::parse_event_t event, Json &value) {
    if (event == Json::parse_event_t::object_start)
      keys.emplace_back();
    else if (event == Json::parse_event_t::object_end)
      keys.pop_back();
    else if (event == Json::parse_event_t::key && !duplicate) {
      const auto &key = value.get_ref<const std::string &>();
      if (!keys.back().insert(key).second)
        duplicate = key;
    }
    return true;
  };
  try {
    Json json = Json::parse(*text, callback);
    if (duplicate)
      return {Code::Io, path + ": the key \"" + *duplicate + "\" occurs twice in one object"};
    return json;
  } catch (const Json::exception &error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    std::string_view message = error.what();
    if (std::size_t tag = message.find("] "); message.starts_with('[') && tag != message.npos)
      message.remove_prefix(tag + 2);
    return {Code::Io, path + ": " + std::string(message)};
  }
}

const Json &member(const Json &object, const char *key) {
  static const Json null;
  auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? null : *found;
}

bool isOff(const Json &value) {
  return value.is_null() || value == false || value == "" || (value.is_number() && value == 0);
}

std::optional<std::string> fromBase64(std::string_view text) {
  while (text.ends_with('='))
    text.remove_suffix(1);
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    int value = c >= 'A' && c <= 'Z'   ? c - 'A'
                : c >= 'a' && c <= 'z' ? c - 'a' + 26
                : c >= '0' && c <= '9' ? c - '0' + 52
                : c == '+'             ? 62
                : c == '/'             ? 63
                                       : -1;
    if (value < 0)
      return std::nullopt;
    bits = bits << 6 | std::uint32_t(value);
    if ((count += 6) >= 8) {
      count -= 8;
      bytes.push_back(char(bits >> count));
    }
  }
  return bytes;
}

std::string tokenContent(const Json &token) {
  const Json &content = token.is_object() ? member(token, "content") : token;
  return content.is_string() ? content.get<std::string>() : std::string();
}

Status ModelBuilder::addVocabulary(const Json &vocabulary) {
  if (!vocabulary.is_object())
    return fail("the vocabulary is not an object of token: id");
  for (const auto &[name, id] : vocabulary.items())
    if (Status status = addToken(name, id); !status.ok())
      return status;
  return {};
}

Status ModelBuilder::addToken(const std::string &name, const Json &id, std::uint8_t flags) {
  using Token = TokenizerModel::Token;
  if (!id.is_number_integer() || id < 0 || id >= TokenizerModel::kMaxTokens)
    return fail("the token \"" + name + "\" has id " + id.dump() + ", not an integer from 0 to " +
                std::to_string(TokenizerModel::kMaxTokens - 1));
  if (name.empty())
    return fail("token " + id.dump() + " is empty");
  const auto index = id.get<std::size_t>();
  if (index >= model_.tokens.size())
    model_.tokens.resize(index + 1);
  if (!model_.tokens[index].text.empty())
    return fail("two tokens have id " + id.dump());
  Token token{name, flags};
  if (model_.bytes) {
    if (auto bytes = alphabet::bytes(name))
      token.text = *bytes;
    else
      token.flags |= Token::Unreachable;
  }
  model_.tokens[index] = std::move(token);
  ids_[name] = std::int32_t(index);
  return {};
}

Status ModelBuilder::addMerge(const std::string &left, const std::string &right,
                              const std::string &place) {
  const std::size_t skip = std::min(right.size(), model_.continuingPrefix.size());
  std::int32_t parts[3];
  const std::string names[3] = {left, right, left + right.substr(skip)};
  for (int i = 0; i < 3; ++i) {
    auto found = ids_.find(names[i]);
    if (found == ids_.end())
      return fail(place + ": the merge of \"" + left + "\" and \"" + right +
                  "\" needs the token \"" + names[i] + "\", which the vocabulary lacks");
    parts[i] = found->second;
  }
  const auto [pair, isNew] =
      pairs_.try_emplace(std::uint64_t(parts[0]) << 32 | std::uint32_t(parts[1]), merges_.size());
  if (!isNew)
    merges_[std::exchange(pair->second, merges_.size())].second = false;
  merges_.push_back({{parts[0], parts[1], parts[2]}, true});
  return {};
}

Status ModelBuilder::addAdded(const std::string &content, const Json &id, std::uint8_t flags) {
  if (content.empty())
    return fail("an added token is empty");
  if (!id.is_number_integer() || id < 0 || id >= TokenizerModel::kMaxTokens)
    return fail("the token \"" + content + "\" has id " + id.dump() +
                ", not an integer from 0 to " + std::to_string(TokenizerModel::kMaxTokens - 1));
  const auto number = id.get<std::int32_t>();
  auto known = ids_.find(content);
  if (known != ids_.end() && id != known->second)
    return fail("the added token \"" + content + "\" has id " + id.dump() +
                ", but the vocabulary gives it " + std::to_string(known->second));
  const auto taken = added_.find(number);
  if (known == ids_.end() &&
      (taken != added_.end() || (std::size_t(number) < model_.tokens.size() &&
                                 !model_.tokens[std::size_t(number)].text.empty())))
    return fail("two tokens have id " + id.dump());
  ids_[content] = number;
  added_[number] = {number, content, flags};
  return {};
}

std::int32_t ModelBuilder::find(const std::string &name) const {
  auto found = ids_.find(name);
  return found == ids_.end() ? -1 : found->second;
}

Result<TokenizerModel> ModelBuilder::finish(bool listsAdded) {
  for (const char *name : kEnds)
    if (const std::int32_t id = find(name); id >= 0 && model_.texts.ends.empty()) {
      model_.texts.ends.push_back(id);
      if (!listsAdded && !added_.contains(id))
        added_[id] = {id, name, TokenizerModel::AddedToken::Special};
    }
  for (const auto &[merge, counts] : merges_)
    if (counts)
      model_.merges.push_back(merge);
  for (auto &[id, token] : added_)
    model_.added.push_back(std::move(token));
  if (Status status = model_.check(); !status.ok())
    return fail(status.message());
  return std::move(model_);
}

} // namespace gpt2c::rt
