// The choice by temperature among a tile's values of a row, which the lanes of a quad hold as wgmma
// leaves them.
//
// Random words depend on no logit, so the noise is there first: a short loop computes it to shared
// memory while the weights are on their way. What is left behind the product is straight code, in
// which each value has few instructions. It tells which values may be the best, within the error
// of that noise, and their keys are computed as the host does.
#pragma once

#include "templates/sample/kept_noise.cuh"

namespace gpt2c {

/// The noise of the tile's rows, BM x 8 Tiles in 16 bits each, by 2 BM threads: a lane has columns
/// col + 8 j + e, e < 2, of rows `h` < 2 of its own.
template <int Tiles, int Threads> struct TileNoise {
  static constexpr int bytes = 2 * Tiles * Threads * 4;
  static_assert(Tiles % 2 == 0);

  unsigned *const words;

  /// A word has columns 8 j and 8 j + 1. Lanes write for their neighbours, too: two words at once,
  /// of even j and of odd j, which have other banks.
  static __device__ __forceinline__ int at(int h, int j, int thread) {
    return (h * Tiles + j) * Threads + (thread ^ (j & 1) << 4);
  }
  __device__ __forceinline__ unsigned word(int h, int j) const {
    return words[at(h, j, (int)threadIdx.x)];
  }
  /// By all lanes of the quad, before which and behind which the warp has to meet.
  ///
  /// Lanes 2 i and 2 i + 1 have halves of the same blocks of random words: each computes every
  /// other block, two of them at a time.
  __device__ __forceinline__ void fill(int h, const SampleRow &how, int col) const {
    const sampling::Draw draw = sampling::drawOf(how);
    const int thread = (int)threadIdx.x, odd = thread & 1;
#pragma unroll 1
    for (int j = odd; j < Tiles; j += 4) {
      uint4 w[2];
#pragma unroll
      for (int i = 0; i < 2; i++)
        w[i].x = (unsigned)(col + (j + 2 * i) * 8) / 4;
      sampling::randomWords(draw.seed, draw.position, w);
#pragma unroll
      for (int i = 0; i < 2; i++)
        if (Tiles % 4 == 0 || j + 2 * i < Tiles)
          *reinterpret_cast<uint2 *>(words + at(h, j + 2 * i, thread & ~1)) =
              make_uint2(sampling::keptNoise(w[i].x, w[i].y), sampling::keptNoise(w[i].z, w[i].w));
    }
  }
};

namespace tile {

/// Of a lane's values of a drawn row, what may be the best of the quad's: the best one, if
/// it reaches a score of `enough`, and others, if the second does.
struct Nominee {
  const SampleRow *how = nullptr; ///< null: the row is not drawn
  float first = 0, second = 0;    ///< scores
  float logit = 0;                ///< of the first
  int id = 0;
};

/// What lies outside is minus infinity.
template <typename Y, typename Noise, int Tiles>
__device__ __forceinline__ Nominee nominate(const SampleRow *how, const float (&acc)[Tiles][4],
                                            int h, int col, const Noise &noise) {
  const float inverse = __double2float_rn(how->inverseTemperature);
  float first = negativeInfinity(), second = first, logit = first;
  int at = 0;
#pragma unroll
  for (int j = 0; j < Tiles; j++) {
    const unsigned word = noise.word(h, j);
#pragma unroll
    for (int e = 0; e < 2; e++) {
      const float v = toFloat(fromFloat<Y>(acc[j][h * 2 + e]));
      const float score = __fmaf_rn(v, inverse, sampling::keptNoiseOf(word, e));
      const bool better = score > first;
      second = fmaxf(second, fminf(first, score));
      logit = better ? v : logit;
      at = better ? j * 8 + e : at;
      first = sampling::largestNumber(first, score);
    }
  }
  return {how, first, second, logit, col + at};
}

/// By the whole warp, the keys of each quad's two rows: in lane `h` of four that of rows[h].
///
/// Exact keys take long, so the best one of either row is computed at once, by different lanes. It
/// is rare that there are others to look at.
template <typename Y, typename Noise, int Tiles>
__device__ __forceinline__ u64 drawnAmong(const Nominee (&rows)[2], const float (&acc)[Tiles][4],
                                          int col, int n, const Noise &noise) {
  const int lane = threadIdx.x % 32, base = lane & ~3;
  const bool odd = lane & 1;
  float enough[2];
  int from[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    float best = rows[h].first;
#pragma unroll
    for (int step = 1; step < 4; step *= 2)
      best = sampling::largestNumber(best, __shfl_xor_sync(fullWarp, best, step));
    enough[h] = sampling::enoughOf(best, sampling::keptError);
    const unsigned reach = __ballot_sync(fullWarp, !(rows[h].first < enough[h]));
    from[h] = base + __ffs((int)(reach >> base & 0xf)) - 1; // one does
  }
  const int source = odd ? from[1] : from[0];
  float logits[2];
  int ids[2];
#pragma unroll
  for (int h = 0; h < 2; h++) {
    logits[h] = __shfl_sync(fullWarp, rows[h].logit, source);
    ids[h] = __shfl_sync(fullWarp, rows[h].id, source);
  }
  const SampleRow *const how = odd ? rows[1].how : rows[0].how;
  u64 key = 0;
  if (how != nullptr)
    key = sampling::drawnKey(how, odd ? logits[1] : logits[0], odd ? ids[1] : ids[0]);
#pragma unroll
  for (int h = 0; h < 2; h++) {
    const bool others =
        rows[h].how != nullptr &&
        (!(rows[h].second < enough[h]) || (!(rows[h].first < enough[h]) && lane != from[h]));
    if (!__any_sync(fullWarp, others))
      continue;
    u64 rest = 0;
    if (others) {
      float v[2 * Tiles];
#pragma unroll
      for (int i = 0; i < 2 * Tiles; i++)
        v[i] = toFloat(fromFloat<Y>(acc[i / 2][h * 2 + i % 2]));
      const float inverse = __double2float_rn(rows[h].how->inverseTemperature);
#pragma unroll 1
      for (int i = 0; i < 2 * Tiles; i++) {
        const int id = col + i / 2 * 8 + i % 2;
        const float kept = sampling::keptNoiseOf(noise.word(h, i / 2), i % 2);
        if (id < n && !(__fmaf_rn(v[i], inverse, kept) < enough[h]))
          rest = max(rest, sampling::drawnKey(rows[h].how, v[i], id));
      }
    }
    __syncwarp();
#pragma unroll
    for (int step = 1; step < 4; step *= 2)
      rest = max(rest, __shfl_xor_sync(fullWarp, rest, step));
    if (odd == (h == 1))
      key = max(key, rest);
  }
  return key;
}

} // namespace tile
} // namespace gpt2c
