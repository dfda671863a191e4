#include "verify/StepErrors.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>

namespace gpt2c {

namespace {

constexpr size_t worstParts = 3;

/// Squared norms of what is expected and of what is off, by parts.
struct Sums {
  std::vector<double> expected, off;
  explicit Sums(int64_t parts) : expected(parts), off(parts) {}

  /// The worst; no part counts as smaller than `floor` of the root mean square of all.
  std::vector<WorstPart> worst(double floor) const {
    double all = 0;
    for (double e : expected)
      all += e;
    const double least = floor * floor * all / std::max<double>(1, double(expected.size()));
    std::vector<WorstPart> out;
    for (auto [i, e] : llvm::enumerate(expected))
      if (off[i] > 0)
        out.push_back({int64_t(i), std::sqrt(off[i] / std::max({e, least, 1e-300}))});
    const size_t count = std::min(worstParts, out.size());
    std::partial_sort(out.begin(), out.begin() + ptrdiff_t(count), out.end(),
                      [](auto &a, auto &b) { return a.error > b.error; });
    out.resize(count);
    return out;
  }
};

/// The worst channels and rows of `got`.
void addParts(ValueError &out, const Tensor &got, const Tensor &expected) {
  const int64_t width = got.rank() ? got.dim(-1) : 1, rows = width ? got.count() / width : 0;
  Sums channels(width), tokens(rows);
  std::vector<double> g(width), e(width);
  for (int64_t r = 0; r < rows; ++r) {
    got.load(r * width, g);
    expected.load(r * width, e);
    for (int64_t c = 0; c < width; ++c) {
      const double d = g[c] - e[c];
      if (!std::isfinite(d) || !std::isfinite(e[c]))
        continue;
      channels.expected[c] += e[c] * e[c];
      channels.off[c] += d * d;
      tokens.expected[r] += e[c] * e[c];
      tokens.off[r] += d * d;
    }
  }
  out.channels = channels.worst(1);
  out.tokens = tokens.worst(1e-3);
  out.channel = out.channels.empty() ? 0 : out.channels.front().error;
}

bool isState(const Op &op, const Value &v) { return op.info().has(InPlace) && v.index() == 0; }

class Comparison {
public:
  Comparison(llvm::ArrayRef<TracedValue> traced, const StepReference &reference)
      : traced_(traced), reference_(reference), function_(*reference.function),
        values_(comparedValues()), counterparts_(values_), executor_(function_, reference.options) {
  }

  llvm::Expected<std::vector<ValueError>> run() {
    auto bound = bindArguments(function_, reference_.arguments, symbols_);
    if (!bound)
      return bound.takeError();
    auto totals = executor_.evaluate(values_, std::move(*bound), symbols_);
    if (!totals)
      return totals.takeError();
    totals_ = std::move(*totals);
    SymbolMap symbols;
    auto onPlan = bindArguments(function_, reference_.onPlan, symbols);
    if (!onPlan)
      return onPlan.takeError();
    onPlan_ = std::move(*onPlan);
    std::vector<ValueError> out;
    std::vector<std::optional<Pair>> pairs;
    for (const TracedValue &t : traced_)
      if (isComputedFloat(*t.value)) {
        describe(t, out.emplace_back());
        pairs.push_back(standsFor(t));
        if (pairs.back())
          out.back().total = compareRows(t.tensor, pairs.back()->expected, scaleOf(pairs.back()));
      }
    if (!reference_.own)
      dropOtherForms(out, pairs);
    size_t i = 0;
    for (const TracedValue &t : traced_)
      if (isComputedFloat(*t.value)) {
        if (llvm::Error e = pairs[i] ? compare(t, *pairs[i], out[i]) : llvm::Error::success())
          return e;
        ++i;
      }
    return out;
  }

private:
  /// What a traced value is to equal in a run of the reference.
  struct Pair {
    size_t other; ///< of values_
    Tensor expected;
  };

  std::vector<Value *> comparedValues() const {
    std::vector<Value *> out;
    for (auto &op : function_.ops())
      for (Value *v : op->results())
        if (reference_.own ? isComputedFloat(*v) : isComparedAcross(*v))
          out.push_back(v);
    return out;
  }

  std::optional<Pair> standsFor(const TracedValue &t) const {
    if (reference_.own) {
      auto it = llvm::find(values_, t.value);
      if (it == values_.end())
        return std::nullopt;
      const Tensor &total = totals_[it - values_.begin()];
      if (total.count() != t.tensor.count())
        return std::nullopt;
      return Pair{size_t(it - values_.begin()), total.reshaped(t.tensor.shape())};
    }
    // What moves data has the nodes of what it was moved across, and computes nothing.
    if (!isComparedAcross(*t.value) || t.value->def()->info().has(DataMovement))
      return std::nullopt;
    for (size_t candidate : counterparts_.of(*t.value))
      if (auto part = partFor(t.tensor, totals_[candidate], reference_.rows);
          part && part->count() > 0)
        return Pair{candidate, part->reshaped(t.tensor.shape())};
    return std::nullopt;
  }

  /// A value that is far off, but from which one follows that is much nearer, is another form of
  /// what it seems to stand for, as in verify/Parting.h.
  void dropOtherForms(std::vector<ValueError> &errors, std::vector<std::optional<Pair>> &pairs) {
    constexpr double far = 0.01, nearer = 0.01;
    llvm::DenseMap<const Value *, double> nearest; // of all that follow from a value
    for (size_t i = errors.size(); i-- > 0;) {
      const Value *v = errors[i].value;
      auto behind = nearest.find(v);
      const double own = pairs[i] ? errors[i].total.relative : INFINITY;
      if (pairs[i] && own > far && behind != nearest.end() && behind->second < own * nearer) {
        pairs[i].reset();
        errors[i].total = {};
      }
      double least = behind == nearest.end() ? own : std::min(own, behind->second);
      spread(*v, least, nearest);
    }
  }

