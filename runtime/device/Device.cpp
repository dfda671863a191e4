#include "runtime/device/Device.h"

#include "runtime/cuda/CudaBackend.h"
#include "runtime/cuda/CudaRanks.h"
#include "runtime/device/DeviceName.h"
#include "runtime/group/ThreadRanks.h"

#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>

namespace gpt2c::rt {
namespace {

constexpr const char *kCpuLibrary = "libgpt2c_cpu.so.0";

std::string joined(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (std::string_view part : parts)
    text += part;
  return text;
}

/// The folders of the binary that this code is in and of the program, with their last slashes.
std::vector<std::string> ownFolders() {
  std::vector<std::string> folders;
  auto add = [&](const std::string &path) {
    const std::string folder = path.substr(0, path.rfind('/') + 1);
    if (!folder.empty() && (folders.empty() || folders.back() != folder))
      folders.push_back(folder);
  };
  if (Dl_info info{}; dladdr(reinterpret_cast<void *>(&openDevice), &info) && info.dli_fname)
    add(info.dli_fname); // of the program itself what it was called as
  std::error_code ignored;
  add(std::filesystem::read_symlink("/proc/self/exe", ignored).string());
  return folders;
}

Result<DeviceOpenFunction *> loadCpuLibrary() {
  std::vector<std::string> paths;
  for (const std::string &folder : ownFolders())
    for (const char *beside : {"", "../lib/"})
      paths.push_back(folder + beside + kCpuLibrary);
  paths.emplace_back(kCpuLibrary);
  std::string why;
  void *library = nullptr;
  for (const std::string &path : paths) {
    library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library)
      break;
    why += std::string("\n  ") + dlerror();
  }
  if (!library)
    return {
        Code::Incompatible,
        joined({"the CPU device is in ", kCpuLibrary,
                ", which cannot be opened; it belongs beside libgpt2c.so, or in ../lib of a tool:",
                why})};
  auto *abi = reinterpret_cast<DeviceAbiFunction *>(dlsym(library, kDeviceAbiEntry));
  auto *open = reinterpret_cast<DeviceOpenFunction *>(dlsym(library, kDeviceEntry));
  if (!abi || !open || std::strcmp(abi(), GPT2C_DEVICE_ABI) != 0)
    return {Code::Incompatible,
            joined({kCpuLibrary, " is of another build (", abi ? abi() : "unknown",
                    ") than this runtime (", GPT2C_DEVICE_ABI, "): install both from one"})};
  return open;
}

} // namespace

Result<std::unique_ptr<Backend>> openCpuDevice(const Plan::Ptr &plan, int threads, RankLink *link) {
  if (threads < 0)
    return {Code::Usage, "the CPU device is asked for " + std::to_string(threads) +
                             " threads; at least 1, or 0 for one on each core"};
  static const Result<DeviceOpenFunction *> open = loadCpuLibrary();
  if (!open)
    return open.status();
  std::optional<Result<std::unique_ptr<Backend>>> device;
  (*open)(&plan, threads, link, &device);
  return std::move(*device);
}

Status checkRanks(const DeviceName &device, const RankOptions &ranks) {
  if (ranks.ranks < 1 || ranks.stages < 1 || ranks.stages > 64 || ranks.microRows < 0)
    return {Code::Usage, "ranks is at least 1, stages are from 1 to 64, and rows of a micro-batch "
                         "at least 1, or 0 for as many as the device thinks best"};
  if (ranks.ranks > 1 && device.kind != DeviceName::Kind::Cpu)
    return {Code::Usage, "ranks is 1 but where the device is \"cpu\"; GPUs that are ranks are "
                         "named, as \"cuda:0,1\""};
  if (ranks.stages > 1 && device.kind != DeviceName::Kind::Cpu && device.ranks.empty())
    return {Code::Usage, "stages are on \"cpu\", or on GPUs that are named, as \"cuda:0,1\""};
  return {};
}

Result<std::unique_ptr<Backend>> openDevice(const Plan::Ptr &plan, std::string_view name,
                                            int threads, const RankOptions &ranks) {
  const Result<DeviceName> wanted = parseDeviceName(name);
  if (!wanted)
    return wanted.status();
  if (Status s = checkRanks(*wanted, ranks); !s.ok())
    return s;
  if (wanted->kind == DeviceName::Kind::Cpu && (ranks.ranks > 1 || ranks.stages > 1))
    return openThreadRanks(plan, {ranks.ranks * ranks.stages, ranks.stages, ranks.microRows},
                           [&](RankLink &link) { return openCpuDevice(plan, threads, &link); });
  if (wanted->kind == DeviceName::Kind::Cpu)
    return openCpuDevice(plan, threads);
  if (!wanted->ranks.empty())
    return makeCudaRanks(plan, wanted->ranks,
                         {.stages = ranks.stages, .microRows = ranks.microRows});
  Result<std::unique_ptr<Backend>> cuda = makeCudaBackendOn(plan, wanted->ordinal);
  if (cuda || wanted->kind == DeviceName::Kind::Cuda || cuda.status().code() != Code::Incompatible)
    return cuda;
  Result<std::unique_ptr<Backend>> cpu = openCpuDevice(plan, threads);
  if (!cpu && cpu.status().code() == Code::Incompatible)
    return {Code::Incompatible, cuda.status().message() + "\n" + cpu.status().message()};
  return cpu;
}

} // namespace gpt2c::rt
