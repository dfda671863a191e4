// Flags that say which tokens an answer may have: grammars, lists of tokens, words.
#include "tools/gpt2c-run/Run.h"
#include "tools/runtime-common/Files.h"

namespace gpt2c {

static rt::Result<rt::GrammarText> grammarOf(const ConstraintFlags &c) {
  using Kind = rt::GrammarText::Kind;
  const int given = c.json + !c.schemaFile.empty() + !c.grammarFile.empty() + !c.regex.empty() +
                    !c.choices.empty();
  if (given > 1)
    return {rt::Code::Usage, "--json, --json-schema, --grammar, --regex and --choice exclude each "
                             "other: an answer is one text of one of them"};
  if (!c.regex.empty())
    return rt::GrammarText{.kind = Kind::Regex, .text = c.regex};
  if (!c.choices.empty())
    return rt::GrammarText{.kind = Kind::Choice, .choices = c.choices};
  if (c.json)
    return rt::GrammarText{.kind = Kind::Json};
  rt::Result<std::string> text = readInput(c.schemaFile.empty() ? c.grammarFile : c.schemaFile);
  if (!text)
    return text.status();
  return rt::GrammarText{.kind = c.schemaFile.empty() ? Kind::Ebnf : Kind::Schema,
                         .text = text.take()};
}

rt::Status constrain(const ConstraintFlags &c, const rt::Session &session,
                     const rt::Tokenizer *tokenizer, GenerateFlags &to) {
  to.sampling.allowedTokens = c.allowedIds;
  if (!c.badWords.empty() && !tokenizer)
    return {rt::Code::Usage, "--bad-word needs a tokenizer, and the plan has none"};
  if (!c.badWords.empty())
    to.sampling.badWords = rt::badWordsOf(*tokenizer, c.badWords);
  if (!c.asksForGrammar())
    return {};
  rt::Result<rt::GrammarText> what = grammarOf(c);
  if (!what)
    return what.status();
  rt::GrammarCompiler compiler(tokenizer, int32_t(session.plan().meta().vocab_size),
                               rt::endsOfText(session, tokenizer));
  rt::Result<std::shared_ptr<const rt::Constraint>> made = compiler.compile(*what);
  if (!made)
    return made.status();
  to.sampling.constraint = made.take();
  return {};
}

} // namespace gpt2c
