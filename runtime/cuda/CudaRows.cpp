// Rows of any sequences on a GPU: @extend over pages.
#include "runtime/Expr.h"
#include "runtime/FunctionNames.h"
#include "runtime/Logits.h"
#include "runtime/cuda/CudaBackendClass.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace gpt2c::rt::cuda {
namespace {

int64_t symbolMax(const plan::FunctionT &function, std::string_view name) {
  for (const auto &symbol : function.symbols)
    if (symbol->name == name)
      return symbol->max;
  return INT64_MAX;
}

/// As many rows are computed: powers of two up to 64, then multiples of that, which products
/// compute at a time.
int64_t paddedRows(int64_t rows, int64_t most) {
  return std::min(rows <= 64 ? int64_t(std::bit_ceil(uint64_t(rows))) : (rows + 63) / 64 * 64,
                  most);
}
/// Few sizes, so that calls share graphs.
int64_t padded(int64_t count, int64_t most) {
  const int64_t up = count <= 16 ? int64_t(std::bit_ceil(uint64_t(count))) : (count + 15) / 16 * 16;
  return std::min(up, most);
}

} // namespace

PagedState CudaBackend::pagedState() const {
  PagedState state;
  for (const auto &function : functions()) {
    if (function->name != functions::extend || function->steps.empty())
      continue;
    for (const auto &port : function->inputs)
      if (port->role == plan::Role::KvState && port->shape.size() == 6)
        state.pageTokens = static_cast<int32_t>(largestDim(*function, *port->shape[4]));
    state.maxRows = static_cast<int32_t>(symbolMax(*function, "rows"));
    state.maxSegments = static_cast<int32_t>(
        std::min<int64_t>(symbolMax(*function, "segments"), kvPlan().max_batch));
  }
  if (!state.pageTokens)
    return {};
  state.pageBytes = kvPlan().bytes_per_token * uint64_t(state.pageTokens);
  state.pages = rows_.pages;
  return state;
}

Status CudaBackend::allocatePages(uint64_t bytes) {
  const PagedState state = pagedState();
  if (!state.pageTokens)
    return {Code::Unsupported,
            "the plan has no @extend with kernels for this GPU: gpt2c says why when it compiles "
            "the model"};
  const auto pagesOfSequence =
      static_cast<int64_t>((kvPlan().max_context + state.pageTokens - 1) / state.pageTokens);
  const uint64_t wanted =
      bytes ? bytes : uint64_t(kvPlan().max_batch) * pagesOfSequence * state.pageBytes;
  // What prefill() and decode() keep serves where it is large enough.
  uint64_t held = std::min<uint64_t>(wanted, kv_.bytes());
  if (wanted > kv_.bytes()) {
    Result<DeviceMemory> memory = device_->allocate(wanted, "pages of the KV state");
    if (memory) {
      rows_.memory = memory.take();
      held = wanted;
    } else if (bytes) {
      return memory.status();
    }
  }
  rows_.pages = static_cast<int32_t>(std::min<uint64_t>(held / state.pageBytes, INT32_MAX));
  if (rows_.pages < 1)
    return {Code::Usage, std::to_string(held) + " bytes hold no page, one takes " +
                             std::to_string(state.pageBytes)};
  rows_.limits = {pagedState(), kvPlan().max_context, plan_->meta().vocab_size};
  const int64_t pieces = state.maxRows / pieceTokens + state.maxSegments;
  const size_t words =
      size_t(2 * state.maxRows + 4 * pieces + (pagesOfSequence + 1) * state.maxSegments + 64);
  Result<DeviceMemory> inputs = device_->allocate(words * sizeof(int32_t), "rows");
  if (!inputs)
    return inputs.status();
  rows_.inputs = inputs.take();
  for (Rows::Slot &slot : rows_.slots) {
    Result<PinnedMemory> staged = device_->allocatePinned(words * sizeof(int32_t), "rows");
    if (!staged)
      return staged.status();
    slot.inputs = staged.take();
    Result<PinnedMemory> next =
        device_->allocatePinned(size_t(state.maxSegments) * sizeof(int32_t), "token ids");
    if (!next)
      return next.status();
    slot.next = next.take();
  }
  return {};
}

