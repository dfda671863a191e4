#include "runtime/text/tokenizer/TokenizerModel.h"

#include "runtime/text/tokenizer/ByteAlphabet.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

namespace gpt2c::rt {
namespace {

using Kind = TokenizerStep::Kind;

Status fail(std::string message) { return {Code::Corrupt, std::move(message)}; }

bool isReplace(Kind kind) { return kind == Kind::Replace || kind == Kind::ReplaceRegex; }

bool isNormalizer(Kind kind) { return kind <= Kind::BytesToCharacters; }

bool isPreTokenizer(Kind kind) {
  return isReplace(kind) || (kind >= Kind::BytesToCharacters && kind <= Kind::PrefixReplacement);
}

bool isDecoder(Kind kind) { return isReplace(kind) || kind >= Kind::CharactersToBytes; }

/// The largest value of `option`, and the smallest.
struct Bounds {
  std::uint32_t low, high;
};
Bounds optionBounds(Kind kind) {
  switch (kind) {
  case Kind::StripSpace:
    return {1, 3};
  case Kind::SplitText:
  case Kind::SplitRegex:
  case Kind::SplitDigits:
  case Kind::SplitPunctuation:
  case Kind::SplitSpace:
    return {0, TokenizerStep::Contiguous + TokenizerStep::Invert};
  case Kind::SplitLength:
    return {1, std::numeric_limits<std::int32_t>::max()};
  case Kind::PrefixReplacement:
    return {0, 2};
  case Kind::Strip:
  case Kind::StripEnd:
    return {0, std::numeric_limits<std::int32_t>::max()};
  case Kind::ReplacementToSpace:
  case Kind::PrefixJoins:
  case Kind::Charsmap:
  case Kind::Prepend:
    return {0, 1};
  default:
    return {0, 0};
  }
}

bool needsText(Kind kind) {
  return kind == Kind::Charsmap || kind == Kind::Replace || kind == Kind::ReplaceRegex ||
         kind == Kind::SplitText || kind == Kind::SplitRegex || kind == Kind::PrefixReplacement ||
         kind == Kind::ReplacementToSpace || kind == Kind::SuffixToSpace ||
         kind == Kind::PrefixJoins;
}

bool needsContent(Kind kind) {
  return kind == Kind::Prepend || kind == Kind::Strip || kind == Kind::StripEnd;
}

bool optionFits(const TokenizerStep &step) {
  const Bounds bounds = optionBounds(step.kind);
  const bool splits = step.kind >= Kind::SplitText && step.kind <= Kind::SplitSpace;
  return step.option >= bounds.low && step.option <= bounds.high &&
         (!splits || step.option % TokenizerStep::Invert <= TokenizerStep::Contiguous);
}

template <typename IsOf>
Status checkSteps(const std::vector<TokenizerStep> &steps, IsOf isOf, const char *what) {
  for (const TokenizerStep &step : steps) {
    const bool contentFits = needsContent(step.kind) ? !step.content.empty()
                                                     : isReplace(step.kind) || step.content.empty();
    if (!isOf(step.kind) || !optionFits(step) || needsText(step.kind) == step.text.empty() ||
        !contentFits)
      return fail(std::string("a step of the ") + what + " contradicts itself");
  }
  return {};
}

bool isSound(const SamplingAdvice &a) {
  return std::isfinite(a.temperature) && a.temperature >= 0 && a.topP > 0 && a.topP <= 1 &&
         a.minP >= 0 && a.minP <= 1 && std::isfinite(a.repetitionPenalty) &&
         a.repetitionPenalty > 0 && a.topK >= 0;
}

} // namespace

bool TokenizerModel::isToken(std::int32_t id) const {
  if (id < 0)
    return false;
  if (std::size_t(id) < tokens.size() && !tokens[std::size_t(id)].text.empty())
    return true;
  return std::ranges::binary_search(added, id, {}, &AddedToken::id);
}

std::int32_t TokenizerModel::size() const {
  const auto last = added.empty() ? 0 : added.back().id + 1;
  return std::max(std::int32_t(tokens.size()), last);
}

std::int32_t TokenizerModel::find(std::string_view name) const {
  for (const AddedToken &token : added)
    if (token.content == name)
      return token.id;
  std::string text(name);
  const auto asBytes = bytes ? alphabet::bytes(name) : std::nullopt;
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const bool plain = !bytes || (tokens[id].flags & Token::Unreachable);
    if (plain ? tokens[id].text == text : asBytes && tokens[id].text == *asBytes)
      return name.empty() ? -1 : std::int32_t(id);
  }
  return -1;
}

