#include "passes/proof/masks/MaskSizes.h"

#include "ir/ops/Common.h"
#include "passes/proof/KvInterface.h"
#include "passes/proof/PositionProof.h"
#include "passes/proof/masks/MaskDependence.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace gpt2c {

/// Most keys that are tried with as many queries, and with few; keys where nothing tells more.
constexpr int64_t longestSquare = 8192, longestRow = 1 << 17, usualLength = 256;
/// Most scores that are looked at in one evaluation under key masks.
constexpr int64_t mostScores = int64_t(1) << 28;
/// Up to so many keys every key mask is tried.
constexpr int64_t everyPattern = 6;

MaskSizes::MaskSizes(const Function &f, const ScorePath &path,
                     const llvm::SmallBitVector &evaluated, Value *keyMask, int64_t context)
    : f_(f), path_(path), evaluated_(evaluated), keyMask_(keyMask), context_(context) {
  const Shape &s = path.scores->type.shape;
  square_ = s[2] == s[3];
  s[3].forEachSymbol([&](llvm::StringRef symbol) { hasPast_ |= !s[2].uses(symbol); });
  for (unsigned i : evaluated.set_bits())
    if (Value *v = path.steps[i].operand)
      for (const Op *op : backwardSlice(v, [](Value *) { return false; }).ops)
        ops_.push_back(op);
}

//===-- one size ----------------------------------------------------------------------------===//

std::optional<MaskSize> MaskSizes::at(int64_t batch, int64_t queries, int64_t keys) const {
  const Shape &s = path_.scores->type.shape;
  MaskSize size;
  size.symbols = probeSymbols(f_, 2);
  llvm::SmallVector<llvm::StringRef> fixed;
  // Solves d = value for its one symbol that is not fixed yet.
  auto set = [&](const Dim &d, int64_t value) {
    llvm::SmallVector<llvm::StringRef> open;
    d.forEachSymbol([&](llvm::StringRef symbol) {
      if (!llvm::is_contained(fixed, symbol) && !llvm::is_contained(open, symbol))
        open.push_back(symbol);
    });
    if (open.size() == 1) {
      Dim rest = d - Dim::symbol(open[0]);
      auto known = rest.uses(open[0]) ? std::nullopt : rest.evaluate(size.symbols);
      if (!known || *known > value)
        return false;
      size.symbols[open[0]] = value - *known;
      fixed.push_back(open[0]);
    }
    return d.evaluate(size.symbols) == value;
  };
  if (!s[0].isConstant())
    set(s[0], batch);
  if (!set(s[2], queries) || !set(s[3], keys))
    return std::nullopt;
  auto sequences = s[0].evaluate(size.symbols), heads = s[1].evaluate(size.symbols);
  if (!sequences || *sequences < 1 || !heads || *heads < 1 || queries < 1 || keys < queries)
    return std::nullopt;
  // Every sequence has a key mask of its own.
  if (keyMask_ && *sequences > mostScores / (queries * keys))
    return std::nullopt;
  size.batch = *sequences;
  size.heads = *heads;
  size.queries = queries;
  size.keys = keys;
  return size;
}

std::optional<MaskTable> MaskSizes::table(const MaskSize &size, std::string &why) const {
  MaskSize bound = size;
  if (keyMask_ && !bound.keyMask) {
    bound.keyMask = Tensor(DType::I64, {size.batch, size.keys});
    std::fill_n(bound.keyMask->data<int64_t>(), bound.keyMask->count(), 1);
  }
  auto t = MaskTable::evaluate(f_, path_.steps, evaluated_, keyMask_, bound, why);
  if (!t)
    why = "its mask cannot be evaluated for " + std::to_string(size.queries) + " queries and " +
          std::to_string(size.keys) + " keys: " + why;
  return t;
}

