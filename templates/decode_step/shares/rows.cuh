// One kernel that runs whole decode steps of 2 to 8 sequences, or of 9 to 16, in thread block
// clusters of eight blocks: shares/shares.cuh for several sequences.
//
// Sixteen rows of weights times eight sequences are one instruction, so products are those of one
// sequence; of 16 sequences two instructions have the same weights. What differs:
//
//   receive  partial sums are two-byte floats: two columns of two sequences are 8 bytes
//   first    sums of sequence n go to block n mod 8 of the cluster
//   middle   that block alone finishes its hidden columns, the result goes to all blocks of the
//            cluster; attention is described below
//   second   the block's rows times what the cluster has of all sequences
//
// A cluster has some heads that share keys, or some groups of such. Where there are more clusters
// than that, RowParts of them have the same heads, each for a part of the sequences: it makes their
// q, k and v alone, attends, and publishes their partial sums. Sequence n of R such is that of
// block n; of 16 a block has two, of fewer than eight 8 / R blocks share the keys of each, by tiles
// in turn. These send what they have with maximum and sum of its scores, and every block merges the
// parts.
//
// Fewer sequences are repeated; a sequence beyond the batch has no keys and stores none.
//
// Config: SharesConfig with Rows == 8 or 16, Ranks == 8. Grid, block and shared memory: as there.
#pragma once

#include "templates/decode_step/shares/rows_attention.cuh"
#include "templates/decode_step/shares/rows_stream.cuh"
#include "templates/decode_step/shares/rows_vocabulary.cuh"

namespace gpt2c::shares {
#if __CUDA_ARCH__ >= 900

template <typename C> __device__ __forceinline__ void RowsStep<C>::compute(int steps) {
  constexpr int layers = M::layers;
  const StepRecord<Words> &step = shared.step();
  const VocabularyRecord<Words> &last = shared.vocabulary();
  unsigned *const epochWord = reinterpret_cast<unsigned *>(blockChoices(step, 3));
  unsigned epoch = __ldcg(epochWord);
  if constexpr (C::Members > 1)
    Member<C>::begin(exchangeOf<C>(shared));
  if constexpr (isPaged<C>)
    if (Base::mayRelease())
      releaseSuccessor(); // all blocks run: it may have multiprocessors that are left
  for (int s = 0; s < steps; s++) {
    if constexpr (C::Members == 1) {
      const u64 bytes = step.channelBytes;
      offset = epoch % 2 * bytes;
      // What the step before used, and the choices of the one before that.
      uint4 *const old = reinterpret_cast<uint4 *>(step.channels + (bytes - offset));
      for (int i = blockIdx.x * consumers + threadIdx.x; i < (int)(bytes / 16);
           i += (int)gridDim.x * consumers)
        __stcg(old + i, uint4{});
      if (threadIdx.x < rows)
        __stcg(choiceCopy<rows>(step, (epoch + 1) % 3, threadIdx.x) + blockIdx.x, 0ull);
    }
    if constexpr (C::Rotary > 0)
      ofOwnRows(
          [&](int sequence) { Base::noteAngles(shared.embedding(), shared.past[sequence] + s); });
#pragma unroll 1
    for (int layer = 0; layer < layers; layer++) {
      refresh();
      const HeadRecord<Words> &head = shared.headOf(layer);
      const HalfRecord<Words> &half = shared.mlpOf(layer);
      Gains gain = {};
      Constants ofQ = {};
      if (place.hasHead) {
        gain = rowGains<C::Gain>(head.half.first);
        ofQ = constantsOfQ(head);
      }
      this->mark(layer, Mark::layer);
      const unsigned n = epoch * layers + layer;
      Base::enterLayer(n - 1);
      if (layer == 0)
        embedRows(shared.embedding(), s);
      else
        receiveRows<C::Clusters>(shared.mlpOf(layer - 1), place.clusters);
      this->mark(layer, Mark::x_received);
      Base::noteReceived();
      Base::enterLayer(n);
      if (place.hasHead) {
        storeRows(gain);
        Base::template sync<1, warps + 1>();
        refresh();
        firstOfHeads();
        Base::note(Mark::heads_multiplied, Mark::heads_multiplied_waited);
        attentionOfRows(head, s, ofQ);
      }
      refresh();
      const Constants ofHidden = constants(
          half.first,
          L::hiddenRows * (place.hidden.begin + min(2 * (int)threadIdx.x, place.hidden.count - 2)));
      gain = rowGains<C::Gain>(half.first);
      receiveRows<L::headGroups>(head.half, L::headGroups);
      Base::note(Mark::attention_received);
      storeRows(gain);
      Base::template sync<1, warps + 1>();
      refresh();
      firstOfMlp();
      Base::note(Mark::mlp_multiplied, Mark::mlp_multiplied_waited);
      mlpOfRows(half, ofHidden);
      if constexpr (C::Members == 1) {
        // What the block has cleared comes before its choice.
        if (layer == 0 && threadIdx.x == 0)
          persistent::fence();
      }
      turn++;
    }
    refresh();
    const Gains gain = rowGains<C::FinalGain>(last.first);
    receiveRows<C::Clusters>(shared.mlpOf(layers - 1), place.clusters);
    this->mark(layers, Mark::last_x_received);
    storeRows(gain);
    Base::template sync<1, warps + 1>();
    vocabularyOfRows(last, s);
    this->mark(layers, Mark::vocabulary_multiplied);
    this->markWaited(layers, Mark::vocabulary_multiplied_waited);
    if constexpr (C::Members > 1)
      chooseRowsOfMembers(step, epoch);
    else
      chooseRows(step, epoch % 3);
    this->mark(layers, Mark::chosen);
    if (threadIdx.x == 0)
      shared.chosen.arrive();
    const int row = threadIdx.x;
    if (blockIdx.x == 0 && row < this->batch()) {
      const int id = shared.id[row];
      step.next[row] = id;
      if constexpr (!isPaged<C>) {
        step.tokens[(i64)(*step.stepIndex + s) * this->batch() + row] = id;
        if (s + 1 == steps) {
          step.ids[row] = id;
          step.past[row] = shared.past[row] + steps;
        }
      }
    }
    epoch = (epoch + 1) % (C::Members == 1 ? 6 : 4);
  }
  Base::template sync<3, warps>(); // *stepIndex has been read
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    if constexpr (!isPaged<C>)
      *step.stepIndex += steps;
    *epochWord = epoch;
    if constexpr (C::Members > 1)
      Member<C>::end();
  }
}

