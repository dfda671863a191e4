#include "verify/Parting.h"

#include "ir/FunctionNames.h"
#include "verify/Compare.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

namespace {

/// The values of one side and what they are.
struct Computed {
  std::vector<Value *> values; // in the order of the function
  std::vector<Tensor> tensors;
};

/// A norm whose gain and shift moved into the products that read it: its gain is all ones.
bool isBareNorm(const Op &op) {
  bool added = op.is(OpCode::AddLayerNorm);
  if (!added && !op.is(OpCode::LayerNorm) && !op.is(OpCode::RmsNorm))
    return false;
  const Value *gain =
      added ? op.operand(ops::AddLayerNorm::Scale) : op.operand(ops::LayerNorm::Scale);
  if (!gain || !gain->def() || !gain->def()->constant.valid())
    return !gain;
  const Tensor &t = gain->def()->constant;
  for (int64_t i = 0; i < t.count(); ++i)
    if (t.asDouble(i) != 1)
      return false;
  return true;
}

/// What can be compared: results of floating point that are computed, but for the KV state.
bool isCompared(const Value &v) {
  return isFloat(v.type.dtype) && v.type.rank() < 6 && !v.def()->is(OpCode::Constant) &&
         !isBareNorm(*v.def());
}

llvm::Expected<Computed> computeAll(const Function &f, llvm::ArrayRef<Tensor> arguments,
                                    ExecOptions options) {
  Computed out;
  for (auto &op : f.ops())
    for (Value *v : op->results())
      if (isCompared(*v))
        out.values.push_back(v);
  SymbolMap symbols;
  Executor::Bindings bound;
  for (int round = 0; round < 2; ++round)
    for (auto [i, t] : llvm::enumerate(arguments)) {
      const Value &a = *f.argument(i);
      if (auto ok = bindShape(a.type.shape, t.shape(), symbols, a.name); !ok)
        return ok.takeError();
      bound[&a] = t;
    }
  auto tensors = Executor(f, std::move(options)).evaluate(out.values, std::move(bound), symbols);
  if (!tensors)
    return tensors.takeError();
  out.tensors = std::move(*tensors);
  return out;
}

/// `whole`, of `tokens` rows for each of `batch` sequences, at the rows from `from` on; none when
/// it is not of that form.
std::optional<Tensor> rowsFrom(const Tensor &whole, int64_t batch, int64_t tokens, int64_t from,
                               int64_t rows) {
  int64_t leading = 1;
  unsigned axis = 0;
  while (axis < whole.rank() && leading < batch * tokens)
    leading *= whole.dim(int(axis++));
  if (leading != batch * tokens)
    return std::nullopt;
  const int64_t width = whole.count() / leading, element = byteSize(whole.dtype());
  Tensor out(whole.dtype(), {batch, rows, width});
  for (int64_t b = 0; b < batch; ++b)
    std::memcpy(static_cast<char *>(out.raw()) + b * rows * width * element,
                static_cast<const char *>(whole.raw()) + (b * tokens + from) * width * element,
                rows * width * element);
  return out;
}

/// [batch, heads, tokens, d] as [batch, tokens, heads, d], in which the plan keeps heads; anything
/// else as it is.
Tensor tokensFirst(const Tensor &t, int64_t batch, int64_t tokens) {
  if (t.rank() != 4 || t.dim(0) != batch || t.dim(2) != tokens || t.dim(1) == tokens)
    return t;
  const int64_t heads = t.dim(1), row = t.dim(3) * byteSize(t.dtype());
  Tensor out(t.dtype(), {batch, tokens, heads, t.dim(3)});
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t s = 0; s < tokens; ++s)
      for (int64_t h = 0; h < heads; ++h)
        std::memcpy(static_cast<char *>(out.raw()) + ((b * tokens + s) * heads + h) * row,
                    static_cast<const char *>(t.raw()) + ((b * heads + h) * tokens + s) * row, row);
  return out;
}

