#include "tools/gpt2c-dump/Diff.h"

#include "tools/runtime-common/Table.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace gpt2c {

namespace {

/// Rows of a table that has a heading only where it has rows.
class Section {
public:
  Section(llvm::StringRef heading, std::vector<std::string> titles)
      : heading_(heading), table_(std::move(titles)) {}

  void add(std::vector<std::string> cells) {
    table_.addRow(std::move(cells));
    ++rows_;
  }
  /// False where there are no rows.
  bool print(llvm::raw_ostream &os) const {
    if (rows_ == 0)
      return false;
    os << heading_ << "\n";
    table_.print(os);
    os << "\n";
    return true;
  }

private:
  std::string heading_;
  Table table_;
  size_t rows_ = 0;
};

/// Pairs of what both have under one key; in the order of the keys.
template <typename T> using Pairs = std::map<std::string, std::pair<T, T>>;

} // namespace

static bool diffFacts(const DiffSide &a, const DiffSide &b, llvm::raw_ostream &os) {
  std::vector<std::pair<std::string, std::pair<std::string, std::string>>> facts;
  auto take = [&](const rt::Plan &plan, auto side) {
    std::vector<std::pair<const char *, std::string>> own = planFacts(plan);
    own.emplace_back("file", formatBytes(plan.fileBytes()));
    std::map<std::string, size_t> seen; // a plan may have several templates
    for (auto &[title, value] : own) {
      size_t skip = seen[title]++;
      auto same =
          llvm::find_if(facts, [&](const auto &f) { return f.first == title && skip-- == 0; });
      if (same == facts.end())
        same = facts.insert(facts.end(), {title, {}});
      same->second.*side = value;
    }
  };
  take(a.plan, &std::pair<std::string, std::string>::first);
  take(b.plan, &std::pair<std::string, std::string>::second);
  Section section("Plan", {"", "first", "second"});
  for (const auto &[title, pair] : facts)
    if (pair.first != pair.second)
      section.add({title, printable(pair.first), printable(pair.second)});
  return section.print(os);
}

//===-- ops and launches --------------------------------------------------------------------===//

static bool diffOps(const DiffSide &a, const DiffSide &b, llvm::raw_ostream &os) {
  Pairs<int64_t> counts;
  auto count = [&](const Module &m, auto side) {
    for (const auto &f : m.functions)
      for (const auto &op : f->ops())
        if (!op->is(OpCode::Constant) && !op->is(OpCode::Return))
          ++(counts["@" + f->name() + " " + op->info().mnemonic.str()].*side);
  };
  count(a.module, &std::pair<int64_t, int64_t>::first);
  count(b.module, &std::pair<int64_t, int64_t>::second);
  Section section("Ops", {"function", "op", ">first", ">second"});
  for (const auto &[key, n] : counts)
    if (n.first != n.second) {
      auto [function, op] = llvm::StringRef(key).split(' ');
      section.add({function.str(), op.str(), std::to_string(n.first), std::to_string(n.second)});
    }
  return section.print(os);
}

/// What a launch is made of: its kernel's file, without the hash of its content, and its tile.
static std::string launchText(const rt::Plan &plan, const plan::StepT &step) {
  const plan::PlanT &meta = plan.meta();
  std::string out = meta.sources[meta.kernels[step.kernel]->source]->name;
  if (!step.choice.empty())
    out += " " + step.choice;
  return printable(out + (step.mode == plan::LaunchMode::Stage ? " (stage)" : ""));
}

static bool diffLaunches(const DiffSide &a, const DiffSide &b, llvm::raw_ostream &os) {
  // Alike launches of a function, by op and kernel.
  Pairs<int64_t> counts;
  auto count = [&](const rt::Plan &plan, auto side) {
    for (const auto &f : plan.meta().functions)
      for (const auto &step : f->steps)
        ++(counts["@" + f->name + " (" + boundsText(*f) + ")\n" + step->op + "\n" +
                  launchText(plan, *step)].*
           side);
  };
  count(a.plan, &std::pair<int64_t, int64_t>::first);
  count(b.plan, &std::pair<int64_t, int64_t>::second);
  Section section("Launches", {"function", "op", "kernel and tile", ">first", ">second"});
  for (const auto &[key, n] : counts)
    if (n.first != n.second) {
      auto [function, rest] = llvm::StringRef(key).split('\n');
      auto [op, kernel] = rest.split('\n');
      section.add({printable(function), printable(op), kernel.str(), std::to_string(n.first),
                   std::to_string(n.second)});
    }
  return section.print(os);
}

