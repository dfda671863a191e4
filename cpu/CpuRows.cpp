#include "cpu/CpuRows.h"

#include "cpu/Convert.h"
#include "ir/FunctionNames.h"
#include "runtime/device/MicroBatches.h"
#include "runtime/plan/KvLayout.h"
#include "runtime/sampling/Logits.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>

namespace gpt2c {

using rt::Code;
using rt::Result;
using rt::Status;

/// The most new tokens of a call.
constexpr int64_t mostRows = 4096;
/// Of a plan that can be meant.
constexpr int64_t mostPageTokens = 1 << 16;

Tensor lazyZeros(DType dtype, llvm::ArrayRef<int64_t> shape) {
  size_t bytes = byteSize(dtype);
  for (int64_t d : shape)
    bytes *= d;
  void *memory = std::calloc(std::max<size_t>(bytes, 1), 1);
  if (!memory)
    return {};
  return Tensor(dtype, shape, memory,
                std::shared_ptr<const void>(memory, [memory](const void *) { std::free(memory); }));
}

rt::PagedState CpuRows::state() const {
  rt::PagedState state;
  const Function *extend = module_.function(functions::extend);
  const Value *kv = extend ? extend->argument("kv") : nullptr;
  if (!kv || !plan_.meta().kv || kv->type.rank() != 6)
    return state;
  const plan::KvPlanT &plan = *plan_.meta().kv;
  const int64_t tokens = kv->type.shape[4].constant().value_or(0);
  if (tokens < 1 || tokens > mostPageTokens)
    return state;
  state.pageTokens = static_cast<int32_t>(tokens);
  state.pages = pages_.valid() ? static_cast<int32_t>(pages_.dim(0)) - hostPages_ : 0;
  state.maxSegments = plan.max_batch;
  state.maxRows =
      static_cast<int32_t>(std::min(mostRows, int64_t{plan.max_batch} * plan.max_context));
  const int64_t heads = kv->type.shape[3].constant().value_or(plan.heads); // of a rank, some
  state.pageBytes = plan.bytes_per_token / plan.heads * heads * tokens;
  state.hostPages = hostPages_;
  state.readsHostPages = hostPages_ > 0;
  state.outBytesPerSecond = outBytesPerSecond_, state.inBytesPerSecond = inBytesPerSecond_;
  return state;
}

Status CpuRows::allocate(uint64_t bytes) {
  const rt::PagedState state = this->state();
  if (!state.pageTokens)
    return Status(Code::Unsupported,
                  "the plan has no @extend: gpt2c says why when it compiles the model");
  const plan::KvPlanT &plan = *plan_.meta().kv;
  const int64_t ofSequence = (plan.max_context + state.pageTokens - 1) / state.pageTokens;
  const uint64_t wanted = bytes ? bytes / state.pageBytes : uint64_t(plan.max_batch * ofSequence);
  if (wanted == 0)
    return Status(Code::Usage, std::to_string(bytes) + " bytes hold no page, one takes " +
                                   std::to_string(state.pageBytes));
  const auto pages = static_cast<int64_t>(std::min<uint64_t>(wanted, INT32_MAX));
  pages_ = zeroPages(pages);
  if (!pages_.valid())
    return Status(Code::OutOfMemory, std::to_string(pages) + " pages of the KV state take " +
                                         std::to_string(pages * state.pageBytes) +
                                         " bytes, which the system refuses");
  return {};
}

Tensor CpuRows::zeroPages(int64_t count) const {
  const rt::PagedState state = this->state();
  const plan::KvPlanT &plan = *plan_.meta().kv;
  const int64_t heads =
      int64_t(state.pageBytes / state.pageTokens) * plan.heads / int64_t(plan.bytes_per_token);
  return lazyZeros(fromPlan(plan.dtype),
                   {count, plan.layers, 2, heads, state.pageTokens, rt::kvRowElements(plan)});
}

std::span<std::byte> CpuRows::pageOf(int32_t page) {
  const size_t bytes = state().pageBytes;
  return {static_cast<std::byte *>(pages_.raw()) + size_t(page) * bytes, bytes};
}

std::span<std::byte> CpuRows::hostPage(int32_t page) { return pageOf(state().pages + page); }

Status CpuRows::allocateHost(int32_t count, bool checks) {
  if (!pages_.valid())
    return Status(Code::Usage, "host pages stand behind those of the device, and there are none");
  const int64_t pages = state().pages;
  Tensor both = zeroPages(pages + count);
  if (!both.valid())
    return Status(Code::OutOfMemory, std::to_string(count) + " pages in host memory take " +
                                         std::to_string(count * state().pageBytes) +
                                         " bytes, which the system refuses");
  pages_ = std::move(both);
  hostPages_ = count;
  sums_ = {};
  if (count == 0)
    return {};
  // Once for the memory to be there, then to be timed.
  const rt::PageMove there{0, 0, true}, back{0, 0, false};
  rt::MovedPages before;
  for (int run = 0; run < 2; ++run) {
    before = moved_;
    if (Status s = move(std::array{there, back}); !s.ok())
      return s;
  }
  const double bytes = double(state().pageBytes);
  outBytesPerSecond_ = bytes / std::max(1e-9, moved_.outSeconds - before.outSeconds);
  inBytesPerSecond_ = bytes / std::max(1e-9, moved_.inSeconds - before.inSeconds);
  sums_ = {count, checks};
  return {};
}

Status CpuRows::move(std::span<const rt::PageMove> moves) {
  using Clock = std::chrono::steady_clock;
  for (const rt::PageMove &m : moves) {
    const std::span<std::byte> device = pageOf(m.page), host = hostPage(m.hostPage);
    if (Status s = m.out ? Status() : sums_.check(m.hostPage, host); !s.ok())
      return s;
    const Clock::time_point start = Clock::now();
    std::ranges::copy(m.out ? device : host, (m.out ? host : device).begin());
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    ++(m.out ? moved_.out : moved_.in);
    (m.out ? moved_.outSeconds : moved_.inSeconds) += seconds;
    if (m.out)
      sums_.put(m.hostPage, host);
  }
  return {};
}

rt::RowsLimits CpuRows::limits() const {
  rt::RowsLimits limits{state()};
  limits.context = plan_.meta().kv->max_context;
  limits.vocabulary = static_cast<int32_t>(plan_.meta().vocab_size);
  limits.pieceTokens = limits.state.maxRows; // of a segment, keys are read once
  return limits;
}

Status CpuRows::extend(std::span<const rt::Segment> segments, int64_t groupRows, Execute execute) {
  if (!pages_.valid())
    return Status(Code::Usage, "extend: there are no pages; allocatePages() makes them");
  if (extended_.size() >= 2)
    return Status(Code::Usage, "extend: two calls are begun and not collected");
  const rt::RowsLimits limits = this->limits();
  if (Status s = rt::checkSegments(segments, limits, static_cast<int32_t>(choices_.size()));
      !s.ok())
    return s;
  const std::vector<rt::MicroBatch> groups = rt::microBatches(segments, groupRows);
  std::vector<rt::RowsCall> calls;
  Arguments arguments;
  for (const rt::MicroBatch &group : groups) {
    rt::RowsCall call = rt::makeRowsCall(group.segments, limits);
    for (size_t i = 0; i < call.carry.size(); ++i)
      if (call.carry[i] >= 0)
        call.ids[call.last[i] + 1 - group.segments[i].tokens.size()] =
            std::max(choices_[call.carry[i]], 0);
    Result<std::vector<Tensor>> some = argumentsOf(call);
    if (!some)
      return some.status();
    arguments.push_back(some.take());
    calls.push_back(std::move(call));
  }
  Result<std::vector<std::vector<Tensor>>> results = execute(std::move(arguments));
  if (!results)
    return results.status();
  rt::RowsOutput out;
  out.next.resize(segments.size());
  for (size_t g = 0; g < groups.size(); ++g) {
    Result<rt::RowsOutput> some = outputOf(groups[g].segments, calls[g], (*results)[g]);
    if (!some)
      return some.status();
    rt::addGroup(groups[g], some.take(), out);
  }
  choices_ = out.next;
  extended_.push_back(std::move(out));
  return {};
}

Result<rt::RowsOutput> CpuRows::extended() {
  if (extended_.empty())
    return Status(Code::Usage, "extended: no call is begun and not collected");
  rt::RowsOutput out = std::move(extended_.front());
  extended_.pop_front();
  return out;
}

/// The choice of a sampled segment, to which `carried` was added, a token or less than 0.
static int32_t sample(const rt::SampledChoice &how, int32_t carried, std::span<const float> row) {
  std::span<const uint32_t> allowed;
  if (how.mask)
    allowed = how.mask->allowedBehind(carried);
  if (carried < 0 || !how.penalises)
    return rt::chooseToken(how.row, how.adjustments, row, -1, allowed);
  std::vector<rt::Adjustment> adjustments(how.adjustments.begin(), how.adjustments.end());
  adjustments.emplace_back();
  rt::addToken(adjustments, carried);
  return rt::chooseToken(how.row, adjustments, row, -1, allowed);
}

/// Keeps the logits that are wanted, takes back the choices made of NaN, and makes sampled ones.
static void takeLogits(std::span<const rt::Segment> segments, const rt::RowsCall &call,
                       const Tensor &logits, rt::RowsOutput &out) {
  const size_t vocabulary = size_t(logits.count()) / segments.size();
  for (size_t i = 0; i < segments.size(); ++i) {
    const std::span<const float> row(logits.data<float>() + i * vocabulary, vocabulary);
    const int64_t tokens = segments[i].past + int64_t(segments[i].tokens.size());
    if (!rt::checkLogits(row, int64_t(i), tokens).ok())
      out.next[i] = -1;
    else if (const auto &how = segments[i].sampled) {
      const int64_t first = call.last[i] + 1 - int64_t(segments[i].tokens.size());
      out.next[i] = sample(*how, call.carry[i] >= 0 ? call.ids[first] : -1, row);
    }
    if (const auto &how = segments[i].sampled; how && how->row.report >= 0)
      out.reports.push_back(out.next[i] < 0 ? rt::LogprobReport()
                                            : rt::reportOf(how->row, row, out.next[i]));
    if (segments[i].wantLogits)
      out.logits.insert(out.logits.end(), row.begin(), row.end());
  }
}

Result<std::vector<Tensor>> CpuRows::argumentsOf(const rt::RowsCall &call) const {
  const Function &function = *module_.function(functions::extend);
  const int64_t rows = call.rows, count = static_cast<int64_t>(call.last.size());
  const std::pair<llvm::StringRef, Tensor> known[] = {
      {"ids", Tensor::of<int32_t>(call.ids, {1, rows})},
      {"positions", Tensor::of<int32_t>(call.positions, {1, rows})},
      {"kv", pages_},
      {"pieces", Tensor::of<int32_t>(call.pieceWords, {call.pieces, 4})},
      {"tables", Tensor::of<int32_t>(call.tables, {count, call.pagesOfSequence})},
      {"last", Tensor::of<int32_t>(call.last, {count})}};
  std::vector<Tensor> arguments;
  for (unsigned i = 0; i < function.numArguments(); ++i) {
    llvm::StringRef name = function.argument(i)->name;
    auto it = llvm::find_if(known, [&](auto &argument) { return argument.first == name; });
    if (it == std::end(known))
      return Status(Code::Corrupt, "@extend in the plan's IR takes '" + name.str() +
                                       "', which has no meaning there");
    arguments.push_back(it->second);
  }
  return arguments;
}

Result<rt::RowsOutput> CpuRows::outputOf(std::span<const rt::Segment> segments,
                                         const rt::RowsCall &call,
                                         const std::vector<Tensor> &results) const {
  const Function &function = *module_.function(functions::extend);
  rt::RowsOutput out;
  Tensor logits;
  for (size_t i = 0; i < results.size() && i < function.resultNames.size(); ++i) {
    const Tensor &value = results[i];
    if (function.resultNames[i] == "next")
      for (int64_t s = 0; s < value.count(); ++s)
        out.next.push_back(static_cast<int32_t>(value.asInt(s)));
    if (function.resultNames[i] == "logits")
      logits = value.cast(DType::F32);
  }
  if (out.next.size() != segments.size())
    return Status(Code::Corrupt, "@extend in the plan's IR does not return the next tokens");
  if (logits.valid())
    takeLogits(segments, call, logits, out);
  return out;
}

} // namespace gpt2c
