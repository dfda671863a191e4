// The part of the CUDA driver API that the runtime calls, declared here and found in libcuda.so.1
// at run time, so that binaries build without CUDA and start on machines without a GPU.
#pragma once

#include "runtime/Status.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace gpt2c::rt::cuda {

using CUresult = int;
using CUdevice = int;
using CUdeviceptr = uint64_t;
using CUcontext = struct CUcontextTag *;
using CUmodule = struct CUmoduleTag *;
using CUfunction = struct CUfunctionTag *;
using CUstream = struct CUstreamTag *;
using CUevent = struct CUeventTag *;
using CUgraph = struct CUgraphTag *;
using CUgraphExec = struct CUgraphExecTag *;

enum : CUresult {
  kSuccess = 0,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kNoBinaryForGpu = 209,
  kUnsupportedPtxVersion = 222,
  kNotReady = 600,
  kPeerAccessAlreadyEnabled = 704,
};
enum DeviceAttribute : int {
  kMaxSharedPerBlockOptin = 97,
  kMultiprocessorCount = 16,
  kCapabilityMajor = 75,
  kCapabilityMinor = 76,
  kMemoryClockRate = 36, // kHz
  kMemoryBusWidth = 37,  // bits
  kL2CacheSize = 38,
  kCooperativeLaunch = 95,
  kHostNumaId = 134, // the host's node that is nearest; -1: there are none
};
enum FunctionAttribute : int { kMaxDynamicSharedSize = 8 };

struct LaunchAttribute {
  int id;
  int pad;
  union {
    char bytes[64];
    int flag;
    struct {
      unsigned x, y, z;
    } cluster;
  } value;
};
enum LaunchAttributeId : int {
  kCooperative = 2,
  kClusterDimension = 4,
  kProgrammaticStreamSerialization = 6
};
static_assert(sizeof(LaunchAttribute) == 72);

struct LaunchConfig {
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  CUstream stream;
  LaunchAttribute *attributes;
  unsigned attributeCount;
};

/// Where memory is, or from where it is used.
struct MemoryLocation {
  int type, id;
};
struct AllocationProperties {
  int type = 0;
  int handleTypes = 0;
  MemoryLocation location = {};
  void *metadata = nullptr;
  unsigned char flags[8] = {};
};
static_assert(sizeof(AllocationProperties) == 32);
struct AccessDescription {
  MemoryLocation location;
  int flags;
};

/// A copy of `height` rows of `width` bytes, each row a pitch after the last. Unused members stay
/// zero.
struct Copy2D {
  enum Memory : unsigned { kHost = 1, kDevice = 2 };
  size_t fromX = 0, fromY = 0;
  Memory fromMemory = kHost;
  const void *fromHost = nullptr;
  CUdeviceptr fromDevice = 0;
  void *fromArray = nullptr;
  size_t fromPitch = 0;
  size_t toX = 0, toY = 0;
  Memory toMemory = kHost;
  void *toHost = nullptr;
  CUdeviceptr toDevice = 0;
  void *toArray = nullptr;
  size_t toPitch = 0;
  size_t width = 0, height = 0;
};
static_assert(sizeof(Copy2D) == 128);

/// A CUtensorMap: where a matrix lies and how TMA takes boxes out of it.
struct alignas(64) TensorMap {
  uint64_t opaque[16] = {};
};

