// Rows of any sequences on a GPU: @extend over pages.
// One call from its rows to its tokens: what begins it, waits for it and fetches stands together.
#include "runtime/cuda/CudaBackendClass.h"
#include "runtime/cuda/StepProfiler.h"
#include "runtime/plan/Expr.h"
#include "runtime/plan/FunctionNames.h"
#include "runtime/sampling/Constraint.h"
#include "runtime/sampling/Logits.h"

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

bool isPersistent(const plan::FunctionT &function) {
  return !function.steps.empty() && function.steps.front()->mode == plan::LaunchMode::Stage;
}

bool takesChoices(const plan::FunctionT &function) {
  return std::ranges::any_of(function.inputs, [](auto &port) { return port->name == "choices"; });
}

/// Sequences of a tile of keys of a prefix (runtime/plan/PrefixTiles.h); 0: it takes none.
int32_t membersOf(const plan::FunctionT &function) {
  const auto port = std::ranges::find_if(
      function.inputs, [](auto &port) { return port->name == ports::prefixTiles; });
  return port == function.inputs.end() || (*port)->shape.size() != 2
             ? 0
             : int32_t(largestDim(function, *(*port)->shape[1])) - prefixTileHead;
}
/// Words that a call's tiles take at most.
int64_t prefixWords(const plan::FunctionT &function) {
  const int64_t members = membersOf(function);
  return members < 1 ? 0 : symbolMax(function, ports::prefixTiles) * (prefixTileHead + members);
}

template <typename T> std::span<const int32_t> wordsOf(const std::vector<T> &list) {
  return {reinterpret_cast<const int32_t *>(list.data()), list.size() * sizeof(T) / 4};
}

bool isMasked(const Segment &s) { return s.sampled && s.sampled->mask; }

/// What @sample takes for a call of so many segments: a row for each, and adjustments with room for
/// a carried token.
size_t sampleWords(int32_t segments) {
  return size_t(segments) *
             (sizeof(SampleRow) + (SampledChoice::mostAdjustments + 1) * sizeof(Adjustment)) /
             sizeof(int32_t) +
         64;
}

} // namespace

PagedState CudaBackend::pagedState() const {
  PagedState state;
  for (const auto &function : functions()) {
    if (function->name == functions::steps && runsSteps(*function))
      state.maxSteps =
          std::max(state.maxSteps, static_cast<int32_t>(symbolMax(*function, "batch")));
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
  if (rows_.host) {
    state.hostPages = rows_.host->count();
    state.readsHostPages = rows_.both != nullptr;
    state.whyNotRead = rows_.both ? "" : rows_.whyNotBoth;
    state.outBytesPerSecond = rows_.host->bytesPerSecond(true);
    state.inBytesPerSecond = rows_.host->bytesPerSecond(false);
  }
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
    if (!memory && !bytes && !kv_.bytes()) // as many as there is room for, with some to spare
      memory = device_->allocate(device_->freeBytes() / 10 * 9, "pages of the KV state");
    if (memory) {
      rows_.memory = memory.take();
      held = rows_.memory.bytes();
    } else if (bytes || !kv_.bytes()) {
      return memory.status();
    }
  }
  rows_.pages = static_cast<int32_t>(std::min<uint64_t>(held / state.pageBytes, INT32_MAX));
  if (rows_.pages < 1)
    return {Code::Usage, std::to_string(held) + " bytes hold no page, one takes " +
                             std::to_string(state.pageBytes)};
  rows_.limits = {pagedState(), kvPlan().max_context, plan_->meta().vocab_size};
  const int64_t pieces = state.maxRows / pieceTokens + state.maxSegments;
  int64_t prefixes = 2 * state.maxSegments;
  for (const auto &function : functions())
    if (function->name == functions::steps || function->name == functions::extend)
      prefixes = std::max(prefixes, 2 * state.maxSegments + prefixWords(*function));
  const size_t words = size_t(2 * state.maxRows + 4 * pieces +
                              (pagesOfSequence + 1) * state.maxSegments + prefixes + 64) +
                       (samples() ? sampleWords(state.maxSegments) : 0);
  Result<DeviceMemory> inputs = device_->allocate(words * sizeof(int32_t), "rows");
  if (!inputs)
    return inputs.status();
  rows_.inputs = inputs.take();
  Result<DeviceMemory> greedy =
      device_->allocate(size_t(state.maxSegments) * sizeof(int32_t), "token ids");
  if (!greedy)
    return greedy.status();
  rows_.greedy = greedy.take();
  if (executor_->stage()) {
    Result<DeviceMemory> chosen =
        device_->allocate(size_t(state.maxSegments) * sizeof(int32_t), "token ids");
    Result<DeviceMemory> reported =
        device_->allocate(size_t(state.maxSegments) * sizeof(LogprobReport), "log probabilities");
    if (!chosen || !reported)
      return chosen ? reported.status() : chosen.status();
    rows_.chosen = chosen.take();
    rows_.reported = reported.take();
  }
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
    if (!samples())
      continue;
    Result<PinnedMemory> reports = device_->allocatePinned(
        size_t(state.maxSegments) * sizeof(LogprobReport), "log probabilities");
    if (!reports)
      return reports.status();
    slot.reports = reports.take();
    Result<PinnedMemory> masks = device_->allocatePinned(
        size_t(state.maxSegments) * (1 + wordsOfTokens(plan_->meta().vocab_size)) *
            sizeof(uint32_t),
        "masks of tokens");
    if (!masks)
      return masks.status();
    slot.masks = masks.take();
  }
  return {};
}

