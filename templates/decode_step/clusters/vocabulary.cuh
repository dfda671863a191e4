// The vocabulary of clusters/clusters.cuh, its logits and the choice;
// clusters/batch.cuh fills its ring in the same way.
#pragma once

#include "templates/decode_step/clusters/stream.cuh"

namespace gpt2c::clusters {
#if __CUDA_ARCH__ >= 900

/// How the token of a sequence is chosen among keys: greedily or, over a state in pages, drawn by
/// temperature.
template <typename C> struct Drawn {
  const SampleRow *how;
  sampling::Draw draw{};

  __device__ __forceinline__ Drawn(const VocabularyRecord<Words> &record, int sequence)
      : how(isPaged<C> ? sampling::drawnRow(record.choices, sequence) : nullptr) {
    if (how != nullptr)
      draw = sampling::drawOf(*how);
  }
  __device__ __forceinline__ double gumbel(int id) const {
    return how == nullptr ? 0.0 : draw.gumbel(id);
  }
  /// Of an even id and the next.
  __device__ __forceinline__ void gumbels(int id, double (&to)[2]) const {
    to[0] = to[1] = 0.0;
    if (how == nullptr)
      return;
    const uint4 words = sampling::randomWords(draw.seed, draw.position, (unsigned)id / 4);
    to[0] = sampling::gumbelOf(id % 4 == 0 ? words.x : words.z);
    to[1] = sampling::gumbelOf(id % 4 == 0 ? words.y : words.w);
  }
  __device__ __forceinline__ u64 key(float logit, double gumbel, int id) const {
    return how == nullptr ? tile::argmaxKey(logit, id)
                          : sampling::keyOf(logit, draw.inverse, gumbel, id);
  }
  __device__ __forceinline__ int tokenOf(u64 key) const {
    return how != nullptr ? sampling::tokenOf(key) : key >> 32 == 0 ? 0 : tile::indexOf(key);
  }
};

/// The vocabulary, in groups of 8 rows. A lane fills one slot again and again: slots are given back
/// in any order. What this lap has no room for yet comes to L2 with int8 weights; of others a slot
/// is filled at a time in the first lap, while layers run: more at once would delay what their
/// blocks tell each other.
template <typename C> __device__ __forceinline__ void Stream<C>::vocabulary() {
  static_assert(C::Slots <= 32);
  const char *from = shared.records.vocabulary().first.weights.template as<const char>();
  const int count = groupCount<C>();
  const bool wraps = slot + lane >= C::Slots;
  const int mine = min(slot + lane - (wraps ? C::Slots : 0), C::Slots - 1);
  unsigned parity = lap ^ wraps ^ 1;
  int i = lane < C::Slots ? lane : count;
  while (__any_sync(fullWarp, i < count)) {
    bool ready = i < count && shared.empty[mine].test(parity);
    if constexpr (!roomy<C>) {
      const unsigned early = __ballot_sync(fullWarp, ready && i < C::Slots);
      ready &= i >= C::Slots || lane == __ffs(early) - 1;
      if (early != 0)
        __nanosleep(50);
    }
    if (ready) {
      auto bytesOf = [](int group) { return min(8, C::Vocab - group * 8) * C::D * (int)sizeof(W); };
      const int group = blockIdx.x + i * gridDim.x, bytes = bytesOf(group),
                next = group + C::Slots * gridDim.x;
      shared.full[mine].expect(bytes);
      shared.full[mine].arrive(31);
      persistent::copyBulk(shared.ring[mine], from + (i64)group * L::slotBytes, bytes,
                           shared.full[mine]);
      if (roomy<C> && i + C::Slots < count)
        persistent::prefetchBulk(from + (i64)next * L::slotBytes, bytesOf(next));
      i += C::Slots;
      parity ^= 1;
    }
    __syncwarp();
  }
  // None may be waited for a lap ahead.
  if (lane < C::Slots)
    persistent::barrierWait(shared.empty[mine], parity);
  __syncwarp();
}

/// All of x from the blocks of the cluster.
template <typename C>
__device__ __forceinline__ typename Step<C>::Moments
Step<C>::wholeOfX(const FirstProduct<Words> &product) {
  constexpr int vector = elementsPer16Bytes<T>();
  Barrier &arrived = shared.arrived[AtWhole];
  // The slice in pieces of 16 bytes, to all blocks.
  constexpr int vectors = L::slice / vector;
  for (int i = threadIdx.x; i < vectors * ranks; i += warps * 32)
    send(remote(sharedAddress(&shared.whole.x[(rank * vectors + i / ranks) * vector]), i % ranks),
         reinterpret_cast<const uint4 *>(shared.x)[i / ranks],
         remote(arrived.address(), i % ranks));
  waitArrival(arrived, (turn / decltype(shared.records)::layers & 1) ^ 1);
  if (threadIdx.x == 0)
    arrived.expect(C::D * (int)sizeof(T) + ranks * 8);
  return moments(shared.whole.statistics, product);
}

/// The best of a warp's logits.
template <typename C> __device__ __forceinline__ void Step<C>::best(u64 key) {
#pragma unroll
  for (int offset = 4; offset > 0; offset /= 2)
    key = max(key, __shfl_xor_sync(fullWarp, key, offset));
  if (lane == 0)
    shared.best[warp] = key;
}

/// The logits of the groups of 8 rows that come through the ring, and the best of them, but for
/// int8 weights times fp16.
template <typename C>
__device__ __forceinline__ void Step<C>::vocabulary(const VocabularyRecord<Words> &record) {
  const Moments m = wholeOfX(record.first);
  u64 best = 1; // less than that of any logit
  const uint4 *const x = reinterpret_cast<const uint4 *>(shared.whole.x);
  float *const logits = record.logits;
  const Drawn<C> drawn(record, 0);
  // A slot of the ring is always the same warp's: none waits for a slot that another has yet to
  // read.
  const int begin = slot;
  const unsigned beginLap = lap;
  if (warp < readers) {
    const int first = (warp - slot % readers + readers) % readers, count = groupCount<C>();
    advance(first);
#pragma unroll 1
    for (int n = first; n < count; n += readers) {
      const int row = lane % 8, at = (blockIdx.x + n * gridDim.x) * 8 + row;
      const double gumbel = drawn.gumbel(at); // while weights are on their way
      waitSlot(0);
      const char *const rows = shared.ring[slot];
      auto ofRow = [&](const float *of) {
        return persistent::loadWord(of + min(at, C::Vocab - 1));
      };
      const float sums = C::FinalNorm == NormKind::Layer ? __uint_as_float(ofRow(record.first.sums))
                                                         : 0.0f,
                  bias = __uint_as_float(ofRow(record.first.bias)),
                  scale = Operand<W>::scaled ? __uint_as_float(ofRow(record.first.scales)) : 1.0f;
      // Lanes (g, t) have row g, whose pitch is a multiple of all banks: odd rows take odd vectors
      // first.
      const int odd = g % 2 * 4;
      float v;
      if constexpr (halves) {
        // Rows g and g + 8 of the operand are the halves of row g. A column of the other one is
        // either half of x, in either order: of the results those count whose row and column agree,
        // the first and the last of lanes with equal parities of g and t.
        constexpr int vectors = C::D * (int)sizeof(W) / 32; // of a half
        const uint4 *const w = reinterpret_cast<const uint4 *>(rows + g * C::D * (int)sizeof(W)),
                           *const half = x + g % 2 * vectors;
        const int swap = g / 2 % 2 * 4;
        float sum[4][4] = {};
#pragma unroll 4
        for (int p = 0; p < vectors; p += 4) {
          const uint4 a = w[(p ^ odd) + t], c = w[vectors + (p ^ odd) + t];
          const uint4 b = half[(p ^ swap) + t];
          const unsigned low[4] = {a.x, c.x, a.y, c.y}, high[4] = {a.z, c.z, a.w, c.w};
          mma16816(sum[p / 2 % 4], low, b.x, b.y);
          mma16816(sum[(p / 2 + 1) % 4], high, b.z, b.w);
        }
        v = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++)
          v += sum[i][0] + sum[i][3];
        v = __shfl_sync(fullWarp, v, row * 4 + row % 2);
      } else {
        float sum = 0.0f;
#pragma unroll 4
        for (int p = 0; p < C::D / 16; p++) {
          const int i = (4 * p ^ odd) + t;
          const uint4 a = x[i];
          float w[4];
          loadFloats<4>(reinterpret_cast<const W *>(rows) + g * C::D + i * 4, w);
          sum = fmaf(w[0], __uint_as_float(a.x), sum);
          sum = fmaf(w[1], __uint_as_float(a.y), sum);
          sum = fmaf(w[2], __uint_as_float(a.z), sum);
          sum = fmaf(w[3], __uint_as_float(a.w), sum);
        }
        v = __shfl_sync(fullWarp, warpReduce<Sum, 4>(sum), row * 4);
      }
      __syncwarp();
      if (lane == 0)
        shared.empty[slot].arrive();
      v = fmaf((v - m.mean * sums) * m.scale, scale, bias);
      if (at < C::Vocab) {
        if (lane < 8)
          logits[at] = v;
        best = max(best, drawn.key(v, gumbel, at));
      }
      advance(readers);
    }
    slot = begin;
    lap = beginLap;
  }
  this->best(best);
}

