// The tokenizer that goes into a plan.
#pragma once

#include "ir/Function.h"
#include "runtime/text/tokenizer/Tokenizer.h"
#include "tools/gpt2c/Flags.h"
#include "tools/gpt2c/Progress.h"

#include <optional>

namespace gpt2c {

/// The tokenizer that the flags name, or the one beside the model. None where there is none, and
/// where it is not known: a note says why. Errors: Io and Usage for a folder that --tokenizer names
/// and that cannot be read.
llvm::Expected<std::optional<rt::Tokenizer>> readTokenizer(const CompileFlags &flags,
                                                           Progress &progress);

/// Rows of logits of the model; none where it does not say.
std::optional<int64_t> vocabularyOf(const Module &module);

/// Whether every token of the tokenizer has a row of logits; more rows than tokens are padding. A
/// tokenizer of another model is a Usage error where --tokenizer names it; else a note says so, and
/// the plan goes without.
llvm::Expected<bool> fitsVocabulary(const Module &module, const rt::Tokenizer &tokenizer,
                                    const CompileFlags &flags);

} // namespace gpt2c
