#include "runtime/cuda/CudaDevice.h"

#include <algorithm>
#include <cstring>

namespace gpt2c::rt::cuda {

namespace {
constexpr size_t kStagingBytes = size_t(8) << 20;
enum : int { kJitErrorLogBuffer = 5, kJitErrorLogBufferSize = 6 };

std::string mebibytes(size_t bytes) {
  return std::to_string((bytes + (1 << 20) - 1) >> 20) + " MiB";
}
} // namespace

DeviceMemory::~DeviceMemory() {
  if (device_ && address_ && device_->bindThread().ok())
    device_->api().memFree(address_);
}

PinnedMemory::~PinnedMemory() {
  if (data_ && device_->bindThread().ok())
    device_->api().memFreeHost(data_);
}

Module::~Module() {
  if (module_ && device_->bindThread().ok())
    device_->api().moduleUnload(module_);
}

Result<CUfunction> Module::function(const std::string &name, unsigned sharedBytes) const {
  const CudaApi &api = device_->api();
  CUfunction function = nullptr;
  if (CUresult result = api.moduleGetFunction(&function, module_, name.c_str()); result != kSuccess)
    return {Code::Incompatible,
            "kernel '" + name +
                "' is not in its module: cuModuleGetFunction: " + api.describe(result)};
  if (sharedBytes > (unsigned)device_->maxSharedBytes())
    return {Code::Incompatible, "kernel '" + name + "' needs " + std::to_string(sharedBytes) +
                                    " bytes of shared memory, " + device_->name() + " has " +
                                    std::to_string(device_->maxSharedBytes()) +
                                    ". Compile the plan for this GPU's architecture"};
  // Beyond 48 KB of all its shared memory, of which a part may be the kernel's own.
  if (sharedBytes > 0)
    GPT2C_CUDA(api, funcSetAttribute, function, kMaxDynamicSharedSize, (int)sharedBytes);
  return function;
}

std::pair<CUdeviceptr, size_t> Module::variable(const std::string &name) const {
  std::pair<CUdeviceptr, size_t> of = {};
  if (!module_ || !device_->bindThread().ok() ||
      device_->api().moduleGetGlobal(&of.first, &of.second, module_, name.c_str()) != kSuccess)
    return {};
  return of;
}

Result<std::shared_ptr<CudaDevice>> CudaDevice::open(int ordinal) {
  std::shared_ptr<CudaDevice> device(new CudaDevice);
  if (Status status = device->initialise(ordinal); !status.ok())
    return status;
  return device;
}

Status CudaDevice::initialise(int ordinal) {
  Result<const CudaApi *> api = CudaApi::get();
  if (!api)
    return api.status();
  int count = 0;
  GPT2C_CUDA(**api, deviceGetCount, &count);
  if (ordinal < 0 || ordinal >= count)
    return {Code::Incompatible,
            "no CUDA device " + std::to_string(ordinal) + ": the driver reports " +
                std::to_string(count) +
                (count > 0 ? ", numbered from 0 (CUDA_VISIBLE_DEVICES may hide others)" : "") +
                ". Without a GPU plans run on the device 'cpu'."};
  GPT2C_CUDA(**api, deviceGet, &device_, ordinal);
  char name[256] = {};
  GPT2C_CUDA(**api, deviceGetName, name, (int)sizeof(name) - 1, device_);
  name_ = name;
  GPT2C_CUDA(**api, deviceGetAttribute, &capability_.major, kCapabilityMajor, device_);
  GPT2C_CUDA(**api, deviceGetAttribute, &capability_.minor, kCapabilityMinor, device_);
  GPT2C_CUDA(**api, deviceGetAttribute, &multiprocessors_, kMultiprocessorCount, device_);
  GPT2C_CUDA(**api, deviceGetAttribute, &maxSharedBytes_, kMaxSharedPerBlockOptin, device_);
  GPT2C_CUDA(**api, deviceGetAttribute, &cooperative_, kCooperativeLaunch, device_);
  GPT2C_CUDA(**api, primaryCtxRetain, &context_, device_);
  api_ = *api; // from here on the destructor releases what was made
  GPT2C_CUDA(*api_, ctxSetCurrent, context_);
  GPT2C_CUDA(*api_, streamCreate, &stream_, 1u /* not synchronising with the default stream */);
  for (CUevent &event : stagingFree_)
    GPT2C_CUDA(*api_, eventCreate, &event, 2u /* no timing */);
  return {};
}

CudaDevice::~CudaDevice() {
  if (!api_ || !bindThread().ok())
    return;
  if (stream_) {
    api_->streamSynchronize(stream_);
    api_->streamDestroy(stream_);
  }
  for (CUevent event : stagingFree_)
    if (event)
      api_->eventDestroy(event);
  if (staging_)
    api_->memFreeHost(staging_);
  api_->primaryCtxRelease(device_);
}

Status CudaDevice::bindThread() {
  GPT2C_CUDA(*api_, ctxSetCurrent, context_);
  return {};
}

size_t CudaDevice::freeBytes() const {
  size_t free = 0, total = 0;
  return api_->memGetInfo(&free, &total) == kSuccess ? free : 0;
}

int CudaDevice::attribute(DeviceAttribute which) const {
  int value = 0;
  return api_->deviceGetAttribute(&value, which, device_) == kSuccess ? value : 0;
}

std::string CudaDevice::busId() const {
  char id[32] = {};
  return api_->deviceGetPciBusId(id, int(sizeof id), device_) == kSuccess ? id : "";
}

Result<DeviceMemory> CudaDevice::allocate(size_t bytes, const std::string &what) {
  if (bytes == 0)
    return DeviceMemory();
  if (Status status = bindThread(); !status.ok())
    return status;
  CUdeviceptr address = 0;
  ++allocations_;
  CUresult result = api_->memAlloc(&address, bytes);
  if (result == kOutOfMemory)
    return {Code::OutOfMemory, "out of GPU memory for " + what + ": asked for " +
                                   std::to_string(bytes) + " bytes (" + mebibytes(bytes) + "), " +
                                   std::to_string(freeBytes()) + " bytes (" +
                                   mebibytes(freeBytes()) + ") free on " + name_};
  if (Status status = api_->check(result, symbolOf_memAlloc); !status.ok())
    return status;
  return DeviceMemory(shared_from_this(), address, bytes);
}

Result<PinnedMemory> CudaDevice::allocatePinned(size_t bytes, const std::string &what) {
  if (bytes == 0)
    return PinnedMemory();
  if (Status status = bindThread(); !status.ok())
    return status;
  void *data = nullptr;
  ++allocations_;
  CUresult result = api_->memHostAlloc(&data, bytes, 0);
  if (result == kOutOfMemory)
    return {Code::OutOfMemory, "out of pinned host memory for " + what + ": asked for " +
                                   std::to_string(bytes) + " bytes (" + mebibytes(bytes) + ")"};
  if (Status status = api_->check(result, symbolOf_memHostAlloc); !status.ok())
    return status;
  return PinnedMemory(shared_from_this(), data);
}

Status CudaDevice::upload(CUdeviceptr to, const void *from, size_t bytes) {
  if (Status status = bindThread(); !status.ok())
    return status;
  // Pageable memory (often a mapped file) goes through two pinned halves: one is filled while the
  // other is on its way.
  if (!staging_)
    GPT2C_CUDA(*api_, memHostAlloc, &staging_, 2 * kStagingBytes, 0u);
  const char *source = static_cast<const char *>(from);
  for (size_t done = 0, turn = 0; done < bytes; ++turn) {
    size_t part = std::min(bytes - done, kStagingBytes);
    char *half = static_cast<char *>(staging_) + turn % 2 * kStagingBytes;
    if (turn >= 2)
      GPT2C_CUDA(*api_, eventSynchronize, stagingFree_[turn % 2]);
    std::memcpy(half, source + done, part);
    GPT2C_CUDA(*api_, memcpyHtoDAsync, to + done, half, part, stream_);
    GPT2C_CUDA(*api_, eventRecord, stagingFree_[turn % 2], stream_);
    done += part;
  }
  return synchronize();
}

Status CudaDevice::download(void *to, CUdeviceptr from, size_t bytes) {
  if (Status status = bindThread(); !status.ok())
    return status;
  if (bytes > 0)
    GPT2C_CUDA(*api_, memcpyDtoHAsync, to, from, bytes, stream_);
  return synchronize();
}

Status CudaDevice::uploadPinned(CUdeviceptr to, const void *from, size_t bytes) {
  if (bytes > 0)
    GPT2C_CUDA(*api_, memcpyHtoDAsync, to, from, bytes, stream_);
  return {};
}

Status CudaDevice::uploadRows(CUdeviceptr to, size_t pitch, const void *from, size_t bytes,
                              size_t rows) {
  if (Status status = bindThread(); !status.ok())
    return status;
  Copy2D copy;
  copy.fromHost = from;
  copy.fromPitch = copy.width = bytes;
  copy.toMemory = Copy2D::kDevice;
  copy.toDevice = to;
  copy.toPitch = pitch;
  copy.height = rows;
  if (bytes > 0 && rows > 0)
    GPT2C_CUDA(*api_, memcpy2DAsync, &copy, stream_);
  return synchronize();
}

Status CudaDevice::downloadRows(void *to, CUdeviceptr from, size_t pitch, size_t bytes,
                                size_t rows) {
  if (Status status = bindThread(); !status.ok())
    return status;
  Copy2D copy;
  copy.fromMemory = Copy2D::kDevice;
  copy.fromDevice = from;
  copy.fromPitch = pitch;
  copy.toHost = to;
  copy.toPitch = copy.width = bytes;
  copy.height = rows;
  if (bytes > 0 && rows > 0)
    GPT2C_CUDA(*api_, memcpy2DAsync, &copy, stream_);
  return synchronize();
}

Status CudaDevice::beginDownload(void *to, CUdeviceptr from, size_t bytes) {
  GPT2C_CUDA(*api_, ctxSetCurrent, context_);
  if (bytes > 0)
    GPT2C_CUDA(*api_, memcpyDtoHAsync, to, from, bytes, stream_);
  return {};
}

Status CudaDevice::zero(CUdeviceptr to, size_t bytes) {
  if (Status status = bindThread(); !status.ok())
    return status;
  if (bytes > 0)
    GPT2C_CUDA(*api_, memsetD8Async, to, (unsigned char)0, bytes, stream_);
  return {};
}

Status CudaDevice::enableAccessTo(const CudaDevice &peer) {
  if (context_ == peer.context_)
    return {};
  int can = 0;
  GPT2C_CUDA(*api_, deviceCanAccessPeer, &can, device_, peer.device_);
  if (!can)
    return {Code::Incompatible, name_ + " (" + busId() + ") has no access to the memory of " +
                                    peer.name_ + " (" + peer.busId() +
                                    "): ranks need GPUs of one host that reach each other"};
  GPT2C_CUDA(*api_, ctxSetCurrent, context_);
  const CUresult result = api_->ctxEnablePeerAccess(peer.context_, 0);
  return result == kPeerAccessAlreadyEnabled ? Status()
                                             : api_->check(result, "cuCtxEnablePeerAccess");
}

Status CudaDevice::copy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  const Status s = beginCopy(to, from, bytes);
  return s.ok() ? synchronize() : s;
}

