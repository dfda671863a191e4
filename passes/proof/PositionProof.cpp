#include "passes/proof/PositionProof.h"

#include "passes/proof/Lengths.h"
#include "passes/proof/masks/Probe.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <numeric>

namespace gpt2c {

/// Elements that one proof may compute.
constexpr int64_t elementBudget = int64_t(1) << 28;

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

/// The element of `index` for each token, with masks of ones and position ids that count.
static Elements::Ref positionOf(Elements &elements, const KvInterface &io, Value *index,
                                const Dim &past, llvm::ArrayRef<Elements::Ref> at) {
  if (io.keyMask)
    elements.define(io.keyMask, [&](Elements::Indices) { return elements.number(1); });
  if (io.positionIds)
    elements.define(io.positionIds, [&](Elements::Indices of) -> Elements::Ref {
      if (of.empty() || of.back()->kind != Element::Number)
        return nullptr;
      return elements.number(of.back()->number + past);
    });
  return elements.at(index, at);
}

/// Whether `e`, in which `place` is where a token stands among all, is `inFront` + place at every
/// place in front of `most`, whatever the lengths.
static bool countsEverywhere(Elements &elements, Elements::Ref e, const Dim &place,
                             const Lengths &lengths, std::optional<int64_t> &inFront,
                             int64_t mostInFront, std::string &why) {
  Allowed allowed{[&](const Dim &d) {
                    return onlyUses(d, [&](llvm::StringRef s) { return Dim::symbol(s) == place; });
                  },
                  [](const Element &) { return false; }};
  if (auto foreign = DependenceProof(elements, lengths, allowed).foreign(e)) {
    why = foreign->reason;
    return false;
  }
  LaneMap lanes;
  auto symbol = place.asSymbol();
  // An export of a fixed length has no other places.
  const int64_t places = std::min(lengths.context, lengths.keys.constant().value_or(INT64_MAX));
  for (int64_t p = 0; p < places; ++p)
    lanes[symbol.value_or("place")].push_back(p);
  // Parts that are made of lengths are the same for all of them.
  for (const Dim *d : {&lengths.queries, &lengths.keys})
    d->forEachSymbol(
        [&](llvm::StringRef s) { lanes.try_emplace(s, std::vector<int64_t>(places, 1)); });
  auto values = evaluateLanes(elements, e, lanes, places);
  if (!values) {
    why = "they cannot be evaluated";
    return false;
  }
  if (!inFront)
    inFront = std::clamp<int64_t>(values->asInt(0), 0, mostInFront);
  for (int64_t p = 0; p < places; ++p)
    if (values->asInt(p) != *inFront + p) {
      why = "token " + std::to_string(p) + " has " + std::to_string(values->asInt(p));
      return false;
    }
  return true;
}

std::optional<int64_t> rowsInFront(Function &, const KvInterface &io, Op *gather,
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
  const Shape &ids = io.ids->type.shape;
  if (index->type.rank() == 0 || index->type.shape.back() != ids[1]) {
    why = "they are not one for each token";
    return std::nullopt;
  }
  Elements elements;
  const Dim *pastDim = pastLength(io);
  const Dim past = pastDim ? *pastDim : Dim(0);
  auto at = elements.variablesOf(index);
  Elements::Ref e = positionOf(elements, io, index, past, at);
  const Dim token = at.back()->number;
  if (e->kind == Element::Number)
    if (auto inFront = (e->number - past - token).constant();
        inFront && *inFront >= 0 && *inFront <= most)
      return inFront;
  const Dim place = elements.variable(past + ids[1]);
  if (auto symbol = token.asSymbol())
    e = elements.substitute(e, *symbol, place - past);
  else if (past.asSymbol()) // one token
    e = elements.substitute(e, *past.asSymbol(), place);
  std::optional<int64_t> inFront;
  return countsEverywhere(elements, e, place, {ids[1], past + ids[1], rows}, inFront, most, why)
             ? inFront
             : std::nullopt;
}

bool countsFromZero(Function &, const KvInterface &io, const Dim &past, Value *rows,
                    int64_t context, std::string &why) {
  if (!backwardSlice(rows, [](Value *) { return false; }).leaves.empty()) {
    why = "they depend on an input";
    return false;
  }
  const Dim keys = past + io.ids->type.shape[1];
  Elements elements;
  auto at = elements.variablesOf(rows);
  auto *axis = llvm::find(rows->type.shape, keys);
  if (axis == rows->type.shape.end() ||
      elementCount(rows->type.shape) != io.ids->type.shape[0] * keys) {
    why = "they are not one for each key";
    return false;
  }
  const Dim key = at[axis - rows->type.shape.begin()]->number;
  Elements::Ref e = elements.at(rows, at);
  std::optional<int64_t> inFront = 0;
  return (e->kind == Element::Number && e->number == key) ||
         countsEverywhere(elements, e, key, {io.ids->type.shape[1], keys, context}, inFront, 0,
                          why);
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
