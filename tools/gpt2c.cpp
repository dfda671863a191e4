// gpt2c: compiles an ONNX export of GPT-2 into a plan.
#include "codegen/Codegen.h"
#include "codegen/KernelCache.h"
#include "codegen/Nvrtc.h"
#include "frontend/Import.h"
#include "ir/Error.h"
#include "ir/FunctionNames.h"
#include "passes/Pipeline.h"
#include "passes/Precision.h"
#include "runtime/FunctionNames.h"
#include "runtime/Tokenizer.h"
#include "runtime/cuda/CudaDevice.h"
#include "tools/common/CommandLine.h"
#include "tools/common/GeneratedSession.h"
#include "tools/common/HtmlReport.h"
#include "tools/common/PipelineFlags.h"
#include "tools/common/QuantizeFlags.h"
#include "tools/common/Remarks.h"
#include "tools/common/Report.h"
#include "tools/common/RuntimeError.h"
#include "tools/common/SessionRunner.h"
#include "tools/common/Tuner.h"
#include "tools/common/Verification.h"
#include "tools/gpt2c/Gpu.h"
#include "tools/gpt2c/Quantize.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"

#include <chrono>
#include <thread>

using namespace gpt2c;
namespace cl = llvm::cl;

static cl::opt<std::string> modelPath(cl::Positional, cl::Required, cl::desc("MODEL.onnx"),
                                      cl::cat(toolCategory()));
static cl::opt<std::string> outputPath("o", cl::Required, cl::desc("The plan to write"),
                                       cl::value_desc("PLAN"), cl::cat(toolCategory()));
static cl::opt<DType>
    precision("precision",
              cl::desc("Element type of weights, activations and KV state (default "
                       "fp32)"),
              cl::values(clEnumValN(DType::F32, "fp32", "single precision"),
                         clEnumValN(DType::F16, "fp16", "half precision, sums in single"),
                         clEnumValN(DType::BF16, "bf16", "bfloat16, sums in single")),
              cl::init(DType::F32), cl::cat(toolCategory()));
static cl::opt<std::string>
    gpuArch("gpu-arch",
            cl::desc("GPU architectures: a list such as sm_90a,compute_80 (compute_*: PTX), "
                     "native, all, or none for a plan "
                     "that runs on the CPU only (default: native where there is a GPU, else all)"),
            cl::value_desc("LIST"), cl::cat(toolCategory()));
static cl::opt<std::string> tokenizerPath(
    "tokenizer",
    cl::desc("Folder with vocab.json and merges.txt, or tokenizer.json; none leaves it "
             "out (default: the model's folder)"),
    cl::value_desc("DIR"), cl::cat(toolCategory()));
static cl::opt<int64_t> maxBatch("max-batch", cl::desc("Most sequences at once (default 8)"),
                                 cl::init(8), cl::cat(toolCategory()));
static cl::opt<int64_t>
    maxContext("max-context",
               cl::desc("Most tokens of a sequence (default: the model's positions)"), cl::init(0),
               cl::cat(toolCategory()));
static cl::opt<std::string>
    kvBudget("kv-budget", cl::desc("Refuse a KV state larger than this (bytes, or with K, M, G)"),
             cl::value_desc("SIZE"), cl::cat(toolCategory()));
static cl::opt<std::string> cudaPath("cuda-path",
                                     cl::desc("CUDA toolkit or unpacked wheels with NVRTC"),
                                     cl::value_desc("DIR"), cl::cat(toolCategory()));
static cl::opt<std::string>
    kernelCache("kernel-cache",
                cl::desc("Where compiled kernels are kept for later plans, or off (default: gpt2c "
                         "below $XDG_CACHE_HOME or ~/.cache)"),
                cl::value_desc("DIR"), cl::cat(toolCategory()));
static cl::opt<bool> tuneKernels(
    "tune",
    cl::desc("Time the kernels that may compute each op on this machine's GPU and take the fastest "
             "(minutes)"),
    cl::cat(toolCategory()));
