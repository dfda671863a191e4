// How a step's shape is divided over the thread block clusters of a GPU.
#pragma once

#include "schedule/Target.h"
#include "templates/decode_step/shares/shares.h"

#include <cstdint>
#include <optional>

namespace gpt2c::shares {

/// The division that reads the fewest bytes by the block that reads most; nothing where a shape
/// has none. `division`: its shape, the rest is overwritten. `context`: the most keys. `records`:
/// of a step. `mostRowParts`: of several sequences the most clusters that may have the same heads.
std::optional<Division> divide(Division shape, int context, int records, const Target &target,
                               int mostRowParts = mostRows);

/// The same division with weights in 12 bits, of the layers and of the vocabulary, as wanted and
/// where rows are whole blocks that have room. All sums have the order of `plain`.
Division packed(const Division &plain, bool layers, bool vocabulary);

/// Bytes that the block which reads most reads of a layer: of keys, of all beside them, and of the
/// partial sums of all members, which those of one sequence are among `others`, too.
struct BlockBytes {
  double keys, others, sums;
};
BlockBytes blockBytes(const Division &d, int context);

} // namespace gpt2c::shares
