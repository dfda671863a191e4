// append_attention for many queries (prefill), fp16, heads of 64, sm_90a alone. Meaning and mask as
// in attention_decode.cuh with Append.
//
// A block computes 64 queries of one head with KeySplit warpgroups, each of which takes every
// KeySplit-th tile of 64 keys, from the last one on; their sums meet in shared memory, in order. Four
// groups may have two times 64 queries between them (attentionPair). A warpgroup has the copy engine
// fill a ring of Stages tiles of its own, from the new tokens and then from the KV state, so that a
// tile has keys of one kind. Weights are in registers, and queries where there is room for them.
//
// While the weights of a tile are computed, O += P V of the tile before is under way. They are
// relative to the largest score of the first tile for as long as half precision has room for them,
// which their sums tell: a tile needs no maximum then, and O and the sums stay as they are. Where a
// weight may be too large, the warp computes the tile's scores again and takes the largest so far.
//
// One group: keys and values come apart, a product waits for its own operand, and as soon as keys are
// multiplied others take their place. Several groups, which have some tiles each, start sooner with
// fewer copies and barriers to set up; the first keys alone come before their values.
//
// Key tiles that no query sees are skipped; only tiles that some query sees in part are masked: the
// first of a causal row, the last of the state, and all where there is a key mask. The tile of the
// block's own tokens goes to the state from shared memory.
//
// Config: Y (__half or signed char: quantised, a scale for each query and head or one that is given),
// Heads, KeySplit, Stages, Causal, Mask.
// Kernel: qkvMap f16[batch,seq,3*Heads*64] and kvMap
// f16[layers*2*batchMax*Heads,context,64] in boxes of 64 rows, kv the state itself, out
// Y[batch,seq,Heads,64], outScale f32[batch,seq,Heads] (null unless it is written), past i32[batch] or
// null, keyMask i32[batch,maskStride] or null, layer, batchMax, context, seq, maskStride, scale,
// backwards (0 or 1: attentionPlace).
// Grid: (Heads, batch, ceil(seq / 64), with four groups at least half of it); block:
// AttentionWgmma<C>::threads; dynamic shared: AttentionWgmma<C>::sharedBytes. Bytes: 2 (past + 2 seq)
// 64 Heads + ...; flops: 4 * 64 Heads (visible pairs) per sequence.
#pragma once

#include "templates/attention/parts/attention_place.cuh"
#include "templates/attention/parts/attention_store.cuh"
#include "templates/attention/kv_append/kv_append.cuh"
#include "templates/device/tma.cuh"
#include "templates/device/wgmma.cuh"