/// A size that the graph does not have is left out.
bool MaskSizes::add(std::vector<MaskTable> &tables, int64_t queries, int64_t keys,
                    std::string &why) const {
  auto size = at(queries * keys <= (1 << 18) ? 2 : 1, queries, keys);
  if (!size)
    return true;
  auto t = table(*size, why);
  if (t)
    tables.push_back(std::move(*t));
  return t.has_value();
}

/// As many patterns at once as there are sequences.
bool MaskSizes::addPatterns(std::vector<MaskTable> &tables, int64_t queries, int64_t keys,
                            llvm::ArrayRef<std::vector<bool>> patterns, std::string &why) const {
  while (!patterns.empty()) {
    auto size = at(int64_t(patterns.size()), queries, keys);
    if (!size)
      return true;
    size->keyMask = Tensor(DType::I64, {size->batch, keys});
    for (int64_t b = 0; b < size->batch; ++b)
      for (int64_t k = 0; k < keys; ++k)
        size->keyMask->data<int64_t>()[b * keys + k] = patterns[b % patterns.size()][k];
    auto t = table(*size, why);
    if (!t)
      return false;
    tables.push_back(std::move(*t));
    patterns = patterns.drop_front(std::min(patterns.size(), size_t(size->batch)));
  }
  return true;
}

static std::vector<std::vector<bool>> everyMask(int64_t keys) {
  std::vector<std::vector<bool>> masks;
  for (unsigned bits = 0; bits < 1u << keys; ++bits) {
    masks.emplace_back(keys);
    for (int64_t k = 0; k < keys; ++k)
      masks.back()[k] = bits >> k & 1;
  }
  return masks;
}

/// Every key is hidden in one of them and seen in the other, which shows all of a mask whose keys
/// are told by their own entries.
static std::vector<std::vector<bool>> tellingMasks(int64_t keys) {
  std::vector<std::vector<bool>> masks(2, std::vector<bool>(keys));
  for (int64_t k = 0; k < keys; ++k)
    masks[k % 2][k] = true;
  return masks;
}

//===-- the full context --------------------------------------------------------------------===//

/// Whether positions `index` go beyond a table of `rows` rows, so that the graph fails with more
/// tokens.
bool MaskSizes::readsBeyond(Value *index, int64_t rows) const {
  auto size = at(1, square_ ? rows + 1 : 1, rows + 1);
  if (!size)
    return false;
  Executor::Bindings bound;
  for (Value *leaf : backwardSlice(index, [](Value *) { return false; }).leaves) {
    auto shape = concreteShape(leaf->type, size->symbols);
    if (!shape || leaf->type.rank() != 2 || product(*shape) > 4 * longestRow)
      return false;
    Tensor ones(DType::I64, *shape);
    std::fill_n(ones.data<int64_t>(), ones.count(), 1);
    bound[leaf] = ones.cast(leaf->type.dtype);
  }
  auto values = probeAll(f_, {index}, std::move(bound), size->symbols, false);
  if (!values || isFloat((*values)[0].dtype()))
    return false;
  for (int64_t i = 0; i < (*values)[0].count(); ++i)
    if ((*values)[0].asInt(i) >= rows)
      return true;
  return false;
}

/// The tokens for which the graph has positions; 0 where no table bounds them.
int64_t MaskSizes::rowsOfPositions() const {
  int64_t most = 0;
  for (auto &op : f_.ops()) {
    if (!(op->is(OpCode::Gather) || op->is(OpCode::Slice)) || !constantOp(op->operand(0)) ||
        op->operand(0)->type.rank() != 2 || !isFloat(op->result()->type.dtype))
      continue;
    int64_t rows = *op->operand(0)->type.shape[0].constant();
    if (rows <= most)
      continue;
    if (op->is(OpCode::Slice)) {
      if (!op->result()->type.shape[0].isConstant())
        most = rows;
      continue;
    }
    Value *given = copiedArgument(op->operand(ops::Gather::Indices));
    if (op->intAttr("axis") == 0 && (given ? llvm::StringRef(given->name).contains("pos")
                                           : readsBeyond(op->operand(ops::Gather::Indices), rows)))
      most = rows;
  }
  return most;
}

