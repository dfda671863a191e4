#include "tools/gpt2c/PlanTokenizer.h"

#include "ir/Error.h"
#include "ir/FunctionNames.h"
#include "tools/common/RuntimeError.h"

#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"

namespace gpt2c {

llvm::Expected<std::optional<rt::Tokenizer>> readTokenizer(const CompileFlags &flags,
                                                           Progress &progress) {
  if (flags.tokenizer == "none")
    return std::nullopt;
  const std::string folder = flags.tokenizer.empty() ? folderOf(flags.model) : flags.tokenizer;
  if (flags.tokenizer.empty() && !rt::Tokenizer::isIn(folder)) {
    if (llvm::sys::Process::StandardErrIsDisplayed())
      llvm::errs()
          << "note: no tokenizer.json, vocab.json or tokenizer.model beside the model: the "
             "plan takes and gives token ids; --tokenizer=DIR adds a tokenizer\n";
    return std::nullopt;
  }
  auto tokenizer = rt::Tokenizer::fromFiles(folder);
  if (tokenizer) {
    progress.done("tokenizer of " + llvm::Twine(tokenizer->vocabSize()) + " tokens from " + folder);
    return std::optional(tokenizer.take());
  }
  if (!flags.tokenizer.empty() && tokenizer.status().code() != rt::Code::Unsupported)
    return toError(tokenizer.status());
  llvm::errs() << "note: the plan has no tokenizer, it takes and gives token ids: "
               << tokenizer.status().message()
               << "\nnote: --tokenizer=DIR names another, --tokenizer=none leaves it out\n";
  return std::nullopt;
}

std::optional<int64_t> vocabularyOf(const Module &module) {
  const Function *forward = module.function(functions::forward);
  for (size_t i = 0; forward && i < forward->resultNames.size(); ++i)
    if (forward->resultNames[i] == "logits" && forward->returned()[i]->type.rank() > 0)
      if (auto vocabulary = forward->returned()[i]->type.shape.back().constant())
        return *vocabulary;
  return std::nullopt;
}

llvm::Expected<bool> fitsVocabulary(const Module &module, const rt::Tokenizer &tokenizer,
                                    const CompileFlags &flags) {
  const std::optional<int64_t> vocabulary = vocabularyOf(module);
  if (!vocabulary || int64_t(tokenizer.vocabSize()) <= *vocabulary)
    return true;
  const std::string problem = "the tokenizer has " + std::to_string(tokenizer.vocabSize()) +
                              " tokens, the model " + std::to_string(*vocabulary) +
                              ": it is another model's; --tokenizer=DIR names the right one";
  if (!flags.tokenizer.empty())
    return makeError(ExitCode::Usage, problem);
  llvm::errs() << "note: the plan has no tokenizer: " << problem
               << ", --tokenizer=none leaves it out\n";
  return false;
}

} // namespace gpt2c
