// What the machines have that a plan is made for.
#pragma once

#include "schedule/Abilities.h"
#include "schedule/cost/TargetRates.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <string>
#include <vector>

namespace gpt2c {

/// What a kernel may need of a machine beside multiprocessors and shared memory.
enum class Feature : uint8_t {
  Wgmma,    ///< products of warpgroups, and registers that they hand to one another
  Tma,      ///< bulk copies and tensor maps
  Clusters, ///< thread block clusters of up to 8 blocks
  Shared,   ///< wholeShared for a block
};
llvm::StringRef nameOf(Feature f);
using Features = Abilities<Feature>;

/// Shared memory of a multiprocessor of sm_90 in bytes, and what two blocks may have each.
constexpr unsigned wholeShared = 227 * 1024, halfShared = 113 * 1024;
/// What a block may have on every architecture since sm_80.
constexpr unsigned leastShared = 99 * 1024;

/// What every architecture of a plan has.
struct Target {
  int64_t multiprocessors = 132;      ///< that a grid should fill
  unsigned sharedBytes = leastShared; ///< of shared memory that a block may have
  Features features;
  TargetRates rates;

  bool has(Features f) const { return features.hasAll(f); }
  /// Of clusters of up to 8 blocks, each alone on a multiprocessor, the most that are resident at
  /// once; without clusters as many as there are multiprocessors for.
  int64_t clusters(int blocks) const;

  /// For a list such as sm_90a, compute_80. PTX may be loaded on any architecture from its own on,
  /// but that of compute_90a.
  static Target of(llvm::ArrayRef<std::string> archs);
  bool operator==(const Target &) const = default;
};

/// Architectures that one schedule is made for, since nothing that is decided by tells them apart.
struct TargetGroup {
  Target target;
  std::vector<std::string> archs;
};
/// Those of a plan, each in one group, in the order in which they are first named, of machines with
/// these rates.
std::vector<TargetGroup> targetGroups(llvm::ArrayRef<std::string> archs,
                                      const TargetRates &rates = {});

/// What tiles by wgmma need that tensor maps fill.
constexpr Features wgmmaTiles = {Feature::Wgmma, Feature::Tma, Feature::Shared};
/// What kernels need whose clusters keep most of the machine.
constexpr Features wholeClusters = {Feature::Tma, Feature::Clusters, Feature::Shared};
/// Those of a decode step, whose warpgroups hand registers to one another.
constexpr Features stepClusters = wholeClusters | Features{Feature::Wgmma};

} // namespace gpt2c
