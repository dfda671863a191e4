#include "runtime/grammar/XGrammar.h"

#ifndef GPT2C_XGRAMMAR

namespace gpt2c::rt {

bool hasGrammars() { return false; }

Result<std::unique_ptr<GrammarBackend>> makeGrammarBackend(const Tokenizer &, int32_t,
                                                           const std::vector<int32_t> &,
                                                           const GrammarLimits &) {
  return {Code::Unsupported, "this build has no XGrammar"};
}

} // namespace gpt2c::rt

#else

#include <xgrammar/xgrammar.h>

#include <ctime>

#include <algorithm>
#include <bit>
#include <list>
#include <map>
#include <stdexcept>

//===-- what XGrammar says ------------------------------------------------------------------===//

namespace gpt2c::rt {
namespace {

/// The first warning of this thread's compilation: something would be left out.
thread_local std::string *warning = nullptr;

struct GrammarError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

} // namespace
} // namespace gpt2c::rt

// The library is built with XGRAMMAR_LOG_CUSTOMIZE: it prints nothing and calls these.
namespace xgrammar {

[[noreturn]] void LogFatalImpl(const std::string &, int, const std::string &message);
void LogMessageImpl(const std::string &, int, int level, const std::string &message);

void LogFatalImpl(const std::string &, int, const std::string &message) {
  throw gpt2c::rt::GrammarError(message);
}

void LogMessageImpl(const std::string &, int, int level, const std::string &message) {
  constexpr int warns = 2;
  if (level >= warns && gpt2c::rt::warning && gpt2c::rt::warning->empty())
    *gpt2c::rt::warning = message;
}

} // namespace xgrammar

namespace gpt2c::rt {

bool hasGrammars() { return true; }

namespace {

/// One answer.
class Matcher final : public TokenFilter {
public:
  Matcher(const xgrammar::CompiledGrammar &grammar, std::span<const int32_t> ends,
          int32_t vocabulary)
      : matcher_(grammar), ends_(ends), size_{int64_t(wordsOfTokens(vocabulary))},
        lastWord_(~0U >> (size_[0] * tokensOfWord - vocabulary)) {}

  bool accept(int32_t token) override {
    try {
      fresh_ = false;
      return !matcher_.IsTerminated() && matcher_.AcceptToken(token);
    } catch (const std::exception &) {
      return false;
    }
  }

  void fill(std::span<uint32_t> allowed) override {
    if (fresh_)
      std::ranges::copy(bits_, allowed.begin());
    else
      write(allowed);
  }

  bool complete() override {
    if (matcher_.IsTerminated())
      return true;
    if (!matcher_.IsCompleted())
      return false;
    if (!fresh_) {
      bits_.resize(size_t(size_[0]));
      write(bits_);
      fresh_ = true;
    }
    // Of the bits those of ends are taken away for a moment.
    std::vector<std::pair<size_t, uint32_t>> kept;
    for (const int32_t end : ends_) {
      const auto word = size_t(end / tokensOfWord);
      kept.emplace_back(word, bits_[word]);
      bits_[word] &= ~(1U << (end % tokensOfWord));
    }
    const bool none = std::ranges::all_of(bits_, [](uint32_t w) { return w == 0; });
    for (auto it = kept.rbegin(); it != kept.rend(); ++it)
      bits_[it->first] = it->second;
    return none;
  }

private:
  /// The mask behind the tokens so far. Where XGrammar fails nothing may follow.
  void write(std::span<uint32_t> allowed) {
    DLTensor tensor{};
    tensor.data = allowed.data();
    tensor.device = {kDLCPU, 0};
    tensor.ndim = 1;
    tensor.dtype = xgrammar::GetBitmaskDLType();
    tensor.shape = size_;
    try {
      if (matcher_.IsTerminated())
        std::ranges::fill(allowed, 0U);
      else if (!matcher_.FillNextTokenBitmask(&tensor))
        std::ranges::fill(allowed, ~0U);
    } catch (const std::exception &) {
      std::ranges::fill(allowed, 0U);
    }
    if (!allowed.empty())
      allowed.back() &= lastWord_;
  }

  xgrammar::GrammarMatcher matcher_;
  std::span<const int32_t> ends_;
  int64_t size_[1];
  uint32_t lastWord_;          ///< the bits of its tokens
  std::vector<uint32_t> bits_; ///< where `fresh_`: the mask behind the tokens so far
  bool fresh_ = false;
};

class Compiled final : public Constraint {
public:
  Compiled(xgrammar::CompiledGrammar grammar, int32_t vocabulary, std::vector<int32_t> ends)
      : grammar_(std::move(grammar)), vocabulary_(vocabulary), ends_(std::move(ends)) {}

