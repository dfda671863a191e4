// The options --device and --threads, for tools that run plans.
#pragma once

#include "runtime/session/Session.h"

#include "llvm/Support/Error.h"

#include <memory>
#include <string>

namespace gpt2c {

/// Opens the plan on the device that the command line names. For --device=auto: on the GPU where
/// there is one that the plan has code for, else on the CPU with a line on stderr that says why.
llvm::Expected<std::unique_ptr<rt::Session>> openSession(const std::string &planPath);
llvm::Expected<std::unique_ptr<rt::Session>> openSession(rt::Plan::Ptr plan);

/// Whether --device allows the GPU.
bool allowsCuda();

/// --threads as given; 0: one for each core.
int cpuThreads();

} // namespace gpt2c
