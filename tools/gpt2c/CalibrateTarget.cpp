#include "tools/gpt2c/CalibrateTarget.h"

#include "codegen/Codegen.h"
#include "codegen/Nvrtc.h"
#include "ir/Error.h"
#include "runtime/cuda/CudaDevice.h"
#include "tools/common/RuntimeError.h"
#include "tools/common/flags/CommandLine.h"

#include <algorithm>
#include <functional>
#include <limits>

namespace gpt2c {

namespace cuda = rt::cuda;

namespace {

constexpr const char *source = R"(#include "templates/calibrate/calibrate.cuh"
using namespace gpt2c;
extern "C" __global__ void launchOnly() { calibrate::launch(); }
extern "C" __global__ void readMemory(const uint4 *from, i64 units, unsigned *never) {
  calibrate::memory(from, units, never);
}
extern "C" __global__ void hop(unsigned *arrived, int count) { calibrate::hops(arrived, count); }
extern "C" __global__ void multiply(float *never, int count) { calibrate::products(never, count); }
)";

class TargetTimes {
public:
  explicit TargetTimes(std::shared_ptr<cuda::CudaDevice> device) : device_(std::move(device)) {}

  rt::Status load(llvm::ArrayRef<char> image) {
    auto module =
        device_->loadModule(std::as_bytes(std::span(image.data(), image.size())), "calibration");
    if (!module)
      return module.status();
    module_ = std::move(*module);
    auto timer = cuda::Timer::create(device_);
    if (!timer)
      return timer.status();
    timer_ = std::move(*timer);
    return {};
  }

  rt::Result<TargetRates> run() {
    TargetRates r;
    r.multiprocessors = device_->multiprocessors();
    for (rt::Status (TargetTimes::*one)(TargetRates &) :
         {&TargetTimes::launches, &TargetTimes::memory, &TargetTimes::hops, &TargetTimes::products})
      if (rt::Status s = (this->*one)(r); !s.ok())
        return s;
    return r;
  }

private:
  static constexpr int samples = 7;

  /// The least milliseconds of what `work` enqueues, in several samples behind one that is not
  /// counted.
  rt::Result<double> least(const std::function<rt::Status()> &work) {
    double best = std::numeric_limits<double>::infinity();
    for (int sample = 0; sample <= samples; ++sample) {
      auto ms = timer_.milliseconds(work);
      if (!ms)
        return ms.status();
      if (sample > 0)
        best = std::min(best, *ms);
    }
    return best;
  }

  rt::Result<cuda::Launch> launchOf(const char *name, unsigned blocks, unsigned threads) {
    auto function = module_.function(name, 0);
    if (!function)
      return function.status();
    return cuda::Launch{.function = *function, .grid = {blocks, 1, 1}, .block = {threads, 1, 1}};
  }
  unsigned processors() const { return unsigned(device_->multiprocessors()); }

  rt::Status launches(TargetRates &r) {
    constexpr int count = 512;
    auto launch = launchOf("launchOnly", processors(), 256);
    if (!launch)
      return launch.status();
    launch->programmatic = device_->capability().major >= 9;
    if (rt::Status s = cuda::Graph::beginCapture(*device_); !s.ok())
      return s;
    rt::Status enqueued;
    for (int i = 0; i < count && enqueued.ok(); ++i)
      enqueued = device_->launch(*launch, nullptr);
    auto graph = cuda::Graph::finishCapture(device_, enqueued);
    if (!graph)
      return graph.status();
    auto ms = least([&] { return graph->launch(); });
    if (!ms)
      return ms.status();
    r.launch = *ms * 1e3 / count;
    return {};
  }

  rt::Status memory(TargetRates &r) {
    // Many times what caches hold.
    const size_t bytes = std::min<size_t>(size_t(1) << 30, device_->freeBytes() / 4) / 4096 * 4096;
    if (bytes < size_t(256) << 20)
      return {rt::Code::OutOfMemory, "the GPU has no free 1 GiB to measure its memory with: leave "
                                     "it to --calibrate-target alone"};
    auto memory = device_->allocate(bytes, "the measurement of memory");
    if (!memory)
      return memory.status();
    if (rt::Status s = device_->zero(memory->address(), bytes); !s.ok())
      return s;
    auto launch = launchOf("readMemory", processors() * 4, 512);
    if (!launch)
      return launch.status();
    cuda::CUdeviceptr from = memory->address(), never = 0;
    int64_t units = int64_t(bytes / 16);
    void *arguments[] = {&from, &units, &never};
    auto ms = least([&] { return device_->launch(*launch, arguments); });
    if (!ms)
      return ms.status();
    r.memory = double(bytes) / (*ms * 1e3);
    return {};
  }

  rt::Status hops(TargetRates &r) {
    auto memory = device_->allocate(256, "the measurement of hops");
    if (!memory)
      return memory.status();
    auto launch = launchOf("hop", processors(), 512);
    if (!launch)
      return launch.status();
    launch->cooperative = true;
    cuda::CUdeviceptr arrived = memory->address();
    // The difference of two counts: what the launch takes is in both.
    double ms[2];
    const int counts[2] = {200, 2200};
    for (int i = 0; i < 2; ++i) {
      int count = counts[i];
      void *arguments[] = {&arrived, &count};
      auto one = least([&] {
        if (rt::Status s = device_->zero(arrived, 256); !s.ok())
          return s;
        return device_->launch(*launch, arguments);
      });
      if (!one)
        return one.status();
      ms[i] = *one;
    }
    r.hop = std::max(1e-3, (ms[1] - ms[0]) * 1e3 / (counts[1] - counts[0]));
    return {};
  }

  rt::Status products(TargetRates &r) {
    constexpr int warps = 16;
    auto launch = launchOf("multiply", processors(), 32 * warps);
    if (!launch)
      return launch.status();
    cuda::CUdeviceptr never = 0;
    int count = 4096;
    void *arguments[] = {&never, &count};
    auto ms = least([&] { return device_->launch(*launch, arguments); });
    if (!ms)
      return ms.status();
    r.products = double(count) * 8 * 2 * 16 * 8 * 16 * warps / (*ms * 1e3);
    return {};
  }

  std::shared_ptr<cuda::CudaDevice> device_;
  cuda::Module module_;
  cuda::Timer timer_;
};

} // namespace

llvm::Expected<MeasuredTarget> measureTarget(const DeviceName &name, llvm::StringRef cudaPath) {
  auto device = cuda::CudaDevice::open(name.ordinal);
  if (!device)
    return toError(device.status());
  auto nvrtc = Nvrtc::load(cudaPath);
  if (!nvrtc)
    return nvrtc.takeError();
  auto image = (*nvrtc)->compile(source, "calibrate.cu", archOf((*device)->capability()));
  if (!image)
    return image.takeError();
  TargetTimes times(*device);
  if (rt::Status s = times.load(*image); !s.ok())
    return toError(s);
  auto rates = times.run();
  if (!rates)
    return toError(rates.status());
  return MeasuredTarget{(*device)->name(), *rates};
}

llvm::Expected<TargetRates> targetFlag(llvm::StringRef nameOrPath) {
  if (nameOrPath.empty())
    return TargetRates();
  if (std::optional<TargetRates> known = TargetRates::named(nameOrPath))
    return *known;
  auto file = readInput(nameOrPath);
  if (!file)
    return inContext("--target is h100, h200, or a file of --calibrate-target", file.takeError());
  auto rates = TargetRates::parse((*file)->getBuffer());
  if (!rates)
    return inContext("--target=" + nameOrPath, rates.takeError());
  return *rates;
}

} // namespace gpt2c
