// gpt2c-ablate: what each fusion buys; what of gpt2c-bench takes the compiler.
#include "tools/gpt2c-ablate/Ablate.h"
#include "tools/gpt2c-ablate/PeakKernels.h"

#include "passes/quantize/Precision.h"
#include "tools/common/flags/CommandLine.h"
#include "tools/common/report/Report.h"

#include "llvm/Support/Process.h"

using namespace gpt2c;
namespace cl = llvm::cl;

static cl::opt<std::string> modelPath(cl::Positional, cl::desc("MODEL.onnx | FOLDER"), category());
static cl::list<int> prompts("p", cl::CommaSeparated,
                             cl::desc("Length of the prefill (default 512; of a list the first)"),
                             cl::value_desc("N"), category());
static cl::list<int> depths("d", cl::CommaSeparated,
                            cl::desc("Tokens ahead of the decode steps (default 512; of a list the "
                                     "first)"),
                            cl::value_desc("N"), category());
static cl::opt<int> decodeTokens("n", cl::desc("Decode steps of one sample (default 64)"),
                                 cl::init(64), category());
static cl::opt<int> repetitions("r", cl::desc("Samples (default 10)"), cl::init(10), category());
static cl::opt<Format> format("o", cl::desc("Output"),
                              cl::values(clEnumValN(Format::Markdown, "md", "a table (default)"),
                                         clEnumValN(Format::Csv, "csv", "comma separated"),
                                         clEnumValN(Format::Json, "json", "one object")),
                              cl::init(Format::Markdown), category());
static cl::opt<DType> precision("precision", cl::desc("Precision of the plans"),
                                cl::values(clEnumValN(DType::F32, "fp32", ""),
                                           clEnumValN(DType::F16, "fp16", "(default)"),
                                           clEnumValN(DType::BF16, "bf16", "")),
                                cl::init(DType::F16), category());
static cl::opt<std::string> svgPath("svg", cl::desc("Draw the times to FILE"),
                                    cl::value_desc("FILE"), category());
static cl::opt<std::string>
    peakOf("peak-kernels",
           cl::desc("Without a model: write the kernels that gpt2c-bench measures the peak of a "
                    "GPU of this compute capability with to standard output"),
           cl::value_desc("9.0"), category());

/// The first number of a list, 512 without one.
static llvm::Expected<int> first(llvm::StringRef flag, const cl::list<int> &list) {
  const int value = list.empty() ? 512 : list.front();
  if (value < 1)
    return makeError(ExitCode::Usage, "-" + flag + " is at least 1");
  return value;
}

static llvm::Error runAblate() {
  if (modelPath.empty())
    return makeError(ExitCode::Usage, "nothing to do: give MODEL.onnx (see --help)");
  if (repetitions < 1 || decodeTokens < 1)
    return makeError(ExitCode::Usage, "-r and -n are at least 1");
  auto prompt = first("p", prompts), depth = first("d", depths);
  if (llvm::Error e = llvm::joinErrors(prompt.takeError(), depth.takeError()))
    return e;
  if (llvm::Error e = checkOutputs({{"--svg", svgPath}}, {{"the model", modelPath}}))
    return e;
  AblateOptions options{.model = modelPath,
                        .precision = precision,
                        .prompt = *prompt,
                        .depth = *depth,
                        .decodeTokens = decodeTokens,
                        .repetitions = repetitions,
                        .progress = nullptr,
                        .measured = [isFirst = true](const Ablation &row) mutable {
                          printRow(row, isFirst, format, llvm::outs());
                          isFirst = false;
                        }};
  if (llvm::sys::Process::StandardErrIsDisplayed())
    options.progress = [](const std::string &what) { llvm::errs() << what << "\n"; };
  auto result = ablate(options);
  if (!result)
    return result.takeError();
  printRest(*result, options, format, llvm::outs());
  if (svgPath.empty())
    return llvm::Error::success();
  return writeOutput(svgPath, [&](llvm::raw_ostream &os) { writeSvg(result->rows, options, os); });
}

static llvm::Error run() {
  if (peakOf.empty())
    return runAblate();
  auto image = peakKernels(peakOf);
  if (!image)
    return image.takeError();
  llvm::outs().write(image->data(), image->size());
  return llvm::Error::success();
}

int main(int argc, char **argv) {
  parseCommandLine(argc, argv,
                   "Measures what each fusion buys: compiles a model with one more at a time.");
  return runTool(run);
}
