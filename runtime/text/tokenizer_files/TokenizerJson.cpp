// tokenizer.json of Hugging Face's `tokenizers`. What is not known is refused by name, never
// skipped. "truncation" and "padding" are settings of a call, not of the tokenizer, and are left to
// the caller.
// One format, section by section.
#include "runtime/text/tokenizer/PreTokenizer.h"
#include "runtime/text/tokenizer_files/TokenizerReader.h"

#include <nlohmann/json.hpp>

#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>

namespace gpt2c::rt {
namespace {

using Json = nlohmann::json;
using Step = TokenizerStep;
using Kind = TokenizerStep::Kind;
using Steps = std::vector<TokenizerStep>;

std::string text(const Json &object, const char *key) {
  const Json &value = member(object, key);
  return value.is_string() ? value.get<std::string>() : std::string();
}

bool flag(const Json &object, const char *key, bool otherwise = false) {
  const Json &value = member(object, key);
  return value.is_boolean() ? value.get<bool>() : otherwise;
}

class Pipeline {
public:
  explicit Pipeline(ModelBuilder &builder) : builder_(builder), model_(builder.model()) {}

  Status read(const Json &root) {
    if (Status status = normalizer(member(root, "normalizer")); !status.ok())
      return status;
    if (Status status = preTokenizer(member(root, "pre_tokenizer")); !status.ok())
      return status;
    if (Status status = decoder(member(root, "decoder")); !status.ok())
      return status;
    return postProcessor(member(root, "post_processor"));
  }

private:
  Status unknown(const char *what, const Json &value) const {
    std::string shown = value.dump();
    if (shown.size() > 200)
      shown = shown.substr(0, 200) + "..";
    return builder_.refuse("the " + std::string(what) + " " + shown + " is not known");
  }

  /// {"String": text} or {"Regex": expression}.
  std::optional<Step> pattern(const Json &value, Kind plain, Kind regex) const {
    for (auto [key, kind] : {std::pair("String", plain), std::pair("Regex", regex)})
      if (std::string content = text(value, key); !content.empty())
        return Step{kind, 0, content, {}};
    return std::nullopt;
  }

  Status replace(const char *what, const Json &value, Steps &steps) {
    auto step = pattern(member(value, "pattern"), Kind::Replace, Kind::ReplaceRegex);
    if (!step || !member(value, "content").is_string())
      return unknown(what, value);
    step->content = text(value, "content");
    steps.push_back(std::move(*step));
    return {};
  }

  Status normalizer(const Json &value) {
    static constexpr std::pair<const char *, Kind> kPlain[] = {
        {"NFC", Kind::Nfc},
        {"NFD", Kind::Nfd},
        {"NFKC", Kind::Nfkc},
        {"NFKD", Kind::Nfkd},
        {"Nmt", Kind::Nmt},
        {"Lowercase", Kind::Lowercase},
        {"StripAccents", Kind::StripAccents},
        {"ByteLevel", Kind::BytesToCharacters}};
    if (value.is_null())
      return {};
    const std::string type = text(value, "type");
    Steps &steps = model_.normalizers;
    for (const auto &[name, kind] : kPlain)
      if (type == name)
        return steps.push_back({kind, 0, {}, {}}), Status();
    if (type == "Sequence")
      return sequence(value, "normalizers", &Pipeline::normalizer);
    if (type == "Replace")
      return replace("normalizer", value, steps);
    if (type == "Prepend" && member(value, "prepend").is_string()) {
      if (std::string content = text(value, "prepend"); !content.empty())
        steps.push_back({Kind::Prepend, 0, {}, content});
      return {};
    }
    if (type == "Strip") {
      const std::uint32_t sides =
          flag(value, "strip_left", true) + 2u * flag(value, "strip_right", true);
      if (sides)
        steps.push_back({Kind::StripSpace, sides, {}, {}});
      return {};
    }
    if (type == "Precompiled") {
      auto table = fromBase64(text(value, "precompiled_charsmap"));
      if (!table)
        return builder_.fail("precompiled_charsmap is no base64");
      if (!table->empty())
        steps.push_back({Kind::Charsmap, 0, *table, {}});
      return {};
    }
    return unknown("normalizer", value);
  }