Status CudaDevice::beginCopy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  GPT2C_CUDA(*api_, ctxSetCurrent, context_);
  if (bytes > 0)
    GPT2C_CUDA(*api_, memcpyDtoDAsync, to, from, bytes, stream_);
  return {};
}

Status CudaDevice::synchronize() {
  if (Status status = bindThread(); !status.ok())
    return status;
  GPT2C_CUDA(*api_, streamSynchronize, stream_);
  return {};
}

Result<bool> CudaDevice::idle() {
  const CUresult result = api_->streamQuery(stream_);
  if (result == kNotReady)
    return false;
  if (Status status = api_->check(result, symbolOf_streamQuery); !status.ok())
    return status;
  return true;
}

Result<Module> CudaDevice::loadModule(std::span<const std::byte> image, const std::string &what) {
  if (Status status = bindThread(); !status.ok())
    return status;
  std::string log(16384, '\0');
  int options[] = {kJitErrorLogBuffer, kJitErrorLogBufferSize};
  void *values[] = {log.data(), reinterpret_cast<void *>(log.size() - 1)};
  CUmodule module = nullptr;
  CUresult result = api_->moduleLoadDataEx(&module, image.data(), 2, options, values);
  if (result == kSuccess)
    return Module(shared_from_this(), module);
  if (result == kOutOfMemory)
    return {Code::OutOfMemory, "out of GPU memory for the code of " + what};
  log.resize(std::strlen(log.c_str()));
  return {Code::Incompatible,
          "the driver refuses " + what + " on " + name_ + " (sm_" +
              std::to_string(capability_.major) + std::to_string(capability_.minor) +
              "): cuModuleLoadDataEx: " + api_->describe(result) + (log.empty() ? "" : "\n" + log)};
}

