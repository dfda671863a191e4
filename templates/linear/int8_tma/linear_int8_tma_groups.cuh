// The main loop of linear_int8_tma over groups of K with scales of their own, or whose sums leave
// the tensor cores' registers.
#pragma once

#include "templates/device/int8.cuh"
#include "templates/device/tma_pipeline.cuh"

namespace gpt2c {

template <typename Sum> struct Integers {
  static constexpr bool value = false;
};
template <> struct Integers<int> {
  static constexpr bool value = true;
};

template <typename C> struct LinearInt8Tma {
  static constexpr int groups = C::BM / 64;
  static constexpr int consumers = 128 * groups;
  // Two warpgroups take registers from a third.
  static constexpr int loaders = groups == 2 ? 128 : 32;
  static constexpr int threads = consumers + loaders;
  static constexpr int BK = 128;
  static constexpr bool whole = C::N % C::BN == 0;
  static constexpr int stageBytes = (C::BM + C::BN) * BK;
  static constexpr int scales = C::XGroup > 0 ? C::K / maxInt(C::XGroup, 1) : 0; // of a row
  using Sum = typename Operand<typename C::X>::Sum;
  /// Columns of K after which sums are added to others in fp32; 0: integers are exact.
  static constexpr int unit = C::XGroup > 0 ? C::XGroup : Integers<Sum>::value ? 0 : BK;
  static constexpr int residualBytes = C::Residual ? C::BM * C::BN * 2 : 0;
  static constexpr int tiles = C::BN / 8, share = tiles / C::SplitK;
  // K-tiles begin at 1 KiB; the tile of R, the scales and the cluster's partial sums follow.
  static constexpr int sumsAt = C::Stages * stageBytes + residualBytes + C::BM * scales * 4;
  static constexpr int sharedBytes = sumsAt + clusterSumsBytes(C::SplitK, consumers, share) + 1024;
  static_assert(C::BM % 64 == 0 && C::BN % 16 == 0 && C::Stages >= 2);
  static_assert(C::SplitK == 1 || (tiles % C::SplitK == 0 && C::YGroup == 0));
  // Sums of groups: two sets, or where there are no registers for them, of halves of the columns.
  static constexpr bool halves = unit > 0 && groups == 2 && C::BN > 96;
  static_assert(C::XGroup == 0 || C::XGroup == 64 || C::XGroup == 128);
  static_assert(unit == 0 || halves || C::BN <= 128);
  static_assert(!C::Gelu || (C::XGroup == 0 && C::SplitK == 1 && Operand<typename C::Y>::scaled));
  static_assert(C::YGroup == 0 || C::BN % maxInt(C::YGroup, 1) == 0);
  static_assert(!C::Residual || (whole && C::BN % 64 == 0 && C::SplitK == 1 && C::YGroup == 0));
};

namespace tile {

#ifdef __CUDA_ARCH_FEAT_SM90_ALL

/// The accumulators of a warpgroup: the sums of a unit of K, a group that shares a scale or a
/// k-tile, are scaled and added up in fp32 while the next are multiplied.
template <typename C, typename Consumer> struct LinearInt8TmaGroups {
  using L = LinearInt8Tma<C>;
  using Sum = typename L::Sum;
  static constexpr int parts = L::BK / maxInt(L::unit, 1); // units of a k-tile
  using All = Sum[L::tiles][4];
  using Half = Sum[L::tiles / 2][4];

  const Consumer &consumer;
  float (&acc)[L::tiles][4];
  const float *at; // scales of this lane's first row, where units have some
  int firstUnit, units;
  float scale[2], next[2];
  // The stage and the group in its k-tile that is multiplied, and the stage before.
  int stage = 0, parity = 0, part = 0, before = 0;

  __device__ __forceinline__ LinearInt8TmaGroups(const Consumer &consumer,
                                                 float (&acc)[L::tiles][4], const float *at,
                                                 int firstUnit, int units)
      : consumer(consumer), acc(acc), at(at), firstUnit(firstUnit), units(units) {}

  __device__ __forceinline__ void nextScale(int unit) {
    if constexpr (C::XGroup > 0) {
#pragma unroll
      for (int h = 0; h < 2; h++) {
        scale[h] = next[h];
        next[h] = at[h * 8 * L::scales + min(firstUnit + unit, L::scales - 1)];
      }
    }
  }
  __device__ __forceinline__ void nextStage(bool next) {
    before = stage;
    stage += next;
    if (stage == C::Stages)
      stage = 0, parity ^= 1;
    consumer.wait(stage, parity);
  }
  /// Multiplies the group by W's columns from `col` on.
  template <int Tiles> __device__ __forceinline__ void issue(Sum (&sums)[Tiles][4], int col) {
    const int within = part * (L::unit / 16); // in 16 bytes of the k-tile's rows
    const u64 operandA = consumer.xAt(stage) + within,
              operandB = consumer.wAt(stage) + col * (L::BK / 16) + within;
    wgmmaFence();
#pragma unroll
    for (int kk = 0; kk < L::unit / 32; kk++)
      wgmma<typename C::X>(sums, operandA + kk * 2, operandB + kk * 2, kk > 0);
    wgmmaCommit();
  }

  /// Two sets of sums: one group is scaled while the next is multiplied.
  __device__ __forceinline__ void multiplyWhole() {
    All even, odd;
    const IntConstant<0> first;
    const IntConstant<parts - 1> last;
    issue(even, 0);
    int unit = 0;
#pragma unroll 1
    for (; unit + 2 < units; unit += 2) {
      step(unit, even, odd, last);
      step(unit + 1, odd, even, first);
    }
    if (unit + 1 < units) {
      step(unit, even, odd, last);
      nextScale(unit + 2);
      wgmmaWait<0>();
      add(odd);
    } else {
      nextScale(unit + 1);
      wgmmaWait<0>();
      add(even);
    }
  }
  /// `next`: the place of the group after this one in its k-tile.
  template <typename Next>
  __device__ __forceinline__ void step(int unit, All &sums, All &ahead, Next next) {
    nextScale(unit + 1);
    part = next.value;
    if (next.value == 0)
      nextStage(true);
    issue(ahead, 0);
    wgmmaWait<1>();
    if (next.value == 0)
      consumer.handBack(before);
    add(sums);
  }
  __device__ __forceinline__ void add(All &sums) { addTo(acc, sums); }
  template <int Tiles>
  __device__ __forceinline__ void addTo(float (&to)[Tiles][4], Sum (&sums)[Tiles][4]) {
    pinSums(sums);
    if constexpr (C::XGroup > 0)
      addSums(to, sums, scale);
    else
      addSums(to, sums);
  }

  /// Half of the columns of a group is scaled while the other half is multiplied.
  __device__ __forceinline__ void multiplyHalves() {
    Half left, right;
    const IntConstant<0> first;
    const IntConstant<1> second;
    issue(left, 0);
    int steps = 2 * units, step = 0;
    asm volatile("" : "+r"(steps)); // even, which is to stay unknown too
#pragma unroll 1
    for (; step + 2 < steps; step += 2) {
      multiplyRight(step / 2, left, right);
      multiplyLeft(left, right);
    }
    if (step + 1 < steps) {
      multiplyRight(step / 2, left, right);
      wgmmaWait<0>();
      addHalf(right, second);
    } else {
      wgmmaWait<0>();
      addHalf(left, first);
    }
  }
  __device__ __forceinline__ void multiplyRight(int unit, Half &left, Half &right) {
    nextScale(unit + 1);
    issue(right, C::BN / 2);
    wgmmaWait<1>();
    addHalf(left, IntConstant<0>());
  }
  __device__ __forceinline__ void multiplyLeft(Half &left, Half &right) {
    part = (part + 1) % parts;
    nextStage(part == 0);
    issue(left, 0);
    wgmmaWait<1>();
    if (part == 0)
      consumer.handBack(before);
    addHalf(right, IntConstant<1>());
  }
  template <typename Side> __device__ __forceinline__ void addHalf(Half &sums, Side side) {
    addTo(reinterpret_cast<float(&)[L::tiles / 2][4]>(acc[side.value * L::tiles / 2]), sums);
  }
};

#endif

} // namespace tile
} // namespace gpt2c
