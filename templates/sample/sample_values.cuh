// A row of logits in the blocks that share it, for sample.cuh.
#pragma once

#include "templates/sample/sample_meet.cuh"

namespace gpt2c::tile {

template <typename C> class RowValues : public RowBlocks<C> {
public:
  /// A block has `share` logits that follow each other: groups of four for each thread.
  static constexpr int share = 4 * ceilDiv(ceilDiv(C::Vocab, 4), C::Blocks);
  static constexpr int groups = ceilDiv(share / 4, C::Threads), singles = 4 * groups;

  /// rehearses: the logits are not there yet, and none is read.
  __device__ __forceinline__ RowValues(float *logits, const SampleRow &how, unsigned rank,
                                       float *held, bool rehearses)
      : RowBlocks<C>(rank), logits(logits), how(how), held(held), first((int)rank * share),
        end(rehearses ? first : min(first + share, C::Vocab)), rehearses(rehearses) {}

protected:
  /// Of what a thread reads: the two largest logits, and the turn and the token of the first of
  /// them, of equals the lowest.
  struct Top {
    float first = negativeInfinity(), second = negativeInfinity();
    int at = 0, id = 0;
    bool isNumber = true;
  };
  /// Minus 0 becomes 0.
  __device__ __forceinline__ float load(int id) const {
    return id < end ? __fadd_rn(__ldcg(logits + id), 0.0f) : negativeInfinity();
  }
  __device__ __forceinline__ int idOf(int single) const {
    return first + single * C::Threads + (int)threadIdx.x;
  }
  /// A logit of the block, once read() and a barrier are through.
  __device__ __forceinline__ float value(int at) const {
    return C::Held ? held[at] : load(first + at);
  }
  /// Reads the block's logits, in turns of one a thread. A batch is on its way while the one before
  /// is looked at.
  __device__ __forceinline__ Top read() {
    constexpr int batch = ceilDiv(singles, ceilDiv(singles, 25));
    Top top;
    float next[batch] = {};
#pragma unroll 1
    for (int i = -batch; i < singles; i += batch) {
      float v[batch];
      const float *const from = logits + idOf(i + batch);
      const int left = end - idOf(i + batch);
#pragma unroll
      for (int j = 0; j < batch; j++) {
        v[j] = next[j];
        next[j] = left > j * C::Threads ? __ldcg(from + j * C::Threads) : negativeInfinity();
      }
      if (i < 0)
        continue;
#pragma unroll
      for (int j = 0; j < batch; j++) {
        v[j] = __fadd_rn(v[j], 0.0f);
        if (C::Held && (singles % batch == 0 || i + j < singles))
          held[(i + j) * C::Threads + (int)threadIdx.x] = v[j];
        const bool better = v[j] > top.first;
        top.second = fmaxf(top.second, better ? top.first : v[j]);
        top.first = better ? v[j] : top.first;
        top.at = better ? i + j : top.at;
        top.isNumber &= v[j] == v[j];
      }
    }
    top.id = idOf(top.at);
    return top;
  }
  /// The order of the largest logit, and whether there is a NaN.
  __device__ __forceinline__ Tally survey() {
    const Top top = read();
    return this->template meet<LargestOf>({sampling::orderOf(top.first), !top.isNumber});
  }
  /// `body(id, v)` of four logits at a time; minus infinity stands for what is none. A loop: code
  /// that runs once misses the instruction cache: it costs more than code that runs again.
  template <typename Body> __device__ __forceinline__ void forGroups(Body body) const {
#pragma unroll 1
    for (int i = 0; i < groups; i++) {
      const int at = 4 * (i * C::Threads + (int)threadIdx.x);
      float v[4];
      if constexpr (C::Held) {
        const float4 four = *reinterpret_cast<const float4 *>(held + at);
        v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
      } else {
#pragma unroll
        for (int j = 0; j < 4; j++)
          v[j] = load(first + at + j);
      }
      body(first + at, v);
    }
  }

  float *const logits;
  const SampleRow &how;
  float *const held; ///< [singles * Threads]
  const int first, end;
  const bool rehearses;
};

} // namespace gpt2c::tile
