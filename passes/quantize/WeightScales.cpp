#include "passes/quantize/WeightScales.h"

#include "ir/Format.h"
#include "ir/ops/Quantize.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Parallel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

namespace gpt2c {

/// The step of int8 that a number of them becomes, as in quantised().
static float int8Step(float x) {
  constexpr float magic = 0x1.8p23F;
  return (std::clamp(x, -int8Steps, int8Steps) + magic) - magic;
}
/// The same of fp8, as in floatToFp8(), of at most 448.
static float fp8Step(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const float normal = std::bit_cast<float>((bits + 0x7ffff + (bits >> 20 & 1)) & 0xfff00000u);
  constexpr float magic = 0x1.8p14F; // its steps are of 2^-9
  return std::fabs(x) < 0x1p-6F ? (x + magic) - magic : normal;
}

static float int4Step(float x) {
  constexpr float magic = 0x1.8p23F;
  return (std::clamp(x, -8.0F, 7.0F) + magic) - magic;
}

/// sum_k m_k (w_k - q_k scale)^2
template <float (*Step)(float)>
static float errorOf(const float *w, const float *moments, int64_t count, float scale) {
  constexpr int64_t lanes = 16; // sums that a vector unit can keep apart
  const float inverse = 1.0F / scale;
  float sums[lanes] = {};
  auto add = [&](int64_t i, int64_t lane) {
    float error = w[i] - Step(w[i] * inverse) * scale;
    sums[lane] += moments[i] * error * error;
  };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane)
      add(i + lane, lane);
  for (; i < count; ++i)
    add(i, i % lanes);
  float sum = 0;
  for (float s : sums)
    sum += s;
  return sum;
}

/// The index of the largest magnitude.
static int64_t largestOf(const float *w, int64_t count) {
  int64_t at = 0;
  for (int64_t i = 1; i < count; ++i)
    if (std::fabs(w[i]) > std::fabs(w[at]))
      at = i;
  return at;
}

static float bestScale(const float *w, const float *moments, int64_t count) {
  const int64_t at = largestOf(w, count);
  const float largest = count ? std::fabs(w[at]) : 0;
  float best = quantScale(largest), error = errorOf<int8Step>(w, moments, count, best);
  for (int thousandths = 995; thousandths >= 850 && error > 0; thousandths -= 5) {
    float range = largest * float(thousandths) / 1000;
    // Clipping this element alone costs as much, and more in smaller ranges.
    if (moments[at] * (largest - range) * (largest - range) >= error)
      break;
    float scale = quantScale(range);
    float e = errorOf<int8Step>(w, moments, count, scale);
    if (e < error) {
      error = e;
      best = scale;
    }
  }
  return best;
}

static float bestFp8Scale(const float *w, const float *moments, int64_t count) {
  // Kernels multiply what halves hold by the gain of a norm: two powers of two less leave it room,
  // and cost nothing but digits of weights that are 10^5 times smaller than the largest.
  constexpr float steps = infoOf(OperandFormat::F8Row).largest / 4;
  const float largest = count ? std::fabs(w[largestOf(w, count)]) : 0;
  if (largest < 0x1p-100F)
    return 1;
  float best = largest / steps, error = errorOf<fp8Step>(w, moments, count, best);
  for (int sixteenths = 15; sixteenths >= 9 && error > 0; --sixteenths) {
    const float scale = largest / (steps * float(sixteenths) / 16);
    if (const float e = errorOf<fp8Step>(w, moments, count, scale); e < error) {
      error = e;
      best = scale;
    }
  }
  return best;
}

/// The largest becomes the number with the largest magnitude.
static float int4Scale(const float *w, int64_t count) {
  const float v = count ? w[largestOf(w, count)] : 0;
  return std::fabs(v) < 0x1p-100F ? 1 : v / -8;
}

static float bestInt4Scale(const float *w, const float *moments, int64_t count) {
  float best = int4Scale(w, count), error = errorOf<int4Step>(w, moments, count, best);
  const float largest = count ? std::fabs(w[largestOf(w, count)]) : 0;
  if (largest < 0x1p-100F)
    return best;
  for (int quarters = 28; quarters <= 44 && error > 0; ++quarters)
    for (float sign : {-1.0F, 1.0F}) {
      const float scale = sign * largest / (float(quarters) / 4);
      if (const float e = errorOf<int4Step>(w, moments, count, scale); e < error) {
        error = e;
        best = scale;
      }
    }
  return best;
}

int64_t int4Group(int64_t k, int64_t wanted) {
  constexpr int64_t least = 16;
  int64_t group = wanted;
  while (group >= least && k % group != 0 && group % 2 == 0)
    group /= 2;
  return group >= least && k % group == 0 && group % packedElements(DType::I4) == 0 ? group : 0;
}

