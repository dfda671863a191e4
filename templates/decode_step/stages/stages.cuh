// One kernel that runs whole decode steps: stages, the channels between them, streamed weights.
//
// One block per multiprocessor runs every stage of the step in order and computes those units of it
// that are its own; a block without a unit skips the stage. No barrier orders the stages. What a
// stage computes goes through a channel: memory in which a 32-bit word that is not written yet is
// zero, so a consumer reads the words it needs until none of them is zero. A zero that was computed
// is stored as -0. A channel is written in groups of 16 bytes, each by one store that is seen as a
// whole, so one word of a group tells of all. In a group of fp16 words 1 and 2 are exchanged: so it
// is an operand of mma as it is (stages/products.cuh). Every channel exists twice; steps use
// them in turn, and each step clears what the step before used.
//
// The greedy choice ends a step: every block publishes the best of its own logits and reads those
// of all others. So a block that has begun a step knows that every other has ended the one before.
//
// `warps` warps compute; what they have of a result meets in shared memory, where Finishers more
// warps add it up and publish it, while the first go on to the next stage. One more warp streams
// the weights of this block's units, in the order of the stages, into a ring of slots in shared
// memory. It waits for free slots only: weights keep coming while the other warps wait for a
// channel. No more than Window slots are on their way at once: more would not come sooner, and what
// the channels carry would wait behind them.
//
// All blocks wait for the same few lines of a channel, which its memory answers one after the
// other, and a store to them in its turn. So there are Copies of every channel; a block reads one.
//
// A stage is described by a record, which begins with a Stage (records.h); the last one is the
// StepRecord.
//
// Config of a kernel: BlocksConfig (configs.def). Grid: one block per multiprocessor, all resident
// at once (a cooperative launch); blocks beyond maxBlocks end at once. Block: Layout<C>::threads;
// dynamic shared: Layout<C>::bytes. From sm_90 on.
#pragma once

#include "templates/decode_step/stages/block.cuh"

