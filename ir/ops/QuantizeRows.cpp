#include "ir/ops/Common.h"
#include "ir/ops/Quantize.h"
#include "ir/ops/Workers.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace gpt2c {

float quantScale(float largest, float steps) {
  constexpr float vanishing = 0x1p-100F;
  return largest < vanishing ? 1.0F : largest / steps;
}

int8_t quantised(float x, float inverseScale) {
  constexpr float magic = 0x1.8p23F; // floats around it are the integers: adding rounds to even
  float clamped = std::clamp(x * inverseScale, -int8Steps, int8Steps);
  if (std::isnan(clamped)) // the scale is NaN or infinite, and makes NaN of it
    return 0;
  return static_cast<int8_t>((clamped + magic) - magic);
}

template <typename T, typename Q> void quantiseAll(const T *x, int64_t count, float scale, Q *q) {
  float inverse = 1.0F / scale;
  for (int64_t i = 0; i < count; ++i)
    if constexpr (std::is_same_v<Q, Fp8>)
      q[i] = {floatToFp8(static_cast<float>(x[i]) * inverse)};
    else
      q[i] = quantised(static_cast<float>(x[i]), inverse);
}

template <typename T, typename Q>
void quantiseRows(const T *x, int64_t rows, int64_t k, int64_t group, Q *q, float *scales) {
  constexpr float steps = std::is_same_v<Q, Fp8> ? fp8Steps : int8Steps;
  int64_t size = group ? group : k;
  auto quantise = [&](int64_t i) {
    float largest = 0;
    for (int64_t j = 0; j < size; ++j)
      if (float v = std::fabs(static_cast<float>(x[i * size + j])); !(v <= largest))
        largest = std::isnan(largest) ? largest : v;
    scales[i] = quantScale(largest, steps);
    quantiseAll(x + i * size, size, scales[i], q + i * size);
  };
  const int64_t n = size ? rows * k / size : 0, parts = partsOf(double(rows * k) * 8, n);
  forParts(parts, [&](int64_t part) {
    for (int64_t i = n * part / parts; i < n * (part + 1) / parts; ++i)
      quantise(i);
  });
}

ALL_QUANTISED_ROWS(template)

std::vector<float> floatElements(const Tensor &t) {
  Tensor f = t.cast(DType::F32);
  return {f.data<float>(), f.data<float>() + f.count()};
}

AttrSpec quantisedToAttr() {
  return {"to", AttrKind::DType, Attr(DType::I8), "what q is stored in: i8 or f8e4m3"};
}

llvm::Error inferQuantised(InferContext &c, llvm::ArrayRef<Dim> shape, unsigned given,
                           llvm::StringRef groupAttr, unsigned first, unsigned zero) {
  if (shape.empty())
    return c.error("a scalar has no rows to quantise");
  const DType to = c.op().dtypeAttr("to");
  if (!isQuantised(to))
    return c.error("rows are quantised to i8 or f8e4m3, not to " + dtypeName(to));
  c.setResult(first, to, Shape(shape));
  const bool hasZero = zero != NoZero && c.has(zero);
  if (hasZero && to != DType::I8)
    return c.error("a zero point is of integers, not of " + dtypeName(to));
  if (hasZero && (!c.has(given) || c.rank(zero) != 0 || c.dtype(zero) != DType::I8))
    return c.error("a zero point is i8[], beside a scale that is given");
  if (c.has(given)) {
    if (c.rank(given) != 0 || c.dtype(given) != DType::F32)
      return c.error("a given scale is f32[]");
    c.setResult(first + 1, DType::F32, {});
    return llvm::Error::success();
  }
  Shape scales(shape);
  int64_t group = c.op().intAttr(groupAttr);
  auto k = shape.back().constant();
  if (group < 0 || (group && !k) || (group && *k % group))
    return c.error("rows of " + shape.back().str() + " elements do not divide into groups of " +
                   llvm::Twine(group));
  scales.back() = group ? *k / group : 1;
  c.setResult(first + 1, DType::F32, std::move(scales));
  return llvm::Error::success();
}

llvm::Error setQuantised(EvalContext &c, const Tensor &x, unsigned given, llvm::StringRef groupAttr,
                         unsigned first, unsigned zero) {
  int64_t group = c.op().intAttr(groupAttr), k = x.dim(-1);
  Tensor q(c.op().dtypeAttr("to"), x.shape()), scale;
  auto run = [&](auto tag, auto *steps) -> llvm::Error {
    using T = decltype(tag);
    if (c.has(given)) {
      scale = Tensor::scalar(floatElements(c.input(given))[0]);
      if (zero != NoZero && c.has(zero)) {
        const int8_t z = c.input(zero).data<int8_t>()[0];
        for (int64_t i = 0, n = x.count(); i < n; ++i)
          q.data<int8_t>()[i] =
              affineQuantised(static_cast<float>(x.data<T>()[i]), scale.data<float>()[0], z);
        return llvm::Error::success();
      }
      quantiseAll(x.data<T>(), x.count(), scale.data<float>()[0], steps);
      return llvm::Error::success();
    }
    llvm::SmallVector<int64_t, 4> shape(x.shape());
    shape.back() = group ? k / group : 1;
    scale = Tensor::zeros(DType::F32, shape);
    quantiseRows(x.data<T>(), k ? x.count() / k : 0, k, group, steps, scale.data<float>());
    return llvm::Error::success();
  };
  if (llvm::Error e = dispatchFloat(c, x.dtype(), [&](auto tag) {
        return q.dtype() == DType::F8E4M3 ? run(tag, q.data<Fp8>()) : run(tag, q.data<int8_t>());
      }))
    return e;
  c.output(first) = q;
  c.output(first + 1) = scale;
  return llvm::Error::success();
}

llvm::Expected<int64_t> scaleGroup(const InferContext &c, unsigned q, unsigned scale) {
  if (c.dtype(scale) != DType::F32)
    return c.error("scales are f32");
  if (c.rank(scale) == 0)
    return 0;
  llvm::ArrayRef<Dim> rows = c.shape(q), scales = c.shape(scale);
  if (scales.size() != rows.size())
    return c.error("scales have the rank of what they scale, or are f32[]");
  for (unsigned i = 0; i + 1 < rows.size(); ++i)
    if (auto d = c.unify(rows[i], scales[i]); !d)
      return d.takeError();
  auto k = rows.back().constant(), groups = scales.back().constant();
  if (!k || !groups || *groups < 1 || *k % *groups)
    return c.error("rows of " + rows.back().str() + " elements do not divide into " +
                   scales.back().str() + " groups");
  return *k / *groups;
}

llvm::Error checkSteps(const InferContext &c, unsigned q, unsigned scale, unsigned zero) {
  if (const int64_t each = packedElements(c.dtype(q)); each > 1) {
    const int64_t k = c.shape(q).back().constant().value_or(0),
                  groups = c.rank(scale) ? c.shape(scale).back().constant().value_or(1) : 1;
    if (k % (each * groups) != 0)
      return c.error("rows of " + dtypeName(c.dtype(q)) + " have groups of whole words of " +
                     llvm::Twine(each) + " elements, not " + llvm::Twine(k) + " elements in " +
                     llvm::Twine(groups));
  }
  if (zero == NoZero || !c.has(zero))
    return llvm::Error::success();
  if (c.dtype(zero) != DType::I8 || c.rank(zero) == 0 || c.shape(zero) != c.shape(scale))
    return c.error("zero points are i8 of the shape of the scales");
  return llvm::Error::success();
}

} // namespace gpt2c
