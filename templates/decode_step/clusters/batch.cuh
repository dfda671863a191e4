// One kernel that runs whole decode steps of two to eight or 16 sequences in thread block
// clusters.
//
// As clusters/clusters.cuh: the same halves of layers in the same clusters, the same ring. x has
// `rows` rows, one for each block of a cluster or several groups of as many, and block r has
// columns [r S, r S + S) of all of them; row n is that of sequence n mod Sequences, one beyond the
// batch has the last one's token and no keys. What differs:
//
//   receive  partial sums are fp16, of eight rows for each group
//   first    block n of the cluster gets the sums of row n of each group, with the rows' statistics
//   middle   so it has q, k and v of one sequence of a group, whose keys it attends to without the
//            others (where sequences are fewer than blocks, to a share of the keys), or the hidden
//            columns of one; it sends what it has made of them to all blocks in fp16
//   second   the block has all rows of what the cluster has and publishes sums of all rows
//
// Every product is one of mma's with x as its operand of eight columns, a group; weights stay in
// registers for all groups. Keys and values come through the ring as they lie in the state, one
// sequence after the other, a slot of keys and one of values in turn; the new token is not among
// them but a part of attention of its own. Every warp that computes gives a slot back.
//
// Config: ClustersConfig. Partials of a half:
// __half[groups][Heads][ranks][S / 16][32 lanes][4], as publishRows() writes them.
#pragma once

#include "templates/decode_step/clusters/rows_attention.cuh"
#include "templates/decode_step/clusters/rows_stream.cuh"
#include "templates/decode_step/clusters/rows_vocabulary.cuh"

