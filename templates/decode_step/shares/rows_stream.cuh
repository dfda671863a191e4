// The warps that fill the ring of shares/rows.cuh: weights as those of one sequence, and
// keys and values of the block's sequences.
#pragma once

#include "templates/decode_step/shares/rows_block.cuh"
#include "templates/decode_step/shares/stream.cuh"

namespace gpt2c::shares {
#if __CUDA_ARCH__ >= 900

template <typename C> struct RowsStream : Stream<C> {
  using Base = Stream<C>;
  using L = Layout<C>;
  using T = typename C::T;
  using W = typename C::W;
  using Base::shared, Base::place, Base::policy, Base::lane, Base::layer;

  /// Slot `i` of a head's keys: some tiles, each with that of its values, of which the even rows
  /// come first. The rows of a tile follow each other, so each of both has one address.
  __device__ __forceinline__ void fillKeys(const State<C> &state, const RowKeys<C> &keys,
                                           int i) const {
    using P = KeyPairs<C>;
    constexpr int dim = C::HeadDim, ofRow = P::padded % 64 == 0 ? 8 : 4, rows = 32 / ofRow;
    const int first = lane % ofRow * 8, row = lane / ofRow;
    unsigned to = sharedAddress(shared.ring[Base::slot]) + row * P::pitch + first * 2;
#pragma unroll
    for (int p = 0; p < P::pairs; p++, to += 2 * P::tileBytes) {
      const int begin = keys.positionOf(i * P::pairs + p), left = keys.past - begin;
      const T *const from = state.keys + (left > 0 ? state.offsetOf(begin) : 0) + row * dim + first,
                     *const values = from + state.toValue + row * dim;
#pragma unroll
      for (int r = 0; r < tileRows; r += rows)
#pragma unroll
        for (int c = 0; c < P::padded; c += ofRow * 8) {
          if (c + ofRow * 8 > P::padded && c + first >= P::padded)
            continue;
          const bool inside = c + ofRow * 8 <= dim || c + first < dim;
          Base::copy(to + r * P::pitch + c * 2, from + r * dim + c, inside && row + r < left);
          Base::copy(to + P::tileBytes + r * P::pitch + c * 2, values + evenFirst(r) * dim + c,
                     inside && 2 * row + evenFirst(r) < left);
        }
    }
  }
  /// first: keys come behind the choice of the step before, whose `parity` that is.
  __device__ __forceinline__ void headOfRows(const HeadRecord<Words> &of, int step, bool first,
                                             unsigned parity) {
    constexpr int dim = C::HeadDim;
    const int slice = place.rank * L::slice;
    Base::template fill<typename L::Head>(
        of.half.first.weights.template as<const W>(), L::Head::tiles, place.columns,
        [&](int i) {
          const int head = i / dim, key = (head - C::HeadsEach) % C::KeysEach;
          const bool ofQ = head < C::HeadsEach,
                     exists = ofQ ? head < place.heads
                                  : head < C::HeadsEach + 2 * C::KeysEach && key < place.keys;
          const int row = ofQ ? place.queryRow(0) + i : place.keyRow(i);
          return RowAt{exists, (i64)row * C::D + slice};
        },
        of.half.first.scales);
    Base::note(Mark::heads_filled, Mark::heads_filled_waited);
    if (first)
      persistent::barrierWait(shared.chosen, parity);
#pragma unroll 1
    for (int i = 0; i < L::ownRows * place.keys; i++) {
      const int own = i / place.keys, sequence = place.ownRow(own);
      const bool isLive = sequence < shared.step().batch;
      const RowKeys<C> keys(isLive ? shared.past[sequence] + step : 0, place.keyPart());
      const State<C> state(of, sequence, place.keyHead + i % place.keys, shared.pages[own]);
      Base::fillSlots(keys.slots, [&](int slot) { fillKeys(state, keys, slot); });
    }
    Base::note(Mark::keys_filled, Mark::keys_filled_waited);
    Base::template fill<typename L::Projection>(
        of.half.weights.template as<const W>(), L::Projection::tiles, place.heads * dim,
        [&](int i) {
          return RowAt{i < place.columns, (i64)(slice + i) * L::attended + place.queryRow(0)};
        },
        of.half.scales);
    Base::note(Mark::projection_filled, Mark::projection_filled_waited);
  }

  __device__ __forceinline__ void run(int steps) {
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#pragma unroll 1
    for (int step = 0; step < steps; step++) {
#pragma unroll 1
      for (layer = 0; layer < RowsShared<C>::layers; layer++) {
        this->mark(layer, Mark::loader);
        if (place.hasHead)
          headOfRows(shared.headOf(layer), step, Base::waits && layer == 0 && step > 0,
                     (step - 1) & 1);
        else
          Base::waitReceived(step, layer);
        Base::mlp(shared.mlpOf(layer));
      }
      this->mark(layer, Mark::loader);
      Base::vocabulary(shared.vocabulary());
      Base::note(Mark::vocabulary_filled, Mark::vocabulary_filled_waited);
    }
  }
};
#endif
} // namespace gpt2c::shares
