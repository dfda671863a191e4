#include "passes/proof/PositionProof.h"

#include "passes/proof/Probe.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>

namespace gpt2c {

namespace {

struct Sizes {
  int64_t batch, past, seq;
};

} // namespace

/// Elements that one proof may compute.
constexpr int64_t elementBudget = int64_t(1) << 28;

/// Numbers of tokens up to `most`: the small ones, those around powers of two, the last ones.
static std::vector<int64_t> lengthsUpTo(int64_t most) {
  std::vector<int64_t> lengths;
  for (int64_t n = 1; n <= most; ++n)
    if (n < 10 || n + 2 > most || llvm::isPowerOf2_64(n - 1) || llvm::isPowerOf2_64(n) ||
        llvm::isPowerOf2_64(n + 1))
      lengths.push_back(n);
  return lengths;
}

static std::vector<Sizes> sizesUpTo(int64_t context, bool hasPast) {
  std::vector<Sizes> sizes;
  for (int64_t n : lengthsUpTo(context)) {
    sizes.push_back({1 + n % 3, 0, n});
    if (hasPast && n > 1) {
      sizes.push_back({1 + n % 2, n - 1, 1});
      sizes.push_back({2, context - n, n});
      sizes.push_back({1, n / 2, n - n / 2});
    }
  }
  return sizes;
}

/// Elements of what `slice` computes; none where a shape is not known.
static std::optional<int64_t> elementsOf(const BackwardSlice &slice, const SymbolMap &symbols) {
  int64_t sum = 0;
  for (const Op *op : slice.ops)
    for (const Value *r : op->results()) {
      auto shape = concreteShape(r->type, symbols);
      if (!shape)
        return std::nullopt;
      int64_t n = 1;
      for (int64_t d : *shape)
        if (__builtin_mul_overflow(n, d, &n))
          return std::nullopt;
      if (__builtin_add_overflow(sum, n, &sum))
        return std::nullopt;
    }
  return sum;
}

static bool setDim(const Dim &d, int64_t value, SymbolMap &symbols) {
  if (auto symbol = d.asSymbol()) {
    symbols[*symbol] = value;
    return true;
  }
  return d.evaluate(symbols) == value;
}

/// The length of the past that the attentions read; null when there is none.
static const Dim *pastLength(const KvInterface &io) {
  const Value *past =
      io.attentions.empty() ? nullptr : io.attentions[0]->operand(ops::Attention::PastK);
  return past ? &past->type.shape[2] : nullptr;
}

/// Symbols for `sizes`; none where the graph has other sizes.
static std::optional<SymbolMap> symbolsFor(const Function &f, const KvInterface &io,
                                           const Dim *past, Sizes sizes) {
  SymbolMap symbols = probeSymbols(f, unsigned(sizes.batch));
  const Shape &ids = io.ids->type.shape;
  if (!setDim(ids[0], sizes.batch, symbols) || !setDim(ids[1], sizes.seq, symbols) ||
      (past && !setDim(*past, sizes.past, symbols)))
    return std::nullopt;
  return symbols;
}

static std::optional<Tensor> countingIds(const Value *argument, const SymbolMap &symbols,
                                         int64_t from, bool ones) {
  auto shape = concreteShape(argument->type, symbols);
  if (!shape || shape->empty())
    return std::nullopt;
  Tensor t(DType::I64, *shape);
  for (int64_t i = 0; i < t.count(); ++i)
    t.data<int64_t>()[i] = ones ? 1 : from + i % shape->back();
  return t.cast(argument->type.dtype);
}

static std::string sizesText(Sizes s) {
  return std::to_string(s.seq) + (s.seq == 1 ? " token" : " tokens") +
         (s.past ? " behind " + std::to_string(s.past) : "");
}

namespace {

/// What is evaluated: `index`, for up to `most` tokens, of which `past` (null: none) are old.
struct Evaluated {
  Value *index;
  const Dim *past;
  int64_t most;
};

} // namespace

/// Whether `holds` for all sizes; `why` is the reason of what cannot be evaluated.
static bool holdsAtAllSizes(Function &f, const KvInterface &io, Evaluated what,
                            llvm::function_ref<bool(const Tensor &, Sizes)> holds,
                            std::string &why) {
  BackwardSlice slice = backwardSlice(what.index, [](Value *) { return false; });
  int64_t left = elementBudget;
  bool evaluated = false;
  for (Sizes sizes : sizesUpTo(what.most, what.past)) {
    auto symbols = symbolsFor(f, io, what.past, sizes);
    if (!symbols)
      continue;
    auto elements = elementsOf(slice, *symbols);
    if (!elements || (left -= std::min(left, *elements)) <= 0) {
      why = "they cannot be evaluated for " + sizesText(sizes);
      return false;
    }
    Executor::Bindings bound;
    for (Value *leaf : slice.leaves)
      if (auto t = countingIds(leaf, *symbols, sizes.past, leaf == io.keyMask))
        bound[leaf] = *t;
    auto value = probe(f, what.index, std::move(bound), *symbols, &why);
    if (!value || !holds(*value, sizes))
      return false;
    evaluated = true;
  }
  if (!evaluated)
    why = "the graph takes no length of text to evaluate them for";
  return evaluated;
}

std::optional<int64_t> rowsInFront(Function &f, const KvInterface &io, Op *gather,
                                   std::string &why) {
  Value *index = gather->operand(ops::Gather::Indices);
  if (io.positionIds && copiedArgument(index) == io.positionIds)
    return 0;
  BackwardSlice slice = backwardSlice(index, [](Value *) { return false; });
  for (const Value *leaf : slice.leaves)
    if (leaf != io.keyMask && leaf != io.positionIds) {
      why = "they depend on input '" + leaf->name + "'";
      return std::nullopt;
    }
  const bool isRope = gather->is(OpCode::Rope);
  const Value *table = gather->operand(isRope ? unsigned(ops::Rope::Cos) : ops::Gather::X);
  const Op *constant = isRope ? nullptr : constantOp(table);
  const int64_t rows = *table->type.shape[0].constant(),
                most = constant && constant->constant.valid() ? rows - 1 : 0;
  std::optional<int64_t> inFront;
  auto isPosition = [&](const Tensor &value, Sizes sizes) {
    if (value.rank() == 0 || value.dim(-1) != sizes.seq) {
      why = "they are not one for each token";
      return false;
    }
    if (!inFront && value.count())
      inFront = std::clamp<int64_t>(value.asInt(0) - sizes.past, 0, most);
    for (int64_t i = 0; i < value.count(); ++i)
      if (value.asInt(i) != *inFront + sizes.past + i % sizes.seq) {
        why = "of " + sizesText(sizes) + ", token " + std::to_string(i % sizes.seq) + " has " +
              std::to_string(value.asInt(i));
        return false;
      }
    return true;
  };
  return holdsAtAllSizes(f, io, {index, pastLength(io), rows}, isPosition, why) ? inFront
                                                                                : std::nullopt;
}

bool countsFromZero(Function &f, const KvInterface &io, const Dim &past, Value *rows,
                    int64_t context, std::string &why) {
  if (!backwardSlice(rows, [](Value *) { return false; }).leaves.empty()) {
    why = "they depend on an input";
    return false;
  }
  auto counts = [&](const Tensor &value, Sizes sizes) {
    const int64_t keys = sizes.past + sizes.seq;
    bool all = value.count() == sizes.batch * keys;
    for (int64_t i = 0; all && i < value.count(); ++i)
      all = value.asInt(i) == i % keys;
    if (!all)
      why = "of " + sizesText(sizes) + ", they are not all keys in their order";
    return all;
  };
  return holdsAtAllSizes(f, io, {rows, &past, context}, counts, why);
}

bool isElementwiseIn(Value *index, const Value *argument) {
  BackwardSlice slice = backwardSlice(index, [](Value *) { return false; });
  return llvm::all_of(slice.leaves, [&](Value *v) { return v == argument; }) &&
         slice.hasLeaf(argument) && llvm::all_of(slice.ops, [&](const Op *op) {
           if (op->is(OpCode::Constant))
             return op->constant.valid() && op->constant.count() == 1;
           return op->info().has(Elementwise) || op->is(OpCode::Reshape);
         });
}

std::optional<std::vector<int64_t>> indicesOf(const Function &f, Value *index, Value *argument,
                                              int64_t count) {
  SymbolMap symbols = probeSymbols(f, 0);
  const Shape &shape = argument->type.shape;
  if (count < 1 || count > elementBudget / 256 || shape.size() != 2 ||
      !setDim(shape[0], 1, symbols) || !setDim(shape[1], count, symbols))
    return std::nullopt;
  Tensor ids(DType::I64, {1, count});
  std::iota(ids.data<int64_t>(), ids.data<int64_t>() + count, 0);
  auto value = probe(f, index, {{argument, ids.cast(argument->type.dtype)}}, symbols);
  if (!value || value->count() != count)
    return std::nullopt;
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < count; ++i)
    indices.push_back(value->asInt(i));
  return indices;
}

} // namespace gpt2c
