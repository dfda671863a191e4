// gpt2c-opt: reads IR text or an ONNX model, runs passes, prints IR text. The workbench of the
// compiler and its tests.
#include "codegen/driver/Schedules.h"
#include "frontend/Import.h"
#include "ir/OpDocs.h"
#include "ir/Text.h"
#include "ir/Verifier.h"
#include "passes/Pipeline.h"
#include "templates/Explain.h"
#include "templates/KernelDocs.h"
#include "tools/common/WeightFolder.h"
#include "tools/common/flags/CommandLine.h"
#include "tools/common/flags/PipelineFlags.h"
#include "tools/common/flags/QuantizeFlags.h"
#include "tools/common/report/Report.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

using namespace gpt2c;
namespace cl = llvm::cl;

static cl::opt<std::string> input(cl::Positional, cl::desc("MODEL.onnx | FOLDER | FILE.ir | -"),
                                  cl::init("-"), category());
static cl::opt<std::string> output("o", cl::desc("Write the IR to FILE"), cl::value_desc("FILE"),
                                   cl::init("-"), category());
static cl::list<std::string> passes("passes", cl::desc("Run these passes in this order"),
                                    cl::value_desc("a,b,c"), cl::CommaSeparated, category());
static cl::opt<bool> noLocations("no-locations", cl::desc("Print the IR without locations"),
                                 category());
static cl::opt<bool> contents("print-contents",
                              cl::desc("Print values known to inference as comments"), category());
static cl::opt<std::string>
    weights("weights", cl::desc("Keep large constants in FOLDER, read and written by hash"),
            cl::value_desc("FOLDER"), category());
static cl::opt<bool>
    listPasses("list-passes", cl::desc("List the passes and the stages of the pipeline, and exit"),
               category());
static cl::opt<bool>
    asSchedule("print-schedule",
               cl::desc("Print what each launch of the functions is in the place of "
                        "their IR, after the passes"),
               category());
static cl::opt<bool> quiet("quiet", cl::desc("Do not print the passes' remarks"), category());
static cl::opt<bool> opDocs("print-op-docs", cl::desc("Print the reference of ops and exit"),
                            cl::Hidden, category());
static cl::opt<bool> kernelDocs("print-kernel-docs",
                                cl::desc("Print the table of kernels and exit"), cl::Hidden,
                                category());
static cl::opt<std::string>
    explain("explain",
            cl::desc("List every kernel that may compute a problem, with its configurations and "
                     "costs, or why it does not: \"linear rows=512 n=2304 k=768 f16 x f16 norm\", "
                     "\"attention batch=8 seq=1 heads=12 head_dim=64 context=1024 f16 x f16\", "
                     "\"mlp rows=32 d=768 hidden=3072 f16\""),
            cl::value_desc("PROBLEM"), category());
static cl::opt<std::string>
    gpuArch("gpu-arch",
            cl::desc("With --explain or --compile-to=scheduled: architectures (default sm_90a)"),
            cl::value_desc("LIST"), cl::init("sm_90a"), category());
static cl::opt<DType> precision("precision", cl::desc("Element type that lower-precision gives"),
                                cl::values(clEnumValN(DType::F32, "f32", "single precision"),
                                           clEnumValN(DType::F16, "f16", "half precision"),
                                           clEnumValN(DType::BF16, "bf16", "bfloat16"),
                                           clEnumValN(DType::F32, "fp32", "f32, as of gpt2c"),
                                           clEnumValN(DType::F16, "fp16", "f16, as of gpt2c")),
                                cl::init(DType::F32), category());
static cl::opt<int64_t> maxBatch("max-batch", cl::desc("Sequences in the KV state"),
                                 cl::init(PassOptions().maxBatch), category());
static cl::opt<int64_t>
    maxContext("max-context",
               cl::desc("Tokens per sequence in the KV state; 0: all the model has positions for"),
               cl::init(PassOptions().maxContext), category());

static llvm::Expected<std::unique_ptr<Module>> load(WeightFolder &folder) {
  if (llvm::StringRef(input).ends_with(".onnx") || llvm::sys::fs::is_directory(input)) {
    ImportOptions options;
    options.precision = precision;
    return importModel(input, options);
  }
  auto buffer = readInput(input);
  if (!buffer)
    return buffer.takeError();
  llvm::StringRef bytes = (*buffer)->getBuffer();
  // Field 1 of an ONNX ModelProto, ir_version, comes first in what exporters write; no text starts
  // with its tag.
  if (bytes.starts_with("\x08"))
    return importOnnxBytes(bytes, input == "-" ? "<stdin>" : input.c_str());
  ParseOptions options;
  if (!weights.empty())
    options.weights = [&](uint64_t hash, const Type &type) { return folder.load(hash, type); };
  return parseModule(bytes, input == "-" ? "<stdin>" : input.c_str(), options);
}

/// Runs what was asked for: single passes, the pipeline up to a stage, or nothing.
static llvm::Error transform(PassContext &context, const PipelineOptions &options) {
  if (passes.empty())
    return options.compileTo.empty() && !compilesToSchedule() ? llvm::Error::success()
                                                              : runPipeline(context, options);
  for (const std::string &name : passes)
    if (llvm::Error e = runPass(*findPass(name), context, options))
      return e;
  return llvm::Error::success();
}