Result<int> CudaDevice::residentBlocks(CUfunction function, unsigned threads,
                                       unsigned sharedBytes) {
  int blocks = 0;
  GPT2C_CUDA(*api_, occupancyMaxActiveBlocks, &blocks, function, (int)threads, sharedBytes);
  return blocks;
}

Result<int> CudaDevice::residentClusters(CUfunction function, unsigned clusterBlocks,
                                         unsigned threads, unsigned sharedBytes) {
  LaunchAttribute attribute{};
  attribute.id = kClusterDimension;
  attribute.value.cluster = {clusterBlocks, 1, 1};
  LaunchConfig config{clusterBlocks, 1, 1, threads, 1, 1, sharedBytes, stream_, &attribute, 1};
  int clusters = 0;
  GPT2C_CUDA(*api_, occupancyMaxActiveClusters, &clusters, function, &config);
  return clusters;
}

Result<TensorMap> encodeTensorMap(const CudaApi &api, CUdeviceptr address, uint64_t rows,
                                  uint64_t columns, unsigned boxRows,
                                  std::optional<uint64_t> matrices) {
  enum { kFloat16 = 6, kNoInterleave = 0, kSwizzle128 = 3, kPromote256 = 3, kFillZeros = 0 };
  const uint64_t sizes[3] = {columns, rows, matrices.value_or(1)},
                 strides[2] = {columns * 2, rows * columns * 2};
  const unsigned box[3] = {64, boxRows, 1}, steps[3] = {1, 1, 1};
  TensorMap map;
  GPT2C_CUDA(api, tensorMapEncodeTiled, &map, kFloat16, matrices ? 3u : 2u,
             reinterpret_cast<void *>(address), sizes, strides, box, steps, kNoInterleave,
             kSwizzle128, kPromote256, kFillZeros);
  return map;
}