/// The positions of the longest rope; 0 where there is none.
int64_t MaskSizes::rowsOfRopes() const {
  int64_t most = 0;
  for (auto &op : f_.ops())
    if (op->is(OpCode::Rope))
      most = std::max(most, *op->operand(ops::Rope::Cos)->type.shape[0].constant());
  return most;
}

/// Numbers of keys at which constants of the mask come to bear, largest first. `counts` tells
/// integers from numbers that scores are filled with, such as -10000.
llvm::SmallVector<int64_t> MaskSizes::tellingNumbers(bool counts) const {
  llvm::SmallVector<int64_t> lengths;
  auto addLength = [&](double number) {
    if (number <= double(1 << 20))
      lengths.push_back(int64_t(std::ceil(number)));
  };
  for (const Op *op : ops_) {
    if (auto c = op->is(OpCode::Constant) ? scalarConstant(op->result()) : std::nullopt) {
      bool isCount = !isFloat(op->result()->type.dtype);
      if (!counts || isCount)
        addLength(std::abs(*c) + 2);
      if (!counts && !isCount && std::abs(*c) < 1 && *c != 0)
        addLength(1 / std::abs(*c) + 2);
    } else if (op->is(OpCode::Constant) && op->constant.rank() >= 2)
      addLength(double(op->constant.dim(-1)));
    for (const NamedAttr &a : op->givenAttrs())
      if (const Dims *dims = std::get_if<Dims>(&a.value))
        for (const Dim &d : *dims)
          if (d.isConstant())
            addLength(std::abs(double(*d.constant())) + 2);
  }
  llvm::sort(lengths, std::greater<>());
  lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
  return lengths;
}

std::optional<Obstacle> MaskSizes::dependence(int64_t context) const {
  if (auto why = maskDependence(path_, path_.steps, evaluated_, keyMask_, context))
    return why;
  const llvm::SmallBitVector all(path_.after.size(), true);
  return maskDependence(path_, path_.after, all, keyMask_, context);
}

bool MaskSizes::isTheSameBehind(int64_t shown, int64_t context) const {
  const llvm::SmallBitVector all(path_.after.size(), true);
  return isTheSameBeyond(path_, path_.steps, evaluated_, keyMask_, shown, context) &&
         isTheSameBeyond(path_, path_.after, all, keyMask_, shown, context);
}

/// The tokens that the mask should be evaluated for.
int64_t MaskSizes::fullContext() {
  if (auto keys = path_.scores->type.shape[3].constant())
    return *keys;
  const int64_t limit = hasPast_ ? longestRow : longestSquare;
  int64_t length = rowsOfPositions();
  if (length == 0)
    length = context_;
  if (length == 0) {
    // Longer texts than a rope has positions for are no part of the plan.
    const int64_t turned = rowsOfRopes(), most = turned ? std::min(limit, turned) : limit;
    length = std::min(usualLength, most);
    for (int64_t number : tellingNumbers(false))
      if (number <= most) {
        length = std::max(length, number);
        break;
      }
    for (int64_t number : tellingNumbers(true))
      if (number > limit && (turned == 0 || turned > limit))
        missing_ = "the number " + std::to_string(number - 2) +
                   " in its mask could be a window that shows only to sequences longer than can be "
                   "tried";
    // What is told by distances alone and stays what it is shows in a part of the context.
    bound_ = turned ? most : std::min(limit, comparedTokens);
    if (bound_ > length && !dependence(bound_) && !isTheSameBehind(length, bound_))
      length = bound_;
  }
  // Of distances alone, and the same behind those that are evaluated, it is that for all tokens.
  if (length > limit && !dependence(length) && isTheSameBehind(limit, length))
    bound_ = length;
  else if (length > limit)
    missing_ = "its mask is evaluated for " + std::to_string(limit) + " of " +
               std::to_string(length) + " tokens only";
  return std::min(length, limit);
}

