// How a row's token is chosen, as the runtime writes it, and the choice by temperature alone as a
// maximum of keys: what computes logits computes them, and no logit needs to be in memory.
#pragma once

#include "templates/sample/sample_math.cuh"

namespace gpt2c {

/// As the runtime writes them.
struct SampleRow {
  enum { Given, Sampled, Largest };
  double inverseTemperature, topP, repetition, frequency, presence;
  float logMinP;
  int topK;
  u64 seed;
  i64 position;
  int mode, firstAdjustment, adjustments, report;
};
static_assert(sizeof(SampleRow) == 80);
struct Adjustment {
  int id, count;
  double bias;
};
static_assert(sizeof(Adjustment) == 16);
struct LogprobReport {
  double logprob;
  int count, unused;
  struct {
    int token, unused;
    double logprob;
  } best[20];
};
static_assert(sizeof(LogprobReport) == 336);

namespace sampling {

/// The word of `id` among those of its block of four.
__device__ __forceinline__ unsigned wordOf(const uint4 &words, int id) {
  const int at = id % 4;
  return at == 0 ? words.x : at == 1 ? words.y : at == 2 ? words.z : words.w;
}
__device__ __forceinline__ unsigned randomWord(u64 seed, i64 position, int id) {
  return wordOf(randomWords(seed, position, (unsigned)id / 4), id);
}

/// The key of a logit and what gumbelOf() makes of its random word.
__device__ __forceinline__ u64 keyOf(float logit, double inverse, double gumbel, int id) {
  if (!(logit < __int_as_float(0x7f800000)))
    return noNumberKey; // NaN or infinity
  const double score = __dadd_rn(__dmul_rn((double)logit, inverse), gumbel);
  return logit == negativeInfinity() ? 0 : scoreKey(score, id);
}

/// What a row that is chosen by temperature alone needs.
struct Draw {
  double inverse;
  u64 seed;
  i64 position;

  __device__ __forceinline__ double gumbel(int id) const {
    return gumbelOf(randomWord(seed, position, id));
  }
  __device__ __forceinline__ u64 key(float logit, int id) const {
    return keyOf(logit, inverse, gumbel(id), id);
  }
};
__device__ __forceinline__ Draw drawOf(const SampleRow &row) {
  return {row.inverseTemperature, row.seed, row.position};
}

/// How a row is drawn by temperature alone, of a call's `choices`, SampleRow[rows]; null: it is
/// greedy, as all are without choices.
__device__ __forceinline__ const SampleRow *drawnRow(const int *choices, i64 row) {
  const SampleRow *const rows = reinterpret_cast<const SampleRow *>(choices);
  return rows != nullptr && rows[row].mode == SampleRow::Sampled ? rows + row : nullptr;
}
/// draw().key(), as a function of its own: it has 300 instructions.
static __device__ __noinline__ u64 drawnKey(const SampleRow *row, float logit, int id) {
  return drawOf(*row).key(logit, id);
}

/// Scores in single precision, whose error is bounded: of a logit l, near(l, ...) is within
/// gumbelError + (|near| + 23) / 2^22 of l * inverse + gumbelOf(word).
__device__ __forceinline__ float nearScore(float logit, float inverse, unsigned word) {
  return __fmaf_rn(logit, inverse, gumbelNear(word));
}
/// What is below cannot win against a score that is near `best`, where all are within `error` +
/// (|near| + 59) / 2^22 of what they stand for. No number where `best` is none, so nothing is below
/// then.
__device__ __forceinline__ float enoughOf(float best, float error = gumbelError) {
  return best - 2 * error - __fmaf_rn(fabsf(best), 2.0f, 128.0f) * (1.0f / (1 << 21));
}
} // namespace sampling
} // namespace gpt2c
