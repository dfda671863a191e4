// What an answer may say, token by token: a grammar, most of all. Who makes one is in
// runtime/grammar.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

namespace gpt2c::rt {

/// Sets of tokens: bit id % 32 of word id / 32 stands for one.
inline constexpr int32_t tokensOfWord = 32;
inline size_t wordsOfTokens(int64_t vocabulary) {
  return size_t((vocabulary + tokensOfWord - 1) / tokensOfWord);
}

/// The state of one answer. Not thread-safe.
class TokenFilter {
public:
  virtual ~TokenFilter() = default;

  /// Takes the next token of the answer. False where it may not follow: nothing has changed then.
  virtual bool accept(int32_t token) = 0;
  /// Writes the set of tokens that may be next: wordsOfTokens(vocabulary()), whose bits behind the
  /// last token are clear.
  virtual void fill(std::span<uint32_t> allowed) = 0;
  /// Whether the answer has ended: a token that ends it was accepted, or no other may follow.
  virtual bool complete() = 0;
};

/// Serves any number of answers, in any threads.
class Constraint {
public:
  virtual ~Constraint() = default;

  virtual std::unique_ptr<TokenFilter> begin() const = 0;
  /// Ids are below.
  virtual int32_t vocabulary() const = 0;
  /// Tokens that end an answer, where it may end.
  virtual std::span<const int32_t> ends() const = 0;
};

} // namespace gpt2c::rt
