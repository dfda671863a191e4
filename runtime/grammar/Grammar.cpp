#include "runtime/grammar/Grammar.h"

#include "runtime/grammar/GrammarCheck.h"
#include "runtime/grammar/XGrammar.h"

#include <mutex>
#include <utility>

namespace gpt2c::rt {

struct GrammarCompiler::Engine {
  std::mutex mutex; ///< one text is compiled at a time
  std::unique_ptr<GrammarBackend> backend;
};

GrammarCompiler::GrammarCompiler(const Tokenizer *tokenizer, int32_t vocabulary,
                                 std::vector<int32_t> ends, GrammarLimits limits)
    : tokenizer_(tokenizer), vocabulary_(vocabulary), ends_(std::move(ends)), limits_(limits),
      engine_(std::make_unique<Engine>()) {}

GrammarCompiler::~GrammarCompiler() = default;

Result<std::shared_ptr<const Constraint>> GrammarCompiler::compile(const GrammarText &what) {
  if (!hasGrammars())
    return {Code::Unsupported, "this build of gpt2c has no grammars: build it with "
                               "-DGPT2C_XGRAMMAR=ON, for which scripts/setup.sh --grammar brings "
                               "what is needed"};
  if (!tokenizer_)
    return {Code::Usage, "a grammar is one of texts, and the plan has no tokenizer: compile it "
                         "with gpt2c --tokenizer"};
  if (Status s = checkGrammar(what, limits_); !s.ok())
    return s;
  const std::lock_guard lock(engine_->mutex);
  if (!engine_->backend) {
    Result<std::unique_ptr<GrammarBackend>> made =
        makeGrammarBackend(*tokenizer_, vocabulary_, ends_, limits_);
    if (!made)
      return made.status();
    engine_->backend = made.take();
  }
  return engine_->backend->compile(what);
}

} // namespace gpt2c::rt