namespace gpt2c::clusters {
#if __CUDA_ARCH__ >= 900

template <typename C> __device__ __forceinline__ void RowsStep<C>::compute(int layers, int steps) {
  constexpr int blocks = L::blocks;
  const StepRecord<Words> &step = shared.records.step();
  const ClusterEmbedRecord<Words> &embedding = shared.records.embedding();
  const VocabularyRecord<Words> &last = shared.records.vocabulary();
  unsigned *const epochWord = reinterpret_cast<unsigned *>(blockChoices<C>(step, 3));
  unsigned epoch = __ldcg(epochWord);
  if constexpr (isPaged<C>)
    releaseSuccessor(); // all blocks run: it may have multiprocessors that are left
  for (int s = 0; s < steps; s++) {
    offset = epoch % 2 * step.channelBytes;
    // The choice of the step before the last.
    if (threadIdx.x < rows)
      __stcg(rowChoices<C>(step, (epoch + 1) % 3, threadIdx.x) + blockIdx.x, 0ull);
    for (int layer = 0; layer < layers; layer++) {
      const HeadRecord<Words> &head =
          shared.records.record[1 + 2 * layer].template as<HeadRecord>();
      const HalfRecord<Words> &attends = head.half,
                              &half =
                                  shared.records.record[2 + 2 * layer].template as<HalfRecord>();
      {
        refresh();
        const FirstProducts<L::headRows> weights(*this);
        const float2 gain = loadRowGain<C::Gain>(attends.first);
        if (layer == 0)
          embedRows(embedding, s);
        else
          receiveRows(shared.records.record[2 * layer].template as<HalfRecord>());
        storeRows(gain);
        Base::template sync<1, warps + 1>();
        weights.multiply(*this, shared.half.head, AtHead);
      }
      refresh();
      attentionRows(head, s);
      {
        refresh();
        const FirstProducts<L::hidden> weights(*this);
        const float2 gain = loadRowGain<C::Gain>(half.first);
        receiveRows(attends);
        storeRows(gain);
        Base::template sync<1, warps + 1>();
        weights.multiply(*this, shared.half.mlp, AtMlp);
      }
      refresh();
      mlpRows(half);
      turn++;
    }
    const float2 gain = loadRowGain<C::FinalGain>(last.first);
    receiveRows(shared.records.record[2 * layers].template as<HalfRecord>());
    storeRows(gain);
    Base::template sync<1, warps + 1>();
    refresh();
    vocabularyRows(last);
    Base::template sync<1, warps + 1>();
    advance(groupCount<C>());
    // The choice.
    for (int n = warp; n < rows; n += warps) {
      const u64 best = tile::warpLargest(lane < warps ? shared.best[n][lane] : 0);
      if (lane == 0)
        persistent::contributePair(rowChoices<C>(step, epoch % 3, n) + blockIdx.x, best);
    }
    for (int n = warp; n < rows; n += warps) {
      const u64 *keys = rowChoices<C>(step, epoch % 3, n);
      const u64 best = persistent::largestOfRow<blocks>(keys, blocks);
      if (lane == 0) {
        const int id = Drawn<C>(last, min(n, batch() - 1)).tokenOf(best);
        shared.id[n] = id;
        if (blockIdx.x == 0 && n < batch()) {
          step.next[n] = id;
          if constexpr (!isPaged<C>) {
            step.tokens[(i64)(*step.stepIndex + s) * batch() + n] = id;
            if (s + 1 == steps) {
              step.ids[n] = id;
              step.past[n] = shared.past[n] + steps;
            }
          }
        }
      }
    }
    Base::template sync<1, warps + 1>();
    if (threadIdx.x == 0)
      shared.chosen.arrive();
    epoch = (epoch + 1) % 6;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    if constexpr (!isPaged<C>)
      *step.stepIndex += steps;
    *epochWord = epoch;
  }
}

/// The helper's share: statistics, the new token's key and value, clearing what the step before
/// used.
template <typename C> __device__ __forceinline__ void RowsStep<C>::help(int layers, int steps) {
  const StepRecord<Words> &step = shared.records.step();
  const u64 bytes = step.channelBytes;
  unsigned epoch = __ldcg(reinterpret_cast<unsigned *>(blockChoices<C>(step, 3)));
#pragma unroll 1
  for (int s = 0; s < steps; s++) {
    const int each = ceilDiv((int)(bytes / 16), layers);
    int pairs = 0;
    for (int i = 0; i < groups; i++)
      pairs += RowKeys<C>::of(shared, batch(), rank, i, s).pairs;
    uint4 *const old = reinterpret_cast<uint4 *>(step.channels + (epoch % 2 ? 0 : bytes));
#pragma unroll 1
    for (int layer = 0; layer < layers; layer++) {
      Base::template sync<1, warps + 1>();
      sendRowStatistics(shared.half.head.statistics, AtHead);
      giveBackAll(L::headSlots);
      newTokens(shared.records.record[1 + 2 * layer].template as<HeadRecord>(), s);
      advance(2 * pairs); // those are given back by who has read them
      const int end = min((layer + 1) * each, (int)(bytes / 16));
      for (int i = layer * each + blockIdx.x * 32 + lane; i < end; i += L::blocks * 32)
        __stcg(old + i, uint4{});
      if (layer + 1 == layers) { // what the block has cleared comes before its choice
        __syncwarp();
        if (lane == 0)
          persistent::fence();
      }
      Base::template sync<1, warps + 1>();
      sendRowStatistics(shared.half.mlp.statistics, AtMlp);
      giveBackAll(L::projectionSlots + L::hiddenSlots);
      Base::template sync<3, warps + 1>();
      giveBackAll(L::outputSlots);
      turn++;
    }
    Base::template sync<1, warps + 1>();
    const unsigned done = shared.arrived[AtStatistics].address();
#pragma unroll 1
    for (int i = 0; i < groups; i++) {
      const float2 v = rowStatistics(C::FinalNorm, i);
      const unsigned at = sharedAddress(&shared.statistics[i * ranks + g][rank]);
      send(remote(at, t), v.x, v.y, remote(done, t));
      send(remote(at, t + 4), v.x, v.y, remote(done, t + 4));
    }
    Base::template sync<1, warps + 1>();
    advance(groupCount<C>());
    Base::template sync<1, warps + 1>();
    epoch = (epoch + 1) % 6;
  }
}

template <typename C>
__device__ __forceinline__ void runRows(void *memory, const Record *records, int count) {
  using L = Layout<C>;
  using T = typename C::T;
  Shared<C> &shared = *reinterpret_cast<Shared<C> *>(memory);
  for (int i = threadIdx.x; i < count * persistent::recordWords; i += L::threads)
    reinterpret_cast<u64 *>(shared.records.record)[i] = reinterpret_cast<const u64 *>(records)[i];
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::Slots; i++) {
      shared.full[i].init(32);
      shared.empty[i].init(RowsStep<C>::users);
    }
    shared.chosen.init(1);
    constexpr int rows = clusters::rows<C>;
    const int bytes[6] = {decltype(shared.half.head)::bytes,
                          decltype(shared.half.mlp)::bytes,
                          rows * (headDim * (int)sizeof(T) + (C::Sequences < ranks ? 8 : 0)),
                          rows * C::D * (int)sizeof(T),
                          rows * L::hidden * (int)sizeof(T),
                          rows * ranks * 8};
    for (int i = 0; i < 6; i++) {
      shared.arrived[i].init(1);
      shared.arrived[i].expect(bytes[i]);
    }
    fenceBarrierInit();
  }
  __syncthreads();
  const StepRecord<Words> &last = shared.records.record[count - 1].template as<StepRecord>();
  if (threadIdx.x < rows<C>) {
    const int sequence = min((int)threadIdx.x % C::Sequences, last.batch - 1);
    shared.id[threadIdx.x] = last.ids[sequence];
    shared.past[threadIdx.x] = last.past[sequence];
  }
  if constexpr (isPaged<C>)
    for (int i = 0; i < groups<C>; i++)
      loadPages<C>(shared.pages[i], last,
                   min((i * ranks + (int)blockIdx.x % ranks) % C::Sequences, last.batch - 1));
  __syncthreads();
  clusterBarrier();
  const int layers = (count - 3) / 2, steps = last.steps;
  if (threadIdx.x < 32 * L::warps) {
    claimRegisters<144>();
    RowsStep<C>{{{}, shared}}.compute(layers, steps);
  } else {
    releaseRegisters<80>();
    if (threadIdx.x < 32 * L::loader)
      RowsStep<C>{{{}, shared}}.help(layers, steps);
    else
      RowsStream<C>{{{}, shared}}.run(layers, steps);
  }
  __syncwarp();
  clusterBarrier(); // none ends while others send to it
}
#endif

} // namespace gpt2c::clusters