// Int8 weights times x in fixed point: digits of 8 bits, columns of mma's other operand. Its rows g
// and g + 8 are two parts of row g, words 0 and 2 of each four and words 1 and 3; each part has
// digits of its own, so six columns. Odd rows read pieces 2 i and 2 i + 1 in the other order, so
// that the lanes of a quarter of a warp read different banks.
// -------------------------------------------------------------------------------------------------

/// Of this block's groups, which are the same in all steps.
template <typename C>
__device__ __forceinline__ void Step<C>::loadConstants(const FirstProduct<Words> &product) {
  const int count = min(groupCount<C>(), L::keptGroups);
  for (int i = threadIdx.x; i < count * 24; i += L::threads)
    shared.constants[i / 24][i % 24] = constantOf(product, i / 24, i % 24);
}
/// Of group n of this block lanes 0 to 7 have the sums of its rows, 8 to 15 the addends, 16 to 23
/// the scales.
template <typename C>
__device__ __forceinline__ float Step<C>::constantOf(const FirstProduct<Words> &product, int n,
                                                     int lane) const {
  const int row = min((int)(blockIdx.x + n * gridDim.x) * 8 + lane % 8, C::Vocab - 1);
  using Product = FirstProduct<Words>;
  const auto of = lane < 8 ? &Product::sums : lane < 16 ? &Product::bias : &Product::scales;
  if (C::FinalNorm != NormKind::Layer && lane < 8)
    return 0.0f;
  return (product.*of)[row];
}

