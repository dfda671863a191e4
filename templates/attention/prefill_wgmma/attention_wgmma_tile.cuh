// The work of attention_prefill_wgmma and attention_pages_wgmma on 64 queries of a head: products,
// weights and sums of a warpgroup, and what the groups of the same queries have together. How it
// goes is in attention_prefill_wgmma.cuh.
//
// Config: X (__half or __nv_bfloat16) of queries, keys and values, Y (X or signed char), Heads,
// KvHeads, KeySplit, Stages, Pairs, Causal, Mask. Pointers are of two-byte elements, whatever X.
#pragma once

#include "templates/attention/parts/attention_store.cuh"
#include "templates/attention/prefill_wgmma/attention_wgmma_keys.cuh"
#include "templates/attention/prefill_wgmma/attention_wgmma_softmax.cuh"

namespace gpt2c::tile {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// Where results go, and what hides keys.
template <typename C, typename Given> struct AttentionWgmmaResult {
  typename C::Y *out;
  float *outScale;
  const Given &given;
  const int *keyMask;
};

/// A warpgroup's share of the block's tile, in phases; `attend` has their order. Tiles: as of
/// AttentionWgmmaKeys.
template <typename C, typename Given, typename Tiles> struct AttentionWgmmaTile {
  using L = AttentionWgmma<C>;
  using X = typename C::X;
  using Y = typename C::Y;
  using RowSums = float2[C::KeySplit][64];

  const AttentionWgmmaResult<C, Given> p;
  RowSums &rowSums; // of shared memory: at the end, maximum and sum of each row
  AttentionWgmmaKeys<C, Tiles> k;

  __half *mine; // this warp's queries, elements of X
  int row0;     // this lane's queries: row0 and row0 + 8
  unsigned q[4][4];
  float o[8][4] = {};
  AttentionWgmmaSoftmax<X> softmax;
  unsigned unread; // kept address of this warp's part of rowSums

  /// Unit u of this warp's row r.
  __device__ __forceinline__ __half *at(int r, int u) const {
    return mine + r * 64 + (u ^ r % 8) * 8;
  }

  __device__ __forceinline__ AttentionWgmmaTile(const AttentionWgmmaResult<C, Given> &p,
                                                const AttentionWgmmaKeys<C, Tiles> &keys,
                                                RowSums &rowSums)
      : p(p), rowSums(rowSums), k(keys) {}

  /// With keys that are located.
  __device__ __forceinline__ void attend() {
    const AttentionWgmmaFirstCopy<C, Tiles> first(k);
    startCopies(first);
    loadQueries(first);
    if (k.count > 0) {
      firstTile();
#pragma unroll 1
      for (int i = 1; i < k.count; i++)
        nextTile(i);
      lastValues();
    }
    finish();
  }

  __device__ __forceinline__ void startCopies(const AttentionWgmmaFirstCopy<C, Tiles> &first) {
    waitForPredecessor();
    // Of several groups, values follow behind the queries, and further stages behind the keys: what
    // is needed first would come later else.
    if (first.valid && (L::apart || k.warp != 1))
      first.start();
    if constexpr (L::apart)
      releaseSuccessor();
    if constexpr (L::apart)
      if (k.lane == 0 && k.warp < 2)
        for (int i = 1; i < min(k.count, C::Stages); i++)
          k.loadPart(k.warp, i);
  }

  __device__ __forceinline__ void loadQueries(const AttentionWgmmaFirstCopy<C, Tiles> &first) {
    row0 = k.q0 + k.warp * 16 + k.lane / 4;
    softmax.factor = k.sizes.base2();
    mine = k.queries + k.warp * 16 * 64;
    k.findPartial();
    unread = keptAddress(&rowSums[k.group][k.warp * 16]);
    k.barriers.queries[k.place.unit].wait(0);
    if (!L::apart && first.valid && k.warp == 1)
      first.start();
    if constexpr (L::keepsQueries)
#pragma unroll
      for (int kk = 0; kk < 4; kk++)
        loadQueryOperand(kk);
  }
  __device__ __forceinline__ void loadQueryOperand(int kk) {
    loadMatrix4(q[kk], at(k.lane % 16, kk * 2 + k.lane / 16));
  }

  /// The tile that has the diagonal of a causal block.
  __device__ __forceinline__ void firstTile() {
    if constexpr (L::apart)
      k.waitForTile(0, 0);
    else
      k.barriers.keys[k.group].wait(0);
    multiplyKeys(0);
    if (const int i = 1 + k.warp / 2; !L::apart && k.lane == 0 && i < C::Stages && i < k.count)
      k.loadPart(k.warp % 2, i);
    if constexpr (L::apart)
      k.append(0, 0);
    wgmmaWait<0>();
    if constexpr (L::apart)
      k.refill(0, -1);
    hide(0, true);
    softmax.weighByLargest();
    softmax.pack();
    if constexpr (!L::apart) {
      releaseSuccessor(); // sooner it would only take room
      k.waitForTile(0, 0);
      k.append(0, 0);
    } else if constexpr (C::Causal) {
      k.waitForTile(1, 0);
      k.append(1, 0);
    }
  }

  /// Scores and weights of tile i while the values of the tile before are multiplied.
  __device__ __forceinline__ void nextTile(int i) {
    k.waitForTile(0, i);
    multiplyKeys(i);
    if constexpr (L::apart)
      k.waitForTile(1, i - 1);
    multiplyValues(i - 1);
    if constexpr (!C::Causal) {
      k.append(0, i);
      if constexpr (L::apart)
        k.append(1, i - 1);
    }
    wgmmaWait<1>();
    const bool hides = (C::Mask && p.keyMask != nullptr) || k.tileOf(i) == k.partial ||
                       (!C::Causal && k.tileOf(i) == k.tiles - 1);
    if (hides)
      hide(i, false);
    const bool fits = softmax.weighByTop();
    beforeWait(softmax.added[0] + softmax.added[1]);
    const bool tooLarge = !__all_sync(fullWarp, fits);
    wgmmaWait<0>();
    if (tooLarge)
      weighAgain(i, hides);
    else
      softmax.takeAdded();
    k.refill(i, i - 1);
    softmax.pack();
  }

  __device__ __forceinline__ void lastValues() {
    if constexpr (L::apart)
      k.waitForTile(1, k.count - 1);
    multiplyValues(k.count - 1);
    if constexpr (L::apart && !C::Causal)
      k.append(1, k.count - 1);
    wgmmaWait<0>();
  }

  __device__ __forceinline__ void multiplyKeys(int i) {
    wgmmaFence();
#pragma unroll
    for (int kk = 0; kk < 4; kk++)
      if constexpr (L::keepsQueries)
        wgmmaRows<X>(softmax.s, q[kk], k.operandAt(0, i, kk * 2), kk > 0);
      else
        wgmma<X>(softmax.s, k.queriesOperand + kk * 2, k.operandAt(0, i, kk * 2), kk > 0);
    wgmmaCommit();
  }
  __device__ __forceinline__ void multiplyValues(int i) {
    wgmmaFence();
#pragma unroll
    for (int kk = 0; kk < 4; kk++) // 16 keys are 16 rows of 128 bytes
      wgmmaAcross<X>(o, softmax.p[kk], k.operandAt(1, i, kk * (16 * 128 / 16)));
    wgmmaCommit();
  }

  /// Scores of keys that are not seen become -infinity. `own`: the tile may have the diagonal.
  __device__ __forceinline__ void hide(int i, bool own) {
    const int t = k.tileOf(i), lane = k.lane, row0 = this->row0, q0 = k.q0;
    const bool old = t < k.cached;
    const int j0 = (old ? t : t - k.cached) * 64; // in the state, or among the new tokens
    const int rest = (old ? k.begin : k.sizes.seq) - j0;
    u64 visible = rest >= 64 ? ~(u64)0 : ((u64)1 << rest) - 1;
    if constexpr (C::Mask)
      if (p.keyMask != nullptr) {
        const int *row = p.keyMask + (i64)k.place.b * k.sizes.maskStride + (old ? 0 : k.begin) + j0;
        const int low = row[min(lane, rest - 1)], high = row[min(lane + 32, rest - 1)];
        visible &=
            (u64)__ballot_sync(fullWarp, high != 0) << 32 | __ballot_sync(fullWarp, low != 0);
      }
    const bool diagonal = C::Causal && own && !old && j0 == q0;
    if (diagonal && visible == ~(u64)0) {
      const int first = j0 + lane % 4 * 2 - row0; // of this lane's keys, as seen from its queries
#pragma unroll
      for (int j = 0; j < 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          if (first > e / 2 * 8 - j * 8 - e % 2)
            softmax.s[j][e] = negativeInfinity();
    } else if (visible != ~(u64)0) {
      const u64 shifted = visible >> lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          if (!(shifted >> (j * 8 + e % 2) & 1) ||
              (diagonal && j0 + j * 8 + lane % 4 * 2 + e % 2 > row0 + e / 2 * 8))
            softmax.s[j][e] = negativeInfinity();
    }
  }

  /// A store that needs `value`: without it the assembler would compute it behind the wait for the
  /// products under way.
  __device__ __forceinline__ void beforeWait(float value) const {
    if (k.lane == 0)
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(unread), "f"(value) : "memory");
  }

  /// The weights of tile i relative to the running maximum, from its scores once more.
  __device__ __forceinline__ void weighAgain(int i, bool hides) {
    scoresAgain(i);
    if (hides)
      hide(i, false);
    softmax.weighByLargest();
#pragma unroll
    for (int d = 0; d < 8; d++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        o[d][e] *= softmax.keep[e / 2];
  }
  /// By each warp for itself.
  __device__ __forceinline__ void scoresAgain(int i) {
    const int lane = k.lane;
    const __half *keys = k.tileAt(0, i);
    softmax.clearScores();
#pragma unroll
    for (int kk = 0; kk < 4; kk++) {
      if constexpr (!L::keepsQueries)
        loadQueryOperand(kk);
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        const int row = j * 8 + lane / 16 * 8 + lane % 8;
        unsigned b[4];
        loadMatrix4(b, keys + row * 64 + ((kk * 2 + lane / 8 % 2) ^ row % 8) * 8);
        Mma<X>::multiply(softmax.s[j], q[kk], b[0], b[1]);
        Mma<X>::multiply(softmax.s[j + 1], q[kk], b[2], b[3]);
      }
    }
    fenceShared();
  }

  /// Merges the groups of the same queries, and stores by the first of them.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int half = 0; half < 2; half++)
      softmax.sum[half] = warpReduce<Sum, 4>(softmax.sum[half]);
    if constexpr (C::KeySplit > 1) {
      const int meeting = 1 + C::KeySplit + k.place.unit, threads = 128 * k.place.groups;
      if (k.place.rank > 0)
        leaveAccumulators();
      asm volatile("bar.sync %0, %1;" ::"r"(meeting), "r"(threads) : "memory");
      if (k.place.rank > 0)
        return;
    }
    merge();
    if constexpr (Operand<Y>::scaled)
      storeHeadQuantised<C::Heads, 64>(o, p.out, p.outScale, k.q0 + k.warp * 16, k.sizes.seq,
                                       k.place.h, k.place.b, p.given);
    else
      store();
    if (k.leader)
      waitForStores();
  }

