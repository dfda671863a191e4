#include "tools/gpt2c/PlanTokenizer.h"

#include "ir/Error.h"
#include "ir/FunctionNames.h"
#include "tools/common/RuntimeError.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"

namespace gpt2c {

llvm::Error readTokenizer(const CompileFlags &flags, CodegenOptions &options, Progress &progress) {
  std::string folder = flags.tokenizer;
  if (folder == "none")
    return llvm::Error::success();
  if (folder.empty()) {
    folder = llvm::sys::path::parent_path(flags.model).str();
    if (folder.empty())
      folder = ".";
    if (!llvm::sys::fs::exists(folder + "/tokenizer.json") &&
        !llvm::sys::fs::exists(folder + "/vocab.json")) {
      if (llvm::sys::Process::StandardErrIsDisplayed())
        llvm::errs()
            << "note: no tokenizer.json or vocab.json beside the model: the plan takes and "
               "gives token ids; --tokenizer=DIR adds a tokenizer\n";
      return llvm::Error::success();
    }
  }
  auto tokenizer = rt::Tokenizer::fromFiles(folder);
  if (!tokenizer)
    return toError(tokenizer.status());
  options.tokenizer = tokenizer->serialize();
  options.eosToken = tokenizer->eosToken();
  progress.done("tokenizer of " + llvm::Twine(tokenizer->vocabSize()) + " tokens from " + folder);
  return llvm::Error::success();
}

llvm::Error checkVocabulary(const Module &module, const rt::Tokenizer &tokenizer) {
  const Function *forward = module.function(functions::forward);
  for (size_t i = 0; forward && i < forward->resultNames.size(); ++i) {
    if (forward->resultNames[i] != "logits" || forward->returned()[i]->type.rank() == 0)
      continue;
    auto vocabulary = forward->returned()[i]->type.shape.back().constant();
    if (vocabulary && int64_t(tokenizer.vocabSize()) > *vocabulary)
      return makeError(ExitCode::Usage,
                       "the tokenizer has " + llvm::Twine(tokenizer.vocabSize()) +
                           " tokens, the model " + llvm::Twine(*vocabulary) +
                           ": it is another model's; --tokenizer=DIR names the right one");
  }
  return llvm::Error::success();
}

} // namespace gpt2c
