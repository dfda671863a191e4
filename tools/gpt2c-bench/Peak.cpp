#include "tools/gpt2c-bench/Peak.h"

#include "runtime/cuda/CudaDevice.h"
#include "tools/runtime-common/Sibling.h"

#include <cblas.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <thread>

namespace gpt2c {

using rt::cuda::CudaDevice;

/// Of cpu/blas_kernels.c.
extern "C" int gpt2cProductThreads();

namespace {

constexpr int gpuSamples = 10, cpuSamples = 4;
/// Of several samples the best: what disturbs a measurement never makes it faster.
template <typename F> rt::Result<double> leastMilliseconds(int samples, F &&once) {
  double best = 0;
  for (int i = 0; i < samples; ++i) {
    rt::Result<double> ms = once();
    if (!ms)
      return ms.status();
    best = i == 0 ? *ms : std::min(best, *ms);
  }
  return best;
}

// The same in templates/peak.cuh; gpt2c-ablate, which compiles it, holds them together.
constexpr unsigned productsShared = 41984;
constexpr double productsFlops = 3145728, fmaFlops = 512;

class GpuPeak {
public:
  explicit GpuPeak(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {}

  rt::Result<Peak> measure(bool half) {
    auto timer = rt::cuda::Timer::create(device_);
    if (!timer)
      return timer.status();
    timer_ = timer.take();
    const size_t bytes = std::min<size_t>(size_t(2) << 30, device_->freeBytes() / 4) / 4096 * 4096;
    auto memory = device_->allocate(bytes, "the measurement of the peak");
    if (!memory)
      return memory.status();
    memory_ = memory.take();
    if (rt::Status s = device_->zero(memory_.address(), bytes); !s.ok())
      return s;
    if (rt::Status s = loadKernels(); !s.ok()) {
      Peak peak;
      peak.note = "bandwidth of copies, operations unknown: no kernels (" + s.message() + ")";
      auto ms = leastMilliseconds(gpuSamples, [&] { return copy(bytes / 2); });
      if (!ms)
        return ms.status();
      peak.bytesPerSecond = double(bytes) / *ms * 1e3;
      return peak;
    }
    auto read = leastMilliseconds(gpuSamples, [&] { return this->read(bytes); });
    if (!read)
      return read.status();
    double flops = 0;
    auto work = leastMilliseconds(gpuSamples, [&] { return half ? products(flops) : fma(flops); });
    if (!work)
      return work.status();
    return Peak{double(bytes) / *read * 1e3, flops / *work * 1e3,
                half ? "reading memory; products in fp16"
                     : "reading memory; multiply-adds in fp32"};
  }

private:
  /// They are no part of a plan, and compiled for this device when they are asked for.
  rt::Status loadKernels() {
    const rt::ComputeCapability c = device_->capability();
    rt::Result<std::string> image =
        askSibling("gpt2c-ablate",
                   {"--peak-kernels=" + std::to_string(c.major) + "." + std::to_string(c.minor)});
    if (!image)
      return image.status();
    auto module = device_->loadModule(std::as_bytes(std::span(*image)), "peak.cu");
    if (!module)
      return module.status();
    module_ = module.take();
    return {};
  }

  rt::Result<double> launch(const char *name, unsigned blocks, unsigned threads, unsigned shared,
                            std::vector<void *> arguments) {
    auto function = module_.function(name, shared);
    if (!function)
      return function.status();
    rt::cuda::Launch launch{.function = *function,
                            .grid = {blocks, 1, 1},
                            .block = {threads, 1, 1},
                            .sharedBytes = shared};
    return timer_.milliseconds([&] { return device_->launch(launch, arguments.data()); });
  }

  rt::Result<double> read(size_t bytes) {
    rt::cuda::CUdeviceptr from = memory_.address();
    long long n = bytes / 16;
    return launch("peakRead", device_->multiprocessors() * 4, 512, 0, {&from, &n, &from});
  }
  rt::Result<double> products(double &flops) {
    rt::cuda::CUdeviceptr out = memory_.address();
    int rounds = 2000;
    unsigned blocks = device_->multiprocessors() * 2;
    flops = double(blocks) * rounds * productsFlops;
    return launch("peakProducts", blocks, 256, productsShared, {&out, &rounds});
  }
  rt::Result<double> fma(double &flops) {
    rt::cuda::CUdeviceptr out = memory_.address();
    int rounds = 500;
    unsigned blocks = device_->multiprocessors() * 2;
    flops = double(blocks) * 512 * rounds * fmaFlops;
    return launch("peakFma", blocks, 512, 0, {&out, &rounds});
  }
  rt::Result<double> copy(size_t bytes) {
    return timer_.milliseconds([&] {
      const rt::cuda::CudaApi &api = device_->api();
      return api.check(api.memcpyDtoDAsync(memory_.address() + bytes, memory_.address(), bytes,
                                           device_->stream()),
                       "cuMemcpyDtoDAsync");
    });
  }

  std::shared_ptr<CudaDevice> device_;
  rt::cuda::Timer timer_;
  rt::cuda::DeviceMemory memory_;
  rt::cuda::Module module_;
};

double millisecondsOf(const std::function<void()> &work) {
  auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

rt::Result<Peak> cpuPeak() {
  const size_t threads = size_t(gpt2cProductThreads());
  constexpr size_t perThread = size_t(16) << 20; // 128 MiB: no cache holds it
  std::vector<uint64_t> data(threads * perThread, 1);
  std::vector<uint64_t> sums(threads);
  auto onAll = [&](auto work) -> rt::Result<double> {
    return millisecondsOf([&] {
      std::vector<std::thread> workers;
      for (size_t t = 0; t < threads; ++t)
        workers.emplace_back([&work, t] { work(t); });
      for (std::thread &w : workers)
        w.join();
    });
  };
  auto read = leastMilliseconds(cpuSamples, [&] {
    return onAll([&](size_t t) {
      uint64_t sum = 0;
      for (size_t i = t * perThread; i < (t + 1) * perThread; ++i)
        sum += data[i];
      sums[t] = sum;
    });
  });
  if (!read)
    return read.status();
  constexpr int n = 1024;
  std::vector<float> a(n * n, 0.5f), b(n * n, 0.25f), c(threads * n * n);
  openblas_set_num_threads(1);
  auto product = leastMilliseconds(cpuSamples, [&] {
    return onAll([&](size_t t) {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, n, 1, a.data(), n, b.data(), n, 0,
                  c.data() + t * n * n, n);
    });
  });
  if (!product)
    return product.status();
  return Peak{double(data.size()) * 8 / *read * 1e3,
              2.0 * double(threads) * n * n * n / *product * 1e3,
              "summing an array with all threads; products of 1024 x 1024 in fp32, one each"};
}

} // namespace

rt::Result<Peak> measurePeak(const rt::Backend &backend, const std::string &precision) {
  if (backend.kind() != "cuda")
    return cpuPeak();
  auto device = CudaDevice::open();
  if (!device)
    return device.status();
  return GpuPeak(*device).measure(precision != "fp32");
}

} // namespace gpt2c
