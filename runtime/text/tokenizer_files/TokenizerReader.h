// What the readers of a tokenizer's files share.
#pragma once

#include "runtime/Status.h"
#include "runtime/text/tokenizer/TokenizerModel.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace gpt2c::rt {

Result<std::string> readWholeFile(const std::string &path);

/// JSON in which no object has the same key twice (in a vocabulary, one of the two ids would be
/// lost).
Result<nlohmann::json> readJson(const std::string &path);

/// The member of an object; null where there is none.
const nlohmann::json &member(const nlohmann::json &object, const char *key);

/// Whether `value` is absent or one of the values that leave a setting off.
bool isOff(const nlohmann::json &value);

/// The bytes of base64, with or without "=" at the end; none where it is none.
std::optional<std::string> fromBase64(std::string_view text);

/// The content of a special token as files write it, a string or an object; empty: none.
std::string tokenContent(const nlohmann::json &token);

/// Builds a model from names, and reports problems with the place they are at.
class ModelBuilder {
public:
  /// `path` is the file whose vocabulary, merges and added tokens come next.
  void enter(std::string path) { path_ = std::move(path); }
  TokenizerModel &model() { return model_; }

  Status fail(const std::string &message) const { return {Code::Io, path_ + ": " + message}; }
  Status refuse(const std::string &message) const {
    return {Code::Unsupported, path_ + ": " + message};
  }

  /// An object of token: id. model().bytes says already what names are.
  Status addVocabulary(const nlohmann::json &vocabulary);
  /// A token of the vocabulary by its name as files write it; `flags` of TokenizerModel::Token.
  Status addToken(const std::string &name, const nlohmann::json &id, std::uint8_t flags = 0);
  /// `place` names the merge in messages: "line 7", "merge 6". A pair that comes again counts where
  /// it comes last.
  Status addMerge(const std::string &left, const std::string &right, const std::string &place);
  /// An added token's content is text, not characters of the alphabet. It may be in the vocabulary
  /// already, then with the same id. One that is known gets the new flags.
  Status addAdded(const std::string &content, const nlohmann::json &id, std::uint8_t flags);
  /// The id of a token by its name, -1: there is none.
  std::int32_t find(const std::string &name) const;
  /// Checks the model, with the token that ends a text where none is known yet. `listsAdded`: the
  /// files name every token that is found in texts, so that this one is none of them unless named.
  Result<TokenizerModel> finish(bool listsAdded);

private:
  std::string path_;
  TokenizerModel model_;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::unordered_map<std::uint64_t, std::size_t> pairs_; // to their index in merges_
  std::vector<std::pair<Merge, bool>> merges_;           // false: comes again
  std::map<std::int32_t, TokenizerModel::AddedToken> added_;
};

/// Each reads the files that its format has into `builder`.
Status readTokenizerJson(const std::string &path, ModelBuilder &builder);
Status readVocabAndMerges(const std::filesystem::path &folder, const nlohmann::json &config,
                          ModelBuilder &builder);
Status readSentencePiece(const std::string &path, std::string_view file,
                         const nlohmann::json &config, ModelBuilder &builder);
Status readTiktoken(const std::string &path, std::string_view file, ModelBuilder &builder);
/// Whether `file` has lines of base64 and a rank, as tiktoken's have.
bool isTiktoken(std::string_view file);

/// What tokenizer_config.json, special_tokens_map.json and added_tokens.json in `folder` add to
/// what the builder has: added tokens, the tokens that begin and end a text. `complete`: the file
/// before said what goes around a text; then only the classes whose flags add_bos_token and
/// add_eos_token decide it change that.
Status readConfigs(const std::filesystem::path &folder, const nlohmann::json &config, bool complete,
                   ModelBuilder &builder);

} // namespace gpt2c::rt
