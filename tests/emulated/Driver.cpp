// A libcuda.so.1 with a GPU of compute capability 9.0, or as many as $GPT2C_EMULATED_DEVICES says,
// which are emulated: docs/adding-a-kernel.md says how to use it. What goes wrong in a kernel is
// told on stderr, and is error 700 of a call.
#include "Machine.h"

#include "runtime/cuda/CudaApi.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>

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

constexpr int mostDevices = 8;
int devices() {
  return int(std::clamp<size_t>(numberOf("GPT2C_EMULATED_DEVICES", 1), 1, mostDevices));
}

/// One thread at a time is in the driver; one that waits for kernels lets others in now and then,
/// in the order in which they come.
class Gate {
public:
  void lock() {
    std::unique_lock lock(mutex_);
    const uint64_t mine = next_++;
    turned_.wait(lock, [&] { return turn_ == mine; });
  }
  void unlock() {
    const std::lock_guard lock(mutex_);
    ++turn_;
    turned_.notify_all();
  }

private:
  std::mutex mutex_;
  std::condition_variable turned_;
  uint64_t next_ = 0, turn_ = 0;
};
Gate gate;
using Entry = std::lock_guard<Gate>;

thread_local int currentDevice = 0;

Machine &machine() {
  static Machine *m = [] {
    auto *made = new Machine(numberOf("GPT2C_EMULATED_SEED", 1));
    made->pause = [] {
      gate.unlock();
      gate.lock();
    };
    return made;
  }();
  return *m;
}
/// Ends what was launched on a stream, or on all.
CUresult ended(const std::function<void()> &wait) {
  try {
    wait();
    return kSuccess;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "emulated GPU: %s\n", error.what());
    return kIllegalAddress;
  }
}
CUresult finish(CUstream s) {
  return ended([&] { machine().finish(s); });
}
CUresult finishAll() {
  return ended([] { machine().finishAll(); });
}

struct Allocated {
  size_t bytes;
  int device; ///< -1: the host's
};
std::map<void *, Allocated> allocated;
std::array<size_t, mostDevices> used{};

CUresult allocate(void **to, size_t bytes, int device) {
  if (device >= 0 && used[size_t(device)] + bytes > memory())
    return kOutOfMemory;
  *to = std::aligned_alloc(512, (bytes + 1023) / 512 * 512);
  std::memset(*to, 0xc5, bytes); // what nobody writes is anything
  machine().allocate(*to, bytes, device);
  allocated[*to] = {bytes, device};
  if (device >= 0)
    used[size_t(device)] += bytes;
  return kSuccess;
}
CUresult release(void *memory) {
  if (!memory)
    return kSuccess;
  const CUresult result = finishAll();
  auto it = allocated.find(memory);
  if (it == allocated.end())
    return kInvalidValue;
  machine().free(memory);
  if (it->second.device >= 0)
    used[size_t(it->second.device)] -= it->second.bytes;
  allocated.erase(it);
  std::free(memory);
  return result;
}

/// Memory that is to be mapped, and where it is.
struct Created {
  size_t bytes;
  int device; ///< -1: the host's
};
std::map<uint64_t, Created> created;
std::map<CUdeviceptr, size_t> reserved;
std::map<CUdeviceptr, size_t> mapped;
/// $GPT2C_EMULATED_MAPS: 2 the host's memory is mapped, 1 there is managed memory alone, 0 neither.
size_t maps() { return numberOf("GPT2C_EMULATED_MAPS", 2); }
constexpr size_t kGranularity = 1 << 16;
constexpr CUresult kNotSupported = 801;

using Work = std::function<CUresult()>;

} // namespace