template <typename C>
__device__ __forceinline__ void Step<C>::vocabularyOfDigits(const VocabularyRecord<Words> &record) {
  constexpr int vectors = C::D / 64;
  const Moments m = wholeOfX(record.first);
  // The largest column is less than 2^22.
  unsigned top = 0;
  for (int i = lane; i < C::D / 8; i += 32) {
    const uint4 v = reinterpret_cast<const uint4 *>(shared.whole.x)[i];
    constexpr unsigned magnitude = 0x7fff7fffu;
    top = __vmaxu2(top, __vmaxu2(__vmaxu2(v.x & magnitude, v.y & magnitude),
                                 __vmaxu2(v.z & magnitude, v.w & magnitude)));
  }
  top = __reduce_max_sync(fullWarp, max(top & 0xffff, top >> 16));
  const int exponent =
      max(64, __float_as_int(__half2float(__ushort_as_half((unsigned short)top))) >> 23);
  const float scale = __int_as_float((127 + 127 + 21 - exponent) << 23),
              back =
                  top < 0x7c00 ? __int_as_float((exponent - 21) << 23) : __int_as_float(0x7fffffff);
  for (int i = threadIdx.x; i < C::D / 2; i += warps * 32) {
    const float2 v = __half22float2(reinterpret_cast<const __half2 *>(shared.whole.x)[i]);
    // Half a word of vector i / 8: words 0 and 2 of the first part, 1 and 3 of the second.
    const int word = i / 2 % 4;
    unsigned short *const to = reinterpret_cast<unsigned short *>(
                                   &shared.digit[i / 32][word % 2 * digits * 4 + i / 8 % 4]) +
                               word / 2 * 2 + i % 2;
    int a = __float2int_rn(v.x * scale), b = __float2int_rn(v.y * scale);
#pragma unroll
    for (int j = digits; j-- > 0;) {
      const int low = (signed char)a, high = (signed char)b;
      to[j * 16] = __byte_perm(a, b, 0x0040);
      a = (a - low) >> 8;
      b = (b - high) >> 8;
    }
  }
  sync<3, warps>();
  const int begin = slot, count = groupCount<C>();
  const unsigned beginLap = lap;
  u64 key = 1; // less than that of any logit
  if (warp < readers) {
    // Columns 0, 1, 2 are digits of the first part, 3, 4, 5 of the second.
    uint2 x[vectors];
#pragma unroll
    for (int i = 0; i < vectors; i++)
      x[i] = shared.digit[i][lane];
    // What the lane's results count: those of rows g and g + 8 in columns 2 t and 2 t + 1.
    float weight[4];
#pragma unroll
    for (int i = 0; i < 4; i++) {
      const int column = 2 * t + i % 2;
      weight[i] = column / digits == i / 2
                      ? back * m.scale * (float)(1 << 8 * (digits - 1 - column % digits))
                      : 0.0f;
    }
    float *const logits = record.logits;
    const Drawn<C> drawn(record, 0);
    int n = (warp - slot % readers + readers) % readers;
    advance(n);
#pragma unroll 1
    for (; n < count; n += readers) {
      const int at = (blockIdx.x + n * gridDim.x) * 8 + lane;
      const double gumbel = drawn.gumbel(at); // while weights are on their way
      waitSlot(0);
      const uint4 *const row = reinterpret_cast<const uint4 *>(shared.ring[slot] + g * C::D) + t;
      uint4 w[vectors];
#pragma unroll
      for (int j = 0; j < vectors; j++)
        w[j] = row[(j ^ (g & 1)) * 4];
      if (g & 1)
#pragma unroll
        for (int j = 0; j < vectors; j += 2) {
          const uint4 v = w[j];
          w[j] = w[j + 1];
          w[j + 1] = v;
        }
      int sum[2][4] = {};
#pragma unroll
      for (int j = 0; j < vectors; j++) {
        const unsigned a[4] = {w[j].x, w[j].y, w[j].z, w[j].w};
        mma16832(sum[j & 1], a, x[j].x, x[j].y);
      }
      __syncwarp();
      if (lane == 0)
        shared.empty[slot].arrive();
      advance(readers);
      float v = 0.0f;
#pragma unroll
      for (int i = 0; i < 4; i++)
        v = fmaf((float)(sum[0][i] + sum[1][i]), weight[i], v);
      const float of = n < L::keptGroups ? shared.constants[n][min(lane, 23)]
                                         : constantOf(record.first, n, lane);
      v = __shfl_sync(fullWarp, warpReduce<Sum, 4>(v), lane % 8 * 4);
      const float bias = __shfl_sync(fullWarp, of, lane % 8 + 8),
                  scale = __shfl_sync(fullWarp, of, lane % 8 + 16);
      v = fmaf(v - m.mean * m.scale * of, scale, bias);
      if (lane < 8 && at < C::Vocab) {
        logits[at] = v;
        key = max(key, drawn.key(v, gumbel, at));
      }
    }
    slot = begin;
    lap = beginLap;
  }
  best(key);
}