namespace gpt2c {

template <typename C> struct AttentionWgmma {
  static constexpr int threads = 128 * C::KeySplit;
  static constexpr int blocks = 4 / C::KeySplit; // that share a multiprocessor
  static constexpr bool apart = C::KeySplit == 1; // keys and values are waited for one by one
  static constexpr bool keepsQueries = !apart && sizeof(typename C::Y) == 2; // in registers
  static constexpr int units = C::KeySplit == 4 ? 2 : 1; // tiles of queries that a block may have
  static constexpr int tileHalves = 64 * 64;
  static constexpr int sharedBytes =
      (units + 2 * C::Stages * C::KeySplit) * tileHalves * 2 + 1024; // tiles begin at 1 KiB
  static_assert(C::Stages >= 2 && C::Stages <= 3 && C::KeySplit <= 4);
};

namespace tile {

/// ceil(n / d) for n >= 0 and d of 1 to 4. A division takes longer.
__device__ __forceinline__ int dividedUp(int n, int d) {
  const unsigned up = n + d - 1;
  return d == 4 ? up / 4 : d == 3 ? up / 3 : d == 2 ? up / 2 : up;
}

template <typename C, typename Given>
__device__ __forceinline__ void
attentionPrefillWgmma(const TensorMap &qkvMap, const TensorMap &kvMap, __half *kv,
                      typename C::Y *out, float *outScale, const Given &given, const int *past,
                      const int *keyMask, int layer, int batchMax, int context, int seq,
                      int maskStride, float scale, int backwards, void *dynamicShared) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using L = AttentionWgmma<C>;
  constexpr int width = C::Heads * 64, parts = L::apart ? 2 : 1;
  struct Barriers {
    Barrier full[C::KeySplit][parts][C::Stages], queries[L::units];
    Barrier keys[C::KeySplit]; // of a group's first tile
  };
  __shared__ Barriers barriers;
  __shared__ float2 weights[C::KeySplit][64]; // at the end top and sum of each row
  __half *shared = alignedSlabs(dynamicShared);
  // The compiler has to see that a warp agrees on its role, or it waits after every wgmma.
  const int group = __shfl_sync(fullWarp, threadIdx.x / 128, 0);
  const int warp = __shfl_sync(fullWarp, threadIdx.x / 32 % 4, 0), lane = threadIdx.x % 32;
  const bool leader = threadIdx.x % 128 == 0;
  AttentionPlace place = {};
  if constexpr (L::units == 1)
    place = attentionPlace(backwards, group, C::KeySplit);
  else
    place.b = blockIdx.y;
  // The kernel right before computes qkv and nothing else of this.
  const int held = past != nullptr ? past[place.b] : 0;
  // Lanes of a warp would take turns.
  if (lane == 0) {
    constexpr int count = sizeof(Barriers) / sizeof(Barrier);
    for (int i = threadIdx.x / 32; i < count; i += L::threads / 32)
      reinterpret_cast<Barrier *>(&barriers)[i].init(1);
    fenceBarrierInit();
  }
  if (threadIdx.x == L::threads - 32)
    prefetchMap(qkvMap);
  __syncthreads();
  const int begin = __shfl_sync(fullWarp, held, 0);
  const int cached = (begin + 63) / 64, tilesQ = (seq + 63) / 64;
  if constexpr (L::units == 2)
    place = attentionPair(tilesQ, group,
                          [&](int tileQ) { return cached + (C::Causal ? tileQ + 1 : tilesQ); });
  const int tileQ = place.tileQ, h = place.h, b = place.b;
  __half *queries = shared + place.unit * L::tileHalves;
  __half *ring = shared + (L::units + group * C::Stages * 2) * L::tileHalves;
  const int q0 = tileQ * 64;
  const int tiles = cached + (C::Causal ? tileQ + 1 : tilesQ);
  // Tiles of this group, from the last one on: the block's own tokens are the last of causal ones.
  const int count = dividedUp(tiles - place.rank, place.groups);
  auto tileOf = [&](int i) { return tiles - 1 - place.rank - i * place.groups; };
  const int plane = (layer * 2 * batchMax + b) * C::Heads + h, planesOfPart = batchMax * C::Heads;
  const unsigned ringAddress = keptAddress(ring);
  const unsigned ringOperand = (unsigned)swizzledOperand(ringAddress);
  auto tileAt = [&](int part, unsigned i) {
    return ring + (i % C::Stages * 2 + part) * L::tileHalves;
  };
  // Addresses never carry into the upper half of an operand.
  auto operandAt = [&](int part, unsigned i, int unit) {
    return swizzledOperand(0u) >> 32 << 32 |
           (ringOperand + (i % C::Stages * 2 + part) * (L::tileHalves * 2 / 16) + unit);
  };
  const u64 queriesOperand = swizzledOperand(keptAddress(queries));
  const unsigned full = keptAddress(barriers.full[group]);
  // What follows takes part 0, keys, or 1, values, of tile i; part 0 is both unless they are apart.
  constexpr int together = L::apart ? 1 : 2;
  auto barrierOf = [&](int part, unsigned i) -> Barrier & {
    return barriers.full[group][L::apart ? part : 0][i % C::Stages];
  };
  auto copy = [&](int part, unsigned i) {
    const int t = tileOf(i);
    if (t < cached)
      copyBox(tileAt(part, i), kvMap, plane + part * planesOfPart, t * 64, 0, barrierOf(part, i));
    else
      copyBox(tileAt(part, i), qkvMap, b, (t - cached) * 64, (part + 1) * width + h * 64,
              barrierOf(part, i));
  };
  // To their place in the ring, by the leader.
  auto load = [&](int part, unsigned i) {
    waitForStores(); // of what was here
    barrierOf(part, i).expect(together * L::tileHalves * 2);
#pragma unroll
    for (int j = part; j < part + together; j++)
      copy(j, i);
  };
  // A part of a tile that nothing was in the place of, by a thread for each part.
  auto loadPart = [&](int part, unsigned i) {
    if (L::apart || part == 0)
      barrierOf(part, i).expect(together * L::tileHalves * 2);
    copy(part, i);
  };
  // A warp each of a group copies its first keys, values and, in the first group, queries. Where
  // and what is known, and expected, before the wait: behind it nothing would be on its way
  // meanwhile.
  const bool ofQueries = warp == 2;
  const bool copies = lane == 0 && (ofQueries ? place.rank == 0 : warp < 2 && count > 0);
  const bool old = !ofQueries && tileOf(0) < cached;
  const TensorMap *const map = old ? &kvMap : &qkvMap;
  const int matrix = old ? plane + warp * planesOfPart : b,
            row = ofQueries ? q0 : (old ? tileOf(0) : tileOf(0) - cached) * 64,
            column = old ? 0 : (ofQueries ? 0 : (warp + 1) * width) + h * 64;
  __half *const first = ofQueries ? queries : tileAt(warp, 0);
  Barrier &firstBarrier = ofQueries                ? barriers.queries[place.unit]
                          : !L::apart && warp == 0 ? barriers.keys[group]
                                                   : barrierOf(warp, 0);
  if (copies)
    firstBarrier.expect(L::tileHalves * 2);
  asm volatile("" ::"l"(map), "r"(matrix), "r"(row), "r"(column), "r"(sharedAddress(first)),
               "r"(firstBarrier.address()), "r"(count), "r"(plane), "r"(full), "r"((int)copies));
  waitForPredecessor();
  // Of several groups, values follow behind the queries, and further stages behind the keys: what
  // is needed first would come later else.
  if (copies && (L::apart || warp != 1))
    copyBox(first, *map, matrix, row, column, firstBarrier);
  if constexpr (L::apart)
    releaseSuccessor();
  if constexpr (L::apart)
    if (lane == 0 && warp < 2)
      for (int i = 1; i < min(count, C::Stages); i++)
        loadPart(warp, i);

