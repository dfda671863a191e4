// append_attention of one new token as a stage of a persistent kernel: split keys.
//   out[h,:] = sum_j softmax_j(scale * q . k_j) v_j over the keys j of the state and the new one
//
// A unit is one of Splits ranges of the keys of one head. Its first keys and values
// are on their way before q is waited for. The unit whose range holds the new token takes its key
// and value from qkv and appends them to the state. The consumer merges the parts (see
// persistent_linear.cuh).
//
// Config: X (qkv, out) and Kv: float or __half; HeadDim; Heads; Splits.
// Record: AttentionWord. Units: Heads * Splits. Sequence 0 of the KV state.
// Bytes: 2 keys HeadDim Heads sizeof(Kv); flops: 4 keys HeadDim Heads.
#pragma once

#include "attention_decode.cuh"
#include "persistent.cuh"

namespace gpt2c::persistent {

/// Out is a channel X[Heads,Splits,HeadDim], each part divided by its sum; Maxima a channel
/// f32[Heads,Splits,2] of the parts' maxima and sums, null when Splits is 1.
enum AttentionWord {
  AttentionQkv = FirstOwn,
  AttentionKv,
  AttentionOut,
  AttentionMaxima,
  AttentionLayer,
  AttentionBatchMax,
  AttentionContext,
  AttentionScale
};

} // namespace gpt2c::persistent

