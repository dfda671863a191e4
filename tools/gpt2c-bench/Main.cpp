// gpt2c-bench: how fast a plan runs on this machine.
#include "tools/common/CommandLine.h"
#include "tools/common/DeviceFlags.h"
#include "tools/common/Report.h"
#include "tools/common/RuntimeError.h"
#include "tools/gpt2c-bench/Ablate.h"
#include "tools/gpt2c-bench/Rows.h"
#include "tools/gpt2c-bench/Workload.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Process.h"

using namespace gpt2c;
namespace cl = llvm::cl;

static cl::opt<std::string> planPath(cl::Positional, cl::Required, cl::desc("PLAN"),
                                     cl::cat(toolCategory()));
static cl::list<int> batches("b", cl::CommaSeparated, cl::desc("Batch sizes (default 1)"),
                             cl::value_desc("LIST"), cl::cat(toolCategory()));
static cl::list<int>
    prompts("p", cl::CommaSeparated,
            cl::desc("Prompt lengths of prefill (default 128; 0: no prefill); of a "
                     "plan without a KV state the last axis of the first input"),
            cl::value_desc("LIST"), cl::cat(toolCategory()));
static cl::list<int>
    depths("d", cl::CommaSeparated,
           cl::desc("Tokens in the KV state when decode starts (default 128; 0: no decode)"),
           cl::value_desc("LIST"), cl::cat(toolCategory()));
static cl::opt<int> decodeTokens("n", cl::desc("Decode steps of one sample (default 64)"),
                                 cl::init(64), cl::cat(toolCategory()));
static cl::opt<int> repetitions("r", cl::desc("Samples (default 10)"), cl::init(10),
                                cl::cat(toolCategory()));
static cl::opt<Format> format("o", cl::desc("Output"),
                              cl::values(clEnumValN(Format::Markdown, "md", "a table"),
                                         clEnumValN(Format::Csv, "csv", "comma separated"),
                                         clEnumValN(Format::Json, "json", "one object")),
                              cl::init(Format::Markdown), cl::cat(toolCategory()));

static cl::opt<bool> withProfile("profile", cl::desc("Also time each step of the plan (GPU only)"),
                                 cl::cat(toolCategory()));
static cl::opt<std::string>
    tracePath("trace",
              cl::desc("Write what ran when for Perfetto or chrome://tracing, on a GPU "
                       "with each step of the plan"),
              cl::value_desc("FILE"), cl::cat(toolCategory()));

static cl::opt<bool>
    ablateModel("ablate",
                cl::desc("Measure what each fusion buys: compile a MODEL.onnx, in the place of "
                         "PLAN, at -O0 and then with one fusion more at a time"),
                cl::cat(toolCategory()));
static cl::opt<DType> ablatePrecision("precision", cl::desc("Precision of --ablate's plans"),
                                      cl::values(clEnumValN(DType::F32, "fp32", ""),
                                                 clEnumValN(DType::F16, "fp16", "(default)"),
                                                 clEnumValN(DType::BF16, "bf16", "")),
                                      cl::init(DType::F16), cl::cat(toolCategory()));
static cl::opt<std::string> svgPath("svg", cl::desc("Draw the times of --ablate to FILE"),
                                    cl::value_desc("FILE"), cl::cat(toolCategory()));

static cl::opt<std::string>
    workloadPath("workload",
                 cl::desc("Play requests through the engine: a JSON object for each line, with "
                          "\"at\" (seconds), \"prompt\" (token ids or their number) and "
                          "\"max_tokens\""),
                 cl::value_desc("FILE"), cl::cat(toolCategory()));
static cl::opt<double>
    arrivalRate("rate",
                cl::desc("Of --workload: requests come at R a second, as a Poisson process, and "
                         "not when \"at\" says; inf: all at once"),
                cl::value_desc("R"), cl::cat(toolCategory()));
static cl::opt<int> rowBudget("row-budget",
                              cl::desc("Of --workload: rows of one step (default 512)"),
                              cl::value_desc("N"), cl::cat(toolCategory()));

static cl::list<std::string>
    rowsCases("rows", cl::CommaSeparated,
              cl::desc("Measure calls over rows of several sequences: 3x128 are three of 128 new "
                       "tokens, 32x1@512+1x64 one token of each of 32 behind 512 others, and 64 of "
                       "one"),
              cl::value_desc("LIST"), cl::cat(toolCategory()));

static cl::opt<double> temperature("temperature",
                                   cl::desc("Of --rows and --workload: sample at T, all sequences "
                                            "with seeds of their own (default 0: greedy)"),
                                   cl::value_desc("T"), cl::cat(toolCategory()));
