#include "tools/gpt2c/Gpu.h"

#include "codegen/Codegen.h"
#include "ir/Error.h"
#include "runtime/cuda/CudaBackend.h"
#include "runtime/cuda/CudaDevice.h"
#include "tools/common/flags/CommandLine.h"

namespace gpt2c {

namespace cl = llvm::cl;

static cl::opt<std::string>
    device("device",
           cl::desc("Where --calibration and --eval run: cuda (the first GPU), cuda:N, cpu, or "
                    "auto: the GPU where there is one, else the CPU (default). --tune times on "
                    "that GPU, --gpu-arch=native is its architecture"),
           cl::value_desc("auto|cuda|cuda:N|cpu"), cl::init("auto"), cl::cat(toolCategory()));

llvm::Expected<DeviceName> deviceFlag() { return parseDeviceName(device); }

llvm::Expected<std::string> nativeArch(const DeviceName &name) {
  auto gpu = rt::cuda::CudaDevice::open(name.ordinal);
  if (gpu)
    return archOf((*gpu)->capability());
  // What runs plans has devices; what compiles them has this.
  const rt::Status status = gpu.status();
  llvm::StringRef why = status.message();
  why = why.split(", or run without").first.split(". Without a GPU").first;
  return makeError(ExitCode(int(status.code())),
                   why + ", or name architectures: --gpu-arch=sm_90a for example, "
                         "--gpu-arch=none for a plan that runs on the CPU");
}

std::function<rt::Result<std::unique_ptr<rt::Backend>>(rt::Plan::Ptr)>
gpuOf(const DeviceName &name) {
  return [ordinal = name.ordinal](rt::Plan::Ptr plan) {
    return rt::makeCudaBackendOn(std::move(plan), ordinal);
  };
}

} // namespace gpt2c
