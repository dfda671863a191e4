// Which vector instructions kernels of the CPU use. Every level gives the same bits.
#pragma once

namespace gpt2c {

/// Each has the ones before it.
enum class CpuLevel {
  Portable, ///< any processor
  Avx2,     ///< AVX2, FMA, F16C
  Avx512,   ///< F, BW, DQ, VL
  Vnni,     ///< dot products of int8
};

/// The highest that the machine has.
CpuLevel machineLevel();

} // namespace gpt2c
