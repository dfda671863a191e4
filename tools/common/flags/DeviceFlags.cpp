#include "tools/common/flags/DeviceFlags.h"

#include "tools/common/RuntimeError.h"
#include "tools/common/flags/CommandLine.h"
#include "tools/runtime-common/DeviceFlags.h"

#include <utility>

namespace gpt2c {

namespace cl = llvm::cl;

static cl::opt<std::string>
    device("device",
           cl::desc("Where to run: cuda (the first GPU), cuda:N, cpu (from the IR in the plan), or "
                    "auto: the GPU where the plan has code for the first, else the CPU (default)"),
           cl::value_desc("auto|cuda|cuda:N|cpu"), cl::init("auto"), cl::cat(toolCategory()));
static cl::opt<int> threads("threads", cl::desc("Threads of the CPU device; 0: one for each core"),
                            cl::value_desc("N"), cl::init(0), cl::cat(toolCategory()));
static cl::opt<bool>
    skipWeights("skip-weight-checksum",
                cl::desc("Do not read all weights at start to verify their checksum"),
                cl::cat(toolCategory()));

int cpuThreads() { return threads; }

bool allowsCuda() { return device != "cpu"; }

static DeviceFlags given() { return {device, threads, skipWeights}; }

llvm::Expected<std::unique_ptr<rt::Session>> openSession(rt::Plan::Ptr plan) {
  return toExpected(openSession(std::move(plan), given()));
}

llvm::Expected<std::unique_ptr<rt::Session>> openSession(const std::string &planPath) {
  return toExpected(openSession(planPath, given()));
}

} // namespace gpt2c