Tensor floatsOf(const QuantisedWeight &w, DType type) {
  const int64_t n = w.q.dim(0), k = w.q.dim(1), group = k / std::max<int64_t>(1, w.scale.dim(1));
  Tensor out(type, {n, k});
  withSteps(w.q, [&](const auto *steps) {
    llvm::parallelFor(0, n, [&](size_t row) {
      std::vector<double> floats(k);
      for (int64_t i = 0; i < k; ++i) {
        const float scale = w.scale.data<float>()[int64_t(row) * w.scale.dim(1) + i / group];
        floats[i] = double(stepAt(steps, int64_t(row) * k + i) * scale);
      }
      out.store(int64_t(row) * k, floats);
    });
  });
  return out;
}

QuantisedWeight quantiseWeight(const Tensor &w, int64_t group, llvm::ArrayRef<float> moments,
                               DType type) {
  int64_t n = w.dim(0), k = w.dim(1);
  if (!group || k % group)
    group = k;
  std::vector<float> same(moments.empty() ? k : 0, 1);
  if (moments.empty())
    moments = same;
  QuantisedWeight out{Tensor(type, w.shape()), Tensor(DType::F32, {n, k / group})};
  assert((type != DType::I4 || group % packedElements(type) == 0) && "rows of whole words");
  Tensor wide = w.cast(DType::F32);
  llvm::parallelFor(0, n, [&](size_t row) {
    std::vector<double> steps(type == DType::I4 ? group : 0);
    for (int64_t at = 0; at < k; at += group) {
      const float *from = wide.data<float>() + row * k + at;
      float &scale = out.scale.data<float>()[(row * k + at) / group];
      if (type == DType::I8) {
        scale = bestScale(from, moments.data() + at, group);
        quantiseAll(from, group, scale, out.q.data<int8_t>() + row * k + at);
        continue;
      }
      if (type == DType::I4) {
        scale = bestInt4Scale(from, moments.data() + at, group);
        for (int64_t i = 0; i < group; ++i)
          steps[i] = int4Step(from[i] * (1.0F / scale));
        out.q.store(int64_t(row) * k + at, steps);
        continue;
      }
      scale = bestFp8Scale(from, moments.data() + at, group);
      for (int64_t i = 0; i < group; ++i)
        out.q.data<Fp8>()[row * k + at + i] = {floatToFp8(from[i] * (1.0F / scale))};
    }
  });
  return out;
}

double weightError(const Tensor &w, int64_t group, llvm::ArrayRef<float> moments, DType type) {
  int64_t n = w.dim(0), k = w.dim(1);
  if (!group || k % group)
    group = k;
  Tensor wide = w.cast(DType::F32);
  std::vector<double> errors(n);
  llvm::parallelFor(0, n, [&](size_t row) {
    for (int64_t at = 0; at < k; at += group) {
      const float *from = wide.data<float>() + row * k + at;
      if (type == DType::I4) {
        errors[row] += errorOf<int4Step>(from, moments.data() + at, group, int4Scale(from, group));
        continue;
      }
      float largest = 0;
      for (int64_t i = 0; i < group; ++i)
        largest = std::max(largest, std::fabs(from[i]));
      errors[row] += errorOf<int8Step>(from, moments.data() + at, group, quantScale(largest));
    }
  });
  return std::accumulate(errors.begin(), errors.end(), 0.0);
}

QuantisedWeight quantiseWeightByTensor(const Tensor &w, llvm::ArrayRef<int32_t> matrices) {
  const int64_t n = w.dim(0), k = w.dim(1);
  assert((matrices.empty() || int64_t(matrices.size()) == n) && "one for each row");
  QuantisedWeight out{Tensor(DType::I8, w.shape()), Tensor(DType::F32, {n, 1})};
  const Tensor wide = w.cast(DType::F32);
  auto rowOf = [&](int64_t i) { return wide.data<float>() + i * k; };
  auto matrixOf = [&](int64_t i) { return matrices.empty() ? 0 : matrices[i]; };
  std::vector<float> largest(1 + (matrices.empty() ? 0 : *llvm::max_element(matrices)), 0);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < k; ++j) {
      float &most = largest[matrixOf(i)];
      most = std::max(most, std::fabs(rowOf(i)[j]));
    }
  for (int64_t i = 0; i < n; ++i) {
    const float scale = quantScale(largest[matrixOf(i)]);
    out.scale.data<float>()[i] = scale;
    quantiseAll(rowOf(i), k, scale, out.q.data<int8_t>() + i * k);
  }
  return out;
}

} // namespace gpt2c
