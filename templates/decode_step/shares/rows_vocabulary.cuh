// The vocabulary of shares/rows.cuh, its logits and the choices.
#pragma once

#include "templates/decode_step/shares/rows_step.cuh"
#include "templates/decode_step/shares/vocabulary.cuh"

namespace gpt2c::shares {
#if __CUDA_ARCH__ >= 900

/// As vocabulary() of one sequence.
template <typename C>
__device__ __forceinline__ void RowsStep<C>::vocabularyOfRows(const VocabularyRecord<Words> &record,
                                                              int step) {
  using P = typename L::Logits;
  constexpr int readers = LastChunk<C>::readers;
  const FirstProduct<Words> &product = record.first;
  // What had this memory before may be no numbers, which zero weights would not make zeros.
  constexpr int behind = P::operand - C::D;
  if constexpr (behind > 0)
    for (int i = threadIdx.x; i < rows * behind; i += warps * 32)
      shared.whole.x[i / behind][C::D + i % behind] = fromFloat<T>(0.0f);
  const int vectors = place.columns / 8;
  for (int i = threadIdx.x; i < vectors * rows * ranks; i += warps * 32) {
    const int block = i % ranks, row = i / ranks % rows, vector = i / (ranks * rows);
    send(remote(sharedAddress(&shared.whole.x[row][place.rank * L::slice + vector * 8]), block),
         *reinterpret_cast<const uint4 *>(&shared.x[row][vector * 8]),
         remote(shared.arrived[AtWhole].address(), block));
  }
  Base::template sync<3, warps>();
  waitArrival(AtWhole, step);
  this->mark(M::layers, Mark::last_x_came);
  // Of row group q sequences 2 t and the next are 2 q and 2 q + 1.
  constexpr int ofLane = 2 * L::rowGroups;
  auto sequenceOf = [&](int i) { return i / 2 * columnRows + 2 * t + i % 2; };
  Moments m[ofLane];
#pragma unroll
  for (int i = 0; i < ofLane; i++)
    m[i] = Base::template moments<C::FinalNorm>(shared.whole.statistics[sequenceOf(i)], product);
  float *const logits = record.logits;
  const int tiles = ceilDiv(C::Vocab, tileRows),
            count = roundUp(ceilDiv(tiles - (int)blockIdx.x, (int)gridDim.x), readers),
            batch = this->batch();
  u64 best[ofLane]; // less than that of any logit
#pragma unroll
  for (int i = 0; i < ofLane; i++)
    best[i] = 1;
  if (warp < readers)
#pragma unroll 1
    for (int n = warp; n < count; n += readers) {
      const int row = ((int)blockIdx.x + n * (int)gridDim.x) * tileRows + 2 * g;
      float sums[2], bias[2], scale[2];
#pragma unroll
      for (int j = 0; j < 2; j++) {
        const int at = min(row + j, C::Vocab - 1);
        auto one = [&](const float *from) {
          return __uint_as_float(persistent::loadWord(from + at));
        };
        sums[j] = 0.0f, bias[j] = 0.0f, scale[j] = 1.0f;
        if constexpr (C::FinalNorm == NormKind::Layer)
          sums[j] = one(product.sums);
        if constexpr (C::FinalBias)
          bias[j] = one(product.bias);
        if constexpr (L::lastRowScales)
          scale[j] = one(product.scales);
      }
      TileSum sum = {};
#pragma unroll 1
      for (int j = 0; j < P::chunks; j++) {
        const auto s = slotAt((n - warp) * P::chunks + j * readers + warp);
        waitSlot(s);
        Base::template accumulate<P>(sum, shared.ring[s.number],
                                     rowsIn<L::rowGroups>(shared.whole.x, g, j * P::columns),
                                     j * P::columns);
        release(s, arrivals);
      }
#pragma unroll
      for (int j = 0; j < 2; j++)
#pragma unroll
        for (int i = 0; i < ofLane; i++) {
          const float v = fmaf(total<L::rowGroups>(sum, i / 2, 2 * j + i % 2) - m[i].mean * sums[j],
                               m[i].scale * scale[j], bias[j]);
          const int sequence = sequenceOf(i);
          if constexpr (C::Members > 1) {
            const int token = this->member * C::Vocab + row + j;
            if (row + j < C::Vocab && token < C::Tokens) {
              if (sequence < batch)
                Base::storeLogit(logits, (i64)sequence * C::Tokens + token, v);
              best[i] = max(best[i], tile::argmaxKey(v, token));
            }
          } else if (row + j < C::Vocab) {
            if (sequence < batch)
              logits[(i64)sequence * C::Vocab + row + j] = v;
            best[i] = max(best[i], tile::argmaxKey(v, row + j));
          }
        }
    }
#pragma unroll
  for (int i = 0; i < ofLane; i++) {
#pragma unroll
    for (int lanes = 4; lanes < 32; lanes *= 2)
      best[i] = max(best[i], __shfl_xor_sync(fullWarp, best[i], lanes));
    if (g == 0)
      shared.best[sequenceOf(i)][warp] = best[i];
  }
  Base::template sync<3, warps>();
  advance(count * P::chunks);
}

/// The tokens of the step: a warp waits for those of a sequence.
template <typename C>
__device__ __forceinline__ void RowsStep<C>::chooseRows(const StepRecord<Words> &step,
                                                        unsigned third) {
#pragma unroll 1
  for (int row = warp; row < rows; row += warps) {
    const u64 own = tile::warpLargest(lane < warps ? shared.best[row][lane] : 0);
    if (lane == 0)
      persistent::contributePair(choiceCopy<rows>(step, third, row) + blockIdx.x, own);
  }
#pragma unroll 1
  for (int row = warp; row < rows; row += warps) {
    const u64 best = persistent::largestOfRow(choiceCopy<rows>(step, third, row), gridDim.x);
    if (lane == 0)
      shared.id[row] = persistent::greedyToken(best);
  }
  Base::template sync<3, warps>();
}

/// The same among members. `use` counts steps.
template <typename C>
__device__ __forceinline__ void RowsStep<C>::chooseRowsOfMembers(const StepRecord<Words> &step,
                                                                 unsigned use) {
  static_assert(rows <= warps && rows == persistent::clusterBlocks);
  const unsigned half = this->enter(use);
  if (warp < rows) {
    const u64 own = tile::warpLargest(lane < warps ? shared.best[warp][lane] : 0);
    if (lane == 0) {
      Base::releaseLogits();
      this->publish(shared.peers, memberChoices<C>(step, half, warp, this->member) + blockIdx.x,
                    wordOfKey(own, this->bit));
    }
    __syncwarp();
    constexpr int each = ceilDiv(persistent::maxBlocks, 32);
    u64 best = 0;
#pragma unroll 1
    for (int m = 0; m < C::Members; m++) {
      u64 key[1][each];
#pragma unroll
      for (int i = 0; i < each; i++)
        key[0][i] = this->missing();
      const u64 *const from = memberChoices<C>(step, half, warp, m) + lane;
      this->await(
          key, [&](int, int i) { return from + i * 32; },
          [&](int, int i) { return i * 32 + lane < (int)gridDim.x; }, [&](int, int) { return m; });
#pragma unroll
      for (int i = 0; i < each; i++)
        best = max(best, this->arrived(key[0][i]) ? key[0][i] : 0);
    }
    best = tile::warpLargest(best);
    Base::acquireLogits();
    if (lane == 0)
      shared.id[warp] = tokenOfWord(best);
  }
  Base::template sync<3, warps>();
  this->round++;
}
#endif
} // namespace gpt2c::shares
