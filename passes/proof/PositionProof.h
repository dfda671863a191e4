// Which row of a table a token reads: proven by structure (Element.h), or where that leaves a
// function of one place by evaluation at every place.
#pragma once

#include "passes/proof/KvInterface.h"

namespace gpt2c {

/// n where `gather`, a gather or a rope, reads row n + past + 0, 1, 2, ... along the last axis of
/// its indices, in every row of them: for every number of tokens, behind every past, for any number
/// of sequences, with masks of ones and position ids that count. Masks of ones are all that
/// @prefill and @decode stand for; @forward keeps what is computed from a mask. Of a rope, and of a
/// table that is not constant, n is 0. None for what does not, or is not shown to; `why` then says
/// what was seen.
std::optional<int64_t> rowsInFront(Function &f, const KvInterface &io, Op *gather,
                                   std::string &why);

/// Tokens for which a graph is compared that does not say how long its context is.
constexpr int64_t comparedTokens = 4096;

/// True when `rows`, which depends on no argument, is 0, 1, ... past + seq - 1 in every sequence,
/// for up to `context` of them.
bool countsFromZero(Function &f, const KvInterface &io, const Dim &past, Value *rows,
                    int64_t context, std::string &why);

/// True when `index` is a function of `argument` alone, element by element.
bool isElementwiseIn(Value *index, const Value *argument);

/// That function of 0, 1, ... count - 1. None when it cannot be evaluated.
std::optional<std::vector<int64_t>> indicesOf(const Function &f, Value *index, Value *argument,
                                              int64_t count);

} // namespace gpt2c
