// What is checked of grammars before they are compiled: bounds, and what XGrammar would leave out
// in silence.
#pragma once

#include "runtime/grammar/Grammar.h"

namespace gpt2c::rt {

/// Usage, with the place, where a grammar is beyond the limits or asks for what is not supported.
Status checkGrammar(const GrammarText &what, const GrammarLimits &limits);

} // namespace gpt2c::rt