static cl::opt<int> topK("top-k", cl::desc("Sample among the K most probable tokens"),
                         cl::value_desc("K"), cl::cat(toolCategory()));
static cl::opt<double> topP("top-p", cl::desc("Sample among the fewest tokens of probability P"),
                            cl::value_desc("P"), cl::init(1), cl::cat(toolCategory()));
static cl::opt<double> repeatPenalty("repeat-penalty",
                                     cl::desc("Divide logits above 0 of tokens in the text by X, "
                                              "multiply others"),
                                     cl::value_desc("X"), cl::init(1), cl::cat(toolCategory()));

static llvm::Expected<rt::SamplingParams> sampling() {
  rt::SamplingParams p{
      .temperature = temperature, .topK = topK, .topP = topP, .repetitionPenalty = repeatPenalty};
  if (rt::Status s = rt::checkSampling(p, 0); !s.ok())
    return toError(s);
  return p;
}

/// `without`: what 0 leaves out; empty: 0 is no number of that.
static llvm::Error checkList(llvm::StringRef flag, llvm::StringRef without, cl::list<int> &list,
                             int byDefault, std::vector<int> &out) {
  if (list.empty())
    out.push_back(byDefault);
  for (int v : list) {
    if (v < 0 || (v == 0 && without.empty()))
      return makeError(ExitCode::Usage, "-" + flag + "=" + llvm::Twine(v) +
                                            ": it takes numbers above 0" +
                                            (without.empty() ? "" : ", or 0 for no ") + without);
    if (v > 0)
      out.push_back(v);
  }
  return llvm::Error::success();
}

static llvm::Error runAblate(const MeasureOptions &options) {
  AblateOptions ablation{.model = planPath,
                         .precision = ablatePrecision,
                         .prompt = options.prompts.empty() ? 512 : options.prompts.front(),
                         .depth = options.depths.empty() ? 512 : options.depths.front(),
                         .decodeTokens = options.decodeTokens,
                         .repetitions = options.repetitions,
                         .progress = options.progress,
                         .measured = [first = true](const Ablation &row) mutable {
                           printRow(row, first, format, llvm::outs());
                           first = false;
                         }};
  auto result = ablate(ablation);
  if (!result)
    return result.takeError();
  printRest(*result, ablation, format, llvm::outs());
  if (svgPath.empty())
    return llvm::Error::success();
  return writeOutput(svgPath, [&](llvm::raw_ostream &os) { writeSvg(result->rows, ablation, os); });
}

/// --workload and --rows go with none of the flags that say what is measured.
static llvm::Error checkAlone(llvm::StringRef mode) {
  const std::pair<const char *, int> others[] = {
      {"-b", batches.getNumOccurrences()},
      {"-p", prompts.getNumOccurrences()},
      {"-d", depths.getNumOccurrences()},
      {"-n", decodeTokens.getNumOccurrences()},
      {"-r", mode == "--rows" ? 0 : repetitions.getNumOccurrences()},
      {"--rows", mode == "--rows" ? 0 : rowsCases.getNumOccurrences()},
      {"--profile", mode == "--rows" ? 0 : withProfile.getNumOccurrences()},
      {"--trace", tracePath.getNumOccurrences()},
      {"--ablate", ablateModel.getNumOccurrences()},
      {"--precision", ablatePrecision.getNumOccurrences()},
      {"--svg", svgPath.getNumOccurrences()}};
  for (auto [flag, count] : others)
    if (count)
      return makeError(ExitCode::Usage,
                       mode.str() + " is a measurement of its own: leave out " + flag);
  return llvm::Error::success();
}

static llvm::Error runRows() {
  if (llvm::Error e = checkAlone("--rows"))
    return e;
  if (repetitions < 1)
    return makeError(ExitCode::Usage, "-r is at least 1");
  std::vector<RowsCase> cases;
  for (const std::string &text : rowsCases) {
    auto parsed = parseRowsCase(text);
    if (!parsed)
      return parsed.takeError();
    cases.push_back(std::move(*parsed));
  }
  auto session = openSession(planPath);
  if (!session)
    return session.takeError();
  auto sampled = sampling();
  if (!sampled)
    return sampled.takeError();
  auto results = measureRows(
      **session, cases, {.repetitions = repetitions, .sampling = *sampled, .profile = withProfile});
  if (!results)
    return results.takeError();
  results->plan = planPath;
  print(*results, format, llvm::outs());
  return llvm::Error::success();
}

