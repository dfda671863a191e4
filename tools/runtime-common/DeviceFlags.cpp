#include "tools/runtime-common/DeviceFlags.h"

#include "runtime/cuda/CudaBackend.h"
#include "runtime/device/Device.h"
#include "runtime/device/DeviceName.h"

#include <cstdio>
#include <utility>

namespace gpt2c {

void DeviceFlags::addTo(Flags &flags) {
  flags
      .value("device", "auto|cuda|cuda:N|cpu",
             "Where to run: cuda (the first GPU), cuda:N, cpu (from the IR in the plan), or auto: "
             "the GPU where the plan has code for the first, else the CPU (default)",
             device)
      .value("threads", "N", "Threads of the CPU device; 0: one for each core", threads)
      .flag("skip-weight-checksum", "Do not read all weights at start to verify their checksum",
            skipWeightChecksum);
}

static rt::Result<std::unique_ptr<rt::Backend>> openBackend(const rt::Plan::Ptr &plan,
                                                            rt::DeviceName wanted, int threads) {
  if (wanted.kind == rt::DeviceName::Kind::Cpu)
    return rt::openCpuDevice(plan, threads);
  rt::Result<std::unique_ptr<rt::Backend>> cuda = rt::makeCudaBackendOn(plan, wanted.ordinal);
  if (std::string note = cuda ? (*cuda)->note() : ""; !note.empty())
    std::fprintf(stderr, "note: %s\n", note.c_str());
  if (cuda || wanted.kind == rt::DeviceName::Kind::Cuda ||
      cuda.status().code() != rt::Code::Incompatible)
    return cuda;
  static bool told = false;
  if (!std::exchange(told, true)) {
    std::string why = cuda.status().message();
    for (const char *end : {"\n", " (", ". "})
      why = why.substr(0, why.find(end));
    std::fprintf(stderr, "note: running on the CPU: %s\n", why.c_str());
  }
  return rt::openCpuDevice(plan, threads);
}

rt::Result<std::unique_ptr<rt::Session>> openSession(rt::Plan::Ptr plan, const DeviceFlags &flags) {
  if (flags.threads < 0)
    return {rt::Code::Usage, "--threads is at least 1, or 0 for one on each core"};
  rt::Result<rt::DeviceName> wanted = rt::parseDeviceName(flags.device);
  if (!wanted)
    return {rt::Code::Usage,
            "--device=" + flags.device + " is no device; there are auto, cuda, cuda:N and cpu"};
  rt::Result<std::unique_ptr<rt::Backend>> backend = openBackend(plan, *wanted, flags.threads);
  if (!backend)
    return backend.status();
  return std::make_unique<rt::Session>(std::move(plan), backend.take());
}

rt::Result<std::unique_ptr<rt::Session>> openSession(const std::string &planPath,
                                                     const DeviceFlags &flags) {
  rt::OpenOptions options;
  options.verifyWeights = !flags.skipWeightChecksum;
  rt::Result<rt::Plan::Ptr> plan = rt::Plan::open(planPath, options);
  if (!plan)
    return plan.status();
  return openSession(plan.take(), flags);
}

} // namespace gpt2c