static llvm::Error checkUsage() {
  PipelineOptions options = pipelineFlags();
  if (!passes.empty() && (!options.compileTo.empty() || compilesToSchedule()))
    return makeError(ExitCode::Usage, "--passes and --compile-to exclude each other");
  for (const std::string &name : passes)
    if (!findPass(name))
      return makeError(ExitCode::Usage,
                       "there is no pass '" + name + "'; see gpt2c-opt --list-passes");
  PassOptions passOptions;
  passOptions.level = levelFlag();
  auto ranks = tensorParallelFlag();
  if (!ranks)
    return ranks.takeError();
  passOptions.tensorParallel = std::move(*ranks);
  return checkOptions(options, passOptions);
}

static PrintOptions printOptions() {
  PrintOptions options;
  options.locations = !noLocations;
  return options;
}

static llvm::Error transform(Module &m) {
  PassOptions passOptions;
  passOptions.level = levelFlag();
  passOptions.precision = precision;
  passOptions.maxBatch = maxBatch;
  passOptions.maxContext = maxContext;
  auto quantize = quantizeFlags();
  if (!quantize)
    return quantize.takeError();
  if (quantize->scheme == QuantizeScheme::Auto && quantize->chosen.empty())
    return makeError(ExitCode::Usage, "--quantize=auto is chosen by gpt2c over a text; here "
                                      "--quantize-layer=NAME=SCHEME says what is chosen");
  passOptions.quantize = std::move(*quantize);
  auto ranks = tensorParallelFlag();
  if (!ranks)
    return ranks.takeError();
  passOptions.tensorParallel = std::move(*ranks);
  std::vector<Remark> remarks;
  return runWithFlags(
      m, passOptions, pipelineFlags(),
      [](PassContext &context, const PipelineOptions &options) {
        return transform(context, options);
      },
      remarks, quiet ? RemarkDetail::None : RemarkDetail::All, printOptions());
}

static void printPasses(llvm::raw_ostream &os) {
  size_t width = 0;
  for (const Pass &p : allPasses())
    width = std::max(width, p.name.size() + 2);
  os << "Passes:\n";
  for (const Pass &p : allPasses())
    os << "  " << llvm::left_justify(p.name, width) << p.summary << "\n";
  os << "Stages:\n";
  for (const Stage &s : pipeline()) {
    os << "  " << llvm::left_justify(s.name, width) << s.summary;
    if (s.level > 0)
      os << " (from -O" << s.level << " on)";
    os << "\n";
    if (!s.passes.empty())
      os.indent(width + 2) << llvm::join(s.passes, ", ") << "\n";
  }
  os << "  " << llvm::left_justify("scheduled", width)
     << "what is one launch, and by which kernel: no IR, a text\n";
}

static std::vector<std::string> archs() {
  std::vector<std::string> list;
  llvm::SmallVector<llvm::StringRef> names;
  llvm::StringRef(gpuArch).split(names, ',', -1, false);
  for (llvm::StringRef name : names)
    list.push_back(name.str());
  return list;
}

static void printSchedule(const Module &m, llvm::raw_ostream &os) {
  CodegenOptions options;
  options.archs = archs();
  options.decode = DecodeMode::Auto;
  options.maxBatch = maxBatch;
  if (maxContext > 0)
    options.context = maxContext;
  printSchedules(m, options, os);
}

static llvm::Error explainChoice() {
  auto text = explainKernels(explain, Target::of(archs()));
  if (!text)
    return makeError(ExitCode::Usage, "--explain: " + llvm::toString(text.takeError()));
  return writeOutput(output, [&](llvm::raw_ostream &os) { os << *text; });
}

static llvm::Error run() {
  if (opDocs || listPasses || kernelDocs)
    return writeOutput(output, opDocs ? printOpDocs : kernelDocs ? printKernelDocs : printPasses);
  if (!explain.empty())
    return explainChoice();
  if (llvm::Error e = checkUsage())
    return e;
  if (llvm::Error e =
          checkOutputs({{"-o", output}, {"--remarks", remarksFile()}}, {{"the input", input}}))
    return e;
  WeightFolder folder(weights);
  auto module = load(folder);
  if (!module)
    return module.takeError();
  if (llvm::Error e = verify(**module))
    return e;
  if (llvm::Error e = transform(**module))
    return e;
  if (llvm::Error e = verify(**module))
    return inContext("after the last pass", std::move(e));
  PrintOptions options = printOptions();
  options.contents = contents;
  if (!weights.empty())
    options.weights = [&](uint64_t hash, const Tensor &t) { folder.store(hash, t); };
  llvm::Error error = writeOutput(output, [&](llvm::raw_ostream &os) {
    if (asSchedule || compilesToSchedule())
      printSchedule(**module, os);
    else
      print(**module, os, options);
  });
  return llvm::joinErrors(std::move(error), folder.takeError());
}

int main(int argc, char **argv) {
  parseCommandLine(argc, argv,
                   "Reads IR text or an ONNX model, runs passes on it and prints IR text.");
  return runTool(run);
}
