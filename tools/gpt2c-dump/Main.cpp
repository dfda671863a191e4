// gpt2c-dump: what is in a plan file.
#include "codegen/driver/Parallel.h"
#include "codegen/driver/Schedules.h"
#include "cpu/PlanModule.h"
#include "ir/Text.h"
#include "tools/common/RuntimeError.h"
#include "tools/common/flags/CommandLine.h"
#include "tools/common/report/Dot.h"
#include "tools/common/report/Report.h"
#include "tools/gpt2c-dump/Diff.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

using namespace gpt2c;
namespace cl = llvm::cl;

enum class Locations { All, Short, None };
enum class View {
  Summary,
  Steps,
  Memory,
  Ir,
  Dot,
  Schedule,
  Estimates,
  Parallel,
  Cuda,
  Json,
  Diff
};

static cl::opt<std::string> input(cl::Positional, cl::desc("PLAN | -"), cl::Required, category());
static cl::opt<std::string> other(cl::Positional, cl::desc("[PLAN]"), category());
static cl::opt<std::string> output("o", cl::desc("Write to FILE"), cl::value_desc("FILE"),
                                   cl::init("-"), category());
static cl::opt<View>
    view(cl::desc("What to print (the summary by default):"),
         cl::values(clEnumValN(View::Steps, "steps", "The launches of each function, in order"),
                    clEnumValN(View::Memory, "memory", "Where buffers, weights and KV state lie"),
                    clEnumValN(View::Ir, "ir", "The IR the plan was made from"),
                    clEnumValN(View::Dot, "dot",
                               "The graph of that IR for Graphviz, the ONNX nodes of each op "
                               "with it"),
                    clEnumValN(View::Schedule, "schedule",
                               "What each launch is and what was not fused, made anew from that IR "
                               "by this compiler"),
                    clEnumValN(View::Estimates, "estimates",
                               "What each function and its launches are estimated to take, by the "
                               "model that chose them"),
                    clEnumValN(View::Parallel, "parallel",
                               "What decode steps and prompts are estimated to take on several "
                               "GPUs, and whether that pays"),
                    clEnumValN(View::Cuda, "cuda", "The CUDA sources of its kernels"),
                    clEnumValN(View::Json, "json", "Everything, as JSON"),
                    clEnumValN(View::Diff, "diff", "What is different in a second PLAN")),
         cl::init(View::Summary), category());
static cl::list<std::string> symbols("symbols",
                                     cl::desc("Evaluate sizes at these values of the symbols"),
                                     cl::value_desc("batch=1,seq=128"), cl::CommaSeparated,
                                     category());
static cl::list<std::string> functionNames("function", cl::desc("Only these functions"),
                                           cl::value_desc("NAME"), cl::CommaSeparated, category());
static cl::opt<Locations>
    locations("locations", cl::desc("With --ir: the ONNX nodes that each op came from"),
              cl::values(clEnumValN(Locations::All, "all", "all of them (default)"),
                         clEnumValN(Locations::Short, "short", "three, and how many more"),
                         clEnumValN(Locations::None, "none", "none")),
              cl::init(Locations::All), category());
static cl::opt<bool> args("args", cl::desc("With --steps: list each step's arguments"), category());
static cl::opt<bool> skipWeights("skip-weight-checksum",
                                 cl::desc("Do not read the weights to verify their checksum"),
                                 category());

static cl::opt<bool> exitCode("exit-code", cl::desc("With --diff: exit code 8 where plans differ"),
                              category());

static llvm::Expected<llvm::StringMap<int64_t>> parseSymbols() {
  llvm::StringMap<int64_t> values;
  for (llvm::StringRef item : symbols) {
    auto [name, text] = item.split('=');
    int64_t value = 0;
    if (name.empty() || text.getAsInteger(10, value))
      return makeError(ExitCode::Usage, "--symbols: '" + item + "' is not of the form name=number");
    if (!values.try_emplace(name, value).second)
      return makeError(ExitCode::Usage, "--symbols: '" + name + "' is given twice");
  }
  return values;
}

/// Values of the function's symbols; nothing when one lies outside the function's bounds.
static llvm::Expected<std::optional<std::vector<int64_t>>>
valuesFor(const plan::FunctionT &function, const llvm::StringMap<int64_t> &given) {
  std::vector<int64_t> values;
  bool admitted = true;
  for (const auto &symbol : function.symbols) {
    auto it = given.find(symbol->name);
    if (it == given.end())
      return makeError(ExitCode::Usage, "--symbols: function '" + function.name +
                                            "' needs a value for '" + symbol->name + "'");
    admitted &= it->second >= symbol->min && it->second <= symbol->max;
    values.push_back(it->second);
  }
  return admitted ? std::optional(std::move(values)) : std::nullopt;
}