  const int row0 = q0 + warp * 16 + lane / 4; // this lane's queries: row0 and row0 + 8
  const float factor = scale * 1.4426950408889634f;
  __half *mine = queries + warp * 16 * 64;
  // Unit u of this warp's row r.
  auto at = [&](int r, int u) { return mine + r * 64 + (u ^ r % 8) * 8; };

  float o[8][4] = {}, s[8][4], keep[2];
  float top[2] = {negativeInfinity(), negativeInfinity()}, sum[2] = {};
  unsigned q[4][4], p[4][4];
  auto barrierOfGroup = [&] {
    if constexpr (C::KeySplit == 1)
      __syncthreads();
    else
      asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
  };
  // The last tile of the state, if it is not full.
  const int partial = begin % 64 != 0 ? cached - 1 : -1;
  auto arrived = [&](int part, unsigned i) {
    const unsigned which = (L::apart ? part * C::Stages : 0) + i % C::Stages;
    Barrier::waitAt(full + which * (int)sizeof(Barrier), i / C::Stages % 2);
    if (part + together == 2 && tileOf(i) == partial) {
      // What the state has behind its last token may be no number.
      uint4 *values = reinterpret_cast<uint4 *>(tileAt(1, i));
#pragma unroll 1
      for (int u = begin % 64 * 8 + threadIdx.x % 128; u < 64 * 8; u += 128)
        values[u] = uint4{};
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      barrierOfGroup();
    }
  };
  // Tile `keys` of the keys and `values`, no later, of the values have been multiplied by this warp;
  // when they have been by all, others take their place.
  auto replace = [&](int keys, int values) {
    if (values + C::Stages >= count)
      return;
    barrierOfGroup();
    if (leader) {
      if (L::apart && keys + C::Stages < count)
        load(0, keys + C::Stages);
      if (values >= 0)
        load(L::apart ? 1 : 0, values + C::Stages);
    }
  };
  // To the state if they are the block's own; called while tensor cores have work. A box is whole, but
  // for what it has behind the context, which is dropped.
  auto append = [&](int part, int i) {
    if (tileOf(i) != cached + tileQ)
      return;
    const __half *tile = tileAt(part, i);
    if (q0 + 64 <= seq) {
      if (leader) {
#pragma unroll
        for (int j = 0; j < together; j++)
          storeBox(kvMap, plane + (part + j) * planesOfPart, begin + q0, 0,
                   tile + j * L::tileHalves);
        commitStores();
      }
      return;
    }
    const int unit = threadIdx.x % 8, rows = min(seq, context - begin) - q0;
    __half *to = kv + kvOffset(layer, part, b, h, batchMax, C::Heads, context, 64) +
                 (i64)(begin + q0) * 64 + unit * 8;
#pragma unroll 1
    for (int row = threadIdx.x % 128 / 8; row < rows; row += 16) {
      const int from = row * 64 + (unit ^ row % 8) * 8;
      storePack(to + row * 64, loadPack<8>(tile + from));
      if constexpr (!L::apart)
        storePack(to + (i64)planesOfPart * context * 64 + row * 64,
                  loadPack<8>(tile + L::tileHalves + from));
    }
  };
  auto multiplyKeys = [&](int i) {
    wgmmaFence();
#pragma unroll
    for (int kk = 0; kk < 4; kk++)
      if constexpr (L::keepsQueries)
        wgmmaRows(s, q[kk], operandAt(0, i, kk * 2), kk > 0);
      else
        wgmma(s, queriesOperand + kk * 2, operandAt(0, i, kk * 2), kk > 0);
    wgmmaCommit();
  };
  auto multiplyValues = [&](int i) {
    wgmmaFence();
#pragma unroll
    for (int kk = 0; kk < 4; kk++) // 16 keys are 16 rows of 128 bytes
      wgmmaAcross(o, p[kk], operandAt(1, i, kk * (16 * 128 / 16)));
    wgmmaCommit();
  };
  // Scores of keys that are not seen become -infinity.
  auto hide = [&](int i, bool own) {
    const int t = tileOf(i);
    const bool old = t < cached;
    const int j0 = (old ? t : t - cached) * 64; // in the state, or among the new tokens
    const int rest = (old ? begin : seq) - j0;
    u64 visible = rest >= 64 ? ~(u64)0 : ((u64)1 << rest) - 1;
    if constexpr (C::Mask)
      if (keyMask != nullptr) {
        const int *row = keyMask + (i64)b * maskStride + (old ? 0 : begin) + j0;
        const int low = row[min(lane, rest - 1)], high = row[min(lane + 32, rest - 1)];
        visible &= (u64)__ballot_sync(fullWarp, high != 0) << 32 |
                   __ballot_sync(fullWarp, low != 0);
      }
    const bool diagonal = C::Causal && own && !old && j0 == q0;
    if (diagonal && visible == ~(u64)0) {
      const int first = j0 + lane % 4 * 2 - row0; // of this lane's keys, as seen from its queries
#pragma unroll
      for (int j = 0; j < 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          if (first > e / 2 * 8 - j * 8 - e % 2)
            s[j][e] = negativeInfinity();
    } else if (visible != ~(u64)0) {
      const u64 shifted = visible >> lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++)
          if (!(shifted >> (j * 8 + e % 2) & 1) ||
              (diagonal && j0 + j * 8 + lane % 4 * 2 + e % 2 > row0 + e / 2 * 8))
            s[j][e] = negativeInfinity();
    }
  };
  // What the assembler would compute behind the wait for the products under way, too, but not
  // behind a store that needs it.
  const unsigned unread = keptAddress(&weights[group][warp * 16]);
  auto beforeWait = [&](float value) {
    if (lane == 0)
      asm volatile("st.shared.f32 [%0], %1;" ::"r"(unread), "f"(value) : "memory");
  };
  // Scores become weights relative to the largest so far; `keep` is what the sums before are worth.
  auto softmax = [&] {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      auto at = [&](int k) -> float & { return s[k / 2][half * 2 + k % 2]; };
      float m[4];
#pragma unroll
      for (int j = 0; j < 4; j++)
        m[j] = fmaxf(at(j), at(j + 4));
#pragma unroll
      for (int j = 8; j < 16; j++)
        m[j % 4] = fmaxf(m[j % 4], at(j));
      const float most = fmaxf(
          top[half], factor * warpReduce<Max, 4>(fmaxf(fmaxf(m[0], m[1]), fmaxf(m[2], m[3]))));
      const float base = most == negativeInfinity() ? 0.0f : most;
      keep[half] = exp2Approximate(top[half] - base);
      top[half] = most;
      float part[4];
#pragma unroll
      for (int j = 0; j < 16; j++) {
        at(j) = exp2Approximate(fmaf(at(j), factor, -base));
        part[j % 4] = j < 4 ? at(j) : part[j % 4] + at(j);
      }
      sum[half] = fmaf(sum[half], keep[half], (part[0] + part[1]) + (part[2] + part[3]));
    }
  };
  // The same relative to `top` as it is, which need not be the largest: what a tile adds to this
  // lane's sums. Whether a weight of this warp may be more than half precision has room for; without
  // a key so far, any is.
  float added[2];
  auto weigh = [&] {
    bool fits = true;
#pragma unroll
    for (int half = 0; half < 2; half++) {
      auto at = [&](int k) -> float & { return s[k / 2][half * 2 + k % 2]; };
      float part[4];
#pragma unroll
      for (int j = 0; j < 16; j++) {
        at(j) = exp2Approximate(fmaf(at(j), factor, -top[half]));
        part[j % 4] = j < 4 ? at(j) : part[j % 4] + at(j);
      }
      added[half] = (part[0] + part[1]) + (part[2] + part[3]);
      fits = fits && added[half] <= 32768.0f;
    }
    beforeWait(added[0] + added[1]);
    return !__all_sync(fullWarp, fits);
  };
  auto loadQueries = [&](int kk) { loadMatrix4(q[kk], at(lane % 16, kk * 2 + lane / 16)); };
  // The scores of tile i once more, by each warp for itself.
  auto scoresAgain = [&](int i) {
    const __half *keys = tileAt(0, i);
#pragma unroll
    for (int j = 0; j < 8; j++)
#pragma unroll
      for (int e = 0; e < 4; e++)
        s[j][e] = 0.0f;
#pragma unroll
    for (int kk = 0; kk < 4; kk++) {
      if constexpr (!L::keepsQueries)
        loadQueries(kk);
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        const int row = j * 8 + lane / 16 * 8 + lane % 8;
        unsigned k[4];
        loadMatrix4(k, keys + row * 64 + ((kk * 2 + lane / 8 % 2) ^ row % 8) * 8);
        mma16816(s[j], q[kk], k[0], k[1]);
        mma16816(s[j + 1], q[kk], k[2], k[3]);
      }
    }
    fenceShared();
  };
  auto pack = [&] {
#pragma unroll
    for (int j = 0; j < 8; j++) {
      p[j / 2][j % 2 * 2] = packHalves(s[j][0], s[j][1]);
      p[j / 2][j % 2 * 2 + 1] = packHalves(s[j][2], s[j][3]);
    }
  };

  barriers.queries[place.unit].wait(0);
  if (!L::apart && copies && warp == 1)
    copyBox(first, *map, matrix, row, column, firstBarrier);
  if constexpr (L::keepsQueries)
