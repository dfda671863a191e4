// append_attention of one new token a sequence as a stage of a persistent kernel: split keys.
//   out[b,h,:] = sum_j softmax_j(scale * q . k_j) v_j over the keys j of the state and the new one
//
// A unit is one of Splits ranges of the keys of one head of one sequence. Keys and values are on
// their way before q is waited for. The unit whose range holds the new token takes its key and
// value from qkv and appends them to the state. The consumer merges the parts (see
// persistent_linear.cuh).
//
// With fp16 a warp takes 16 keys at a time and multiplies by mma.m16n8k16, straight from the
// registers that its loads fill: the order of the dimensions is free in q k^T, that of keys and
// columns in p v.
//
// Config: AttentionStageConfig. Record: AttentionRecord. Units: Rows * Heads * Splits. Bytes: 2
// keys HeadDim Heads sizeof(X) a row; flops: 4 keys HeadDim Heads a row.
#pragma once

#include "templates/attention/decode/attention_decode.cuh"
#include "templates/persistent/persistent.cuh"

namespace gpt2c::persistent {

#if __CUDA_ARCH__ >= 900

/// What a unit works on.
template <typename C> struct KeyRange {
  int row, head, past, first, last; ///< keys [first, last) of the state
  bool appends;                     ///< and the new one
  i64 keys, toValues;               ///< elements from the state's begin

  template <typename B>
  __device__ __forceinline__ KeyRange(const B &block, const AttentionRecord<Words> &of, int unit) {
    const int split = unit % C::Splits;
    head = unit / C::Splits % C::Heads;
    row = unit / (C::Splits * C::Heads);
    past = *(volatile int *)(block.past + row);
    const int each = past / C::Splits + 1, context = of.context, batchMax = of.batchMax;
    first = min(split * each, past);
    last = min(first + each, past);
    appends = split == past / each;
    keys = kvOffset(of.layer, 0, min(row, of.batch - 1), head, batchMax, C::Heads, context,
                    C::HeadDim);
    toValues = (i64)batchMax * C::Heads * context * C::HeadDim;
  }
};

/// Unnormalised outputs of the warps and of the new token, f32[parts,HeadDim], and their maxima and
/// sums, f32[parts,2].
template <typename C> struct Parts {
  static constexpr int parts = warps + 1;
  static constexpr int bytes = parts * (C::HeadDim + 2) * 4;
  float *memory;

  __device__ __forceinline__ float *out(int part) const { return memory + part * C::HeadDim; }
  __device__ __forceinline__ float2 &softmax(int part) const {
    return reinterpret_cast<float2 *>(memory + parts * C::HeadDim)[part];
  }
};

/// At least as large as any maximum is taken to be: that of no keys differs from it by infinity.
constexpr float leastMaximum = -1e30f;

/// Merges the parts and publishes, by the finishing warps.
template <typename C, typename B>
__device__ __forceinline__ void publishParts(const B &block,
                                             const AttentionRecord<Words> &attention, int unit,
                                             const Parts<C> &parts) {
  using X = typename C::X;
  constexpr int v = 4, count = C::HeadDim / v;
  static_assert(C::HeadDim % elementsPer16Bytes<X>() == 0);
#pragma unroll 1
  for (int first = 0; first < count; first += Layout<typename B::Config>::finishers) {
    const int i = first + (int)threadIdx.x - multipliers, d = min(i, count - 1) * v;
    float2 softmax[Parts<C>::parts];
    float top = leastMaximum, sum = 0.0f, out[v] = {};
#pragma unroll
    for (int p = 0; p < Parts<C>::parts; p++) {
      softmax[p] = parts.softmax(p);
      top = fmaxf(top, softmax[p].x);
    }
#pragma unroll
    for (int p = 0; p < Parts<C>::parts; p++) {
      const float weight = powerOf2(softmax[p].x - top);
      const float4 part = *reinterpret_cast<const float4 *>(parts.out(p) + d);
      sum = fmaf(weight, softmax[p].y, sum);
      out[0] = fmaf(weight, part.x, out[0]);
      out[1] = fmaf(weight, part.y, out[1]);
      out[2] = fmaf(weight, part.z, out[2]);
      out[3] = fmaf(weight, part.w, out[3]);
    }
    const float scale = sum > 0.0f ? __fdividef(1.0f, sum) : 0.0f;
#pragma unroll
    for (int j = 0; j < v; j++)
      out[j] *= scale;
    publish(block.destination(attention.out), X(), (i64)unit * C::HeadDim + i * v, out, i < count);
    if (C::Splits > 1 && i < B::Config::Copies) {
      const Destination to = block.destination(attention.maxima);
      publishPair(to.first + unit * 8 + i * to.bytes,
                  (u64)channelWord(sum) << 32 | __float_as_uint(top));
    }
  }
}

template <typename C, typename B>
__device__ __forceinline__ void finishAttention(B &block, const AttentionRecord<Words> &attention) {
  const int units = attention.stage.units.count();
  for (int unit = attention.stage.units.first(); unit < units; unit += block.blocks) {
    Parts<C> parts{block.nextSums()};
    block.sync();
    publishParts(block, attention, unit, parts);
  }
}

#endif
} // namespace gpt2c::persistent

