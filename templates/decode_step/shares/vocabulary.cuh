// The vocabulary of shares/shares.cuh, its logits and the choice.
#pragma once

#include "templates/decode_step/shares/step.cuh"

namespace gpt2c::shares {
#if __CUDA_ARCH__ >= 900

/// The logits of the tiles of 16 rows that are this block's, and the best of them. `step` counts
/// steps since the launch.
template <typename C>
__device__ __forceinline__ void Step<C>::vocabulary(const VocabularyRecord<Words> &record,
                                                    unsigned step) {
  using P = typename L::Logits;
  constexpr int readers = LastChunk<C>::readers;
  const FirstProduct<Words> &product = record.first;
  // All of x to all blocks of the cluster, in vectors of 16 bytes.
  for (int i = threadIdx.x; i < place.columns / 8 * ranks; i += warps * 32) {
    const int vector = i / ranks, block = i % ranks;
    send(remote(sharedAddress(&shared.whole.x[place.rank * L::slice + vector * 8]), block),
         reinterpret_cast<const uint4 *>(shared.x)[vector],
         remote(shared.arrived[AtWhole].address(), block));
  }
  waitArrival(AtWhole, step);
  this->mark(Shared<C>::layers, Mark::last_x_came);
  const Moments m = moments<C::FinalNorm>(shared.whole.statistics, product);
  float *const logits = record.logits;
  const int tiles = ceilDiv(C::Vocab, tileRows),
            count = roundUp(ceilDiv(tiles - (int)blockIdx.x, (int)gridDim.x), readers);
  u64 best = 1; // less than that of any logit
  // A slot of the ring is always the same warp's: none waits for a slot that another has yet to
  // read.
  if (warp < readers)
#pragma unroll 1
    for (int n = warp; n < count; n += readers) {
      const int row = ((int)blockIdx.x + n * (int)gridDim.x) * tileRows + 2 * g;
      float sums[2], bias[2], scale[2];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int at = min(row + j, C::Vocab - 1);
        sums[j] = C::FinalNorm == NormKind::Layer
                      ? __uint_as_float(persistent::loadWord(product.sums + at))
                      : 0.0f;
        scale[j] = m.scale;
        if constexpr (L::lastRowScales)
          scale[j] *= __uint_as_float(persistent::loadWord(product.scales + at));
        bias[j] = C::FinalBias ? __uint_as_float(persistent::loadWord(product.bias + at)) : 0.0f;
      }
      TileSum sum = {};
#pragma unroll 1
      for (int j = 0; j < P::chunks; j++) {
        const Slot s = slotAt((n - warp) * P::chunks + j * readers + warp);
        waitSlot(s);
        accumulate<P>(sum, shared.ring[s.number], vectorIn(shared.whole.x + j * P::columns),
                      j * P::columns);
        release(s, arrivals);
      }
      const float2 v = rowsOf(sum);
      const float out[2] = {fmaf(v.x - m.mean * sums[0], scale[0], bias[0]),
                            fmaf(v.y - m.mean * sums[1], scale[1], bias[1])};
#pragma unroll
      for (int j = 0; j < 2; j++)
        if constexpr (C::Members > 1) {
          const int token = this->member * C::Vocab + row + j;
          if (t == 0 && row + j < C::Vocab && token < C::Tokens) {
            storeLogit(logits, token, out[j]);
            best = max(best, tile::argmaxKey(out[j], token));
          }
        } else if (t == 0 && row + j < C::Vocab) {
          logits[row + j] = out[j];
          best = max(best, tile::argmaxKey(out[j], row + j));
        }
    }
  best = tile::warpLargest(best);
  if (lane == 0)
    shared.best[warp] = best;
  sync<3, warps>();
  advance(count * P::chunks);
}

/// The step's token: blocks tell each other the best of what they have. A lane waits for one block,
/// as loads that acquire follow each other.
template <typename C>
__device__ __forceinline__ void Step<C>::choose(const StepRecord<Words> &step, unsigned third) {
  static_assert(persistent::choosers <= warps);
  if (warp == 0) {
    const u64 best = tile::warpLargest(lane < warps ? shared.best[lane] : 0);
    if (lane < ranks)
      persistent::contributePair(choiceCopy(step, third, lane) + blockIdx.x, best);
  }
  const u64 best = persistent::largestOfBlocks(choiceCopy(step, third, place.rank), threadIdx.x,
                                               shared.choice, [] { sync<3, warps>(); });
  token = persistent::greedyToken(best);
}

/// The same among members. `use` counts steps.
template <typename C>
__device__ __forceinline__ void Step<C>::chooseOfMembers(const StepRecord<Words> &step,
                                                         unsigned use) {
  static_assert(persistent::choosers <= warps);
  const unsigned half = this->enter(use);
  if (warp == 0) {
    const u64 best = tile::warpLargest(lane < warps ? shared.best[lane] : 0);
    releaseLogits();
    if (lane < ranks)
      this->publish(shared.peers, memberChoices<C>(step, half, lane, this->member) + blockIdx.x,
                    wordOfKey(best, this->bit));
  }
  if (warp < persistent::choosers) {
    u64 key[C::Members][1];
#pragma unroll
    for (int m = 0; m < C::Members; m++)
      key[m][0] = this->missing();
    const u64 *const from = memberChoices<C>(step, half, place.rank, 0) + threadIdx.x;
    this->await(
        key, [&](int m, int) { return from + m * persistent::maxBlocks; },
        [&](int, int) { return threadIdx.x < gridDim.x; }, [](int m, int) { return m; });
    u64 best = 0;
#pragma unroll
    for (int m = 0; m < C::Members; m++)
      best = max(best, this->arrived(key[m][0]) ? key[m][0] : 0);
    best = tile::warpLargest(best);
    if (lane == 0)
      shared.choice[warp] = best;
  }
  acquireLogits();
  sync<3, warps>();
  u64 best = 0;
#pragma unroll
  for (int i = 0; i < persistent::choosers; i++)
    best = max(best, shared.choice[i]);
  token = tokenOfWord(best);
  this->round++;
}
#endif
} // namespace gpt2c::shares