Status TokenizerModel::checkTokens() const {
  constexpr std::uint8_t known = Token::Whole | Token::Unreachable;
  if (tokens.size() > std::size_t(kMaxTokens))
    return fail("more tokens than ids");
  for (std::size_t id = 0; id < tokens.size(); ++id) {
    const std::uint8_t flags = tokens[id].flags;
    if ((flags & ~known) || (flags && tokens[id].text.empty()) || flags == known)
      return fail("token " + std::to_string(id) + " has contradictory flags");
  }
  for (std::size_t i = 0; i < added.size(); ++i) {
    const AddedToken &token = added[i];
    if (token.id < 0 || token.id >= kMaxTokens || token.content.empty() || token.flags > 31 ||
        (i > 0 && token.id <= added[i - 1].id))
      return fail("added token " + std::to_string(token.id) + " contradicts itself");
  }
  for (const std::vector<std::int32_t> *ids : {&before, &behind})
    for (const std::int32_t id : *ids)
      if (!isToken(id))
        return fail("token " + std::to_string(id) + ", which has a task, does not exist");
  // A model may end its answers with tokens that the tokenizer does not know.
  if (std::ranges::any_of(texts.ends, [](std::int32_t id) { return id < 0; }))
    return fail("a token that ends answers does not exist");
  for (const std::int32_t id : {bos, unknown})
    if (id != -1 && !isToken(id))
      return fail("token " + std::to_string(id) + ", which has a task, does not exist");
  return {};
}

Status TokenizerModel::checkMerges() const {
  std::vector<std::uint64_t> pairs;
  pairs.reserve(merges.size());
  auto exists = [&](std::int32_t id) {
    return id >= 0 && std::size_t(id) < tokens.size() && !tokens[std::size_t(id)].text.empty();
  };
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const Merge &merge = merges[rank];
    if (!exists(merge.left) || !exists(merge.right) || !exists(merge.result))
      return fail("merge " + std::to_string(rank) + " names a token that does not exist");
    std::string_view left = tokens[std::size_t(merge.left)].text,
                     right = tokens[std::size_t(merge.right)].text,
                     result = tokens[std::size_t(merge.result)].text;
    right.remove_prefix(std::min(right.size(), continuingPrefix.size()));
    if (result.size() != left.size() + right.size() || !result.starts_with(left) ||
        !result.ends_with(right))
      return fail("merge " + std::to_string(rank) + " does not join its two tokens");
    pairs.push_back(std::uint64_t(merge.left) << 32 | std::uint32_t(merge.right));
  }
  std::ranges::sort(pairs);
  if (std::ranges::adjacent_find(pairs) != pairs.end())
    return fail("two merges join the same pair");
  return {};
}

Status TokenizerModel::check() const {
  const bool unigram = kind == Kind::Unigram;
  if (kind > Kind::Unigram || (unigram ? !merges.empty() : !scores.empty()) ||
      (unigram && scores.size() != tokens.size()))
    return fail("the model is neither merges nor scores");
  if (!std::ranges::all_of(scores, [](double score) { return std::isfinite(score); }))
    return fail("a score is no number");
  if (texts.sampling && !isSound(*texts.sampling))
    return fail("the advice how to sample contradicts itself");
  for (Status status :
       {checkTokens(), checkMerges(), checkSteps(normalizers, isNormalizer, "normalizers"),
        checkSteps(preTokenizers, isPreTokenizer, "pre-tokenizers"),
        checkSteps(decoders, isDecoder, "decoders")})
    if (!status.ok())
      return status;
  return {};
}

} // namespace gpt2c::rt