namespace gpt2c::tile {
#if __CUDA_ARCH__ >= 900

/// All in fp16.
template <typename C, typename B>
__device__ __forceinline__ void
attentionHalves(B &block, const persistent::AttentionRecord<persistent::Words> &attention) {
  using namespace persistent;
  constexpr int vectors = C::HeadDim / 8;
  constexpr int pieces = ceilDiv(vectors, 4); // of q and k, by the lanes' t
  constexpr int groups = ceilDiv(vectors, 8); // of v, by the lanes' g
  constexpr int width = C::Heads * C::HeadDim, step = 16 * warps;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int units = attention.stage.units.count();
  if (warp >= warps)
    return finishAttention<C>(block, attention);
  const float scale = attention.scale * 1.4426950408889634f;
  auto inPiece = [&](int i) { return i * 4 + t < vectors; };
  auto piece = [&](int i) { return min(i * 4 + t, vectors - 1) * 8; };
  auto inGroup = [&](int i) { return i * 8 + g < vectors; };
  auto group = [&](int i) { return min(i * 8 + g, vectors - 1) * 8; };

  for (int unit = attention.stage.units.first(); unit < units; unit += block.blocks) {
    const KeyRange<C> range(block, attention, unit);
    __half *keys = attention.kv.as<__half>() + range.keys, *values = keys + range.toValues;

    // Keys beyond the end are the last one again, hidden: no load is conditional.
    uint4 key[2][pieces], value[4][groups];
    auto at = [&](int j) { return (i64)max(0, min(j, range.last - 1)) * C::HeadDim; };
    auto fetchKeys = [&](int base) {
#pragma unroll
      for (int n = 0; n < 2; n++)
#pragma unroll
        for (int i = 0; i < pieces; i++)
          key[n][i] =
              __ldcg(reinterpret_cast<const uint4 *>(keys + at(base + n * 8 + g) + piece(i)));
    };
    auto fetchValues = [&](int base) {
#pragma unroll
      for (int m = 0; m < 4; m++)
#pragma unroll
        for (int i = 0; i < groups; i++)
          value[m][i] = __ldcg(reinterpret_cast<const uint4 *>(
              values + at(base + m / 2 * 8 + 2 * t + m % 2) + group(i)));
    };
    int base = range.first + warp * 16;
    fetchKeys(base);
    fetchValues(base);

    const __half *token = block.template channel<__half>(attention.qkv) + range.row * 3 * width +
                          range.head * C::HeadDim;
    // Row 0 of an operand of mma16816, or column 0 of the other: lanes with g = 0.
    auto receive = [&](const __half *from, uint4(&to)[pieces]) {
      Patience patience;
      bool missing;
      do {
        missing = false;
#pragma unroll
        for (int i = 0; i < pieces; i++)
          loadGroup(to[i], from + piece(i), g == 0 && inPiece(i));
#pragma unroll
        for (int i = 0; i < pieces; i++)
          missing |= g == 0 && inPiece(i) && !written(to[i]);
        patience.spend();
      } while (__any_sync(fullWarp, missing));
    };
    uint4 q[pieces] = {};
    receive(token, q);
    // Column j of lane t: the score of key 2 t + j. The second half of a vector of q lies in row 8.
    auto scores = [&](const uint4(&k)[pieces], float(&score)[2]) {
      float sum[2][4] = {};
#pragma unroll
      for (int i = 0; i < pieces; i++) {
        const unsigned a[4] = {q[i].x, q[i].y, q[i].z, q[i].w};
        mma16816(sum[0], a, k[i].x, k[i].y);
        mma16816(sum[1], a, k[i].z, k[i].w);
      }
      score[0] = (sum[0][0] + sum[1][2]) * scale;
      score[1] = (sum[0][1] + sum[1][3]) * scale;
    };

    // Of row 0: lane t has the sums of columns 16 t + 64 i + 8 c + j in out[i][j][c].
    float out[groups][8][4] = {}, sum[4] = {}, top = leastMaximum;
#pragma unroll 1
    for (bool first = true; first || base < range.last; first = false) {
      float score[2][2];
      scores(key[0], score[0]);
      scores(key[1], score[1]);
      const bool more = base + step < range.last;
      if (more) // on their way while these keys are worked on
        fetchKeys(base + step);
      float most = top;
#pragma unroll
      for (int j = 0; j < 4; j++) {
        float &s = score[j / 2][j % 2];
        s = base + j / 2 * 8 + 2 * t + j % 2 < range.last ? s : negativeInfinity();
        most = fmaxf(most, s);
      }
      most = warpReduce<Max, 4>(most);
      unsigned p[4] = {};
      p[0] = packHalves(powerOf2(score[0][0] - most), powerOf2(score[0][1] - most));
      p[2] = packHalves(powerOf2(score[1][0] - most), powerOf2(score[1][1] - most));
      if (!first) {
        const float factor = powerOf2(top - most);
        sum[0] *= factor;
#pragma unroll
        for (int i = 0; i < groups; i++)
#pragma unroll
          for (int j = 0; j < 8; j++)
#pragma unroll
            for (int c = 0; c < 2; c++)
              out[i][j][c] *= factor;
      }
      top = most;
      constexpr unsigned ones = 0x3c003c00u;
      mma16816(sum, p, ones, ones);
#pragma unroll
      for (int i = 0; i < groups; i++)
#pragma unroll
        for (int j = 0; j < 8; j++) {
          auto pairOf = [&](const uint4 &a, const uint4 &b) {
            auto word = [&](const uint4 &v) {
              return reinterpret_cast<const unsigned *>(&v)[j / 2];
            };
            return __byte_perm(word(a), word(b), j % 2 ? 0x7632 : 0x5410);
          };
          mma16816(out[i][j], p, pairOf(value[0][i], value[1][i]),
                   pairOf(value[2][i], value[3][i]));
        }
      base += step;
      if (more)
        fetchValues(base);
    }

    Parts<C> parts{block.nextSums()};
    if (g == 0)
#pragma unroll
      for (int i = 0; i < groups; i++)
#pragma unroll
        for (int c = 0; c < 2; c++)
          if (i * 8 + 2 * t + c < vectors)
#pragma unroll
            for (int j = 0; j < 8; j += 4)
              *reinterpret_cast<float4 *>(parts.out(warp) + (i * 8 + 2 * t + c) * 8 + j) =
                  float4{out[i][j][c], out[i][j + 1][c], out[i][j + 2][c], out[i][j + 3][c]};
    if (lane == 0)
      parts.softmax(warp) = float2{top, sum[0]};
    if (warp == warps - 1) {
      float score[2] = {};
      if (range.appends) {
        uint4 k[pieces] = {}, v[pieces] = {};
        receive(token + width, k);
        receive(token + 2 * width, v);
#pragma unroll
        for (int i = 0; i < pieces; i++) {
          k[i] = exchanged(k[i]);
          v[i] = exchanged(v[i]);
        }
        scores(k, score);
        const i64 next = (i64)range.past * C::HeadDim;
#pragma unroll
        for (int i = 0; i < pieces; i++)
          if (g == 0 && inPiece(i)) {
            if (range.past < attention.context) {
              *reinterpret_cast<uint4 *>(keys + next + piece(i)) = k[i];
              *reinterpret_cast<uint4 *>(values + next + piece(i)) = v[i];
            }
            float row[8];
#pragma unroll
            for (int j = 0; j < 8; j++)
              row[j] = toFloat(reinterpret_cast<const __half *>(&v[i])[j]);
            storeFloats<8>(parts.out(warps) + piece(i), row);
          }
      } else {
        for (int d = lane; d < C::HeadDim; d += 32)
          parts.out(warps)[d] = 0.0f;
      }
      if (lane == 0)
        parts.softmax(warps) =
            range.appends ? float2{score[0], 1.0f} : float2{negativeInfinity(), 0.0f};
    }
    block.sync();
  }
}

/// In fp32.
template <typename C, typename B>
__device__ __forceinline__ void
attentionFloats(B &block, const persistent::AttentionRecord<persistent::Words> &attention) {
  using namespace persistent;
  using X = typename C::X;
  constexpr int width = C::Heads * C::HeadDim;
  constexpr int v = elementsPer16Bytes<X>();
  constexpr int vectors = C::HeadDim / v;
  constexpr int lanes = minInt(32, floorPowerOfTwo(2 * vectors - 1)); // of a key
  constexpr int perLane = ceilDiv(vectors, lanes);
  constexpr int keysPerWarp = 32 / lanes, keysPerBlock = keysPerWarp * warps;
  constexpr int unroll = 4, elements = perLane * v;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = lane / lanes, member = lane % lanes;
  const int units = attention.stage.units.count();
  if (warp >= warps)
    return finishAttention<C>(block, attention);
  const float scale = attention.scale * 1.4426950408889634f;
  auto inside = [&](int i) { return vectors % lanes == 0 || i * lanes + member < vectors; };
  auto offset = [&](int i) { return (i * lanes + member) * v; };

  for (int unit = attention.stage.units.first(); unit < units; unit += block.blocks) {
    const KeyRange<C> range(block, attention, unit);
    X *keys = attention.kv.as<X>() + range.keys, *values = keys + range.toValues;

    // Keys beyond the end are the last one again, hidden: no load is conditional.
    Pack<X, v> key[unroll][perLane], value[unroll][perLane];
    auto fetch = [&](int base) {
#pragma unroll
      for (int u = 0; u < unroll; u++) {
        const i64 j = max(0, min(base + u * keysPerBlock + group, range.last - 1));
#pragma unroll
        for (int i = 0; i < perLane; i++) {
          const i64 at = j * C::HeadDim + (inside(i) ? offset(i) : 0);
          key[u][i] = {__ldcg(reinterpret_cast<const uint4 *>(keys + at))};
          value[u][i] = {__ldcg(reinterpret_cast<const uint4 *>(values + at))};
        }
      }
    };
    int base = range.first + warp * keysPerWarp;
    fetch(base);

    const X *token =
        block.template channel<X>(attention.qkv) + range.row * 3 * width + range.head * C::HeadDim;
    auto receive = [&](const X *from, float(&to)[elements]) {
      uint4 words[perLane] = {};
      Patience patience;
      bool missing;
      do {
        missing = false;
#pragma unroll
        for (int i = 0; i < perLane; i++)
          loadGroup(words[i], from + offset(i), inside(i));
#pragma unroll
        for (int i = 0; i < perLane; i++)
          missing |= inside(i) && !written(words[i]);
        patience.spend();
      } while (__any_sync(fullWarp, missing));
#pragma unroll
      for (int d = 0; d < elements; d++)
        to[d] = inside(d / v) ? toFloat(reinterpret_cast<const X *>(&words[d / v])[d % v]) : 0.0f;
    };
    float q[elements];
    receive(token, q);
#pragma unroll
    for (int d = 0; d < elements; d++)
      q[d] *= scale;

    SoftmaxState<elements> softmax;
    while (base < range.last) {
      float score[unroll], top = softmax.max;
#pragma unroll
      for (int u = 0; u < unroll; u++) {
        float dot = 0.0f;
#pragma unroll
        for (int d = 0; d < elements; d++)
          dot = fmaf(q[d], key[u][d / v].get(d % v), dot);
        dot = warpReduce<Sum, lanes>(dot);
        score[u] = base + u * keysPerBlock + group < range.last ? dot : negativeInfinity();
        top = fmaxf(top, score[u]);
      }
      softmax.raise(top);
#pragma unroll
      for (int u = 0; u < unroll; u++) {
        float row[elements];
#pragma unroll
        for (int d = 0; d < elements; d++)
          row[d] = value[u][d / v].get(d % v);
        softmax.add(score[u], row);
      }
      base += keysPerBlock * unroll;
      if (base < range.last)
        fetch(base);
    }
    mergeLanes<lanes>(softmax);

    Parts<C> parts{block.nextSums()};
    auto store = [&](int part, const float(&from)[elements], float top, float sum) {
      if (lane == 0)
        parts.softmax(part) = float2{top, sum};
      if (group == 0)
#pragma unroll
        for (int d = 0; d < elements; d++)
          if (inside(d / v))
            parts.out(part)[offset(d / v) + d % v] = from[d];
    };
    store(warp, softmax.out, softmax.max, softmax.sum);
    if (warp == warps - 1) {
      float k[elements], row[elements] = {}, dot = negativeInfinity();
      if (range.appends) {
        receive(token + width, k);
        receive(token + 2 * width, row);
        dot = 0.0f;
#pragma unroll
        for (int d = 0; d < elements; d++)
          dot = fmaf(q[d], k[d], dot);
        dot = warpReduce<Sum, lanes>(dot);
        if (group == 0 && range.past < attention.context)
#pragma unroll
          for (int d = 0; d < elements; d++)
            if (inside(d / v)) {
              const i64 at = (i64)range.past * C::HeadDim + offset(d / v) + d % v;
              keys[at] = fromFloat<X>(k[d]);
              values[at] = fromFloat<X>(row[d]);
            }
      }
      store(warps, row, dot, range.appends ? 1.0f : 0.0f);
    }
    block.sync();
  }
}

template <typename C, typename B>
__device__ __forceinline__ void attentionStage(B &block, const persistent::Record &record) {
  const auto &attention = record.as<persistent::AttentionRecord>();
  static_assert(persistent::Parts<C>::bytes <= B::Config::ReduceBytes);
  if constexpr (sizeof(typename C::X) == 2)
    attentionHalves<C>(block, attention);
  else
    attentionFloats<C>(block, attention);
}

/// Brings this block's keys and values into L2, from the loading warp. A row's number of keys may
/// be that of the step before: what is missed then is one key.
template <typename C, typename B>
__device__ __forceinline__ void attentionPrefetch(const B &block,
                                                  const persistent::Record &record) {
  using namespace persistent;
  const AttentionRecord<Words> &attention = record.as<AttentionRecord>();
  using X = typename C::X;
  const int units = attention.stage.units.count();
  for (int unit = attention.stage.units.first() + (int)threadIdx.x % 32 / 2 * block.blocks;
       unit < units; unit += 16 * block.blocks) {
    const KeyRange<C> range(block, attention, unit);
    const unsigned bytes = (range.last - range.first) * C::HeadDim * (int)sizeof(X);
    const X *from = attention.kv.as<const X>() + range.keys +
                    (threadIdx.x % 2 ? range.toValues : 0) + (i64)range.first * C::HeadDim;
    if (bytes > 0)
      prefetchBulk(from, bytes);
  }
}

#endif
} // namespace gpt2c::tile
