#include "verify/Parting.h"

#include "ir/FunctionNames.h"
#include "verify/Compare.h"
#include "verify/Counterparts.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace gpt2c {

static double largestOf(const Tensor &t) {
  double largest = 0;
  for (int64_t i = 0, n = t.count(); i < n; ++i)
    if (const double v = std::fabs(t.asDouble(i)); std::isfinite(v))
      largest = std::max(largest, v);
  return largest;
}

namespace {

/// The values of one side and what they are.
struct Computed {
  std::vector<Value *> values; // in the order of the function
  std::vector<Tensor> tensors;
};

llvm::Expected<Computed> computeAll(const Function &f, llvm::ArrayRef<Tensor> arguments,
                                    ExecOptions options) {
  Computed out;
  for (auto &op : f.ops())
    for (Value *v : op->results())
      if (isComparedAcross(*v))
        out.values.push_back(v);
  SymbolMap symbols;
  auto bound = bindArguments(f, arguments, symbols);
  if (!bound)
    return bound.takeError();
  auto tensors = Executor(f, std::move(options)).evaluate(out.values, std::move(*bound), symbols);
  if (!tensors)
    return tensors.takeError();
  out.tensors = std::move(*tensors);
  return out;
}

class Finder {
public:
  Finder(const PartingCall &parting, double tolerance, Computed graph, Computed plan)
      : parting_(parting), tolerance_(tolerance), graph_(std::move(graph)), plan_(std::move(plan)),
        counterparts_(graph_.values) {}

  Parting run() {
    judge();
    // A value from which an equal one follows is explained by that.
    llvm::DenseSet<const Value *> explained;
    for (size_t i = plan_.values.size(); i-- > 0;)
      if (pairs_[i] && pairs_[i]->difference.relative <= tolerance_)
        explain(plan_.values[i], explained);
    for (auto [i, v] : llvm::enumerate(plan_.values))
      if (pairs_[i] && pairs_[i]->difference.relative > tolerance_ && !explained.contains(v))
        return {describe(*v, *pairs_[i]), largestOf(*pairs_[i]->expected)};
    double largest = 0;
    for (const Tensor &t : graph_.tensors)
      largest = std::max(largest, largestOf(t));
    return {"", largest};
  }

private:
  struct Pair {
    const Value *other;
    const Tensor *expected;
    llvm::SmallVector<int64_t, 4> shape; // of what was compared
    Difference difference;
  };

  /// A value stands for the last of the nodes that became its op.
  void judge() {
    pairs_.resize(plan_.values.size());
    const ComparedRows rows{parting_.call->batch(), parting_.call->tokens(), parting_.cut};
    for (auto [i, v] : llvm::enumerate(plan_.values)) {
      for (size_t candidate : counterparts_.of(*v)) {
        const Tensor &got = plan_.tensors[i];
        auto expected = partFor(got, graph_.tensors[candidate], rows);
        if (!expected || expected->count() == 0)
          continue;
        pairs_[i] = Pair{graph_.values[candidate],
                         &graph_.tensors[candidate],
                         {expected->shape().begin(), expected->shape().end()},
                         compareRows(got.reshaped(expected->shape()), *expected)};
        break;
      }
    }
  }

  static void explain(const Value *v, llvm::DenseSet<const Value *> &explained) {
    llvm::SmallVector<const Value *> work{v};
    while (!work.empty()) {
      const Value *next = work.pop_back_val();
      if (!explained.insert(next).second || !next->def())
        continue;
      for (const Value *o : next->def()->operands())
        if (o)
          work.push_back(o);
    }
  }

  std::string describe(const Value &v, const Pair &pair) const {
    const Difference &d = pair.difference;
    std::string error = d.lost ? "NaN or infinity on one side alone"
                               : "error " + threeDigits(d.relative) + " of a row";
    std::string name = pair.other->name.empty() ? "element" : pair.other->name;
    return "\n  the first tensor that parts, in @" + parting_.function.str() + ": " +
           v.def()->describe() +
           "\n  it stands for, in the exported graph: " + pair.other->def()->describe() + "; " +
           error + ", " + describeElement(name, pair.shape, d);
  }

  const PartingCall &parting_;
  double tolerance_;
  Computed graph_, plan_;
  Counterparts counterparts_;
  std::vector<std::optional<Pair>> pairs_;
};

} // namespace

/// The arguments of the function behind the tokens of the cut.
static llvm::Expected<std::vector<Tensor>>
planArguments(const ExportedGraph &graph, const PartingCall &parting, HostRunner &runner) {
  const GraphCall &call = *parting.call;
  if (parting.function == functions::forward)
    return runner.forwardArguments(graph, call, parting.arguments);
  if (parting.function == functions::extend) {
    std::vector<RowsOfText> parts;
    for (const TokenIds &text : call.texts)
      parts.push_back({parts.size(), text, 0});
    return runner.rowsArguments(parts, parts.size());
  }
  std::vector<TokenIds> before, behind;
  for (const TokenIds &text : call.texts) {
    before.emplace_back(text.begin(), text.begin() + parting.cut);
    behind.emplace_back(text.begin() + parting.cut, text.end());
  }
  std::vector<int32_t> past(call.texts.size(), 0);
  if (parting.cut > 0)
    if (auto first = runner.prefill(before, past); !first)
      return first.takeError();
  past.assign(call.texts.size(), int32_t(parting.cut));
  return runner.stepArguments(parting.function, behind, past);
}

Parting findParting(const ExportedGraph &graph, const Module &module, const PartingCall &parting,
                    double tolerance, bool float64) {
  Parting out;
  HostRunner runner(module, float64);
  ExecOptions options;
  options.float64 = float64;
  auto ofGraph = computeAll(graph.function(), parting.arguments,
                            graph.execution(float64 ? Arithmetic::Double : Arithmetic::Usual));
  auto arguments = planArguments(graph, parting, runner);
  if (!ofGraph || !arguments) {
    llvm::consumeError(ofGraph ? llvm::Error::success() : ofGraph.takeError());
    llvm::consumeError(arguments ? llvm::Error::success() : arguments.takeError());
    return out;
  }
  auto ofPlan = computeAll(*module.function(parting.function), *arguments, options);
  if (!ofPlan) {
    llvm::consumeError(ofPlan.takeError());
    return out;
  }
  return Finder(parting, tolerance, std::move(*ofGraph), std::move(*ofPlan)).run();
}

} // namespace gpt2c
