// A libcuda.so.1 with one GPU of compute capability 9.0, which is emulated: docs/adding-a-kernel.md
// says how to use it. What goes wrong in a kernel is told on stderr, and is error 700 of a call.
#include "Machine.h"

#include "runtime/cuda/CudaApi.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <set>

using namespace gpt2c::rt::cuda;
using namespace gpt2c::emulated;

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr CUresult kInvalidValue = 1, kIllegalAddress = 700, kNotFound = 500;

size_t numberOf(const char *variable, size_t otherwise) {
  const char *text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}
size_t memory() { return numberOf("GPT2C_EMULATED_BYTES", size_t(1) << 30); }
int processors() { return int(numberOf("GPT2C_EMULATED_PROCESSORS", 132)); }

Machine &machine() {
  static Machine m(numberOf("GPT2C_EMULATED_SEED", 1));
  return m;
}
/// Ends what was launched.
CUresult finish() {
  try {
    machine().finish();
    return kSuccess;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "emulated GPU: %s\n", error.what());
    return kIllegalAddress;
  }
}

std::map<void *, size_t> allocated;
size_t used = 0;

CUresult allocate(void **to, size_t bytes) {
  if (used + bytes > memory())
    return kOutOfMemory;
  *to = std::aligned_alloc(512, (bytes + 1023) / 512 * 512);
  std::memset(*to, 0xc5, bytes); // what nobody writes is anything
  machine().allocate(*to, bytes);
  allocated[*to] = bytes;
  used += bytes;
  return kSuccess;
}
CUresult release(void *memory) {
  if (!memory)
    return kSuccess;
  const CUresult result = finish();
  auto it = allocated.find(memory);
  if (it == allocated.end())
    return kInvalidValue;
  machine().free(memory);
  used -= it->second;
  allocated.erase(it);
  std::free(memory);
  return result;
}

using Work = std::function<CUresult()>;

} // namespace

namespace gpt2c::rt::cuda {
struct CUgraphTag {
  std::vector<Work> work;
};
struct CUgraphExecTag {
  std::vector<Work> work;
};
struct CUstreamTag {
  std::unique_ptr<CUgraphTag> capture;
};
struct CUeventTag {
  std::chrono::steady_clock::time_point at;
};
struct CUfunctionTag {
  Function *function;
};
struct CUmoduleTag {
  explicit CUmoduleTag(const std::string &text) : module(text) {}
  Module module;
  std::map<std::string, CUfunctionTag> functions;
};
} // namespace gpt2c::rt::cuda

namespace {

CUstreamTag defaultStream;
/// Does it now, or when the graph that is captured is launched. All but launches follow the end of
/// what is in front of them.
CUresult perform(CUstream stream, Work work, bool isLaunch = false) {
  CUstreamTag &s = stream ? *stream : defaultStream;
  if (!isLaunch)
    work = [work = std::move(work)] {
      const CUresult result = finish();
      return result == kSuccess ? work() : result;
    };
  if (!s.capture)
    return work();
  s.capture->work.push_back(std::move(work));
  return kSuccess;
}
CUresult performAll(const std::vector<Work> &list) {
  for (const Work &work : list)
    if (CUresult result = work(); result != kSuccess)
      return result;
  return kSuccess;
}

} // namespace

EXPORT CUresult cuInit(unsigned) { return kSuccess; }
EXPORT CUresult cuDriverGetVersion(int *version) { return *version = 13000, kSuccess; }
EXPORT CUresult cuGetErrorName(CUresult result, const char **name) {
  *name = result == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR";
  return kSuccess;
}
EXPORT CUresult cuGetErrorString(CUresult, const char **s) {
  return *s = "the emulated GPU refuses", kSuccess;
}
/// NVRTC asks for one where there is a driver.
EXPORT CUresult cuGetExportTable(const void **table, const void *) {
  return *table = nullptr, kNotFound;
}
EXPORT CUresult cuDeviceGetCount(int *count) { return *count = 1, kSuccess; }
EXPORT CUresult cuDeviceGet(CUdevice *device, int n) {
  return *device = n, n == 0 ? kSuccess : kInvalidValue;
}
EXPORT CUresult cuDeviceGetName(char *name, int bytes, CUdevice) {
  return std::snprintf(name, size_t(bytes), "emulated GPU"), kSuccess;
}
EXPORT CUresult cuDeviceGetPCIBusId(char *id, int bytes, CUdevice) {
  return std::snprintf(id, size_t(bytes), "0000:00:00.0"), kSuccess;
}
EXPORT CUresult cuDeviceGetAttribute(int *value, int which, CUdevice) {
  *value = which == kCapabilityMajor          ? 9
           : which == kCapabilityMinor        ? 0
           : which == kMultiprocessorCount    ? processors()
           : which == kMaxSharedPerBlockOptin ? 227 * 1024
           : which == kL2CacheSize            ? 50 << 20
           : which == kCooperativeLaunch      ? 1
           : which == kMemoryClockRate        ? 1000000
           : which == kMemoryBusWidth         ? 1024
                                              : 0;
  return kSuccess;
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *to, CUdevice) {
  static int context;
  return *to = reinterpret_cast<CUcontext>(&context), kSuccess;
}
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return kSuccess; }
EXPORT CUresult cuCtxSetCurrent(CUcontext) { return kSuccess; }

EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
  *total = memory();
  *free = *total - std::min(*total, used);
  return kSuccess;
}
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *to, size_t bytes) {
  void *at = nullptr;
  const CUresult result = allocate(&at, bytes);
  *to = reinterpret_cast<CUdeviceptr>(at);
  return result;
}
EXPORT CUresult cuMemFree_v2(CUdeviceptr at) { return release(reinterpret_cast<void *>(at)); }
EXPORT CUresult cuMemHostAlloc(void **to, size_t bytes, unsigned) { return allocate(to, bytes); }
EXPORT CUresult cuMemFreeHost(void *at) { return release(at); }

static CUresult copy(void *to, const void *from, size_t bytes, CUstream stream) {
  return perform(stream, [=] { return std::memmove(to, from, bytes), kSuccess; });
}
EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t n, CUstream s) {
  return copy(reinterpret_cast<void *>(to), from, n, s);
}
EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t n, CUstream s) {
  return copy(to, reinterpret_cast<void *>(from), n, s);
}
EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
  return copy(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), n, s);
}
EXPORT CUresult cuMemcpy2DAsync_v2(const Copy2D *given, CUstream s) {
  const Copy2D c = *given;
  return perform(s, [c] {
    auto *to = c.toMemory == Copy2D::kHost ? static_cast<char *>(c.toHost)
                                           : reinterpret_cast<char *>(c.toDevice);
    const auto *from = c.fromMemory == Copy2D::kHost ? static_cast<const char *>(c.fromHost)
                                                     : reinterpret_cast<const char *>(c.fromDevice);
    for (size_t row = 0; row < c.height; ++row)
      std::memcpy(to + (row + c.toY) * c.toPitch + c.toX,
                  from + (row + c.fromY) * c.fromPitch + c.fromX, c.width);
    return kSuccess;
  });
}
EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t n, CUstream s) {
  return perform(s, [=] { return std::memset(reinterpret_cast<void *>(to), value, n), kSuccess; });
}

EXPORT CUresult cuStreamCreate(CUstream *to, unsigned) { return *to = new CUstreamTag, kSuccess; }
EXPORT CUresult cuStreamDestroy_v2(CUstream s) { return delete s, kSuccess; }
EXPORT CUresult cuStreamSynchronize(CUstream) { return finish(); }
EXPORT CUresult cuStreamQuery(CUstream) { return finish(); }
EXPORT CUresult cuStreamBeginCapture_v2(CUstream s, int) {
  return s->capture = std::make_unique<CUgraphTag>(), kSuccess;
}
EXPORT CUresult cuStreamEndCapture(CUstream s, CUgraph *to) {
  return *to = s->capture.release(), kSuccess;
}
EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *to, CUgraph graph, unsigned long long) {
  return *to = new CUgraphExecTag{graph->work}, kSuccess;
}
EXPORT CUresult cuGraphLaunch(CUgraphExec graph, CUstream s) {
  // The host may look for results without another call.
  return perform(
      s,
      [work = graph->work] {
        const CUresult result = performAll(work);
        return result == kSuccess ? finish() : result;
      },
      true);
}
EXPORT CUresult cuGraphExecDestroy(CUgraphExec graph) { return delete graph, kSuccess; }
EXPORT CUresult cuGraphDestroy(CUgraph graph) { return delete graph, kSuccess; }
EXPORT CUresult cuEventCreate(CUevent *to, unsigned) { return *to = new CUeventTag, kSuccess; }
EXPORT CUresult cuEventDestroy_v2(CUevent e) { return delete e, kSuccess; }
EXPORT CUresult cuEventRecord(CUevent e, CUstream s) {
  return perform(s, [e] { return e->at = std::chrono::steady_clock::now(), kSuccess; });
}
EXPORT CUresult cuEventRecordWithFlags(CUevent e, CUstream s, unsigned) {
  return cuEventRecord(e, s);
}
EXPORT CUresult cuEventSynchronize(CUevent) { return finish(); }
EXPORT CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
  return *ms = std::chrono::duration<float, std::milli>(to->at - from->at).count(), kSuccess;
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *to, const void *image, unsigned, int *, void **) {
  const char *text = static_cast<const char *>(image);
  if (std::strncmp(text, "//", 2) != 0 && std::strncmp(text, ".version", 8) != 0)
    return kNoBinaryForGpu;
  try {
    auto *module = new CUmoduleTag(text);
    for (auto &[name, function] : module->module.functions)
      module->functions[name] = {&function};
    for (const std::vector<char> &global : module->module.globals)
      machine().allocate(global.data(), global.size());
    return *to = module, kSuccess;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "emulated GPU: %s\n", error.what());
    return kUnsupportedPtxVersion;
  }
}
EXPORT CUresult cuModuleUnload(CUmodule module) {
  const CUresult result = finish();
  for (const std::vector<char> &global : module->module.globals)
    machine().free(global.data());
  return delete module, result;
}
EXPORT CUresult cuModuleGetFunction(CUfunction *to, CUmodule module, const char *name) {
  auto it = module->functions.find(name);
  if (it == module->functions.end())
    return kNotFound;
  return *to = &it->second, kSuccess;
}
EXPORT CUresult cuFuncSetAttribute(CUfunction, int, int) { return kSuccess; }
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *to, CUfunction, int, size_t) {
  return *to = 1, kSuccess;
}
EXPORT CUresult cuOccupancyMaxActiveClusters(int *to, CUfunction f, const LaunchConfig *config) {
  const unsigned *size = f->function->cluster;
  unsigned blocks = size[0] * size[1] * size[2];
  for (unsigned i = 0; i < config->attributeCount; ++i)
    if (config->attributes[i].id == kClusterDimension) {
      const auto &given = config->attributes[i].value.cluster;
      blocks = given.x * given.y * given.z;
    }
  return *to = processors() / int(blocks), kSuccess;
}

