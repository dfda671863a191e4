#include "runtime/cuda/CudaRanks.h"

#include "runtime/cuda/CudaBackendClass.h"
#include "runtime/group/GroupBackend.h"
#include "runtime/group/ThreadRanks.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

namespace gpt2c::rt {

/// Of partial sums that a launch of a rank sends at most.
static uint64_t sentBytes(const plan::PlanT &meta, int ranks) {
  int32_t most = 0;
  for (const auto &function : meta.functions)
    for (const auto &step : function->steps)
      for (const auto &arg : step->args)
        if (function->ranks == ranks && arg->kind == plan::ArgKind::Exchange)
          most = std::max(most, arg->index);
  return uint64_t(most);
}

Result<std::unique_ptr<Backend>> makeCudaRanks(const Plan::Ptr &plan, std::span<const int> ordinals,
                                               const CudaRankOptions &options) {
  const int ranks = int(ordinals.size());
  if (options.stages > 1)
    return {Code::Unsupported, "stages are on the CPU device: --device=cpu"};
  if (!ranksOf(plan->meta(), ranks))
    return noSuchRanks(plan->meta(), ranks);
  std::vector<std::shared_ptr<cuda::CudaDevice>> devices;
  for (const int ordinal : ordinals) {
    Result<std::shared_ptr<cuda::CudaDevice>> device = cuda::CudaDevice::open(ordinal);
    if (!device)
      return device.status();
    devices.push_back(device.take());
  }
  auto ends =
      cuda::Exchange::connect(devices, options.patience > 0 ? options.patience : kExchangePatience,
                              sentBytes(plan->meta(), ranks));
  if (!ends)
    return ends.status();
  // Each gathers its parts of the weights.
  std::vector<std::optional<Result<std::unique_ptr<cuda::CudaBackend>>>> opened(devices.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < devices.size(); ++r)
    threads.emplace_back(
        [&, r] { opened[r].emplace(cuda::openBackend(devices[r], plan, std::move((*ends)[r]))); });
  for (std::thread &t : threads)
    t.join();
  std::vector<cuda::CudaBackend *> all;
  for (auto &rank : opened)
    if (*rank)
      all.push_back((*rank)->get());
  if (all.size() == opened.size())
    if (Status s = cuda::joinRanks(all); !s.ok())
      return s;
  return openThreadRanks(plan, ranks, [&](RankLink &link) -> Result<std::unique_ptr<Backend>> {
    auto &rank = *opened[size_t(link.rank())];
    if (!rank)
      return rank.status();
    (*rank)->setLink(link);
    return std::unique_ptr<Backend>(rank.take());
  });
}

} // namespace gpt2c::rt
