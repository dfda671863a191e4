// grammar_times TOKENIZER: how long grammars take to compile, and masks to make, for a tokenizer's
// tokens: answers drawn among what may follow. For docs/serving/structured-output.md.
#include "runtime/grammar/Grammar.h"
#include "tests/e2e/run-grammars/DrawnSchema.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

using namespace gpt2c::rt;
using Clock = std::chrono::steady_clock;

namespace {

double microsecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

struct Times {
  std::vector<double> compile, mask;

  void add(GrammarCompiler &compiler, const GrammarText &what, unsigned seed) {
    const Clock::time_point start = Clock::now();
    const auto made = compiler.compile(what);
    compile.push_back(microsecondsSince(start));
    if (!made) {
      std::fprintf(stderr, "grammar_times: %s\n", made.status().message().c_str());
      std::exit(int(made.status().code()));
    }
    follow(**made, seed);
  }

  void follow(const Constraint &constraint, unsigned seed) {
    const auto filter = constraint.begin();
    std::mt19937 random(seed);
    std::vector<uint32_t> bits(wordsOfTokens(constraint.vocabulary()));
    for (int n = 0; n < 200; ++n) {
      const Clock::time_point start = Clock::now();
      if (filter->complete())
        return;
      filter->fill(bits);
      mask.push_back(microsecondsSince(start));
      std::vector<int32_t> may;
      for (int32_t id = 0; id < constraint.vocabulary(); ++id)
        if (bits[size_t(id) / 32] >> (id % 32) & 1)
          may.push_back(id);
      if (may.empty())
        return;
      const Clock::time_point accepting = Clock::now();
      filter->accept(may[random() % may.size()]);
      mask.back() += microsecondsSince(accepting);
    }
  }

  void print(const char *name) {
    std::ranges::sort(compile);
    std::ranges::sort(mask);
    auto at = [](const std::vector<double> &v, double part) {
      return v[std::min(v.size() - 1, size_t(part * double(v.size())))];
    };
    std::printf("| %s | %.1f | %.1f | %.1f | %.1f | %.0f |\n", name, at(compile, 0.5) / 1e3,
                compile.back() / 1e3, at(mask, 0.5), at(mask, 0.99), mask.back());
  }
};

} // namespace

int main(int argc, char **argv) {
  const auto tokenizer = Tokenizer::fromFiles(argc > 1 ? argv[1] : "examples/sample");
  if (!tokenizer) {
    std::fprintf(stderr, "grammar_times: %s\n", tokenizer.status().message().c_str());
    return int(tokenizer.status().code());
  }
  GrammarCompiler compiler(&*tokenizer, tokenizer->vocabSize(), {tokenizer->eosToken()});
  using Kind = GrammarText::Kind;
  (void)compiler.compile({.kind = Kind::Regex, .text = "a"}); // reads the tokens
  std::printf("| what | compile ms, median | most | mask us, median | 99 %% | most |\n");
  gpt2c::e2e::DrawnSchemas schemas(1);
  Times drawn, object, regex, ebnf;
  for (unsigned i = 0; i < 200; ++i)
    drawn.add(compiler, {.kind = Kind::Schema, .text = schemas.next().dump()}, i);
  drawn.print("200 random schemas");
  for (unsigned i = 0; i < 20; ++i) {
    object.add(compiler, {.kind = Kind::Json}, i);
    regex.add(compiler,
              {.kind = Kind::Regex, .text = "[a-z]{2,9}@[a-z]+\\.(com|org)" + std::string(i, 'x')},
              i);
    ebnf.add(compiler,
             {.kind = Kind::Ebnf,
              .text = "root ::= term ([-+*/] term)*\nterm ::= [0-9]{1,9} | \"(\" root \")\" # " +
                      std::to_string(i) + "\n"},
             i);
  }
  object.print("any JSON object");
  regex.print("a regular expression");
  ebnf.print("a grammar of arithmetic");
  return 0;
}