namespace gpt2c::rt::cuda {
struct CUgraphTag {
  std::vector<Work> work;
};
struct CUgraphExecTag {
  std::vector<Work> work;
};
struct CUcontextTag {
  int device;
};
struct CUstreamTag {
  std::unique_ptr<CUgraphTag> capture;
};
struct CUeventTag {
  std::chrono::steady_clock::time_point at;
  CUstream stream = nullptr; ///< of the last record
};
struct CUfunctionTag {
  Function *function;
  bool loaded = false;
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
    work = [work = std::move(work), stream] {
      const CUresult result = finish(stream);
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
EXPORT CUresult cuDeviceGetCount(int *count) { return *count = devices(), kSuccess; }
EXPORT CUresult cuDeviceGet(CUdevice *device, int n) {
  return *device = n, n >= 0 && n < devices() ? kSuccess : kInvalidValue;
}
EXPORT CUresult cuDeviceGetName(char *name, int bytes, CUdevice) {
  return std::snprintf(name, size_t(bytes), "emulated GPU"), kSuccess;
}
EXPORT CUresult cuDeviceGetPCIBusId(char *id, int bytes, CUdevice device) {
  return std::snprintf(id, size_t(bytes), "0000:%02x:00.0", unsigned(device)), kSuccess;
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
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *to, CUdevice device) {
  static CUcontextTag contexts[mostDevices];
  contexts[device].device = device;
  return *to = &contexts[device], kSuccess;
}
EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return kSuccess; }
EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  return currentDevice = context ? context->device : 0, kSuccess;
}
/// $GPT2C_EMULATED_PEERS=0: no device reaches another.
EXPORT CUresult cuDeviceCanAccessPeer(int *can, CUdevice device, CUdevice peer) {
  return *can = device != peer && numberOf("GPT2C_EMULATED_PEERS", 1) != 0, kSuccess;
}
EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned) {
  const Entry entry(gate);
  return machine().enableAccess(currentDevice, peer->device), kSuccess;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
  const Entry entry(gate);
  *total = memory();
  *free = *total - std::min(*total, used[size_t(currentDevice)]);
  return kSuccess;
}
EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *to, size_t bytes) {
  const Entry entry(gate);
  void *at = nullptr;
  const CUresult result = allocate(&at, bytes, currentDevice);
  *to = reinterpret_cast<CUdeviceptr>(at);
  return result;
}
EXPORT CUresult cuMemFree_v2(CUdeviceptr at) {
  const Entry entry(gate);
  return release(reinterpret_cast<void *>(at));
}
EXPORT CUresult cuMemHostAlloc(void **to, size_t bytes, unsigned) {
  const Entry entry(gate);
  return allocate(to, bytes, -1);
}
EXPORT CUresult cuMemFreeHost(void *at) {
  const Entry entry(gate);
  return release(at);
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *to, const AllocationProperties *of, int) {
  *to = kGranularity;
  return of->location.type == 1 || maps() > 1 ? kSuccess : kNotSupported;
}
EXPORT CUresult cuMemAddressReserve(CUdeviceptr *to, size_t bytes, size_t, CUdeviceptr,
                                    unsigned long long) {
  const Entry entry(gate);
  if (bytes == 0 || bytes % kGranularity != 0)
    return kInvalidValue;
  *to = reinterpret_cast<CUdeviceptr>(std::aligned_alloc(kGranularity, bytes));
  return reserved[*to] = bytes, kSuccess;
}
EXPORT CUresult cuMemAddressFree(CUdeviceptr at, size_t bytes) {
  const Entry entry(gate);
  const auto it = reserved.find(at);
  const auto in = mapped.lower_bound(at);
  if (it == reserved.end() || it->second != bytes || (in != mapped.end() && in->first < at + bytes))
    return kInvalidValue;
  std::free(reinterpret_cast<void *>(at));
  return reserved.erase(it), kSuccess;
}
EXPORT CUresult cuMemCreate(uint64_t *to, size_t bytes, const AllocationProperties *of,
                            unsigned long long) {
  const Entry entry(gate);
  static uint64_t last = 0;
  const int device = of->location.type == 1 ? of->location.id : -1;
  if (bytes == 0 || bytes % kGranularity != 0)
    return kInvalidValue;
  if (device < 0 && maps() < 2)
    return kNotSupported;
  if (device >= 0 && used[size_t(device)] + bytes > memory())
    return kOutOfMemory;
  if (device >= 0)
    used[size_t(device)] += bytes;
  created[ *to = ++last] = {bytes, device};
  return kSuccess;
}
EXPORT CUresult cuMemRelease(uint64_t handle) {
  const Entry entry(gate);
  const auto it = created.find(handle);
  if (it == created.end())
    return kInvalidValue;
  if (it->second.device >= 0)
    used[size_t(it->second.device)] -= it->second.bytes;
  return created.erase(it), kSuccess;
}
EXPORT CUresult cuMemMap(CUdeviceptr at, size_t bytes, size_t, uint64_t handle,
                         unsigned long long) {
  const Entry entry(gate);
  const auto in = reserved.upper_bound(at);
  const auto of = created.find(handle);
  if (in == reserved.begin() || of == created.end() || of->second.bytes != bytes ||
      at + bytes > std::prev(in)->first + std::prev(in)->second)
    return kInvalidValue;
  std::memset(reinterpret_cast<void *>(at), 0xc5, bytes);
  machine().allocate(reinterpret_cast<void *>(at), bytes, of->second.device);
  return mapped[at] = bytes, kSuccess;
}
EXPORT CUresult cuMemUnmap(CUdeviceptr at, size_t bytes) {
  const Entry entry(gate);
  const CUresult result = finishAll();
  const auto it = mapped.find(at);
  if (it == mapped.end() || it->second != bytes)
    return kInvalidValue;
  machine().free(reinterpret_cast<void *>(at));
  return mapped.erase(it), result;
}
EXPORT CUresult cuMemSetAccess(CUdeviceptr at, size_t bytes, const AccessDescription *, size_t) {
  const Entry entry(gate);
  const auto it = mapped.find(at);
  return it != mapped.end() && it->second == bytes ? kSuccess : kInvalidValue;
}
EXPORT CUresult cuMemAllocManaged(CUdeviceptr *to, size_t bytes, unsigned) {
  const Entry entry(gate);
  if (maps() < 1)
    return kNotSupported;
  void *at = nullptr;
  const CUresult result = allocate(&at, bytes, -1);
  *to = reinterpret_cast<CUdeviceptr>(at);
  return result;
}
EXPORT CUresult cuMemAdvise(CUdeviceptr, size_t, int, int) { return kSuccess; }

