#include "passes/proof/bounds/RoundedDecisions.h"

#include "ir/Decisions.h"
#include "passes/proof/KvInterface.h"
#include "passes/proof/Lengths.h"
#include "passes/proof/PositionProof.h"
#include "passes/proof/masks/Probe.h"
#include "passes/quantize/Precision.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace gpt2c {

/// Most elements that are looked at for one length.
constexpr int64_t mostDecided = int64_t(1) << 20;

/// Values of symbols and indices under which a decision is looked at, side by side.
namespace {

class Places {
public:
  Places(const Elements &elements, llvm::ArrayRef<Elements::Ref> indices)
      : elements_(elements), indices_(indices) {}

  /// Adds elements under these lengths: all, or those at the ends of each axis; of too many those
  /// at the ends of all axes but one.
  bool add(const SymbolMap &lengths, bool all) {
    llvm::SmallVector<int64_t, 4> extents;
    int64_t count = 1;
    for (Elements::Ref index : indices_) {
      auto symbol = index->number.asSymbol();
      auto extent = symbol ? elements_.extentOf(*symbol)->evaluate(lengths) : 1;
      if (!extent || *extent < 0)
        return false;
      extents.push_back(*extent);
      count = *extent > mostDecided ? mostDecided + 1 : std::min(count, mostDecided) * *extent;
    }
    if (all && count <= mostDecided)
      walk(lengths, extents, [](size_t) { return true; });
    else if (all)
      for (size_t free = 0; free < extents.size(); ++free)
        walk(lengths, extents, [free](size_t axis) { return axis == free; });
    else
      walk(lengths, extents, [](size_t) { return false; });
    return true;
  }

  const LaneMap &lanes() const { return lanes_; }
  int64_t count() const { return count_; }
  /// The indices of one place.
  std::string at(int64_t lane) const {
    std::string text;
    for (Elements::Ref index : indices_) {
      auto symbol = index->number.asSymbol();
      text += (text.empty() ? "" : ", ") +
              std::to_string(symbol ? lanes_.find(*symbol)->second[lane] : 0);
    }
    return "[" + text + "]";
  }

private:
  void walk(const SymbolMap &lengths, llvm::ArrayRef<int64_t> extents,
            llvm::function_ref<bool(size_t)> whole) {
    llvm::SmallVector<int64_t, 4> at(extents.size(), 0);
    if (llvm::is_contained(extents, 0))
      return;
    for (;;) {
      for (auto &s : lengths)
        lanes_[s.getKey()].push_back(s.getValue());
      for (auto [index, i] : llvm::zip_equal(indices_, at))
        if (auto symbol = index->number.asSymbol())
          lanes_[*symbol].push_back(i);
      ++count_;
      size_t axis = at.size();
      while (axis > 0) {
        int64_t &i = at[axis - 1];
        const int64_t last = extents[axis - 1] - 1;
        if (i < last) {
          i = whole(axis - 1) ? i + 1 : last;
          break;
        }
        i = 0;
        --axis;
      }
      if (axis == 0)
        return;
    }
  }

  const Elements &elements_;
  llvm::ArrayRef<Elements::Ref> indices_;
  LaneMap lanes_;
  int64_t count_ = 0;
};

/// What the symbols of a graph's inputs count.
class Inputs {
public:
  explicit Inputs(const Function &f) {
    for (unsigned i = 0; i < f.numArguments(); ++i) {
      const Type &t = f.argument(i)->type;
      if (t.rank() < 2)
        continue;
      const unsigned batch = t.rank() == 5 ? 1 : 0;
      if (auto s = t.shape[batch].asSymbol())
        sequences_.push_back(*s);
      for (unsigned axis = batch + 1; axis < t.rank(); ++axis)
        if (auto s = t.shape[axis].asSymbol(); s && t.rank() >= 4)
          past_.push_back(*s);
    }
  }

  bool hasPast() const { return !past_.empty(); }

