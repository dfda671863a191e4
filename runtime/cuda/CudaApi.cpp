#include "runtime/cuda/CudaApi.h"

#include <dlfcn.h>

namespace gpt2c::rt::cuda {

namespace {
constexpr const char *wayOut =
    "Install an NVIDIA driver (525 or newer), or run without a GPU: on the device 'cpu'.";

Result<const CudaApi *> open() {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return {Code::Incompatible,
            std::string("no NVIDIA driver found (") + dlerror() + "). " + wayOut};
  static CudaApi api;
  std::string missing;
#define GPT2C_BIND(member, symbol, parameters)                                                     \
  api.member = reinterpret_cast<decltype(api.member)>(dlsym(library, #symbol));                    \
  if (!api.member)                                                                                 \
    missing += " " #symbol;
  GPT2C_CUDA_FUNCTIONS(GPT2C_BIND)
#undef GPT2C_BIND
  if (!missing.empty())
    return {Code::Incompatible,
            "the NVIDIA driver is too old: libcuda.so.1 lacks" + missing + ". " + wayOut};
  if (CUresult result = api.init(0); result != kSuccess) {
    int version = 0;
    api.driverGetVersion(&version);
    return {Code::Incompatible, "cuInit failed: " + api.describe(result) + " (driver for CUDA " +
                                    std::to_string(version / 1000) + "." +
                                    std::to_string(version % 1000 / 10) + "). " + wayOut};
  }
  return &api;
}
} // namespace

Result<const CudaApi *> CudaApi::get() {
  static const Result<const CudaApi *> result = open();
  return result;
}

std::string CudaApi::describe(CUresult result) const {
  const char *name = nullptr, *text = nullptr;
  if (getErrorName(result, &name) != kSuccess || !name)
    name = "unknown error";
  if (getErrorString(result, &text) != kSuccess || !text)
    text = "no description";
  return std::string(name) + " (" + std::to_string(result) + "): " + text;
}

Status CudaApi::check(CUresult result, const char *call) const {
  if (result == kSuccess)
    return {};
  return {result == kOutOfMemory ? Code::OutOfMemory : Code::Cuda,
          std::string(call) + " failed: " + describe(result)};
}

} // namespace gpt2c::rt::cuda