  template <typename Read> Status sequence(const Json &value, const char *key, Read read) {
    const Json &items = member(value, key);
    if (!items.is_array())
      return builder_.fail(std::string(key) + " of a Sequence is not an array");
    for (const Json &item : items)
      if (Status status = (this->*read)(item); !status.ok())
        return status;
    return {};
  }

  static std::optional<std::uint32_t> behaviour(const std::string &name) {
    static constexpr const char *kNames[] = {"Removed", "Isolated", "MergedWithPrevious",
                                             "MergedWithNext", "Contiguous"};
    for (std::uint32_t i = 0; i < std::size(kNames); ++i)
      if (name == kNames[i])
        return i;
    return std::nullopt;
  }

  Status byteLevel(const Json &value) {
    Steps &steps = model_.preTokenizers;
    if (flag(value, "add_prefix_space", true))
      steps.push_back({Kind::PrefixSpace, 0, {}, {}});
    if (flag(value, "use_regex", true))
      steps.push_back({Kind::SplitRegex, Step::Isolated, std::string(kGpt2Pattern), {}});
    steps.push_back({Kind::BytesToCharacters, 0, {}, {}});
    return {};
  }

  /// 0: nothing before words, 1: before the first, 2: before all.
  static std::optional<std::uint32_t> prependScheme(const Json &value) {
    const std::string scheme = text(value, "prepend_scheme");
    if (scheme.empty())
      return flag(value, "add_prefix_space", true) ? 2 : 0;
    if (scheme == "never" || scheme == "first" || scheme == "always")
      return scheme == "never" ? 0 : scheme == "first" ? 1 : 2;
    return std::nullopt;
  }

  Status metaspace(const Json &value) {
    const std::string replacement = text(value, "replacement");
    const auto scheme = prependScheme(value);
    if (replacement.empty() || !scheme)
      return unknown("pre_tokenizer", value);
    model_.preTokenizers.push_back({Kind::PrefixReplacement, *scheme, replacement, {}});
    if (flag(value, "split", true))
      model_.preTokenizers.push_back({Kind::SplitText, Step::MergedWithNext, replacement, {}});
    return {};
  }

  Status split(const Json &value) {
    auto step = pattern(member(value, "pattern"), Kind::SplitText, Kind::SplitRegex);
    const auto how = behaviour(text(value, "behavior"));
    if (!step || !how)
      return unknown("pre_tokenizer", value);
    step->option = *how + (flag(value, "invert") ? Step::Invert : 0u);
    model_.preTokenizers.push_back(std::move(*step));
    return {};
  }

  Status preTokenizer(const Json &value) {
    if (value.is_null())
      return {};
    const std::string type = text(value, "type");
    Steps &steps = model_.preTokenizers;
    auto add = [&](Kind kind, std::uint32_t option, std::string content = "") {
      steps.push_back({kind, option, std::move(content), {}});
      return Status();
    };
    if (type == "Sequence")
      return sequence(value, "pretokenizers", &Pipeline::preTokenizer);
    if (type == "ByteLevel")
      return byteLevel(value);
    if (type == "Split")
      return split(value);
    if (type == "Metaspace")
      return metaspace(value);
    if (type == "Digits")
      return add(Kind::SplitDigits,
                 behaviour(flag(value, "individual_digits") ? "Isolated" : "Contiguous").value());
    if (type == "Whitespace") // letters are Rust's \w, with the two that join characters
      return add(Kind::SplitRegex, Step::Removed + Step::Invert,
                 R"([\w\x{200C}\x{200D}]+|[^\w\s\x{200C}\x{200D}]+)");
    if (type == "WhitespaceSplit")
      return add(Kind::SplitSpace, Step::Removed);
    if (type == "BertPreTokenizer") {
      steps.push_back({Kind::SplitSpace, Step::Removed, {}, {}});
      return add(Kind::SplitPunctuation, Step::Isolated);
    }
    const std::string how = text(value, "behavior");
    if (type == "Punctuation" && (how.empty() || behaviour(how)))
      return add(Kind::SplitPunctuation, behaviour(how.empty() ? "Isolated" : how).value());
    if (type == "CharDelimiterSplit" && !text(value, "delimiter").empty())
      return add(Kind::SplitText, Step::Removed, text(value, "delimiter"));
    if (type == "FixedLength" && member(value, "length").is_number_unsigned() &&
        value["length"] > 0 && value["length"] < (1 << 30))
      return add(Kind::SplitLength, value["length"].get<std::uint32_t>());
    return unknown("pre_tokenizer", value);
  }

