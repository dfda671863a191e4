// Layers dealt to stages, one behind the other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace gpt2c::rt {

/// How many layers are in front of each cut: `stages` - 1 numbers that make what the stage with
/// most of it has of `bytes`, one number for each layer, as few as can be. Each stage has a layer;
/// there are no fewer layers than stages.
std::vector<int64_t> dealLayers(std::span<const int64_t> bytes, int64_t stages);

} // namespace gpt2c::rt
