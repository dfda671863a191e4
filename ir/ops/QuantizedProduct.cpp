#include "ir/ops/QuantizedProduct.h"

#include "ir/ops/Activation.h"
#include "ir/ops/Common.h"
#include "ir/ops/IntegerProduct.h"
#include "ir/ops/Quantize.h"
#include "ir/ops/StoredProduct.h"
#include "ir/ops/TileProduct.h"
#include "ir/ops/Workers.h"

#include <algorithm>
#include <type_traits>

namespace gpt2c {

using ops::QuantizedLinear::X, ops::QuantizedLinear::W, ops::QuantizedLinear::WScale,
    ops::QuantizedLinear::XScale, ops::QuantizedLinear::Bias;

llvm::Expected<Shape> inferQuantizedProduct(InferContext &c, unsigned offset, unsigned zero) {
  const bool steps = isQuantised(c.dtype(X));
  const bool asItIs = !steps && !c.has(XScale) && c.op().intAttr("x_group") == -1;
  if ((!steps && !isFloat(c.dtype(X))) || !isQuantised(c.dtype(W)))
    return c.error("expects x of i8, f8e4m3 or floating-point elements and w of i8, f8e4m3 or i4");
  if (packedElements(c.dtype(W)) > 1 && !asItIs)
    return c.error("w of " + dtypeName(c.dtype(W)) + " takes x as it is");
  if (steps && c.dtype(X) != c.dtype(W))
    return c.error("x of " + dtypeName(c.dtype(X)) + " is multiplied with w of its type, not of " +
                   dtypeName(c.dtype(W)));
  if (c.rank(X) == 0 || c.rank(W) != 2 || c.rank(WScale) != 2)
    return c.error("expects x[..., K], w[N, K] and w_scale[N, groups]");
  if (auto k = c.unify(c.shape(X).back(), c.shape(W)[1]); !k)
    return k.takeError();
  auto wGroup = scaleGroup(c, W, WScale);
  if (!wGroup)
    return wGroup.takeError();
  if (llvm::Error e = checkSteps(c, W, WScale, zero))
    return e;
  if (zero != NoZero && c.has(zero) && !asItIs)
    return c.error("w with zero points takes x as it is");
  int64_t k = *c.shape(W)[1].constant(), xGroup = c.op().intAttr("x_group");
  if (steps) {
    if (!c.has(XScale))
      return c.error("x of " + dtypeName(c.dtype(X)) + " needs its scales");
    if (xGroup != -1)
      return c.error("x_group is for x that the op quantises itself");
    auto group = scaleGroup(c, X, XScale);
    if (!group)
      return group.takeError();
    xGroup = *group;
  } else if (c.has(XScale)) {
    if (c.rank(XScale) != 0 || c.dtype(XScale) != DType::F32 || xGroup != -1)
      return c.error("floating-point x takes one scale f32[], or x_group");
    xGroup = 0;
  } else if (xGroup < -1 || (xGroup > 0 && k % xGroup)) {
    return c.error("rows of " + llvm::Twine(k) + " elements do not divide into groups of " +
                   llvm::Twine(xGroup));
  }
  if (xGroup > 0 && *wGroup && xGroup % *wGroup && *wGroup % xGroup)
    return c.error("groups of " + llvm::Twine(xGroup) + " elements of x and " +
                   llvm::Twine(*wGroup) + " of w do not nest");
  Shape shape(c.shape(X));
  shape.back() = c.shape(W)[0];
  if (c.has(Bias)) {
    if (c.rank(Bias) != 1 || !isFloat(c.dtype(Bias)))
      return c.error("bias must be a vector of floating-point elements");
    if (auto n = c.unify(shape.back(), c.shape(Bias)[0]); !n)
      return n.takeError();
  }
  if (c.has(offset)) {
    bool one = c.dtype(X) == DType::I8 && c.rank(XScale) == 0 && c.shape(WScale)[1] == Dim(1);
    if (!one || c.rank(offset) != 1 || c.dtype(offset) != DType::I32)
      return c.error("sum_offset is i32[N], for x of i8 with one scale and w with one a row");
    if (auto n = c.unify(shape.back(), c.shape(offset)[0]); !n)
      return n.takeError();
  }
  const std::string &activation = c.op().stringAttr("activation");
  if (!activationNamed(activation))
    return c.error("unknown activation \"" + activation + "\"");
  return shape;
}

namespace {

/// x as steps of scales, Q int8_t or Fp8; `group` elements of a row share one, `perRow` is their
/// number in a row, 0 when one scale stands for all.
template <typename Q> struct QuantizedRows {
  std::vector<Q> room;
  const Q *q = nullptr;
  std::vector<float> scales;
  int64_t group = 0, perRow = 0;

  float scale(int64_t row, int64_t column) const {
    return scales[perRow ? row * perRow + column / group : 0];
  }
};

struct Sizes {
  int64_t m, n, k;
};

/// y += sx[row, first] sw[column, first] * (the integer product over columns first .. first + count
/// + offset[column]), of the columns from `begin` on.
template <typename T>
void addGroup(const QuantizedRows<int8_t> &x, const int8_t *w, llvm::ArrayRef<float> wScale,
              int64_t wGroup, llvm::ArrayRef<int32_t> offset, Sizes s, int64_t first, int64_t count,
              int64_t begin, T *y) {
  const int64_t wPerRow = s.k / wGroup;
  constexpr int64_t rows = 32, columns = 48; // of sums on the stack
  const int64_t blocks = (s.n - begin + columns - 1) / columns;
  const int64_t parts = partsOf(double(s.m) * double(s.n - begin) * double(count) / 4, blocks);
  auto block = [&](int64_t row, int64_t column) {
    const int64_t m = std::min(rows, s.m - row), n = std::min(columns, s.n - column);
    int32_t sums[rows * columns];
    integerProduct({x.q + row * s.k + first, s.k}, {w + column * s.k + first, s.k, true},
                   {sums, columns}, m, n, count);
    for (int64_t i = 0; i < m; ++i) {
      const T scale = T(x.scale(row + i, first));
      for (int64_t j = 0; j < n; ++j) {
        const int32_t sum = sums[i * columns + j] + (offset.empty() ? 0 : offset[column + j]);
        y[(row + i) * s.n + column + j] +=
            T(sum) * scale * T(wScale[(column + j) * wPerRow + first / wGroup]);
      }
    }
  };
  forParts(parts, [&](int64_t i) {
    for (int64_t at = blocks * i / parts; at < blocks * (i + 1) / parts; ++at)
      for (int64_t row = 0; row < s.m; row += rows)
        block(row, begin + at * columns);
  });
}

/// The same over all groups by tiles, of the first columns; how many these are.
template <typename T>
int64_t addTiles(const QuantizedRows<int8_t> &x, const int8_t *w, llvm::ArrayRef<float> wScale,
                 int64_t wGroup, llvm::ArrayRef<int32_t> offset, Sizes s, int64_t group, T *y) {
  if constexpr (std::is_same_v<T, float>) {
    if (!tilesFit<int8_t>(s.m, s.n, s.k, group))
      return 0;
    const TileRows<int8_t> rows(Matrix<const int8_t>{x.q, s.k}, s.m, s.k);
    const int64_t wPerRow = s.k / wGroup;
    for (int64_t first = 0; first < s.k; first += group)
      tileProduct(rows, {w, s.k, true},
                  {x.scales.data() + (x.perRow ? first / x.group : 0), x.perRow,
                   wScale.data() + first / wGroup, wPerRow,
                   offset.empty() ? nullptr : offset.data()},
                  {y, s.n}, s.n, first, group);
    return s.n / tileColumns * tileColumns;
  }
  return 0;
}

} // namespace

template <typename T, typename Q> static QuantizedRows<Q> quantizedRows(EvalContext &c, Sizes s) {
  const Tensor &x = c.input(X);
  QuantizedRows<Q> rows;
  if (isQuantised(x.dtype())) {
    rows.q = x.data<Q>();
    rows.scales = floatElements(c.input(XScale));
    if (c.input(XScale).rank())
      rows.perRow = c.input(XScale).dim(-1);
  } else {
    rows.room.resize(s.m * s.k);
    rows.q = rows.room.data();
    if (c.has(XScale)) {
      rows.scales = floatElements(c.input(XScale));
      quantiseAll(x.data<T>(), s.m * s.k, rows.scales[0], rows.room.data());
    } else {
      int64_t group = c.op().intAttr("x_group");
      rows.perRow = group ? s.k / group : 1;
      rows.scales.resize(s.m * rows.perRow);
      quantiseRows(x.data<T>(), s.m, s.k, group, rows.room.data(), rows.scales.data());
    }
  }
  rows.group = rows.perRow ? s.k / rows.perRow : s.k;
  return rows;
}

/// The numbers that rows stand for, each rounded once.
template <typename T> static std::vector<T> decodedRows(const QuantizedRows<Fp8> &rows, Sizes s) {
  std::vector<T> values(size_t(s.m * s.k));
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t k = 0; k < s.k; ++k)
      values[i * s.k + k] = T(float(rows.q[i * s.k + k])) * T(rows.scale(i, k));
  return values;
}

