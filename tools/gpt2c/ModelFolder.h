// What the small files beside a model say of its texts.
#pragma once

#include "runtime/text/tokenizer/Tokenizer.h"
#include "tools/gpt2c/Flags.h"

namespace gpt2c {

/// Reads generation_config.json, config.json, and, from the tokenizer's folder,
/// tokenizer_config.json, special_tokens_map.json, chat_template.jinja and chat_template.json,
/// where they are. What cannot be read is left out, and a note says so. --eos comes first: with it
/// no file says what ends an answer. Tokens at or above `vocabulary` end none (0: not known).
rt::ModelTexts readModelTexts(const CompileFlags &flags, const rt::Tokenizer *tokenizer,
                              int64_t vocabulary);

/// Tokens of a sequence that config.json says the model is for; 0: it does not say.
int64_t positionsOf(const CompileFlags &flags);

/// Sets the context of a model that turns its queries and keys, whose graph knows no end, to the
/// tokens that config.json says it is for, where these are fewer than a plan holds by default and
/// --max-context does not say otherwise.
void takeContext(CompileFlags &flags);

} // namespace gpt2c
