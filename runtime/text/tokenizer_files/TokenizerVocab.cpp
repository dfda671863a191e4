// vocab.json and merges.txt: byte-level BPE, whose pre-tokenizer is what the class in
// tokenizer_config.json says.
#include "runtime/text/tokenizer/PreTokenizer.h"
#include "runtime/text/tokenizer_files/TokenizerReader.h"

#include <nlohmann/json.hpp>

namespace gpt2c::rt {
namespace {

using Json = nlohmann::json;
using Step = TokenizerStep;
using Kind = TokenizerStep::Kind;

constexpr std::string_view kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|)"
    R"(\s*[\r\n]+|\s+(?!\S)|\s+)";

Status setSteps(const Json &config, ModelBuilder &builder) {
  TokenizerModel &model = builder.model();
  std::string name = tokenContent(member(config, "tokenizer_class"));
  if (name.ends_with("Fast"))
    name.resize(name.size() - 4);
  model.bytes = true;
  if (name == "Qwen2Tokenizer") {
    model.normalizers = {{Kind::Nfc, 0, {}, {}}};
    model.preTokenizers = {{Kind::SplitRegex, Step::Isolated, std::string(kQwen2Pattern), {}}};
    return {};
  }
  if (!name.empty() && name != "GPT2Tokenizer" && name != "CodeGenTokenizer" &&
      name != "PreTrainedTokenizer" && name != "RobertaTokenizer" && name != "BartTokenizer")
    return builder.refuse("vocab.json and merges.txt of the class " + name +
                          " are not known; save the tokenizer as tokenizer.json");
  if (member(config, "add_prefix_space") == true)
    model.preTokenizers.push_back({Kind::PrefixSpace, 0, {}, {}});
  model.preTokenizers.push_back({Kind::SplitRegex, Step::Isolated, std::string(kGpt2Pattern), {}});
  return {};
}

/// Roberta's and Bart's texts stand between these tokens.
void surround(const Json &config, ModelBuilder &builder) {
  const std::string name = tokenContent(member(config, "tokenizer_class"));
  const std::int32_t begin = builder.find("<s>"), end = builder.find("</s>");
  if ((name.starts_with("Roberta") || name.starts_with("Bart")) && begin >= 0 && end >= 0) {
    builder.model().before = {begin};
    builder.model().behind = {end};
  }
}

Status addMergeLines(ModelBuilder &builder, std::string_view text) {
  for (std::size_t line = 1; !text.empty(); ++line) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view merge = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (merge.ends_with('\r'))
      merge.remove_suffix(1);
    if (merge.empty() || (line == 1 && merge.starts_with("#version")))
      continue;
    const std::string place = "line " + std::to_string(line);
    const std::size_t space = merge.find(' ');
    if (space == 0 || space >= merge.size() - 1 || merge.find(' ', space + 1) != merge.npos)
      return builder.fail(place + ": expected two tokens separated by a space");
    if (Status status = builder.addMerge(std::string(merge.substr(0, space)),
                                         std::string(merge.substr(space + 1)), place);
        !status.ok())
      return status;
  }
  return {};
}

} // namespace

Status readVocabAndMerges(const std::filesystem::path &folder, const Json &config,
                          ModelBuilder &builder) {
  const std::string vocabulary = (folder / "vocab.json").string();
  builder.enter(vocabulary);
  Result<Json> json = readJson(vocabulary);
  if (!json)
    return json.status();
  const std::string mergesPath = (folder / "merges.txt").string();
  Result<std::string> merges = readWholeFile(mergesPath);
  if (!merges)
    return merges.status();
  if (Status status = setSteps(config, builder); !status.ok())
    return status;
  if (Status status = builder.addVocabulary(*json); !status.ok())
    return status;
  surround(config, builder);
  builder.enter(mergesPath);
  return addMergeLines(builder, *merges);
}

} // namespace gpt2c::rt
