// embed as a stage of a persistent kernel: y = wte[id,:] + wpe[past,:]
//
// A unit is one vector of the row, computed by one thread.
//
// Config: W (wte, wpe), Y: float or __half; D; Position (false: no wpe).
// Record: EmbedWord. Units: the vectors of a row.
#pragma once

#include "persistent.cuh"

namespace gpt2c::persistent {

enum EmbedWord { EmbedTokens = FirstOwn, EmbedPositions, EmbedPositionCount, EmbedY };

} // namespace gpt2c::persistent

namespace gpt2c::tile {
#if __CUDA_ARCH__ >= 900

template <typename C, typename B>
__device__ __forceinline__ void embedStage(B &block, const persistent::Record &stage) {
  using namespace persistent;
  using W = typename C::W;
  constexpr int v = vectorWidth(C::D, elementsPer16Bytes<W>());
  const int units = stage.integer(Units);
  int unit = stage.firstUnit() + (int)threadIdx.x * block.blocks;
  for (; unit < units; unit += consumers * block.blocks) {
    const Pack<W, v> token = loadPack<v>(stage.pointer<const W>(EmbedTokens) +
                                         (i64)block.token[0] * C::D + unit * v);
    Pack<W, v> place = {};
    if constexpr (C::Position) {
      const int position = max(0, min(block.token[1], stage.integer(EmbedPositionCount) - 1));
      place = loadPack<v>(stage.pointer<const W>(EmbedPositions) + (i64)position * C::D + unit * v);
    }
#pragma unroll
    for (int j = 0; j < v; j++)
      publish(block.template channel<typename C::Y>(stage, EmbedY) + unit * v + j,
              token.get(j) + (C::Position ? place.get(j) : 0.0f));
  }
}

#endif
} // namespace gpt2c::tile