  Status decoder(const Json &value) {
    Steps &steps = model_.decoders;
    if (value.is_null())
      return steps.push_back({Kind::JoinBySpace, 0, {}, {}}), Status();
    const std::string type = text(value, "type");
    auto add = [&](Kind kind, std::uint32_t option = 0, std::string of = "",
                   std::string content = "") {
      steps.push_back({kind, option, std::move(of), std::move(content)});
      return Status();
    };
    if (type == "Sequence")
      return sequence(value, "decoders", &Pipeline::decoder);
    if (type == "ByteLevel")
      return add(Kind::CharactersToBytes);
    if (type == "ByteFallback")
      return add(Kind::ByteFallback);
    if (type == "Fuse")
      return add(Kind::Fuse);
    if (type == "Replace")
      return replace("decoder", value, steps);
    if (type == "Metaspace" && !text(value, "replacement").empty() && prependScheme(value))
      return add(Kind::ReplacementToSpace, *prependScheme(value) != 0, text(value, "replacement"));
    if (type == "Strip" && !text(value, "content").empty()) {
      for (auto [key, kind] : {std::pair("start", Kind::Strip), std::pair("stop", Kind::StripEnd)})
        if (const Json &count = member(value, key);
            count.is_number_unsigned() && count > 0 && count < (1 << 30))
          steps.push_back({kind, count.get<std::uint32_t>(), {}, text(value, "content")});
      return {};
    }
    if (type == "BPEDecoder" && !text(value, "suffix").empty())
      return add(Kind::SuffixToSpace, 0, text(value, "suffix"));
    if (type == "WordPiece" && !text(value, "prefix").empty())
      return add(Kind::PrefixJoins, flag(value, "cleanup", true), text(value, "prefix"));
    return unknown("decoder", value);
  }

  /// The ids that a special token of a template stands for.
  Status specialIds(const Json &processor, const std::string &name,
                    std::vector<std::int32_t> &ids) const {
    const Json &token = member(member(processor, "special_tokens"), name.c_str());
    const Json &list = member(token, "ids");
    if (!list.is_array())
      return builder_.fail("the template names the special token " + name +
                           ", which special_tokens lacks");
    for (const Json &id : list) {
      if (!id.is_number_unsigned() || id > INT32_MAX)
        return builder_.fail("special_tokens has the id " + id.dump());
      ids.push_back(id.get<std::int32_t>());
    }
    return {};
  }

  Status templateProcessing(const Json &value) {
    std::vector<std::int32_t> around[2];
    int sequences = 0;
    const Json &pieces = member(value, "single");
    if (!pieces.is_array())
      return unknown("post_processor", value);
    for (const Json &piece : pieces) {
      if (const Json &special = member(piece, "SpecialToken"); special.is_object()) {
        if (Status status = specialIds(value, text(special, "id"), around[sequences ? 1 : 0]);
            !status.ok())
          return status;
      } else if (text(member(piece, "Sequence"), "id") == "A" && !sequences) {
        ++sequences;
      } else {
        return unknown("post_processor", value);
      }
    }
    if (!sequences)
      return unknown("post_processor", value);
    return surround(around[0], around[1]);
  }

  /// What an outer processor puts around what is there already.
  Status surround(std::vector<std::int32_t> before, const std::vector<std::int32_t> &behind) {
    before.insert(before.end(), model_.before.begin(), model_.before.end());
    model_.before = std::move(before);
    model_.behind.insert(model_.behind.end(), behind.begin(), behind.end());
    return {};
  }

