#include "runtime/cuda/CudaRanks.h"

#include "runtime/cuda/CudaBackendClass.h"
#include "runtime/group/GroupBackend.h"
#include "runtime/group/ThreadRanks.h"

namespace gpt2c::rt {

Result<std::unique_ptr<Backend>> makeCudaRanks(const Plan::Ptr &plan, std::span<const int> ordinals,
                                               double patience) {
  const int ranks = int(ordinals.size());
  if (!ranksOf(plan->meta(), ranks))
    return noSuchRanks(plan->meta(), ranks);
  std::vector<std::shared_ptr<cuda::CudaDevice>> devices;
  for (const int ordinal : ordinals) {
    Result<std::shared_ptr<cuda::CudaDevice>> device = cuda::CudaDevice::open(ordinal);
    if (!device)
      return device.status();
    devices.push_back(device.take());
  }
  auto ends = cuda::Exchange::connect(devices, patience > 0 ? patience : kExchangePatience);
  if (!ends)
    return ends.status();
  return openThreadRanks(plan, ranks, [&](RankLink &link) {
    const auto rank = size_t(link.rank());
    return cuda::openBackend(devices[rank], plan, std::move((*ends)[rank]));
  });
}

} // namespace gpt2c::rt
