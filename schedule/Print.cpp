// The text of a schedule: a line for each launch, and for each near miss one below it; a run of
// lines that repeats stands there once.
#include "ir/FunctionNames.h"
#include "schedule/FunctionSchedule.h"
#include "schedule/cost/ScheduleCost.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <map>

namespace gpt2c {

static std::string statisticsText(const char *what, int parts, int width) {
  return llvm::formatv(", {0} {1} x {2}", what, parts, width).str();
}

static std::string rowsText(const Int8Product &p) {
  std::string out;
  if (p.rows == Int8Product::Quantised)
    out += ", rows quantised in front";
  if (p.widened)
    out += ", weights made floats in front";
  return out + (p.result == Int8Product::InEpilogue ? ", quantises its result"
                : p.result == Int8Product::Behind   ? ", result quantised behind"
                                                    : "");
}

static std::string text(const LinearGroup &g) {
  const LinearFusions &f = g.problem.fused;
  std::string out = g.choice.key + ": " + g.taken.name;
  if (g.norm)
    out += f.normParts > 0 ? statisticsText("norm by statistics", f.normParts, f.normWidth)
                           : ", norm by itself";
  if (g.statisticsWidth)
    out += statisticsText("leaves statistics", int(g.problem.n / g.statisticsWidth),
                          g.statisticsWidth);
  if (f.best)
    out += ", leaves its largest";
  if (g.sum)
    out +=
        llvm::formatv(", {0} {1} ranks",
                      g.sum->scattered ? "ends its share of rows of the sums of" : "adds sums of",
                      g.sum->reduce->intAttr("ranks"))
            .str();
  if (f.sharedRows)
    out += ", begins with its own rows";
  if (g.residualInPlace)
    out += ", residual where it comes from";
  if (g.int8)
    out += rowsText(*g.int8);
  return g.choice.sumOrder.empty() ? out : out + ", sums: " + g.choice.sumOrder;
}
static std::string text(const MlpGroup &g) {
  const LinearProblem &p = g.problem.hidden;
  return llvm::formatv("mlp rows={0} d={1} hidden={2} {3}: {4}{5}", p.rows, p.k, p.n,
                       infoOf(g.problem.activation).name, g.taken.name,
                       g.ahead ? ", brings the next state nearer" : "")
      .str();
}
static std::string text(const AttentionGroup &g) {
  std::string out = g.choice.key + ": " + g.taken.name;
  if (g.rope)
    out += ", turns queries and keys";
  if (g.quantise == AttentionGroup::Behind)
    out += ", result quantised behind";
  return out;
}
static std::string text(const PagedGroup &g) {
  const PagedProblem &p = g.problem;
  const PagedConfig &c = p.config;
  const std::string heads = c.kvHeads == c.heads
                                ? std::to_string(c.heads)
                                : llvm::formatv("{0} of {1}", c.kvHeads, c.heads).str();
  return llvm::formatv("paged attention rows={0} pieces={1} heads={2} head_dim={3} {4}{5}: {6}",
                       p.rows, p.pieces, heads, c.headDim,
                       dtypeName(g.attention->operand(ops::AppendAttention::Qkv)->type.dtype),
                       c.window ? llvm::formatv(" window={0}", c.window).str() : "", g.taken.name)
      .str();
}
static std::string text(const EmbedGroup &g) {
  return "embed" + statisticsText("leaves statistics", g.statistics.parts, g.statistics.width);
}
static std::string text(const LargestGroup &) { return "arg_max of the largest of parts"; }
static std::string text(const AllReduceGroup &g) {
  const std::string out = llvm::formatv("{0} among {1}{2}", g.what, g.reduce->intAttr("ranks"),
                                        g.sent ? " of sums that were sent" : "")
                              .str();
  const RowStatistics &s = g.statistics;
  return s.parts ? out + statisticsText("leaves statistics", s.parts, s.width) : out;
}
static std::string text(const OwnGroup &g) { return g.op->info().mnemonic.str(); }
static std::string text(const DoneGroup &) { return ""; }
static std::string text(const RefusedGroup &g) {
  return "refused: " + g.op->info().mnemonic.str() + ": " + g.why;
}

/// Without near misses.
static std::string launchText(const Group &group) {
  return std::visit([](const auto &g) { return text(g); }, group.as);
}
static std::string text(const Group &group) {
  std::string out = launchText(group);
  for (const NearMiss &miss : group.misses)
    out += "\n  no " + miss.what + ": " + miss.why;
  return out;
}

namespace {
/// A run of `period` lines that stands there `times` times.
struct Run {
  size_t period = 1, times = 1;
};
} // namespace

/// The run at the begin of `lines` that takes the most of them, of the shortest period.
static Run longestRun(llvm::ArrayRef<std::string> lines) {
  Run best;
  for (size_t period = 1; 2 * period <= lines.size(); ++period) {
    size_t times = 1;
    while ((times + 1) * period <= lines.size() &&
           lines.slice(0, period) == lines.slice(times * period, period))
      ++times;
    if (times > 1 && times * period > best.period * best.times)
      best = {period, times};
  }
  return best;
}

static void printLines(llvm::ArrayRef<std::string> lines, unsigned indent, llvm::raw_ostream &os) {
  for (size_t i = 0; i < lines.size();) {
    const Run run = longestRun(lines.drop_front(i));
    if (run.times == 1) {
      llvm::SmallVector<llvm::StringRef> parts;
      llvm::StringRef(lines[i]).split(parts, '\n');
      for (llvm::StringRef part : parts)
        os.indent(indent) << part << "\n";
    } else {
      os.indent(indent) << run.times << " times\n";
      printLines(lines.slice(i, run.period), indent + 2, os);
    }
    i += run.period * run.times;
  }
}

void print(const FunctionSchedule &version, llvm::raw_ostream &os) {
  std::vector<std::string> lines;
  for (const Group &group : version.schedule.groups)
    if (std::string line = text(group); !line.empty())
      lines.push_back(std::move(line));
  os << "@" << version.of->name() << " up to " << version.limits << "\n";
  printLines(lines, 2, os);
}

void printEstimates(const FunctionSchedule &version, const TargetRates &rates,
                    llvm::raw_ostream &os) {
  struct Launches {
    int64_t count = 0;
    double microseconds = 0;
  };
  llvm::MapVector<std::string, Launches, std::map<std::string, unsigned>>
      launches; // in the order of the first of each
  Launches all;
  for (const Group &group : version.schedule.groups) {
    const std::string line = launchText(group);
    if (line.empty())
      continue;
    const double takes = microsecondsOf(group, version.bounds, rates);
    for (Launches *of : {&launches[line], &all}) {
      ++of->count;
      of->microseconds += takes;
    }
  }
  os << llvm::formatv("@{0} up to {1}: {2:F1} us\n", version.of->name(), version.limits,
                      all.microseconds);
  for (const auto &[line, of] : launches)
    os << llvm::formatv("  {0,9:F1} us  {1,4} x {2,8:F2}  {3}\n", of.microseconds, of.count,
                        of.microseconds / double(of.count), line);
}

} // namespace gpt2c
