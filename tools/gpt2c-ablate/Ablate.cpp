#include "tools/gpt2c-ablate/Ablate.h"

#include "codegen/Codegen.h"
#include "codegen/KernelCache.h"
#include "frontend/Import.h"
#include "ir/Text.h"
#include "passes/Pipeline.h"
#include "passes/quantize/Precision.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/plan/Expr.h"
#include "runtime/plan/FunctionNames.h"
#include "tools/common/RuntimeError.h"
#include "tools/common/flags/DeviceFlags.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"

#include <chrono>
#include <thread>

namespace gpt2c {

namespace {

/// What one plan of the series is compiled with.
struct Variant {
  std::string what;
  unsigned level = 2;
  std::vector<std::string> disabled;
  bool fuseNorm = false, dependentLaunch = false;
  DecodeMode decode = DecodeMode::Graph;
};

} // namespace

/// Passes that run from a level above 0 on and at no other: what recognises and fuses.
static std::vector<std::string> fusions() {
  std::vector<std::string> names;
  for (const Stage &stage : pipeline())
    for (llvm::StringRef pass : stage.passes) {
      bool always = llvm::any_of(pipeline(), [&](const Stage &s) {
        return s.level == 0 && llvm::is_contained(s.passes, pass);
      });
      const bool isFusion = !pass.starts_with("report-") && pass != "shard"; // of ranks
      if (stage.level > 0 && !always && isFusion && !llvm::is_contained(names, pass))
        names.push_back(pass.str());
    }
  return names;
}

static std::vector<Variant> variants() {
  std::vector<Variant> list{{"-O0", 0, {}}};
  std::vector<std::string> left = fusions();
  while (!left.empty()) {
    std::string added = left.front();
    left.erase(left.begin());
    list.push_back({"+ " + added, 2, left});
  }
  list.push_back({"+ norms inside products", 2, {}, true});
  list.push_back({"+ dependent launch", 2, {}, true, true});
  list.push_back({"+ one kernel a decode step", 2, {}, true, true, DecodeMode::Auto});
  return list;
}

/// The model after the passes of a variant.
static llvm::Expected<std::unique_ptr<Module>> lowered(const Variant &variant,
                                                       const AblateOptions &o) {
  ImportOptions import;
  import.precision = o.precision;
  auto module = importModel(o.model, import);
  if (!module)
    return module.takeError();
  PassOptions passOptions;
  passOptions.level = variant.level;
  passOptions.precision = o.precision;
  passOptions.maxBatch = 1;
  PipelineOptions pipelineOptions;
  pipelineOptions.disabled = variant.disabled;
  std::vector<Remark> remarks;
  PassContext context(**module, passOptions, remarks);
  if (llvm::Error e = runPipeline(context, pipelineOptions))
    return e;
  return module;
}

/// Writes its plan for an architecture, or for the CPU device alone; whether decode steps are one
/// kernel.
static llvm::Expected<bool> compile(const Module &module, const Variant &variant,
                                    const AblateOptions &o, llvm::StringRef path,
                                    const std::string &arch) {
  CodegenOptions options;
  if (!arch.empty())
    options.archs = {arch};
  options.maxBatch = 1;
  options.precision = precisionName(o.precision).str();
  options.compilerVersion = GPT2C_VERSION;
  options.fuseNorm = variant.fuseNorm;
  options.dependentLaunch = variant.dependentLaunch;
  options.decode = variant.decode;
  options.threads = std::max(1u, std::thread::hardware_concurrency());
  options.kernelCache = KernelCache::defaultFolder();
  auto plan = generatePlan(module, options);
  if (!plan)
    return plan.takeError();
  if (!arch.empty() && !(*plan)->hostOnly.empty())
    return makeError(ExitCode::Unsupported,
                     variant.what + ": " + (*plan)->hostOnly.text(options.archs));
  if (rt::Status s = rt::writePlan(path.str(), (*plan)->contents); !s.ok())
    return toError(s);
  return llvm::any_of((*plan)->contents.meta.functions,
                      [](auto &f) { return f->name == rt::functions::generate; });
}

/// Launches and bytes by the IR, where the plan has no kernels: one for each op.
static AblatedStep countOps(const Function *f, int tokens, int past) {
  AblatedStep out;
  if (!f)
    return out;
  for (auto &op : f->ops())
    if (isLaunched(*op)) {
      ++out.launches;
      out.bytes += double(bytesAt(inStepSymbols(leastBytes(*op), *f), {tokens, past}));
    }
  return out;
}

/// Launches and bytes of the first function of this name that takes one sequence of `tokens` tokens
/// behind `past` others.
static AblatedStep count(rt::Session &session, llvm::StringRef name, int tokens, int past) {
  for (const auto &f : session.backend().functions()) {
    if (f->name != name || f->steps.empty())
      continue;
    std::vector<int64_t> symbols;
    for (const auto &s : f->symbols)
      symbols.push_back(s->name == "slots" ? s->max : std::max<int64_t>(0, s->min));
    for (const auto &port : f->inputs)
      for (size_t axis = 0; axis < port->shape.size() && port->role == plan::Role::Ids; ++axis) {
        const std::vector<int64_t> &code = port->shape[axis]->code;
        if (code.size() == 2 && code[0] == int64_t(rt::ExprOp::Symbol))
          symbols[code[1]] = axis == 0 ? 1 : tokens;
      }
    bool fits = llvm::all_of(llvm::zip_equal(f->symbols, symbols), [](auto pair) {
      auto &[symbol, value] = pair;
      return value >= symbol->min && value <= symbol->max;
    });
    if (!fits)
      continue;
    AblatedStep out;
    for (const auto &step : f->steps) {
      bool skipped =
          llvm::any_of(step->grid, [&](const auto &size) { return valueOf(size, symbols) == 0; });
      out.launches += !skipped;
      out.bytes += valueOf(step->bytes, symbols) + past * valueOf(step->past_bytes, symbols);
    }
    return out;
  }
  return {};
}

/// The median time of the whole graph over `tokens` tokens.
static llvm::Expected<double> timeWhole(rt::Session &session, int tokens, int repetitions) {
  std::vector<rt::Tokens> prompt = randomPrompts(session, 1, tokens);
  std::vector<double> times;
  session.backend().timeOnDevice(true);
  for (int i = 0; i < repetitions + 2; ++i) {
    auto start = std::chrono::steady_clock::now();
    rt::Result<rt::HostTensor> logits = session.logits(prompt);
    if (!logits)
      return toError(logits.status());
    std::chrono::duration<double, std::milli> wall = std::chrono::steady_clock::now() - start;
    double device = session.backend().stats().deviceMilliseconds;
    if (i >= 2)
      times.push_back(device > 0 ? device : wall.count());
  }
  return quantiles(times).median;
}

static llvm::Error time(rt::Session &session, const Module &module, const AblateOptions &o,
                        Ablation &row) {
  row.hasKvState = session.hasKvState();
  auto counted = [&](llvm::StringRef name, int tokens, int past) {
    AblatedStep steps = count(session, name, tokens, past);
    return steps.launches ? steps : countOps(module.function(name), tokens, past);
  };
  if (!row.hasKvState) {
    row.prefill = counted(rt::functions::forward, o.prompt, 0);
    row.decode = counted(rt::functions::forward, o.depth + 1, 0);
    for (auto [step, tokens] : {std::pair(&row.prefill, o.prompt), {&row.decode, o.depth + 1}}) {
      auto ms = timeWhole(session, tokens, o.repetitions);
      if (!ms)
        return ms.takeError();
      step->milliseconds = *ms;
    }
    return llvm::Error::success();
  }
  row.prefill = counted(rt::functions::prefill, o.prompt, 0);
  row.decode = counted(rt::functions::decode, 1, o.depth);
  MeasureOptions measured;
  measured.batches = {1};
  measured.prompts = {o.prompt};
  measured.depths = {o.depth};
  measured.decodeTokens = o.decodeTokens;
  measured.repetitions = o.repetitions;
  rt::Result<std::vector<Row>> rows = measure(session, measured);
  if (!rows)
    return toError(rows.status());
  for (const Row &r : *rows) {
    double ms = r.device > 0 ? r.device : r.wall.median;
    (llvm::StringRef(r.kind) == rt::functions::prefill ? row.prefill : row.decode).milliseconds =
        ms;
  }
  return llvm::Error::success();
}

/// All of a module but the elements of its weights, which it names by their hash.
static std::string textOf(const Module &module) {
  std::string text;
  llvm::raw_string_ostream os(text);
  PrintOptions options;
  options.weights = [](uint64_t, const Tensor &) {};
  print(module, os, options);
  return text;
}

llvm::Expected<AblationResult> ablate(const AblateOptions &o) {
  std::string arch;
  if (allowsCuda()) {
    if (auto gpu = rt::cuda::CudaDevice::open())
      arch = archOf((*gpu)->capability());
  }
  AblationResult result;
  std::string before;
  for (const Variant &variant : variants()) {
    if (o.progress)
      o.progress(variant.what);
    auto module = lowered(variant, o);
    if (!module)
      return module.takeError();
    // The last variants differ in their kernels only.
    std::string text = textOf(**module);
    bool changesKernels = !arch.empty() && (variant.fuseNorm || variant.dependentLaunch);
    if (text == before && !changesKernels) {
      result.withoutEffect.push_back(variant.what.substr(2));
      continue;
    }
    before = std::move(text);
    llvm::SmallString<64> path;
    if (std::error_code error = llvm::sys::fs::createTemporaryFile("gpt2c-ablate", "plan", path))
      return makeError(ExitCode::Io, "cannot create a temporary file: " + error.message());
    llvm::FileRemover remover(path);
    auto isOneKernel = compile(**module, variant, o, path, arch);
    if (!isOneKernel)
      return isOneKernel.takeError();
    if (variant.decode != DecodeMode::Graph && !*isOneKernel) {
      result.withoutEffect.push_back(variant.what.substr(2));
      continue;
    }
    auto session = openSession(path.str().str());
    if (!session)
      return session.takeError();
    Ablation row{variant.what, {}, {}};
    if (llvm::Error e = time(**session, **module, o, row))
      return e;
    if (*isOneKernel)
      row.decode.launches = 1;
    result.rows.push_back(std::move(row));
    if (o.measured)
      o.measured(result.rows.back());
  }
  return result;
}

} // namespace gpt2c
