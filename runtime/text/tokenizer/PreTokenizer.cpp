#include "runtime/text/tokenizer/PreTokenizer.h"

#include "runtime/text/tokenizer/ByteAlphabet.h"
#include "runtime/text/tokenizer/Normalizer.h"
#include "runtime/text/unicode/Unicode.h"
#include "runtime/text/unicode/Utf8.h"

#include <utility>

namespace gpt2c::rt {
namespace {

using Kind = TokenizerStep::Kind;
using Step = TokenizerStep;

constexpr std::uint32_t kBehaviours = Step::Invert - 1;

/// Makes words of the stretches of a word, those that match and those between them.
class Cutter {
public:
  Cutter(std::uint32_t behaviour, const Words::Word &word, std::vector<Words::Word> &out)
      : behaviour_(behaviour), word_(word), out_(out), base_(out.size()) {}

  /// What lies before the next match; `match`: it counts as one.
  void gap(std::size_t end, bool match) {
    if (end > at_)
      add(end, match);
  }

  /// The next stretch from the left, from the end of the one before it. It may be empty.
  void add(std::size_t end, bool match) {
    const std::size_t begin = std::exchange(at_, end);
    const bool first = out_.size() == base_;
    switch (behaviour_) {
    case Step::Removed:
      if (!match)
        push(begin, end);
      break;
    case Step::Isolated:
      push(begin, end);
      break;
    case Step::Contiguous:
      join(match == previous_ && !first, begin, end);
      break;
    case Step::MergedWithPrevious:
      join(match && !previous_ && !first, begin, end);
      break;
    default: // MergedWithNext: a match waits for what follows, unless that is a match
      join(!first && previous_ && !match, begin, end);
      break;
    }
    previous_ = match;
  }

private:
  void push(std::size_t begin, std::size_t end) {
    out_.push_back({word_.begin + begin, word_.begin + end, word_.first && begin == 0});
  }
  void join(bool toLast, std::size_t begin, std::size_t end) {
    if (toLast)
      out_.back().end = word_.begin + end;
    else
      push(begin, end);
  }

  std::uint32_t behaviour_;
  const Words::Word word_;
  std::vector<Words::Word> &out_;
  std::size_t base_, at_ = 0;
  bool previous_ = false;
};

void dropEmpty(std::vector<Words::Word> &words) {
  std::erase_if(words, [](const Words::Word &word) { return word.begin == word.end; });
}

bool isOf(Kind kind, char32_t c) {
  return kind == Kind::SplitDigits        ? isNumeric(c)
         : kind == Kind::SplitPunctuation ? isPunctuation(c)
                                          : isWhiteSpace(c);
}

} // namespace

void Words::begin(std::string_view text, bool first) {
  text_ = text;
  isUtf8_ = isUtf8(text);
  masked_.clear();
  words_.clear();
  if (!text.empty())
    words_.push_back({0, text.size(), first});
}

void Words::setText(std::string text) {
  own_ = std::move(text);
  text_ = own_;
  masked_.clear();
}

std::string_view Words::matched() {
  if (isUtf8_)
    return text_;
  if (masked_.empty())
    masked_ = maskInvalidUtf8(text_);
  return masked_;
}

Result<PreTokenizer> PreTokenizer::create(std::span<const TokenizerStep> steps) {
  PreTokenizer made;
  for (const TokenizerStep &step : steps) {
    Step &added = made.steps_.emplace_back(Step{step, std::nullopt});
    if (step.kind != Kind::SplitRegex && step.kind != Kind::ReplaceRegex)
      continue;
    Result<Regex> regex = Regex::compile(step.text);
    if (!regex)
      return regex.status();
    added.regex = regex.take();
  }
  return made;
}

void PreTokenizer::findMatches(const Step &step, std::string_view word, Words &words) {
  const TokenizerStep &s = step.step;
  std::vector<TextSpan> &matches = words.matches_;
  if (s.kind == Kind::SplitRegex) {
    step.regex->findAll(word, words.regex, matches);
    return;
  }
  matches.clear();
  if (s.kind == Kind::SplitText) {
    for (std::size_t at = 0; !s.text.empty() && (at = word.find(s.text, at)) != word.npos;
         at += s.text.size())
      matches.push_back({at, at + s.text.size()});
    return;
  }
  for (std::size_t at = 0, count = 0; at < word.size();) {
    const std::size_t begin = at;
    if (s.kind == Kind::SplitLength) {
      for (count = 0; at < word.size() && count < s.option; ++count)
        at += codePointAt(word, at).length;
      matches.push_back({begin, at});
      continue;
    }
    const CodePoint c = codePointAt(word, at);
    at += c.length;
    if (c.valid && isOf(s.kind, c.value))
      matches.push_back({begin, at});
  }
}

void PreTokenizer::splitWords(const Step &step, Words &words) {
  const bool fixed = step.step.kind == Kind::SplitLength;
  const bool invert = !fixed && (step.step.option & TokenizerStep::Invert);
  const std::uint32_t behaviour =
      fixed ? std::uint32_t(TokenizerStep::Isolated) : step.step.option & kBehaviours;
  words.next_.clear();
  for (const Words::Word &word : words.words_) {
    const std::size_t size = word.end - word.begin;
    findMatches(step, words.matched().substr(word.begin, size), words);
    Cutter cutter(behaviour, word, words.next_);
    for (const TextSpan &match : words.matches_) {
      cutter.gap(match.begin, invert);
      cutter.add(match.end, !invert);
    }
    cutter.gap(size, invert);
  }
  dropEmpty(words.next_);
  std::swap(words.words_, words.next_);
}

void PreTokenizer::changeWords(const Step &step, Words &words) {
  const TokenizerStep &s = step.step;
  std::string text;
  text.reserve(words.text_.size() + 8);
  for (Words::Word &word : words.words_) {
    std::string_view old = words.text_.substr(word.begin, word.end - word.begin);
    word.begin = text.size();
    if (s.kind == Kind::PrefixSpace) {
      text.append(old.starts_with(' ') ? "" : " ").append(old);
    } else if (s.kind == Kind::PrefixReplacement) {
      std::string replaced = replaceAll(" ", old, s.text);
      if ((s.option == 2 || (s.option == 1 && word.first)) && !replaced.starts_with(s.text))
        text += s.text;
      text += replaced;
    } else if (s.kind == Kind::BytesToCharacters) {
      text += alphabet::characters(old);
    } else if (s.kind == Kind::Replace) {
      text += replaceAll(s.text, old, s.content);
    } else {
      text += replaceAll(*step.regex, old, s.content, words.regex);
    }
    word.end = text.size();
  }
  dropEmpty(words.words_);
  words.setText(std::move(text));
  words.isUtf8_ = words.isUtf8_ || s.kind == Kind::BytesToCharacters;
}

void PreTokenizer::split(std::string_view text, bool first, Words &words) const {
  words.begin(text, first);
  for (const Step &step : steps_) {
    switch (step.step.kind) {
    case Kind::SplitText:
    case Kind::SplitRegex:
    case Kind::SplitDigits:
    case Kind::SplitPunctuation:
    case Kind::SplitSpace:
    case Kind::SplitLength:
      splitWords(step, words);
      break;
    default:
      changeWords(step, words);
    }
  }
}

} // namespace gpt2c::rt