static CUresult copy(void *to, const void *from, size_t bytes, CUstream stream) {
  const Entry entry(gate);
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
EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t n, CUstream s) {
  return copy(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), n, s);
}
EXPORT CUresult cuMemcpy2DAsync_v2(const Copy2D *given, CUstream s) {
  const Entry entry(gate);
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
  const Entry entry(gate);
  return perform(s, [=] { return std::memset(reinterpret_cast<void *>(to), value, n), kSuccess; });
}

EXPORT CUresult cuStreamCreate(CUstream *to, unsigned) {
  const Entry entry(gate);
  *to = new CUstreamTag;
  machine().setDevice(*to, currentDevice);
  return kSuccess;
}
EXPORT CUresult cuStreamDestroy_v2(CUstream s) {
  const Entry entry(gate);
  const CUresult result = finish(s);
  return delete s, result;
}
EXPORT CUresult cuStreamSynchronize(CUstream s) {
  const Entry entry(gate);
  return finish(s);
}
EXPORT CUresult cuStreamQuery(CUstream s) {
  const Entry entry(gate);
  return finish(s);
}
/// The event's stream runs first: what follows it is in order.
EXPORT CUresult cuStreamWaitEvent(CUstream, CUevent e, unsigned) {
  const Entry entry(gate);
  return finish(e->stream);
}
EXPORT CUresult cuStreamBeginCapture_v2(CUstream s, int) {
  return s->capture = std::make_unique<CUgraphTag>(), kSuccess;
}
EXPORT CUresult cuStreamEndCapture(CUstream s, CUgraph *to) {
  return *to = s->capture.release(), kSuccess;
}
/// As drivers may, what makes a graph ready waits for all kernels.
EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *to, CUgraph graph, unsigned long long) {
  const Entry entry(gate);
  *to = new CUgraphExecTag{graph->work};
  return finishAll();
}
EXPORT CUresult cuGraphUpload(CUgraphExec, CUstream) {
  const Entry entry(gate);
  return finishAll();
}
EXPORT CUresult cuGraphLaunch(CUgraphExec graph, CUstream s) {
  const Entry entry(gate);
  // The host may look for results without another call.
  return perform(
      s,
      [work = graph->work, s] {
        const CUresult result = performAll(work);
        return result == kSuccess ? finish(s) : result;
      },
      true);
}
EXPORT CUresult cuGraphExecDestroy(CUgraphExec graph) { return delete graph, kSuccess; }
EXPORT CUresult cuGraphDestroy(CUgraph graph) { return delete graph, kSuccess; }
EXPORT CUresult cuEventCreate(CUevent *to, unsigned) { return *to = new CUeventTag, kSuccess; }
EXPORT CUresult cuEventDestroy_v2(CUevent e) { return delete e, kSuccess; }
EXPORT CUresult cuEventRecord(CUevent e, CUstream s) {
  const Entry entry(gate);
  e->stream = s;
  return perform(s, [e] { return e->at = std::chrono::steady_clock::now(), kSuccess; });
}
EXPORT CUresult cuEventRecordWithFlags(CUevent e, CUstream s, unsigned) {
  return cuEventRecord(e, s);
}
EXPORT CUresult cuEventSynchronize(CUevent e) {
  const Entry entry(gate);
  return finish(e->stream);
}
EXPORT CUresult cuEventQuery(CUevent e) {
  const Entry entry(gate);
  return finish(e->stream);
}
EXPORT CUresult cuEventElapsedTime(float *ms, CUevent from, CUevent to) {
  return *ms = std::chrono::duration<float, std::milli>(to->at - from->at).count(), kSuccess;
}