// X(member, symbol in libcuda.so.1, parameter types)
#define GPT2C_CUDA_FUNCTIONS(X)                                                                    \
  X(init, cuInit, (unsigned))                                                                      \
  X(driverGetVersion, cuDriverGetVersion, (int *))                                                 \
  X(getErrorName, cuGetErrorName, (CUresult, const char **))                                       \
  X(getErrorString, cuGetErrorString, (CUresult, const char **))                                   \
  X(deviceGetCount, cuDeviceGetCount, (int *))                                                     \
  X(deviceGet, cuDeviceGet, (CUdevice *, int))                                                     \
  X(deviceGetName, cuDeviceGetName, (char *, int, CUdevice))                                       \
  X(deviceGetAttribute, cuDeviceGetAttribute, (int *, int, CUdevice))                              \
  X(deviceGetPciBusId, cuDeviceGetPCIBusId, (char *, int, CUdevice))                               \
  X(primaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext *, CUdevice))                           \
  X(primaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice))                                   \
  X(ctxSetCurrent, cuCtxSetCurrent, (CUcontext))                                                   \
  X(deviceCanAccessPeer, cuDeviceCanAccessPeer, (int *, CUdevice, CUdevice))                       \
  X(ctxEnablePeerAccess, cuCtxEnablePeerAccess, (CUcontext, unsigned))                             \
  X(memGetInfo, cuMemGetInfo_v2, (size_t *, size_t *))                                             \
  X(memAlloc, cuMemAlloc_v2, (CUdeviceptr *, size_t))                                              \
  X(memFree, cuMemFree_v2, (CUdeviceptr))                                                          \
  X(memHostAlloc, cuMemHostAlloc, (void **, size_t, unsigned))                                     \
  X(memFreeHost, cuMemFreeHost, (void *))                                                          \
  X(memGetAllocationGranularity, cuMemGetAllocationGranularity,                                    \
    (size_t *, const AllocationProperties *, int))                                                 \
  X(memAddressReserve, cuMemAddressReserve,                                                        \
    (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))                              \
  X(memAddressFree, cuMemAddressFree, (CUdeviceptr, size_t))                                       \
  X(memCreate, cuMemCreate,                                                                        \
    (uint64_t *, size_t, const AllocationProperties *, unsigned long long))                        \
  X(memRelease, cuMemRelease, (uint64_t))                                                          \
  X(memMap, cuMemMap, (CUdeviceptr, size_t, size_t, uint64_t, unsigned long long))                 \
  X(memUnmap, cuMemUnmap, (CUdeviceptr, size_t))                                                   \
  X(memSetAccess, cuMemSetAccess, (CUdeviceptr, size_t, const AccessDescription *, size_t))        \
  X(memAllocManaged, cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned))                         \
  X(memAdvise, cuMemAdvise, (CUdeviceptr, size_t, int, int))                                       \
  X(memcpyAsync, cuMemcpyAsync, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                      \
  X(memcpyHtoDAsync, cuMemcpyHtoDAsync_v2, (CUdeviceptr, const void *, size_t, CUstream))          \
  X(memcpyDtoHAsync, cuMemcpyDtoHAsync_v2, (void *, CUdeviceptr, size_t, CUstream))                \
  X(memcpyDtoDAsync, cuMemcpyDtoDAsync_v2, (CUdeviceptr, CUdeviceptr, size_t, CUstream))           \
  X(memcpy2DAsync, cuMemcpy2DAsync_v2, (const Copy2D *, CUstream))                                 \
  X(memsetD8Async, cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                \
  X(streamCreate, cuStreamCreate, (CUstream *, unsigned))                                          \
  X(streamDestroy, cuStreamDestroy_v2, (CUstream))                                                 \
  X(streamSynchronize, cuStreamSynchronize, (CUstream))                                            \
  X(streamQuery, cuStreamQuery, (CUstream))                                                        \
  X(streamWaitEvent, cuStreamWaitEvent, (CUstream, CUevent, unsigned))                             \
  X(streamBeginCapture, cuStreamBeginCapture_v2, (CUstream, int))                                  \
  X(streamEndCapture, cuStreamEndCapture, (CUstream, CUgraph *))                                   \
  X(graphInstantiate, cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long))   \
  X(graphUpload, cuGraphUpload, (CUgraphExec, CUstream))                                           \
  X(graphLaunch, cuGraphLaunch, (CUgraphExec, CUstream))                                           \
  X(graphExecDestroy, cuGraphExecDestroy, (CUgraphExec))                                           \
  X(graphDestroy, cuGraphDestroy, (CUgraph))                                                       \
  X(eventCreate, cuEventCreate, (CUevent *, unsigned))                                             \
  X(eventDestroy, cuEventDestroy_v2, (CUevent))                                                    \
  X(eventRecord, cuEventRecord, (CUevent, CUstream))                                               \
  X(eventRecordWithFlags, cuEventRecordWithFlags, (CUevent, CUstream, unsigned))                   \
  X(eventSynchronize, cuEventSynchronize, (CUevent))                                               \
  X(eventQuery, cuEventQuery, (CUevent))                                                           \
  X(eventElapsedTime, cuEventElapsedTime, (float *, CUevent, CUevent))                             \
  X(moduleLoadDataEx, cuModuleLoadDataEx, (CUmodule *, const void *, unsigned, int *, void **))    \
  X(moduleUnload, cuModuleUnload, (CUmodule))                                                      \
  X(moduleGetFunction, cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                \
  X(moduleGetGlobal, cuModuleGetGlobal_v2, (CUdeviceptr *, size_t *, CUmodule, const char *))      \
  X(funcSetAttribute, cuFuncSetAttribute, (CUfunction, int, int))                                  \
  X(occupancyMaxActiveBlocks, cuOccupancyMaxActiveBlocksPerMultiprocessor,                         \
    (int *, CUfunction, int, size_t))                                                              \
  X(occupancyMaxActiveClusters, cuOccupancyMaxActiveClusters,                                      \
    (int *, CUfunction, const LaunchConfig *))                                                     \
  X(launchKernelEx, cuLaunchKernelEx, (const LaunchConfig *, CUfunction, void **, void **))        \
  X(tensorMapEncodeTiled, cuTensorMapEncodeTiled,                                                  \
    (TensorMap *, int, unsigned, void *, const uint64_t *, const uint64_t *, const unsigned *,     \
     const unsigned *, int, int, int, int))

/// The driver's functions. Opened once per process; never closed.
struct CudaApi {
#define GPT2C_MEMBER(member, symbol, parameters) CUresult(*member) parameters = nullptr;
  GPT2C_CUDA_FUNCTIONS(GPT2C_MEMBER)
#undef GPT2C_MEMBER

  /// The driver, initialised; Code::Incompatible with a way out when there is none or it is too
  /// old.
  static Result<const CudaApi *> get();

  /// Ok, or Code::Cuda with the call's name and the driver's own words.
  Status check(CUresult result, const char *call) const;
  std::string describe(CUresult result) const;
};

} // namespace gpt2c::rt::cuda

/// Returns from the enclosing function when a driver call fails: GPT2C_CUDA(api, memFree, pointer).
#define GPT2C_CUDA(api, member, ...)                                                               \
  do {                                                                                             \
    if (::gpt2c::rt::Status gpt2cStatus =                                                          \
            (api).check((api).member(__VA_ARGS__), ::gpt2c::rt::cuda::symbolOf_##member);          \
        !gpt2cStatus.ok())                                                                         \
      return gpt2cStatus;                                                                          \
  } while (false)

namespace gpt2c::rt::cuda {
#define GPT2C_SYMBOL(member, symbol, parameters)                                                   \
  inline constexpr const char *symbolOf_##member = #symbol;
GPT2C_CUDA_FUNCTIONS(GPT2C_SYMBOL)
#undef GPT2C_SYMBOL
} // namespace gpt2c::rt::cuda