namespace gpt2c::persistent {
#if __CUDA_ARCH__ >= 900

/// The warp that fills the ring. Of a stage without weights prefetch(block, stage) may bring into
/// L2 what it will read.
template <typename C, typename Prefetch>
__device__ void streamWeights(Block<C> &block, int count, int steps, Prefetch &&prefetch) {
  const int lane = threadIdx.x % 32;
  RingPlace<C::Slots> behind; // the slot Window before the next one
  unsigned issued = 0;
  for (int step = 0; step < steps; step++) {
    for (int s = 0; s < count; s++) {
      const Record &record = block.record(s);
      const Stage<Words> &stage = record.as<Stage>();
      const int units = stage.units.count();
      const char *weights = stage.weights;
      if (weights == nullptr) {
        prefetch(block, record);
        continue;
      }
      const int rowBytes = stage.rowBytes, chunkBytes = stage.chunk.low(),
                pitch = stage.chunk.high(), round = stage.kind.high();
      for (int first = stage.units.first(); first < units; first += round * block.blocks)
        for (int at = 0; at < rowBytes; at += chunkBytes)
          for (int i = 0; i < round && first + i * block.blocks < units; i++) {
            const int row = (first + i * block.blocks) * unitRows;
            const int rows = min(unitRows, stage.rows - row);
            if (issued < C::Window) {
              issued++;
            } else {
              barrierWaitLong(block.full(behind.slot), behind.lap);
              behind.next();
            }
            barrierWaitLong(block.empty(block.slot), block.lap ^ 1);
            if (lane == 0)
              block.full(block.slot).expect(rows * chunkBytes);
            __syncwarp();
            if (lane < rows)
              copyBulk(block.ring(block.slot) + lane * pitch,
                       weights + (i64)(row + lane) * rowBytes + at, chunkBytes,
                       block.full(block.slot));
            block.next();
          }
    }
  }
}

/// u64[Rows][maxBlocks] behind the channels: the best logit of each row that each block has.
template <typename C>
__device__ __forceinline__ u64 *choices(const StepRecord<Words> &step, unsigned third) {
  return reinterpret_cast<u64 *>(step.channels + 2 * step.channelBytes) +
         third * (C::Rows * maxBlocks);
}
template <typename C>
__device__ __forceinline__ unsigned *epochWord(const StepRecord<Words> &step) {
  return reinterpret_cast<unsigned *>(choices<C>(step, 3));
}

/// Clears the channels that the step before used, and the choice of the one before that.
template <typename C>
__device__ void clearChannels(const Block<C> &block, const StepRecord<Words> &step) {
  const u64 bytes = step.channelBytes;
  uint4 *channels = reinterpret_cast<uint4 *>(step.channels + (bytes - block.channelOffset));
#pragma unroll 1
  for (int i = blockIdx.x * Layout<C>::consumers + threadIdx.x; i < (int)(bytes / 16);
       i += block.blocks * Layout<C>::consumers)
    __stcg(channels + i, uint4{});
  if (threadIdx.x < C::Rows)
    __stcg(choices<C>(step, (block.epoch + 1) % 3) + threadIdx.x * maxBlocks + blockIdx.x, 0ull);
}

/// The end of a step: the choice of all blocks becomes the token of the next step.
template <typename C>
__device__ void choose(Block<C> &block, const StepRecord<Words> &step, int index, bool last) {
  const int lane = threadIdx.x % 32, batch = step.batch;
  block.sync();
#pragma unroll 1
  for (int row = threadIdx.x / 32; row < C::Rows; row += Layout<C>::consumers / 32) {
    u64 *keys = choices<C>(step, block.epoch % 3) + row * maxBlocks;
    if (lane == 0) {
      // What this block did in the step, of which others read the KV state, comes before.
      fence();
      publishPair(keys + blockIdx.x, max(block.best[row], 1ull)); // 1: less than that of any logit
    }
    const u64 best = largestOfRow(keys, block.blocks);
    if (lane == 0) {
      const int id = greedyToken(best);
      block.ids[row] = id;
      block.past[row] += 1;
      if (blockIdx.x == 0 && row < batch) {
        step.next[row] = id;
        step.tokens[(i64)(*step.stepIndex + index) * batch + row] = id;
        if (last) {
          step.ids[row] = id;
          step.past[row] = block.past[row];
        }
      }
    }
  }
  block.sync();
}

/// Runs the step as often as its record says; body(block, stage) computes the block's units of a
/// stage.
template <typename C, typename Body, typename Prefetch>
__device__ __forceinline__ void run(void *shared, const Record *records, int count, Body &&body,
                                    Prefetch &&prefetch) {
  __shared__ int ids[C::Rows], past[C::Rows];
  __shared__ u64 best[C::Rows];
  if (blockIdx.x >= maxBlocks)
    return;
  Block<C> block;
  block.shared = (char *)shared;
  block.blocks = min((int)gridDim.x, maxBlocks);
  block.ids = ids;
  block.past = past;
  block.best = best;
  for (int i = threadIdx.x; i < count * recordWords; i += Layout<C>::threads)
    reinterpret_cast<u64 *>(block.shared + Layout<C>::records)[i] =
        reinterpret_cast<const u64 *>(records)[i];
  for (int i = threadIdx.x; i < C::Slots; i += Layout<C>::threads) {
    block.full(i).init(1);
    block.empty(i).init(warps);
  }
  fenceBarrierInit();
  __syncthreads();
  const StepRecord<Words> &step = block.record(count - 1).template as<StepRecord>();
  block.copyBytes = step.copyBytes;
  const int steps = step.steps;
  if (threadIdx.x < C::Rows) {
    const int row = min((int)threadIdx.x, step.batch - 1);
    best[threadIdx.x] = 0;
    ids[threadIdx.x] = step.ids[row];
    past[threadIdx.x] = step.past[row];
  }
  if (threadIdx.x == 0) {
    int base = 0;
    for (int s = 0; s < count; s++) {
      Words::Units &word = const_cast<Record &>(block.record(s)).template as<Stage>().units;
      const int units = word.count(), first = (int)blockIdx.x - base;
      word.setFirst(first < 0 ? first + block.blocks : first);
      base = (base + units) % block.blocks;
    }
  }
  block.epoch = __ldcg(epochWord<C>(step));
  __syncthreads();
  if (threadIdx.x >= Layout<C>::consumers)
    return streamWeights(block, count - 1, steps, prefetch);
  for (int i = 0; i < steps; i++) {
    block.channelOffset = block.epoch % 2 * step.channelBytes;
    clearChannels(block, step);
#pragma unroll 1
    for (int s = 0; s < count - 1; s++)
      body(block, block.record(s));
    choose(block, step, i, i + 1 == steps);
    block.epoch = (block.epoch + 1) % 6;
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    *step.stepIndex += steps;
    *epochWord<C>(step) = block.epoch;
  }
}
#endif

} // namespace gpt2c::persistent
