// A libcuda.so.1 with one GPU that computes nothing, for what goes wrong ahead of any kernel. Its
// memory is $GPT2C_FAKE_CUDA_BYTES (default: 0) bytes of the host's; cuInit fails with
// $GPT2C_FAKE_CUDA_INIT where that is set. Built with GPT2C_FAKE_CUDA_OLD it lacks a function, as a
// driver from before that was made.
#include "runtime/cuda/CudaApi.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace gpt2c::rt::cuda;

namespace {
size_t numberOf(const char *variable) {
  const char *text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : 0;
}
size_t used = 0;
} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT CUresult cuInit(unsigned) { return CUresult(numberOf("GPT2C_FAKE_CUDA_INIT")); }
EXPORT CUresult cuDriverGetVersion(int *version) { return *version = 12040, kSuccess; }
EXPORT CUresult cuGetErrorName(CUresult, const char **name) { return *name = "NAME", kSuccess; }
EXPORT CUresult cuGetErrorString(CUresult, const char **s) { return *s = "its reason", kSuccess; }
EXPORT CUresult cuDeviceGetCount(int *count) { return *count = 1, kSuccess; }
EXPORT CUresult cuDeviceGet(CUdevice *device, int n) { return *device = n, kSuccess; }
EXPORT CUresult cuDeviceGetName(char *name, int bytes, CUdevice) {
  return std::strncpy(name, "Fake GPU", size_t(bytes)), kSuccess;
}
/// Compute capability 9.0, and much of everything.
EXPORT CUresult cuDeviceGetAttribute(int *value, int which, CUdevice) {
  *value = which == kCapabilityMajor       ? 9
           : which == kCapabilityMinor     ? 0
           : which == kMultiprocessorCount ? 132
                                           : 232448;
  return kSuccess;
}
EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
  *total = numberOf("GPT2C_FAKE_CUDA_BYTES");
  *free = *total - std::min(*total, used);
  return kSuccess;
}
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *to, size_t bytes) {
  if (used + bytes > numberOf("GPT2C_FAKE_CUDA_BYTES"))
    return kOutOfMemory;
  used += bytes;
  return *to = reinterpret_cast<CUdeviceptr>(std::malloc(bytes)), kSuccess;
}
EXPORT CUresult cuMemHostAlloc(void **to, size_t bytes, unsigned) {
  return *to = std::malloc(bytes), kSuccess;
}
#ifndef GPT2C_FAKE_CUDA_OLD
EXPORT CUresult cuTensorMapEncodeTiled(TensorMap *, int, unsigned, void *, const uint64_t *,
                                       const uint64_t *, const unsigned *, const unsigned *, int,
                                       int, int, int) {
  return kSuccess;
}
#endif

// Handles stay as the caller has them: nobody looks into one.
#define FAKE(symbol, ...)                                                                          \
  EXPORT CUresult symbol(__VA_ARGS__) { return kSuccess; }
FAKE(cuDeviceGetPCIBusId, char *, int, CUdevice)
FAKE(cuDevicePrimaryCtxRetain, CUcontext *, CUdevice)
FAKE(cuDevicePrimaryCtxRelease_v2, CUdevice)
FAKE(cuCtxSetCurrent, CUcontext)
FAKE(cuDeviceCanAccessPeer, int *, CUdevice, CUdevice)
FAKE(cuCtxEnablePeerAccess, CUcontext, unsigned)
FAKE(cuMemFree_v2, CUdeviceptr)
FAKE(cuMemGetAllocationGranularity, size_t *, const AllocationProperties *, int)
FAKE(cuMemAddressReserve, CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long)
FAKE(cuMemAddressFree, CUdeviceptr, size_t)
FAKE(cuMemCreate, uint64_t *, size_t, const AllocationProperties *, unsigned long long)
FAKE(cuMemRelease, uint64_t)
FAKE(cuMemMap, CUdeviceptr, size_t, size_t, uint64_t, unsigned long long)
FAKE(cuMemUnmap, CUdeviceptr, size_t)
FAKE(cuMemSetAccess, CUdeviceptr, size_t, const AccessDescription *, size_t)
FAKE(cuMemAllocManaged, CUdeviceptr *, size_t, unsigned)
FAKE(cuMemAdvise, CUdeviceptr, size_t, int, int)
FAKE(cuMemcpyAsync, CUdeviceptr, CUdeviceptr, size_t, CUstream)
FAKE(cuMemFreeHost, void *)
FAKE(cuMemcpyHtoDAsync_v2, CUdeviceptr, const void *, size_t, CUstream)
FAKE(cuMemcpyDtoHAsync_v2, void *, CUdeviceptr, size_t, CUstream)
FAKE(cuMemcpyDtoDAsync_v2, CUdeviceptr, CUdeviceptr, size_t, CUstream)
FAKE(cuMemcpy2DAsync_v2, const Copy2D *, CUstream)
FAKE(cuMemsetD8Async, CUdeviceptr, unsigned char, size_t, CUstream)
FAKE(cuStreamCreate, CUstream *, unsigned)
FAKE(cuStreamDestroy_v2, CUstream)
FAKE(cuStreamSynchronize, CUstream)
FAKE(cuStreamQuery, CUstream)
FAKE(cuStreamWaitEvent, CUstream, CUevent, unsigned)
FAKE(cuStreamBeginCapture_v2, CUstream, int)
FAKE(cuStreamEndCapture, CUstream, CUgraph *)
FAKE(cuGraphInstantiateWithFlags, CUgraphExec *, CUgraph, unsigned long long)
FAKE(cuGraphUpload, CUgraphExec, CUstream)
FAKE(cuGraphLaunch, CUgraphExec, CUstream)
FAKE(cuGraphExecDestroy, CUgraphExec)
FAKE(cuGraphDestroy, CUgraph)
FAKE(cuEventCreate, CUevent *, unsigned)
FAKE(cuEventDestroy_v2, CUevent)
FAKE(cuEventRecord, CUevent, CUstream)
FAKE(cuEventRecordWithFlags, CUevent, CUstream, unsigned)
FAKE(cuEventSynchronize, CUevent)
FAKE(cuEventQuery, CUevent)
FAKE(cuEventElapsedTime, float *, CUevent, CUevent)
FAKE(cuModuleLoadDataEx, CUmodule *, const void *, unsigned, int *, void **)
FAKE(cuModuleUnload, CUmodule)
FAKE(cuModuleGetFunction, CUfunction *, CUmodule, const char *)
FAKE(cuModuleGetGlobal_v2, CUdeviceptr *, size_t *, CUmodule, const char *)
FAKE(cuFuncSetAttribute, CUfunction, int, int)
FAKE(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *, CUfunction, int, size_t)
FAKE(cuOccupancyMaxActiveClusters, int *, CUfunction, const LaunchConfig *)
FAKE(cuLaunchKernelEx, const LaunchConfig *, CUfunction, void **, void **)
