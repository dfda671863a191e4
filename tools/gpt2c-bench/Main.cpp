// gpt2c-bench: how fast a plan runs on this machine.
#include "tools/gpt2c-bench/Load.h"
#include "tools/gpt2c-bench/Rows.h"
#include "tools/gpt2c-bench/Workload.h"
#include "tools/runtime-common/DeviceFlags.h"
#include "tools/runtime-common/EngineFlags.h"
#include "tools/runtime-common/Files.h"
#include "tools/runtime-common/Report.h"
#include "tools/runtime-common/Sibling.h"

#include <cstdlib>
#include <iostream>

#include <unistd.h>

namespace gpt2c {
namespace {

struct CommandLine {
  std::string plan;
  std::vector<int> batches, prompts, depths;
  int decodeTokens = 64, repetitions = 10;
  Format format = Format::Markdown;
  bool profile = false;
  std::string tracePath;
  bool ablate = false;
  std::string precision = "fp16", svgPath;
  std::string workloadPath;
  double rate = 0;
  int rowBudget = 0;
  std::string url;
  int streams = 0;
  std::vector<std::string> rows;
  rt::SamplingParams sampling;
  EngineFlags engine;
  DeviceFlags device;
  Flags flags{"gpt2c-bench: how fast a plan runs on this machine"};

