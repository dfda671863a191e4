#include "passes/recognise/QuantizedWeights.h"

#include "passes/Rewrite.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <array>

namespace gpt2c {

const Op *dequantizeOf(const Value *w) {
  const Op *def = w->def();
  if (def && def->is(OpCode::Reshape) && w->type.rank() == 2)
    def = def->operand(0)->def();
  const bool constant =
      def && def->is(OpCode::AffineDequantize) && llvm::all_of(def->operands(), [](const Value *o) {
        return constantOp(o) && constantOp(o)->constant.valid();
      });
  return constant ? def : nullptr;
}

bool isTokenLookup(const Op &gather) {
  if (!gather.is(OpCode::Gather) || gather.intAttr("axis") != 0)
    return false;
  const Value *table = gather.operand(ops::Gather::X), *ids = gather.operand(ops::Gather::Indices);
  while (ids->def() && (ids->def()->is(OpCode::Cast) || ids->def()->is(OpCode::Reshape)))
    ids = ids->def()->operand(0);
  return table->type.rank() == 2 && ids->type.rank() == 2 && !ids->def() &&
         llvm::any_of(gather.function()->returned(), [&](const Value *v) {
           return v->type.rank() > 1 && v->type.shape.back() == table->type.shape[0];
         });
}

namespace {

/// Places in three axes.
using Place = std::array<int64_t, 3>;

/// A constant that broadcasts to three axes.
struct Parameter {
  Tensor t;
  Place strides{};

  /// Of a constant for values of `rank` axes, of which a third is one element.
  Parameter(const Tensor &t, unsigned rank) : t(t) {
    int64_t stride = 1;
    for (unsigned i = t.rank(); i-- > 0; stride *= t.dim(int(i)))
      strides[i + rank - t.rank()] = t.dim(int(i)) == 1 ? 0 : stride;
  }
  int64_t at(const Place &p) const {
    return p[0] * strides[0] + p[1] * strides[1] + p[2] * strides[2];
  }
};

/// A dequantised matrix as its product sees it, of element (n, k).
struct DequantisedMatrix {
  Tensor q;
  Parameter scale, zero;
  bool transposed;   ///< rows are n
  bool rowsAreSplit; ///< the first two of three axes are the rows, else the last two the columns
  int64_t block, n, k;

