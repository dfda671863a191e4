// What programs of end-to-end tests share that open sessions of a plan.
#pragma once

#include "cpu/CpuBackend.h"
#include "runtime/cuda/CudaBackend.h"
#include "runtime/cuda/CudaRanks.h"
#include "runtime/device/DeviceName.h"
#include "runtime/session/Session.h"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

namespace gpt2c::e2e {

/// Ends the program with `message` and `code`.
[[noreturn]] inline void fail(const std::string &message, int code = 1) {
  std::fprintf(stderr, "%s: %s\n", program_invocation_short_name, message.c_str());
  std::exit(code);
}

/// The value, or the program ends with the status.
template <typename T> T need(rt::Result<T> result) {
  if (!result)
    fail(result.status().message(), int(result.status().code()));
  return result.take();
}

/// The same for a status alone.
inline void need(const rt::Status &status) {
  if (!status.ok())
    fail(status.message(), int(status.code()));
}

/// A session on the first GPU, or on one thread of the CPU device.
inline std::unique_ptr<rt::Session> open(const rt::Plan::Ptr &plan, bool cuda) {
  return std::make_unique<rt::Session>(
      plan, need(cuda ? rt::makeCudaBackend(plan) : makeCpuBackend(plan, {.threads = 1})));
}

/// The same on several GPUs as ranks: "cuda:0,1"; other names are those of one device.
inline std::unique_ptr<rt::Session> openNamed(const rt::Plan::Ptr &plan, const char *device) {
  const rt::DeviceName name = need(rt::parseDeviceName(device));
  if (name.ranks.empty())
    return open(plan, name.kind == rt::DeviceName::Kind::Cuda);
  return std::make_unique<rt::Session>(plan, need(rt::makeCudaRanks(plan, name.ranks)));
}

} // namespace gpt2c::e2e
