#include "runtime/cuda/PageCopies.h"

#include <algorithm>

namespace gpt2c::rt::cuda {

namespace {
constexpr unsigned kNotBlocking = 1; // beside the default stream
/// Bytes that are copied each way to see how fast that is.
constexpr uint64_t kMeasuredBytes = 64 << 20;
} // namespace

Result<std::unique_ptr<PageCopies>> PageCopies::create(const std::shared_ptr<CudaDevice> &device,
                                                       CUdeviceptr pages, std::byte *host,
                                                       int32_t count, uint64_t pageBytes,
                                                       bool checks) {
  std::unique_ptr<PageCopies> copies(new PageCopies(device, pages, host, count, pageBytes, checks));
  if (Status s = copies->initialise(); !s.ok())
    return s;
  return copies;
}

Status PageCopies::initialise() {
  if (!host_) {
    Result<PinnedMemory> memory =
        device_->allocatePinned(size_t(count_) * pageBytes_, "pages of the KV state");
    if (!memory)
      return memory.status();
    memory_ = memory.take();
    host_ = memory_.data();
  }
  for (Lane &lane : lanes_)
    GPT2C_CUDA(device_->api(), streamCreate, &lane.stream, kNotBlocking);
  GPT2C_CUDA(device_->api(), eventCreate, &called_, 2u /* no timing */);
  return measure();
}

PageCopies::~PageCopies() {
  if (!device_->bindThread().ok())
    return;
  const CudaApi &api = device_->api();
  for (Lane &lane : lanes_) {
    if (lane.stream) {
      api.streamSynchronize(lane.stream);
      api.streamDestroy(lane.stream);
    }
    for (const Flying &f : lane.flying)
      spare_.insert(spare_.end(), {f.begin, f.end});
  }
  for (CUevent event : spare_)
    api.eventDestroy(event);
  if (called_)
    api.eventDestroy(called_);
}

Result<CUevent> PageCopies::event() {
  CUevent event = nullptr;
  if (spare_.empty()) {
    GPT2C_CUDA(device_->api(), eventCreate, &event, 0u);
    return event;
  }
  event = spare_.back();
  spare_.pop_back();
  return event;
}

Status PageCopies::begin(std::span<const PageMove> moves) {
  if (moves.empty())
    return {};
  if (Status s = device_->bindThread(); !s.ok())
    return s;
  const CudaApi &api = device_->api();
  GPT2C_CUDA(api, eventRecord, called_, device_->stream());
  for (Lane &lane : lanes_)
    GPT2C_CUDA(api, streamWaitEvent, lane.stream, called_, 0u);
  for (const PageMove &move : moves)
    if (Status s = beginOne(move); !s.ok())
      return s;
  return {};
}

Status PageCopies::beginOne(const PageMove &move) {
  const CudaApi &api = device_->api();
  Lane &lane = lanes_[move.out];
  const std::span<std::byte> host = page(move.hostPage);
  const CUdeviceptr device = pages_ + uint64_t(move.page) * pageBytes_;
  if (Status s = move.out ? Status() : sums_.check(move.hostPage, host); !s.ok())
    return s;
  Result<CUevent> begin = event();
  if (!begin)
    return begin.status();
  Result<CUevent> end = event();
  if (!end) {
    spare_.push_back(*begin);
    return end.status();
  }
  lane.flying.push_back({*begin, *end, move.hostPage});
  GPT2C_CUDA(api, eventRecord, *begin, lane.stream);
  const auto there = reinterpret_cast<CUdeviceptr>(host.data());
  GPT2C_CUDA(api, memcpyAsync, move.out ? there : device, move.out ? device : there, host.size(),
             lane.stream);
  GPT2C_CUDA(api, eventRecord, *end, lane.stream);
  return {};
}

/// Whether the oldest copy of that way has ended, which is counted then.
Result<bool> PageCopies::takeFirst(bool out, bool waits) {
  const CudaApi &api = device_->api();
  Lane &lane = lanes_[out];
  if (lane.flying.empty())
    return false;
  const Flying f = lane.flying.front();
  if (waits)
    GPT2C_CUDA(api, eventSynchronize, f.end);
  const CUresult result = api.eventQuery(f.end);
  if (result == kNotReady)
    return false;
  if (Status s = api.check(result, symbolOf_eventQuery); !s.ok())
    return s;
  float milliseconds = 0;
  GPT2C_CUDA(api, eventElapsedTime, &milliseconds, f.begin, f.end);
  ++(out ? moved_.out : moved_.in);
  (out ? moved_.outSeconds : moved_.inSeconds) += double(milliseconds) * 1e-3;
  if (out)
    sums_.put(f.hostPage, page(f.hostPage));
  spare_.insert(spare_.end(), {f.begin, f.end});
  lane.flying.pop_front();
  return true;
}

Result<MovedPages> PageCopies::ended(bool waits) {
  if (Status s = device_->bindThread(); !s.ok())
    return s;
  for (const bool out : {false, true})
    for (;;) {
      Result<bool> taken = takeFirst(out, waits);
      if (!taken)
        return taken.status();
      if (!*taken)
        break;
      waits = false;
    }
  return moved_;
}

Status PageCopies::measure() {
  const auto runs = int64_t(std::clamp<uint64_t>(kMeasuredBytes / pageBytes_, 1, 64));
  MovedPages before;
  // The first copies of pinned memory take longer than those behind them.
  for (const int64_t count : {int64_t(1), runs})
    for (const bool out : {true, false}) {
      before = moved_;
      const std::vector<PageMove> moves(size_t(count), {0, 0, out});
      if (Status s = begin(moves); !s.ok())
        return s;
      while (!lanes_[out].flying.empty())
        if (Result<MovedPages> now = ended(true); !now)
          return now.status();
      const double seconds =
          moved_.outSeconds + moved_.inSeconds - before.outSeconds - before.inSeconds;
      rates_[out] = double(count) * double(pageBytes_) / std::max(1e-9, seconds);
    }
  return {};
}

} // namespace gpt2c::rt::cuda