EXPORT CUresult cuLaunchKernelEx(const LaunchConfig *config, CUfunction f, void **arguments,
                                 void **) {
  const Function &kernel = *f->function;
  std::vector<char> params(kernel.paramBytes);
  for (size_t i = 0; i < kernel.params.size(); ++i)
    std::memcpy(params.data() + kernel.params[i].at, arguments[i], kernel.params[i].bytes);
  Grid grid{{config->gridX, config->gridY, config->gridZ},
            config->blockX * config->blockY * config->blockZ,
            config->sharedBytes};
  std::copy(kernel.cluster, kernel.cluster + 3, grid.cluster);
  for (unsigned i = 0; i < config->attributeCount; ++i) {
    const LaunchAttribute &a = config->attributes[i];
    if (a.id == kCooperative) {
      grid.together = a.value.flag;
    } else if (a.id == kProgrammaticStreamSerialization) {
      grid.overlaps = a.value.flag;
    } else if (a.id == kClusterDimension) {
      const unsigned size[] = {a.value.cluster.x, a.value.cluster.y, a.value.cluster.z};
      std::copy(size, size + 3, grid.cluster);
    }
  }
  auto launch = [&kernel, grid, params]() -> CUresult {
    if (std::getenv("GPT2C_EMULATED_TRACE"))
      std::fprintf(stderr, "emulated GPU: %s, %u x %u x %u blocks of %u\n", kernel.name.c_str(),
                   grid.blocks[0], grid.blocks[1], grid.blocks[2], grid.threads);
    try {
      machine().launch(kernel, grid, params);
      return kSuccess;
    } catch (const std::exception &error) {
      std::fprintf(stderr, "emulated GPU: %s\n", error.what());
      return kIllegalAddress;
    }
  };
  return perform(config->stream, launch, true);
}

/// Of types uint16 to bfloat16 those that are used: 0 bytes, 6 halves, 7 floats, 9 bfloats.
EXPORT CUresult cuTensorMapEncodeTiled(TensorMap *to, int type, unsigned rank, void *address,
                                       const uint64_t *sizes, const uint64_t *strides,
                                       const unsigned *box, const unsigned *, int, int swizzle, int,
                                       int) {
  const uint32_t bytes = type == 0 ? 1 : type == 7 || type == 2 || type == 3 ? 4 : 2;
  if (rank < 2 || rank > 3 || uint64_t(address) % 16 != 0)
    return kInvalidValue;
  Tensor map{uint64_t(address), rank, bytes, {}, {}, {}, swizzle != 0};
  map.strides[0] = bytes;
  for (unsigned k = 0; k < rank; ++k) {
    map.sizes[k] = sizes[k];
    map.box[k] = box[k];
    if (k > 0)
      map.strides[k] = strides[k - 1];
    if (box[k] == 0 || box[k] > 256 || sizes[k] == 0 || map.strides[k] % (k ? 16 : 1) != 0)
      return kInvalidValue;
  }
  std::memcpy(to->opaque, &map, sizeof(map));
  return kSuccess;
}
