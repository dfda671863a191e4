// Grammars of answers: JSON, a schema, a regular expression, EBNF, a choice, a call of a tool, made
// into what chooses tokens by it. The work is XGrammar's, which a build may lack; nothing outside
// of this folder names it.
#pragma once

#include "runtime/Status.h"
#include "runtime/sampling/Constraint.h"
#include "runtime/text/tokenizer/Tokenizer.h"

#include <memory>
#include <string>
#include <vector>

namespace gpt2c::rt {

/// What an answer is to be.
struct GrammarText {
  enum class Kind {
    Json,   ///< any object
    Schema, ///< `text` is a JSON schema
    Regex,  ///< `text` is a regular expression of the whole answer
    Ebnf,   ///< `text` is a grammar whose first rule is named root
    Choice, ///< one of `choices`
    Call,   ///< one of `calls`
  };
  /// A value of a schema with texts around it, in which special tokens are themselves.
  struct Call {
    std::string begin, schema, end;
    auto operator<=>(const Call &) const = default;
  };
  Kind kind = Kind::Json;
  std::string text = {};
  std::vector<std::string> choices = {};
  std::vector<Call> calls = {};
  auto operator<=>(const GrammarText &) const = default;
};

/// "json_schema", as messages have it.
const char *nameOf(GrammarText::Kind kind);

/// What is compiled at most. Time and memory of a grammar follow from the counts, so far that no
/// text takes minutes; what takes more than the rest allows is known behind its compilation alone,
/// and remembered, so that the same text takes it once.
struct GrammarLimits {
  size_t bytes = 64 << 10; ///< of all texts
  size_t choices = 1024;   ///< or calls
  int depth = 32;          ///< of schemas, groups and the values in them
  int64_t repeats = 1024;  ///< of one bound of a repetition
  int64_t nodes = 4096; ///< of a schema: values; of a grammar: its length, repetitions written out
  int64_t names = 256;  ///< properties of an object, rules of a grammar
  double compileSeconds = 5;      ///< of one thread's time
  size_t grammarBytes = 64 << 20; ///< of one that is compiled
  double maskSeconds = 0.05;      ///< for a token, of one thread's time; compile() tries some
  size_t cacheBytes = 64 << 20;   ///< of compiled grammars that are kept, about
};

/// Whether this build has XGrammar.
bool hasGrammars();

/// Compiles grammars for one vocabulary and keeps the ones used last. Thread-safe; compile() takes
/// milliseconds, and one text is compiled at a time.
class GrammarCompiler {
public:
  /// `tokenizer` may be null, and outlives this. Ids of the model are below `vocabulary`; `ends`
  /// are those that end a text.
  GrammarCompiler(const Tokenizer *tokenizer, int32_t vocabulary, std::vector<int32_t> ends,
                  GrammarLimits limits = {});
  ~GrammarCompiler();

  /// Usage, with the place, where the text is no such grammar, is beyond the limits or needs what
  /// is not supported, by its name; Unsupported where this build has no grammars.
  Result<std::shared_ptr<const Constraint>> compile(const GrammarText &what);

  const GrammarLimits &limits() const { return limits_; }

private:
  struct Engine;

  const Tokenizer *tokenizer_;
  int32_t vocabulary_;
  std::vector<int32_t> ends_;
  GrammarLimits limits_;
  std::unique_ptr<Engine> engine_;
};

} // namespace gpt2c::rt
