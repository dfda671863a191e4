// The tokenizer that goes into a plan.
#pragma once

#include "ir/Function.h"
#include "runtime/text/Tokenizer.h"
#include "tools/gpt2c/Flags.h"
#include "tools/gpt2c/Progress.h"

namespace gpt2c {

/// Gives `options` the tokenizer's blob and end-of-text id; neither where the model has none beside
/// it and none was named. Errors: those of Tokenizer::fromFiles.
llvm::Error readTokenizer(const CompileFlags &flags, CodegenOptions &options, Progress &progress);

/// Every token of the tokenizer has a row of logits; more rows than tokens are padding. Error:
/// Usage.
llvm::Error checkVocabulary(const Module &module, const rt::Tokenizer &tokenizer);

} // namespace gpt2c
