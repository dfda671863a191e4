#include "tools/common/DeviceFlags.h"

#include "cpu/CpuBackend.h"
#include "runtime/cuda/CudaBackend.h"
#include "tools/common/CommandLine.h"
#include "tools/common/DeviceName.h"
#include "tools/common/RuntimeError.h"

#include "llvm/Support/raw_ostream.h"

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

static rt::Result<std::unique_ptr<rt::Backend>> openBackend(const rt::Plan::Ptr &plan,
                                                            DeviceName wanted) {
  if (wanted.kind != DeviceName::Kind::Cpu) {
    rt::Result<std::unique_ptr<rt::Backend>> cuda = rt::makeCudaBackendOn(plan, wanted.ordinal);
    if (std::string note = cuda ? (*cuda)->note() : ""; !note.empty())
      llvm::errs() << "note: " << note << "\n";
    if (cuda || wanted.kind == DeviceName::Kind::Cuda ||
        cuda.status().code() != rt::Code::Incompatible)
      return cuda;
    static bool told = false;
    if (!std::exchange(told, true)) {
      const std::string why = cuda.status().message();
      llvm::StringRef first = llvm::StringRef(why).split('\n').first;
      llvm::errs() << "note: running on the CPU: " << first.split(" (").first.split(". ").first
                   << "\n";
    }
  }
  return makeCpuBackend(plan, {.threads = threads});
}

llvm::Expected<std::unique_ptr<rt::Session>> openSession(rt::Plan::Ptr plan) {
  if (threads < 0)
    return makeError(ExitCode::Usage, "--threads is at least 1, or 0 for one on each core");
  auto wanted = parseDeviceName(device);
  if (!wanted)
    return wanted.takeError();
  rt::Result<std::unique_ptr<rt::Backend>> backend = openBackend(plan, *wanted);
  if (!backend)
    return toError(backend.status());
  return std::make_unique<rt::Session>(std::move(plan), backend.take());
}

llvm::Expected<std::unique_ptr<rt::Session>> openSession(const std::string &planPath) {
  rt::OpenOptions options;
  options.verifyWeights = !skipWeights;
  rt::Result<rt::Plan::Ptr> plan = rt::Plan::open(planPath, options);
  if (!plan)
    return toError(plan.status());
  return openSession(*plan);
}

} // namespace gpt2c
