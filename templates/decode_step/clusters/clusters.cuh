// One kernel that runs whole decode steps of one sequence in thread block clusters.
//
// A layer is two halves, each two products: queries, keys and values, and the output projection;
// both products of the MLP. A cluster of `ranks` blocks computes one head of the first half and a
// share of the hidden columns of the second:
//
//   receive  block r of every cluster adds up columns [r S, r S + S) of x, S = D / ranks, out of
//            the partial sums that all clusters have published, and the residual, which stays with
//            it
//   first    it multiplies this slice of x by those columns of the cluster's rows of the first
//            product, and sends the sums to all blocks of its cluster
//   middle   every block adds up what the blocks sent: all of q, k, v or of the hidden columns. Of
//            a head it attends to its share of the keys, and the parts of attention go to all
//            blocks again
//   second   it multiplies what the cluster has by rows [r S, r S + S) of those columns of the
//            second product and publishes the partial sums
//
// So a layer has two ways through device memory, where as many blocks as there are clusters wait
// for a line, and three through the cluster's shared memory. Sums have a fixed order. Memory that
// blocks send to is written again only after the sender has had something that its reader sent
// later.
//
// Norms leave the sums of products as in stages/linear.cuh: the slices of x send their mean and
// sum of squared differences along.
//
// Spare clusters, of which there may be any number, have no head. They fill their rings with
// the vocabulary while the others compute, follow the residual, and take their share of the logits.
//
// Three warps stream the weights and the keys, whose order is known, through a ring of slots and
// never wait for anything else. A slot holds 8 D weights: 64 rows of a slice of the first product,
// S columns each; 8 D / width rows of the second; 8 rows of the vocabulary. Keys are dealt out in
// tiles of 16 that follow each other to blocks that follow each other, so the block that appends a
// key is the one that reads it. Slots are given back in the order of the ring by one more warp, the
// helper, but for those of the vocabulary.
//
// Shared memory leaves 28 KB of L1: what the computing warps spill would come back from L2. So they
// have most of the registers.
//
// Partial sums are channels as in stages/stages.cuh: a word that is zero is not written yet.
//
// Config: ClustersConfig. Grid: Heads * ranks blocks and those of spare clusters, all resident at
// once. Block: Layout<C>::threads; dynamic shared: that of Shared<C>. From sm_90 on, as a kernel
// for its architecture alone (sm_90a).
#pragma once

#include "templates/decode_step/clusters/attention.cuh"
#include "templates/decode_step/clusters/products.cuh"
#include "templates/decode_step/clusters/statistics.cuh"
#include "templates/decode_step/clusters/vocabulary.cuh"