#pragma unroll
    for (int kk = 0; kk < 4; kk++)
      loadQueries(kk);
  if (count > 0) {
    if constexpr (L::apart)
      arrived(0, 0);
    else
      barriers.keys[group].wait(0);
    multiplyKeys(0);
    if (const int i = 1 + warp / 2; !L::apart && lane == 0 && i < C::Stages && i < count)
      loadPart(warp % 2, i);
    if constexpr (L::apart)
      append(0, 0);
    wgmmaWait<0>();
    if constexpr (L::apart)
      replace(0, -1);
    hide(0, true);
    softmax();
    pack();
    if constexpr (!L::apart) {
      releaseSuccessor(); // sooner it would only take room
      arrived(0, 0);
      append(0, 0);
    } else if constexpr (C::Causal) {
      arrived(1, 0);
      append(1, 0);
    }
#pragma unroll 1
    for (int i = 1; i < count; i++) {
      arrived(0, i);
      multiplyKeys(i);
      if constexpr (L::apart)
        arrived(1, i - 1);
      multiplyValues(i - 1);
      if constexpr (!C::Causal) {
        append(0, i);
        if constexpr (L::apart)
          append(1, i - 1);
      }
      wgmmaWait<1>();
      const bool hides = (C::Mask && keyMask != nullptr) || tileOf(i) == partial ||
                         (!C::Causal && tileOf(i) == tiles - 1);
      if (hides)
        hide(i, false);
      const bool tooLarge = weigh();
      wgmmaWait<0>();
      if (tooLarge) {
        scoresAgain(i);
        if (hides)
          hide(i, false);
        softmax();
#pragma unroll
        for (int d = 0; d < 8; d++)
#pragma unroll
          for (int e = 0; e < 4; e++)
            o[d][e] *= keep[e / 2];
      } else {
        sum[0] += added[0];
        sum[1] += added[1];
      }
      replace(i, i - 1);
      pack();
    }
    if constexpr (L::apart)
      arrived(1, count - 1);
    multiplyValues(count - 1);
    if constexpr (L::apart && !C::Causal)
      append(1, count - 1);
    wgmmaWait<0>();
  }