/// The functions asked for. With values for the symbols, of several functions with one name the one
/// that would run.
static llvm::Expected<std::vector<FunctionView>> selectFunctions(const rt::Plan &plan) {
  auto given = parseSymbols();
  if (!given)
    return given.takeError();
  for (const std::string &name : functionNames)
    if (!plan.function(name))
      return makeError(ExitCode::Usage, "the plan has no function '" + name + "'");
  std::vector<FunctionView> views;
  llvm::StringSet<> symbolNames;
  // By name of function, its architectures and ranks: whether one admits the values.
  llvm::StringMap<bool> found;
  auto keyOf = [](const plan::FunctionT &f) {
    return f.name + "\n" + std::to_string(f.ranks) + "\n" + llvm::join(f.archs, " ");
  };
  for (const auto &function : plan.meta().functions) {
    if (!functionNames.empty() && !llvm::is_contained(functionNames, function->name))
      continue;
    if (given->empty()) {
      views.push_back(FunctionView(*function, std::nullopt));
      continue;
    }
    for (const auto &symbol : function->symbols)
      symbolNames.insert(symbol->name);
    bool &done = found[keyOf(*function)];
    if (done)
      continue;
    auto values = valuesFor(*function, *given);
    if (!values)
      return values.takeError();
    if (*values) {
      views.push_back(FunctionView(*function, std::move(*values)));
      done = true;
    }
  }
  for (const auto &entry : *given)
    if (!symbolNames.contains(entry.getKey()))
      return makeError(ExitCode::Usage,
                       "--symbols: no function has a symbol '" + entry.getKey() + "'");
  for (const auto &function : plan.meta().functions)
    if (auto it = found.find(keyOf(*function)); it != found.end() && !it->second)
      return makeError(ExitCode::Usage,
                       "--symbols: the values lie outside the bounds of function '" +
                           function->name + "': " + boundsText(*function));
  return views;
}

/// The plan's IR, which has the functions of --function: a plan without GPU code has them nowhere
/// else.
static llvm::Expected<std::unique_ptr<Module>> loadNamed(rt::Plan::Ptr plan) {
  auto module = loadPlanModule(std::move(plan));
  if (!module)
    return module.takeError();
  for (const std::string &name : functionNames)
    if (!(*module)->function(name))
      return makeError(ExitCode::Usage, "the plan has no function '" + name + "'");
  return module;
}

/// Leaves an op three of its nodes, and the number of the others.
static void shorten(Op &op, llvm::StringSet<> &numbers) {
  constexpr size_t shown = 3;
  if (op.locations.size() <= shown + 1)
    return;
  const std::string more = "+" + std::to_string(op.locations.size() - shown);
  op.locations.resize(shown);
  op.locations.push_back(numbers.insert(more).first->getKey());
}

static llvm::Error printIr(const rt::Plan::Ptr &plan) {
  if (functionNames.empty() && locations == Locations::All)
    return writeOutput(output,
                       [&](llvm::raw_ostream &os) { os << llvm::StringRef(plan->irText()); });
  auto module = loadNamed(plan);
  if (!module)
    return module.takeError();
  llvm::StringSet<> numbers;
  if (locations == Locations::Short)
    for (auto &f : (*module)->functions)
      for (auto &op : f->ops())
        shorten(*op, numbers);
  PrintOptions options;
  options.locations = locations != Locations::None;
  options.weights = [](uint64_t, const Tensor &) {}; // they are in the plan, by these names
  return writeOutput(output, [&](llvm::raw_ostream &os) {
    if (functionNames.empty())
      return print(**module, os, options);
    for (const std::string &name : functionNames) {
      os << (name == functionNames.front() ? "" : "\n");
      print(*(*module)->function(name), os, options);
    }
  });
}

static llvm::Error printDot(rt::Plan::Ptr plan) {
  auto module = loadNamed(std::move(plan));
  if (!module)
    return module.takeError();
  return writeOutput(output, [&](llvm::raw_ostream &os) { writeDot(**module, functionNames, os); });
}

/// As the plan was compiled.
static CodegenOptions codegenOf(const plan::PlanT &meta) {
  CodegenOptions codegen;
  for (const auto &image : meta.images)
    if (!llvm::is_contained(codegen.archs, image->arch))
      codegen.archs.push_back(image->arch);
  if (meta.kv)
    codegen.maxBatch = meta.kv->max_batch;
  codegen.batchInvariant = meta.batch_invariant;
  if (llvm::is_contained(meta.flags, "--fp32-math=ffma"))
    codegen.fp32Math = Fp32Math::Ffma;
  codegen.decode = DecodeMode::Auto;
  return codegen;
}

