// embed as a stage of a persistent kernel: y[b,:] = wte[id_b,:] + wpe[past_b,:]
//
// A unit is 16 bytes of a row of y, computed by one thread. Rows of an int8 wte are multiplied by
// the scales of their groups.
//
// Config: EmbedStageConfig. Record: EmbedRecord. Units: those of all rows.
#pragma once

#include "templates/decode_step/stages/stages.cuh"
#include "templates/device/int8.cuh"

namespace gpt2c::tile {
#if __CUDA_ARCH__ >= 900

template <typename C, typename B>
__device__ __forceinline__ void embedStage(B &block, const persistent::Record &record) {
  using namespace persistent;
  const EmbedRecord<Words> &embed = record.as<EmbedRecord>();
  using Y = typename C::Y;
  constexpr int v = elementsPer16Bytes<Y>(), each = C::D / v;
  const int units = embed.stage.units.count();
  int unit = embed.stage.units.first() + (int)threadIdx.x * block.blocks;
  for (; unit < units; unit += Layout<typename B::Config>::consumers * block.blocks) {
    const int row = unit / each, at = unit % each * v, id = block.ids[row];
    float a[v];
    loadFloats<v>(embed.tokens.as<const typename C::W>() + (i64)id * C::D + at, a);
    if constexpr (C::Groups > 0) {
      const float scale = embed.scales[(i64)id * C::Groups + at / (C::D / C::Groups)];
#pragma unroll
      for (int j = 0; j < v; j++)
        a[j] *= scale;
    }
    if constexpr (C::Position) {
      const int position = max(0, min(block.past[row], embed.positionCount - 1));
      float b[v];
      loadFloats<v>(embed.positions.as<const Y>() + (i64)position * C::D + at, b);
#pragma unroll
      for (int j = 0; j < v; j++)
        a[j] += b[j];
    }
    uint4 group;
    unsigned *words = reinterpret_cast<unsigned *>(&group);
#pragma unroll
    for (int i = 0; i < 4; i++)
      words[i] = v == 8 ? channelWord(a[2 * i % v], a[(2 * i + 1) % v]) : channelWord(a[i]);
    block.destination(embed.y).store(unit * 16, v == 8 ? exchanged(group) : group, 0, 1);
  }
}

#endif
} // namespace gpt2c::tile