class Finder {
public:
  Finder(const PartingCall &parting, double tolerance, Computed graph, Computed plan)
      : parting_(parting), tolerance_(tolerance), graph_(std::move(graph)), plan_(std::move(plan)) {
    for (auto [i, v] : llvm::enumerate(graph_.values))
      for (llvm::StringRef node : v->def()->locations)
        byNode_[node].push_back(i);
  }

  std::string run() {
    judge();
    // A value from which an equal one follows is explained by that.
    llvm::DenseSet<const Value *> explained;
    for (size_t i = plan_.values.size(); i-- > 0;)
      if (pairs_[i] && pairs_[i]->difference.relative <= tolerance_)
        explain(plan_.values[i], explained);
    for (auto [i, v] : llvm::enumerate(plan_.values))
      if (pairs_[i] && pairs_[i]->difference.relative > tolerance_ && !explained.contains(v))
        return describe(*v, *pairs_[i]);
    return "";
  }

private:
  struct Pair {
    const Value *other;
    llvm::SmallVector<int64_t, 4> shape; // of what was compared
    Difference difference;
  };

  /// The part of the graph's value that `got` is to equal; none when the sizes differ.
  std::optional<Tensor> counterpart(const Tensor &got, Tensor whole) const {
    const int64_t batch = parting_.call->batch(), tokens = parting_.call->tokens();
    if (got.rank() == 3)
      whole = tokensFirst(whole, batch, tokens);
    const int64_t rows = tokens - parting_.cut;
    if (got.count() == whole.count() && parting_.cut == 0)
      return whole;
    for (int64_t count : {rows, int64_t(1)})
      if (got.count() * tokens == whole.count() * count)
        return rowsFrom(whole, batch, tokens, tokens - count, count);
    return std::nullopt;
  }

  /// A value stands for the last of the nodes that became its op.
  void judge() {
    pairs_.resize(plan_.values.size());
    for (auto [i, v] : llvm::enumerate(plan_.values)) {
      llvm::SmallVector<size_t> candidates;
      for (llvm::StringRef node : v->def()->locations)
        llvm::append_range(candidates, byNode_.lookup(node));
      llvm::sort(candidates, std::greater<size_t>());
      for (size_t candidate : candidates) {
        const Tensor &got = plan_.tensors[i];
        auto expected = counterpart(got, graph_.tensors[candidate]);
        if (!expected || expected->count() == 0)
          continue;
        pairs_[i] = Pair{graph_.values[candidate],
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
  llvm::DenseMap<llvm::StringRef, llvm::SmallVector<size_t, 2>> byNode_;
  std::vector<std::optional<Pair>> pairs_;
};

} // namespace

/// The arguments of the function behind the tokens of the cut.
static llvm::Expected<std::vector<Tensor>>
planArguments(const ExportedGraph &graph, const PartingCall &parting, HostRunner &runner) {
  const GraphCall &call = *parting.call;
  if (parting.function == functions::forward)
    return runner.forwardArguments(graph, call, parting.arguments);
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

std::string describeParting(const ExportedGraph &graph, const Module &module,
                            const PartingCall &parting, double tolerance, bool float64) {
  HostRunner runner(module, float64);
  ExecOptions options;
  options.float64 = float64;
  auto ofGraph = computeAll(graph.function(), parting.arguments, graph.execution(float64));
  auto arguments = planArguments(graph, parting, runner);
  if (!ofGraph || !arguments) {
    llvm::consumeError(ofGraph ? llvm::Error::success() : ofGraph.takeError());
    llvm::consumeError(arguments ? llvm::Error::success() : arguments.takeError());
    return "";
  }
  auto ofPlan = computeAll(*module.function(parting.function), *arguments, options);
  if (!ofPlan) {
    llvm::consumeError(ofPlan.takeError());
    return "";
  }
  return Finder(parting, tolerance, std::move(*ofGraph), std::move(*ofPlan)).run();
}

} // namespace gpt2c
