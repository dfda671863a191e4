// embedding: Y[b,s,:] = wte[ids[b,s],:] + wpe[position(b,s),:], one block per token. Rows of an
// int8 wte are multiplied by the scales of their groups. position(b,s) is positions[b,s] when
// given, else past[b] + s (past null: 0). Rows are padded on the right and padding may reach past
// the table, so positions are clamped to the table; ids are the caller's promise to be in range.
//
// Config: W (wte): float, __half or int8; P (wpe), Y: float or __half; D (static); Threads;
// Position
//   (false: no wpe); Groups: scales of a row of wte, 0 for one that is not int8; Parts: of a
//   row's statistics (row_statistics.cuh), 0 for none.
// Kernel: ids i32[batch,seq], positions i32[batch,seq] or null, past i32[batch] or null, wteScale
//   f32[vocab,Groups] or null, wte W[vocab,D], wpe P[positionCount,D], y Y[batch,seq,D],
//   statistics f32x2[Parts,batch*seq], each part that of the whole row, which they join to, seq,
//   positionCount.
// Grid: batch * seq; block: Threads.
// Bytes: tokens (D (sizeof(W) + sizeof(P) + sizeof(Y)) + 4 Groups).
#pragma once

#include "templates/device/int8.cuh"

namespace gpt2c::tile {

/// The block's token among all of them, of texts of `seq` tokens and a table of positions.
struct TokenPlace {
  i64 token, tokens;
  int seq, positionCount;
};

template <typename C>
__device__ __forceinline__ void
embedding(const int *ids, const int *positions, const int *past, const float *__restrict__ wteScale,
          const typename C::W *__restrict__ wte, const typename C::P *__restrict__ wpe,
          typename C::Y *y, float2 *statistics, TokenPlace place) {
  const i64 token = place.token, tokens = place.tokens;
  const int seq = place.seq, positionCount = place.positionCount;
  constexpr int group = C::Groups > 0 ? C::D / C::Groups : C::D;
  constexpr int v = vectorWidth(group, minInt(8, floorPowerOfTwo(C::D / C::Threads)));
  waitForPredecessor();
  releaseSuccessor();
  const int id = ids[token];
  int position = 0;
  if constexpr (C::Position) {
    if (positions != nullptr)
      position = positions[token];
    else
      position = (past != nullptr ? past[token / seq] : 0) + (int)(token % seq);
    position = max(0, min(position, positionCount - 1));
  }
  constexpr int chunks = ceilDiv(C::D, C::Threads * v);
  float row[chunks][v];
#pragma unroll
  for (int i = 0; i < chunks; i++) {
    const int col = (i * C::Threads + threadIdx.x) * v;
    if (col >= C::D)
      continue;
    float(&a)[v] = row[i];
    loadFloats<v>(wte + (i64)id * C::D + col, a);
    if constexpr (C::Groups > 0) {
      const float scale = wteScale[(i64)id * C::Groups + col / group];
#pragma unroll
      for (int j = 0; j < v; j++)
        a[j] *= scale;
    }
    if constexpr (C::Position) {
      float b[v];
      loadFloats<v>(wpe + (i64)position * C::D + col, b);
#pragma unroll
      for (int j = 0; j < v; j++)
        a[j] += b[j];
    }
    storeFloats<v>(y + token * C::D + col, a);
  }
  if constexpr (C::Parts > 0) {
    __shared__ float scratch[32];
    auto total = [&](auto value) {
      float sum = 0.0f;
#pragma unroll
      for (int i = 0; i < chunks; i++)
        if ((i * C::Threads + threadIdx.x) * v < C::D)
#pragma unroll
          for (int j = 0; j < v; j++)
            sum += value(row[i][j]);
      return blockReduce<Sum, C::Threads>(sum, scratch);
    };
    const float mean = total([](float a) { return a; }) * (1.0f / C::D);
    const float square = total([=](float a) { return (a - mean) * (a - mean); });
    for (int part = threadIdx.x; part < C::Parts; part += C::Threads)
      statistics[part * tokens + token] = float2{mean, square * (1.0f / C::Parts)};
  }
}

} // namespace gpt2c::tile
