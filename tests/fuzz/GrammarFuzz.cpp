// A kind and a text: whatever they are, compiling ends, with a constraint or an error that says
// something; and what a constraint lets through it takes.
#include "runtime/grammar/Grammar.h"
#include "tests/unit/runtime/text/TokenizerToy.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

using namespace gpt2c::rt;

namespace {

constexpr std::string_view kSeeds[] = {
    R"({"type":"object","properties":{"a":{"type":"string","maxLength":9,"pattern":"^[a-z]+$"},)"
    R"("b":{"anyOf":[{"type":"integer","minimum":-3,"maximum":12},{"$ref":"#/$defs/x"}]}},)"
    R"("required":["a"],"additionalProperties":false,"$defs":{"x":{"type":"array","items":)"
    R"({"enum":[1,"two",null]},"minItems":1,"maxItems":4}}})",
    R"([a-z]{2,5}(-|\d+)?(yes|no)*[^\x00-\x1f"]\.)",
    "root ::= item (\",\" item)*\nitem ::= [a-z]+ | \"(\" root \")\" # a comment\n", "yes"};

void require(bool condition, const char *what) {
  if (!condition) {
    std::fprintf(stderr, "property violated: %s\n", what);
    std::abort();
  }
}

GrammarCompiler &compiler() {
  static const Tokenizer tokenizer = [] {
    test::Toy toy;
    test::TemporaryFolder folder;
    toy.writeVocabAndMerges(folder);
    return Tokenizer::fromFiles(folder.path()).take();
  }();
  static GrammarCompiler compiler(&tokenizer, tokenizer.vocabSize(), {tokenizer.eosToken()},
                                  {.bytes = 4096, .repeats = 64, .nodes = 512});
  return compiler;
}

/// A few tokens, each the first that may follow from `at` on.
void follow(const Constraint &constraint, std::size_t at) {
  const auto filter = constraint.begin();
  std::vector<uint32_t> allowed(wordsOfTokens(constraint.vocabulary()));
  for (int n = 0; n < 16 && !filter->complete(); ++n) {
    filter->fill(allowed);
    for (int32_t i = 0; i < constraint.vocabulary(); ++i) {
      const auto token = int32_t((std::size_t(i) + at) % std::size_t(constraint.vocabulary()));
      if (!(allowed[std::size_t(token) / 32] >> (token % 32) & 1))
        continue;
      require(filter->accept(token), "what may follow is taken");
      break;
    }
    at = at * 31 + 7;
  }
}

} // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t *data, std::size_t size, std::size_t maxSize);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t *data, std::size_t size,
                                               std::size_t maxSize, unsigned seed) {
  const std::string_view text = kSeeds[seed / 8 % 4];
  if (seed % 8 == 0 && maxSize > text.size()) {
    data[0] = static_cast<std::uint8_t>(seed / 8 % 4);
    size = 1 + text.copy(reinterpret_cast<char *>(data) + 1, text.size());
  }
  return LLVMFuzzerMutate(data, size, maxSize);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
  if (!hasGrammars() || size == 0)
    return 0;
  using Kind = GrammarText::Kind;
  const std::string text(reinterpret_cast<const char *>(data) + 1, size - 1);
  GrammarText what{.kind = Kind::Choice, .choices = {text}};
  if (data[0] % 4 != 3)
    what = {.kind = data[0] % 4 == 0   ? Kind::Schema
                    : data[0] % 4 == 1 ? Kind::Regex
                                       : Kind::Ebnf,
            .text = text};
  const auto made = compiler().compile(what);
  require(made || !made.status().message().empty(), "an error has a message");
  if (made)
    follow(**made, size);
  return 0;
}
