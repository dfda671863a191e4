// gpt2c-compare: where the numbers of a plan part from those of a reference.
#include "tools/gpt2c-compare/Checks.h"
#include "tools/gpt2c-compare/Compare.h"

#include "cpu/PlanModule.h"
#include "frontend/Import.h"
#include "ir/Error.h"
#include "passes/quantize/Precision.h"
#include "tools/common/RuntimeError.h"
#include "tools/common/Tokens.h"
#include "tools/common/flags/CommandLine.h"
#include "tools/common/flags/DeviceFlags.h"
#include "tools/common/report/Report.h"
#include "tools/common/verification/Verification.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"

#include <random>

using namespace gpt2c;
namespace cl = llvm::cl;

static cl::opt<std::string> planPath(cl::Positional, cl::desc("PLAN"), cl::Required, category());
static cl::opt<std::string>
    against("against",
            cl::desc("Compare with another plan, an export (MODEL.onnx), or tensors of another "
                     "tool: FILE.npz or a folder of .pb files (default: the plan's own IR in "
                     "double precision)"),
            cl::value_desc("PATH"), category());
static cl::opt<std::string> functionName(
    "function",
    cl::desc("prefill, decode, or of a plan without a KV state forward (default: prefill, forward "
             "where there is none)"),
    cl::value_desc("NAME"), category());
static cl::list<std::string> ids("ids", cl::desc("Run these token ids; several make a batch"),
                                 cl::value_desc("1,2,3"), category());
static cl::list<std::string> prompts("prompt", cl::desc("Run this text; several make a batch"),
                                     cl::value_desc("TEXT"), category());
static cl::opt<int64_t> tokens("tokens",
                               cl::desc("Without a text: run N random tokens (default 32)"),
                               cl::value_desc("N"), cl::init(32), category());
static cl::opt<int64_t> batch("batch", cl::desc("Of so many sequences (default 1)"),
                              cl::value_desc("N"), cl::init(1), category());
static cl::opt<double>
    tolerance("tolerance",
              cl::desc("What a step may add to a row or a channel (default 1e-4, against an export "
                       "1e-3; 4e-3 in fp16, 0.05 with int8); what a row of another tool's tensors "
                       "may be off (1e-3, 0.05, 0.5)"),
              cl::value_desc("T"), category());
enum class Format { Table, Json };
static cl::opt<Format>
    format("output", cl::desc("What to print"),
           cl::values(clEnumValN(Format::Table, "table", "a line for each value (default)"),
                      clEnumValN(Format::Json, "json", "one object")),
           cl::init(Format::Table), category());
static cl::opt<std::string> pagePath("html",
                                     cl::desc("Also write a page with a plot of the errors"),
                                     cl::value_desc("FILE.html"), category());

static cl::list<std::string>
    testData("test-data",
             cl::desc("Run DIR's input_<i>.pb as the exported graph, compare with output_<i>.pb, "
                      "and nothing else"),
             cl::value_desc("DIR"), category());
static cl::opt<double>
    relative("rtol",
             cl::desc("With --test-data: largest norm(difference) / norm(expected) (default 1e-4; "
                      "1e-2 in fp16, 8e-2 in bf16)"),
             cl::value_desc("R"), category());
static cl::opt<double>
    absolute("atol", cl::desc("With --test-data: largest difference of an element (default: any)"),
             cl::value_desc("A"), category());
static cl::opt<std::string>
    checkModel("check-against",
               cl::desc("Compare what the functions of the plan compute with the export it was "
                        "made from, as gpt2c --verify does, and nothing else"),
               cl::value_desc("MODEL.onnx"), category());
static cl::opt<VerifyMode>
    verifyMode("verify", cl::desc("With --check-against: how much is compared"),
               cl::values(clEnumValN(VerifyMode::Fast, "fast", "a few sequences (default)"),
                          clEnumValN(VerifyMode::Full, "full",
                                     "the full context, several batches, masks and pasts")),
               cl::init(VerifyMode::Fast), category());

namespace {

enum class Against { Own, Plan, Model, Tensors };

Against againstWhat(llvm::StringRef path) {
  if (path.empty())
    return Against::Own;
  if (path.ends_with(".onnx") || llvm::sys::fs::exists(path + "/config.json"))
    return Against::Model;
  return path.ends_with(".npz") || llvm::sys::fs::is_directory(path) ? Against::Tensors
                                                                     : Against::Plan;
}

} // namespace

