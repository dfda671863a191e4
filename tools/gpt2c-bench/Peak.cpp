#include "tools/gpt2c-bench/Peak.h"

#include "codegen/Codegen.h"
#include "codegen/KernelBuild.h"
#include "runtime/cuda/CudaDevice.h"
#include "tools/common/RuntimeError.h"

#include "llvm/Support/Format.h"

#include <cblas.h>

#include <chrono>
#include <thread>

namespace gpt2c {

using rt::cuda::CudaDevice;

namespace {

constexpr int gpuSamples = 10, cpuSamples = 4;
/// Of several samples the best: what disturbs a measurement never makes it faster.
template <typename F> llvm::Expected<double> leastMilliseconds(int samples, F &&once) {
  double best = 0;
  for (int i = 0; i < samples; ++i) {
    rt::Result<double> ms = once();
    if (!ms)
      return toError(ms.status());
    best = i == 0 ? *ms : std::min(best, *ms);
  }
  return best;
}

// The same in templates/peak.cuh; the assertion below holds them together.
constexpr unsigned productsShared = 41984;
constexpr double productsFlops = 3145728, fmaFlops = 512;
constexpr llvm::StringLiteral source =
    "#include \"templates/peak.cuh\"\n"
    "static_assert(gpt2c::peakProductsShared == 41984 && gpt2c::peakProductsFlops == 3145728 &&\n"
    "              gpt2c::peakFmaFlops == 512);\n";

class GpuPeak {
public:
  explicit GpuPeak(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {}

  llvm::Expected<Peak> measure(bool half) {
    auto timer = rt::cuda::Timer::create(device_);
    if (!timer)
      return toError(timer.status());
    timer_ = timer.take();
    const size_t bytes = std::min<size_t>(size_t(2) << 30, device_->freeBytes() / 4) / 4096 * 4096;
    auto memory = device_->allocate(bytes, "the measurement of the peak");
    if (!memory)
      return toError(memory.status());
    memory_ = memory.take();
    if (rt::Status s = device_->zero(memory_.address(), bytes); !s.ok())
      return toError(s);
    if (llvm::Error e = loadKernels()) {
      Peak peak;
      peak.note = "bandwidth of copies, operations unknown: no kernels (" +
                  llvm::toString(std::move(e)) + ")";
      auto ms = leastMilliseconds(gpuSamples, [&] { return copy(bytes / 2); });
      if (!ms)
        return ms.takeError();
      peak.bytesPerSecond = double(bytes) / *ms * 1e3;
      return peak;
    }
    auto read = leastMilliseconds(gpuSamples, [&] { return this->read(bytes); });
    if (!read)
      return read.takeError();
    double flops = 0;
    auto work = leastMilliseconds(gpuSamples, [&] { return half ? products(flops) : fma(flops); });
    if (!work)
      return work.takeError();
    return Peak{double(bytes) / *read * 1e3, flops / *work * 1e3,
                half ? "reading memory; products in fp16"
                     : "reading memory; multiply-adds in fp32"};
  }

private:
  llvm::Error loadKernels() {
    auto nvrtc = Nvrtc::load();
    if (!nvrtc)
      return nvrtc.takeError();
    KernelCache cache(KernelCache::defaultFolder());
    auto images =
        buildKernels(**nvrtc, {{"peak.cu", source}}, {{archOf(device_->capability())}}, cache);
    if (!images)
      return images.takeError();
    auto module = device_->loadModule(std::as_bytes(std::span(images->front())), "peak.cu");
    if (!module)
      return toError(module.status());
    module_ = module.take();
    return llvm::Error::success();
  }

  rt::Result<double> timed(llvm::function_ref<rt::Status()> work) {
    if (rt::Status s = timer_.start(); !s.ok())
      return s;
    if (rt::Status s = work(); !s.ok())
      return s;
    if (rt::Status s = timer_.stop(); !s.ok())
      return s;
    if (rt::Status s = device_->synchronize(); !s.ok())
      return s;
    return timer_.milliseconds();
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
    return timed([&] { return device_->launch(launch, arguments.data()); });
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
    return timed([&] {
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

double millisecondsOf(llvm::function_ref<void()> work) {
  auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
      .count();
}

llvm::Expected<Peak> cpuPeak() {
  const size_t threads = openblas_get_num_threads();
  constexpr size_t perThread = size_t(16) << 20; // 128 MiB: no cache holds it
  std::vector<uint64_t> data(threads * perThread, 1);
  std::vector<uint64_t> sums(threads);
  auto read = leastMilliseconds(cpuSamples, [&]() -> rt::Result<double> {
    return millisecondsOf([&] {
      std::vector<std::thread> workers;
      for (size_t t = 0; t < threads; ++t)
        workers.emplace_back([&, t] {
          uint64_t sum = 0;
          for (size_t i = t * perThread; i < (t + 1) * perThread; ++i)
            sum += data[i];
          sums[t] = sum;
        });
      for (std::thread &w : workers)
        w.join();
    });
  });
  if (!read)
    return read.takeError();
  constexpr int n = 1024;
  std::vector<float> a(n * n, 0.5f), b(n * n, 0.25f), c(n * n);
  auto product = leastMilliseconds(cpuSamples, [&]() -> rt::Result<double> {
    return millisecondsOf([&] {
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, n, n, n, 1, a.data(), n, b.data(), n, 0,
                  c.data(), n);
    });
  });
  if (!product)
    return product.takeError();
  return Peak{double(data.size()) * 8 / *read * 1e3, 2.0 * n * n * n / *product * 1e3,
              "summing an array with all threads; a product of 1024 x 1024 in fp32"};
}

} // namespace

llvm::Expected<Peak> measurePeak(const rt::Backend &backend, llvm::StringRef precision) {
  if (backend.kind() != "cuda")
    return cpuPeak();
  auto device = CudaDevice::open();
  if (!device)
    return toError(device.status());
  return GpuPeak(*device).measure(precision != "fp32");
}

} // namespace gpt2c
