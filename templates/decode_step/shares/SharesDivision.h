// How a step's shape is divided over the thread block clusters of a GPU.
#pragma once

#include "templates/decode_step/shares/shares.h"

#include <cstdint>
#include <optional>

namespace gpt2c::shares {

/// Clusters of that many blocks of one SM each that an H200 holds at once, by measurement.
int residentClusters(int ranks);

/// The division that reads the fewest bytes by the block that reads most; nothing where a shape
/// has none. `division`: its shape, the rest is overwritten. `context`: the most keys. `records`:
/// of a step. `sharedBytes`: that a block may have.
std::optional<Division> divide(Division shape, int context, int records, int64_t sharedBytes);

} // namespace gpt2c::shares