/// The version that computes the call, with the addresses of its ports, and the inputs in `slot`.
Result<CudaBackend::Bound> CudaBackend::bindRows(const RowsCall &call, Rows::Slot &slot,
                                                 bool wantLogits) {
  const int64_t segments = int64_t(call.last.size());
  const plan::FunctionT *version = nullptr;
  for (const auto &function : functions())
    if (function->name == functions::extend && symbolMax(*function, "rows") >= call.rows) {
      version = function.get();
      break;
    }
  if (!version)
    return {Code::Corrupt, "no version of @extend in the plan takes " + std::to_string(call.rows) +
                               " rows, although one takes as many"};
  const plan::FunctionT &function = *version;
  Bound bound;
  bound.call.function = version;
  const int64_t rows = paddedRows(call.rows, symbolMax(function, "rows"));
  const int64_t paddedSegments = padded(segments, symbolMax(function, "segments"));
  const int64_t pieces = padded(call.pieces, symbolMax(function, "pieces"));
  slot.choices = size_t(paddedSegments);

  // Addresses follow from the sizes, which are those of the graph. The ids come first.
  size_t at = 0;
  auto *host = reinterpret_cast<int32_t *>(slot.inputs.data());
  auto place = [&](const std::vector<int32_t> &values, int64_t count) {
    const size_t from = at;
    std::copy(values.begin(), values.end(), host + from);
    std::fill(host + from + values.size(), host + from + count, 0);
    at += size_t(count + 3) / 4 * 4;
    return rows_.inputs.address() + from * sizeof(int32_t);
  };
  const std::pair<std::string_view, CUdeviceptr> inputs[] = {
      {"ids", place(call.ids, rows)},
      {"positions", place(call.positions, rows)},
      {"pieces", place(call.pieceWords, 4 * pieces)},
      {"tables", place(call.tables, paddedSegments * call.pagesOfSequence)},
      {"last", place(call.last, paddedSegments)},
      {"kv", rows_.memory.bytes() ? rows_.memory.address() : kv_.address()}};
  slot.bytes = at * sizeof(int32_t);
  for (const auto &port : function.inputs) {
    auto it = std::ranges::find_if(inputs, [&](auto &input) { return input.first == port->name; });
    if (it == std::end(inputs))
      return {Code::Corrupt,
              "@extend in the plan takes '" + port->name + "', which has no meaning there"};
    bound.inputs.push_back(it->second);
  }
  for (const auto &port : function.outputs)
    bound.outputs.push_back(port->role == plan::Role::NextToken
                                ? reinterpret_cast<CUdeviceptr>(slot.next.data())
                            : port->role == plan::Role::KvState ? inputs[5].second
                            : !wantLogits && port->optional     ? 0
                                                                : logits_.address());
  const std::pair<std::string_view, int64_t> sizes[] = {{"rows", rows},
                                                        {"pieces", pieces},
                                                        {"sequences", paddedSegments},
                                                        {"segments", paddedSegments},
                                                        {"pages", rows_.pages}};
  for (const auto &symbol : function.symbols) {
    auto it = std::ranges::find_if(sizes, [&](auto &size) { return size.first == symbol->name; });
    if (it == std::end(sizes) || it->second < symbol->min || it->second > symbol->max)
      return {Code::Corrupt,
              "@extend in the plan has a symbol '" + symbol->name + "' that does not fit the call"};
    bound.call.symbols.push_back(it->second);
  }
  return bound;
}

/// Waits for the choices of a call that was begun, those of the padding too: once they are there,
/// nothing writes to the slot.
Status CudaBackend::awaitRows(const Rows::Begun &begun) {
  const Rows::Slot &slot = rows_.slots[begun.slot];
  return state_.await({reinterpret_cast<int32_t *>(slot.next.data()), slot.choices});
}

/// Copies the logits that were wanted, before another call overwrites them.
Status CudaBackend::fetchLogits(Rows::Begun &begun) {
  if (begun.fetched || std::ranges::find(begun.wanted, true) == begun.wanted.end())
    return {};
  const size_t vocab = size_t(plan_->meta().vocab_size);
  std::vector<float> all;
  if (Status s = readLogits(begun.wanted.size(), all); !s.ok())
    return s;
  for (size_t i = 0; i < begun.wanted.size(); ++i)
    if (begun.wanted[i])
      begun.logits.insert(begun.logits.end(), all.begin() + i * vocab,
                          all.begin() + (i + 1) * vocab);
  begun.fetched = true;
  return {};
}

