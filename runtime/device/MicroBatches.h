// A call over rows, cut into groups on which stages work one behind the other: while the second
// stage has the first group, the first one has the second.
#pragma once

#include "runtime/device/Rows.h"

namespace gpt2c::rt {

struct MicroBatch {
  std::vector<Segment> segments; ///< whose spans are the call's
  std::vector<size_t> of;        ///< of which of the call's segments each is a part
  /// Of each whether it is the last part, behind which the choice is made; of others it means
  /// nothing.
  std::vector<bool> ends;
};

/// Groups of at most `rows` rows, one at least, that together are the call: one after the other
/// they do what it does. Tokens of a segment that carries a choice stay together.
std::vector<MicroBatch> microBatches(std::span<const Segment> segments, int64_t rows);

/// Rows of a group, where fewer than `least` take no less time: some groups for each stage, so that
/// little time passes with stages that have none.
int64_t microRows(int64_t rows, int stages, int64_t least);

/// Adds what a group gave to what the call gives; groups come in their order. `out.next` has the
/// size of the call.
void addGroup(const MicroBatch &group, RowsOutput given, RowsOutput &out);

} // namespace gpt2c::rt
