// A device by its name, and the libraries that devices live in which not every program needs.
#pragma once

#include "runtime/device/Backend.h"
#include "runtime/device/DeviceName.h"
#include "runtime/group/RankLink.h"

#include <optional>
#include <string_view>

namespace gpt2c::rt {

/// Several ranks as one device.
struct RankOptions {
  int ranks = 1;  ///< in each stage, on "cpu": threads; GPUs are named
  int stages = 1; ///< of RankLink, and so is microRows
  int microRows = 0;
};

/// The plan on the device `name`: "cuda", "cuda:N" (as the driver counts), "cuda:N,M,.." (a rank on
/// each, of a plan that is for as many), "cpu", or "auto", the first GPU where the plan has code
/// for it, else the CPU. `threads` are the CPU's, 0: one for each core. The CPU's library,
/// libgpt2c_cpu, is opened when it is asked for the first time: beside the binary this function is
/// in or the program, in ../lib from there, or where the system looks. It stays open.
Result<std::unique_ptr<Backend>> openDevice(const Plan::Ptr &plan, std::string_view name,
                                            int threads = 0, const RankOptions &ranks = {});

/// Usage: ranks that this device cannot be.
Status checkRanks(const DeviceName &device, const RankOptions &ranks);

/// The CPU alone; with `link` as one of link->size() ranks, which outlives the device. Incompatible
/// where the plan has no division among so many.
Result<std::unique_ptr<Backend>> openCpuDevice(const Plan::Ptr &plan, int threads = 0,
                                               RankLink *link = nullptr);

/// What a library of a device exports. Its C++ types are those of this runtime where kDeviceAbi is
/// the same, and only then may kDeviceEntry be called.
inline constexpr const char *kDeviceAbiEntry = "gpt2c_device_abi";
inline constexpr const char *kDeviceEntry = "gpt2c_device_open";
using DeviceAbiFunction = const char *();
using DeviceOpenFunction = void(const Plan::Ptr *plan, int threads, RankLink *link,
                                std::optional<Result<std::unique_ptr<Backend>>> *device);

} // namespace gpt2c::rt
