// gpt2c: compiles an ONNX export or a checkpoint of a decoder into a plan.
#include "codegen/driver/Schedules.h"
#include "frontend/Import.h"
#include "ir/Error.h"
#include "passes/kv/HiddenOutput.h"
#include "passes/quantize/Precision.h"
#include "runtime/cuda/CudaDevice.h"
#include "runtime/device/Device.h"
#include "runtime/group/ThreadRanks.h"
#include "tools/common/RuntimeError.h"
#include "tools/common/flags/CommandLine.h"
#include "tools/common/flags/PipelineFlags.h"
#include "tools/common/report/HtmlReport.h"
#include "tools/common/report/Remarks.h"
#include "tools/common/report/Report.h"
#include "tools/common/tuning/Tuner.h"
#include "tools/common/verification/GeneratedSession.h"
#include "tools/common/verification/SessionRunner.h"
#include "tools/common/verification/Verification.h"
#include "tools/gpt2c/Flags.h"
#include "tools/gpt2c/Gpu.h"
#include "tools/gpt2c/ModelFolder.h"
#include "tools/gpt2c/PlanRemarks.h"
#include "tools/gpt2c/PlanTokenizer.h"
#include "tools/gpt2c/Quantize.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Path.h"

using namespace gpt2c;

namespace {

/// What people call a model: its file's name, or the folder's where that is model.onnx.
std::string titleOf(llvm::StringRef path) {
  llvm::SmallString<128> at(path);
  if (llvm::sys::fs::make_absolute(at))
    at = path; // as it is given
  llvm::sys::path::remove_dots(at, /*remove_dot_dot=*/true);
  const bool isFolder = llvm::sys::fs::is_directory(path);
  if (!isFolder && llvm::sys::path::filename(at) == "model.onnx")
    llvm::sys::path::remove_filename(at);
  const llvm::StringRef name = llvm::sys::path::filename(at);
  return name.ends_with(".onnx") ? name.drop_back(5).str() : name.str();
}

/// f16 or bf16 where most bytes of the weights are of it, else f32.
DType typeOfWeights(const Module &module) {
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

/// One compilation, step by step.
class Compilation {
public:
  explicit Compilation(CompileFlags flags)
      : flags_(std::move(flags)), options_(flags_.codegen), progress_(flags_.verbose) {}

  llvm::Error run() {
    if (llvm::Error e = readModel())
      return e;
    if (llvm::Error e = runPasses())
      return e;
    if (compilesToSchedule())
      return writeOutput(flags_.output,
                         [&](llvm::raw_ostream &os) { printSchedules(*module_, options_, os); });
    if (!flags_.pipeline.compileTo.empty())
      return writeOutput(flags_.output, [&](llvm::raw_ostream &os) { print(*module_, os); });
    const size_t ofPasses = remarks_.size();
    if (llvm::Error e = verify())
      return e;
    if (llvm::Error e = generate())
      return e;
    if (llvm::Error e = verifyOnRanks())
      return e;
    if (llvm::Error e = recordRemarks(ofPasses))
      return e;
    if (llvm::Error e = verifyOnGpu())
      return e;
    return write();
  }

private:
  llvm::Error readModel();
  llvm::Error runPasses();
  llvm::Error verify();
  llvm::Error tuneKernels(TuningTable &table);
  void describeTexts();
  void comparePositions();
  llvm::Error generate();
  llvm::Error verifyOnRanks();
  llvm::Error recordRemarks(size_t ofPasses);
  llvm::Error verifyOnGpu();
  llvm::Error write();

  const CompileFlags flags_;
  CodegenOptions options_;
  Progress progress_;
  std::optional<rt::Tokenizer> tokenizer_;
  std::unique_ptr<Module> module_;
  std::optional<HtmlReport> page_;
  std::optional<PlanVerifier> verifier_;
  std::vector<Remark> remarks_;
  std::unique_ptr<plan::QuantizationT> card_;
  std::unique_ptr<GeneratedPlan> plan_;
};

llvm::Error Compilation::readModel() {
  auto tokenizer = readTokenizer(flags_, progress_);
  if (!tokenizer)
    return tokenizer.takeError();
  tokenizer_ = std::move(*tokenizer);
  ImportOptions import;
  import.externalFile = checkWeightFile;
  import.precision = flags_.passes.precision;
  import.adapter = flags_.adapter;
  import.inputs = flags_.inputs;
  auto module = importModel(flags_.model, import);
  if (!module)
    return module.takeError();
  module_ = std::move(*module);
  if (flags_.outputHidden)
    if (llvm::Error e = outputHidden(*module_->functions.front()))
      return e;
  progress_.done("imported " + flags_.model);
  const DType given = typeOfWeights(*module_);
  if (!flags_.precisionGiven && given != DType::F32)
    llvm::errs() << "note: the export's weights are in "
                 << (given == DType::F16 ? "half precision" : "bfloat16")
                 << ", the plan's in fp32 take twice the bytes; --precision="
                 << precisionName(given) << " keeps them\n";
  if (!flags_.report.empty())
    page_.emplace(*module_, titleOf(flags_.model));
  if (flags_.verify != VerifyMode::Off && flags_.pipeline.compileTo.empty() &&
      !compilesToSchedule())
    verifier_.emplace(*module_, flags_.verify, options_.maxBatch);
  return llvm::Error::success();
}

llvm::Error Compilation::runPasses() {
  auto run = [&](PassContext &context, PipelineOptions pipeline) {
    pipeline.afterStage = [this, dump = pipeline.afterStage](const Stage &s, const Module &m) {
      if (verifier_)
        verifier_->afterStage(s, m);
      return dump ? dump(s, m) : llvm::Error::success();
    };
    return runQuantizedPipeline(context, pipeline, options_, flags_.device,
                                tokenizer_ ? &*tokenizer_ : nullptr, card_);
  };
  if (llvm::Error e = runWithFlags(*module_, flags_.passes, flags_.pipeline, run, remarks_,
                                   RemarkDetail::Summary))
    return e;
  progress_.done("passes");
  if (!tokenizer_)
    return llvm::Error::success();
  auto fits = fitsVocabulary(*module_, *tokenizer_, flags_);
  if (!fits)
    return fits.takeError();
  if (!*fits)
    tokenizer_.reset();
  return llvm::Error::success();
}

llvm::Error Compilation::verify() {
  if (!verifier_)
    return llvm::Error::success();
  if (llvm::Error e = verifier_->check(*module_, flags_.passes))
    return e;
  addRemarks(verifier_->report(), remarks_);
  progress_.done(summaryOf(verifier_->report()));
  return llvm::Error::success();
}

/// Adds to the table what it lacks for the GPU that is here, and writes it where that is asked for.
llvm::Error Compilation::tuneKernels(TuningTable &table) {
  auto arch = nativeArch(flags_.device);
  if (!arch)
    return arch.takeError();
  if (table.arch() != *arch)
    table = TuningTable(*arch);
  CodegenOptions native = options_;
  native.archs = {*arch};
  native.decode = DecodeMode::Graph;
  auto report = [](const llvm::Twine &line) { llvm::errs() << line << "\n"; };
  if (llvm::Error e = tune(*module_, native, table, gpuOf(flags_.device), report, flags_.verbose))
    return e;
  if (!flags_.tuning.empty())
    if (llvm::Error e = writeOutput(flags_.tuning, [&](auto &os) { os << table.text(); }))
      return e;
  progress_.done("tuned");
  return llvm::Error::success();
}

/// Gives the plan its tokenizer, and what ends an answer.
void Compilation::describeTexts() {
  rt::ModelTexts texts = readModelTexts(flags_, tokenizer_ ? &*tokenizer_ : nullptr,
                                        vocabularyOf(*module_).value_or(0));
  options_.eosToken = texts.ends.empty() ? -1 : texts.ends.front();
  if (tokenizer_) {
    tokenizer_->setTexts(std::move(texts));
    options_.tokenizer = tokenizer_->serialize();
  } else if (texts.ends.size() > 1) {
    llvm::errs() << "note: a plan without a tokenizer knows one token that ends answers: "
                 << options_.eosToken << "; --eos=ID names another\n";
  }
}

/// Where angles are computed the graph does not say for how many tokens the model is.
void Compilation::comparePositions() {
  const auto &kv = plan_->contents.meta.kv;
  const int64_t positions = positionsOf(flags_);
  if (!kv || flags_.maxContext || !positions || positions == kv->max_context)
    return;
  llvm::errs() << "note: config.json says that the model is for " << positions
               << " tokens, and the plan holds " << kv->max_context
               << " of a sequence; --max-context=" << positions
               << (positions > kv->max_context ? " holds all of them\n" : " ends answers there\n");
}

llvm::Error Compilation::generate() {
  const StepSizes sizes = StepSizes::of(*module_, flags_.maxContext);
  options_.context =
      flags_.maxContext ? flags_.maxContext : std::max(options_.context, sizes.seq + sizes.past);
  TuningTable table;
  if (!flags_.tuning.empty() && (!flags_.tune || llvm::sys::fs::exists(flags_.tuning)))
    table = readTuning(flags_.tuning, options_.archs);
  TunedChoices choices(table);
  if (flags_.tune)
    if (llvm::Error e = tuneKernels(table))
      return e;
  describeTexts();
  options_.choose = [&](llvm::StringRef key, llvm::ArrayRef<std::string> names) {
    return choices.choose(key, names);
  };
  auto plan = generatePlan(*module_, options_);
  options_.choose = nullptr;
  if (!plan)
    return plan.takeError();
  plan_ = std::move(*plan);
  plan_->contents.meta.quantization = std::move(card_);
  if (verifier_) {
    plan_->contents.meta.verification = verifier_->record();
    plan_->contents.meta.golden = verifier_->takeGolden();
  }
  comparePositions();
  reportStale(flags_.tuning, choices);
  if (flags_.verbose)
    for (const SumOrders::Estimate &e : plan_->orderCosts)
      if (e.cheapest > 0)
        llvm::errs() << llvm::formatv(
            "            products of {0}: {1:F1} us in one order of sums, "
            "{2:F1} in any; {3} have no estimate\n",
            e.version, e.taken, e.cheapest, e.unknown);
  progress_.done(options_.archs.empty() ? "no kernels" : describeKernels(plan_->kernels, options_));
  return llvm::Error::success();
}

/// Runs the finished plan by each number of ranks that it is for.
llvm::Error Compilation::verifyOnRanks() {
  if (!verifier_)
    return llvm::Error::success();
  for (int64_t ranks : flags_.passes.tensorParallel) {
    auto open = [ranks](const rt::Plan::Ptr &plan) {
      return rt::openThreadRanks(plan, int(ranks), [&plan](rt::RankLink &link) {
        return rt::openCpuDevice(plan, 0, &link);
      });
    };
    auto session = openGenerated(*plan_, open);
    if (!session)
      return session.takeError();
    SessionRunner runner(**session);
    if (llvm::Error e = verifier_->checkOnRanks(*module_, runner, flags_.passes, ranks))
      return e;
    progress_.done("verified on " + llvm::Twine(ranks).str() + " ranks");
  }
  plan_->contents.meta.verification = verifier_->record();
  return llvm::Error::success();
}

/// Shows the remarks made since the passes, and gives all of them to the plan.
llvm::Error Compilation::recordRemarks(size_t ofPasses) {
  const StepSizes sizes = StepSizes::of(*module_, flags_.maxContext);
  addRemarks(*plan_, options_.archs, remarks_);
  addParallelRemarks(*module_, options_, plan_->contents.meta, remarks_);
  if (llvm::Error e = showFurther(remarks_, ofPasses, sizes))
    return e;
  for (const Remark &r : remarks_)
    plan_->contents.meta.remarks.push_back(std::make_unique<plan::RemarkT>(storedRemark(r, sizes)));
  return llvm::Error::success();
}

/// Runs the finished plan, kernels and all, where there is a GPU that it has code for.
llvm::Error Compilation::verifyOnGpu() {
  if (!verifier_ || options_.archs.empty() || !rt::cuda::CudaDevice::open(flags_.device.ordinal))
    return llvm::Error::success();
  auto session = openGenerated(*plan_, gpuOf(flags_.device));
  if (!session) {
    progress_.done("not verified on the GPU: " + llvm::toString(session.takeError()));
    return llvm::Error::success();
  }
  SessionRunner runner(**session);
  auto report = verifier_->checkOnGpu(*module_, runner, flags_.passes);
  if (!report)
    return report.takeError();
  progress_.done(summaryOf(*report));
  return llvm::Error::success();
}

llvm::Error Compilation::write() {
  if (page_)
    if (llvm::Error e = writeOutput(flags_.report, [&](llvm::raw_ostream &os) {
          page_->write(*module_, plan_->contents.meta, os);
        }))
      return e;
  if (rt::Status s = rt::writePlan(flags_.output, plan_->contents); !s.ok())
    return toError(s);
  progress_.done("wrote " + flags_.output);
  return llvm::Error::success();
}

llvm::Error compile() {
  auto flags = compileFlags();
  if (!flags)
    return flags.takeError();
  takeContext(*flags);
  return Compilation(std::move(*flags)).run();
}

} // namespace

int main(int argc, char **argv) {
  allowCalibration(llvm::ArrayRef(argv, size_t(argc)));
  parseCommandLine(argc, argv,
                   "gpt2c: compiles an ONNX export or a checkpoint of a decoder into a plan\n");
  return runTool(calibrates() ? calibrateTarget : compile);
}