static cl::opt<std::string>
    tuningPath("tuning-file",
               cl::desc("Choose kernels by what an earlier --tune measured; with --tune, measure "
                        "what is missing and write all of it there"),
               cl::value_desc("FILE"), cl::cat(toolCategory()));
static cl::opt<bool>
    dependentLaunch("dependent-launch",
                    cl::desc("Let a step's launch overlap the end of the step before it (sm_90 and "
                             "later; default on)"),
                    cl::init(true), cl::cat(toolCategory()));
static cl::opt<DecodeMode>
    decodeMode("decode", cl::desc("How decode steps run on a GPU (default auto)"),
               cl::values(clEnumValN(DecodeMode::Graph, "graph", "a CUDA graph of launches"),
                          clEnumValN(DecodeMode::Persistent, "persistent",
                                     "one kernel for many steps of one sequence, in fp16 of up "
                                     "to 16 (sm_90 and later), else a graph"),
                          clEnumValN(DecodeMode::Auto, "auto",
                                     "what has measured faster: persistent for sm_90a alone, where "
                                     "the model allows, else graph")),
               cl::init(DecodeMode::Auto), cl::cat(toolCategory()));
static cl::opt<Fp32Math> fp32Math(
    "fp32-math", cl::desc("How products of fp32 operands are computed on a GPU (default 3xtf32)"),
    cl::values(clEnumValN(Fp32Math::Tf32x3, "3xtf32",
                          "on tensor cores, each as three products of TF32: as exact as fp32 sums"),
               clEnumValN(Fp32Math::Ffma, "ffma", "by fused multiply-adds, the slower way")),
    cl::init(Fp32Math::Tf32x3), cl::cat(toolCategory()));
static cl::opt<bool> batchInvariant(
    "batch-invariant",
    cl::desc("Give a sequence the same logits, bit for bit, alone and in any batch, in whatever "
             "pieces its prompt is computed: one order of sums for all numbers of rows. On a GPU "
             "such a plan runs in the engine alone"),
    cl::cat(toolCategory()));
static cl::opt<std::string>
    reportPath("report",
               cl::desc("Also write an HTML page: the graph before and after, remarks, steps, "
                        "memory, KV state"),
               cl::value_desc("FILE.html"), cl::cat(toolCategory()));
static cl::opt<VerifyMode> verifyMode(
    "verify",
    cl::desc("Compare what the plan computes with the exported graph before it is written"),
    cl::values(
        clEnumValN(VerifyMode::Off, "off", "not at all"),
        clEnumValN(VerifyMode::Fast, "fast",
                   "a few sequences, over the full context where that costs little (default)"),
        clEnumValN(VerifyMode::Full, "full", "the full context, several batches, masks and pasts")),
    cl::init(VerifyMode::Fast), cl::cat(toolCategory()));
static cl::opt<bool> verbose("v", cl::desc("Tell what is done and how long it takes"),
                             cl::cat(toolCategory()));

