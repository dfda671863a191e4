// The JSON of a checkpoint's files, which are untrusted.
#pragma once

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <nlohmann/json_fwd.hpp>

#include <cstdint>
#include <optional>

namespace gpt2c {

/// An object of at most 100 MB in which no key occurs twice and nothing lies deeper than `deepest`
/// objects and lists. Else InvalidModel, with `name` and the place.
llvm::Expected<nlohmann::json> parseObject(llvm::StringRef text, llvm::StringRef name,
                                           int deepest = 8);

/// The value, where it is a whole number from 0 on that fits.
std::optional<int64_t> asCount(const nlohmann::json &value);

} // namespace gpt2c
