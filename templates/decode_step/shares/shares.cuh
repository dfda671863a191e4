// One kernel that runs whole decode steps of one sequence, of any number of heads and any
// width, in thread block clusters of 1 to 8 blocks.
//
// A layer is two halves, each two products: queries, keys and values, and the output projection;
// both products of the MLP. A cluster computes one head of the first half, if there is one for it,
// and a share of the hidden columns of the second; the order of a half is that of
// clusters/clusters.cuh:
//
//   receive  block r of every cluster adds up slice r of the columns of x out of the partial sums
//            that all clusters have published, and the residual, which stays with it
//   first    it multiplies this slice by those columns of the cluster's rows of the first product,
//            and sends the sums to all blocks of its cluster
//   middle   every block adds up what the blocks sent: all of q, k, v or of the hidden columns. Of
//            a head it attends to its share of the keys, and the parts of attention go to all
//            blocks again
//   second   it multiplies what the cluster has by the rows of its slice of the second product and
//            publishes the partial sums
//
// What differs from clusters of twelve heads is that nothing has to divide anything else: the last
// slice may have fewer columns, shares differ by 16, clusters without a head only follow the
// residual in the first half, and weights are multiplied out of the ring, as many as there are.
// How a shape is divided: shares.h; which division a plan has: SharesDivision.cpp.
//
// Memory that blocks send to is written again only after the sender has had something that its
// reader sent later, if by way of other clusters: the reader's next publish is the release that
// reuse acquires.
//
// Three warps stream the weights and the keys, whose order is known, through a ring of slots and
// never wait for anything else but, where the vocabulary is small, the choice. A slot of weights is
// read by those warps whose tiles it has, each of which arrives at its barrier, `arrivals` times in
// all.
//
// Partial sums are channels as in stages/stages.cuh: a word that is zero is not written yet.
//
// Config: SharesConfig. Grid: Ranks times LeastClusters to Clusters blocks, all resident at once.
// Block: shares::threads; dynamic shared: that of Shared<C>. For sm_90a.
#pragma once

#include "templates/decode_step/shares/groups.cuh"
#include "templates/decode_step/shares/stream.cuh"
#include "templates/decode_step/shares/vocabulary.cuh"