static llvm::Error printSchedule(const rt::Plan::Ptr &plan) {
  auto module = loadPlanModule(plan);
  if (!module)
    return module.takeError();
  const CodegenOptions codegen = codegenOf(plan->meta());
  return writeOutput(output, [&](llvm::raw_ostream &os) { printSchedules(**module, codegen, os); });
}

/// A plan without GPU code is estimated as it would be for an H200.
static CodegenOptions estimatedFor(const plan::PlanT &meta) {
  CodegenOptions codegen = codegenOf(meta);
  if (codegen.archs.empty())
    codegen.archs.push_back("sm_90a");
  return codegen;
}

static llvm::Error printEstimates(const rt::Plan::Ptr &plan) {
  auto module = loadPlanModule(plan);
  if (!module)
    return module.takeError();
  const CodegenOptions codegen = estimatedFor(plan->meta());
  return writeOutput(output, [&](llvm::raw_ostream &os) { printEstimates(**module, codegen, os); });
}

static llvm::Error printParallel(const rt::Plan::Ptr &plan) {
  auto module = loadPlanModule(plan);
  if (!module)
    return module.takeError();
  const CodegenOptions codegen = estimatedFor(plan->meta());
  const LinkRates link;
  auto estimates = estimateParallel(**module, codegen,
                                    plan->meta().kv ? double(plan->meta().kv->bytes) : 0, link);
  if (!estimates)
    return estimates.takeError();
  return writeOutput(output, [&](llvm::raw_ostream &os) { print(*estimates, link, os); });
}

static llvm::Error printDiff(rt::Plan::Ptr plan, const rt::OpenOptions &options) {
  rt::Result<rt::Plan::Ptr> second = rt::Plan::open(other, options);
  if (!second)
    return toError(second.status());
  auto a = loadPlanModule(plan);
  if (!a)
    return a.takeError();
  auto b = loadPlanModule(*second);
  if (!b)
    return b.takeError();
  bool differ = false;
  if (llvm::Error e = writeOutput(output, [&](llvm::raw_ostream &os) {
        differ = dumpDiff({*plan, **a}, {**second, **b}, os);
      }))
    return e;
  if (differ && exitCode)
    return makeError(ExitCode::Quality, "the plans differ");
  return llvm::Error::success();
}

static llvm::Error checkFlags() {
  const bool diff = view == View::Diff;
  if (diff == other.empty())
    return makeError(ExitCode::Usage, diff ? "--diff takes two plans"
                                           : "there is a second plan, which only --diff takes");
  if (exitCode && !diff)
    return makeError(ExitCode::Usage, "--exit-code belongs to --diff");
  if (locations.getNumOccurrences() && view != View::Ir)
    return makeError(ExitCode::Usage, "--locations belongs to --ir");
  if (diff && !(symbols.empty() && functionNames.empty()))
    return makeError(ExitCode::Usage, "--diff compares all functions, at every size");
  return checkOutputs({{"-o", output}}, {{"the plan", input}, {"the second plan", other}});
}

static llvm::Error run() {
  if (llvm::Error e = checkFlags())
    return e;
  rt::OpenOptions options;
  options.verifyWeights = !skipWeights;
  rt::Result<rt::Plan::Ptr> plan = rt::Plan::open(input, options);
  if (!plan)
    return toError(plan.status());
  if (view == View::Dot)
    return printDot(*plan);
  if (view == View::Schedule)
    return printSchedule(*plan);
  if (view == View::Estimates)
    return printEstimates(*plan);
  if (view == View::Parallel)
    return printParallel(*plan);
  if (view == View::Diff)
    return printDiff(*plan, options);
  if (view == View::Ir)
    return printIr(*plan);
  auto selected = selectFunctions(**plan);
  if (!selected)
    return selected.takeError();
  DumpContext context{**plan, input, std::move(*selected)};
  return writeOutput(output, [&](llvm::raw_ostream &os) {
    switch (view.getValue()) {
    case View::Summary:
      return dumpSummary(context, os);
    case View::Steps:
      return dumpSteps(context, args, os);
    case View::Memory:
      return dumpMemory(context, os);
    case View::Ir:
    case View::Dot: // these are printed without looking at the plan's functions
    case View::Schedule:
    case View::Estimates:
    case View::Parallel:
    case View::Diff:
      return;
    case View::Cuda:
      return dumpCuda(context, os);
    case View::Json:
      return dumpJson(context, os);
    }
  });
}

int main(int argc, char **argv) {
  parseCommandLine(argc, argv, "Prints what is in a plan file.");
  return runTool(run);
}