  /// For the first group, in the ring.
  __device__ __forceinline__ void leaveAccumulators() {
    if (k.leader)
      waitForStores();
    k.barrierOfGroup(); // the ring takes this group's accumulators
    float4 *accumulators = reinterpret_cast<float4 *>(k.ring) + threadIdx.x % 128;
#pragma unroll
    for (int d = 0; d < 8; d++)
      accumulators[d * 128] = float4{o[d][0], o[d][1], o[d][2], o[d][3]};
    if (k.lane % 4 == 0) {
      float2 *rows = &rowSums[k.group][k.warp * 16 + k.lane / 4];
      rows[0] = float2{softmax.top[0], softmax.sum[0]};
      rows[8] = float2{softmax.top[1], softmax.sum[1]};
    }
  }

  __device__ __forceinline__ void merge() {
    constexpr int others = C::KeySplit - 1;
    float share[C::KeySplit][2];
    shares(share);
    const int groups = k.place.groups;
    const float4 *accumulators = reinterpret_cast<const float4 *>(k.ring) + threadIdx.x % 128;
#pragma unroll
    for (int d = 0; d < 8; d++) {
#pragma unroll
      for (int e = 0; e < 4; e++)
        o[d][e] *= share[0][e / 2];
#pragma unroll
      for (int other = 1; other <= others; other++)
        if (other < groups) {
          const float4 v = accumulators[other * (C::Stages * 2 * L::tileHalves / 8) + d * 128];
          o[d][0] = fmaf(v.x, share[other][0], o[d][0]);
          o[d][1] = fmaf(v.y, share[other][0], o[d][1]);
          o[d][2] = fmaf(v.z, share[other][1], o[d][2]);
          o[d][3] = fmaf(v.w, share[other][1], o[d][3]);
        }
    }
  }
  /// What the accumulators of each group count for, the division included.
  __device__ __forceinline__ void shares(float (&share)[C::KeySplit][2]) const {
    constexpr int others = C::KeySplit - 1;
    const int groups = k.place.groups;
    const float2 *const mine = &rowSums[k.group][k.warp * 16 + k.lane / 4];
#pragma unroll
    for (int half = 0; half < 2; half++) {
      float2 w[C::KeySplit];
      w[0] = float2{softmax.top[half], softmax.sum[half]};
      float most = softmax.top[half];
#pragma unroll
      for (int other = 1; other <= others; other++) {
        w[other] = other < groups ? mine[other * 64 + half * 8] : float2{negativeInfinity(), 0.0f};
        most = fmaxf(most, w[other].x);
      }
      const float base = most == negativeInfinity() ? 0.0f : most;
      float total = 0.0f;
#pragma unroll
      for (int g = 0; g <= others; g++) {
        share[g][half] = exp2Approximate(w[g].x - base);
        total = fmaf(w[g].y, share[g][half], total);
      }
      const float inverse = total > 0.0f ? 1.0f / total : 0.0f;
#pragma unroll
      for (int g = 0; g <= others; g++)
        share[g][half] *= inverse;
    }
  }

  /// Through the place of the queries, so that a row leaves as one line.
  __device__ __forceinline__ void store() {
    if constexpr (C::KeySplit == 1)
      k.barrierOfGroup();
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int d = 0; d < 8; d++)
        *reinterpret_cast<unsigned *>(at(k.lane / 4 + half * 8, d) + k.lane % 4 * 2) =
            Mma<X>::pack(o[d][half * 2], o[d][half * 2 + 1]);
    __syncwarp();
    const int first = k.q0 + k.warp * 16; // of this warp's queries
    __half *y =
        reinterpret_cast<__half *>(p.out) + (k.at.firstRow(k) + first) * L::width + k.place.h * 64;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int r = i * 4 + k.lane / 8;
      if (first + r < k.sizes.seq)
        storePack(y + (i64)r * L::width + k.lane % 8 * 8, loadPack<8>(at(r, k.lane % 8)));
    }
  }
};

#endif

} // namespace gpt2c::tile