namespace gpt2c::shares {
#if __CUDA_ARCH__ >= 900

template <typename C> __device__ __forceinline__ void Step<C>::compute(int steps) {
  constexpr int consumers = warps * 32, layers = Shared<C>::layers;
  const StepRecord<Words> &step = shared.step();
  const ClusterEmbedRecord<Words> &embedding = shared.embedding();
  const VocabularyRecord<Words> &last = shared.vocabulary();
  unsigned *const epochWord = reinterpret_cast<unsigned *>(blockChoices(step, 3));
  unsigned epoch = __ldcg(epochWord);
  const int past = step.past[0];
  token = shared.id;
  float2 gain[L::passes];
  if constexpr (C::Members > 1)
    Member<C>::begin(exchangeOf<C>(shared));
  if constexpr (isPaged<C>)
    if (mayRelease())
      releaseSuccessor(); // all blocks run: it may have multiprocessors that are left
  for (int s = 0; s < steps; s++) {
    if constexpr (C::Members == 1) {
      const u64 bytes = step.channelBytes;
      offset = epoch % 2 * bytes;
      // What the step before used, and the choice of the one before that.
      uint4 *const old = reinterpret_cast<uint4 *>(step.channels + (bytes - offset));
      for (int i = blockIdx.x * consumers + threadIdx.x; i < (int)(bytes / 16);
           i += (int)gridDim.x * consumers)
        __stcg(old + i, uint4{});
      if (threadIdx.x < ranks)
        __stcg(choiceCopy(step, (epoch + 1) % 3, threadIdx.x) + blockIdx.x, 0ull);
    }
    if constexpr (C::Rotary > 0)
      noteAngles(embedding, past + s);
#pragma unroll 1
    for (int layer = 0; layer < layers; layer++) {
      refresh();
      const HeadRecord<Words> &head = shared.headOf(layer);
      const HalfRecord<Words> &half = shared.mlpOf(layer);
      Constants ofQ[L::pairs];
#pragma unroll
      for (int p = 0; p < L::pairs; p++)
        if (!L::grouped && place.hasHead)
          ofQ[p] = constants(head.half.first,
                             place.cluster * C::HeadDim + min(2 * (lane + 32 * p), C::HeadDim - 2));
      if (place.hasHead)
        loadGain<C::Gain>(head.half.first, gain);
      this->mark(layer, Mark::layer);
      const unsigned n = epoch * layers + layer;
      enterLayer(n - 1);
      if (layer == 0)
        embed(embedding, past + s);
      else
        receive<C::Clusters>(shared.mlpOf(layer - 1), place.clusters);
      this->mark(layer, Mark::x_received);
      noteReceived();
      enterLayer(n);
      if (place.hasHead) {
        store(gain);
        sync<1, warps + 1>();
        refresh();
        first<typename L::Head>(shared.head, AtHead, L::Head::tiles);
        note(Mark::heads_multiplied, Mark::heads_multiplied_waited);
        const Keys<C> k(past + s, place.rank);
        if constexpr (L::grouped)
          attentionOfGroup(head, k, past + s);
        else
          attention(head, k, past + s, ofQ);
      }
      refresh();
      const Constants ofHidden = constants(
          half.first,
          L::hiddenRows * (place.hidden.begin + min(2 * (int)threadIdx.x, place.hidden.count - 2)));
      loadGain<C::Gain>(half.first, gain);
      receive<L::busy>(head.half, L::busy);
      note(Mark::attention_received);
      store(gain);
      sync<1, warps + 1>();
      refresh();
      first<typename L::Hidden>(shared.mlp, AtMlp, place.hiddenTiles);
      note(Mark::mlp_multiplied, Mark::mlp_multiplied_waited);
      mlp(half, ofHidden);
      if constexpr (C::Members == 1) {
        // What the block has cleared comes before its choice.
        if (layer == 0 && threadIdx.x == 0)
          persistent::fence();
      }
      turn++;
    }
    refresh();
    loadGain<C::FinalGain>(last.first, gain);
    receive<C::Clusters>(shared.mlpOf(layers - 1), place.clusters);
    this->mark(layers, Mark::last_x_received);
    store(gain);
    sync<1, warps + 1>();
    vocabulary(last, s);
    this->mark(layers, Mark::vocabulary_multiplied);
    this->markWaited(layers, Mark::vocabulary_multiplied_waited);
    if constexpr (C::Members > 1)
      chooseOfMembers(step, epoch);
    else
      choose(step, epoch % 3);
    this->mark(layers, Mark::chosen);
    if (threadIdx.x == 0) {
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
    epoch = (epoch + 1) % (C::Members == 1 ? 6 : 4);
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    if constexpr (!isPaged<C>)
      *step.stepIndex += steps;
    *epochWord = epoch;
    if constexpr (C::Members > 1)
      Member<C>::end();
  }
}

/// The helper's share: statistics, and the new token.
template <typename C> __device__ __forceinline__ void Step<C>::help(int steps) {
  const int past = shared.step().past[0];
#pragma unroll 1
  for (int s = 0; s < steps; s++) {
    const Keys<C> k(past + s, place.rank);
#pragma unroll 1
    for (int layer = 0; layer < Shared<C>::layers; layer++) {
      if (place.hasHead) {
        sync<1, warps + 1>();
        sendStatistics(shared.head.statistics[0], AtHead, C::Norm);
        if constexpr (L::grouped)
          groupToNew(shared.headOf(layer), k, past + s);
        else
          attendToNew(shared.headOf(layer), k, past + s);
        sync<2, warps + 1>();
      }
      sync<1, warps + 1>();
      sendStatistics(shared.mlp.statistics[0], AtMlp, C::Norm);
      turn++;
    }
    sync<1, warps + 1>();
    sendStatistics(shared.whole.statistics, AtWhole, C::FinalNorm);
  }
}

template <typename C>
__device__ __forceinline__ void run(void *memory, const Record *records, int count) {
  Shared<C> &shared = placed<Shared<C>>(memory);
  for (int i = threadIdx.x; i < count * persistent::recordWords; i += threads)
    reinterpret_cast<u64 *>(shared.records)[i] = reinterpret_cast<const u64 *>(records)[i];
  // Operands have zeros behind the last column.
  for (int i = threadIdx.x; i < Layout<C>::Head::operand; i += threads)
    shared.x[i] = fromFloat<typename C::T>(0.0f);
  for (int i = threadIdx.x; i < Layout<C>::Logits::operand; i += threads)
    shared.whole.x[i] = fromFloat<typename C::T>(0.0f);
  if constexpr (Layout<C>::grouped)
    for (int i = threadIdx.x; i < Layout<C>::Projection::operand; i += threads)
      shared.attended[i] = fromFloat<typename C::T>(0.0f);
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::Slots; i++) {
      shared.full[i].init(32);
      shared.empty[i].init(arrivals);
    }
    shared.chosen.init(1);
    shared.received = 0;
    for (int i = 0; i < 4; i++) {
      shared.arrived[i].init(1);
      shared.arrived[i].expect(Place<C>().bytesOf(i));
    }
    fenceBarrierInit();
  }
  __syncthreads();
  const StepRecord<Words> &last = shared.step();
  if (threadIdx.x == 0)
    shared.id = last.ids[0];
  loadPages<C>(shared.pages, last, 0);
  notePeers<C>(shared);
  __syncthreads();
  clusterBarrier();
  const int steps = last.steps, warp = threadIdx.x / 32;
  static_assert(warps % 4 == 0 && (helpers + loaders) % 4 == 0); // whole warpgroups
  if (warp < warps) {
    claimRegisters<144>();
    Step<C>{{}, {}, {}, shared}.compute(steps);
  } else {
    releaseRegisters<80>();
    if (warp < warps + helpers)
      Step<C>{{}, {}, {}, shared}.help(steps);
    else
      Stream<C>{{}, shared}.run(steps);
  }
  __syncwarp();
  clusterBarrier(); // none ends while others send to it
}
#endif
} // namespace gpt2c::shares