Status CudaDevice::launch(const Launch &launch, void **arguments) {
  LaunchAttribute attribute{};
  attribute.id = launch.cooperative ? kCooperative : kProgrammaticStreamSerialization;
  attribute.value.flag = 1;
  const bool overlaps = launch.programmatic && capability_.major >= 9;
  LaunchConfig config{launch.grid[0],     launch.grid[1],
                      launch.grid[2],     launch.block[0],
                      launch.block[1],    launch.block[2],
                      launch.sharedBytes, stream_,
                      &attribute,         launch.cooperative || overlaps ? 1u : 0u};
  GPT2C_CUDA(*api_, launchKernelEx, &config, launch.function, arguments, nullptr);
  return {};
}

Timer::~Timer() {
  for (CUevent event : events_)
    if (event && device_->bindThread().ok())
      device_->api().eventDestroy(event);
}

Result<Timer> Timer::create(const std::shared_ptr<CudaDevice> &device) {
  if (Status status = device->bindThread(); !status.ok())
    return status;
  Timer timer;
  timer.device_ = device;
  for (CUevent &event : timer.events_)
    GPT2C_CUDA(device->api(), eventCreate, &event, 0u);
  return timer;
}

Status Timer::start() {
  GPT2C_CUDA(device_->api(), eventRecord, events_[0], device_->stream());
  return {};
}

Status Timer::stop() {
  GPT2C_CUDA(device_->api(), eventRecord, events_[1], device_->stream());
  return {};
}

namespace {
constexpr unsigned kRecordExternal = 1; // a node of the graph, not an edge
}

Status Timer::startInGraph() {
  GPT2C_CUDA(device_->api(), eventRecordWithFlags, events_[0], device_->stream(), kRecordExternal);
  return {};
}

Status Timer::stopInGraph() {
  GPT2C_CUDA(device_->api(), eventRecordWithFlags, events_[1], device_->stream(), kRecordExternal);
  return {};
}

Result<double> Timer::milliseconds() const {
  float elapsed = 0;
  GPT2C_CUDA(device_->api(), eventElapsedTime, &elapsed, events_[0], events_[1]);
  return double(elapsed);
}

Result<double> Timer::milliseconds(const std::function<Status()> &work) {
  if (Status s = start(); !s.ok())
    return s;
  if (Status s = work(); !s.ok())
    return s;
  if (Status s = stop(); !s.ok())
    return s;
  if (Status s = device_->synchronize(); !s.ok())
    return s;
  return milliseconds();
}

Graph::~Graph() {
  if (exec_ && device_->synchronize().ok())
    device_->api().graphExecDestroy(exec_);
}

Status Graph::beginCapture(CudaDevice &device) {
  GPT2C_CUDA(device.api(), streamBeginCapture, device.stream(), 1 /* thread local */);
  return {};
}

Result<Graph> Graph::finishCapture(const std::shared_ptr<CudaDevice> &device, Status outcome) {
  const CudaApi &api = device->api();
  CUgraph captured = nullptr;
  Status ended =
      api.check(api.streamEndCapture(device->stream(), &captured), symbolOf_streamEndCapture);
  if (outcome.ok())
    outcome = ended;
  Graph graph;
  graph.device_ = device;
  if (outcome.ok())
    outcome = api.check(api.graphInstantiate(&graph.exec_, captured, 0), symbolOf_graphInstantiate);
  if (captured)
    api.graphDestroy(captured);
  if (!outcome.ok())
    return outcome;
  return graph;
}

Status Graph::upload() {
  GPT2C_CUDA(device_->api(), graphUpload, exec_, device_->stream());
  return device_->synchronize();
}

Status Graph::launch() {
  GPT2C_CUDA(device_->api(), graphLaunch, exec_, device_->stream());
  return {};
}

} // namespace gpt2c::rt::cuda
