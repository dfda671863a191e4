#include "passes/quantize/WeightScales.h"

#include "ir/ops/Quantize.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Parallel.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace gpt2c {

/// sum_k m_k (w_k - q_k scale)^2
static float errorOf(const float *w, const float *moments, int64_t count, float scale) {
  constexpr int64_t lanes = 16; // sums that a vector unit can keep apart
  const float inverse = 1.0F / scale;
  float sums[lanes] = {};
  auto add = [&](int64_t i, int64_t lane) {
    constexpr float magic = 0x1.8p23F; // as in quantised()
    float q = std::clamp(w[i] * inverse, -int8Steps, int8Steps);
    float error = w[i] - ((q + magic) - magic) * scale;
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

static float bestScale(const float *w, const float *moments, int64_t count) {
  int64_t at = 0; // of the largest magnitude
  for (int64_t i = 1; i < count; ++i)
    if (std::fabs(w[i]) > std::fabs(w[at]))
      at = i;
  const float largest = count ? std::fabs(w[at]) : 0;
  float best = quantScale(largest), error = errorOf(w, moments, count, best);
  for (int thousandths = 995; thousandths >= 850 && error > 0; thousandths -= 5) {
    float range = largest * float(thousandths) / 1000;
    // Clipping this element alone costs as much, and more in smaller ranges.
    if (moments[at] * (largest - range) * (largest - range) >= error)
      break;
    float scale = quantScale(range);
    float e = errorOf(w, moments, count, scale);
    if (e < error) {
      error = e;
      best = scale;
    }
  }
  return best;
}

Tensor floatsOf(const Int8Weight &w, DType type) {
  const int64_t n = w.q.dim(0), k = w.q.dim(1), group = k / std::max<int64_t>(1, w.scale.dim(1));
  Tensor out(type, {n, k});
  llvm::parallelFor(0, n, [&](size_t row) {
    std::vector<double> floats(k);
    for (int64_t i = 0; i < k; ++i) {
      const float scale = w.scale.data<float>()[int64_t(row) * w.scale.dim(1) + i / group];
      floats[i] = double(float(w.q.data<int8_t>()[int64_t(row) * k + i]) * scale);
    }
    out.store(int64_t(row) * k, floats);
  });
  return out;
}

Int8Weight quantiseWeight(const Tensor &w, int64_t group, llvm::ArrayRef<float> moments) {
  int64_t n = w.dim(0), k = w.dim(1);
  if (!group || k % group)
    group = k;
  std::vector<float> same(moments.empty() ? k : 0, 1);
  if (moments.empty())
    moments = same;
  Int8Weight out{Tensor(DType::I8, w.shape()), Tensor(DType::F32, {n, k / group})};
  Tensor wide = w.cast(DType::F32);
  llvm::parallelFor(0, n, [&](size_t row) {
    for (int64_t at = 0; at < k; at += group) {
      const float *from = wide.data<float>() + row * k + at;
      float scale = bestScale(from, moments.data() + at, group);
      out.scale.data<float>()[(row * k + at) / group] = scale;
      quantiseAll(from, group, scale, out.q.data<int8_t>() + row * k + at);
    }
  });
  return out;
}

double int8WeightError(const Tensor &w, int64_t group, llvm::ArrayRef<float> moments) {
  int64_t n = w.dim(0), k = w.dim(1);
  if (!group || k % group)
    group = k;
  Tensor wide = w.cast(DType::F32);
  std::vector<double> errors(n);
  llvm::parallelFor(0, n, [&](size_t row) {
    for (int64_t at = 0; at < k; at += group) {
      const float *from = wide.data<float>() + row * k + at;
      float largest = 0;
      for (int64_t i = 0; i < group; ++i)
        largest = std::max(largest, std::fabs(from[i]));
      errors[row] += errorOf(from, moments.data() + at, group, quantScale(largest));
    }
  });
  return std::accumulate(errors.begin(), errors.end(), 0.0);
}

Int8Weight quantiseWeightByTensor(const Tensor &w, llvm::ArrayRef<int32_t> matrices) {
  const int64_t n = w.dim(0), k = w.dim(1);
  assert((matrices.empty() || int64_t(matrices.size()) == n) && "one for each row");
  Int8Weight out{Tensor(DType::I8, w.shape()), Tensor(DType::F32, {n, 1})};
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