EXPORT CUresult cuModuleLoadDataEx(CUmodule *to, const void *image, unsigned, int *, void **) {
  const Entry entry(gate);
  const char *text = static_cast<const char *>(image);
  if (std::strncmp(text, "//", 2) != 0 && std::strncmp(text, ".version", 8) != 0)
    return kNoBinaryForGpu;
  try {
    auto *module = new CUmoduleTag(text);
    for (auto &[name, function] : module->module.functions)
      module->functions[name] = {&function};
    for (const std::vector<char> &global : module->module.globals)
      machine().allocate(global.data(), global.size(), currentDevice);
    return *to = module, kSuccess;
  } catch (const std::exception &error) {
    std::fprintf(stderr, "emulated GPU: %s\n", error.what());
    return kUnsupportedPtxVersion;
  }
}
EXPORT CUresult cuModuleUnload(CUmodule module) {
  const Entry entry(gate);
  const CUresult result = finishAll();
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
EXPORT CUresult cuModuleGetGlobal_v2(CUdeviceptr *to, size_t *bytes, CUmodule module,
                                     const char *name) {
  const Entry entry(gate);
  auto it = module->module.names.find(name);
  if (it == module->module.names.end())
    return kNotFound;
  std::vector<char> &global = module->module.globals[it->second];
  return *to = CUdeviceptr(global.data()), *bytes = global.size(), kSuccess;
}
EXPORT CUresult cuFuncSetAttribute(CUfunction f, int, int) { return f->loaded = true, kSuccess; }
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *to, CUfunction f, int, size_t) {
  f->loaded = true;
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
  const Entry entry(gate);
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
  // As drivers do, the first launch loads the code, which waits for kernels of other streams.
  if (!std::exchange(f->loaded, true))
    if (CUresult result = ended([&] { machine().finishOthers(config->stream); });
        result != kSuccess)
      return result;
  auto launch = [&kernel, grid, params, stream = config->stream]() -> CUresult {
    if (std::getenv("GPT2C_EMULATED_TRACE"))
      std::fprintf(stderr, "emulated GPU: %s, %u x %u x %u blocks of %u\n", kernel.name.c_str(),
                   grid.blocks[0], grid.blocks[1], grid.blocks[2], grid.threads);
    try {
      machine().launch(kernel, grid, params, stream);
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
