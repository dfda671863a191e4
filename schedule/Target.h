// What the machines have that a plan is made for.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <string>

namespace gpt2c {

/// What every architecture of a plan has.
struct Target {
  int64_t multiprocessors = 132;    ///< that a grid should fill: those of an H100 or H200
  unsigned sharedBytes = 99 * 1024; ///< of shared memory that a block may have
  bool wgmma = false, tma = false;  ///< warpgroup products, tensor maps
  bool clusters = false;            ///< thread block clusters

  /// All of sm_90a, or PTX of it: kernels whose grids no other architecture could run.
  bool hopper() const { return wgmma && tma && clusters; }

  /// For a list such as sm_90a, compute_80. PTX may be loaded anywhere, but that of compute_90a.
  static Target of(llvm::ArrayRef<std::string> archs);
};

/// Shared memory of a multiprocessor of sm_90 in bytes, and what two blocks may have each.
constexpr unsigned wholeShared = 227 * 1024, halfShared = 113 * 1024;

} // namespace gpt2c
