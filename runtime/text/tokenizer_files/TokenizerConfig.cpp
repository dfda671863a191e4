// The small files beside a tokenizer's vocabulary: tokenizer_config.json, special_tokens_map.json,
// added_tokens.json.
#include "runtime/text/tokenizer_files/TokenizerReader.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace gpt2c::rt {
namespace {

using Json = nlohmann::json;
using Added = TokenizerModel::AddedToken;
namespace fs = std::filesystem;

constexpr const char *kSpecialNames[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                         "sep_token", "cls_token", "mask_token"};

/// The classes that put tokens around a text by add_bos_token and add_eos_token, whatever
/// tokenizer.json says.
constexpr const char *kFlagged[] = {"Llama", "CodeLlama", "Gemma", "Mistral"};

Result<Json> readIfThere(const fs::path &path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored))
    return Json();
  return readJson(path.string());
}

std::uint8_t flagsOf(const Json &token, bool special) {
  auto has = [&](const char *key, std::uint8_t value) -> std::uint8_t {
    return member(token, key) == true ? value : 0;
  };
  return std::uint8_t((special ? Added::Special : 0) | has("normalized", Added::Normalized) |
                      has("lstrip", Added::LeftSpace) | has("rstrip", Added::RightSpace) |
                      has("single_word", Added::SingleWord));
}

/// {"50256": {"content": .., "lstrip": ..}}
Status addDecoder(const Json &decoder, ModelBuilder &builder) {
  if (!decoder.is_object())
    return {};
  for (const auto &[key, token] : decoder.items()) {
    const std::string content = tokenContent(token);
    if (key.empty() || key.size() > 7 || key.find_first_not_of("0123456789") != key.npos)
      return builder.fail("added_tokens_decoder has the id \"" + key + "\"");
    if (content.empty())
      continue;
    const std::uint8_t flags = flagsOf(token, member(token, "special") == true);
    if (Status status = builder.addAdded(content, std::stoi(key), flags); !status.ok())
      return status;
  }
  return {};
}

/// {"<user>": 300}
Status addContents(const Json &added, ModelBuilder &builder) {
  if (!added.is_object())
    return {};
  for (const auto &[content, id] : added.items())
    if (Status status = builder.addAdded(content, id, Added::Normalized); !status.ok())
      return status;
  return {};
}

/// The special tokens that the vocabulary has; one without an id there has no row in the model.
Status addSpecial(const Json &token, ModelBuilder &builder) {
  const std::string content = tokenContent(token);
  const std::int32_t id = content.empty() ? -1 : builder.find(content);
  return id < 0 ? Status() : builder.addAdded(content, id, flagsOf(token, true));
}

Status addSpecials(const Json &names, ModelBuilder &builder) {
  for (const char *name : kSpecialNames)
    if (Status status = addSpecial(member(names, name), builder); !status.ok())
      return status;
  for (const char *key : {"additional_special_tokens", "extra_special_tokens"})
    if (const Json &more = member(names, key); more.is_array() || more.is_object())
      for (const Json &token : more)
        if (Status status = addSpecial(token, builder); !status.ok())
          return status;
  return {};
}

bool isFlagged(const Json &config) {
  const Json &type = member(config, "tokenizer_class");
  if (!type.is_string())
    return false;
  const auto &name = type.get_ref<const std::string &>();
  return std::ranges::any_of(kFlagged, [&](std::string known) {
    return name == known + "Tokenizer" || name == known + "TokenizerFast";
  });
}

} // namespace

Status readConfigs(const fs::path &folder, const Json &config, bool complete,
                   ModelBuilder &builder) {
  Result<Json> added = readIfThere(folder / "added_tokens.json");
  if (!added)
    return added.status();
  Result<Json> map = readIfThere(folder / "special_tokens_map.json");
  if (!map)
    return map.status();
  builder.enter((folder / "added_tokens.json").string());
  if (Status status = addContents(*added, builder); !status.ok())
    return status;
  const std::pair<const char *, const Json *> files[] = {{"special_tokens_map.json", &*map},
                                                         {"tokenizer_config.json", &config}};
  for (const auto &[file, names] : files) {
    builder.enter((folder / file).string());
    if (Status status = addDecoder(member(*names, "added_tokens_decoder"), builder); !status.ok())
      return status;
    if (Status status = addSpecials(*names, builder); !status.ok())
      return status;
  }

  TokenizerModel &model = builder.model();
  auto named = [&](const char *key) {
    std::string content = tokenContent(member(config, key));
    if (content.empty())
      content = tokenContent(member(*map, key));
    return content.empty() ? -1 : builder.find(content);
  };
  if (const std::int32_t bos = named("bos_token"); bos >= 0)
    model.bos = bos;
  if (const std::int32_t eos = named("eos_token"); eos >= 0)
    model.texts.ends = {eos};
  if (complete && !isFlagged(config))
    return {};
  const Json &addBos = member(config, "add_bos_token"), &addEos = member(config, "add_eos_token");
  if (addBos.is_boolean() && model.bos >= 0)
    model.before = addBos == true ? std::vector{model.bos} : std::vector<std::int32_t>();
  if (addEos.is_boolean() && !model.texts.ends.empty())
    model.behind = addEos == true ? std::vector{model.texts.ends[0]} : std::vector<std::int32_t>();
  return {};
}

} // namespace gpt2c::rt
