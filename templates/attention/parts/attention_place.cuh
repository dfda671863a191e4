// How tiles of queries are dealt out to the blocks and warpgroups of a prefill's attention.
#pragma once

#include "templates/device/common.cuh"

namespace gpt2c::tile {

/// Which queries of which head and sequence a warpgroup computes: it is number `rank` of `groups`.
struct AttentionPlace {
  int tileQ, h, b, unit, rank, groups;
};

/// Causal tiles grow with their index: the longest start first. Where L2 does not hold the keys and
/// values of all, 16 KB for a block, those of a head that do follow each other, `backwards` from
/// the last sequence on.
__device__ __forceinline__ AttentionPlace attentionPlace(int backwards, int group, int groups) {
  const int heads = gridDim.x, tiles = gridDim.z, each = heads * gridDim.y;
  if (each * tiles <= 2048)
    return {tiles - 1 - (int)blockIdx.z, (int)blockIdx.x, (int)blockIdx.y, 0, group, groups};
  const int block = (blockIdx.z * gridDim.y + blockIdx.y) * heads + blockIdx.x;
  const int at = backwards ? each - 1 - block / tiles : block / tiles;
  return {tiles - 1 - block % tiles, at % heads, at / heads, 0, group, groups};
}

/// With fewer blocks of a head than tiles of queries: block z has tile z from the last one on and,
/// where there is one, tile 2 gridDim.z - 1 - z, so that long ones go with short ones. Its four
/// groups are shared out so that the largest number of key tiles of a group is as small as it can
/// be. keys(tileQ): tiles of keys.
template <typename Keys>
__device__ __forceinline__ AttentionPlace attentionPair(int tiles, int group, Keys &&keys) {
  const int h = blockIdx.x, b = blockIdx.y, z = blockIdx.z;
  const int first = tiles - 1 - z, second = tiles - 2 * (int)gridDim.z + z;
  if (second < 0)
    return {first, h, b, 0, group, 4};
  const int a = keys(first), c = keys(second);
  const int own = max((a + 2) / 3, c) < max((a + 1) / 2, (c + 1) / 2) ? 3 : 2;
  return group < own ? AttentionPlace{first, h, b, 0, group, own}
                     : AttentionPlace{second, h, b, 1, group - own, 4 - own};
}

} // namespace gpt2c::tile
