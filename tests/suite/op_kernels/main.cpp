// suite_op_kernels: every op case as a function of one op, through the code generator, NVRTC and
// the CUDA backend, against what the case expects.
#include "CaseFunctions.h"
#include "LargeCases.h"

#include "codegen/Codegen.h"
#include "codegen/Nvrtc.h"
#include "runtime/cuda/CudaBackend.h"
#include "runtime/cuda/CudaDevice.h"
#include "tests/suite/Skip.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"

#include <atomic>
#include <cstring>
#include <thread>

using namespace gpt2c;
using namespace gpt2c::suite;
namespace cl = llvm::cl;

static cl::opt<std::string> filter("filter", cl::desc("Only cases whose title contains this text"));
static cl::list<std::string> archs("arch", cl::CommaSeparated,
                                   cl::desc("Architectures (default: the device's own)"));
static cl::opt<bool> compileOnly("compile-only", cl::desc("Compile for --arch; needs no GPU"));
static cl::opt<std::string> casesPath("cases", cl::desc("cases.jsonl, where it has been moved"));
static cl::opt<std::string> kernelCache("kernel-cache",
                                        cl::desc("Folder for compiled kernels (default: none)"));
static cl::opt<bool> verbose("v", cl::desc("Name every case"));

namespace {

/// Ops that no case is compiled of, and why.
const std::pair<OpCode, const char *> refusedOps[] = {
    {OpCode::NonZero, "the size of its result depends on the data"},
    {OpCode::AllReduce, "ranks exchange it: suite_exchange"},
    {OpCode::AllGather, "ranks exchange it: suite_exchange"},
    {OpCode::RankPart, "parts of weights are cut when a plan is loaded"},
};

bool isExchanged(const OpCase &c) { return c.op == "all_reduce" || c.op == "all_gather"; }

/// A share of the cases, compiled into one plan.
struct Batch {
  std::vector<CaseEntry *> entries;
  Module module;
  std::unique_ptr<GeneratedPlan> plan;
  std::string error;
};

void compile(Batch &batch, const CodegenOptions &common) {
  CodegenOptions options = common;
  for (CaseEntry *e : batch.entries) {
    for (auto &[name, bounds] : symbolBounds(e->made))
      options.symbolBounds[name] = bounds;
    batch.module.functions.push_back(std::move(e->made.function));
  }
  auto plan = generatePlan(batch.module, options);
  if (!plan) {
    batch.error = llvm::toString(plan.takeError());
    return;
  }
  batch.plan = std::move(*plan);
  batch.error = batch.plan->hostOnly.text(options.archs);
}

rt::HostTensor toHost(const Tensor &t) {
  rt::HostTensor out(static_cast<plan::DType>(t.dtype()), t.shape().vec());
  std::memcpy(out.data.data(), t.raw(), t.bytes());
  return out;
}

Tensor fromHost(const rt::HostTensor &t) {
  Tensor out(static_cast<DType>(t.dtype), t.shape);
  std::memcpy(out.raw(), t.data.data(), out.bytes());
  return out;
}

/// Kernels add in another order than the references, and use the device's own exp and tanh.
double toleranceOf(const OpCase &c) { return std::max(c.tolerance, 2e-5); }

/// What is wrong with a case's results; empty when nothing is. `lost`: the device is not usable any
/// more.
std::string runCase(rt::Backend &device, const plan::FunctionT &function, const CaseEntry &e,
                    bool &lost) {
  std::vector<rt::HostTensor> inputs;
  for (const Tensor &t : e.made.arguments)
    inputs.push_back(toHost(t));
  std::vector<int64_t> symbols;
  for (const auto &s : function.symbols)
    symbols.push_back(symbolValue(s->name));
  auto results = device.run(function, inputs, symbols);
  if (!results) {
    lost = results.status().code() == rt::Code::Cuda;
    return results.status().message();
  }
  if (results->size() != e.c->outputs.size())
    return "a wrong number of results";
  for (size_t i = 0; i < results->size(); ++i) {
    std::string wrong = difference(fromHost((*results)[i]), e.c->outputs[i], toleranceOf(*e.c),
                                   i == 0 ? e.c->slack : Tensor());
    if (!wrong.empty())
      return "result " + std::to_string(i) + ", " + wrong;
  }
  return "";
}

rt::Result<rt::Plan::Ptr> reopen(GeneratedPlan &plan) {
  llvm::SmallString<128> path;
  if (llvm::sys::fs::createTemporaryFile("op-cases", "plan", path))
    return rt::Status{rt::Code::Io, "cannot make a temporary file"};
  llvm::FileRemover remover(path);
  rt::Status written = rt::writePlan(path.str().str(), plan.contents);
  return written.ok() ? rt::Plan::open(path.str().str()) : rt::Result<rt::Plan::Ptr>(written);
}

/// Returns the number of failed cases.
unsigned runBatch(Batch &batch) {
  auto plan = reopen(*batch.plan);
  if (!plan) {
    llvm::outs() << "FAIL  " << plan.status().message() << "\n";
    return 1;
  }
  if (compileOnly)
    return 0;
  auto device = rt::makeCudaBackend(*plan);
  if (!device) {
    llvm::outs() << "FAIL  " << device.status().message() << "\n";
    return 1;
  }
  unsigned failed = 0;
  bool lost = false;
  for (auto [i, e] : llvm::enumerate(batch.entries)) {
    std::string wrong = runCase(**device, *(*plan)->meta().functions[i], *e, lost);
    if (!wrong.empty()) {
      ++failed;
      llvm::outs() << "FAIL  " << e->title() << ": " << wrong << "\n";
    } else if (verbose) {
      llvm::outs() << "ok    " << e->title() << "\n";
    }
    if (lost) {
      llvm::outs() << "the device is lost\n";
      exit(1);
    }
  }
  return failed;
}

bool checkRefusals(const CaseFunctions &functions) {
  bool good = true;
  for (auto &[why, titles] : functions.refusals)
    llvm::outs() << "refused: " << titles.size() << " cases such as " << titles.front() << ": "
                 << why << "\n";
  if (!filter.empty())
    return true;
  for (const OpInfo *info : allOps()) {
    if (info->has(Terminator) || info->code == OpCode::Constant)
      continue;
    bool refused = llvm::any_of(refusedOps, [&](auto &r) { return r.first == info->code; });
    if (refused == bool(functions.lowered.count(info->code))) {
      llvm::outs() << "FAIL  " << info->mnemonic
                   << (refused ? " has a kernel although it is declared to have none"
                               : " has no kernel for any of its cases")
                   << "\n";
      good = false;
    }
  }
  return good;
}

} // namespace