static llvm::Error checkUsage() {
  if (!testData.empty() && !checkModel.empty())
    return makeError(ExitCode::Usage, "--check-against takes no prompt and no test data");
  if (verifyMode.getNumOccurrences() && checkModel.empty())
    return makeError(ExitCode::Usage, "--verify belongs to --check-against");
  if ((relative.getNumOccurrences() || absolute.getNumOccurrences()) && testData.empty())
    return makeError(ExitCode::Usage, "--rtol and --atol belong to --test-data");
  for (const cl::Option *other : std::initializer_list<const cl::Option *>{
           &against, &functionName, std::addressof(ids), std::addressof(prompts), &tokens, &batch,
           &tolerance, &format, &pagePath})
    if (other->getNumOccurrences() && (!testData.empty() || !checkModel.empty()))
      return makeError(ExitCode::Usage,
                       llvm::Twine(testData.empty() ? "--check-against" : "--test-data") +
                           " is a check of its own: leave out --" + other->ArgStr);
  const bool given = !ids.empty() || !prompts.empty();
  if (given && (tokens.getNumOccurrences() || batch.getNumOccurrences()))
    return makeError(ExitCode::Usage, "--tokens and --batch are for random tokens, without --ids "
                                      "and --prompt");
  if (tokens < 1 || batch < 1)
    return makeError(ExitCode::Usage, "--tokens and --batch are at least 1");
  if (tolerance.getNumOccurrences() && !(tolerance >= 0))
    return makeError(ExitCode::Usage, "--tolerance is at least 0");
  return checkOutputs({{"--html", pagePath}}, {{"the plan", planPath}, {"--against", against}});
}

/// The ids of another tool's tensors, where they are there.
static std::vector<TokenIds> givenIds(const plan::PlanT &meta,
                                      llvm::ArrayRef<NamedTensor> tensors) {
  std::vector<TokenIds> out;
  for (const auto &port : meta.exported_inputs)
    for (const NamedTensor &t : tensors)
      if (port->role == plan::Role::Ids && t.name == port->name && t.tensor.rank() == 2)
        for (int64_t b = 0; b < t.tensor.dim(0); ++b) {
          TokenIds &text = out.emplace_back();
          for (int64_t i = 0; i < t.tensor.dim(1); ++i)
            text.push_back(int32_t(t.tensor.asInt(b * t.tensor.dim(1) + i)));
        }
  return out;
}

static llvm::Expected<std::vector<TokenIds>> texts(const rt::Plan &plan,
                                                   llvm::ArrayRef<NamedTensor> tensors) {
  std::vector<TokenIds> out;
  if (!prompts.empty()) {
    auto tokenizer = openTokenizer(plan, "");
    if (!tokenizer)
      return tokenizer.takeError();
    if (!*tokenizer)
      return makeError(ExitCode::Usage, "the plan has no tokenizer: give --ids");
    for (const std::string &text : prompts)
      out.push_back((*tokenizer)->encode(text));
  }
  for (const std::string &text : ids) {
    auto parsed = parseIds(text);
    if (!parsed)
      return inContext("--ids", parsed.takeError());
    out.push_back(std::move(*parsed));
  }
  if (out.empty())
    out = givenIds(plan.meta(), tensors);
  if (out.empty() && againstWhat(against) == Against::Tensors)
    return makeError(ExitCode::Usage, "the tensors of '" + against +
                                          "' hold no token ids under the name of the graph's "
                                          "input: give --ids or --prompt");
  if (out.empty()) {
    if (plan.meta().vocab_size < 1)
      return makeError(ExitCode::Usage, "the plan does not say its vocabulary: give --ids");
    std::mt19937_64 random(1);
    int64_t length = tokens;
    if (plan.meta().kv && !tokens.getNumOccurrences())
      length = std::min<int64_t>(length, plan.meta().kv->max_context);
    out.assign(size_t(batch), TokenIds(size_t(length)));
    for (TokenIds &text : out)
      for (int32_t &id : text)
        id = int32_t(random() % uint64_t(plan.meta().vocab_size));
  }
  for (const TokenIds &text : out)
    if (text.empty() || text.size() != out[0].size())
      return makeError(ExitCode::Usage, "all texts need one length, of at least one token; they "
                                        "have " +
                                            llvm::Twine(out[0].size()) + " and " +
                                            llvm::Twine(text.size()));
  return out;
}

/// Of a graph that quantises activations itself, too: a sum that is rounded otherwise moves them by
/// whole steps.
static bool quantises(const Module &module) {
  return llvm::any_of(module.functions, [](auto &f) {
    return llvm::any_of(f->ops(), [](auto &op) {
      return op->is(OpCode::AffineQuantize) || op->info().mnemonic.starts_with("quantized_");
    });
  });
}

static double defaultTolerance(const plan::PlanT &meta, const Module &module, Against what) {
  const DType precision = precisionOf(meta.precision).value_or(DType::F32);
  const bool int8 = quantises(module);
  if (what == Against::Tensors)
    return toleranceOf(precision, int8);
  // Some eight roundings of a step, each at its worst.
  const double half = precision == DType::BF16 ? 3.2e-2 : 4e-3;
  // An export may round where a plan does not.
  return int8 ? 0.05 : isNarrow(precision) ? half : what == Against::Model ? 1e-3 : 1e-4;
}

