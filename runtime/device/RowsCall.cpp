#include "runtime/device/RowsCall.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace gpt2c::rt {
namespace {

int32_t pagesOf(int64_t tokens, int32_t pageTokens) {
  return static_cast<int32_t>((tokens + pageTokens - 1) / pageTokens);
}

/// What is wrong with one segment; empty: nothing.
std::string complaint(const Segment &s, const RowsLimits &limits, int32_t carried) {
  const PagedState &state = limits.state;
  auto text = [](auto number) { return std::to_string(number); };
  if (s.tokens.empty())
    return "has no tokens";
  const int64_t tokens = int64_t(s.past) + int64_t(s.tokens.size());
  if (s.past < 0 || tokens > limits.context)
    return "reaches from token " + text(s.past) + " to " + text(tokens) +
           ", the plan's context is " + text(limits.context);
  const int32_t needed = pagesOf(tokens, state.pageTokens);
  if (int64_t(s.pages.size()) < needed)
    return "has " + text(s.pages.size()) + " pages of " + text(state.pageTokens) + " tokens, its " +
           text(tokens) + " tokens need " + text(needed);
  const int32_t readable = state.pages + (state.readsHostPages ? state.hostPages : 0);
  for (int32_t page : s.pages.first(needed))
    if (page < 0 || page >= readable)
      return "names page " + text(page) + ", there are " + text(readable);
  for (int32_t page : s.pages.first(needed).subspan(s.past / state.pageTokens))
    if (page >= state.pages)
      return "writes into page " + text(page) + ", which is in host memory";
  for (size_t i = s.carry >= 0; i < s.tokens.size(); ++i)
    if (s.tokens[i] < 0 || (limits.vocabulary && s.tokens[i] >= limits.vocabulary))
      return "has token " + text(s.tokens[i]) + ", the vocabulary has " + text(limits.vocabulary);
  if (s.sampled && s.wantLogits)
    return "wants logits and a sampled choice";
  if (s.sampled && int64_t(s.sampled->adjustments.size()) > SampledChoice::mostAdjustments)
    return "has " + text(s.sampled->adjustments.size()) + " adjusted logits, a call takes " +
           text(SampledChoice::mostAdjustments);
  if (s.sampled && s.sampled->row.report > mostReported)
    return "wants " + text(s.sampled->row.report) + " log probabilities, a call reports " +
           text(mostReported);
  if (s.carry >= carried)
    return "carries the choice of segment " + text(s.carry) + ", the call before had " +
           text(carried);
  return {};
}

/// The pages that a segment writes into, as [first, end) of those it has.
std::pair<int32_t, int32_t> written(const Segment &s, int32_t pageTokens) {
  return {s.past / pageTokens, pagesOf(int64_t(s.past) + int64_t(s.tokens.size()), pageTokens)};
}

/// A page that one segment writes into and another has as well; empty: there is none.
std::string sharedPage(std::span<const Segment> segments, const PagedState &state) {
  std::vector<bool> isWritten(size_t(state.pages) + size_t(state.hostPages));
  auto describe = [&](size_t i, int32_t page, std::string_view does) {
    for (size_t by = 0; by < segments.size(); ++by) {
      const auto [first, end] = written(segments[by], state.pageTokens);
      if (by != i && std::ranges::count(segments[by].pages.subspan(first, end - first), page))
        return "segments " + std::to_string(std::min(by, i)) + " and " +
               std::to_string(std::max(by, i)) + std::string(does) + std::to_string(page);
    }
    return "segment " + std::to_string(i) + " has page " + std::to_string(page) + " twice";
  };
  for (size_t i = 0; i < segments.size(); ++i) {
    const auto [first, end] = written(segments[i], state.pageTokens);
    for (int32_t page : segments[i].pages.subspan(first, end - first)) {
      if (isWritten[page])
        return describe(i, page, " both write into page ");
      isWritten[page] = true;
    }
  }
  for (size_t i = 0; i < segments.size(); ++i)
    for (int32_t page : segments[i].pages.first(written(segments[i], state.pageTokens).first))
      if (isWritten[page])
        return describe(i, page, ", of which one writes into it, have page ");
  return {};
}

} // namespace

Status checkSegments(std::span<const Segment> segments, const RowsLimits &limits, int32_t carried) {
  const PagedState &state = limits.state;
  auto usage = [](const std::string &why) { return Status(Code::Usage, "extend: " + why); };
  if (segments.empty() || segments.size() > size_t(state.maxSegments))
    return usage(std::to_string(segments.size()) + " segments are given, a call takes 1 to " +
                 std::to_string(state.maxSegments));
  size_t rows = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (std::string why = complaint(segments[i], limits, carried); !why.empty())
      return usage("segment " + std::to_string(i) + " " + why);
    rows += segments[i].tokens.size();
  }
  if (rows > size_t(state.maxRows))
    return usage(std::to_string(rows) + " tokens are given, a call takes at most " +
                 std::to_string(state.maxRows));
  std::string why = sharedPage(segments, state);
  return why.empty() ? Status() : usage(why);
}

RowsCall makeRowsCall(std::span<const Segment> segments, const RowsLimits &limits) {
  RowsCall call;
  call.pagesOfSequence = pagesOf(limits.context, limits.state.pageTokens);
  call.tables.resize(segments.size() * call.pagesOfSequence);
  for (size_t i = 0; i < segments.size(); ++i) {
    const Segment &s = segments[i];
    const int32_t count = static_cast<int32_t>(s.tokens.size());
    call.ids.insert(call.ids.end(), s.tokens.begin(), s.tokens.end());
    if (s.carry >= 0)
      call.ids[call.rows] = 0;
    for (int32_t t = 0; t < count; ++t)
      call.positions.push_back(s.past + t);
    for (int32_t t = 0; t < count; t += limits.pieceTokens) {
      const int32_t tokens = std::min(limits.pieceTokens, count - t);
      call.pieceWords.insert(call.pieceWords.end(),
                             {call.rows + t, tokens, s.past + t, static_cast<int32_t>(i)});
      ++call.pieces;
    }
    std::copy_n(s.pages.begin(), pagesOf(int64_t(s.past) + count, limits.state.pageTokens),
                call.tables.begin() + i * call.pagesOfSequence);
    call.rows += count;
    call.last.push_back(call.rows - 1);
    call.carry.push_back(s.carry);
  }
  return call;
}

} // namespace gpt2c::rt