namespace gpt2c::tile {
#if __CUDA_ARCH__ >= 900

template <typename C, typename B>
__device__ __forceinline__ void attentionStage(B &block, const persistent::Record &stage) {
  using namespace persistent;
  using X = typename C::X;
  using Kv = typename C::Kv;
  constexpr int width = C::Heads * C::HeadDim;
  constexpr int v =
      vectorWidth(C::HeadDim, minInt(elementsPer16Bytes<X>(), elementsPer16Bytes<Kv>()));
  constexpr int vectors = C::HeadDim / v;
  constexpr int lanes = minInt(32, floorPowerOfTwo(2 * vectors - 1)); // of a key
  constexpr int perLane = ceilDiv(vectors, lanes);
  constexpr int keysPerWarp = 32 / lanes, keysPerBlock = keysPerWarp * warps;
  constexpr int unroll = 2, elements = perLane * v;
  static_assert(warps * (C::HeadDim + 2) * 4 <= B::Config::ReduceBytes);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int group = lane / lanes, member = lane % lanes;
  const int units = stage.integer(Units), context = stage.integer(AttentionContext);
  const float scale = stage.real(AttentionScale) * 1.4426950408889634f;
  auto inside = [&](int i) { return vectors % lanes == 0 || i * lanes + member < vectors; };
  auto offset = [&](int i) { return (i * lanes + member) * v; };

  for (int unit = stage.firstUnit(); unit < units; unit += block.blocks) {
    const int split = unit % C::Splits, h = unit / C::Splits;
    const int past = block.token[1], each = (past + C::Splits) / C::Splits;
    const int first = split * each, last = min(first + each, past);
    const bool appends = first <= past && past < first + each;
    const i64 state = kvOffset(stage.integer(AttentionLayer), 0, 0, h,
                               stage.integer(AttentionBatchMax), C::Heads, context, C::HeadDim);
    const i64 toValues = (i64)stage.integer(AttentionBatchMax) * C::Heads * context * C::HeadDim;
    Kv *keys = stage.pointer<Kv>(AttentionKv) + state, *values = keys + toValues;

    // Keys beyond the end are the last one again, hidden: no load is conditional.
    Pack<Kv, v> key[unroll][perLane], value[unroll][perLane];
    auto fetch = [&](int base) {
#pragma unroll
      for (int u = 0; u < unroll; u++) {
        const i64 j = max(0, min(base + u * keysPerBlock + group, last - 1));
#pragma unroll
        for (int i = 0; i < perLane; i++) {
          const i64 at = j * C::HeadDim + (inside(i) ? offset(i) : 0);
          key[u][i] = loadState<v>(keys + at);
          value[u][i] = loadState<v>(values + at);
        }
      }
    };
    int base = first + warp * keysPerWarp;
    fetch(base);

    const X *token = block.template channel<const X>(stage, AttentionQkv) + h * C::HeadDim;
    auto receiveVector = [&](const X *from, float (&to)[elements]) {
      Pack<X, v> pack[perLane];
      receive<perLane>(pack, [&](int i) { return from + (inside(i) ? offset(i) : 0); });
      __syncwarp();
#pragma unroll
      for (int d = 0; d < elements; d++)
        to[d] = inside(d / v) ? pack[d / v].get(d % v) : 0.0f;
    };
    float q[elements];
    receiveVector(token, q);
#pragma unroll
    for (int d = 0; d < elements; d++)
      q[d] *= scale;

    SoftmaxState<elements> softmax;
    while (base < last) {
      float score[unroll], top = softmax.max;
#pragma unroll
      for (int u = 0; u < unroll; u++) {
        float dot = 0.0f;
#pragma unroll
        for (int d = 0; d < elements; d++)
          dot = fmaf(q[d], key[u][d / v].get(d % v), dot);
        dot = warpReduce<Sum, lanes>(dot);
        score[u] = base + u * keysPerBlock + group < last ? dot : negativeInfinity();
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
      if (base < last)
        fetch(base);
    }
    if (appends && warp == warps - 1) {
      float k[elements], row[elements];
      receiveVector(token + width, k);
      receiveVector(token + 2 * width, row);
      float dot = 0.0f;
#pragma unroll
      for (int d = 0; d < elements; d++)
        dot = fmaf(q[d], k[d], dot);
      dot = warpReduce<Sum, lanes>(dot);
      if (group == 0) {
        softmax.raise(fmaxf(softmax.max, dot));
        softmax.add(dot, row);
#pragma unroll
        for (int i = 0; i < perLane; i++)
          if (inside(i) && past < context)
#pragma unroll
            for (int d = 0; d < v; d++) {
              keys[(i64)past * C::HeadDim + offset(i) + d] = fromFloat<Kv>(k[i * v + d]);
              values[(i64)past * C::HeadDim + offset(i) + d] = fromFloat<Kv>(row[i * v + d]);
            }
      }
    }
    mergeLanes<lanes>(softmax);

    float *out = block.nextSums(), *maxima = out + warps * C::HeadDim, *sums = maxima + warps;
    if (lane == 0) {
      maxima[warp] = softmax.max;
      sums[warp] = softmax.sum;
    }
    if (group == 0)
#pragma unroll
      for (int i = 0; i < perLane; i++)
        if (inside(i))
#pragma unroll
          for (int d = 0; d < v; d++)
            out[warp * C::HeadDim + offset(i) + d] = softmax.out[i * v + d];
    block.sync();
    for (int d = threadIdx.x; d < C::HeadDim; d += consumers) {
      float top = negativeInfinity(), sum = 0.0f, x = 0.0f;
#pragma unroll
      for (int w = 0; w < warps; w++)
        top = fmaxf(top, maxima[w]);
#pragma unroll
      for (int w = 0; w < warps; w++) {
        const float keep = softmax.rescale(maxima[w], top);
        sum += sums[w] * keep;
        x += out[w * C::HeadDim + d] * keep;
      }
      publish(block.template channel<X>(stage, AttentionOut) + unit * C::HeadDim + d,
              sum > 0.0f ? __fdividef(x, sum) : 0.0f);
      if (C::Splits > 1 && d < 2)
        publish(block.template channel<float>(stage, AttentionMaxima) + unit * 2 + d,
                d == 0 ? top : sum);
    }
  }
}

/// Brings this block's keys and values into L2, from the loading warp.
template <typename C, typename B>
__device__ __forceinline__ void attentionPrefetch(const B &block,
                                                  const persistent::Record &stage) {
  using namespace persistent;
  using Kv = typename C::Kv;
  const int units = stage.integer(Units), context = stage.integer(AttentionContext);
  for (int unit = stage.firstUnit() + (int)threadIdx.x % 32 / 2 * block.blocks; unit < units;
       unit += 16 * block.blocks) {
    const int split = unit % C::Splits, h = unit / C::Splits;
    // Perhaps of the step before: what is missed then is one key.
    const int past = *(volatile int *)(block.token + 1), each = (past + C::Splits) / C::Splits;
    const int first = split * each, last = min(first + each, past);
    const i64 state = kvOffset(stage.integer(AttentionLayer), threadIdx.x % 2, 0, h,
                               stage.integer(AttentionBatchMax), C::Heads, context, C::HeadDim);
    const unsigned bytes = (last - first) * C::HeadDim * (int)sizeof(Kv) / 16 * 16;
    const Kv *from = stage.pointer<const Kv>(AttentionKv) + state + (i64)first * C::HeadDim;
    if (last > first && bytes > 0 && C::HeadDim * sizeof(Kv) % 16 == 0)
      prefetchBulk(from, bytes);
  }
}

#endif
} // namespace gpt2c::tile
