#include "runtime/text/tokenizer/Decoder.h"

#include "runtime/text/tokenizer/ByteAlphabet.h"
#include "runtime/text/tokenizer/Normalizer.h"
#include "runtime/text/unicode/Utf8.h"

#include <algorithm>
#include <cctype>

namespace gpt2c::rt {
namespace {

using Kind = TokenizerStep::Kind;

/// The byte that "<0x0A>" names.
std::optional<char> byteOfName(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>')
    return std::nullopt;
  int value = 0;
  for (const char c : token.substr(3, 2)) {
    if (!std::isxdigit(std::uint8_t(c)))
      return std::nullopt;
    value = value * 16 + (c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
  }
  return char(value);
}

void stripBegin(std::string &token, const TokenizerStep &s) {
  std::size_t at = 0;
  for (std::uint32_t i = 0; i < s.option && token.compare(at, s.content.size(), s.content) == 0;
       ++i)
    at += s.content.size();
  token.erase(0, at);
}

void stripEnd(std::string &token, const TokenizerStep &s) {
  for (std::uint32_t i = 0; i < s.option && token.ends_with(s.content); ++i)
    token.resize(token.size() - s.content.size());
}

/// A token of WordPiece as written English has it: no space in front of what follows a word.
std::string cleaned(std::string token) {
  static constexpr std::pair<const char *, const char *> kWritten[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto &[from, to] : kWritten)
    token = replaceAll(std::string_view(from), token, to);
  return token;
}

/// Byte tokens that touch become one, so that what follows sees their characters.
void joinBytes(std::vector<std::string> &tokens) {
  std::size_t kept = 0;
  bool inBytes = false;
  for (std::string &token : tokens) {
    const std::optional<char> byte = byteOfName(token);
    std::string text = byte ? std::string(1, *byte) : std::move(token);
    if (byte && inBytes)
      tokens[kept - 1] += text;
    else
      tokens[kept++] = std::move(text);
    inBytes = byte.has_value();
  }
  tokens.resize(kept);
}

/// Where a token stands among those that are decoded.
struct Place {
  bool first, last;
};

std::string change(const TokenizerStep &s, const std::optional<Regex> &regex, std::string token,
                   Place place) {
  switch (s.kind) {
  case Kind::Replace:
    return replaceAll(s.text, token, s.content);
  case Kind::ReplaceRegex: {
    Regex::Scratch scratch;
    return replaceAll(*regex, token, s.content, scratch);
  }
  case Kind::CharactersToBytes:
    return alphabet::bytes(token).value_or(token);
  case Kind::ByteFallback:
    if (auto byte = byteOfName(token))
      return std::string(1, *byte);
    return token;
  case Kind::Strip:
    stripBegin(token, s);
    return token;
  case Kind::StripEnd:
    stripEnd(token, s);
    return token;
  case Kind::ReplacementToSpace:
    return replaceAll(s.text, token, place.first && s.option ? "" : " ");
  case Kind::SuffixToSpace:
    return replaceAll(s.text, token, place.last ? "" : " ");
  case Kind::PrefixJoins:
    if (!place.first)
      token = token.starts_with(s.text) ? token.substr(s.text.size()) : " " + token;
    return s.option ? cleaned(std::move(token)) : token;
  case Kind::JoinBySpace:
    return place.first ? token : " " + token;
  default:
    return token;
  }
}

bool joins(Kind kind) { return kind == Kind::Fuse || kind == Kind::CharactersToBytes; }

} // namespace

Result<Decoder> Decoder::create(std::span<const TokenizerStep> steps) {
  Decoder made;
  bool joined = false;
  for (const TokenizerStep &step : steps) {
    Step &added = made.steps_.emplace_back(Step{step, std::nullopt});
    if (step.kind == Kind::ReplaceRegex) {
      Result<Regex> regex = Regex::compile(step.text);
      if (!regex)
        return regex.status();
      added.regex = regex.take();
    }
    const bool alone = step.kind == Kind::Replace || step.kind == Kind::CharactersToBytes ||
                       step.kind == Kind::Fuse || step.kind == Kind::ByteFallback;
    made.joinsOnly_ = made.joinsOnly_ && alone && (!joined || step.kind == Kind::Fuse);
    joined = joined || joins(step.kind) || step.kind == Kind::ByteFallback;
  }
  return made;
}

std::string Decoder::decode(std::vector<std::string> tokens) const {
  for (const Step &step : steps_) {
    if (step.step.kind == Kind::ByteFallback) {
      joinBytes(tokens);
      continue;
    }
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] =
          change(step.step, step.regex, std::move(tokens[i]), {i == 0, i + 1 == tokens.size()});
    if (!joins(step.step.kind) || tokens.empty())
      continue;
    for (std::size_t i = 1; i < tokens.size(); ++i)
      tokens[0] += tokens[i];
    tokens.resize(1);
  }
  std::string text;
  for (const std::string &token : tokens)
    text += token;
  return text;
}

std::string Decoder::inside(std::string_view token) const {
  std::string text(token);
  bool joined = false;
  for (const Step &step : steps_) {
    const bool strips = step.step.kind == Kind::Strip || step.step.kind == Kind::StripEnd;
    if (!joined || !strips)
      text = change(step.step, step.regex, std::move(text), {false, false});
    joined = joined || joins(step.step.kind);
  }
  return text;
}

} // namespace gpt2c::rt
