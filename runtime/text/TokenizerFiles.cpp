// Reads the files tokenizers are published in. What would make another tokenizer of it than GPT-2's
// byte-level BPE is refused by name, never skipped.
#include "runtime/text/TokenizerModel.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace gpt2c::rt {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kEndOfText = "<|endoftext|>";
constexpr std::int64_t kMaxTokens = 1 << 22;

Result<std::string> readFile(const std::string &path) {
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  std::string text;
  if (in)
    text.assign(std::istreambuf_iterator<char>(in), {});
  if (!in)
    return {Code::Io, path + ": cannot read: " + std::strerror(errno ? errno : EIO)};
  return text;
}

/// Parses JSON in which no object has the same key twice (in a vocabulary, one of the two ids would
/// be lost).
Result<Json> parseJson(const std::string &path, const std::string &text) {
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
    Json json = Json::parse(text, callback);
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

/// The byte-level alphabet: every byte has one printable character. Bytes that are printable in
/// Latin-1 stand for themselves; the others take U+0100, U+0101, ... in ascending order.
class ByteAlphabet {
public:
  ByteAlphabet() {
    bytes_.fill(-1);
    int next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      int character = printable ? byte : next++;
      bytes_[character] = byte;
      names_[byte] = character < 0x80 ? std::string(1, char(character))
                                      : std::string{char(0xC0 | character >> 6),
                                                    char(0x80 | (character & 0x3F))};
    }
  }

  /// The UTF-8 form of the byte's character.
  const std::string &name(int byte) const { return names_[byte]; }

  /// The bytes a token's name stands for. A name with a character outside the alphabet, which only
  /// a token that no merge reaches can have, stands for its own UTF-8.
  std::string decode(const std::string &name) const {
    std::string bytes;
    for (std::size_t at = 0; at < name.size(); ++at) {
      unsigned character = std::uint8_t(name[at]);
      if (character >= 0x80) { // two-byte sequences reach U+07FF; the alphabet ends at U+0143
        if ((character & 0xE0) != 0xC0)
          return name;
        character = (character & 0x1F) << 6 | (std::uint8_t(name[++at]) & 0x3F);
      }
      if (character >= bytes_.size() || bytes_[character] < 0)
        return name;
      bytes.push_back(char(bytes_[character]));
    }
    return bytes;
  }

private:
  std::array<int, 0x144> bytes_;
  std::array<std::string, 256> names_;
};

/// Builds a model from names, and reports problems with the place they are at.
class Builder {
public:
  /// `path` is the file whose vocabulary, merges and added tokens come next.
  void enter(std::string path) { path_ = std::move(path); }

  Status fail(const std::string &message) const { return {Code::Io, path_ + ": " + message}; }
  Status refuse(const std::string &message) const {
    return {Code::Unsupported,
            path_ + ": " + message +
                "; supported is GPT-2's byte-level BPE without normalizer or prefix space"};
  }

  Status addVocabulary(const Json &vocabulary) {
    if (!vocabulary.is_object())
      return fail("the vocabulary is not an object of token: id");
    for (const auto &[name, id] : vocabulary.items()) {
      if (Status status = addToken(name, alphabet_.decode(name), id); !status.ok())
        return status;
      ids_.emplace(name, id.get<std::int32_t>());
    }
    for (int byte = 0; byte < 256; ++byte) {
      auto found = ids_.find(alphabet_.name(byte));
      if (found == ids_.end())
        return fail("the vocabulary has no token for byte " + std::to_string(byte) + " (\"" +
                    alphabet_.name(byte) + "\"), so not every text could be encoded");
      model_.byteTokens[byte] = found->second;
    }
    return {};
  }

  /// `place` names the merge in messages: "line 7", "merge 6".
  Status addMerge(const std::string &left, const std::string &right, const std::string &place) {
    std::int32_t parts[3];
    const std::string names[3] = {left, right, left + right};
    for (int i = 0; i < 3; ++i) {
      auto found = ids_.find(names[i]);
      if (found == ids_.end())
        return fail(place + ": the merge of \"" + left + "\" and \"" + right +
                    "\" needs the token \"" + names[i] + "\", which the vocabulary lacks");
      parts[i] = found->second;
    }
    if (!pairs_.insert(std::uint64_t(parts[0]) << 32 | std::uint32_t(parts[1])).second)
      return fail(place + ": the merge of \"" + left + "\" and \"" + right + "\" occurs twice");
    model_.merges.push_back({parts[0], parts[1], parts[2]});
    return {};
  }

