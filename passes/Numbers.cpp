#include "passes/Numbers.h"

#include "ir/Function.h"

#include <atomic>
#include <bit>
#include <cmath>
#include <mutex>

namespace gpt2c {

/// Magnitudes of finite floats are in the order of their bits.
static NumberCounts countSingle(const float *x, int64_t n) {
  constexpr uint32_t infinity = 0x7f800000;
  NumberCounts c;
  uint32_t largest = 0, notFinite = 0;
  constexpr int64_t block = 1 << 20; // so that 32 bits hold the counts
  for (int64_t begin = 0; begin < n; begin += block) {
    const int64_t end = std::min(n, begin + block);
    notFinite = 0;
    for (int64_t i = begin; i < end; ++i) {
      const uint32_t bits = std::bit_cast<uint32_t>(x[i]) & 0x7fffffff;
      const bool finite = bits < infinity;
      notFinite += !finite;
      largest = finite && bits > largest ? bits : largest;
    }
    for (int64_t i = begin; i < end && notFinite; ++i) {
      c.nan += std::isnan(x[i]);
      c.infinite += std::isinf(x[i]);
    }
  }
  c.largest = std::bit_cast<float>(largest);
  return c;
}

static NumberCounts countAny(const Tensor &t, int64_t begin, int64_t end) {
  NumberCounts c;
  for (int64_t i = begin; i < end; ++i) {
    const double v = t.asDouble(i);
    c.nan += std::isnan(v);
    c.infinite += std::isinf(v);
    if (!std::isfinite(v))
      continue;
    c.largest = std::max(c.largest, std::fabs(v));
  }
  return c;
}

NumberCounts countNumbers(const Tensor &t) {
  NumberCounts all;
  std::mutex mutex;
  forRanges(t.count(), [&](int64_t begin, int64_t end) {
    NumberCounts c = t.dtype() == DType::F32 ? countSingle(t.data<float>() + begin, end - begin)
                                             : countAny(t, begin, end);
    std::lock_guard<std::mutex> lock(mutex);
    all.nan += c.nan;
    all.infinite += c.infinite;
    all.largest = std::max(all.largest, c.largest);
  });
  return all;
}

bool hasInfinity(const Tensor &narrow) {
  std::atomic<bool> found = false;
  const uint16_t infinity = narrow.dtype() == DType::BF16 ? 0x7f80 : 0x7c00;
  forRanges(narrow.count(), [&](int64_t begin, int64_t end) {
    const uint16_t *bits = static_cast<const uint16_t *>(narrow.raw());
    constexpr int64_t block = 1 << 15; // so that 16 bits hold the count
    for (; begin < end && !found; begin += block) {
      uint16_t infinite = 0;
      for (int64_t i = begin; i < std::min(end, begin + block); ++i)
        infinite += (bits[i] & 0x7fff) == infinity;
      if (infinite > 0)
        found = true;
    }
  });
  return found;
}

int64_t countOverflows(const Tensor &wide, const Tensor &narrow) {
  std::atomic<int64_t> all = 0;
  forRanges(wide.count(), [&](int64_t begin, int64_t end) {
    int64_t count = 0;
    for (int64_t i = begin; i < end; ++i)
      count += std::isinf(narrow.asDouble(i)) && std::isfinite(wide.asDouble(i));
    all += count;
  });
  return all;
}

/// Elements of f16 that are 0 or subnormal.
static int64_t countSmall(const Tensor &narrow) {
  std::atomic<int64_t> all = 0;
  forRanges(narrow.count(), [&](int64_t begin, int64_t end) {
    const uint16_t *bits = static_cast<const uint16_t *>(narrow.raw());
    constexpr int64_t block = 1 << 15; // so that 16 bits hold the count
    for (; begin < end; begin += block) {
      uint16_t small = 0;
      for (int64_t i = begin; i < std::min(end, begin + block); ++i)
        small += (bits[i] & 0x7fff) < 0x400;
      all += small;
    }
  });
  return all;
}

Underflow underflowOf(const Tensor &wide, const Tensor &narrow) {
  Underflow out;
  if (narrow.dtype() != DType::F16 || countSmall(narrow) * 2 <= narrow.count())
    return out;
  double difference = 0, norm = 0;
  for (int64_t i = 0, n = wide.count(); i < n; ++i) {
    const double w = wide.asDouble(i), v = narrow.asDouble(i);
    if (!std::isfinite(w) || !std::isfinite(v))
      continue;
    out.below += w != 0 && std::fabs(v) < 0x1p-14;
    difference += (v - w) * (v - w);
    norm += w * w;
  }
  out.relative = norm > 0 ? std::sqrt(difference / norm) : 0;
  return out;
}

std::string constantName(const Op &constant) {
  if (!constant.result()->name.empty())
    return "'" + constant.result()->name + "'";
  for (const Use &u : constant.result()->uses())
    if (!u.op->locations.empty())
      return "a constant of node '" + u.op->locations.front().str() + "'";
  return "a constant";
}

} // namespace gpt2c