namespace {

/// Prints the time since the last call with -v.
class Progress {
public:
  void done(const llvm::Twine &what) {
    auto now = std::chrono::steady_clock::now();
    if (verbose)
      llvm::errs() << llvm::format("%8.2f s  ", std::chrono::duration<double>(now - last_).count())
                   << what << "\n";
    last_ = now;
  }

private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

} // namespace

static llvm::Expected<uint64_t> parseSize(llvm::StringRef text) {
  llvm::StringRef digits = text;
  uint64_t unit = 1, value = 0;
  if (digits.consume_back_insensitive("K"))
    unit = 1ull << 10;
  else if (digits.consume_back_insensitive("M"))
    unit = 1ull << 20;
  else if (digits.consume_back_insensitive("G"))
    unit = 1ull << 30;
  if (digits.getAsInteger(10, value) || value == 0 || value > UINT64_MAX / unit)
    return makeError(ExitCode::Usage, "--kv-budget=" + text + " is not a size; write 512M or 4G");
  return value * unit;
}

/// Whether the plan is for the GPU that is here.
static bool takesNativeArch() {
  llvm::SmallVector<llvm::StringRef> parts;
  llvm::StringRef(gpuArch).split(parts, ',');
  return gpuArch.empty() || llvm::is_contained(parts, "native");
}

/// What --gpu-arch asks for; native is the architecture of that GPU.
static llvm::Expected<std::vector<std::string>> wantedArchs(const DeviceName &device) {
  llvm::StringRef list = gpuArch;
  if (list == "none")
    return std::vector<std::string>();
  if (list.empty() || list == "native") {
    auto native = nativeArch(device);
    if (native)
      return std::vector<std::string>{*native};
    if (list == "native" || device.kind == DeviceName::Kind::Cuda)
      return native.takeError();
    llvm::consumeError(native.takeError());
    list = "all";
  }
  if (list == "all") {
    auto nvrtc = Nvrtc::load(cudaPath);
    if (!nvrtc)
      return nvrtc.takeError();
    return defaultArchs([&](llvm::StringRef arch) { return (*nvrtc)->supports(arch); });
  }
  std::vector<std::string> archs;
  llvm::SmallVector<llvm::StringRef> parts;
  list.split(parts, ',', -1, false);
  for (llvm::StringRef part : parts) {
    if (part == "native") {
      auto native = nativeArch(device);
      if (!native)
        return native.takeError();
      archs.push_back(*native);
      continue;
    }
    if (!rt::Arch::parse(part.str()))
      return makeError(ExitCode::Usage, "--gpu-arch: '" + part +
                                            "' is no architecture; write sm_80, sm_90a, "
                                            "compute_80, native, all or none");
    if (!llvm::is_contained(archs, part))
      archs.push_back(part.str());
  }
  return archs;
}

/// The tokenizer's blob and end-of-text id; empty when the model has none beside it and none was
/// named.
static llvm::Error readTokenizer(CodegenOptions &options, Progress &progress) {
  std::string folder = tokenizerPath;
  if (folder == "none")
    return llvm::Error::success();
  if (folder.empty()) {
    folder = llvm::sys::path::parent_path(modelPath).str();
    if (folder.empty())
      folder = ".";
    if (!llvm::sys::fs::exists(folder + "/tokenizer.json") &&
        !llvm::sys::fs::exists(folder + "/vocab.json")) {
      if (llvm::sys::Process::StandardErrIsDisplayed())
        llvm::errs()
            << "note: no tokenizer.json or vocab.json beside the model: the plan takes and "
               "gives token ids; --tokenizer=DIR adds a tokenizer\n";
      return llvm::Error::success();
    }
  }
  auto tokenizer = rt::Tokenizer::fromFiles(folder);
  if (!tokenizer)
    return toError(tokenizer.status());
  options.tokenizer = tokenizer->serialize();
  options.eosToken = tokenizer->eosToken();
  progress.done("tokenizer of " + llvm::Twine(tokenizer->vocabSize()) + " tokens from " + folder);
  return llvm::Error::success();
}

/// Every token of the tokenizer has a row of logits; more rows than tokens are padding.
static llvm::Error checkVocabulary(const Module &module, const rt::Tokenizer &tokenizer) {
  const Function *forward = module.function(functions::forward);
  for (size_t i = 0; forward && i < forward->resultNames.size(); ++i) {
    if (forward->resultNames[i] != "logits" || forward->returned()[i]->type.rank() == 0)
      continue;
    auto vocabulary = forward->returned()[i]->type.shape.back().constant();
    if (vocabulary && int64_t(tokenizer.vocabSize()) > *vocabulary)
      return makeError(ExitCode::Usage,
                       "the tokenizer has " + llvm::Twine(tokenizer.vocabSize()) +
                           " tokens, the model " + llvm::Twine(*vocabulary) +
                           ": it is another model's; --tokenizer=DIR names the right one");
  }
  return llvm::Error::success();
}

/// Files that are written, and those that are read.
static llvm::Error checkFiles() {
  const std::string folder =
      tokenizerPath.empty() ? llvm::sys::path::parent_path(modelPath).str() : tokenizerPath;
  std::vector<std::string> read;
  for (const char *name : {"tokenizer.json", "vocab.json", "merges.txt", "config.json"}) {
    llvm::SmallString<256> path(folder.empty() ? "." : folder);
    llvm::sys::path::append(path, name);
    read.push_back(path.str().str());
  }
  std::vector<FlagPath> inputs{{"the model", modelPath}};
  for (const std::string &path : read)
    inputs.push_back({"the tokenizer", path});
  std::vector<FlagPath> outputs{
      {"-o", outputPath}, {"--report", reportPath}, {"--remarks", remarksFile()}};
  llvm::append_range(inputs, quantizeInputs());
  llvm::append_range(outputs, quantizeOutputs());
  if (tuneKernels)
    outputs.push_back({"--tuning-file", tuningPath});
  else
    inputs.push_back({"--tuning-file", tuningPath});
  return checkOutputs(outputs, inputs);
}

/// "42 kernels for sm_90a: 2 compiled, 40 from /home/me/.cache/gpt2c"
static std::string describeKernels(const KernelBuildStats &stats, const CodegenOptions &options) {
  std::string text = std::to_string(stats.compiled + stats.cached) + " kernels for " +
                     llvm::join(options.archs, ", ") + ": " + std::to_string(stats.compiled) +
                     " compiled";
  if (!options.kernelCache.empty())
    text += ", " + std::to_string(stats.cached) + " from " + options.kernelCache;
  if (stats.damaged > 0)
    text += ", where " + std::to_string(stats.damaged) +
            (stats.damaged == 1 ? " was damaged" : " were damaged");
  if (stats.failedToStore)
    text += ", which cannot be written";
  return text;
}

/// What the code generator decided and what it could not do.
static void addRemarks(const GeneratedPlan &plan, llvm::ArrayRef<std::string> archs,
                       std::vector<Remark> &remarks) {
  if (archs.size() > 1 && llvm::is_contained(archs, "sm_90a")) {
    Remark &r = remarks.emplace_back();
    r.pass = "codegen";
    r.message = "every kernel runs on all of " + llvm::join(archs, ", ") +
                "; a plan for sm_90a alone has faster ones";
    r.of("kernels");
  }
  auto missed = [&](llvm::StringRef pattern, const llvm::Twine &message) -> Remark & {
    Remark &r = remarks.emplace_back();
    r.severity = Remark::Missed;
    r.pass = "codegen";
    r.message = message.str();
    return r.of(pattern);
  };
  if (plan.contents.meta.batch_invariant && !archs.empty()) {
    Remark &r = remarks.emplace_back();
    r.pass = "codegen";
    r.message =
        "the plan is batch invariant: on a GPU it runs in the engine, by @extend, and other "
        "functions have no kernels";
    r.of("batch invariance");
  }
  for (const std::string &reason : plan.hostOnly)
    missed("kernels", reason + "; it runs on the CPU device only");
  if (!plan.noRows.empty())
    missed("extend",
           "@extend has no kernels, rows of several sequences run on the CPU device only: " +
               plan.noRows);
  if (plan.graphDecode.empty())
    return;
  const auto &functions = plan.contents.meta.functions;
  auto decode = llvm::find_if(functions, [](auto &f) { return f->name == rt::functions::decode; });
  missed("persistent decode", plan.graphDecode + "; decode runs as a graph").launches =
      decode == functions.end() ? 0 : int64_t((*decode)->steps.size()) - 1;
}

/// What was not compared with the exported graph.
static void addRemarks(const CheckReport &report, std::vector<Remark> &remarks) {
  for (const std::string &what : report.unchecked) {
    Remark &r = remarks.emplace_back();
    r.pass = "verify";
    r.message = "not verified: " + what;
    r.of("verification");
  }
}

/// f16 or bf16 where most bytes of the weights are of it, else f32.
static DType typeOfWeights(const Module &module) {
  uint64_t half = 0, bfloat = 0, all = 0;
  for (auto &f : module.functions)
    for (auto &op : f->ops())
      if (op->is(OpCode::Constant) && isFloat(op->constant.dtype())) {
        const uint64_t bytes = op->constant.bytes();
        all += bytes;
        half += op->constant.dtype() == DType::F16 ? bytes : 0;
        bfloat += op->constant.dtype() == DType::BF16 ? bytes : 0;
      }
  return half * 2 > all ? DType::F16 : bfloat * 2 > all ? DType::BF16 : DType::F32;
}

/// Runs the finished plan, kernels and all, where there is a GPU that it has code for.
static llvm::Error verifyOnGpu(PlanVerifier &verifier, const Module &module, GeneratedPlan &plan,
                               const DeviceName &device, const PassOptions &options,
                               Progress &progress) {
  if (!rt::cuda::CudaDevice::open(device.ordinal))
    return llvm::Error::success();
  auto session = openGenerated(plan, gpuOf(device));
  if (!session) {
    progress.done("not verified on the GPU: " + llvm::toString(session.takeError()));
    return llvm::Error::success();
  }
  SessionRunner runner(**session);
  auto report = verifier.checkOnGpu(module, runner, options);
  if (!report)
    return report.takeError();
  progress.done(summaryOf(*report));
  return llvm::Error::success();
}

static llvm::Error compile() {
  Progress progress;
  if (maxBatch < 1 || maxBatch > 4096)
    return makeError(ExitCode::Usage, "--max-batch is 1 to 4096");
  if (maxContext < 0)
    return makeError(ExitCode::Usage, "--max-context is at least 1, or 0 for all the positions of "
                                      "the model");
  if (llvm::Error e = checkFiles())
    return e;
  PipelineOptions pipelineOptions = pipelineFlags();
  PassOptions passOptions{levelFlag(), precision, maxBatch, maxContext, {}};
  auto quantize = quantizeFlags();
  if (!quantize)
    return quantize.takeError();
  if (llvm::Error e = checkQuantizeUsage(*quantize))
    return e;
  auto device = deviceFlag();
  if (!device)
    return device.takeError();
  if (device->kind == DeviceName::Kind::Cuda && !usesDevice(*quantize) && !tuneKernels &&
      !takesNativeArch())
    return makeError(ExitCode::Usage,
                     "--device says where --calibration, --eval and --tune run, and what "
                     "--gpu-arch=native is: give one of them, or leave it out");
  passOptions.quantize = std::move(*quantize);
  if (llvm::Error e = checkOptions(pipelineOptions, passOptions))
    return e;
  if (pipelineOptions.compileTo.empty())
    for (llvm::StringRef pass : {"kv-transform", "lower-precision"})
      if (llvm::is_contained(pipelineOptions.disabled, pass))
        return makeError(ExitCode::Usage, "--disable-pass=" + pass +
                                              ": a plan needs what it does; with --compile-to the "
                                              "IR can be looked at without it");
  CodegenOptions options;
  if (!kvBudget.empty()) {
    auto size = parseSize(kvBudget);
    if (!size)
      return size.takeError();
    options.kvBudget = *size;
  }
  auto archs = wantedArchs(*device);
  if (!archs)
    return archs.takeError();
  options.archs = *archs;
  if (!archs->empty() && precision == DType::BF16)
    return makeError(ExitCode::Unsupported,
                     "--precision=bf16 has no kernels for a GPU: --gpu-arch=none makes a plan for "
                     "the CPU device, --precision=fp16 one for both");
  if (archs->empty() && decodeMode == DecodeMode::Persistent)
    return makeError(ExitCode::Unsupported,
                     "--decode=persistent: with --gpu-arch=none there is no code for a GPU");
  if (archs->empty() && tuneKernels)
    return makeError(ExitCode::Usage, "--tune: with --gpu-arch=none there are no kernels");
  if (batchInvariant && (tuneKernels || !tuningPath.empty()))
    return makeError(ExitCode::Usage, "--batch-invariant: kernels are chosen by the order of their "
                                      "sums; leave out --tune and --tuning-file");
  if (batchInvariant && decodeMode != DecodeMode::Auto)
    return makeError(ExitCode::Usage,
                     "--batch-invariant: there are no kernels for decode steps but "
                     "those of @extend; leave out --decode");
  options.batchInvariant = batchInvariant;
  options.cudaPath = cudaPath;
  options.maxBatch = maxBatch;
  options.precision = precisionName(precision).str();
  options.compilerVersion = GPT2C_VERSION;
  options.dependentLaunch = dependentLaunch;
  options.decode = decodeMode;
  options.fp32Math = fp32Math;
  options.fuseNorm = levelFlag() >= 2;
  options.threads = std::max(1u, std::thread::hardware_concurrency());
  if (kernelCache != "off")
    options.kernelCache = kernelCache.empty() ? KernelCache::defaultFolder() : kernelCache;
  if (llvm::sys::Process::StandardErrIsDisplayed())
    options.progress = [](size_t done, size_t all) {
      llvm::errs() << "\rkernels " << done << "/" << all << (done == all ? "\r\033[K" : "");
    };
  else if (verbose) // a line for each quarter
    options.progress = [](size_t done, size_t all) {
      if (done * 4 / all != (done - 1) * 4 / all)
        llvm::errs() << "            kernels " << done << "/" << all << "\n";
    };
  options.flags = {"--precision=" + options.precision, "--max-batch=" + std::to_string(maxBatch),
                   "--max-context=" + std::to_string(maxContext),
                   "--gpu-arch=" + (archs->empty() ? "none" : llvm::join(*archs, ","))};
  if (decodeMode != DecodeMode::Auto)
    options.flags.push_back(decodeMode == DecodeMode::Graph ? "--decode=graph"
                                                            : "--decode=persistent");
  if (batchInvariant)
    options.flags.push_back("--batch-invariant");
  if (fp32Math == Fp32Math::Ffma)
    options.flags.push_back("--fp32-math=ffma");
  if (levelFlag() != PassOptions().level)
    options.flags.push_back("-O" + std::to_string(levelFlag()));
  for (const std::string &pass : pipelineOptions.disabled)
    options.flags.push_back("--disable-pass=" + pass);
  if (verifyMode != VerifyMode::Fast)
    options.flags.push_back("--verify=" + modeName(verifyMode).str());
  llvm::append_range(options.flags, quantizeFlagTexts());
  if (llvm::Error e = readTokenizer(options, progress))
    return e;

  ImportOptions import;
  import.externalFile = [](llvm::StringRef path) {
    return checkOutputs(
        {{"-o", outputPath}, {"--report", reportPath}, {"--remarks", remarksFile()}},
        {{"weights of the model", path}});
  };
  auto module = importOnnx(modelPath, import);
  if (!module)
    return module.takeError();
  progress.done("imported " + modelPath);
  const DType given = typeOfWeights(**module);
  if (precision.getNumOccurrences() == 0 && given != DType::F32)
    llvm::errs() << "note: the export's weights are in "
                 << (given == DType::F16 ? "half precision" : "bfloat16")
                 << ", the plan's in fp32 take twice the bytes; --precision="
                 << precisionName(given) << " keeps them\n";
  std::optional<HtmlReport> page;
  if (!reportPath.empty())
    page.emplace(**module);
  std::vector<Remark> remarks;
  std::optional<rt::Tokenizer> tokenizer;
  if (!options.tokenizer.empty())
    tokenizer =
        rt::Tokenizer::fromBytes(
            {reinterpret_cast<const uint8_t *>(options.tokenizer.data()), options.tokenizer.size()})
            .take();
  std::unique_ptr<plan::QuantizationT> card;
  std::optional<PlanVerifier> verifier;
  if (verifyMode != VerifyMode::Off && pipelineOptions.compileTo.empty())
    verifier.emplace(**module, verifyMode, maxBatch);
  auto run = [&](PassContext &context, PipelineOptions pipeline) {
    pipeline.afterStage = [&verifier, dump = pipeline.afterStage](const Stage &s, const Module &m) {
      if (verifier)
        verifier->afterStage(s, m);
      return dump ? dump(s, m) : llvm::Error::success();
    };
    return runQuantizedPipeline(context, pipeline, options, *device,
                                tokenizer ? &*tokenizer : nullptr, card);
  };
  if (llvm::Error e =
          runWithFlags(**module, passOptions, pipelineOptions, run, remarks, RemarkDetail::Summary))
    return e;
  progress.done("passes");
  if (tokenizer)
    if (llvm::Error e = checkVocabulary(**module, *tokenizer))
      return e;
  if (!pipelineOptions.compileTo.empty())
    return writeOutput(outputPath, [&](llvm::raw_ostream &os) { print(**module, os); });

  const size_t ofPasses = remarks.size();
  if (verifier) {
    if (llvm::Error e = verifier->check(**module, passOptions))
      return e;
    addRemarks(verifier->report(), remarks);
    progress.done(summaryOf(verifier->report()));
  }

  TuningTable table;
  if (!tuningPath.empty() && (!tuneKernels || llvm::sys::fs::exists(tuningPath)))
    table = readTuning(tuningPath, options.archs);
  TunedChoices choices(table);
  if (tuneKernels) {
    auto arch = nativeArch(*device);
    if (!arch)
      return arch.takeError();
    if (table.arch() != *arch)
      table = TuningTable(*arch);
    CodegenOptions native = options;
    native.archs = {*arch};
    native.decode = DecodeMode::Graph;
    auto report = [](const llvm::Twine &line) { llvm::errs() << line << "\n"; };
    if (llvm::Error e = tune(**module, native, table, gpuOf(*device), report, verbose))
      return e;
    if (!tuningPath.empty())
      if (llvm::Error e = writeOutput(tuningPath, [&](auto &os) { os << table.text(); }))
        return e;
    progress.done("tuned");
  }
  options.choose = [&](llvm::StringRef key, llvm::ArrayRef<std::string> names) {
    return choices.choose(key, names);
  };
  auto plan = generatePlan(**module, options);
  if (!plan)
    return plan.takeError();
  (*plan)->contents.meta.quantization = std::move(card);
  if (verbose)
    for (const SumOrders::Estimate &e : (*plan)->orderCosts)
      if (e.cheapest > 0)
        llvm::errs() << llvm::formatv(
            "            products of {0}: {1:F1} us in one order of sums, "
            "{2:F1} in any; {3} have no estimate\n",
            e.version, e.taken, e.cheapest, e.unknown);
  if (verifier) {
    (*plan)->contents.meta.verification = verifier->record();
    (*plan)->contents.meta.golden = verifier->takeGolden();
  }
  StepSizes sizes = StepSizes::of(**module, maxContext);
  addRemarks(**plan, options.archs, remarks);
  if (llvm::Error e = showFurther(remarks, ofPasses, sizes))
    return e;
  for (const Remark &r : remarks)
    (*plan)->contents.meta.remarks.push_back(
        std::make_unique<plan::RemarkT>(storedRemark(r, sizes)));
  reportStale(tuningPath, choices);
  progress.done(options.archs.empty() ? "no kernels" : describeKernels((*plan)->kernels, options));
  if (verifier && !options.archs.empty())
    if (llvm::Error e = verifyOnGpu(*verifier, **module, **plan, *device, passOptions, progress))
      return e;
  if (page)
    if (llvm::Error e = writeOutput(reportPath, [&](llvm::raw_ostream &os) {
          page->write(**module, (*plan)->contents.meta, os);
        }))
      return e;
  if (rt::Status s = rt::writePlan(outputPath, (*plan)->contents); !s.ok())
    return toError(s);
  progress.done("wrote " + outputPath);
  return llvm::Error::success();
}

int main(int argc, char **argv) {
  parseCommandLine(argc, argv, "gpt2c: compiles an ONNX export of GPT-2 into a plan\n");
  return runTool(compile);
}