  /// An added token's content is text, not characters of the alphabet. It may be in the vocabulary
  /// already, then with the same id.
  Status addAddedToken(const std::string &content, const Json &id, bool special) {
    if (content.empty())
      return fail("an added token is empty");
    auto known = ids_.find(content);
    if (known == ids_.end()) {
      if (Status status = addToken(content, content, id); !status.ok())
        return status;
      known = ids_.emplace(content, id.get<std::int32_t>()).first;
    } else if (id != known->second) {
      return fail("the added token \"" + content + "\" has id " + id.dump() +
                  ", but the vocabulary gives it " + std::to_string(known->second));
    }
    TokenizerModel::Token &token = model_.tokens[known->second];
    if (token.flags & TokenizerModel::Added)
      return fail("the added token \"" + content + "\" occurs twice");
    token.bytes = content;
    token.flags |= TokenizerModel::Added | (special ? TokenizerModel::Special : 0);
    return {};
  }

  /// Makes <|endoftext|>, where there is one, the special token that ends a text.
  Result<TokenizerModel> finish() {
    if (auto found = ids_.find(std::string(kEndOfText)); found != ids_.end()) {
      model_.eos = found->second;
      model_.tokens[found->second].flags |= TokenizerModel::Added | TokenizerModel::Special;
    }
    if (Status status = model_.check(); !status.ok())
      return fail(status.message());
    return std::move(model_);
  }

private:
  Status addToken(const std::string &name, std::string bytes, const Json &id) {
    if (!id.is_number_integer() || id < 0 || id >= kMaxTokens)
      return fail("the token \"" + name + "\" has id " + id.dump() + ", not an integer from 0 to " +
                  std::to_string(kMaxTokens - 1));
    if (name.empty())
      return fail("token " + id.dump() + " is empty");
    std::size_t index = id.get<std::size_t>();
    if (index >= model_.tokens.size())
      model_.tokens.resize(index + 1);
    if (!model_.tokens[index].bytes.empty())
      return fail("two tokens have id " + id.dump() + ", one of them \"" + name + "\"");
    model_.tokens[index].bytes = std::move(bytes);
    return {};
  }

  std::string path_;
  ByteAlphabet alphabet_;
  TokenizerModel model_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_set<std::uint64_t> pairs_;
};

/// Splits "left right" at its one space.
std::optional<std::pair<std::string, std::string>> splitMerge(std::string_view text) {
  std::size_t space = text.find(' ');
  if (space == 0 || space == text.npos || space + 1 == text.size() ||
      text.find(' ', space + 1) != text.npos)
    return std::nullopt;
  return std::pair(std::string(text.substr(0, space)), std::string(text.substr(space + 1)));
}

Status addMergesText(Builder &builder, std::string_view text) {
  std::size_t number = 0;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    ++number;
    if (line.ends_with('\r'))
      line.remove_suffix(1);
    if (line.empty() || line.starts_with("#version"))
      continue;
    const std::string place = "line " + std::to_string(number);
    auto pair = splitMerge(line);
    if (!pair)
      return builder.fail(place + ": expected two tokens with one space between them");
    if (Status status = builder.addMerge(pair->first, pair->second, place); !status.ok())
      return status;
  }
  return {};
}

Status addMergesJson(Builder &builder, const Json &merges) {
  if (!merges.is_array())
    return builder.fail("model.merges is not an array");
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const Json &merge = merges[i];
    const std::string place = "model.merges[" + std::to_string(i) + "]";
    std::optional<std::pair<std::string, std::string>> pair;
    if (merge.is_string())
      pair = splitMerge(merge.get_ref<const std::string &>());
    else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
      pair.emplace(merge[0].get<std::string>(), merge[1].get<std::string>());
    if (!pair)
      return builder.fail(place + ": expected \"left right\" or [\"left\", \"right\"]");
    if (Status status = builder.addMerge(pair->first, pair->second, place); !status.ok())
      return status;
  }
  return {};
}

const Json &member(const Json &object, const char *key) {
  static const Json null;
  auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? null : *found;
}

/// Whether `value` is absent or one of the values that leave a setting off.
bool isOff(const Json &value) {
  return value.is_null() || value == false || value == "" || (value.is_number() && value == 0);
}

