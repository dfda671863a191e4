// The CUDA sources below this folder, embedded at build time.
#pragma once

#include <span>
#include <string_view>

namespace gpt2c {

/// One embedded file: its name, as it is included ("templates/device/tma.cuh"), and its bytes.
struct EmbeddedFile {
  std::string_view name;
  std::string_view text;
};

/// All embedded files, sorted by name.
std::span<const EmbeddedFile> embeddedTemplates();

} // namespace gpt2c