/// Pages that kernels reach.
int32_t CudaBackend::reachable() const {
  return rows_.both ? rows_.both->firstHostPage() + rows_.both->hostPages() : rows_.pages;
}

/// Copies `values` behind what the slot has, `padding` up to `count` behind them, and returns where
/// they will be on the device.
CUdeviceptr CudaBackend::placeRows(Rows::Slot &slot, std::span<const int32_t> values, size_t count,
                                   int32_t padding) {
  const size_t from = slot.bytes;
  auto *host = reinterpret_cast<int32_t *>(slot.inputs.data() + from);
  std::copy(values.begin(), values.end(), host);
  std::fill(host + values.size(), host + count, padding);
  slot.bytes += (count + 3) / 4 * 4 * sizeof(int32_t);
  return rows_.inputs.address() + from;
}

/// Where kernels write choices: with two slots to the host. A stage has many, which share graphs.
CUdeviceptr CudaBackend::nextOf(const Rows::Slot &slot) const {
  return executor_->stage() ? rows_.chosen.address()
                            : reinterpret_cast<CUdeviceptr>(slot.next.data());
}
CUdeviceptr CudaBackend::reportsOf(const Rows::Slot &slot) const {
  return executor_->stage() ? rows_.reported.address()
                            : reinterpret_cast<CUdeviceptr>(slot.reports.data());
}

/// What the last stage's kernels wrote goes to the host.
Status CudaBackend::fetchChoices(const Rows::Slot &slot, bool reported) {
  if (!executor_->stage() || !isLastStage())
    return {};
  const size_t reports = slot.choices * sizeof(LogprobReport);
  if (Status s = reported ? device_->beginDownload(slot.reports.data(), reportsOf(slot), reports)
                          : Status();
      !s.ok())
    return s;
  return device_->beginDownload(slot.next.data(), nextOf(slot), slot.choices * sizeof(int32_t));
}

/// Whether this device can run a version of @steps.
bool CudaBackend::runsSteps(const plan::FunctionT &function) const {
  return !isPersistent(function) ||
         (!executor_->stage() && executor_->stageProblem(function).empty());
}

