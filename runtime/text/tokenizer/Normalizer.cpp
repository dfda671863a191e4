#include "runtime/text/tokenizer/Normalizer.h"

#include "runtime/text/tokenizer/ByteAlphabet.h"
#include "runtime/text/unicode/Unicode.h"
#include "runtime/text/unicode/Utf8.h"

namespace gpt2c::rt {
namespace {

using Kind = TokenizerStep::Kind;

/// Calls change(out, character, bytes) for each character of `text`; bytes outside of well-formed
/// UTF-8 stay.
template <typename Change> std::string mapCharacters(std::string_view text, Change change) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = codePointAt(text, at);
    if (c.valid)
      change(out, c.value);
    else
      out.push_back(text[at]);
    at += c.length;
  }
  return out;
}

bool isDroppedControl(char32_t c) {
  return (c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F ||
         c == 0x9F;
}

bool isLikeSpace(char32_t c) {
  return c == 9 || c == 0xA || c == 0xC || c == 0xD || c == 0x1680 ||
         (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 || c == 0x2581 || c == 0xFEFF ||
         c == 0xFFFD;
}

std::string nmt(std::string_view text) {
  return mapCharacters(text, [](std::string &out, char32_t c) {
    if (!isDroppedControl(c))
      appendUtf8(out, isLikeSpace(c) ? U' ' : c);
  });
}

std::size_t spaceAtBegin(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const CodePoint c = codePointAt(text, at);
    if (!isWhiteSpace(c.value))
      break;
    at += c.length;
  }
  return at;
}

std::string_view withoutSpaceAtEnd(std::string_view text) {
  while (!text.empty()) {
    std::size_t at = text.size() - 1;
    while (at > 0 && (std::uint8_t(text[at]) & 0xC0) == 0x80 && text.size() - at < 4)
      --at;
    const CodePoint c = codePointAt(text, at);
    if (at + c.length != text.size() || !isWhiteSpace(c.value))
      break;
    text = text.substr(0, at);
  }
  return text;
}

} // namespace

std::string maskInvalidUtf8(std::string_view text) {
  std::string masked(text);
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = codePointAt(text, at);
    if (!c.valid)
      masked[at] = '\0';
    at += c.length;
  }
  return masked;
}

std::string replaceAll(const Regex &pattern, std::string_view text, std::string_view content,
                       Regex::Scratch &scratch) {
  std::string masked;
  const bool valid = isUtf8(text);
  if (!valid)
    masked = maskInvalidUtf8(text);
  std::vector<TextSpan> matches;
  pattern.findAll(valid ? text : masked, scratch, matches);
  std::string out;
  std::size_t at = 0;
  for (const TextSpan &match : matches) {
    out.append(text.substr(at, match.begin - at)).append(content);
    at = match.end;
  }
  return out.append(text.substr(at));
}

std::string replaceAll(std::string_view pattern, std::string_view text, std::string_view content) {
  std::string out;
  if (pattern.empty())
    return std::string(text);
  std::size_t at = 0;
  for (std::size_t found; (found = text.find(pattern, at)) != text.npos;
       at = found + pattern.size())
    out.append(text.substr(at, found - at)).append(content);
  return out.append(text.substr(at));
}

Result<Normalizer> Normalizer::create(std::span<const TokenizerStep> steps) {
  Normalizer made;
  for (const TokenizerStep &step : steps) {
    Step &added = made.steps_.emplace_back(Step{step, std::nullopt, std::nullopt});
    if (step.kind == Kind::ReplaceRegex) {
      Result<Regex> regex = Regex::compile(step.text);
      if (!regex)
        return regex.status();
      added.regex = regex.take();
    } else if (step.kind == Kind::Charsmap) {
      Result<Charsmap> map = Charsmap::parse(step.text);
      if (!map)
        return map.status();
      added.charsmap = map.take();
    }
  }
  return made;
}

std::string Normalizer::applyStep(const Step &step, std::string_view text, bool &begins,
                                  Regex::Scratch &scratch) {
  const TokenizerStep &s = step.step;
  switch (s.kind) {
  case Kind::Nfc:
    return normalForm(text, NormalForm::Nfc);
  case Kind::Nfd:
    return normalForm(text, NormalForm::Nfd);
  case Kind::Nfkc:
    return normalForm(text, NormalForm::Nfkc);
  case Kind::Nfkd:
    return normalForm(text, NormalForm::Nfkd);
  case Kind::Lowercase:
    return mapCharacters(text, appendLower);
  case Kind::StripAccents:
    begins = begins && !(text.size() && isMark(codePointAt(text, 0).value));
    return mapCharacters(text, [](std::string &out, char32_t c) {
      if (!isMark(c))
        appendUtf8(out, c);
    });
  case Kind::Nmt:
    begins = begins && !(text.size() && isDroppedControl(codePointAt(text, 0).value));
    return nmt(text);
  case Kind::Charsmap:
    return s.option ? step.charsmap->applyLongest(text) : step.charsmap->apply(text);
  case Kind::StripSpace: {
    const std::size_t skip = s.option & 1 ? spaceAtBegin(text) : 0;
    begins = begins && skip == 0;
    text = text.substr(skip);
    return std::string(s.option & 2 ? withoutSpaceAtEnd(text) : text);
  }
  case Kind::Prepend:
    if (text.empty() || (s.option && !begins))
      return std::string(text);
    return s.content + std::string(text);
  case Kind::Replace:
    begins = begins && !(s.content.empty() && text.starts_with(s.text));
    return replaceAll(s.text, text, s.content);
  case Kind::ReplaceRegex:
    return replaceAll(*step.regex, text, s.content, scratch);
  case Kind::BytesToCharacters:
    return alphabet::characters(text);
  default:
    return std::string(text);
  }
}

std::string Normalizer::apply(std::string_view text, bool &begins, Regex::Scratch &scratch) const {
  std::string out(text);
  for (const Step &step : steps_)
    out = applyStep(step, out, begins, scratch);
  return out;
}

} // namespace gpt2c::rt