/// What must be done with the call before, if it is not collected, and the choices that this one
/// carries on.
Status CudaBackend::carry(std::span<const Segment> segments, const RowsCall &call,
                          const Rows::Slot &slot) {
  const bool carries = std::ranges::any_of(call.carry, [](int32_t from) { return from >= 0; });
  if (!rows_.begun.empty()) {
    Rows::Begun &before = rows_.begun.back();
    if (Status s = carries ? awaitRows(before) : Status(); !s.ok())
      return s;
    if (Status s = fetchLogits(before); !s.ok())
      return s;
  }
  const Rows::Slot &before = rows_.slots[rows_.next ^ 1];
  const auto *choices = reinterpret_cast<const int32_t *>(before.next.data());
  auto *ids = reinterpret_cast<int32_t *>(slot.inputs.data());
  for (size_t i = 0; i < segments.size(); ++i)
    if (call.carry[i] >= 0)
      ids[call.last[i] + 1 - int64_t(segments[i].tokens.size())] = choices[call.carry[i]];
  return {};
}

Status CudaBackend::extend(std::span<const Segment> segments) {
  if (rows_.pages < 1)
    return {Code::Usage, "extend: there are no pages; allocatePages() makes them"};
  if (rows_.begun.size() >= 2)
    return {Code::Usage, "extend: two calls are begun and not collected"};
  if (Status s = rows_.begun.empty() ? begin() : device_->bindThread(); !s.ok())
    return s;
  if (Status s = checkSegments(segments, rows_.limits, rows_.carried); !s.ok())
    return s;
  const RowsCall call = makeRowsCall(segments, rows_.limits);
  Rows::Begun begun{.slot = rows_.next, .wanted = {}, .logits = {}, .fetched = false};
  for (const Segment &s : segments)
    begun.wanted.push_back(s.wantLogits);
  const bool wantLogits = std::ranges::find(begun.wanted, true) != begun.wanted.end();
  Rows::Slot &slot = rows_.slots[rows_.next];
  Result<Bound> bound = bindRows(call, slot, wantLogits);
  if (!bound)
    return bound.status();
  if (Status s = carry(segments, call, slot); !s.ok())
    return s;
  batch_ = 0;
  stepsTaken_ = -1;
  auto work = [&]() -> Status {
    if (Status s = device_->uploadPinned(rows_.inputs.address(), slot.inputs.data(), slot.bytes);
        !s.ok())
      return s;
    return graphs_.run(bound->key(), 1, [&] { return enqueue(*bound); });
  };
  const std::span<int32_t> next(reinterpret_cast<int32_t *>(slot.next.data()), slot.choices);
  if (timesOnDevice_) {
    if (Status s = timed(next, work); !s.ok())
      return s;
  } else {
    StepState::expect(next);
    pending_ = true;
    if (Status s = work(); !s.ok())
      return s;
  }
  rows_.next ^= 1;
  rows_.carried = static_cast<int32_t>(segments.size());
  rows_.begun.push_back(std::move(begun));
  return {};
}

/// Takes back the choices made of NaN, where there are logits to see it.
static void takeBackNaN(const std::vector<bool> &wanted, RowsOutput &out) {
  const size_t count = size_t(std::ranges::count(wanted, true));
  const size_t vocabulary = count ? out.logits.size() / count : 0;
  size_t at = 0;
  for (size_t i = 0; i < wanted.size(); ++i)
    if (wanted[i]) {
      const std::span<const float> row(out.logits.data() + at++ * vocabulary, vocabulary);
      if (!checkLogits(row, int64_t(i), 0).ok())
        out.next[i] = -1;
    }
}

Result<RowsOutput> CudaBackend::extended() {
  if (rows_.begun.empty())
    return {Code::Usage, "extended: no call is begun and not collected"};
  if (Status s = device_->bindThread(); !s.ok())
    return s;
  Rows::Begun &begun = rows_.begun.front();
  Status done = awaitRows(begun);
  if (done.ok())
    done = fetchLogits(begun);
  if (!done.ok()) {
    rows_.begun.pop_front();
    return done;
  }
  const auto *choices = reinterpret_cast<const int32_t *>(rows_.slots[begun.slot].next.data());
  RowsOutput out{{choices, choices + begun.wanted.size()}, std::move(begun.logits)};
  takeBackNaN(begun.wanted, out);
  rows_.begun.pop_front();
  pending_ = !rows_.begun.empty();
  return out;
}

} // namespace gpt2c::rt::cuda