  /// Tells the values that `v` follows from how near it is.
  static void spread(const Value &v, double error, llvm::DenseMap<const Value *, double> &nearest) {
    llvm::SmallVector<const Value *> work{&v};
    while (!work.empty())
      for (const Value *o : work.pop_back_val()->def()->operands()) {
        if (!o || !o->def())
          continue;
        auto [it, fresh] = nearest.try_emplace(o, error);
        if (!fresh && it->second <= error)
          continue;
        it->second = error;
        work.push_back(o);
      }
  }

  RowScale scaleOf(const std::optional<Pair> &pair) const {
    const Value *v = values_[pair->other];
    for (auto [i, r] : llvm::enumerate(function_.returned()))
      if (r == v && i < function_.resultNames.size() && function_.resultNames[i] == "logits")
        return RowScale::Logits;
    return RowScale::Norm;
  }

  /// Whether a value that the op reads, or that one reads which left nothing in memory, has a NaN.
  bool readsLost(const Value &v) const {
    llvm::SmallVector<const Value *> work{&v};
    llvm::DenseSet<const Value *> seen;
    while (!work.empty()) {
      const Op *op = work.pop_back_val()->def();
      if (!op || !seen.insert(op->result()).second)
        continue;
      for (const Value *o : op->operands()) {
        if (!o)
          continue;
        if (lost_.contains(o))
          return true;
        if (!finite_.contains(o))
          work.push_back(o);
      }
    }
    return false;
  }

  void count(const TracedValue &t, ValueError &out) {
    for (int64_t i = 0, n = t.tensor.count(); i < n; ++i) {
      const double x = t.tensor.asDouble(i);
      out.nans += std::isnan(x);
      out.infinities += std::isinf(x);
    }
    if (out.nans + out.infinities == 0) {
      finite_.insert(t.value);
      return;
    }
    out.made = !readsLost(*t.value);
    lost_.insert(t.value);
  }

  void describe(const TracedValue &t, ValueError &out) {
    out.step = t.step;
    out.value = t.value;
    out.shape.assign(t.tensor.shape().begin(), t.tensor.shape().end());
    count(t, out);
  }

  llvm::Error compare(const TracedValue &t, const Pair &pair, ValueError &out) {
    Value *other = values_[pair.other];
    out.standsFor = other;
    auto expected = onInputs(other);
    if (!expected)
      return expected.takeError();
    Tensor against = pair.expected;
    if (auto part = partOf(t.tensor, *expected)) {
      out.hasAdded = true;
      out.added = compareRows(t.tensor, *part, scaleOf(pair));
      against = *part;
    }
    addParts(out, t.tensor, against);
    bind(other, t.tensor, *expected);
    return llvm::Error::success();
  }

  std::optional<Tensor> partOf(const Tensor &got, const Tensor &expected) const {
    if (!reference_.own) {
      auto part = partFor(got, expected, reference_.rows);
      return part ? std::optional(part->reshaped(got.shape())) : std::nullopt;
    }
    return got.count() == expected.count() ? std::optional(expected.reshaped(got.shape()))
                                           : std::nullopt;
  }

  /// The value from what the plan computed before it.
  llvm::Expected<Tensor> onInputs(Value *other) {
    std::vector<Value *> wanted{other};
    for (Value *r : other->def()->results())
      if (r != other && isState(*other->def(), *r))
        wanted.push_back(r);
    auto tensors = executor_.evaluate(wanted, onPlan_, symbols_);
    if (!tensors)
      return tensors.takeError();
    // So that later layers do not append the rows of this one again.
    for (size_t i = 1; i < wanted.size(); ++i)
      onPlan_[wanted[i]] = (*tensors)[i];
    return (*tensors)[0];
  }

  /// From here on what reads the value reads that of the plan.
  void bind(Value *other, const Tensor &got, const Tensor &expected) {
    if (auto whole = reference_.own
                         ? std::optional(got.cast(expected.dtype()).reshaped(expected.shape()))
                         : withPart(expected, got, reference_.rows))
      onPlan_[other] = std::move(*whole);
  }

  llvm::ArrayRef<TracedValue> traced_;
  const StepReference &reference_;
  const Function &function_;
  std::vector<Value *> values_;
  Counterparts counterparts_;
  Executor executor_;
  SymbolMap symbols_;
  std::vector<Tensor> totals_;
  Executor::Bindings onPlan_;
  llvm::DenseSet<const Value *> lost_, finite_; ///< of the plan's values
};

} // namespace

llvm::Expected<std::vector<ValueError>> stepErrors(llvm::ArrayRef<TracedValue> traced,
                                                   const StepReference &reference) {
  return Comparison(traced, reference).run();
}

ValueError valueError(const TracedValue &traced, const Tensor &expected, bool logits) {
  ValueError out;
  out.step = traced.step;
  out.value = out.standsFor = traced.value;
  out.shape.assign(traced.tensor.shape().begin(), traced.tensor.shape().end());
  for (int64_t i = 0, n = traced.tensor.count(); i < n; ++i) {
    const double x = traced.tensor.asDouble(i);
    out.nans += std::isnan(x);
    out.infinities += std::isinf(x);
  }
  Tensor same = expected.reshaped(traced.tensor.shape());
  out.total = compareRows(traced.tensor, same, logits ? RowScale::Logits : RowScale::Norm);
  addParts(out, traced.tensor, same);
  return out;
}

} // namespace gpt2c