/// Checks everything in tokenizer.json that changes how text is encoded. "truncation" and "padding"
/// are settings of a call, not of the tokenizer, and are left to the caller.
Status checkPipeline(const Builder &builder, const Json &root) {
  const Json &model = member(root, "model");
  if (!model.is_object())
    return builder.fail("there is no object \"model\"");
  if (const Json &type = member(model, "type"); !type.is_null() && type != "BPE")
    return builder.refuse("model.type is " + type.dump());
  for (const char *key : {"dropout", "continuing_subword_prefix", "end_of_word_suffix",
                          "byte_fallback", "ignore_merges"})
    if (!isOff(member(model, key)))
      return builder.refuse("model." + std::string(key) + " is " + member(model, key).dump());
  if (!member(root, "normalizer").is_null())
    return builder.refuse("there is a normalizer, " + member(root, "normalizer").dump());
  const Json &preTokenizer = member(root, "pre_tokenizer");
  if (member(preTokenizer, "type") != "ByteLevel")
    return builder.refuse("pre_tokenizer is " + preTokenizer.dump());
  if (member(preTokenizer, "add_prefix_space") != false)
    return builder.refuse("pre_tokenizer.add_prefix_space is not false");
  if (const Json &regex = member(preTokenizer, "use_regex"); !regex.is_null() && regex != true)
    return builder.refuse("pre_tokenizer.use_regex is not true");
  // ByteLevel as post-processor moves offsets only; any other kind adds tokens.
  for (const char *key : {"post_processor", "decoder"})
    if (const Json &stage = member(root, key);
        !stage.is_null() && member(stage, "type") != "ByteLevel")
      return builder.refuse(std::string(key) + " is " + stage.dump());
  return {};
}

Status addAddedTokens(Builder &builder, const Json &added) {
  if (added.is_null())
    return {};
  if (!added.is_array())
    return builder.fail("added_tokens is not an array");
  for (const Json &token : added) {
    const Json &content = member(token, "content");
    if (!content.is_string())
      return builder.fail("an added token has no \"content\"");
    for (const char *key : {"single_word", "lstrip", "rstrip"})
      if (!isOff(member(token, key)))
        return builder.refuse("the added token " + content.dump() + " has " + key);
    if (Status status = builder.addAddedToken(content.get<std::string>(), member(token, "id"),
                                              member(token, "special") == true);
        !status.ok())
      return status;
  }
  return {};
}

Result<TokenizerModel> readTokenizerJson(const std::string &path) {
  Result<std::string> text = readFile(path);
  if (!text)
    return text.status();
  Result<Json> json = parseJson(path, *text);
  if (!json)
    return json.status();
  Builder builder;
  builder.enter(path);
  if (Status status = checkPipeline(builder, *json); !status.ok())
    return status;
  const Json &model = member(*json, "model");
  if (Status status = builder.addVocabulary(member(model, "vocab")); !status.ok())
    return status;
  if (Status status = addMergesJson(builder, member(model, "merges")); !status.ok())
    return status;
  if (Status status = addAddedTokens(builder, member(*json, "added_tokens")); !status.ok())
    return status;
  return builder.finish();
}

Result<TokenizerModel> readVocabAndMerges(const std::string &vocabPath,
                                          const std::string &mergesPath) {
  Result<std::string> vocabText = readFile(vocabPath);
  if (!vocabText)
    return vocabText.status();
  Result<std::string> mergesText = readFile(mergesPath);
  if (!mergesText)
    return mergesText.status();
  Result<Json> vocab = parseJson(vocabPath, *vocabText);
  if (!vocab)
    return vocab.status();
  Builder builder;
  builder.enter(vocabPath);
  if (Status status = builder.addVocabulary(*vocab); !status.ok())
    return status;
  builder.enter(mergesPath);
  if (Status status = addMergesText(builder, *mergesText); !status.ok())
    return status;
  return builder.finish();
}

} // namespace

Result<TokenizerModel> TokenizerModel::read(const std::string &path) {
  namespace fs = std::filesystem;
  std::error_code ignored; // what cannot be looked at counts as absent
  auto isFile = [&](const fs::path &file) { return fs::is_regular_file(file, ignored); };
  const fs::path root(path);
  if (isFile(root))
    return readTokenizerJson(path);
  if (!fs::is_directory(root, ignored))
    return {Code::Io, path + ": no such tokenizer folder or tokenizer.json"};
  if (isFile(root / "tokenizer.json"))
    return readTokenizerJson((root / "tokenizer.json").string());
  if (!isFile(root / "vocab.json") || !isFile(root / "merges.txt"))
    return {Code::Io, path + ": has neither tokenizer.json nor both vocab.json and merges.txt"};
  if (isFile(root / "added_tokens.json"))
    return {
        Code::Unsupported,
        (root / "added_tokens.json").string() +
            ": added tokens are read from tokenizer.json only; save the tokenizer in that form"};
  return readVocabAndMerges((root / "vocab.json").string(), (root / "merges.txt").string());
}

} // namespace gpt2c::rt
