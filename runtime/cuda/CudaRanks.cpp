#include "runtime/cuda/CudaRanks.h"

#include "runtime/cuda/CudaStages.h"
#include "runtime/group/GroupBackend.h"
#include "runtime/group/ThreadRanks.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

namespace gpt2c::rt {

namespace {

/// Of partial sums that a launch of a rank sends at most.
uint64_t sentBytes(const plan::PlanT &meta, int ranks) {
  int32_t most = 0;
  for (const auto &function : meta.functions)
    for (const auto &step : function->steps)
      for (const auto &arg : step->args)
        if (function->ranks == ranks && arg->kind == plan::ArgKind::Exchange)
          most = std::max(most, arg->index);
  return uint64_t(most);
}

using Devices = std::vector<std::shared_ptr<cuda::CudaDevice>>;
using Ranks = std::vector<std::unique_ptr<cuda::CudaBackend>>;

/// The ends of the teams' exchanges, by rank; of teams of one null.
Result<std::vector<std::unique_ptr<cuda::Exchange>>> connectTeams(const plan::PlanT &meta,
                                                                  const Devices &devices,
                                                                  const Division &division,
                                                                  double patience) {
  std::vector<std::unique_ptr<cuda::Exchange>> all(devices.size());
  const auto team = size_t(division.teamSize());
  for (size_t first = 0; team > 1 && first < devices.size(); first += team) {
    auto ends = cuda::Exchange::connect(std::span(devices).subspan(first, team),
                                        patience > 0 ? patience : kExchangePatience,
                                        sentBytes(meta, division.teamSize()));
    if (!ends)
      return ends.status();
    std::ranges::move(*ends, all.begin() + int64_t(first));
  }
  for (size_t r = team; r < devices.size(); ++r) // hand on to
    if (Status s = cuda::giveAccess(*devices[r - team], *devices[r], r); !s.ok())
      return s;
  return all;
}

/// Each gathers its parts of the weights.
Result<Ranks> openRanks(const Plan::Ptr &plan, const Devices &devices, const Division &division,
                        std::vector<std::unique_ptr<cuda::Exchange>> ends) {
  std::vector<std::optional<Result<std::unique_ptr<cuda::CudaBackend>>>> opened(devices.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < devices.size(); ++r)
    threads.emplace_back([&, r] {
      opened[r].emplace(cuda::openBackend(devices[r], plan, std::move(ends[r]),
                                          int(r) / division.teamSize(), division.stages));
    });
  for (std::thread &t : threads)
    t.join();
  Ranks ranks;
  for (size_t r = 0; r < devices.size(); ++r) {
    if (!*opened[r])
      return {opened[r]->status().code(),
              "rank " + std::to_string(r) + ": " + opened[r]->status().message()};
    ranks.push_back(opened[r]->take());
  }
  return ranks;
}

} // namespace

Result<std::unique_ptr<Backend>> makeCudaRanks(const Plan::Ptr &plan, std::span<const int> ordinals,
                                               const CudaRankOptions &options) {
  const Division division(int(ordinals.size()), options.stages, options.microRows);
  if (Status s = checkDivision(plan->meta(), division); !s.ok())
    return s;
  Devices devices;
  for (const int ordinal : ordinals) {
    Result<std::shared_ptr<cuda::CudaDevice>> device = cuda::CudaDevice::open(ordinal);
    if (!device)
      return device.status();
    devices.push_back(device.take());
  }
  auto ends = connectTeams(plan->meta(), devices, division, options.patience);
  if (!ends)
    return ends.status();
  Result<Ranks> ranks = openRanks(plan, devices, division, ends.take());
  if (!ranks)
    return ranks.status();
  const auto team = size_t(division.teamSize());
  std::vector<cuda::CudaBackend *> all;
  for (const auto &rank : *ranks)
    all.push_back(rank.get());
  for (size_t first = 0; team > 1 && first < all.size(); first += team)
    if (Status s = cuda::joinRanks(std::span(all).subspan(first, team)); !s.ok())
      return s;
  if (division.stages == 1)
    return openThreadRanks(plan, division, [&](RankLink &link) -> Result<std::unique_ptr<Backend>> {
      std::unique_ptr<cuda::CudaBackend> rank = std::move((*ranks)[size_t(link.rank())]);
      rank->setLink(link);
      return std::unique_ptr<Backend>(std::move(rank));
    });
  std::vector<Ranks> teams{size_t(division.stages)};
  for (size_t r = 0; r < ranks->size(); ++r)
    teams[r / team].push_back(std::move((*ranks)[r]));
  return cuda::CudaStages::create(plan, std::move(teams), options.microRows);
}

} // namespace gpt2c::rt
