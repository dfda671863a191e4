// linear as a stage of a persistent kernel:
//   y[N] = activate(norm(x)[K] * W[N,K]^T + bias) + residual
//
// A unit is eight columns of y. Each warp receives its slice of x from the channel straight into
// registers and multiplies it by its slice of the rows of W, which come through the ring in chunks
// of Chunk elements. The warps' sums meet in shared memory behind one barrier; a thread of the
// finishing warps adds up those of two neighbouring columns and publishes them with its
// neighbours'.
//
// The norm is not computed ahead of the product, whose operands would have to wait for the sums of
// all of x, but with it: with gain g, shift s, mean m and r = 1 / sqrt(variance + epsilon),
//   norm(x) W^T + bias = r ((x g) W^T - m c) + b',  c = g W^T,  b' = bias + s W^T,
// where c and b' are constants (for int8 weights c has no scales yet). A gain of fp16 is scaled by
// a power of two so that x g stays in range; NormScale undoes it.
//
// x is a channel, or the parts of attention over Splits ranges of keys: those are further rows of
// x, weighted as they are received, whose products are added up.
//
// Config: LinearStageConfig. Record: LinearRecord, of logits LogitsRecord. Units: ceil(N / 8).
// Bytes: N K sizeof(W); flops: 2 Rows N K.
#pragma once

#include "templates/decode_step/common/config.cuh"
#include "templates/decode_step/stages/products_floats.cuh"
#include "templates/decode_step/stages/products_halves.cuh"
#include "templates/tokens/token_ops.cuh"