/// The version that computes the call: of @steps where each segment is one token, a persistent one
/// only if `inOneLaunch`, else of @extend.
const plan::FunctionT *CudaBackend::versionOf(const RowsCall &call, bool inOneLaunch) const {
  const bool steps = call.rows == int32_t(call.last.size());
  const plan::FunctionT *extend = nullptr;
  for (const auto &function : functions())
    if (steps && function->name == functions::steps && symbolMax(*function, "batch") >= call.rows &&
        (inOneLaunch || !isPersistent(*function)) && runsSteps(*function))
      return function.get();
    else if (!extend && function->name == functions::extend &&
             symbolMax(*function, "rows") >= call.rows &&
             symbolMax(*function, "segments") >= int64_t(call.last.size()))
      extend = function.get();
  return extend;
}

/// Of those sequences that have one token; none where `function` does not take them.
SharedPrefixes CudaBackend::prefixesOf(const RowsCall &call,
                                       const plan::FunctionT &function) const {
  const int32_t members = membersOf(function);
  if (members < 1)
    return {};
  const auto heads = std::max<int32_t>(int32_t(kvPlan().heads), 1),
             layers = std::max<int32_t>(int32_t(kvPlan().layers), 1);
  std::vector<int32_t> positions; // of others 0, which shares nothing
  for (int32_t before = -1; int32_t last : call.last) {
    positions.push_back(last == before + 1 ? call.positions[size_t(last)] : 0);
    before = last;
  }
  return sharedPrefixes(positions, call.tables, call.pagesOfSequence,
                        {.pageTokens = rows_.limits.state.pageTokens,
                         .members = members,
                         .tiles = int32_t(symbolMax(function, ports::prefixTiles)),
                         .blocks = 2 * device_->multiprocessors() / heads,
                         .multiprocessors = device_->multiprocessors(),
                         .pageBytes = int64_t(rows_.limits.state.pageBytes) / layers});
}