/// The helper's share: statistics, and the new tokens.
template <typename C> __device__ __forceinline__ void RowsStep<C>::help(int steps) {
#pragma unroll 1
  for (int s = 0; s < steps; s++) {
#pragma unroll 1
    for (int layer = 0; layer < M::layers; layer++) {
      if (place.hasHead) {
        Base::template sync<1, warps + 1>();
        sendHeadStatistics();
        persistent::barrierWait(shared.arrived[AtHead], turn & 1);
        __syncwarp();
        ofOwnRows([&](int sequence) {
          newToken(shared.headOf(layer), sequence, shared.past[sequence] + s);
        });
        Base::template sync<2, warps + 1>();
      }
      Base::template sync<1, warps + 1>();
      sendMlpStatistics();
      turn++;
    }
    Base::template sync<1, warps + 1>();
    sendWholeStatistics();
  }
}

template <typename C>
__device__ __forceinline__ void runRows(void *memory, const Record *records, int count) {
  using M = RowsShared<C>;
  M &shared = placed<M>(memory);
  // Operands have zeros behind the last column.
  char *const begin = reinterpret_cast<char *>(&shared.head);
  const int left = (int)sizeof(M) - (int)(begin - reinterpret_cast<char *>(memory));
  for (int i = threadIdx.x; i < left / 4; i += threads)
    reinterpret_cast<unsigned *>(begin)[i] = 0;
  for (int i = threadIdx.x; i < count * persistent::recordWords; i += threads)
    reinterpret_cast<u64 *>(shared.records)[i] = reinterpret_cast<const u64 *>(records)[i];
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int i = 0; i < C::Slots; i++) {
      shared.full[i].init(32);
      shared.empty[i].init(arrivals);
    }
    shared.chosen.init(1);
    shared.received = 0;
    for (int i = 0; i < Arrivals; i++) {
      shared.arrived[i].init(1);
      shared.arrived[i].expect(Place<C>().bytesOf(i));
    }
    fenceBarrierInit();
  }
  const StepRecord<Words> &last = shared.step();
  if (threadIdx.x < C::Rows) {
    const int sequence = min((int)threadIdx.x, last.batch - 1);
    shared.id[threadIdx.x] = last.ids[sequence];
    shared.past[threadIdx.x] = last.past[sequence];
  }
  for (int i = 0; i < M::ownRows; i++)
    loadPages<C>(shared.pages[i], last, min(Place<C>().ownRow(i), last.batch - 1));
  notePeers<C>(shared);
  __syncthreads();
  clusterBarrier();
  const int steps = last.steps, warp = threadIdx.x / 32;
  if (warp < warps) {
    claimRegisters<144>();
    RowsStep<C>{{{}, {}, {}, shared}}.compute(steps);
  } else {
    releaseRegisters<80>();
    if (warp < warps + helpers)
      RowsStep<C>{{{}, {}, {}, shared}}.help(steps);
    else
      RowsStream<C>{{{}, shared}}.run(steps);
  }
  __syncwarp();
  clusterBarrier(); // none ends while others send to it
}
#endif
} // namespace gpt2c::shares
