// What GPUs of one host take to exchange numbers, measured between two H200 joined by NVLink.
#pragma once

#include <cstdint>

namespace gpt2c {

struct LinkRates {
  /// Microseconds until two persistent kernels have what both send, each 4 bytes with their number
  /// in one store that the receiver polls: of few halves, of 51,200 and of 204,800.
  double hop = 0.80, hopOfMany = 0.87, hopOfMost = 2.5;
  double bytes = 392e3; ///< a microsecond, each way at once, by copies
  /// An all-reduce of NCCL in a graph: of few halves, and for each half of many on two GPUs.
  double collective = 11.3, collectiveOfMany = 18, perHalf = 8.23e-6;

  /// Microseconds of a launch in which ranks exchange `count` sums in single precision: words with
  /// numbers, and of many tiles, at half of the rate of copies.
  double exchange(int64_t count, int64_t ranks) const;
  /// What is left of it behind a product that takes `product`, and sends them in two bytes each as
  /// its tiles end: the rest of the way, and a launch that adds them.
  double sentSums(int64_t count, int64_t ranks, double product) const;
  /// The same of sums that tiles of a product exchange as they end, in two bytes each and as many
  /// of numbers: without a launch behind it.
  double receivedSums(int64_t count, int64_t ranks) const;
  /// The same of sums of which each rank ends some rows for all: what does not travel while it
  /// computes its own rows, and the product behind those. Their tiles read the others' sums and the
  /// residual.
  double scatteredSums(int64_t count, int64_t ranks, double product) const;
  /// What a sum over ranks takes behind a product in fp16 or bf16 that takes `product`, in
  /// whichever of these forms it takes least, with the launch that it may need.
  double sumBehind(int64_t count, int64_t ranks, double product, double launch) const;
  /// The same by a launch behind the product alone.
  double sumApart(int64_t count, int64_t ranks, double product, double launch) const;
  /// Microseconds until each of `ranks` GPUs has the sums of `halves` numbers of all.
  double allReduce(int64_t halves, int64_t ranks) const;
  /// Microseconds until persistent kernels have `count` words of 8 bytes of every other one.
  double words(int64_t count, int64_t ranks) const;
  /// Microseconds until the next GPU has `halves` numbers.
  double handOver(int64_t halves) const;
};

} // namespace gpt2c