//===-- weights -----------------------------------------------------------------------------===//

namespace {

/// A constant of the IR, with its scale where it is in int8.
struct Weight {
  Tensor values, scale;

  bool valid() const { return values.valid(); }
  std::string type() const { return Type{values.dtype(), dims()}.str(); }
  Shape dims() const { return Shape(values.shape().begin(), values.shape().end()); }

  /// Elements [begin, begin + to.size()), times their scales.
  void load(int64_t begin, llvm::MutableArrayRef<double> to) const {
    values.load(begin, to);
    if (!scale.valid())
      return;
    const int64_t width = values.dim(-1), groups = scale.count() / (values.count() / width);
    for (size_t i = 0; i < to.size(); ++i) {
      const int64_t row = (begin + int64_t(i)) / width, column = (begin + int64_t(i)) % width;
      to[i] *= scale.asDouble(row * groups + column * groups / width);
    }
  }
};

} // namespace

/// The scale of an int8 constant: the operand behind it of an op that multiplies with it.
static Tensor scaleOf(const Value &constant) {
  for (const Use &u : constant.uses()) {
    llvm::ArrayRef<OperandSpec> specs = u.op->info().operands;
    if (u.operand + 1 >= specs.size() || u.operand + 1 >= u.op->numOperands())
      continue;
    const Value *next = u.op->operand(u.operand + 1);
    if (specs[u.operand + 1].name.ends_with("scale") && next && next->def() &&
        next->def()->is(OpCode::Constant))
      return next->def()->constant;
  }
  return {};
}

static std::map<std::string, Weight> weightsOf(const Module &module) {
  std::map<std::string, Weight> out;
  for (const auto &f : module.functions)
    for (const auto &op : f->ops()) {
      const Value *v = op->is(OpCode::Constant) ? op->result() : nullptr;
      if (!v || v->name.empty() || op->constant.count() < 2)
        continue;
      Weight w{op->constant, {}};
      if (op->constant.dtype() == DType::I8) {
        Tensor scale = scaleOf(*v);
        bool fits = scale.valid() && op->constant.rank() > 0 &&
                    scale.count() % (op->constant.count() / op->constant.dim(-1)) == 0;
        w.scale = fits ? scale : Tensor();
      }
      out.try_emplace(v->name, std::move(w));
    }
  return out;
}

static double distance(const Weight &a, const Weight &b) {
  double difference = 0, norm = 0;
  constexpr int64_t block = 1 << 16;
  std::vector<double> x(block), y(block);
  for (int64_t begin = 0; begin < a.values.count(); begin += block) {
    const size_t n = size_t(std::min(block, a.values.count() - begin));
    a.load(begin, llvm::MutableArrayRef(x).take_front(n));
    b.load(begin, llvm::MutableArrayRef(y).take_front(n));
    for (size_t i = 0; i < n; ++i) {
      difference += (x[i] - y[i]) * (x[i] - y[i]);
      norm += x[i] * x[i];
    }
  }
  return std::sqrt(difference) / (norm > 0 ? std::sqrt(norm) : 1);
}