/// The step's token: blocks tell each other the best of what they have. A lane waits for one block,
/// as loads that acquire follow each other.
template <typename C>
__device__ __forceinline__ void Step<C>::choose(const StepRecord<Words> &step,
                                                const ClusterEmbedRecord<Words> &embedding,
                                                unsigned third) {
  static_assert(persistent::choosers <= warps);
  if (warp == 0) {
    const u64 best = tile::warpLargest(lane < warps ? shared.best[lane] : 0);
    if (lane < ranks)
      persistent::contributePair(choiceCopy<C>(step, third, lane) + blockIdx.x, best);
    if constexpr (!isPaged<C>) {
      // The row that the next step begins with, if the block's best is the best of all.
      constexpr int rowBytes = C::D * (int)sizeof(typename C::Embedding);
      const char *row =
          embedding.tokens.template as<const char>() + (i64)tile::indexOf(best) * rowBytes;
      if (best >> 32 != 0)
        for (int i = lane * 128; i < rowBytes; i += 32 * 128)
          asm volatile("prefetch.global.L2 [%0];" ::"l"(row + i));
    }
  }
  const u64 best = persistent::largestOfBlocks(choiceCopy<C>(step, third, rank), thread,
                                               shared.choice, [] { sync<1, warps + 1>(); });
  token = Drawn<C>(shared.records.vocabulary(), 0).tokenOf(best);
}
#endif
} // namespace gpt2c::clusters
