#include "tools/gpt2c/Flags.h"

#include "codegen/KernelCache.h"
#include "codegen/Nvrtc.h"
#include "codegen/driver/GroupCost.h"
#include "ir/Error.h"
#include "passes/quantize/Precision.h"
#include "schedule/Target.h"
#include "tools/common/Tokens.h"
#include "tools/common/flags/CommandLine.h"
#include "tools/common/flags/PipelineFlags.h"
#include "tools/common/flags/QuantizeFlags.h"
#include "tools/common/verification/Verification.h"
#include "tools/gpt2c/CalibrateTarget.h"
#include "tools/gpt2c/Gpu.h"
#include "tools/gpt2c/Quantize.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"

#include <thread>

namespace gpt2c {

namespace cl = llvm::cl;

static cl::opt<std::string> modelPath(cl::Positional, cl::Required, cl::desc("MODEL.onnx | FOLDER"),
                                      category());
static cl::opt<std::string> outputPath("o", cl::Required, cl::desc("The plan to write"),
                                       cl::value_desc("PLAN"), category());
static cl::opt<DType>
    precision("precision",
              cl::desc("Element type of weights, activations and KV state (default "
                       "fp32)"),
              cl::values(clEnumValN(DType::F32, "fp32", "single precision"),
                         clEnumValN(DType::F16, "fp16", "half precision, sums in single"),
                         clEnumValN(DType::BF16, "bf16", "bfloat16, sums in single")),
              cl::init(DType::F32), category());
enum class CompressWeights : uint8_t { None, Lossless };
static cl::opt<CompressWeights> compressWeights(
    "compress-weights", cl::desc("Store matrices in fewer bytes than their elements have"),
    cl::values(clEnumValN(CompressWeights::None, "none", "they are as they are (default)"),
               clEnumValN(CompressWeights::Lossless, "lossless",
                          "with --precision=bf16: 12 bits for an element of 16, the same to the "
                          "bit; a smaller plan, steps as fast as without")),
    cl::init(CompressWeights::None), category());
static cl::opt<std::string>
    gpuArch("gpu-arch",
            cl::desc("GPU architectures: a list such as sm_90a,compute_80 (compute_*: PTX), "
                     "native, all, or none for a plan "
                     "that runs on the CPU only (default: native where there is a GPU, else all)"),
            cl::value_desc("LIST"), category());
static cl::opt<std::string>
    targetName("target",
               cl::desc("The machine that estimates are for: h100, h200, or a file of "
                        "--calibrate-target (default: h200)"),
               cl::value_desc("NAME|FILE"), category());
static cl::opt<std::string>
    calibratePath("calibrate-target",
                  cl::desc("Measure what launches, memory, hops and products take on the GPU of "
                           "--device, write it to FILE for --target, and compile nothing"),
                  cl::value_desc("FILE"), category());
static cl::opt<std::string> tokenizerPath(
    "tokenizer",
    cl::desc("Folder with tokenizer.json, vocab.json and merges.txt, or tokenizer.model; none "
             "leaves it out (default: the model's folder)"),
    cl::value_desc("DIR"), category());
static cl::opt<std::string>
    adapterPath("adapter",
                cl::desc("Folder of a LoRA adapter (adapter_config.json, "
                         "adapter_model.safetensors) to merge into the weights of a checkpoint "
                         "(default: the one in the model's folder, if there is one)"),
                cl::value_desc("DIR"), category());
static cl::opt<std::string>
    eosTokens("eos",
              cl::desc("Ids of the tokens that end an answer, or none (default: what "
                       "generation_config.json, config.json and the tokenizer say)"),
              cl::value_desc("IDS"), category());
static cl::opt<int64_t> maxBatch("max-batch", cl::desc("Most sequences at once (default 8)"),
                                 cl::init(8), category());
static cl::opt<int64_t>
    maxContext("max-context",
               cl::desc("Most tokens of a sequence (default: the model's positions)"), cl::init(0),
               category());
static cl::opt<std::string>
    kvBudget("kv-budget", cl::desc("Refuse a KV state larger than this (bytes, or with K, M, G)"),
             cl::value_desc("SIZE"), category());
static cl::opt<std::string> cudaPath("cuda-path",
                                     cl::desc("CUDA toolkit or unpacked wheels with NVRTC"),
                                     cl::value_desc("DIR"), category());
static cl::opt<std::string>
    kernelCache("kernel-cache",
                cl::desc("Where compiled kernels are kept for later plans, or off (default: gpt2c "
                         "below $XDG_CACHE_HOME or ~/.cache)"),
                cl::value_desc("DIR"), category());
static cl::opt<bool> tuneKernels(
    "tune",
    cl::desc("Time the kernels that may compute each op on this machine's GPU and take the fastest "
             "(minutes)"),
    category());
static cl::opt<std::string>
    tuningPath("tuning-file",
               cl::desc("Choose kernels by what an earlier --tune measured; with --tune, measure "
                        "what is missing and write all of it there"),
               cl::value_desc("FILE"), category());
static cl::opt<bool>
    dependentLaunch("dependent-launch",
                    cl::desc("Let a step's launch overlap the end of the step before it (sm_90 and "
                             "later; default on)"),
                    cl::init(true), category());
static cl::opt<bool> sharedPrefixes(
    "shared-prefixes",
    cl::desc("Read keys of a prefix that sequences of a decode step share once for all of them "
             "(default on)"),
    cl::init(true), category());
static cl::opt<DecodeMode> decodeMode(
    "decode", cl::desc("How decode steps run on a GPU (default auto)"),
    cl::values(clEnumValN(DecodeMode::Graph, "graph", "a CUDA graph of launches"),
               clEnumValN(DecodeMode::Persistent, "persistent",
                          "one kernel for many steps of one sequence, in fp16 of up "
                          "to 16 (sm_90 and later), else a graph"),
               clEnumValN(DecodeMode::Auto, "auto",
                          "what is estimated to be faster, for each number of sequences: "
                          "persistent for sm_90a alone, where the model allows, else graph")),
    cl::init(DecodeMode::Auto), category());
static cl::opt<Fp32Math> fp32Math(
    "fp32-math", cl::desc("How products of fp32 operands are computed on a GPU (default 3xtf32)"),
    cl::values(clEnumValN(Fp32Math::Tf32x3, "3xtf32",
                          "on tensor cores, each as three products of TF32: as exact as fp32 sums"),
               clEnumValN(Fp32Math::Ffma, "ffma", "by fused multiply-adds, the slower way")),
    cl::init(Fp32Math::Tf32x3), category());
static cl::opt<bool> batchInvariant(
    "batch-invariant",
    cl::desc("Give a sequence the same logits, bit for bit, alone and in any batch, in whatever "
             "pieces its prompt is computed: one order of sums for all numbers of rows. On a GPU "
             "such a plan runs in the engine alone"),
    category());
static cl::list<std::string>
    setInput("set-input", cl::CommaSeparated,
             cl::desc("Sets an input of an export, of fixed size, for good: each of its elements "
                      "is that number. A merged decoder's branch, a temperature"),
             cl::value_desc("NAME=NUMBER"), category());
static cl::opt<bool> outputHiddenStates(
    "output-hidden",
    cl::desc("Give the hidden states of each token behind the last layer in the place of logits: "
             "a plan of embeddings, as gpt2c-serve --embeddings takes it"),
    category());
static cl::opt<std::string>
    reportPath("report",
               cl::desc("Also write an HTML page: the graph before and after, remarks, steps, "
                        "memory, KV state"),
               cl::value_desc("FILE.html"), category());
static cl::opt<VerifyMode> verifyMode(
    "verify",
    cl::desc("Compare what the plan computes with the exported graph before it is written"),
    cl::values(
        clEnumValN(VerifyMode::Off, "off", "not at all"),
        clEnumValN(VerifyMode::Fast, "fast",
                   "a few sequences, over the full context where that costs little (default)"),
        clEnumValN(VerifyMode::Full, "full", "the full context, several batches, masks and pasts")),
    cl::init(VerifyMode::Fast), category());
static cl::opt<bool> verbose("v", cl::desc("Tell what is done and how long it takes"), category());

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

static std::vector<FlagPath> outputFiles() {
  return {{"-o", outputPath}, {"--report", reportPath}, {"--remarks", remarksFile()}};
}

/// Files that are written, and those that are read.
std::string folderOf(llvm::StringRef path) {
  if (llvm::sys::fs::is_directory(path))
    return path.str();
  const llvm::StringRef folder = llvm::sys::path::parent_path(path);
  return folder.empty() ? "." : folder.str();
}

/// The ids of --eos: none where it is not given.
static llvm::Expected<std::optional<std::vector<int32_t>>> eosFlag() {
  if (!eosTokens.getNumOccurrences())
    return std::nullopt;
  if (eosTokens == "none")
    return std::vector<int32_t>();
  auto ids = parseIds(eosTokens);
  if (!ids)
    return inContext("--eos", ids.takeError());
  for (const int32_t id : *ids)
    if (id < 0)
      return makeError(ExitCode::Usage, "--eos: a token id is at least 0");
  if (ids->empty())
    return makeError(ExitCode::Usage, "--eos wants ids between commas, or none");
  return std::optional(std::vector<int32_t>(ids->begin(), ids->end()));
}

/// The inputs of --set-input with their numbers.
static llvm::Expected<std::vector<std::pair<std::string, double>>> inputsFlag() {
  std::vector<std::pair<std::string, double>> inputs;
  for (llvm::StringRef text : setInput) {
    auto [name, number] = text.rsplit('=');
    double value = 0;
    if (name.empty() || name == text || number.getAsDouble(value))
      return makeError(ExitCode::Usage,
                       "--set-input: '" + text + "' is no NAME=NUMBER, as temperature=1");
    inputs.emplace_back(name.str(), value);
  }
  return inputs;
}

static llvm::Error checkFiles() {
  const std::string folder = tokenizerPath.empty() ? folderOf(modelPath) : tokenizerPath;
  std::vector<std::string> read;
  for (const char *name : {"tokenizer.json", "vocab.json", "merges.txt", "tokenizer.model",
                           "added_tokens.json", "tokenizer_config.json", "special_tokens_map.json",
                           "chat_template.jinja", "generation_config.json", "config.json"}) {
    llvm::SmallString<256> path(folder);
    llvm::sys::path::append(path, name);
    read.push_back(path.str().str());
  }
  std::vector<FlagPath> inputs{{"the model", modelPath}};
  for (const std::string &path : read)
    inputs.push_back({"the tokenizer", path});
  std::vector<std::string> ofFolder;
  if (llvm::sys::fs::is_directory(modelPath))
    for (const char *name : {"model.onnx", "config.json", "model.safetensors.index.json"})
      ofFolder.push_back(modelPath + "/" + name);
  for (const char *name : {"adapter_config.json", "adapter_model.safetensors"})
    ofFolder.push_back((adapterPath.empty() ? folderOf(modelPath) : adapterPath) + "/" + name);
  for (const std::string &path : ofFolder)
    inputs.push_back({"the model", path});
  std::vector<FlagPath> outputs = outputFiles();
  llvm::append_range(inputs, quantizeInputs());
  llvm::append_range(outputs, quantizeOutputs());
  if (tuneKernels)
    outputs.push_back({"--tuning-file", tuningPath});
  else
    inputs.push_back({"--tuning-file", tuningPath});
  return checkOutputs(outputs, inputs);
}

llvm::Error checkWeightFile(llvm::StringRef path) {
  return checkOutputs(outputFiles(), {{"weights of the model", path}});
}

static llvm::Error checkPasses(const PipelineOptions &pipeline, const PassOptions &passes) {
  if (llvm::Error e = checkOptions(pipeline, passes))
    return e;
  if (!pipeline.compileTo.empty())
    return llvm::Error::success();
  for (llvm::StringRef pass : {"kv-transform", "lower-precision"})
    if (llvm::is_contained(pipeline.disabled, pass))
      return makeError(ExitCode::Usage, "--disable-pass=" + pass +
                                            ": a plan needs what it does; with --compile-to the "
                                            "IR can be looked at without it");
  return llvm::Error::success();
}

/// Flags that only together are wrong, once the architectures are known.
static llvm::Error checkKernels(llvm::ArrayRef<std::string> archs) {
  if (archs.empty() && decodeMode == DecodeMode::Persistent)
    return makeError(ExitCode::Unsupported,
                     "--decode=persistent: with --gpu-arch=none there is no code for a GPU");
  if (archs.empty() && tuneKernels)
    return makeError(ExitCode::Usage, "--tune: with --gpu-arch=none there are no kernels");
  if (batchInvariant && (tuneKernels || !tuningPath.empty()))
    return makeError(ExitCode::Usage, "--batch-invariant: kernels are chosen by the order of their "
                                      "sums; leave out --tune and --tuning-file");
  if (batchInvariant && decodeMode != DecodeMode::Auto)
    return makeError(ExitCode::Usage,
                     "--batch-invariant: there are no kernels for decode steps but "
                     "those of @extend; leave out --decode");
  return llvm::Error::success();
}

/// Kernels done of all: a line that is written over on a terminal, with -v one for each quarter.
static std::function<void(size_t, size_t)> kernelProgress() {
  if (llvm::sys::Process::StandardErrIsDisplayed())
    return [](size_t done, size_t all) {
      llvm::errs() << "\rkernels " << done << "/" << all << (done == all ? "\r\033[K" : "");
    };
  if (!verbose)
    return nullptr;
  return [](size_t done, size_t all) {
    if (done * 4 / all != (done - 1) * 4 / all)
      llvm::errs() << "            kernels " << done << "/" << all << "\n";
  };
}

/// The flags that the plan records: what it depends on.
static std::vector<std::string> recordedFlags(const CompileFlags &f) {
  const CodegenOptions &o = f.codegen;
  std::vector<std::string> flags = {
      "--precision=" + o.precision, "--max-batch=" + std::to_string(maxBatch),
      "--max-context=" + std::to_string(maxContext),
      "--gpu-arch=" + (o.archs.empty() ? "none" : llvm::join(o.archs, ","))};
  if (!targetName.empty())
    flags.push_back("--target=" + llvm::sys::path::filename(targetName).str());
  if (o.decode != DecodeMode::Auto)
    flags.push_back(o.decode == DecodeMode::Graph ? "--decode=graph" : "--decode=persistent");
  if (o.batchInvariant)
    flags.push_back("--batch-invariant");
  if (!o.sharedPrefixes)
    flags.push_back("--shared-prefixes=false");
  if (o.packWeights)
    flags.push_back("--compress-weights=lossless");
  if (o.fp32Math == Fp32Math::Ffma)
    flags.push_back("--fp32-math=ffma");
  if (f.passes.level != PassOptions().level)
    flags.push_back("-O" + std::to_string(f.passes.level));
  if (!f.passes.tensorParallel.empty())
    flags.push_back("--tensor-parallel=" +
                    llvm::join(llvm::map_range(f.passes.tensorParallel,
                                               [](int64_t n) { return std::to_string(n); }),
                               ","));
  for (const std::string &input : setInput)
    flags.push_back("--set-input=" + input);
  for (const std::string &pass : f.pipeline.disabled)
    flags.push_back("--disable-pass=" + pass);
  if (f.verify != VerifyMode::Fast)
    flags.push_back("--verify=" + modeName(f.verify).str());
  llvm::append_range(flags, quantizeFlagTexts());
  return flags;
}

static llvm::Error readCodegenFlags(CompileFlags &f) {
  CodegenOptions &o = f.codegen;
  if (!kvBudget.empty()) {
    auto size = parseSize(kvBudget);
    if (!size)
      return size.takeError();
    o.kvBudget = *size;
  }
  auto archs = wantedArchs(f.device);
  if (!archs)
    return archs.takeError();
  if (llvm::Error e = checkKernels(*archs))
    return e;
  auto rates = targetFlag(targetName);
  if (!rates)
    return rates.takeError();
  o.rates = *rates;
  o.archs = std::move(*archs);
  f.passes.quantize.widenWeights =
      mayWidenWeights() && !o.archs.empty() && !batchInvariant && f.passes.precision != DType::F32;
  f.passes.quantize.fp8Products = o.archs.empty() || Target::of(o.archs).has(wgmmaTiles);
  o.batchInvariant = batchInvariant;
  o.packWeights = compressWeights == CompressWeights::Lossless;
  o.cudaPath = cudaPath;
  o.maxBatch = maxBatch;
  o.precision = precisionName(precision).str();
  o.compilerVersion = GPT2C_VERSION;
  o.dependentLaunch = dependentLaunch;
  o.sharedPrefixes = sharedPrefixes;
  o.decode = decodeMode;
  o.fp32Math = fp32Math;
  o.fuseNorm = f.passes.level >= 2;
  o.threads = std::max(1u, std::thread::hardware_concurrency());
  if (kernelCache != "off")
    o.kernelCache = kernelCache.empty() ? KernelCache::defaultFolder() : kernelCache;
  o.progress = kernelProgress();
  o.flags = recordedFlags(f);
  f.passes.quantize.groupsAreSlower = [of = f.passes, o](const Module &module, int64_t group) {
    return o.archs.empty() || of.quantize.widenWeights
               ? whyGroupsAreSlower(module, of.precision, group, o)
               : "calls of many rows have no kernel with groups, nor floats beside them";
  };
  return llvm::Error::success();
}

void allowCalibration(llvm::ArrayRef<const char *> arguments) {
  if (llvm::none_of(arguments, [](llvm::StringRef argument) {
        return argument.consume_front("-") &&
               (argument.consume_front("-"), argument.starts_with(calibratePath.ArgStr));
      }))
    return;
  modelPath.setNumOccurrencesFlag(cl::Optional);
  outputPath.setNumOccurrencesFlag(cl::Optional);
}

bool calibrates() { return calibratePath.getNumOccurrences() > 0; }

llvm::Error calibrateTarget() {
  if (!modelPath.empty() || !outputPath.empty())
    return makeError(ExitCode::Usage, "--calibrate-target measures and compiles nothing: leave out "
                                      "the model and -o, then give the file to --target");
  auto device = deviceFlag();
  if (!device)
    return device.takeError();
  if (device->kind == DeviceName::Kind::Cpu)
    return makeError(ExitCode::Usage, "--calibrate-target: --device=cpu is no GPU");
  auto measured = measureTarget(*device, cudaPath);
  if (!measured)
    return measured.takeError();
  return writeOutput(calibratePath,
                     [&](llvm::raw_ostream &os) { os << measured->rates.print(measured->device); });
}

llvm::Expected<CompileFlags> compileFlags() {
  if (maxBatch < 1 || maxBatch > 4096)
    return makeError(ExitCode::Usage, "--max-batch is 1 to 4096");
  if (maxContext < 0)
    return makeError(ExitCode::Usage, "--max-context is at least 1, or 0 for all the positions of "
                                      "the model");
  if (compressWeights == CompressWeights::Lossless && precision != DType::BF16)
    return makeError(ExitCode::Usage,
                     "--compress-weights=lossless stores bfloat16: give --precision=bf16, or leave "
                     "it out");
  if (llvm::Error e = checkFiles())
    return e;
  auto quantize = quantizeFlags();
  if (!quantize)
    return quantize.takeError();
  if (llvm::Error e = checkQuantizeUsage(*quantize))
    return e;
  auto ranks = tensorParallelFlag();
  if (!ranks)
    return ranks.takeError();
  auto device = deviceFlag();
  if (!device)
    return device.takeError();
  if (device->kind == DeviceName::Kind::Cuda && !usesDevice(*quantize) && !tuneKernels &&
      !takesNativeArch())
    return makeError(ExitCode::Usage,
                     "--device says where --calibration, --eval and --tune run, and what "
                     "--gpu-arch=native is: give one of them, or leave it out");
  auto eos = eosFlag();
  if (!eos)
    return eos.takeError();
  auto inputs = inputsFlag();
  if (!inputs)
    return inputs.takeError();
  CompileFlags f{.model = modelPath,
                 .output = outputPath,
                 .adapter = adapterPath,
                 .tokenizer = tokenizerPath,
                 .report = reportPath,
                 .tuning = tuningPath,
                 .eos = std::move(*eos),
                 .inputs = std::move(*inputs),
                 .outputHidden = outputHiddenStates,
                 .tune = tuneKernels,
                 .verbose = verbose,
                 .precisionGiven = precision.getNumOccurrences() > 0,
                 .maxContext = maxContext,
                 .verify = verifyMode,
                 .device = *device,
                 .pipeline = pipelineFlags(),
                 .passes = {levelFlag(), precision, maxBatch, maxContext, std::move(*quantize),
                            std::move(*ranks)},
                 .codegen = {}};
  if (llvm::Error e = checkPasses(f.pipeline, f.passes))
    return e;
  if (llvm::Error e = readCodegenFlags(f))
    return e;
  return f;
}
} // namespace gpt2c
