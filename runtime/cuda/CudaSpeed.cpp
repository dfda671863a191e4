#include "runtime/cuda/CudaSpeed.h"

#include <algorithm>

#include <dlfcn.h>

namespace gpt2c::rt::cuda {

namespace {

constexpr size_t kMostBytes = size_t(512) << 20;
constexpr int kSamples = 5, kCopies = 8;

/// The part of NVML that tells clocks, found at run time. All of its calls may fail: what they
/// would have said is then not known.
class Nvml {
public:
  explicit Nvml(const std::string &busId) {
    library_ = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library_ || !find(init_, "nvmlInit_v2") || !find(shutdown_, "nvmlShutdown") ||
        !find(byBusId_, "nvmlDeviceGetHandleByPciBusId_v2") ||
        !find(clock_, "nvmlDeviceGetClockInfo") || !find(maxClock_, "nvmlDeviceGetMaxClockInfo") ||
        !find(reasons_, "nvmlDeviceGetCurrentClocksThrottleReasons") || init_() != 0)
      return;
    started_ = true;
    if (byBusId_(busId.c_str(), &device_) != 0)
      device_ = nullptr;
  }
  Nvml(const Nvml &) = delete;
  Nvml &operator=(const Nvml &) = delete;
  ~Nvml() {
    if (started_)
      shutdown_();
    if (library_)
      dlclose(library_);
  }

  void addClocks(DeviceSpeed &speed) const {
    constexpr int ofProcessors = 1;
    unsigned clock = 0, most = 0;
    if (!device_ || clock_(device_, ofProcessors, &clock) != 0 ||
        maxClock_(device_, ofProcessors, &most) != 0)
      return;
    speed.clock = int(clock);
    speed.maxClock = int(most);
    unsigned long long bits = 0;
    if (reasons_(device_, &bits) != 0)
      return;
    constexpr std::pair<unsigned long long, const char *> names[] = {
        {0x2, "its settings"},
        {0x4, "its power limit"},
        {0x8, "its hardware"},
        {0x20, "its temperature"},
        {0x40, "its temperature (hardware)"},
        {0x80, "its power supply"},
    };
    for (auto [bit, name] : names)
      if (bits & bit)
        speed.slowedBy += (speed.slowedBy.empty() ? "" : ", ") + std::string(name);
  }

private:
  template <typename F> bool find(F &function, const char *name) {
    function = reinterpret_cast<F>(dlsym(library_, name));
    return function != nullptr;
  }

  using Handle = struct NvmlDeviceTag *;
  void *library_ = nullptr;
  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*byBusId_)(const char *, Handle *) = nullptr;
  int (*clock_)(Handle, int, unsigned *) = nullptr;
  int (*maxClock_)(Handle, int, unsigned *) = nullptr;
  int (*reasons_)(Handle, unsigned long long *) = nullptr;
  bool started_ = false;
  Handle device_ = nullptr;
};

} // namespace

Result<DeviceSpeed> measureSpeed(const std::shared_ptr<CudaDevice> &device) {
  DeviceSpeed speed;
  speed.cacheBytes = uint64_t(device->attribute(kL2CacheSize));
  // Two transfers for each clock.
  speed.nominalBytesPerSecond =
      2e3 * device->attribute(kMemoryClockRate) * (device->attribute(kMemoryBusWidth) / 8.0);
  const size_t half = std::min(kMostBytes, device->freeBytes() / 4) / 4096 * 4096;
  if (half == 0 || half < speed.cacheBytes)
    return {Code::Unsupported, "the GPU has no free memory to measure its bandwidth with"};
  Result<DeviceMemory> memory = device->allocate(2 * half, "the measurement of bandwidth");
  if (!memory)
    return memory.status();
  if (Status s = device->zero(memory->address(), 2 * half); !s.ok())
    return s;
  Result<Timer> timer = Timer::create(device);
  if (!timer)
    return timer.status();
  const Nvml nvml(device->busId());
  for (int sample = 0; sample < kSamples; ++sample) {
    if (Status s = timer->start(); !s.ok())
      return s;
    for (int i = 0; i < kCopies; ++i)
      GPT2C_CUDA(device->api(), memcpyDtoDAsync, memory->address() + half, memory->address(), half,
                 device->stream());
    if (Status s = timer->stop(); !s.ok())
      return s;
    if (sample + 1 == kSamples)
      nvml.addClocks(speed); // while the device works
    if (Status s = device->synchronize(); !s.ok())
      return s;
    Result<double> ms = timer->milliseconds();
    if (!ms)
      return ms.status();
    if (*ms > 0)
      speed.bytesPerSecond =
          std::max(speed.bytesPerSecond, 2.0 * double(half) * kCopies / *ms * 1e3);
  }
  return speed;
}

} // namespace gpt2c::rt::cuda
