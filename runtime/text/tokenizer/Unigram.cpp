#include "runtime/text/tokenizer/Unigram.h"

#include "runtime/text/unicode/Utf8.h"

#include <algorithm>
#include <utility>

namespace gpt2c::rt {
namespace {

constexpr double kUnknownPenalty = 10; // SentencePiece's

} // namespace

Unigram::Unigram(std::vector<std::pair<std::string_view, std::int32_t>> texts,
                 std::vector<double> scores, std::int32_t unknown)
    : trie_(std::move(texts)), scores_(std::move(scores)), unknown_(unknown) {
  if (!scores_.empty())
    unknownScore_ = *std::ranges::min_element(scores_) - kUnknownPenalty;
}

void Unigram::encode(std::string_view word, bool fuse, Scratch &scratch,
                     std::vector<Piece> &pieces) const {
  std::vector<Scratch::Node> &nodes = scratch.nodes;
  nodes.assign(word.size() + 1, {});
  auto offer = [&](std::size_t begin, std::size_t end, double score, std::int32_t token) {
    Scratch::Node &node = nodes[end];
    score += nodes[begin].score;
    if (node.begin == kNowhere || score > node.score)
      node = {score, token, std::uint32_t(begin)};
  };
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t character = codePointAt(word, at).length;
    bool single = false;
    Trie::Node node = Trie::kRoot;
    for (std::size_t i = at; i < word.size(); ++i) {
      node = trie_.next(node, std::uint8_t(word[i]));
      if (node == Trie::kNone)
        break;
      if (const std::int32_t token = trie_.value(node); token >= 0) {
        offer(at, i + 1, scores_[std::size_t(token)], token == unknown_ ? -1 : token);
        single |= i + 1 - at == character;
      }
    }
    if (!single)
      offer(at, at + character, unknownScore_, -1);
    at += character;
  }
  pieces.clear();
  for (std::size_t end = word.size(); end > 0; end = nodes[end].begin) {
    const Scratch::Node &node = nodes[end];
    if (fuse && node.token < 0 && !pieces.empty() && pieces.back().token < 0)
      pieces.back().begin = node.begin;
    else
      pieces.push_back({node.begin, std::uint32_t(end), node.token});
  }
  std::ranges::reverse(pieces);
}

std::int32_t Unigram::find(std::string_view text) const {
  Trie::Node node = Trie::kRoot;
  for (const char c : text) {
    node = trie_.next(node, std::uint8_t(c));
    if (node == Trie::kNone)
      return -1;
  }
  return text.empty() ? -1 : trie_.value(node);
}

} // namespace gpt2c::rt