namespace gpt2c::persistent {

#if __CUDA_ARCH__ >= 900

/// The record of a linear of this form.
template <typename C> __device__ __forceinline__ const auto &linearRecord(const Record &record) {
  if constexpr (C::Logits)
    return record.as<LogitsRecord>();
  else
    return record.as<LinearRecord>();
}

/// Units of a round that begins with `unit`.
template <typename C, typename B>
__device__ __forceinline__ int unitsOfRound(const B &block, int unit, int units) {
  int count = 1;
#pragma unroll
  for (int i = 1; i < C::Tiles; i++)
    count += unit + i * block.blocks < units;
  return count;
}

/// The part of the warps that multiply.
template <typename C, typename B, typename R>
__device__ __forceinline__ void multiplyStage(B &block, const R &linear) {
  using T = typename C::T;
  using P = Pieces<C>;
  static_assert(C::Tiles * P::chunks <= minInt(32, B::Config::Slots));
  static_assert(Sums<C>::bytes <= B::Config::ReduceBytes);
  const int units = linear.stage.units.count();
  int unit = linear.stage.units.first();
  if (unit >= units)
    return;
  Slice<C, T> x;
  if constexpr (C::Gain)
    x.prepare(linear.terms.gain.template as<const T>());
  int count;
  unsigned rows[P::chunks][C::Tiles];
  // Of units that are not there the first is multiplied again.
  auto beginRound = [&] {
    count = unitsOfRound<C>(block, unit, units);
#pragma unroll
    for (int c = 0; c < P::chunks; c++)
#pragma unroll
      for (int u = 0; u < C::Tiles; u++)
        rows[c][u] = sharedAddress(block.ring(block.slotAt(c * count + (u < count ? u : 0)))) +
                     threadIdx.x % 32 / 4 * linear.stage.chunk.high();
    block.waitSlots(count * P::chunks);
  };
  beginRound();
  Sums<C> sums{block.nextSums()};
  x.receive(block.template channel<T>(linear.x),
            C::Splits > 1 ? block.template channel<float>(linear.terms.maxima) : nullptr);
  x.template multiply<C::Norm != NormKind::None>(rows, sums);
#pragma unroll 1
  while (true) {
    block.sync();
    block.releaseSlots(count * P::chunks);
    unit += C::Tiles * block.blocks;
    if (unit >= units)
      return;
    beginRound();
    sums.memory = block.nextSums();
    x.template multiply<false>(rows, sums);
  }
}

/// The largest of the ofRow threads of a row is the block's best.
template <int OfRow, typename B>
__device__ __forceinline__ void noteBest(B &block, u64 best, int row, bool mine) {
  static_assert((OfRow & (OfRow - 1)) == 0 && OfRow <= 32);
#pragma unroll
  for (int offset = OfRow / 2; offset > 0; offset /= 2)
    best = max(best, __shfl_xor_sync(fullWarp, best, offset));
  if (mine && threadIdx.x % OfRow == 0)
    block.best[row] = best;
}

/// The part of the warps that finish: a thread has `passes` pairs of neighbouring columns of the
/// round's [Rows][Tiles][unitRows].
template <typename C, typename B, typename R>
__device__ __forceinline__ void finishStage(B &block, const R &linear) {
  using T = typename C::T;
  constexpr int finishers = Layout<typename B::Config>::finishers;
  constexpr int ofTile = unitRows / 2, ofRow = C::Tiles * ofTile, pairs = C::Rows * ofRow,
                passes = ceilDiv(pairs, finishers);
  static_assert(!(C::Residual && C::Logits));
  const int units = linear.stage.units.count(), n = linear.stage.rows;
  int unit = linear.stage.units.first();
  if (unit >= units)
    return;
  struct Pair {
    int index, row, column;
    bool mine;
    float2 bias, sums, scales;
    const unsigned *from;
    unsigned residual[sizeof(T) / 2];
  } pair[passes];
  u64 best[passes] = {};
  const Destination to = [&]() -> Destination {
    if constexpr (C::Logits)
      return {};
    else
      return block.destination(linear.y);
  }();
  Sums<C> ofInput{nullptr}; // later rounds leave the statistics of the first alone
#pragma unroll 1
  for (; unit < units; unit += C::Tiles * block.blocks) {
    const int count = unitsOfRound<C>(block, unit, units);
    // What is added is on its way while the others multiply.
#pragma unroll
    for (int i = 0; i < passes; i++) {
      Pair &p = pair[i];
      const int wanted = (int)threadIdx.x - multipliers + i * finishers;
      p.index = min(wanted, pairs - 1);
      p.row = p.index / ofRow;
      const int tile = p.index / ofTile % C::Tiles;
      p.mine = wanted < pairs && tile < count;
      p.column = (unit + (p.mine ? tile : 0) * block.blocks) * unitRows + p.index % ofTile * 2;
      // Weights end at multiples of more than 8 bytes.
      auto constants = [&](const float *of) {
        return loadEarly(of + min(p.column, (n - 1) / 2 * 2));
      };
      p.bias = C::Bias ? constants(linear.terms.bias) : float2{};
      p.sums = C::Norm == NormKind::Layer ? constants(linear.terms.sums) : float2{};
      if constexpr (Operand<typename C::W>::scaled)
        p.scales = constants(linear.terms.scales);
      if constexpr (C::Residual) {
        // Words 1 and 2 of a group of fp16 are exchanged.
        const int exchange = sizeof(T) == 4 ? 0 : p.index % 4 == 1 ? 2 : p.index % 4 == 2 ? -2 : 0;
        p.from = reinterpret_cast<const unsigned *>(block.template channel<T>(linear.residual) +
                                                    p.row * n + p.column + exchange);
#pragma unroll
        for (int j = 0; j < (int)sizeof(T) / 2; j++)
          p.residual[j] = loadWord(p.from + j);
      }
    }
    const Sums<C> sums{block.nextSums()};
    if (ofInput.memory == nullptr)
      ofInput = sums;
    const float epsilon = linear.terms.epsilon;
    block.sync();
#pragma unroll
    for (int i = 0; i < passes; i++) {
      Pair &p = pair[i];
      float2 part[warps];
#pragma unroll
      for (int w = 0; w < warps; w++)
        part[w] = reinterpret_cast<const float2 *>(sums.row(w, 0))[p.index];
      Moments moments = {1.0f, 0.0f};
      if constexpr (C::Norm != NormKind::None)
        moments = Slice<C, T>::moments(ofInput, p.row, epsilon);
      const float2 total = sumOf(part);
      float v[2] = {total.x, total.y};
      if constexpr (C::Norm != NormKind::None) {
        v[0] = (v[0] - moments.mean * p.sums.x) * (moments.scale * C::NormScale);
        v[1] = (v[1] - moments.mean * p.sums.y) * (moments.scale * C::NormScale);
      }
      if constexpr (Operand<typename C::W>::scaled) {
        v[0] *= p.scales.x;
        v[1] *= p.scales.y;
      }
      v[0] += p.bias.x;
      v[1] += p.bias.y;
      C::Function::apply(v);
      if constexpr (C::Residual) {
        Patience patience;
#pragma unroll
        for (int j = 0; j < (int)sizeof(T) / 2; j++)
          while (p.residual[j] == 0) {
            p.residual[j] = loadWord(p.from + j);
            patience.spend();
          }
        __syncwarp();
        v[0] += toFloat(reinterpret_cast<const T *>(p.residual)[0]);
        v[1] += toFloat(reinterpret_cast<const T *>(p.residual)[1]);
      }
      if constexpr (C::Logits) {
        float *logits = linear.logits + (i64)p.row * n + p.column;
#pragma unroll
        for (int j = 0; j < 2; j++)
          if (p.mine && p.column + j < n) {
            if (p.row < linear.batch)
              logits[j] = v[j];
            best[i] = max(best[i], tile::argmaxKey(v[j], p.column + j));
          }
      } else {
        publish(to, T(), p.row * n + p.column, v, p.mine);
      }
    }
  }
  if constexpr (C::Logits) {
#pragma unroll
    for (int i = 0; i < passes; i++)
      noteBest<ofRow>(block, best[i], pair[i].row,
                      (int)threadIdx.x - multipliers + i * finishers < pairs);
  }
}

#endif
} // namespace gpt2c::persistent

namespace gpt2c::tile {
#if __CUDA_ARCH__ >= 900

template <typename C, typename B>
__device__ __forceinline__ void linearStage(B &block, const persistent::Record &record) {
  if (threadIdx.x < persistent::multipliers)
    persistent::multiplyStage<C>(block, persistent::linearRecord<C>(record));
  else
    persistent::finishStage<C>(block, persistent::linearRecord<C>(record));
}

#endif
} // namespace gpt2c::tile