static bool diffWeights(const DiffSide &a, const DiffSide &b, llvm::raw_ostream &os) {
  Pairs<Weight> weights;
  for (auto &[name, w] : weightsOf(a.module))
    weights[name].first = w;
  for (auto &[name, w] : weightsOf(b.module))
    weights[name].second = w;
  Section section("Weights", {"name", "first", "second", ">error"});
  size_t alike = 0;
  for (const auto &[name, pair] : weights) {
    const auto &[x, y] = pair;
    auto hashOf = [](const Weight &w) {
      return std::pair(w.values.hash(), w.scale.valid() ? w.scale.hash() : 0);
    };
    if (x.valid() && y.valid() && hashOf(x) == hashOf(y)) {
      ++alike;
      continue;
    }
    bool comparable = x.valid() && y.valid() && x.values.shape() == y.values.shape();
    section.add({printable(name), x.valid() ? x.type() : "-", y.valid() ? y.type() : "-",
                 comparable ? llvm::formatv("{0:e1}", distance(x, y)).str() : ""});
  }
  bool differ = section.print(os);
  if (differ)
    os << "  " << alike << " weights are alike\n\n";
  return differ;
}

//===-- quality and remarks -----------------------------------------------------------------===//

static std::vector<std::pair<std::string, std::string>> qualityOf(const plan::PlanT &meta) {
  const plan::QuantizationT none;
  const plan::QuantizationT &q = meta.quantization ? *meta.quantization : none;
  auto number = [](const char *format, double v) { return llvm::formatv(format, v).str(); };
  bool measured = q.eval_tokens > 0;
  std::vector<std::pair<std::string, std::string>> out{
      {"scheme", q.scheme.empty() ? "none" : q.scheme},
      {"weights in groups of", std::to_string(q.weight_group)},
      {"calibration", q.calibration},
      {"tokens of the text", std::to_string(q.eval_tokens)},
      {"perplexity", measured ? number("{0:f4}", q.perplexity) : ""},
      {"without int8", measured ? number("{0:f4}", q.base_perplexity) : ""},
      {"KL mean", measured ? number("{0:e2}", q.kl_mean) : ""},
      {"KL p99", measured ? number("{0:e2}", q.kl_p99) : ""},
      {"layers kept out", std::to_string(q.kept.size())},
      {"verified", meta.verification ? meta.verification->mode : "no"},
  };
  for (const auto &layer : q.chosen)
    out.emplace_back(layer->name, layer->scheme);
  if (meta.verification)
    for (const auto &check : meta.verification->checks)
      out.emplace_back(check->what + ", error", number("{0:e1}", check->error));
  return out;
}

static bool diffQuality(const DiffSide &a, const DiffSide &b, llvm::raw_ostream &os) {
  Pairs<std::string> facts;
  std::vector<std::string> order;
  auto take = [&](const plan::PlanT &meta, auto side) {
    for (auto &[title, value] : qualityOf(meta)) {
      if (!facts.count(title))
        order.push_back(title);
      facts[title].*side = value;
    }
  };
  take(a.plan.meta(), &std::pair<std::string, std::string>::first);
  take(b.plan.meta(), &std::pair<std::string, std::string>::second);
  Section section("Quality", {"", "first", "second"});
  for (const std::string &title : order)
    if (const auto &[x, y] = facts[title]; x != y)
      section.add({printable(title), printable(x), printable(y)});
  return section.print(os);
}

static bool diffRemarks(const DiffSide &a, const DiffSide &b, llvm::raw_ostream &os) {
  Pairs<int64_t> counts;
  auto count = [&](const plan::PlanT &meta, auto side) {
    for (const auto &r : meta.remarks)
      ++(counts[r->severity + " [" + r->pass + "]: " + r->message].*side);
  };
  count(a.plan.meta(), &std::pair<int64_t, int64_t>::first);
  count(b.plan.meta(), &std::pair<int64_t, int64_t>::second);
  Section section("Remarks", {"in", "remark"});
  for (const auto &[text, n] : counts)
    if ((n.first > 0) != (n.second > 0))
      section.add({n.first > 0 ? "first" : "second", printable(text)});
  return section.print(os);
}

bool dumpDiff(const DiffSide &a, const DiffSide &b, llvm::raw_ostream &os) {
  bool differ = false;
  for (auto *diff : {diffFacts, diffOps, diffLaunches, diffWeights, diffQuality, diffRemarks})
    differ |= diff(a, b, os);
  if (!differ)
    os << "The plans hold the same.\n";
  return differ;
}

} // namespace gpt2c
