#include "verify/Counterparts.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>
#include <tuple>

namespace gpt2c {

/// A norm whose gain and shift moved into the products that read it: its gain is all ones.
static bool isBareNorm(const Op &op) {
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

bool isComputedFloat(const Value &v) {
  return v.def() && isFloat(v.type.dtype) && v.type.rank() < 6 && !v.def()->is(OpCode::Constant);
}

/// An op that gives integers and their scale: neither is the tensor of a graph in floating point.
static bool givesIntegers(const Op &op) {
  return llvm::any_of(op.results(), [](const Value *v) {
    return (v->type.dtype == DType::I8 || v->type.dtype == DType::U8) && v->type.rank() < 6;
  });
}

bool isComparedAcross(const Value &v) {
  return isComputedFloat(v) && !isBareNorm(*v.def()) && !givesIntegers(*v.def());
}

llvm::Expected<Executor::Bindings>
bindArguments(const Function &f, llvm::ArrayRef<Tensor> arguments, SymbolMap &symbols) {
  Executor::Bindings bound;
  for (int round = 0; round < 2; ++round)
    for (auto [i, t] : llvm::enumerate(arguments)) {
      const Value &a = *f.argument(i);
      if (auto ok = bindShape(a.type.shape, t.shape(), symbols, a.name); !ok)
        return ok.takeError();
      bound[&a] = t;
    }
  return bound;
}

//===-- pairs -------------------------------------------------------------------------------===//

Counterparts::Counterparts(llvm::ArrayRef<Value *> values) : values_(values) {
  for (auto [i, v] : llvm::enumerate(values))
    for (llvm::StringRef node : v->def()->locations)
      byNode_[node].push_back(i);
}

llvm::SmallVector<size_t> Counterparts::of(const Value &v) const {
  llvm::DenseMap<size_t, size_t> common; // nodes of each candidate
  for (llvm::StringRef node : v.def()->locations)
    for (size_t i : byNode_.lookup(node))
      ++common[i];
  auto share = [&](size_t i) {
    const size_t both = common.lookup(i);
    return double(both) /
           double(values_[i]->def()->locations.size() + v.def()->locations.size() - both);
  };
  llvm::SmallVector<size_t> out;
  for (auto [i, both] : common)
    out.push_back(i);
  auto rank = [&](size_t i) {
    return std::tuple(share(i), values_[i]->def()->code() == v.def()->code(), i);
  };
  llvm::sort(out, [&](size_t a, size_t b) { return rank(a) > rank(b); });
  return out;
}

//===-- layouts -----------------------------------------------------------------------------===//

/// `whole`, of `tokens` rows for each of `batch` sequences, at the rows from `from` on; none when
/// it is not of that form.
static std::optional<Tensor> rowsFrom(const Tensor &whole, int64_t batch, int64_t tokens,
                                      int64_t from, int64_t rows) {
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

/// [batch, n, m, d] as [batch, m, n, d].
static Tensor swapped(const Tensor &t) {
  const int64_t n = t.dim(1), m = t.dim(2), row = t.dim(3) * byteSize(t.dtype());
  Tensor out(t.dtype(), {t.dim(0), m, n, t.dim(3)});
  for (int64_t b = 0; b < t.dim(0); ++b)
    for (int64_t j = 0; j < m; ++j)
      for (int64_t i = 0; i < n; ++i)
        std::memcpy(static_cast<char *>(out.raw()) + ((b * m + j) * n + i) * row,
                    static_cast<const char *>(t.raw()) + ((b * n + i) * m + j) * row, row);
  return out;
}

/// Whether a tensor of that shape has heads in front of tokens, which a plan keeps behind them.
static bool isHeadsFirst(llvm::ArrayRef<int64_t> shape, const ComparedRows &rows) {
  return shape.size() == 4 && shape[0] == rows.batch && shape[2] == rows.tokens &&
         shape[1] != rows.tokens;
}

std::optional<Tensor> partFor(const Tensor &got, Tensor whole, const ComparedRows &rows) {
  if (got.rank() <= 3 && isHeadsFirst(whole.shape(), rows))
    whole = swapped(whole);
  if (got.count() == whole.count() && rows.cut == 0)
    return whole;
  for (int64_t count : {rows.tokens - rows.cut, int64_t(1)})
    if (got.count() * rows.tokens == whole.count() * count)
      return rowsFrom(whole, rows.batch, rows.tokens, rows.tokens - count, count);
  return std::nullopt;
}

std::optional<Tensor> withPart(const Tensor &whole, const Tensor &got, const ComparedRows &rows) {
  if (whole.count() == 0)
    return std::nullopt;
  const bool swaps = got.rank() <= 3 && isHeadsFirst(whole.shape(), rows);
  Tensor given = got.cast(whole.dtype());
  if (given.count() == whole.count() && rows.cut == 0) {
    if (!swaps)
      return given.reshaped(whole.shape());
    return swapped(given.reshaped({whole.dim(0), whole.dim(2), whole.dim(1), whole.dim(3)}));
  }
  // The rows of all tokens, of which the last ones are given.
  Tensor all = swaps ? swapped(whole) : Tensor(whole.dtype(), whole.shape());
  if (!swaps)
    std::memcpy(all.raw(), whole.raw(), whole.bytes());
  const int64_t tokens = rows.batch * rows.tokens;
  if (tokens == 0 || whole.count() % tokens != 0)
    return std::nullopt;
  const int64_t row = whole.count() / tokens * byteSize(whole.dtype());
  const int64_t count = int64_t(given.bytes()) / rows.batch / row;
  if (count < 1 || count > rows.tokens || count * row * rows.batch != int64_t(given.bytes()))
    return std::nullopt;
  for (int64_t b = 0; b < rows.batch; ++b)
    std::memcpy(static_cast<char *>(all.raw()) + ((b + 1) * rows.tokens - count) * row,
                static_cast<const char *>(std::as_const(given).raw()) + b * count * row,
                size_t(count * row));
  return swaps ? swapped(all) : all;
}

} // namespace gpt2c