/// y = x (scales w)^T with x in floating point.
template <typename T>
static void multiplyFloats(const T *x, const Tensor &w, RowScales scales, Sizes s, T *y) {
  withSteps(w, [&](const auto *steps) {
    using W = std::remove_cvref_t<decltype(*steps)>;
    const Matrix<const W> weights{steps, s.k, true};
    if constexpr (std::is_same_v<T, float>)
      storedProduct<W>({x, s.k}, weights, scales, {y, s.n}, s.m, s.n, s.k);
    else
      rowProduct<T, W>({x, s.k}, weights, scales, {y, s.n}, s.m, s.n, s.k);
  });
}

llvm::Expected<Tensor> evalQuantizedProduct(EvalContext &c, unsigned offsetOperand,
                                            unsigned zeroOperand) {
  const Tensor &x = c.input(X), &w = c.input(W);
  Sizes s{product(x.shape().drop_back()), w.dim(0), w.dim(1)};
  llvm::SmallVector<int64_t, 4> shape(x.shape());
  shape.back() = s.n;
  int64_t wGroups = c.input(WScale).dim(1);
  if (x.dim(-1) != s.k || c.input(WScale).dim(0) != s.n || wGroups < 1 || s.k % wGroups ||
      (c.has(Bias) && c.input(Bias).count() != s.n) ||
      (c.has(offsetOperand) && c.input(offsetOperand).count() != s.n))
    return c.error("shapes do not fit");
  const bool hasZeros = zeroOperand != NoZero && c.has(zeroOperand);
  if (hasZeros && c.input(zeroOperand).count() != s.n * wGroups)
    return c.error("shapes do not fit");
  const Tensor floatScales = c.input(WScale).cast(DType::F32); // which they are in
  const llvm::ArrayRef<float> wScale(floatScales.data<float>(), size_t(floatScales.count()));
  bool wide = false;
  for (unsigned i = 0; i < c.numInputs(); ++i)
    wide |= c.has(i) && c.input(i).dtype() == DType::F64;
  Tensor out = Tensor::zeros(wide ? DType::F64 : DType::F32, shape);
  auto run = [&](auto tag) -> llvm::Error {
    using T = decltype(tag);
    T *y = out.data<T>();
    int64_t wGroup = s.k / wGroups;
    const RowScales scales{wScale.data(), wGroups, wGroup,
                           hasZeros ? c.input(zeroOperand).data<int8_t>() : nullptr};
    if (isFloat(x.dtype()) && !c.has(XScale) && c.op().intAttr("x_group") < 0) {
      multiplyFloats(x.data<T>(), w, scales, s, y);
    } else if (w.dtype() == DType::F8E4M3) {
      multiplyFloats(decodedRows<T>(quantizedRows<T, Fp8>(c, s), s).data(), w, scales, s, y);
    } else {
      const QuantizedRows<int8_t> rows = quantizedRows<T, int8_t>(c, s);
      llvm::ArrayRef<int32_t> offset;
      if (c.has(offsetOperand))
        offset = {c.input(offsetOperand).data<int32_t>(), size_t(s.n)};
      int64_t group = std::min(rows.group, wGroup);
      const int64_t done = addTiles(rows, w.data<int8_t>(), wScale, wGroup, offset, s, group, y);
      for (int64_t first = 0; first < s.k && done < s.n; first += group)
        addGroup(rows, w.data<int8_t>(), wScale, wGroup, offset, s, first, group, done, y);
    }
    if (c.has(Bias))
      for (int64_t i = 0; i < s.m; ++i)
        for (int64_t j = 0; j < s.n; ++j)
          y[i * s.n + j] += c.input(Bias).data<T>()[j];
    activate(*activationNamed(c.op().stringAttr("activation")), y, s.m * s.n);
    return llvm::Error::success();
  };
  if (llvm::Error e = dispatchFloat(c, out.dtype(), run))
    return e;
  return out;
}

Cost quantizedProductCost(const Op &op) {
  return {Dim(2) * elementCount(op.result()->type.shape) * op.operand(W)->type.shape[1],
          ioBytes(op)};
}

} // namespace gpt2c