int main(int argc, char **argv) {
  cl::ParseCommandLineOptions(argc, argv, "every op case, compiled and run on the GPU\n");
  llvm::outs().SetUnbuffered(); // a run that is stopped has told what it has done
  CodegenOptions options;
  options.maxBatch = 64;
  options.threads = 1;
  options.archs = archs;
  options.kernelCache = kernelCache;
  if (auto nvrtc = Nvrtc::load(); !nvrtc)
    return suite::skipped(llvm::toString(nvrtc.takeError()));
  if (!compileOnly) {
    auto device = rt::cuda::CudaDevice::open();
    if (!device)
      return suite::skipped(device.status().message());
    rt::ComputeCapability c = (*device)->capability();
    llvm::outs() << (*device)->name() << "\n";
    if (options.archs.empty())
      options.archs = {"sm_" + std::to_string(10 * c.major + c.minor) + (c.major == 9 ? "a" : "")};
  }
  std::vector<OpCase> cases = allOpCases(casesPath);
  llvm::append_range(cases, largeCases());
  llvm::erase_if(cases, isExchanged);
  CaseFunctions functions = makeFunctions(cases, filter);
  bool good = checkRefusals(functions);
  if (compileOnly) // the kernels of a case's two forms differ in constants; a GPU runs both
    keepOneForm(functions);

  // Neighbours share kernels; batches compile side by side.
  constexpr size_t perBatch = 96;
  std::vector<Batch> batches((functions.entries.size() + perBatch - 1) / perBatch);
  for (auto [i, e] : llvm::enumerate(functions.entries))
    batches[i / perBatch].entries.push_back(&e);
  std::atomic<size_t> next = 0;
  std::vector<std::thread> threads;
  for (unsigned t = 0, n = std::clamp(std::thread::hardware_concurrency(), 1u, 16u); t < n; ++t)
    threads.emplace_back([&] {
      for (size_t i; (i = next++) < batches.size();)
        compile(batches[i], options);
    });
  for (std::thread &t : threads)
    t.join();

  unsigned failed = 0;
  for (Batch &b : batches) {
    if (b.error.empty()) {
      failed += runBatch(b);
      continue;
    }
    llvm::outs() << "FAIL  " << b.error << "\n";
    ++failed;
  }
  llvm::outs() << functions.entries.size() << " cases " << (compileOnly ? "compiled" : "run")
               << ", " << functions.notSymbolic << " without a symbolic form, " << failed
               << " failures\n";
  return failed == 0 && good && !functions.entries.empty() ? 0 : 1;
}