  Status postProcessor(const Json &value) {
    // ByteLevel moves offsets only.
    const std::string type = text(value, "type");
    if (value.is_null() || type == "ByteLevel")
      return {};
    if (type == "Sequence")
      return sequence(value, "processors", &Pipeline::postProcessor);
    if (type == "TemplateProcessing")
      return templateProcessing(value);
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      std::int32_t ids[2];
      for (int i = 0; i < 2; ++i) {
        const Json &pair = member(value, i ? "sep" : "cls");
        if (!pair.is_array() || pair.size() != 2 || !pair[1].is_number_unsigned() ||
            pair[1] > INT32_MAX)
          return unknown("post_processor", value);
        ids[i] = pair[1].get<std::int32_t>();
      }
      return surround({ids[0]}, {ids[1]});
    }
    return unknown("post_processor", value);
  }

  ModelBuilder &builder_;
  TokenizerModel &model_;
};

/// Where the last step makes characters of bytes, words are bytes instead.
void wordsOfBytes(TokenizerModel &model) {
  Steps &steps = model.preTokenizers;
  model.bytes = model.kind == TokenizerModel::Kind::Bpe && !model.byteFallback &&
                model.continuingPrefix.empty() && model.endSuffix.empty() && !steps.empty() &&
                steps.back().kind == Kind::BytesToCharacters;
  if (!model.bytes)
    return;
  steps.pop_back();
  Steps &decoders = model.decoders;
  if (decoders.size() == 1 &&
      (decoders[0].kind == Kind::CharactersToBytes || decoders[0].kind == Kind::JoinBySpace))
    decoders.clear();
}

Status addMerges(ModelBuilder &builder, const Json &merges) {
  if (!merges.is_array())
    return builder.fail("model.merges is not an array");
  for (std::size_t i = 0; i < merges.size(); ++i) {
    const Json &merge = merges[i];
    const std::string place = "model.merges[" + std::to_string(i) + "]";
    std::string left, right;
    if (merge.is_string()) {
      const auto &pair = merge.get_ref<const std::string &>();
      const std::size_t space = pair.find(' ');
      left = pair.substr(0, space);
      if (space != pair.npos)
        right = pair.substr(space + 1);
      if (right.find(' ') != right.npos)
        right.clear();
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    }
    if (left.empty() || right.empty())
      return builder.fail(place + ": expected \"left right\" or [\"left\", \"right\"]");
    if (Status status = builder.addMerge(left, right, place); !status.ok())
      return status;
  }
  return {};
}

Status readBpe(ModelBuilder &builder, const Json &model) {
  if (!isOff(member(model, "dropout")))
    return builder.refuse("model.dropout is " + member(model, "dropout").dump() +
                          ": texts would become other tokens each time");
  if (Status status = builder.addVocabulary(member(model, "vocab")); !status.ok())
    return status;
  if (const std::string name = text(model, "unk_token"); !name.empty())
    builder.model().unknown = builder.find(name);
  return addMerges(builder, member(model, "merges"));
}

/// 10^n as a file's "1e<n>" is read; pow() may be off in the last bit.
double powerOfTen(int n) {
  const std::string text = "1e" + std::to_string(n);
  double power = 0;
  std::from_chars(text.data(), text.data() + text.size(), power);
  return power;
}

/// The number that `tokenizers` reads where a file has `score`. Its reader, serde_json, takes the
/// digits as a double and multiplies or divides it by a power of ten: rounded twice, the last bit
/// may differ, and with it which of two nearly equal sums a text becomes. The file's digits are the
/// fewest that tell `score` from its neighbours, as all who save tokenizers write them.
double asPackageReads(double score) {
  char text[32];
  const char *end =
      std::to_chars(text, std::end(text), std::abs(score), std::chars_format::scientific).ptr;
  std::uint64_t digits = 0;
  int exponent = 0;
  const char *at = text;
  for (bool fraction = false; *at != 'e'; ++at)
    if (*at == '.') {
      fraction = true;
    } else {
      digits = 10 * digits + std::uint64_t(*at - '0');
      exponent -= fraction;
    }
  int tens = 0;
  std::from_chars(at + (at[1] == '+' ? 2 : 1), end, tens);
  exponent += tens;
  if (std::abs(exponent) > std::numeric_limits<double>::max_exponent10)
    return score;
  const double power = powerOfTen(std::abs(exponent));
  return std::copysign(exponent < 0 ? double(digits) / power : double(digits) * power, score);
}

Status readUnigram(ModelBuilder &builder, const Json &model) {
  TokenizerModel &out = builder.model();
  const Json &vocabulary = member(model, "vocab");
  if (!vocabulary.is_array())
    return builder.fail("model.vocab is not an array of [token, score]");
  for (std::size_t id = 0; id < vocabulary.size(); ++id) {
    const Json &entry = vocabulary[id];
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number())
      return builder.fail("model.vocab[" + std::to_string(id) + "]: expected [token, score]");
    out.scores.push_back(asPackageReads(entry[1].get<double>()));
    // A token without a text has a place but no use.
    if (entry[0] == "")
      out.tokens.resize(id + 1);
    else if (Status status = builder.addToken(entry[0].get<std::string>(), id); !status.ok())
      return status;
  }
  if (const Json &unknown = member(model, "unk_id"); !unknown.is_null()) {
    if (!unknown.is_number_unsigned() || unknown >= vocabulary.size())
      return builder.fail("model.unk_id is " + unknown.dump());
    out.unknown = unknown.get<std::int32_t>();
  }
  return {};
}

