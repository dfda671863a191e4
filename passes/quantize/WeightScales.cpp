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

/// sum_k m_k errorOf(w_k)^2
template <typename ErrorOf>
static float weightedSquares(const float *w, const float *moments, int64_t count,
                             ErrorOf &&errorOf) {
  constexpr int64_t lanes = 16; // sums that a vector unit can keep apart
  float sums[lanes] = {};
  auto add = [&](int64_t i, int64_t lane) {
    const float error = errorOf(w[i]);
    sums[lane] += moments[i] * error * error;
  };
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes)
    for (int64_t lane = 0; lane < lanes; ++lane)
      add(i + lane, lane);
  for (; i < count; ++i)
    add(i, i % lanes);
  return std::accumulate(sums, sums + lanes, 0.0F);
}

/// sum_k m_k (w_k - q_k scale)^2
template <float (*Step)(float)>
static float errorOf(const float *w, const float *moments, int64_t count, float scale) {
  const float inverse = 1.0F / scale;
  return weightedSquares(w, moments, count, [&](float x) { return x - Step(x * inverse) * scale; });
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

namespace {

/// A scale of int4, and the least and the largest of what its numbers less the zero point are.
struct Int4Range {
  float scale = 1, least = -8, most = 7;

  float step(float w) const {
    constexpr float magic = 0x1.8p23F;
    return (std::clamp(w * (1.0F / scale), least, most) + magic) - magic;
  }
};

struct Extremes {
  float least = 0, most = 0;
};

} // namespace

static Extremes extremesOf(const float *w, int64_t count) {
  Extremes e;
  for (int64_t i = 0; i < count; ++i) {
    e.least = std::min(e.least, w[i]);
    e.most = std::max(e.most, w[i]);
  }
  return e;
}

/// Of numbers from `least` to `most`, which lie around 0.
static Int4Range int4Range(float least, float most) {
  constexpr float steps = 15;
  const float width = most - least;
  if (!(width >= 0x1p-100F))
    return {};
  Int4Range r;
  r.scale = width / steps;
  r.least = -std::nearbyint(-least / r.scale);
  r.most = r.least + steps;
  return r;
}

/// sum_k m_k (w_k - (q_k - z) s)^2
static float int4Error(const float *w, const float *moments, int64_t count, const Int4Range &r) {
  return weightedSquares(w, moments, count, [&](float x) { return x - r.step(x) * r.scale; });
}

static Int4Range bestInt4Range(const float *w, const float *moments, int64_t count) {
  const Extremes e = extremesOf(w, count);
  Int4Range best = int4Range(e.least, e.most);
  float error = int4Error(w, moments, count, best);
  constexpr int fewest = 14, all = 20; // twentieths
  for (int below = all; below >= fewest; --below)
    for (int above = all; above >= fewest && error > 0; --above) {
      const Int4Range r =
          int4Range(e.least * float(below) / float(all), e.most * float(above) / float(all));
      if (const float sum = int4Error(w, moments, count, r); sum < error) {
        error = sum;
        best = r;
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
        const int64_t at = int64_t(row) * w.scale.dim(1) + i / group;
        const float zero = w.zero.valid() ? float(w.zero.data<int8_t>()[at]) : 0;
        floats[i] =
            double((stepAt(steps, int64_t(row) * k + i) - zero) * w.scale.data<float>()[at]);
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
  QuantisedWeight out{Tensor(type, w.shape()), Tensor(DType::F32, {n, k / group}), {}};
  if (type == DType::I4)
    out.zero = Tensor(DType::I8, {n, k / group});
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
        const Int4Range r = bestInt4Range(from, moments.data() + at, group);
        scale = r.scale;
        out.zero.data<int8_t>()[(row * k + at) / group] = static_cast<int8_t>(-8 - r.least);
        for (int64_t i = 0; i < group; ++i)
          steps[i] = double(r.step(from[i]) - r.least - 8);
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

QuantisedWeight quantiseWeightByBlock(const Tensor &w, int64_t rows, int64_t columns,
                                      llvm::ArrayRef<float> moments) {
  const int64_t n = w.dim(0), k = w.dim(1), group = std::gcd(columns, k), groups = k / group;
  QuantisedWeight out{Tensor(DType::F8E4M3, w.shape()), Tensor(DType::F32, {n, groups}), {}};
  const Tensor wide = w.cast(DType::F32);
  auto quantise = [&](int64_t row, int64_t column) {
    const int64_t height = std::min(rows, n - row), width = std::min(columns, k - column);
    std::vector<float> block, met;
    for (int64_t i = row; i < row + height; ++i) {
      const float *from = wide.data<float>() + i * k + column;
      block.insert(block.end(), from, from + width);
      for (int64_t j = column; j < column + width; ++j)
        met.push_back(moments.empty() ? 1 : moments[j]);
    }
    const float scale = bestFp8Scale(block.data(), met.data(), height * width);
    for (int64_t i = 0; i < height; ++i) {
      for (int64_t j = 0; j < width; ++j)
        out.q.data<Fp8>()[(row + i) * k + column + j] = {
            floatToFp8(block[i * width + j] * (1.0F / scale))};
      for (int64_t g = column / group; g * group < column + width; ++g)
        out.scale.data<float>()[(row + i) * groups + g] = scale;
    }
  };
  llvm::parallelFor(0, (n + rows - 1) / rows, [&](size_t block) {
    for (int64_t column = 0; column < k; column += columns)
      quantise(int64_t(block) * rows, column);
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
        const Extremes e = extremesOf(from, group);
        errors[row] += int4Error(from, moments.data() + at, group, int4Range(e.least, e.most));
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
  QuantisedWeight out{Tensor(DType::I8, w.shape()), Tensor(DType::F32, {n, 1}), {}};
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
