// Tokens that may not be chosen, for sample.cuh: their logits become minus infinity.
#pragma once

#include "templates/sample/sample_values.cuh"

namespace gpt2c::tile {

template <typename C> class RowMask : public RowValues<C> {
  using Base = RowValues<C>;

public:
  using Base::Base;

protected:
  using typename Base::Top;

  /// read() of the tokens in `mask`, others being minus infinity in shared memory alone: NaN stays,
  /// so that it is seen. A warp has words that follow each other: a lane loads one of them, and the
  /// lanes go through the tokens of one word together. The words are far away, and those of a turn
  /// on their way while the one before is looked at. `second` is not found.
  __device__ __forceinline__ Top readAllowed(const unsigned *mask) {
    static_assert(C::Held);
    constexpr int warps = C::Threads / 32, own = ceilDiv(Base::share / 32 + 2, warps);
    constexpr int ofTurn = minInt(own, 32), batch = ceilDiv(ofTurn, ceilDiv(ofTurn, 16));
    const int lane = (int)threadIdx.x % 32, end = this->end;
    const int from = this->first / 32 + (int)threadIdx.x / 32 * own, to = ceilDiv(end, 32);
    auto wordOf = [&](int turn) {
      const int word = from + turn * 32 + lane;
      return turn * 32 + lane < own && word < to ? mask[word] : 0;
    };
    Top top;
    unsigned next = wordOf(0);
#pragma unroll 1
    for (int turn = 0; turn * 32 < own; turn++) {
      const unsigned words = next;
      next = wordOf(turn + 1);
#pragma unroll 1
      for (int i = 0; i < ofTurn; i += batch) {
        const int id = (from + turn * 32 + i) * 32 + lane;
        const int left = minInt(ofTurn, own - turn * 32) - i;
        float v[batch];
#pragma unroll
        for (int j = 0; j < batch; j++) {
          const int at = id + j * 32;
          const bool isOwn = j < left && at >= this->first && at < end;
          v[j] = isOwn ? __ldcg(this->logits + at) : negativeInfinity();
        }
#pragma unroll
        for (int j = 0; j < batch; j++) {
          const int at = id + j * 32;
          const bool isAllowed = __shfl_sync(fullWarp, words, i + j) >> lane & 1;
          v[j] = isAllowed || v[j] != v[j] ? __fadd_rn(v[j], 0.0f) : negativeInfinity();
          if (j < left && at >= this->first && at < end)
            this->held[at - this->first] = v[j];
          const bool better = v[j] > top.first;
          top.first = better ? v[j] : top.first;
          top.id = better ? at : top.id;
          top.isNumber &= v[j] == v[j];
        }
      }
    }
    // Behind the last token.
    const int count = end > this->first ? end - this->first : 0;
    for (int i = count + (int)threadIdx.x; i < Base::singles * C::Threads; i += C::Threads)
      this->held[i] = negativeInfinity();
    return top;
  }

  /// The same in the logits themselves. `mask` has a bit for each token. NaN stays, so that it is
  /// seen. A warp has words that follow each other: a lane loads each of its words at once, since
  /// they may be far away, and the lanes go through the tokens of one word together. What other
  /// blocks have is written, too: a barrier comes before anything is read.
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