namespace gpt2c::clusters {
#if __CUDA_ARCH__ >= 900

template <typename C> __device__ __forceinline__ void Step<C>::compute(int layers, int steps) {
  constexpr int consumers = warps * 32;
  const bool spare = (int)blockIdx.x >= ranks * C::Heads;
  const StepRecord<Words> &step = shared.records.step();
  const ClusterEmbedRecord<Words> &embedding = shared.records.embedding();
  const VocabularyRecord<Words> &last = shared.records.vocabulary();
  unsigned *const epochWord = reinterpret_cast<unsigned *>(blockChoices<C>(step, 3));
  unsigned epoch = __ldcg(epochWord);
  const int past = step.past[0];
  token = shared.id;
  float gain[L::passes];
  if constexpr (isPaged<C>)
    releaseSuccessor(); // all blocks run: it may have multiprocessors that are left
  for (int s = 0; s < steps; s++) {
    const u64 bytes = step.channelBytes;
    offset = epoch % 2 * bytes;
    // What the step before used, and the choice of the one before that.
    uint4 *const old = reinterpret_cast<uint4 *>(step.channels + (bytes - offset));
    for (int i = blockIdx.x * consumers + threadIdx.x; i < (int)(bytes / 16);
         i += (int)gridDim.x * consumers)
      __stcg(old + i, uint4{});
    if (threadIdx.x < ranks)
      __stcg(choiceCopy<C>(step, (epoch + 1) % 3, threadIdx.x) + blockIdx.x, 0ull);

    if (spare) {
      // The residual only, at leisure.
      embed(embedding, past + s);
#pragma unroll 1
      for (int half = 1; half < 2 * layers; half++)
        receive<true>(shared.records.record[half].template as<HalfRecord>());
      turn += layers;
      sync<3, warps>();
      if (threadIdx.x == 0)
        persistent::fence(); // see below
    }
#pragma unroll 1
    for (int layer = spare ? layers : 0; layer < layers; layer++) {
      const HeadRecord<Words> &head =
          shared.records.record[1 + 2 * layer].template as<HeadRecord>();
      const HalfRecord<Words> &attends = head.half,
                              &half =
                                  shared.records.record[2 + 2 * layer].template as<HalfRecord>();
      {
        refresh();
        const Constants ofQ = constants(attends.first, cluster * headDim + 2 * lane);
        const float2 outScales = secondScales(attends, min(outTile(), outTiles - 1));
        const FirstTiles<L::headRows> weights(*this, shared.head, AtHead);
        int position = past + s;
        asm volatile("" : "+r"(position)); // what follows from it would be kept over the layers
        const Keys<C> k(position, rank);
        HeadTiles tiles;
        if (roomy)
          loadHead(k, L::headSlots, tiles);
        loadGain<C::Gain>(attends.first, gain);
        if (layer == 0)
          embed(embedding, past + s);
        else
          receive(shared.records.record[2 * layer].template as<HalfRecord>());
        store<C::Gain>(gain);
        sync<1, warps + 1>();
        weights.multiply(*this);
        refresh();
        attention(head, position, k, ofQ, outScales, tiles);
      }
      // What the block has cleared comes before its choice. Here the first warp has time for that.
      if (layer == 0 && threadIdx.x == 0)
        persistent::fence();
      {
        refresh();
        const Constants ofHidden =
            constants(half.first, cluster * L::hidden + min(2 * thread, L::hidden - 2));
        const float outScale = outputScale(half);
        const OutputWords words(*this);
        const FirstTiles<L::hidden> weights(*this, shared.mlp, AtMlp);
        loadGain<C::Gain>(half.first, gain);
        receive(attends);
        store<C::Gain>(gain);
        sync<1, warps + 1>();
        weights.multiply(*this);
        refresh();
        mlp(half, ofHidden, outScale, words);
      }
      turn++;
    }
    loadGain<C::FinalGain>(last.first, gain);
    receive(shared.records.record[2 * layers].template as<HalfRecord>());
    store<C::FinalGain>(gain);
    sync<1, warps + 1>();
    refresh();
    if constexpr (roomy)
      vocabularyOfDigits(last);
    else
      vocabulary(last);
    sync<1, warps + 1>();
    advance(groupCount<C>());
    choose(step, embedding, epoch % 3);
    if (thread == 0) {
      shared.chosen.arrive();
      if (blockIdx.x == 0) {
        step.next[0] = token;
        if constexpr (!isPaged<C>) {
          step.tokens[(i64)(*step.stepIndex + s) * step.batch] = token;
          if (s + 1 == steps) {
            step.ids[0] = token;
            step.past[0] = past + steps;
          }
        }
      }
    }
    epoch = (epoch + 1) % 6;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    if constexpr (!isPaged<C>)
      *step.stepIndex += steps;
    *epochWord = epoch;
  }
}

/// The helper's share: statistics, and slots that all have read.
template <typename C> __device__ __forceinline__ void Step<C>::help(int layers, int steps) {
  const StepRecord<Words> &step = shared.records.step();
  const int past = step.past[0];
  const bool spare = (int)blockIdx.x >= ranks * C::Heads;
  // Slots of an MLP that are read behind its barrier.
  const int late = spare || roomy ? 0 : L::outputSlots + (halves ? 0 : L::hiddenSlots - warps / 4);
#pragma unroll 1
  for (int s = 0; s < steps; s++) {
    const Keys<C> k(past + s, rank);
#pragma unroll 1
    for (int layer = spare ? layers : 0; layer < layers; layer++) {
      sync<1, warps + 1>();
      sendStatistics<C::Gain>(shared.head.statistics, shared.arrived[AtHead], C::Norm);
      release((layer > 0 ? late : 0) + L::headSlots + (roomy ? k.slots : 0));
      sync<2, warps + 1>();
      release(roomy ? 0 : k.slots);
      sync<1, warps + 1>();
      sendStatistics<C::Gain>(shared.mlp.statistics, shared.arrived[AtMlp], C::Norm);
      // Of the values' slots the next copies come behind what append() has stored there.
      release(k.slots + L::projectionSlots + L::hiddenSlots + L::outputSlots - late);
      turn++;
    }
    sync<1, warps + 1>();
    sendStatistics<C::FinalGain>(shared.whole.statistics, shared.arrived[AtWhole], C::FinalNorm);
    release(late);
    sync<1, warps + 1>();
    advance(groupCount<C>());
    sync<1, warps + 1>();
  }
}

template <typename C>
__device__ __forceinline__ void run(void *memory, const Record *records, int count) {
  using L = Layout<C>;
  Shared<C> &shared = *reinterpret_cast<Shared<C> *>(memory);
  Step<C> step{{}, shared};
  for (int i = threadIdx.x; i < count * persistent::recordWords; i += L::threads)
    reinterpret_cast<u64 *>(shared.records.record)[i] = reinterpret_cast<const u64 *>(records)[i];
  for (int i = threadIdx.x; i < keyTile * L::warps; i += L::threads) {
    shared.weights[i] = fromFloat<typename C::T>(0.0f);
    shared.tops[i / keyTile] = -1e30f;
  }
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::Slots; i++) {
      shared.full[i].init(32);
      shared.empty[i].init(1);
    }
    shared.chosen.init(1);
    const int bytes[4] = {ranks * (L::headRows * 4 + 8), ranks * (L::hidden * 4 + 8), L::partBytes,
                          C::D * (int)sizeof(typename C::T) + ranks * 8};
    for (int i = 0; i < 4; i++) {
      shared.arrived[i].init(1);
      shared.arrived[i].expect(bytes[i]);
    }
    fenceBarrierInit();
  }
  __syncthreads();
  const StepRecord<Words> &last = shared.records.record[count - 1].template as<StepRecord>();
  if (threadIdx.x == 0)
    shared.id = last.ids[0];
  if constexpr (isPaged<C>)
    loadPages<C>(shared.pages, last, 0);
  if constexpr (roomy<C>)
    step.loadConstants(shared.records.record[count - 2].template as<VocabularyRecord>().first);
  clusterBarrier();
  const int layers = (count - 3) / 2, steps = last.steps;
  if (threadIdx.x < 32 * L::warps) {
    claimRegisters<144>();
    step.compute(layers, steps);
  } else {
    releaseRegisters<80>();
    if (threadIdx.x < 32 * L::loader)
      step.help(layers, steps);
    else
      Stream<C>{{}, shared}.run(layers, steps);
  }
  __syncwarp();
  clusterBarrier(); // none ends while others send to it
}
#endif

} // namespace gpt2c::clusters
