// What libgpt2c_cpu.so exports: runtime/device/Device.h.
#include "cpu/CpuBackend.h"
#include "runtime/device/Device.h"

#include <exception>
#include <new>

#define EXPORTED extern "C" __attribute__((visibility("default")))

EXPORTED gpt2c::rt::DeviceAbiFunction gpt2c_device_abi;
EXPORTED gpt2c::rt::DeviceOpenFunction gpt2c_device_open;

const char *gpt2c_device_abi() { return GPT2C_DEVICE_ABI; }

void gpt2c_device_open(
    const gpt2c::rt::Plan::Ptr *plan, int threads, gpt2c::rt::RankLink *link,
    std::optional<gpt2c::rt::Result<std::unique_ptr<gpt2c::rt::Backend>>> *device) try {
  device->emplace(gpt2c::makeCpuBackend(*plan, {.threads = threads, .link = link}));
} catch (const std::bad_alloc &) {
  device->emplace(gpt2c::rt::Code::OutOfMemory, "out of memory");
} catch (const std::exception &e) {
  device->emplace(gpt2c::rt::Code::Unsupported, e.what());
}