  std::unique_ptr<TokenFilter> begin() const override {
    return std::make_unique<Matcher>(grammar_, ends_, vocabulary_);
  }
  int32_t vocabulary() const override { return vocabulary_; }
  std::span<const int32_t> ends() const override { return ends_; }
  size_t bytes() const { return grammar_.MemorySizeBytes(); }

private:
  xgrammar::CompiledGrammar grammar_;
  int32_t vocabulary_;
  std::vector<int32_t> ends_;
};

//===-- texts -------------------------------------------------------------------------------===//

/// A literal of EBNF with these bytes, which are UTF-8.
std::string literalOf(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    constexpr const char *digits = "0123456789abcdef";
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f)
      out += std::string("\\x") + digits[byte >> 4] + digits[byte & 15];
    else
      out += (c == '"' || c == '\\' ? "\\" : "") + std::string(1, c);
  }
  return out + "\"";
}

constexpr const char *anyObject = R"({"type":"object","additionalProperties":true})";
class Backend final : public GrammarBackend {
public:
  Backend(const Tokenizer &tokenizer, int32_t vocabulary, std::vector<int32_t> ends,
          const GrammarLimits &limits)
      : vocabulary_(vocabulary), ends_(std::move(ends)), limits_(limits), info_(textsOf(tokenizer)),
        compiler_(info_, 1, false) {}

  Result<std::shared_ptr<const Constraint>> compile(const GrammarText &what) override {
    if (auto it = known_.find(what); it != known_.end()) {
      order_.splice(order_.begin(), order_, it->second.place);
      return std::shared_ptr<const Constraint>(it->second.made);
    }
    if (const auto it = refused_.find(what); it != refused_.end())
      return it->second;
    std::string warned;
    warning = &warned;
    const double start = threadSeconds();
    Result<std::shared_ptr<const Compiled>> made = tryCompile(what);
    const double seconds = threadSeconds() - start;
    warning = nullptr;
    if (!made)
      return made.status();
    if (!warned.empty())
      return {Code::Usage, std::string(nameOf(what.kind)) + ": not supported: " + warned};
    Status cost = checkCost(seconds, (*made)->bytes());
    if (cost.ok())
      cost = tryMasks(**made);
    if (!cost.ok())
      return refuse(what, {cost.code(), std::string(nameOf(what.kind)) + ": " + cost.message()});
    keep(what, *made);
    return std::shared_ptr<const Constraint>(*made);
  }

private:
  struct Known {
    std::shared_ptr<const Compiled> made;
    std::list<const GrammarText *>::iterator place;
  };

  /// Texts of all tokens, empty for those that are none. A special token has the text of its name
  /// in an answer that shows it, but is no part of a grammar but as itself.
  xgrammar::TokenizerInfo textsOf(const Tokenizer &tokenizer) {
    std::vector<std::string> texts(static_cast<size_t>(vocabulary_));
    for (int32_t id = 0; id < vocabulary_; ++id)
      texts[size_t(id)] = tokenizer.tokenBytes(id);
    for (const int32_t id : tokenizer.specialTokens())
      if (id < vocabulary_ && !texts[size_t(id)].empty())
        special_.emplace(std::exchange(texts[size_t(id)], {}), id);
    return {texts, xgrammar::VocabType::RAW, vocabulary_, ends_};
  }

  /// On one line, with a space behind each comma and colon: where any white space may stand, a
  /// small model goes on with it.
  static xgrammar::Grammar schemaOf(const std::string &schema) {
    return xgrammar::Grammar::FromJSONSchema(schema, false);
  }

  /// A text in which special tokens are themselves.
  std::string literal(std::string_view text) const {
    std::string out, run;
    for (size_t i = 0; i < text.size();) {
      const std::pair<const std::string, int32_t> *token = nullptr;
      for (const auto &known : special_)
        if (text.substr(i).starts_with(known.first) &&
            (!token || known.first.size() > token->first.size()))
          token = &known;
      if (!token) {
        run += text[i++];
        continue;
      }
      if (!run.empty())
        out += literalOf(std::exchange(run, {})) + " ";
      out += "Token(" + std::to_string(token->second) + ") ";
      i += token->first.size();
    }
    return run.empty() && !out.empty() ? out : out + literalOf(run);
  }

  xgrammar::Grammar grammarOf(const GrammarText &what) const {
    using xgrammar::Grammar;
    switch (what.kind) {
    case GrammarText::Kind::Json:
      return schemaOf(anyObject);
    case GrammarText::Kind::Schema:
      return schemaOf(what.text);
    case GrammarText::Kind::Regex:
      return Grammar::FromRegex(what.text);
    case GrammarText::Kind::Ebnf:
      return Grammar::FromEBNF(what.text);
    case GrammarText::Kind::Choice: {
      std::string text = "root ::= ";
      for (size_t i = 0; i < what.choices.size(); ++i)
        text += (i ? " | " : "") + literalOf(what.choices[i]);
      return Grammar::FromEBNF(text);
    }
    case GrammarText::Kind::Call:
      break;
    }
    std::vector<Grammar> calls;
    for (const GrammarText::Call &call : what.calls)
      calls.push_back(Grammar::Concat({Grammar::FromEBNF("root ::= " + literal(call.begin)),
                                       schemaOf(call.schema),
                                       Grammar::FromEBNF("root ::= " + literal(call.end))}));
    return calls.size() == 1 ? calls[0] : Grammar::Union(calls);
  }