Status readModel(ModelBuilder &builder, const Json &root) {
  const Json &model = member(root, "model");
  if (!model.is_object())
    return builder.fail("there is no object \"model\"");
  const std::string type = text(model, "type");
  const bool unigram = type == "Unigram" || (type.empty() && member(model, "vocab").is_array());
  if (!unigram && !type.empty() && type != "BPE")
    return builder.refuse("model.type is \"" + type + "\"; BPE and Unigram are known");
  TokenizerModel &out = builder.model();
  out.kind = unigram ? TokenizerModel::Kind::Unigram : TokenizerModel::Kind::Bpe;
  out.byteFallback = flag(model, "byte_fallback");
  out.fuseUnknown = unigram || flag(model, "fuse_unk");
  out.ignoreMerges = flag(model, "ignore_merges");
  out.continuingPrefix = text(model, "continuing_subword_prefix");
  out.endSuffix = text(model, "end_of_word_suffix");
  if (Status status = Pipeline(builder).read(root); !status.ok())
    return status;
  wordsOfBytes(out);
  return unigram ? readUnigram(builder, model) : readBpe(builder, model);
}

Status addAddedTokens(ModelBuilder &builder, const Json &added) {
  using Added = TokenizerModel::AddedToken;
  static constexpr std::pair<const char *, Added::Flags> kFlags[] = {
      {"special", Added::Special},
      {"normalized", Added::Normalized},
      {"lstrip", Added::LeftSpace},
      {"rstrip", Added::RightSpace},
      {"single_word", Added::SingleWord}};
  if (added.is_null())
    return {};
  if (!added.is_array())
    return builder.fail("added_tokens is not an array");
  for (const Json &token : added) {
    if (!member(token, "content").is_string())
      return builder.fail("an added token has no \"content\"");
    std::uint8_t flags = 0;
    for (const auto &[name, value] : kFlags)
      flags |= flag(token, name) ? value : 0;
    if (Status status = builder.addAdded(text(token, "content"), member(token, "id"), flags);
        !status.ok())
      return status;
  }
  return {};
}

} // namespace

Status readTokenizerJson(const std::string &path, ModelBuilder &builder) {
  builder.enter(path);
  Result<Json> json = readJson(path);
  if (!json)
    return json.status();
  if (Status status = readModel(builder, *json); !status.ok())
    return status;
  return addAddedTokens(builder, member(*json, "added_tokens"));
}

} // namespace gpt2c::rt