  /// `tokens` in all, of which one is new, or all are.
  SymbolMap lengths(const llvm::SetVector<llvm::StringRef> &symbols, int64_t tokens,
                    bool behindPast) const {
    SymbolMap out;
    for (llvm::StringRef s : symbols)
      out[s] = llvm::is_contained(sequences_, s) ? 1
               : llvm::is_contained(past_, s)    ? (behindPast ? tokens - 1 : 0)
               : behindPast                      ? 1
                                                 : tokens;
    return out;
  }

private:
  llvm::SmallVector<llvm::StringRef, 4> sequences_, past_;
};

} // namespace

/// Whether an op behind `decision` rounds to half precision.
static bool rounds(const Op &decision) {
  const BackwardSlice slice =
      backwardSlice(decision.result(), [](Value *v) { return !isFloat(v->type.dtype); });
  return llvm::any_of(slice.ops, [](const Op *op) {
    return !op->is(OpCode::Constant) && op->numResults() == 1 &&
           isNarrow(op->result()->type.dtype) && !op->info().has(DataMovement);
  });
}

static std::optional<RoundedDecision> compare(const Op &op, int64_t context, const Inputs &inputs) {
  const Value *v = op.result();
  Elements elements;
  auto indices = elements.variablesOf(v);
  Elements::Ref e = elements.at(v, indices);
  llvm::SetVector<llvm::StringRef> symbols = lengthsIn(elements, e);
  for (const Dim &d : v->type.shape)
    d.forEachSymbol([&](llvm::StringRef s) { symbols.insert(s); });
  Places places(elements, indices);
  std::vector<std::pair<int64_t, int64_t>> tokens; // from which place on
  for (int64_t n = 1; n <= context; ++n)
    for (bool behind : {false, true}) {
      if (behind && !inputs.hasPast())
        continue;
      tokens.emplace_back(places.count(), n);
      if (!places.add(inputs.lengths(symbols, n, behind), n == context))
        return std::nullopt;
    }
  auto reads = [&](const Element &read) -> std::optional<Tensor> {
    // Masks show everything, positions count; ids are the same wherever they decide.
    Tensor t(DType::I64, {places.count()});
    std::fill_n(t.data<int64_t>(), t.count(), 1);
    if (isFloat(read.value->type.dtype) || read.operands.empty())
      return std::nullopt;
    if (llvm::StringRef(read.value->name).contains("pos")) {
      auto at = evaluateLanes(elements, read.operands.back(), places.lanes(), places.count());
      if (!at)
        return std::nullopt;
      t = at->cast(DType::I64);
    }
    return t.cast(read.value->type.dtype);
  };
  auto given = evaluateLanes(elements, e, places.lanes(), places.count(), reads);
  auto exact = evaluateLanes(elements, e, places.lanes(), places.count(), reads, true);
  if (!given || !exact)
    return std::nullopt;
  for (int64_t i = 0; i < places.count(); ++i) {
    const double a = given->asDouble(i), b = exact->asDouble(i);
    if (std::abs(a - b) < 0.5 || (std::isnan(a) && std::isnan(b)))
      continue;
    const int64_t n = std::prev(llvm::upper_bound(tokens, std::pair(i, INT64_MAX)))->second;
    return RoundedDecision{&op, "at " + places.at(i) + " of " + std::to_string(n) + " tokens", a,
                           b};
  }
  return std::nullopt;
}

std::vector<RoundedDecision> roundedDecisions(Function &f, int64_t maxContext) {
  std::vector<const Op *> ops;
  for (const auto &op : f.ops())
    if (isDecision(*op) && !decidingOps({op.get()}).empty() && rounds(*op))
      ops.push_back(op.get());
  std::vector<RoundedDecision> out;
  if (ops.empty())
    return out;
  const int64_t positions = findKvInterface(f).positions;
  int64_t context = maxContext ? maxContext : comparedTokens;
  if (positions)
    context = std::min(context, positions);
  const Inputs inputs(f);
  for (const Op *op : ops)
    if (auto found = compare(*op, context, inputs))
      out.push_back(*found);
  return out;
}

} // namespace gpt2c