namespace {

/// What errors refer to besides the plan.
struct Other {
  std::unique_ptr<Module> module;
  std::optional<ExportedGraph> graph;
};

} // namespace

/// Sets the errors of what was traced.
static llvm::Error compare(rt::Session &session, const Module &module,
                           llvm::ArrayRef<TracedValue> traced, llvm::ArrayRef<NamedTensor> tensors,
                           Other &other, Comparison &out) {
  llvm::Expected<StepReference> reference = StepReference();
  switch (againstWhat(against)) {
  case Against::Tensors:
    out.totals = true;
    out.errors = compareTensors(traced, tensors, out.call, session.plan().meta());
    if (out.errors.empty())
      return makeError(ExitCode::Usage, "no tensor of '" + against +
                                            "' has the name of a value or of an ONNX node of the "
                                            "plan, and as many elements");
    return llvm::Error::success();
  case Against::Own:
    reference = planReference(session, module, out.call, false);
    break;
  case Against::Plan: {
    rt::Result<rt::Plan::Ptr> plan = rt::Plan::open(against);
    if (!plan)
      return toError(plan.status());
    auto loaded = loadPlanModule(*plan);
    if (!loaded)
      return loaded.takeError();
    other.module = std::move(*loaded);
    reference = planReference(session, *other.module, out.call, true);
    break;
  }
  case Against::Model: {
    ImportOptions options;
    options.precision = precisionOf(session.plan().meta().precision).value_or(DType::F32);
    auto imported = importModel(against, options);
    if (!imported)
      return imported.takeError();
    other.module = std::move(*imported);
    auto described = ExportedGraph::of(*other.module->functions.front(), module);
    if (!described)
      return described.takeError();
    other.graph = std::move(*described);
    reference = graphReference(*other.graph, out.call);
    break;
  }
  }
  if (!reference)
    return reference.takeError();
  auto errors = stepErrors(traced, *reference);
  if (!errors)
    return errors.takeError();
  out.errors = std::move(*errors);
  return llvm::Error::success();
}

/// --check-against and --test-data.
static llvm::Error checkWhole() {
  auto session = openSession(planPath);
  if (!session)
    return session.takeError();
  if (!checkModel.empty())
    return checkAgainst(**session, checkModel, verifyMode);
  Tolerance allowed;
  if (relative.getNumOccurrences())
    allowed.relative = relative;
  if (absolute.getNumOccurrences())
    allowed.absolute = absolute;
  return runTestData(**session, testData, allowed);
}

static llvm::Error run() {
  if (llvm::Error e = checkUsage())
    return e;
  if (!checkModel.empty() || !testData.empty())
    return checkWhole();
  std::vector<NamedTensor> tensors;
  if (againstWhat(against) == Against::Tensors) {
    auto read = readTensors(against);
    if (!read)
      return read.takeError();
    tensors = std::move(*read);
  }
  auto session = openSession(planPath);
  if (!session)
    return session.takeError();
  const rt::Plan &plan = (*session)->plan();
  auto module = loadPlanModule(rt::Plan::Ptr(&plan, [](const rt::Plan *) {}));
  if (!module)
    return module.takeError();
  auto given = texts(plan, tensors);
  if (!given)
    return given.takeError();
  Comparison out;
  out.plan = planPath;
  out.device = (*session)->backend().name();
  out.against = against.empty() ? "its IR in double precision" : std::string(against);
  out.call = {functionName.empty() ? ((*session)->hasKvState() ? "prefill" : "forward")
                                   : std::string(functionName),
              std::move(*given)};
  auto traced = traceCall(**session, **module, out.call);
  if (!traced)
    return traced.takeError();
  out.steps = std::move(traced->steps);
  Other other;
  if (llvm::Error e = compare(**session, **module, traced->values, tensors, other, out))
    return e;
  out.tolerance = tolerance.getNumOccurrences()
                      ? double(tolerance)
                      : defaultTolerance(plan.meta(), **module, againstWhat(against));
  if (!pagePath.empty())
    if (llvm::Error e = writeOutput(pagePath, [&](auto &os) { writePage(out, os); }))
      return e;
  if (format == Format::Json)
    printJson(out, llvm::outs());
  else
    printTable(out, llvm::outs());
  llvm::outs().flush();
  if (const ValueError *first = out.first())
    return makeError(ExitCode::Quality, "numbers part at step " + llvm::Twine(first->step) + ": " +
                                            first->value->def()->describe());
  return llvm::Error::success();
}

int main(int argc, char **argv) {
  parseCommandLine(argc, argv, "Tells where the numbers of a plan part from those of a reference.");
  return runTool(run);
}