/// That version, `function`, with the addresses of its ports, and the inputs in `slot`. Its choices
/// go to the host, or to @sample. `drawn`: how it chooses by temperature; empty: it does not.
Result<CudaBackend::Bound> CudaBackend::bindRows(const RowsCall &call,
                                                 const plan::FunctionT &function, Rows::Slot &slot,
                                                 bool wantLogits, bool samples,
                                                 const std::vector<SampleRow> &drawn) {
  const int64_t segments = int64_t(call.last.size());
  Bound bound;
  bound.call.function = &function;
  // The persistent step has no padding rows: they would write to a page.
  const bool steps = function.name == functions::steps;
  const int64_t rows = isPersistent(function)
                           ? segments
                           : paddedRows(call.rows, symbolMax(function, steps ? "batch" : "rows"));
  const int64_t paddedSegments = steps ? rows : padded(segments, symbolMax(function, "segments"));
  const int64_t pieces = steps ? 0 : padded(call.pieces, symbolMax(function, "pieces"));
  const SharedPrefixes shared = prefixesOf(call, function);
  const int64_t tiles =
      shared.count > 0 ? padded(shared.count, symbolMax(function, ports::prefixTiles)) : 0;
  slot.choices = size_t(paddedSegments);

  // Addresses follow from the sizes, which are those of the graph. The ids come first. In @steps a
  // sequence without a page is nobody's.
  slot.bytes = 0;
  auto place = [&](const std::vector<int32_t> &values, int64_t count, int32_t padding = 0) {
    return placeRows(slot, values, size_t(count), padding);
  };
  std::vector<std::pair<std::string_view, CUdeviceptr>> inputs = {
      {"ids", place(call.ids, rows)},
      {steps ? "past" : "positions", place(call.positions, rows)},
      {"tables", place(call.tables, paddedSegments * call.pagesOfSequence, steps ? -1 : 0)},
      {"choices",
       drawn.empty() ? 0
                     : placeRows(slot, wordsOf(drawn), size_t(paddedSegments * sampleRowWords), 0)},
      {"kv", pagesAt()}};
  if (!steps) {
    inputs.emplace_back("pieces", place(call.pieceWords, 4 * pieces));
    inputs.emplace_back("last", place(call.last, paddedSegments));
  }
  if (const int32_t members = membersOf(function); members > 0) {
    inputs.emplace_back(ports::prefixes, place(shared.sequences, 2 * paddedSegments));
    inputs.emplace_back(ports::prefixTiles,
                        place(shared.tiles, tiles * (prefixTileHead + members)));
  }
  for (const auto &port : function.inputs) {
    auto it = std::ranges::find_if(inputs, [&](auto &input) { return input.first == port->name; });
    if (it == inputs.end())
      return {Code::Corrupt,
              "@extend in the plan takes '" + port->name + "', which has no meaning there"};
    bound.inputs.push_back(it->second);
  }
  for (const auto &port : function.outputs)
    bound.outputs.push_back(port->role == plan::Role::NextToken && samples ? rows_.greedy.address()
                            : port->role == plan::Role::NextToken          ? nextOf(slot)
                            : port->role == plan::Role::KvState            ? pagesAt()
                            : !wantLogits && !samples && port->optional    ? 0
                                                                           : logits_.address());
  const std::pair<std::string_view, int64_t> sizes[] = {{"rows", rows},
                                                        {"pieces", pieces},
                                                        {"sequences", paddedSegments},
                                                        {"segments", paddedSegments},
                                                        {"batch", rows},
                                                        {"slots", rows}, // nothing's size
                                                        {ports::prefixTiles, tiles},
                                                        {"pages", reachable()}};
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
  return state_.await({reinterpret_cast<int32_t *>(slot.next.data()), slot.choices}, checkOthers_);
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

bool CudaBackend::samples() const {
  const plan::FunctionT *sample = findFunction(functions(), functions::sample);
  const auto bytes = size_t(plan_->meta().vocab_size) * sizeof(float);
  auto takes = [&](const char *name) {
    return std::ranges::any_of(sample->inputs, [&](auto &port) { return port->name == name; });
  };
  // Plans of earlier versions report no log probabilities, or know no masks.
  return sample && takes("reports") && takes("masks") &&
         bytes * size_t(pagedState().maxSegments) <= logits_.bytes();
}

/// @sample behind the call that the slot has, for `segments` and what pads them, with its inputs
/// behind those of @extend.
Result<CudaBackend::Bound> CudaBackend::bindSample(std::span<const Segment> segments,
                                                   Rows::Slot &slot) {
  Bound bound;
  // The first version spreads a row over more of the device, where all of it is work.
  const bool few = std::ranges::all_of(segments, [](const Segment &s) {
    return !s.sampled || s.sampled->row.mode == SampleRow::Given || s.sampled->isAmongFew();
  });
  for (const auto &function : functions())
    if (function->name == functions::sample &&
        symbolMax(*function, "segments") >= int64_t(slot.choices) && (!bound.call.function || few))
      bound.call.function = function.get();
  if (!bound.call.function || bound.call.function->symbols.size() != 1)
    return {Code::Corrupt, "no version of @sample in the plan takes " +
                               std::to_string(slot.choices) + " segments"};
  bound.call.symbols = {int64_t(slot.choices)};
  std::vector<SampleRow> rows(slot.choices);
  std::vector<Adjustment> adjustments;
  slot.adjustments.assign(segments.size(), {});
  for (size_t i = 0; i < segments.size(); ++i) {
    if (!segments[i].sampled)
      continue;
    const SampledChoice &how = *segments[i].sampled;
    const auto first = int32_t(adjustments.size());
    adjustments.insert(adjustments.end(), how.adjustments.begin(), how.adjustments.end());
    if (how.penalises && segments[i].carry >= 0) {
      adjustments.emplace_back(); // for what is carried
      slot.adjustments[i] = {size_t(first), int32_t(adjustments.size()) - first};
    }
    rows[i] = how.row;
    rows[i].firstAdjustment = first;
    rows[i].adjustments = int32_t(adjustments.size()) - first;
  }
  const CUdeviceptr next = nextOf(slot), reports = reportsOf(slot),
                    masks = reinterpret_cast<CUdeviceptr>(slot.masks.data());
  const CUdeviceptr rowsAt = placeRows(slot, wordsOf(rows), wordsOf(rows).size());
  for (auto &[first, count] : slot.adjustments)
    first = slot.bytes + first * sizeof(Adjustment);
  const CUdeviceptr adjustmentsAt =
      placeRows(slot, wordsOf(adjustments), wordsOf(adjustments).size());
  const bool masked = std::ranges::any_of(segments, isMasked);
  const std::pair<std::string_view, CUdeviceptr> inputs[] = {{"logits", logits_.address()},
                                                             {"greedy", rows_.greedy.address()},
                                                             {"rows", rowsAt},
                                                             {"adjustments", adjustmentsAt},
                                                             {"masks", masked ? masks : 0},
                                                             {"next", next},
                                                             {"reports", reports}};
  for (const auto &port : bound.call.function->inputs) {
    auto it = std::ranges::find_if(inputs, [&](auto &input) { return input.first == port->name; });
    if (it == std::end(inputs))
      return {Code::Corrupt,
              "@sample in the plan takes '" + port->name + "', which has no meaning there"};
    bound.inputs.push_back(it->second);
  }
  return bound;
}

/// The choices of the call before, `before`, that this one carries on.
void CudaBackend::carry(std::span<const Segment> segments, const RowsCall &call,
                        const Rows::Slot &slot, std::span<const int32_t> before) const {
  auto *ids = reinterpret_cast<int32_t *>(slot.inputs.data());
  for (size_t i = 0; i < segments.size(); ++i) {
    if (call.carry[i] < 0)
      continue;
    // What follows a choice of nothing means nothing.
    const int32_t token = std::max(before[size_t(call.carry[i])], 0);
    ids[call.last[i] + 1 - int64_t(segments[i].tokens.size())] = token;
    if (segments[i].sampled && segments[i].sampled->penalises) {
      const auto [at, count] = slot.adjustments[i];
      addToken({reinterpret_cast<Adjustment *>(slot.inputs.data() + at), size_t(count)}, token);
    }
  }
}

/// The masks of a call whose carried tokens are known, for @sample, which is not begun.
void CudaBackend::fillMasks(std::span<const Segment> segments, const RowsCall &call,
                            Rows::Slot &slot, std::span<const int32_t> before) {
  auto *const table = reinterpret_cast<uint32_t *>(slot.masks.data());
  const size_t words = wordsOfTokens(plan_->meta().vocab_size);
  std::fill_n(table, slot.choices, 0U);
  std::vector<size_t> masked;
  for (size_t i = 0; i < segments.size(); ++i)
    if (isMasked(segments[i]))
      masked.push_back(i);
  // A grammar's mask may take tens of microseconds, and all are wanted before the logits are there.
  rows_.workers.forEach(masked.size(), [&](size_t k) {
    const size_t i = masked[k], at = slot.choices + k * words;
    const int32_t carried = call.carry[i] < 0 ? -1 : std::max(before[size_t(call.carry[i])], 0);
    const std::span<const uint32_t> allowed = segments[i].sampled->mask->allowedBehind(carried);
    if (allowed.empty())
      return;
    table[i] = uint32_t(at);
    std::copy_n(allowed.begin(), words, table + at);
  });
}

/// The call with its inputs in `slot`, but for what it carries of the `carried` choices before it.
Result<CudaBackend::BoundCall> CudaBackend::bindCall(std::span<const Segment> segments,
                                                     Rows::Slot &slot, int32_t carried,
                                                     bool inOneLaunch) {
  if (Status s = checkSegments(segments, rows_.limits, carried); !s.ok())
    return s;
  const bool wantLogits = std::ranges::any_of(segments, &Segment::wantLogits);
  const bool sampled = isLastStage() && std::ranges::any_of(segments, [](const Segment &s) {
                         return s.sampled.has_value();
                       });
  if (sampled && !samples())
    return {Code::Unsupported, "extend: the plan has no kernel that samples"};
  BoundCall bound{
      .call = makeRowsCall(segments, rows_.limits), .extend = {}, .sample = {}, .draws = false};
  if (rows_.both) // a gap lies between both
    for (int32_t &page : bound.call.tables)
      page += page >= rows_.pages ? rows_.both->firstHostPage() - rows_.pages : 0;
  const plan::FunctionT *version = versionOf(bound.call, inOneLaunch);
  if (!version)
    return {Code::Corrupt, "no version of @extend in the plan takes " +
                               std::to_string(bound.call.rows) +
                               " rows, although one takes as many"};
  // What computes the logits also draws by temperature, all that is drawn or nothing.
  std::vector<SampleRow> drawn;
  if (sampled && takesChoices(*version) && std::ranges::all_of(segments, [](const Segment &s) {
        return !s.sampled || s.sampled->isByTemperature();
      }))
    for (const Segment &s : segments)
      drawn.push_back(s.sampled ? s.sampled->row : SampleRow());
  const bool samples = sampled && drawn.empty();
  bound.draws = !drawn.empty();
  Result<Bound> extend = bindRows(bound.call, *version, slot, wantLogits, samples, drawn);
  if (!extend)
    return extend.status();
  bound.extend = extend.take();
  if (samples) {
    Result<Bound> behind = bindSample(segments, slot);
    if (!behind)
      return behind.status();
    bound.sample = behind.take();
  }
  return bound;
}

Status CudaBackend::extend(std::span<const Segment> segments) {
  if (rows_.pages < 1)
    return {Code::Usage, "extend: there are no pages; allocatePages() makes them"};
  if (rows_.begun.size() >= 2)
    return {Code::Usage, "extend: two calls are begun and not collected"};
  if (Status s = rows_.begun.empty() ? begin() : Status(); !s.ok())
    return s;
  const bool carries = std::ranges::any_of(segments, [](const Segment &s) { return s.carry >= 0; });
  const size_t before = (rows_.next + rows_.slots.size() - 1) % rows_.slots.size();
  return beginRows(
      segments,
      {reinterpret_cast<const int32_t *>(rows_.slots[before].next.data()), size_t(rows_.carried)},
      [&] { return carries && !rows_.begun.empty() ? awaitRows(rows_.begun.back()) : Status(); });
}

Status CudaBackend::beginRows(std::span<const Segment> segments, std::span<const int32_t> before,
                              const std::function<Status()> &ready) {
  if (Status s = device_->bindThread(); !s.ok())
    return s;
  Rows::Slot &slot = rows_.slots[rows_.next];
  Result<BoundCall> bound = bindCall(segments, slot, int32_t(before.size()), true);
  if (!bound)
    return bound.status();
  const std::optional<Bound> &sample = bound->sample;
  GraphCache::Key key = bound->extend.key();
  key.outputs.push_back(bound->draws); // with other inputs, at other addresses
  if (sample)
    key.outputs.insert(key.outputs.end(), sample->inputs.begin(), sample->inputs.end());
  if (Status s = ready ? ready() : Status(); !s.ok())
    return s;
  carry(segments, bound->call, slot, before);
  if (Status s = rows_.begun.empty() ? Status() : fetchLogits(rows_.begun.back()); !s.ok())
    return s; // which the call overwrites
  Rows::Begun begun{.slot = rows_.next};
  for (const Segment &s : segments) {
    begun.wanted.push_back(s.wantLogits);
    begun.reported.push_back(s.sampled && s.sampled->row.report >= 0);
  }
  batch_ = 0;
  stepsTaken_ = -1;
  auto work = [&]() -> Status {
    if (Status s = device_->uploadPinned(rows_.inputs.address(), slot.inputs.data(), slot.bytes);
        !s.ok())
      return s;
    if (!sample || !std::ranges::any_of(segments, isMasked)) {
      const std::function<Status()> launches = [&] {
        const Status s = enqueue(bound->extend);
        return s.ok() && sample ? enqueue(*sample) : s;
      };
      if (Status s = depart({{key, {&bound->extend}, launches}}); !s.ok())
        return s;
      return graphs_.run(key, 1, launches);
    }
    // Masks are made while the device computes the logits.
    GraphCache::Key first = bound->extend.key(), second = sample->key();
    first.outputs.push_back(bound->draws);
    second.outputs = sample->inputs;
    const std::function<Status()> extend = [&] { return enqueue(bound->extend); },
                                  behind = [&] { return enqueue(*sample); };
    if (Status s = depart({{first, {&bound->extend}, extend}, {second, {}, behind}}); !s.ok())
      return s;
    if (Status s = graphs_.run(first, 1, extend); !s.ok())
      return s;
    fillMasks(segments, bound->call, slot, before);
    return graphs_.run(second, 1, behind);
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
    if (Status s = fetchChoices(slot, sample.has_value()); !s.ok())
      return s;
  }
  rows_.next = (rows_.next + 1) % rows_.slots.size();
  rows_.carried = static_cast<int32_t>(segments.size());
  rows_.lastCall = std::move(bound->extend.call);
  if (isLastStage())
    rows_.begun.push_back(std::move(begun));
  return {};
}

Result<std::vector<FunctionProfile>> CudaBackend::profileRows(std::span<const Segment> segments,
                                                              int repetitions) {
  if (rows_.pages < 1 || !rows_.begun.empty())
    return {Code::Usage, "profileRows: there are no pages, or a call is begun and not collected"};
  if (Status s = begin(); !s.ok())
    return s;
  Rows::Slot &slot = rows_.slots[rows_.next];
  Result<BoundCall> bound = bindCall(segments, slot, 0, false);
  if (!bound)
    return bound.status();
  batch_ = 0;
  stepsTaken_ = -1;
  rows_.carried = 0;
  if (Status s = device_->uploadPinned(rows_.inputs.address(), slot.inputs.data(), slot.bytes);
      !s.ok())
    return s;
  if (Status s = device_->synchronize(); !s.ok())
    return s;
  if (std::ranges::any_of(segments, isMasked))
    fillMasks(segments, bound->call, slot, {});
  std::vector<FunctionProfile> profiles;
  for (const Bound *b : {&bound->extend, bound->sample ? &*bound->sample : nullptr}) {
    if (!b)
      continue;
    auto steps = profileSteps(device_, *executor_, *b->call.function, b->call.symbols, b->inputs,
                              b->outputs, repetitions);
    if (!steps)
      return steps.status();
    profiles.push_back({b->call.function, b->call.symbols, steps.take()});
  }
  return profiles;
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
    done = exchanged();
  if (done.ok())
    done = fetchLogits(begun);
  if (!done.ok()) {
    rows_.begun.pop_front();
    return done;
  }
  const auto *choices = reinterpret_cast<const int32_t *>(rows_.slots[begun.slot].next.data());
  RowsOutput out{{choices, choices + begun.wanted.size()}, std::move(begun.logits), {}};
  takeBackNaN(begun.wanted, out);
  const auto *reports =
      reinterpret_cast<const LogprobReport *>(rows_.slots[begun.slot].reports.data());
  for (size_t i = 0; i < begun.reported.size(); ++i)
    if (begun.reported[i])
      out.reports.push_back(reports[i]);
  rows_.begun.pop_front();
  pending_ = !rows_.begun.empty();
  return out;
}

} // namespace gpt2c::rt::cuda
