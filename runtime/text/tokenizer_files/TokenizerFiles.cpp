// The folders tokenizers are published in: which file says what.
#include "runtime/text/tokenizer/Tokenizer.h"
#include "runtime/text/tokenizer_files/TokenizerReader.h"

#include <nlohmann/json.hpp>

#include <algorithm>

namespace gpt2c::rt {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

bool isFile(const fs::path &file) {
  std::error_code ignored; // what cannot be looked at counts as absent
  return fs::is_regular_file(file, ignored);
}

/// The first file *.tiktoken by name; empty: none.
fs::path tiktokenFile(const fs::path &folder) {
  fs::path first;
  std::error_code ignored;
  for (const auto &entry : fs::directory_iterator(folder, ignored))
    if (entry.path().extension() == ".tiktoken" && (first.empty() || entry.path() < first))
      first = entry.path();
  return first;
}

/// The file that says how a folder's texts become tokens; empty: none.
fs::path mainFile(const fs::path &folder) {
  if (isFile(folder / "tokenizer.json"))
    return folder / "tokenizer.json";
  if (isFile(folder / "vocab.json") && isFile(folder / "merges.txt"))
    return folder / "vocab.json";
  if (isFile(folder / "tokenizer.model"))
    return folder / "tokenizer.model";
  return tiktokenFile(folder);
}

Status readModelFile(const std::string &path, const Json &config, ModelBuilder &builder) {
  Result<std::string> file = readWholeFile(path);
  if (!file)
    return file.status();
  builder.enter(path);
  return isTiktoken(*file) ? readTiktoken(path, *file, builder)
                           : readSentencePiece(path, *file, config, builder);
}

} // namespace

bool Tokenizer::isIn(const std::string &folder) {
  // Half of a pair counts: reading then says what is missing.
  return !mainFile(folder).empty() || isFile(fs::path(folder) / "vocab.json");
}

Result<TokenizerModel> TokenizerModel::read(const std::string &path) {
  std::error_code ignored;
  const fs::path root(path);
  const bool folder = fs::is_directory(root, ignored);
  if (!folder && !isFile(root))
    return {Code::Io, path + ": no such tokenizer folder or tokenizer.json"};
  const fs::path file = folder ? mainFile(root) : root;
  if (file.empty())
    return {Code::Io, path + ": has neither tokenizer.json nor both vocab.json and merges.txt nor "
                             "tokenizer.model"};
  Json config;
  if (folder && isFile(root / "tokenizer_config.json")) {
    Result<Json> read = readJson((root / "tokenizer_config.json").string());
    if (!read)
      return read.status();
    config = read.take();
  }
  ModelBuilder builder;
  const bool isJson = file.extension() == ".json" && (!folder || file.filename() != "vocab.json");
  Status status = isJson                        ? readTokenizerJson(file.string(), builder)
                  : file.extension() == ".json" ? readVocabAndMerges(root, config, builder)
                                                : readModelFile(file.string(), config, builder);
  if (status.ok() && folder)
    status = readConfigs(root, config, isJson, builder);
  if (!status.ok())
    return status;
  return builder.finish(isJson);
}

} // namespace gpt2c::rt
