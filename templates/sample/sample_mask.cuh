// Tokens that may not be chosen, for sample.cuh: their logits become minus infinity.
#pragma once

#include "templates/sample/sample_values.cuh"

namespace gpt2c::tile {

template <typename C> class RowMask : public RowValues<C> {
  using Base = RowValues<C>;

public:
  using Base::Base;

protected:
  /// `mask` has a bit for each token. NaN stays, so that it is seen. A warp has words that follow
  /// each other: a lane loads each of its words at once, since they may be far away, and the lanes
  /// go through the tokens of one word together. What other blocks have is written, too: a barrier
  /// comes before anything is read.
  __device__ __forceinline__ void forbid(const unsigned *mask) {
    constexpr int words = ceilDiv(C::Vocab, 32), warps = C::Blocks * (C::Threads / 32);
    constexpr int turns = ceilDiv(words, 32 * warps);
    const int lane = (int)threadIdx.x % 32;
    const int warp = (int)this->rank * (C::Threads / 32) + (int)threadIdx.x / 32;
    unsigned mine[turns];
#pragma unroll
    for (int t = 0; t < turns; t++) {
      const int word = (t * warps + warp) * 32 + lane;
      mine[t] = word < words ? mask[word] : 0;
    }
#pragma unroll
    for (int t = 0; t < turns; t++) {
#pragma unroll 4
      for (int i = 0; i < 32; i++) {
        const unsigned word = __shfl_sync(fullWarp, mine[t], i);
        const int id = ((t * warps + warp) * 32 + i) * 32 + lane;
        if (id >= C::Vocab || (word >> lane & 1))
          continue;
        const float v = __ldcg(this->logits + id);
        if (v == v)
          __stcg(this->logits + id, negativeInfinity());
      }
    }
  }
};

} // namespace gpt2c::tile
