#include "tools/common/flags/PipelineFlags.h"

#include "tools/common/flags/CommandLine.h"
#include "tools/common/report/Remarks.h"
#include "tools/runtime-common/Table.h"

#include "ir/Error.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"

namespace gpt2c {

namespace cl = llvm::cl;
static cl::opt<unsigned>
    level("O", cl::Prefix, cl::init(PassOptions().level), cl::value_desc("LEVEL"),
          cl::desc("0: every op of the export by itself; 1: attention, norms, GELU and products "
                   "are recognised; 2 (default): ops that follow each other become one launch"),
          category());
static cl::opt<std::string>
    compileTo("compile-to",
              cl::desc("Run the pipeline up to and including STAGE and write the IR; 'scheduled' "
                       "writes what each launch of the functions is"),
              cl::value_desc("STAGE"), category());
static cl::list<std::string> disabledPasses("disable-pass",
                                            cl::desc("Leave this pass out (repeatable)"),
                                            cl::value_desc("PASS"), category());
static cl::opt<bool> verifyEach("verify-each", cl::desc("Verify the IR after every pass"),
                                category());
static cl::opt<bool>
    printAfterChange("print-ir-after-change",
                     cl::desc("Print the IR to stderr after every pass that changed it"),
                     category());
static cl::opt<std::string>
    dumpTo("dump-compilation-phases-to",
           cl::desc("Write the IR after every stage to DIR/00-import.ir and so on"),
           cl::value_desc("DIR"), category());
static cl::opt<bool> timePasses("time-passes", cl::desc("Print the time of every pass to stderr"),
                                category());
static cl::list<int64_t> tensorParallel(
    "tensor-parallel", cl::CommaSeparated, cl::value_desc("LIST"),
    cl::desc("Numbers of ranks that may run the plan together, each with some heads and columns of "
             "every layer: 1,2,4"),
    category());
static cl::opt<std::string> remarksTo(
    "remarks", cl::ValueOptional, cl::value_desc("FILE.json"),
    cl::desc("Print every remark to stderr instead of a summary, or write them to a file"),
    category());

unsigned levelFlag() { return level; }

llvm::Expected<std::vector<int64_t>> tensorParallelFlag() {
  std::vector<int64_t> ranks;
  for (int64_t n : tensorParallel) {
    if (n < 1 || n > mostTensorRanks)
      return makeError(ExitCode::Usage, "--tensor-parallel=" + llvm::Twine(n) +
                                            ": there are 1 to " + llvm::Twine(mostTensorRanks) +
                                            " ranks");
    if (n > 1)
      ranks.push_back(n);
  }
  llvm::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

llvm::StringRef remarksFile() { return remarksTo; }

bool compilesToSchedule() { return compileTo == "scheduled"; }

PipelineOptions pipelineFlags() {
  PipelineOptions options;
  if (!compilesToSchedule())
    options.compileTo = compileTo;
  options.disabled = disabledPasses;
  options.verifyEach = verifyEach;
  return options;
}

static std::string text(const Module &m, const PrintOptions &print) {
  std::string out;
  llvm::raw_string_ostream os(out);
  gpt2c::print(m, os, print);
  return out;
}

static llvm::Error dump(const Stage &stage, const Module &m, const PrintOptions &print) {
  if (std::error_code error = llvm::sys::fs::create_directories(dumpTo))
    return makeError(ExitCode::Io, "cannot create '" + dumpTo + "': " + error.message());
  size_t number = &stage - pipeline().begin();
  std::string path = llvm::formatv("{0}/{1}-{2}.ir", dumpTo.getValue(),
                                   llvm::formatv("{0:2}", number).str(), stage.name)
                         .str();
  return writeOutput(path, [&](llvm::raw_ostream &os) { gpt2c::print(m, os, print); });
}

namespace {

struct PassTime {
  llvm::StringRef name;
  unsigned runs = 0;
  double seconds = 0;
};

} // namespace

static void printTimes(std::vector<PassTime> times) {
  double total = 0;
  for (const PassTime &t : times)
    total += t.seconds;
  llvm::sort(times, [](auto &a, auto &b) {
    return std::tie(b.seconds, a.name) < std::tie(a.seconds, b.name);
  });
  Table table({"pass", ">runs", ">seconds", ">share"});
  auto row = [&](llvm::StringRef name, const std::string &runs, double seconds) {
    table.addRow({name.str(), runs, llvm::formatv("{0:f3}", seconds).str(),
                  llvm::formatv("{0:f0} %", total > 0 ? 100 * seconds / total : 0).str()});
  };
  for (const PassTime &t : times)
    row(t.name, std::to_string(t.runs), t.seconds);
  row("all", "", total);
  table.print(llvm::errs(), 0);
}

/// Prints the remarks from number `first` on, and writes all of them where --remarks names a file.
static llvm::Error show(llvm::ArrayRef<Remark> remarks, size_t first, const StepSizes &sizes,
                        RemarkDetail detail) {
  bool toFile = !remarksTo.empty();
  if (remarksTo.getNumOccurrences() && !toFile)
    detail = RemarkDetail::All;
  if (detail != RemarkDetail::None)
    printRemarks(remarks.drop_front(first), sizes, detail == RemarkDetail::All, llvm::errs());
  if (!toFile)
    return llvm::Error::success();
  return writeOutput(remarksTo, [&](llvm::raw_ostream &os) { writeRemarks(remarks, sizes, os); });
}

llvm::Error showFurther(llvm::ArrayRef<Remark> remarks, size_t first, const StepSizes &sizes) {
  return first == remarks.size() ? llvm::Error::success()
                                 : show(remarks, first, sizes, RemarkDetail::Summary);
}

llvm::Error
runWithFlags(Module &module, const PassOptions &passOptions, PipelineOptions options,
             llvm::function_ref<llvm::Error(PassContext &, const PipelineOptions &)> run,
             std::vector<Remark> &remarks, RemarkDetail detail, const PrintOptions &print) {
  std::string shown = printAfterChange ? text(module, print) : "";
  std::vector<PassTime> times;
  options.afterPass = [&](const Pass &p, const Module &now, double seconds) {
    auto time = llvm::find_if(times, [&](auto &t) { return t.name == p.name; });
    if (time == times.end())
      time = times.insert(times.end(), {p.name});
    ++time->runs;
    time->seconds += seconds;
    if (!printAfterChange)
      return;
    std::string changed = text(now, print);
    if (changed != shown)
      llvm::errs() << "// IR after " << p.name << "\n" << changed << "\n";
    shown = std::move(changed);
  };
  if (!dumpTo.empty())
    options.afterStage = [&](const Stage &stage, const Module &now) {
      return dump(stage, now, print);
    };
  PassContext context(module, passOptions, remarks);
  llvm::Error error = run(context, options);
  if (timePasses)
    printTimes(std::move(times));
  StepSizes sizes = StepSizes::of(module, passOptions.maxContext);
  return llvm::joinErrors(std::move(error), show(remarks, 0, sizes, detail));
}

} // namespace gpt2c