  CommandLine();
  /// What --ablate's tool is given: the same flags.
  std::vector<std::string> arguments;

private:
  void addMeasurements();
  void addOthers();
};

CommandLine::CommandLine() {
  flags.argument("PLAN", plan).unless("url");
  addMeasurements();
  addOthers();
  engine.addTo(flags);
  device.addTo(flags);
}

void CommandLine::addMeasurements() {
  flags.commas("b", "LIST", "Batch sizes (default 1)", batches)
      .commas("p", "LIST",
              "Prompt lengths of prefill (default 128; 0: no prefill); of a plan without a KV "
              "state the last axis of the first input",
              prompts)
      .commas("d", "LIST", "Tokens in the KV state when decode starts (default 128; 0: no decode)",
              depths)
      .value("n", "int", "Decode steps of one sample (default 64)", decodeTokens)
      .value("r", "int", "Samples (default 10)", repetitions)
      .choice<Format>("o", "Output", format,
                      {{"md", Format::Markdown, "a table"},
                       {"csv", Format::Csv, "comma separated"},
                       {"json", Format::Json, "one object"}})
      .flag("profile", "Also time each step of the plan (GPU only)", profile)
      .value("trace", "FILE",
             "Write what ran when for Perfetto or chrome://tracing, on a GPU with each step of the "
             "plan",
             tracePath);
}

void CommandLine::addOthers() {
  rt::SamplingParams &p = sampling;
  flags
      .flag("ablate",
            "Measure what each fusion buys: compile a MODEL.onnx, in the place of PLAN, at -O0 and "
            "then with one fusion more at a time (by gpt2c-ablate)",
            ablate)
      .choice<std::string>(
          "precision", "Precision of --ablate's plans", precision,
          {{"fp32", "fp32", ""}, {"fp16", "fp16", "(default)"}, {"bf16", "bf16", ""}})
      .value("svg", "FILE", "Draw the times of --ablate to FILE", svgPath)
      .value("workload", "FILE",
             "Play requests through the engine: a JSON object for each line, with \"at\" "
             "(seconds), \"prompt\" (token ids or their number) and \"max_tokens\"",
             workloadPath)
      .value("rate", "R",
             "Of --workload: requests come at R a second, as a Poisson process, and not when "
             "\"at\" says; inf: all at once",
             rate)
      .value("row-budget", "N", "Of --workload: rows of one step (default 512)", rowBudget)
      .value("url", "http://HOST:PORT",
             "Of --workload: play the requests against a server there, in the place of PLAN; of "
             "the environment OPENAI_API_KEY is sent",
             url)
      .value("streams", "N",
             "Of --url: N requests are under way at any time, and \"at\" does not count", streams)
      .commas("rows", "LIST",
              "Measure calls over rows of several sequences: 3x128 are three of 128 new tokens, "
              "32x1@512+1x64 one token of each of 32 behind 512 others, and 64 of one",
              rows)
      .value("temperature", "T",
             "Of --rows and --workload: sample at T, all sequences with seeds of their own "
             "(default 0: greedy)",
             p.temperature)
      .value("top-k", "K", "Sample among the K most probable tokens", p.topK)
      .value("top-p", "P", "Sample among the fewest tokens of probability P", p.topP)
      .value("repeat-penalty", "X",
             "Divide logits above 0 of tokens in the text by X, multiply others",
             p.repetitionPenalty);
}

/// `without`: what 0 leaves out; empty: 0 is no number of that.
rt::Status checkList(const std::string &flag, const std::string &without,
                     const std::vector<int> &list, int byDefault, std::vector<int> &out) {
  if (list.empty())
    out.push_back(byDefault);
  for (int v : list) {
    if (v < 0 || (v == 0 && without.empty()))
      return {rt::Code::Usage, "-" + flag + "=" + std::to_string(v) + ": it takes numbers above 0" +
                                   (without.empty() ? "" : ", or 0 for no ") + without};
    if (v > 0)
      out.push_back(v);
  }
  return {};
}

/// --workload and --rows go with none of the flags that say what is measured.
rt::Status checkAlone(const CommandLine &c, const std::string &mode) {
  const bool rows = mode == "--rows";
  const std::string other =
      rows ? c.flags.firstGiven({"b", "p", "d", "n", "trace", "ablate", "precision", "svg"})
           : c.flags.firstGiven({"b", "p", "d", "n", "r", "rows", "profile", "trace", "ablate",
                                 "precision", "svg"});
  if (other.empty())
    return {};
  return {rt::Code::Usage, mode + " is a measurement of its own: leave out " + other};
}

rt::Status runRows(const CommandLine &c) {
  if (rt::Status s = checkAlone(c, "--rows"); !s.ok())
    return s;
  if (c.repetitions < 1)
    return {rt::Code::Usage, "-r is at least 1"};
  std::vector<RowsCase> cases;
  for (const std::string &text : c.rows) {
    rt::Result<RowsCase> parsed = parseRowsCase(text);
    if (!parsed)
      return parsed.status();
    cases.push_back(parsed.take());
  }
  rt::Result<std::unique_ptr<rt::Session>> session = openSession(c.plan, c.device);
  if (!session)
    return session.status();
  if (rt::Status s = rt::checkSampling(c.sampling, 0); !s.ok())
    return s;
  rt::Result<RowsResults> results =
      measureRows(**session, cases,
                  {.repetitions = c.repetitions, .sampling = c.sampling, .profile = c.profile});
  if (!results)
    return results.status();
  results->plan = c.plan;
  print(*results, c.format, std::cout);
  return {};
}

rt::Status runLoad(const CommandLine &c) {
  if (std::string flag = c.flags.firstGiven({"row-budget", "kv-cache-bytes", "host-pages",
                                             "host-pages-return", "turn-tokens", "check-host-pages",
                                             "device", "threads", "skip-weight-checksum"});
      !flag.empty())
    return {rt::Code::Usage, flag + " is the server's, with --url"};
  if (c.flags.given("streams") && c.streams < 1)
    return {rt::Code::Usage, "--streams is a number of at least 1"};
  if (c.streams && c.flags.given("rate"))
    return {rt::Code::Usage, "--streams and --rate are two ways for requests to come"};
  rt::Result<HttpUrl> server = parseHttpUrl("--url", c.url);
  if (!server)
    return server.status();
  if (server->path.ends_with("/v1")) // as OpenAI's clients have it
    server->path.resize(server->path.size() - 3);
  const char *key = std::getenv("OPENAI_API_KEY");
  const LoadOptions options{
      .server = server.take(), .key = key ? key : "", .streams = c.streams, .sampling = c.sampling};
  rt::Result<ServedModel> model = askServer(options);
  if (!model)
    return model.status();
  rt::Result<std::vector<WorkloadRequest>> requests =
      readWorkload(c.workloadPath, model->vocabulary);
  if (!requests)
    return requests.status();
  if (c.flags.given("rate"))
    rearrive(*requests, c.rate);
  rt::Result<LoadResults> results = playLoad(*requests, *model, options);
  if (!results)
    return results.status();
  results->workload = c.workloadPath;
  print(*results, c.format, std::cout);
  return {};
}

rt::Status runWorkload(const CommandLine &c) {
  if (rt::Status s = checkAlone(c, "--workload"); !s.ok())
    return s;
  if (c.flags.given("rate") && !(c.rate > 0))
    return {rt::Code::Usage, "--rate is a number above 0, or inf"};
  if (rt::Status s = rt::checkSampling(c.sampling, 0); !s.ok())
    return s;
  if (c.flags.given("url"))
    return runLoad(c);
  if (c.flags.given("streams"))
    return {rt::Code::Usage, "--streams belongs to --url"};
  if (c.rowBudget < 0 || (c.rowBudget == 0 && c.flags.given("row-budget")))
    return {rt::Code::Usage, "--row-budget is a number of at least 1"};
  rt::EngineOptions options{.rowBudget = c.rowBudget};
  if (rt::Status s = c.engine.apply(options); !s.ok())
    return s;
  rt::Result<std::unique_ptr<rt::Session>> session = openSession(c.plan, c.device);
  if (!session)
    return session.status();
  rt::Result<std::vector<WorkloadRequest>> requests =
      readWorkload(c.workloadPath, (*session)->plan().meta().vocab_size);
  if (!requests)
    return requests.status();
  if (c.flags.given("rate"))
    rearrive(*requests, c.rate);
  rt::Result<WorkloadResults> results =
      playWorkload(**session, requests.take(), std::move(options), c.sampling);
  if (!results)
    return results.status();
  results->plan = c.plan;
  results->workload = c.workloadPath;
  print(*results, c.format, std::cout);
  return {};
}

rt::Status checkOptions(const CommandLine &c, MeasureOptions &options) {
  if (rt::Status s = checkList("b", "", c.batches, 1, options.batches); !s.ok())
    return s;
  if (rt::Status s = checkList("p", "prefill", c.prompts, 128, options.prompts); !s.ok())
    return s;
  if (rt::Status s = checkList("d", "decode", c.depths, 128, options.depths); !s.ok())
    return s;
  if (c.repetitions < 1 || c.decodeTokens < 1)
    return {rt::Code::Usage, "-r and -n are at least 1"};
  options.decodeTokens = c.decodeTokens;
  options.repetitions = c.repetitions;
  if (::isatty(STDERR_FILENO))
    options.progress = [](const std::string &what) { std::cerr << what << "\n"; };
  const NamedPath outputs[] = {{"--svg", c.svgPath}, {"--trace", c.tracePath}};
  const NamedPath input = {c.ablate ? "the model" : "the plan", c.plan};
  if (rt::Status s = checkOutputs(outputs, {&input, 1}); !s.ok())
    return s;
  if (c.ablate && (c.profile || !c.tracePath.empty()))
    return {rt::Code::Usage, "--profile and --trace are for a plan, not for --ablate"};
  if (!c.ablate && !c.flags.firstGiven({"svg", "precision"}).empty())
    return {rt::Code::Usage, "--svg and --precision belong to --ablate"};
  return {};
}

/// Everything that is measured of an open plan.
rt::Status measureAll(const CommandLine &c, rt::Session &session, MeasureOptions &options,
                      Results &results) {
  const bool whole = !session.hasKvState();
  if (whole)
    options.depths.clear();
  if (options.prompts.empty() && options.depths.empty())
    return {rt::Code::Usage,
            whole ? "nothing to measure: the plan has no KV state to decode with, and -p=0 leaves "
                    "out the rest"
                  : "nothing to measure: -p=0 leaves out prefill, -d=0 decode"};
  Trace *trace = options.trace;
  const double start = trace ? trace->now() : 0;
  rt::Result<Peak> peak = measurePeak(session.backend(), results.precision);
  if (!peak)
    return peak.status();
  if (trace)
    trace->span("host", "peak", start, trace->now() - start);
  results.peak = *peak;
  rt::Result<std::vector<Row>> rows = measure(session, options);
  if (!rows)
    return rows.status();
  results.rows = rows.take();
  const bool gpu = session.backend().kind() == "cuda";
  if (gpu && whole)
    if (rt::Status s = timeWholeRuns(session, options, results.rows); !s.ok())
      return s;
  if (!c.profile && !(gpu && trace))
    return {};
  rt::Result<std::vector<Profile>> profiles = gpt2c::profile(session, options, results.peak);
  if (!profiles)
    return profiles.status();
  if (c.profile)
    results.profiles = profiles.take();
  return {};
}

rt::Status runMeasurements(const CommandLine &c, MeasureOptions &options) {
  Trace trace;
  if (!c.tracePath.empty())
    options.trace = &trace;
  const double start = trace.now();
  rt::Result<std::unique_ptr<rt::Session>> opened = openSession(c.plan, c.device);
  if (!opened)
    return opened.status();
  rt::Session &session = **opened;
  const double loaded = trace.now() - start;
  trace.span("host", "load " + c.plan, start, loaded);
  Results results;
  results.plan = c.plan;
  results.precision = session.plan().meta().precision;
  results.device = session.backend().name();
  results.repetitions = c.repetitions;
  results.loadSeconds = loaded / 1e3;
  if (rt::Status s = measureAll(c, session, options, results); !s.ok())
    return s;
  results.deviceBytes = session.backend().stats().deviceBytes;
  print(results, c.format, std::cout);
  return c.tracePath.empty() ? rt::Status() : trace.write(c.tracePath);
}

rt::Status run(const CommandLine &c) {
  if (!c.workloadPath.empty())
    return runWorkload(c);
  if (!c.flags.firstGiven({"rate", "row-budget"}).empty())
    return {rt::Code::Usage, "--rate and --row-budget belong to --workload"};
  if (std::string flag = c.flags.firstGiven(
          {"kv-cache-bytes", "host-pages", "host-pages-return", "turn-tokens", "check-host-pages"});
      !flag.empty())
    return {rt::Code::Usage, flag + " belongs to --workload"};
  if (std::string flag = c.flags.firstGiven({"url", "streams"}); !flag.empty())
    return {rt::Code::Usage, flag + " belongs to --workload"};
  if (followsRank(c.device))
    return followRank(c.plan, c.device);
  if (!c.rows.empty())
    return runRows(c);
  if (std::string flag = c.flags.firstGiven({"temperature", "top-k", "top-p", "repeat-penalty"});
      !flag.empty())
    return {rt::Code::Usage, flag + " belongs to --rows and --workload"};
  MeasureOptions options;
  if (rt::Status s = checkOptions(c, options); !s.ok())
    return s;
  if (c.ablate)
    return becomeSibling("gpt2c-ablate", c.arguments, "--ablate");
  return runMeasurements(c, options);
}

} // namespace
} // namespace gpt2c

int main(int argc, char **argv) {
  gpt2c::CommandLine commandLine;
  commandLine.flags.parse(argc, argv);
  for (int i = 1; i < argc; ++i)
    if (const std::string argument = argv[i]; argument != "--ablate" && argument != "-ablate")
      commandLine.arguments.push_back(argument);
  return gpt2c::runTool([&] { return gpt2c::run(commandLine); });
}