  Result<std::shared_ptr<const Compiled>> tryCompile(const GrammarText &what) {
    try {
      return std::make_shared<const Compiled>(compiler_.CompileGrammar(grammarOf(what)),
                                              vocabulary_, ends_);
    } catch (const std::bad_alloc &) {
      return {Code::OutOfMemory, std::string(nameOf(what.kind)) + ": no memory to compile it"};
    } catch (const std::exception &e) {
      return {Code::Usage, std::string(nameOf(what.kind)) + ": " + e.what()};
    }
  }

  static double threadSeconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
  }

  Status checkCost(double seconds, size_t bytes) const {
    if (seconds > limits_.compileSeconds)
      return {Code::Usage, "to compile it takes " + std::to_string(seconds) + " s, at most " +
                               std::to_string(limits_.compileSeconds) +
                               " are taken: make it "
                               "smaller"};
    if (bytes > limits_.grammarBytes)
      return {Code::Usage, "compiled it has " + std::to_string(bytes) + " bytes, at most " +
                               std::to_string(limits_.grammarBytes) +
                               " are taken: make it smaller"};
    return {};
  }

  /// What was too much is too much again, without the work.
  Status refuse(const GrammarText &what, Status why) {
    constexpr size_t most = 64;
    if (refused_.size() >= most)
      refused_.clear();
    return refused_[what] = std::move(why);
  }

  /// Masks of a few tokens, since who waits for one holds back all others.
  Status tryMasks(const Compiled &made) const {
    const std::unique_ptr<TokenFilter> filter = made.begin();
    std::vector<uint32_t> allowed(wordsOfTokens(vocabulary_));
    uint32_t random = 1;
    for (int n = 0; n < 24; ++n) {
      const double start = threadSeconds();
      if (filter->complete())
        break;
      filter->fill(allowed);
      if (const double seconds = threadSeconds() - start; seconds > limits_.maskSeconds)
        return {Code::Usage, "to find what may follow takes " + std::to_string(seconds * 1e3) +
                                 " ms for token " + std::to_string(n + 1) + ", at most " +
                                 std::to_string(limits_.maskSeconds * 1e3) +
                                 " are taken: make it smaller"};
      const int32_t token = someOf(allowed, random = random * 1664525 + 1013904223);
      if (token < 0 || !filter->accept(token))
        break;
    }
    return {};
  }

  /// A token of the set, from some place on; below 0: there is none.
  static int32_t someOf(std::span<const uint32_t> set, uint32_t from) {
    for (size_t i = 0; i < set.size(); ++i)
      if (const size_t word = (i + from) % set.size(); set[word])
        return int32_t(word) * tokensOfWord + std::countr_zero(set[word]);
    return -1;
  }

  void keep(const GrammarText &what, const std::shared_ptr<const Compiled> &made) {
    const auto it = known_.emplace(what, Known{made, {}}).first;
    order_.push_front(&it->first);
    it->second.place = order_.begin();
    bytes_ += made->bytes();
    while (bytes_ > limits_.cacheBytes && order_.size() > 1) {
      const auto last = known_.find(*order_.back());
      bytes_ -= last->second.made->bytes();
      order_.pop_back();
      known_.erase(last);
    }
  }

  int32_t vocabulary_;
  std::vector<int32_t> ends_;
  GrammarLimits limits_;
  std::map<std::string, int32_t> special_; ///< by text
  xgrammar::TokenizerInfo info_;
  xgrammar::GrammarCompiler compiler_;
  std::map<GrammarText, Known> known_;
  std::list<const GrammarText *> order_; ///< of known_, used last first
  size_t bytes_ = 0;                     ///< of all that are known
  std::map<GrammarText, Status> refused_;
};

} // namespace

Result<std::unique_ptr<GrammarBackend>> makeGrammarBackend(const Tokenizer &tokenizer,
                                                           int32_t vocabulary,
                                                           const std::vector<int32_t> &ends,
                                                           const GrammarLimits &limits) {
  try {
    std::vector<int32_t> known;
    for (const int32_t end : ends)
      if (end >= 0 && end < vocabulary && std::ranges::count(known, end) == 0)
        known.push_back(end);
    return std::unique_ptr<GrammarBackend>(
        std::make_unique<Backend>(tokenizer, vocabulary, std::move(known), limits));
  } catch (const std::exception &e) {
    return {Code::Unsupported, std::string("the tokenizer is not one for grammars: ") + e.what()};
  }
}

} // namespace gpt2c::rt

#endif
