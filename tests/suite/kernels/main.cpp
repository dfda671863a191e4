// suite_kernels: every kernel template against a float64 reference on the GPU of this machine.
#include "Suite.h"

#include "llvm/Support/CommandLine.h"

using namespace llvm;

static cl::list<std::string> filters("filter", cl::CommaSeparated,
                                     cl::desc("Run only cases whose name contains this text, or "
                                              "one of several"));
static cl::opt<bool> smoke("smoke",
                           cl::desc("One case of each kernel, a small one: for sanitizers"));
static cl::opt<bool> oneOfEach("one-of-each",
                               cl::desc("One case of each kernel template, the smallest that is no "
                                        "trifle: for a GPU that is emulated"));
static cl::opt<std::string> arch("arch",
                                 cl::desc("Compile for this architecture (default: the device's)"));
static cl::opt<bool> list("list", cl::desc("Print the names of the cases; needs no GPU"));
static cl::opt<bool>
    checkArguments("check-arguments",
                   cl::desc("Look whether the arguments of all launches fit their kernels' "
                            "parameters; needs no GPU"));
static cl::opt<bool> compileOnly("compile-only",
                                 cl::desc("Compile all kernels for --arch; needs no GPU"));
static cl::opt<std::string> keep("keep",
                                 cl::desc("With --compile-only: write the images to this folder"));
static cl::opt<std::string> kernelCache("kernel-cache",
                                        cl::desc("Folder for compiled kernels (default: none)"));
static cl::opt<std::string> shard("shard",
                                  cl::desc("Run one of several parts of the cases: 2/8, from 1 on"),
                                  cl::init("1/1"));
static cl::opt<bool>
    ptx("ptx", cl::desc("Load PTX through the driver's compiler instead of machine code"));

int main(int argc, char **argv) {
  cl::ParseCommandLineOptions(argc, argv, "kernel tests\n");
  outs().SetUnbuffered(); // a run that is stopped has told what it has done
  gpt2c::kernels::Suite suite;
  gpt2c::kernels::addAllCases(suite);
  gpt2c::kernels::Suite::Options options;
  options.filters = filters;
  options.smoke = smoke;
  options.oneOfEach = oneOfEach;
  options.arch = arch;
  options.list = list;
  options.checkArguments = checkArguments;
  options.compileOnly = compileOnly;
  options.ptx = ptx;
  options.keep = keep;
  options.kernelCache = kernelCache;
  auto [part, parts] = StringRef(shard).split('/');
  if (part.getAsInteger(10, options.shard) || parts.getAsInteger(10, options.shards) ||
      options.shard < 1 || options.shard > options.shards) {
    errs() << "--shard takes a part and their number, such as 2/8\n";
    return 1;
  }
  --options.shard;
  if (compileOnly && options.arch.empty()) {
    errs() << "--compile-only needs --arch\n";
    return 1;
  }
  return suite.run(options);
}
