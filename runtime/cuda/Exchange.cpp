#include "runtime/cuda/Exchange.h"

#include "runtime/cuda/ExchangeRecord.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdio>
#include <cstring>

namespace gpt2c::rt::cuda {

namespace {

std::string textOf(const CudaDevice &device) { return device.name() + " (" + device.busId() + ")"; }

/// Writes words that nobody else writes from one device to memory of another, `there`, which reads
/// them. There are hosts on which the driver says that this works, and other bytes arrive.
Status probe(CudaDevice &from, CudaDevice &to, CUdeviceptr there, uint64_t seed) {
  std::vector<uint64_t> sent(4096), got(sent.size());
  for (uint64_t &word : sent)
    word = seed = seed * 6364136223846793005U + 1442695040888963407U;
  const size_t bytes = sent.size() * sizeof(uint64_t);
  Result<DeviceMemory> own = from.allocate(bytes, "a probe of peer access");
  if (!own)
    return own.status();
  if (Status s = from.upload(own->address(), sent.data(), bytes); !s.ok())
    return s;
  if (Status s = from.copy(there, own->address(), bytes); !s.ok())
    return s;
  if (Status s = to.download(got.data(), there, bytes); !s.ok())
    return s;
  if (got == sent)
    return {};
  return {Code::Incompatible, "what " + textOf(from) + " writes to the memory of " + textOf(to) +
                                  " does not arrive there: ranks need peer access that works"};
}

} // namespace

Status Exchange::allocate(std::shared_ptr<CudaDevice> device, int rank, int ranks, uint64_t sums) {
  device_ = std::move(device);
  rank_ = rank;
  ranks_ = ranks;
  sums_ = (sums + 255) / 256 * 256;
  Result<DeviceMemory> slots =
      device_->allocate(sumsAt(ranks) + sumsBytes(ranks, sums_), "the exchange of ranks");
  if (!slots)
    return slots.status();
  slots_ = slots.take();
  Result<DeviceMemory> record = device_->allocate(sizeof(ExchangeRecord), "the exchange of ranks");
  if (!record)
    return record.status();
  record_ = record.take();
  Result<PinnedMemory> error = device_->allocatePinned(sizeof(uint64_t), "the exchange of ranks");
  if (!error)
    return error.status();
  error_ = error.take();
  std::memset(error_.data(), 0, sizeof(uint64_t));
  return {};
}

Status Exchange::place(std::span<const std::unique_ptr<Exchange>> all, double patience) {
  patience_ = patience;
  ExchangeRecord record;
  for (size_t r = 0; r < all.size(); ++r)
    record.slots[r] = all[r]->slots_.address();
  record.error = reinterpret_cast<uint64_t>(error_.data());
  record.patience = uint64_t(patience * 1e9);
  record.rank = rank_;
  apart_ = std::ranges::none_of(all, [&](const auto &a) {
    return std::ranges::any_of(
        all, [&](const auto &b) { return a != b && a->device_->isSameGpu(*b->device_); });
  });
  record.apart = apart_;
  record.ranks = ranks_;
  record.sumsAt = sumsAt(ranks_);
  record.sumsBytes = sums_;
  ranksOfDevice_ = int(
      std::ranges::count_if(all, [&](const auto &a) { return a->device_->isSameGpu(*device_); }));
  if (Status s = device_->zero(slots_.address(), slots_.bytes()); !s.ok())
    return s;
  if (Status s = device_->upload(record_.address(), &record, sizeof record); !s.ok())
    return s;
  return device_->synchronize();
}

Result<std::vector<std::unique_ptr<Exchange>>>
Exchange::connect(std::span<const std::shared_ptr<CudaDevice>> devices, double patience,
                  uint64_t sums) {
  const int ranks = int(devices.size());
  if (ranks < 2 || ranks > kMostExchangingRanks)
    return {Code::Usage, std::to_string(ranks) + " GPUs: ranks exchange on 2 to " +
                             std::to_string(kMostExchangingRanks)};
  std::vector<std::unique_ptr<Exchange>> all;
  for (int r = 0; r < ranks; ++r) {
    all.emplace_back(new Exchange);
    if (Status s = all.back()->allocate(devices[size_t(r)], r, ranks, sums); !s.ok())
      return s;
  }
  for (int from = 0; from < ranks; ++from)
    for (int to = 0; to < ranks; ++to) {
      if (from == to)
        continue;
      if (Status s = devices[size_t(from)]->enableAccessTo(*devices[size_t(to)]); !s.ok())
        return s;
      if (Status s =
              probe(*devices[size_t(from)], *devices[size_t(to)], all[size_t(to)]->slots_.address(),
                    uint64_t(from) * uint64_t(ranks) + uint64_t(to));
          !s.ok())
        return s;
    }
  for (const auto &end : all)
    if (Status s = end->place(all, patience); !s.ok())
      return s;
  return all;
}

Status Exchange::setMemory(std::span<const Memory> ofRanks) {
  ExchangeRecord record;
  for (size_t r = 0; r < ofRanks.size(); ++r) {
    record.scratch[r] = ofRanks[r].scratch;
    record.logits[r] = ofRanks[r].logits;
    record.arena[r] = ofRanks[r].arena;
  }
  constexpr size_t at = offsetof(ExchangeRecord, scratch);
  return device_->upload(record_.address() + at, record.scratch, sizeof record - at);
}

Status giveAccess(CudaDevice &from, CudaDevice &to, uint64_t seed) {
  if (Status s = from.enableAccessTo(to); !s.ok())
    return s;
  Result<DeviceMemory> there = to.allocate(4096 * sizeof(uint64_t), "a probe of peer access");
  if (!there)
    return there.status();
  return probe(from, to, there->address(), seed);
}

Status Exchange::check() const {
  uint64_t &word = *reinterpret_cast<uint64_t *>(error_.data());
  const uint64_t error = std::atomic_ref(word).load(std::memory_order_acquire);
  if (error == 0)
    return {};
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%g", patience_);
  return {Code::Cuda, "rank " + std::to_string(rank_) + " on " + textOf(*device_) + " waited " +
                          seconds + " s in vain for rank " + std::to_string(uint32_t(error) - 1) +
                          ", in round " + std::to_string(error >> 32) +
                          " of their exchange: open the plan again"};
}

} // namespace gpt2c::rt::cuda