  /// The axis that counts blocks, and that of their elements.
  unsigned blockAxis() const { return rowsAreSplit ? 0 : 1; }
  bool areGroups() const { return block > 1 && rowsAreSplit != transposed; }
  int64_t group() const { return areGroups() ? block : k; }
  Place place(int64_t n, int64_t k) const {
    const int64_t row = transposed ? n : k, column = transposed ? k : n;
    return rowsAreSplit ? Place{row / block, row % block, column}
                        : Place{row, column / block, column % block};
  }
  int64_t flat(int64_t n, int64_t k) const {
    return transposed ? n * this->k + k : k * this->n + n;
  }
  /// Whether elements that share a group have others.
  bool variesWithin(const Parameter &p) const {
    const unsigned first = blockAxis();
    if (areGroups())
      return p.strides[first + 1] != 0;
    if (rowsAreSplit == transposed && block > 1) // blocks of N
      return p.strides[transposed ? 2 : 0] != 0;
    return transposed ? p.strides[1] != 0 : p.strides[0] != 0;
  }
  int64_t zeroOf(int64_t n, int64_t k) const { return zero.t.asInt(zero.at(place(n, k))); }
  float scaleOf(int64_t n, int64_t k) const { return scale.t.data<float>()[scale.at(place(n, k))]; }
};

/// Extremes of what is stored, and of what it is less its zero points.
struct Ranges {
  int64_t least = INT64_MAX, most = INT64_MIN, leastDifference = INT64_MAX,
          mostDifference = INT64_MIN;
};

Ranges rangesOf(const DequantisedMatrix &m) {
  Ranges r;
  for (int64_t row = 0; row < m.n; ++row)
    for (int64_t column = 0; column < m.k; ++column) {
      const int64_t q = m.q.asInt(m.flat(row, column)), v = q - m.zeroOf(row, column);
      r.least = std::min(r.least, q);
      r.most = std::max(r.most, q);
      r.leastDifference = std::min(r.leastDifference, v);
      r.mostDifference = std::max(r.mostDifference, v);
    }
  return r;
}

constexpr int64_t leastNibble = -8, mostNibble = 7;

/// Less `offset`, which zero points make up for: `withZeros` keeps them, else they are taken off.
StoredWeights storedAs(const DequantisedMatrix &m, DType type, bool withZeros, int64_t offset) {
  const int64_t groups = m.areGroups() ? m.k / m.block : 1;
  StoredWeights w{Tensor::zeros(type, {m.n, m.k}), Tensor(DType::F32, {m.n, groups}), {}};
  if (withZeros)
    w.zero = Tensor(DType::I8, {m.n, groups});
  std::vector<double> steps(static_cast<size_t>(m.k));
  for (int64_t row = 0; row < m.n; ++row) {
    for (int64_t column = 0; column < m.k; ++column)
      steps[size_t(column)] =
          m.q.asDouble(m.flat(row, column)) - double(withZeros ? offset : m.zeroOf(row, column));
    w.q.store(row * m.k, steps);
    for (int64_t g = 0; g < groups; ++g) {
      w.scale.data<float>()[row * groups + g] = m.scaleOf(row, g * m.group());
      if (withZeros)
        w.zero.data<int8_t>()[row * groups + g] =
            static_cast<int8_t>(m.zeroOf(row, g * m.group()) - offset);
    }
  }
  return w;
}

/// In four bits; none where numbers or groups are not such.
std::optional<StoredWeights> inFourBits(const DequantisedMatrix &m, const Ranges &r) {
  if (m.group() % packedElements(DType::I4) != 0 || m.n * m.k == 0)
    return std::nullopt;
  if (r.leastDifference >= leastNibble && r.mostDifference <= mostNibble)
    return storedAs(m, DType::I4, false, 0);
  const int64_t offset = m.q.dtype() == DType::U8 ? -leastNibble : 0;
  if (r.least - offset < leastNibble || r.most - offset > mostNibble)
    return std::nullopt;
  for (int64_t row = 0; row < m.n; ++row)
    for (int64_t column = 0; column < m.k; column += m.group())
      if (const int64_t z = m.zeroOf(row, column) - offset; z < INT8_MIN || z > INT8_MAX)
        return std::nullopt;
  return storedAs(m, DType::I4, true, offset);
}

} // namespace

/// None where it has other axes.
static std::optional<DequantisedMatrix> matrixOf(const Value *w, bool transposed) {
  using enum ops::AffineDequantize::Operand;
  const Op &dequantize = *dequantizeOf(w);
  const Tensor &q = constantOp(dequantize.operand(Q))->constant;
  if (w->type.rank() != 2 || q.rank() < 2 || q.rank() > 3)
    return std::nullopt;
  const int64_t rows = *w->type.shape[0].constant(), columns = *w->type.shape[1].constant();
  if (q.rank() == 3 && q.dim(0) != rows && q.dim(2) != columns)
    return std::nullopt;
  const bool rowsAreSplit = q.rank() == 3 && q.dim(0) != rows;
  return DequantisedMatrix{q,
                           Parameter(constantOp(dequantize.operand(Scale))->constant, q.rank()),
                           Parameter(constantOp(dequantize.operand(ZeroPoint))->constant, q.rank()),
                           transposed,
                           rowsAreSplit,
                           q.rank() == 2  ? 1
                           : rowsAreSplit ? q.dim(1)
                                          : q.dim(2),
                           transposed ? rows : columns,
                           transposed ? columns : rows};
}

std::optional<StoredWeights> storedTable(const Value *w) {
  const auto m = matrixOf(w, true);
  if (!m || m->variesWithin(m->scale) || m->q.dtype() == DType::F8E4M3)
    return std::nullopt;
  const Ranges r = rangesOf(*m);
  if (r.leastDifference < INT8_MIN || r.mostDifference > INT8_MAX)
    return std::nullopt;
  return storedAs(*m, DType::I8, false, 0);
}

std::optional<StoredWeights> storedWeights(const Value *w, bool transposed, Obstacle &why) {
  using enum ops::AffineDequantize::Operand;
  const Op &dequantize = *dequantizeOf(w);
  auto refuse = [&](llvm::StringRef reason, llvm::StringRef attribute = "") {
    why = {reason.str(), &dequantize, attribute.str()};
    return std::nullopt;
  };
  const auto matrix = matrixOf(w, transposed);
  if (!matrix)
    return refuse("it is no matrix");
  const DequantisedMatrix &m = *matrix;
  const Tensor &q = m.q, &zero = m.zero.t;
  if (m.variesWithin(m.scale))
    return refuse("it has a scale for each input instead of each output", "scale");
  if (q.dtype() == DType::F8E4M3) {
    for (int64_t i = 0; i < zero.count(); ++i)
      if (zero.asDouble(i) != 0)
        return refuse("it has zero points", "zero_point");
    return storedAs(m, DType::F8E4M3, false, 0);
  }
  const Ranges r = rangesOf(m);
  if (!m.variesWithin(m.zero))
    if (auto four = inFourBits(m, r))
      return four;
  if (r.leastDifference < INT8_MIN || r.mostDifference > INT8_MAX)
    return refuse("less its zero point it is not within -128 to 127", "zero_point");
  return storedAs(m, DType::I8, false, 0);
}

} // namespace gpt2c
