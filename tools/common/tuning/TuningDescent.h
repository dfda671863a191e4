// Choices improved one key at a time, by the time of the functions that they are part of.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

#include <map>
#include <string>
#include <vector>

namespace gpt2c {

/// A configuration for each key.
using ChoicesByKey = std::map<std::string, std::string>;

/// A function's time as a part of what it is with other choices.
struct TimeRatio {
  double mean = 1;
  double error = 0; ///< standard error of the mean
};

/// What of a function's time the steps of a key are, by key.
using SharesByKey = std::map<std::string, double>;

/// Times every function with `trial` and with `best`, in turns. Functions none of whose choices
/// differ need not be timed.
using CompareChoices = llvm::function_ref<llvm::Expected<std::vector<TimeRatio>>(
    const ChoicesByKey &best, const ChoicesByKey &trial)>;

/// From `best` on, puts one candidate after the other in the place of a key's choice, for those
/// keys that are a part of some function worth it, the largest first, and keeps it where the
/// functions it matters to get faster by more than chance. Functions that share no key are tried at
/// once. Where a function's choices have changed, what was close is tried once more.
/// candidates: by key, in the order in which they are to be tried.
llvm::Expected<ChoicesByKey>
descend(llvm::ArrayRef<SharesByKey> functions,
        const std::map<std::string, std::vector<std::string>> &candidates, ChoicesByKey best,
        CompareChoices compare);

} // namespace gpt2c