/// The table for the most tokens there can be; none with a reason when there is no such.
std::optional<MaskTable> MaskSizes::longest(std::string &why) {
  auto runs = [&](int64_t keys, std::string &reason) -> std::optional<MaskTable> {
    auto queries = path_.scores->type.shape[2].constant();
    auto size = at(1, queries ? *queries : square_ ? keys : 1, keys);
    return size ? table(*size, reason) : std::nullopt;
  };
  const int64_t length = fullContext();
  if (auto t = runs(length, why))
    return t;
  // A buffer that is cut to the sequence ends the graph where it ends.
  for (int64_t side : tellingNumbers(false)) {
    std::string ignored;
    if (side >= length || side < 1)
      continue;
    auto t = runs(side, ignored);
    if (t && !runs(side + 1, ignored)) {
      missing_.clear();
      return t;
    }
  }
  if (why.empty())
    why =
        "there are too many sequences to evaluate its mask for " + std::to_string(length) + " keys";
  return std::nullopt;
}

std::vector<MaskTable> MaskSizes::tables(Obstacle &why) {
  const Shape &s = path_.scores->type.shape;
  auto longestTable = longest(why.reason);
  if (!longestTable)
    return {};
  const int64_t most = longestTable->size().keys;
  if (auto foreign = dependence(std::max(most, bound_))) {
    why = *foreign;
    why.reason = "its mask: " + why.reason;
    return {};
  }
  if (most > longestSquare && !isTheSameBehind(longestSquare, most))
    missing_ = "its mask is evaluated for " + std::to_string(longestSquare) + " of " +
               std::to_string(most) + " tokens, and is not shown to be the same behind them";
  llvm::SmallVector<std::pair<int64_t, int64_t>> sizes; // queries and keys, small ones first
  auto queries = s[2].constant();
  auto with = [&](int64_t q, int64_t k) {
    std::pair<int64_t, int64_t> size(queries ? *queries : q, k);
    if (k <= most && q >= 1 && !llvm::is_contained(sizes, size))
      sizes.push_back(size);
  };
  const int64_t square = std::min(most, longestSquare);
  for (int64_t n = 1; n <= everyPattern; ++n)
    with(n, n);
  // Where the number of queries is fixed, each past has other ones.
  for (int64_t k = queries ? *queries : most; k < std::min(most, longestSquare); ++k)
    with(1, k);
  if (hasPast_) {
    for (auto [q, k] : {std::pair(1, 2), {1, 4}, {2, 5}, {2, 6}, {3, 6}})
      with(q, k);
    with(1, most / 2);
    with(1, most);
    with(2, most);
    with(square - square / 2, square);
    with(square - 1, square);
  } else
    with(square / 3 + 1, square / 3 + 1);
  with(square, square);
  if (s[3].isConstant())
    with(*s[3].constant(), *s[3].constant());

  std::vector<MaskTable> out;
  std::string reason;
  for (auto [q, k] : sizes) {
    const MaskSize &had = longestTable->size();
    bool known = q == had.queries && k == had.keys && q * k > (1 << 18);
    bool done = known || add(out, q, k, reason);
    if (known)
      out.push_back(*longestTable);
    if (done && keyMask_ && k == std::min(most, everyPattern))
      done = addPatterns(out, q, k, everyMask(k), reason);
    else if (done && keyMask_ && k == square)
      done = (hasPast_ && q > 2 && q < square) || addPatterns(out, q, k, tellingMasks(k), reason);
    if (!done) {
      why = reason;
      return {};
    }
  }
  if (out.empty())
    why = "the shape of the scores is not known: " + path_.scores->type.str();
  return out;
}

} // namespace gpt2c