#pragma unroll
  for (int half = 0; half < 2; half++)
    sum[half] = warpReduce<Sum, 4>(sum[half]);
  if constexpr (C::KeySplit > 1) {
    // Groups of the same queries meet.
    const int meeting = 1 + C::KeySplit + place.unit, threads = 128 * place.groups;
    if (place.rank > 0) {
      if (leader)
        waitForStores();
      barrierOfGroup(); // the ring takes this group's sums
      float4 *sums = reinterpret_cast<float4 *>(ring) + threadIdx.x % 128;
#pragma unroll
      for (int d = 0; d < 8; d++)
        sums[d * 128] = float4{o[d][0], o[d][1], o[d][2], o[d][3]};
      if (lane % 4 == 0) {
        weights[group][warp * 16 + lane / 4] = float2{top[0], sum[0]};
        weights[group][warp * 16 + lane / 4 + 8] = float2{top[1], sum[1]};
      }
    }
    asm volatile("bar.sync %0, %1;" ::"r"(meeting), "r"(threads) : "memory");
    if (place.rank > 0)
      return;
  }
  // What the sums of each group count for, the division included.
  constexpr int others = C::KeySplit - 1;
  float share[C::KeySplit][2];
#pragma unroll
  for (int half = 0; half < 2; half++) {
    float2 w[C::KeySplit];
    w[0] = float2{top[half], sum[half]};
    float most = top[half];
#pragma unroll
    for (int other = 1; other <= others; other++) {
      w[other] = other < place.groups ? weights[group + other][warp * 16 + lane / 4 + half * 8]
                                      : float2{negativeInfinity(), 0.0f};
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
  const float4 *sums = reinterpret_cast<const float4 *>(ring) + threadIdx.x % 128;
#pragma unroll
  for (int d = 0; d < 8; d++) {
#pragma unroll
    for (int e = 0; e < 4; e++)
      o[d][e] *= share[0][e / 2];
#pragma unroll
    for (int other = 1; other <= others; other++)
      if (other < place.groups) {
        const float4 v = sums[other * (C::Stages * 2 * L::tileHalves / 8) + d * 128];
        o[d][0] = fmaf(v.x, share[other][0], o[d][0]);
        o[d][1] = fmaf(v.y, share[other][0], o[d][1]);
        o[d][2] = fmaf(v.z, share[other][1], o[d][2]);
        o[d][3] = fmaf(v.w, share[other][1], o[d][3]);
      }
  }
  if constexpr (sizeof(typename C::Y) == 1) {
    storeHeadQuantised<C::Heads, 64>(o, out, outScale, q0 + warp * 16, seq, h, b, given);
  } else {
    // Through the place of the queries, so that a row leaves as one line.
    if constexpr (C::KeySplit == 1)
      barrierOfGroup();
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
      for (int d = 0; d < 8; d++)
        *reinterpret_cast<unsigned *>(at(lane / 4 + half * 8, d) + lane % 4 * 2) =
            packHalves(o[d][half * 2], o[d][half * 2 + 1]);
    __syncwarp();
    __half *y = out + ((i64)b * seq + q0 + warp * 16) * width + h * 64;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int r = i * 4 + lane / 8;
      if (q0 + warp * 16 + r < seq)
        storePack(y + (i64)r * width + lane % 8 * 8, loadPack<8>(at(r, lane % 8)));
    }
  }
  if (leader)
    waitForStores();
#else
  __trap();
#endif
}

} // namespace tile
} // namespace gpt2c
