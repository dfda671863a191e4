// Writing a plan file.
#pragma once

#include "plan_generated.h"
#include "runtime/Status.h"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

/// What a plan file is made of. The spans refer to memory of the caller and are never copied as a
/// whole.
struct PlanContents {
  plan::PlanT meta;
  /// One for each of meta.weights, whose `offset`, `bytes` and `hash` the writer sets. Tensors of
  /// equal bytes are stored once.
  std::vector<std::span<const std::byte>> weights;
  /// One for each of meta.images, whose `section` the writer sets. PTX must end with a NUL.
  std::vector<std::span<const std::byte>> images;
  std::string_view irText;
  std::span<const std::byte> tokenizer; ///< empty: the plan has none
};

/// Writes a plan that Plan::open accepts; contents that it would refuse are an error here, before
/// anything is written. Equal contents give equal bytes. The file is written beside `path`, synced
/// and renamed over it, so a reader finds the old file or the whole new one; where `path` is "-"
/// (stdout) or no regular file, it is written in sequence.
Status writePlan(const std::string &path, PlanContents &contents);

} // namespace gpt2c::rt
