#include "runtime/device/MicroBatches.h"

#include <algorithm>

namespace gpt2c::rt {

std::vector<MicroBatch> microBatches(std::span<const Segment> segments, int64_t rows) {
  std::vector<MicroBatch> groups;
  int64_t room = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment &whole = segments[i];
    const auto count = int64_t(whole.tokens.size());
    for (int64_t at = 0; at < count;) {
      if (room < 1 || (whole.carry >= 0 && room < count && room < rows)) {
        groups.emplace_back();
        room = rows;
      }
      const int64_t now = whole.carry >= 0 ? count : std::min(count - at, room);
      Segment part = whole;
      part.tokens = whole.tokens.subspan(size_t(at), size_t(now));
      part.past = whole.past + int32_t(at);
      at += now;
      room -= now;
      if (at < count) {
        part.wantLogits = false;
        part.sampled.reset();
      }
      MicroBatch &group = groups.back();
      group.segments.push_back(part);
      group.of.push_back(i);
      group.ends.push_back(at == count);
    }
  }
  return groups;
}

int64_t microRows(int64_t rows, int stages, int64_t least) {
  constexpr int64_t groupsOfStage = 4;
  const int64_t groups = groupsOfStage * stages;
  return std::max({int64_t(1), least, (rows + groups - 1) / groups});
}

void addGroup(const MicroBatch &group, RowsOutput given, RowsOutput &out) {
  for (size_t i = 0; i < group.segments.size(); ++i)
    if (group.ends[i])
      out.next[group.of[i]] = given.next[i];
  out.logits.insert(out.logits.end(), given.logits.begin(), given.logits.end());
  out.reports.insert(out.reports.end(), given.reports.begin(), given.reports.end());
}

} // namespace gpt2c::rt
