// Which vector instructions kernels of the CPU use. Products have the same bits at every level
// (RowProduct.h, IntegerProduct.h), exponentials (Exponentials.h) and products of many rows in
// bfloat16 (TileProduct.h) have not.
#pragma once

namespace gpt2c {

/// Each has the ones before it.
enum class CpuLevel {
  Portable, ///< any processor
  Avx2,     ///< AVX2, FMA, F16C
  Avx512,   ///< F, BW, DQ, VL
  Vnni,     ///< dot products of int8
  Amx,      ///< tiles of int8 and bfloat16
};

/// The highest that the machine has.
CpuLevel machineLevel();

} // namespace gpt2c
