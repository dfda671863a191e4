// Profiles as Markdown, CSV or JSON.
#pragma once

#include "tools/gpt2c-bench/Profile.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

namespace gpt2c {

/// Each profile by kernels and by launches, and how to read them; nothing where there are none.
void printMarkdown(llvm::ArrayRef<Profile> profiles, const Peak &peak, llvm::raw_ostream &os);
/// An empty line and one table of all launches, of profiles of one kind of measurement; nothing
/// where there are none.
void printCsv(llvm::ArrayRef<Profile> profiles, const Peak &peak, llvm::raw_ostream &os);
llvm::json::Array profilesJson(llvm::ArrayRef<Profile> profiles);

} // namespace gpt2c
