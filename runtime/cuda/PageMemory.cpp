#include "runtime/cuda/PageMemory.h"

namespace gpt2c::rt::cuda {

namespace {

enum Location : int { kOnDevice = 1, kOnHostNode = 3 };
enum Advice : int { kPreferredLocation = 3, kAccessedBy = 5 };
constexpr int kPinned = 1, kReadWrite = 3, kMinimum = 0;
constexpr unsigned kAttachGlobal = 1;
constexpr int kTheHost = -1;

constexpr size_t roundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

AllocationProperties propertiesOf(int location, int id) {
  AllocationProperties p;
  p.type = kPinned;
  p.location = {location, id};
  return p;
}

} // namespace

Result<std::unique_ptr<PageMemory>> PageMemory::create(const std::shared_ptr<CudaDevice> &device,
                                                       size_t deviceBytes, size_t hostPages,
                                                       size_t pageBytes) {
  if (Status s = device->bindThread(); !s.ok())
    return s;
  const CudaApi &api = device->api();
  std::unique_ptr<PageMemory> memory(new PageMemory(device));
  size_t granularity = 0, ofHost = 0;
  const AllocationProperties there = propertiesOf(kOnDevice, device->ordinal()),
                             here = propertiesOf(kOnHostNode, memory->node());
  Status mapped = api.check(api.memGetAllocationGranularity(&granularity, &there, kMinimum),
                            symbolOf_memGetAllocationGranularity);
  if (mapped.ok())
    mapped = api.check(api.memGetAllocationGranularity(&ofHost, &here, kMinimum),
                       symbolOf_memGetAllocationGranularity);
  if (mapped.ok()) {
    memory->place(std::max(granularity, ofHost), deviceBytes, hostPages, pageBytes);
    mapped = memory->map();
  }
  if (mapped.ok())
    return memory;
  memory->release();
  if (mapped.code() == Code::OutOfMemory)
    return {Code::OutOfMemory, "out of memory for pages of the KV state: asked for " +
                                   std::to_string(memory->deviceBytes_) +
                                   " bytes of the GPU's, of which " +
                                   std::to_string(device->freeBytes()) + " are free, and for " +
                                   std::to_string(memory->bytes_ - memory->deviceBytes_) +
                                   " bytes in host memory: " + mapped.message()};
  constexpr size_t ofManaged = size_t(2) << 20;
  memory->place(ofManaged, deviceBytes, hostPages, pageBytes);
  const Status managed = memory->manage();
  if (managed.ok())
    return memory;
  return {managed.code() == Code::OutOfMemory ? Code::OutOfMemory : Code::Unsupported,
          mapped.message() + "; " + managed.message()};
}

/// A page lies in one of both, so there may be a gap behind those of the device.
void PageMemory::place(size_t granularity, size_t least, size_t hostPages, size_t pageBytes) {
  deviceBytes_ = roundUp(least, granularity);
  firstHostPage_ = int32_t(roundUp(deviceBytes_, pageBytes) / pageBytes);
  hostPages_ = int32_t(hostPages);
  bytes_ = roundUp((size_t(firstHostPage_) + hostPages) * pageBytes, granularity);
  pageBytes_ = pageBytes;
}

Status PageMemory::mapPiece(int location, int id, CUdeviceptr at, size_t bytes) {
  const CudaApi &api = device_->api();
  const AllocationProperties properties = propertiesOf(location, id);
  Piece piece{.bytes = bytes};
  device_->countAllocation();
  GPT2C_CUDA(api, memCreate, &piece.handle, bytes, &properties, 0ull);
  pieces_.push_back(piece);
  GPT2C_CUDA(api, memMap, at, bytes, size_t(0), piece.handle, 0ull);
  pieces_.back().at = at;
  const AccessDescription access[] = {{{kOnDevice, device_->ordinal()}, kReadWrite},
                                      {{location, id}, kReadWrite}};
  GPT2C_CUDA(api, memSetAccess, at, bytes, access, size_t(location == kOnDevice ? 1 : 2));
  return {};
}

Status PageMemory::map() {
  const CudaApi &api = device_->api();
  GPT2C_CUDA(api, memAddressReserve, &address_, bytes_, size_t(0), CUdeviceptr(0), 0ull);
  if (Status s = mapPiece(kOnDevice, device_->ordinal(), address_, deviceBytes_); !s.ok())
    return s;
  return mapPiece(kOnHostNode, node(), address_ + deviceBytes_, bytes_ - deviceBytes_);
}

Status PageMemory::manage() {
  const CudaApi &api = device_->api();
  device_->countAllocation();
  isManaged_ = true;
  GPT2C_CUDA(api, memAllocManaged, &address_, bytes_, kAttachGlobal);
  const CUdeviceptr behind = address_ + deviceBytes_;
  GPT2C_CUDA(api, memAdvise, address_, deviceBytes_, kPreferredLocation, device_->ordinal());
  GPT2C_CUDA(api, memAdvise, behind, bytes_ - deviceBytes_, kPreferredLocation, kTheHost);
  GPT2C_CUDA(api, memAdvise, behind, bytes_ - deviceBytes_, kAccessedBy, device_->ordinal());
  // Written once, each part is where it should be.
  if (Status s = device_->zero(address_, deviceBytes_); !s.ok())
    return s;
  if (Status s = device_->synchronize(); !s.ok())
    return s;
  std::fill_n(reinterpret_cast<std::byte *>(behind), bytes_ - deviceBytes_, std::byte());
  return {};
}

void PageMemory::release() {
  const CudaApi &api = device_->api();
  if (isManaged_ && address_)
    api.memFree(address_);
  for (const Piece &piece : pieces_) {
    if (piece.at)
      api.memUnmap(piece.at, piece.bytes);
    api.memRelease(piece.handle);
  }
  pieces_.clear();
  if (!isManaged_ && address_)
    api.memAddressFree(address_, bytes_);
  address_ = 0;
}

PageMemory::~PageMemory() {
  if (device_->bindThread().ok() && device_->synchronize().ok())
    release();
}

} // namespace gpt2c::rt::cuda