static llvm::Error runWorkload() {
  if (llvm::Error e = checkAlone("--workload"))
    return e;
  if (rowBudget < 0 || (rowBudget == 0 && rowBudget.getNumOccurrences()))
    return makeError(ExitCode::Usage, "--row-budget is a number of at least 1");
  if (arrivalRate.getNumOccurrences() && !(arrivalRate > 0))
    return makeError(ExitCode::Usage, "--rate is a number above 0, or inf");
  auto session = openSession(planPath);
  if (!session)
    return session.takeError();
  auto requests = readWorkload(workloadPath, (*session)->plan().meta().vocab_size);
  if (!requests)
    return requests.takeError();
  if (arrivalRate.getNumOccurrences())
    rearrive(*requests, arrivalRate);
  auto sampled = sampling();
  if (!sampled)
    return sampled.takeError();
  auto results = playWorkload(**session, std::move(*requests), rowBudget, *sampled);
  if (!results)
    return results.takeError();
  results->plan = planPath;
  results->workload = workloadPath;
  print(*results, format, llvm::outs());
  return llvm::Error::success();
}

static llvm::Error run() {
  if (!workloadPath.empty())
    return runWorkload();
  if (arrivalRate.getNumOccurrences() || rowBudget.getNumOccurrences())
    return makeError(ExitCode::Usage, "--rate and --row-budget belong to --workload");
  if (!rowsCases.empty())
    return runRows();
  for (const cl::Option *flag :
       std::initializer_list<const cl::Option *>{&temperature, &topK, &topP, &repeatPenalty})
    if (flag->getNumOccurrences())
      return makeError(ExitCode::Usage, "--" + flag->ArgStr + " belongs to --rows and --workload");
  MeasureOptions options;
  if (llvm::Error e = checkList("b", "", batches, 1, options.batches))
    return e;
  if (llvm::Error e = checkList("p", "prefill", prompts, 128, options.prompts))
    return e;
  if (llvm::Error e = checkList("d", "decode", depths, 128, options.depths))
    return e;
  if (repetitions < 1 || decodeTokens < 1)
    return makeError(ExitCode::Usage, "-r and -n are at least 1");
  options.decodeTokens = decodeTokens;
  options.repetitions = repetitions;
  if (llvm::sys::Process::StandardErrIsDisplayed())
    options.progress = [](const std::string &what) { llvm::errs() << what << "\n"; };
  if (llvm::Error e = checkOutputs({{"--svg", svgPath}, {"--trace", tracePath}},
                                   {{ablateModel ? "the model" : "the plan", planPath}}))
    return e;
  if (ablateModel && (withProfile || !tracePath.empty()))
    return makeError(ExitCode::Usage, "--profile and --trace are for a plan, not for --ablate");
  if (ablateModel)
    return runAblate(options);
  if (!svgPath.empty() || ablatePrecision.getNumOccurrences())
    return makeError(ExitCode::Usage, "--svg and --precision belong to --ablate");
  Trace trace;
  if (!tracePath.empty())
    options.trace = &trace;
  double start = trace.now();
  auto opened = openSession(planPath);
  if (!opened)
    return opened.takeError();
  rt::Session &session = **opened;
  const double loaded = trace.now() - start;
  trace.span("host", "load " + planPath, start, loaded);
  const bool whole = !session.hasKvState();
  if (whole)
    options.depths.clear();
  if (options.prompts.empty() && options.depths.empty())
    return makeError(ExitCode::Usage, whole ? "nothing to measure: the plan has no KV state to "
                                              "decode with, and -p=0 leaves out the rest"
                                            : "nothing to measure: -p=0 leaves out prefill, -d=0 "
                                              "decode");
  Results results;
  results.plan = planPath;
  results.precision = session.plan().meta().precision;
  results.device = session.backend().name();
  results.repetitions = repetitions;
  results.loadSeconds = loaded / 1e3;
  start = trace.now();
  auto peak = measurePeak(session.backend(), results.precision);
  if (!peak)
    return peak.takeError();
  trace.span("host", "peak", start, trace.now() - start);
  results.peak = *peak;
  auto rows = measure(session, options);
  if (!rows)
    return rows.takeError();
  results.rows = std::move(*rows);
  const bool gpu = session.backend().kind() == "cuda";
  if (gpu && whole)
    if (llvm::Error e = timeWholeRuns(session, options, results.rows))
      return e;
  if (withProfile || (gpu && options.trace)) {
    auto profiles = profile(session, options, results.peak);
    if (!profiles)
      return profiles.takeError();
    if (withProfile)
      results.profiles = std::move(*profiles);
  }
  results.deviceBytes = session.backend().stats().deviceBytes;
  print(results, format, llvm::outs());
  return tracePath.empty() ? llvm::Error::success() : trace.write(tracePath);
}

int main(int argc, char **argv) {
  parseCommandLine(argc, argv, "gpt2c-bench: how fast a plan runs on this machine\n");
  return runTool(run);
}
