#include "schedule/Target.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/ErrorHandling.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <optional>

namespace gpt2c {

llvm::StringRef nameOf(Feature f) {
  switch (f) {
  case Feature::Wgmma:
    return "wgmma";
  case Feature::Tma:
    return "TMA";
  case Feature::Clusters:
    return "clusters";
  case Feature::Shared:
    return "227 KB of shared memory a block";
  }
  llvm_unreachable("a feature");
}

namespace {

struct Machine {
  llvm::StringLiteral arch; ///< without sm_ and compute_
  Target target;
};

using enum Feature;
constexpr unsigned kib = 1024;

/// Of an architecture with several machines the server's: A100, A40, L40S, H100 and H200, B200,
/// RTX PRO 6000 (CUDA C++ Programming Guide, "Compute Capabilities").
const Machine machines[] = {
    {"80", {108, 163 * kib, {}, {}}},
    {"86", {84, leastShared, {}, {}}},
    {"87", {16, 163 * kib, {}, {}}},
    {"89", {142, leastShared, {}, {}}},
    {"90", {132, wholeShared, {Tma, Clusters, Shared}, {}}},
    {"90a", {132, wholeShared, {Wgmma, Tma, Clusters, Shared}, {}}},
    {"100", {148, wholeShared, {Tma, Clusters, Shared}, {}}},
    {"103", {148, wholeShared, {Tma, Clusters, Shared}, {}}},
    {"120", {188, leastShared, {Tma, Clusters}, {}}},
    {"121", {48, leastShared, {Tma, Clusters}, {}}},
};

/// Those of the architecture of that number, whose own features but those of 90a nothing uses; of
/// one that is not known, what all have.
Target machineOf(llvm::StringRef number) {
  const llvm::StringRef plain = number == "90a" ? number : number.rtrim("af");
  const auto *it = llvm::find_if(machines, [&](const Machine &m) { return m.arch == plain; });
  return it == std::end(machines) ? Target() : it->target;
}

} // namespace

Target Target::of(llvm::ArrayRef<std::string> archs) {
  std::optional<Target> all;
  for (llvm::StringRef arch : archs) {
    const bool ptx = arch.consume_front("compute_");
    arch.consume_front("sm_");
    Target one = machineOf(arch);
    if (ptx && arch != "90a") {
      one.sharedBytes = leastShared;
      one.features = one.features - Features{Shared};
    }
    if (all)
      one = {std::min(all->multiprocessors, one.multiprocessors),
             std::min(all->sharedBytes, one.sharedBytes),
             all->features & one.features,
             {}};
    all = one;
  }
  return all.value_or(Target());
}

int64_t Target::clusters(int blocks) const {
  // Of 132 multiprocessors, by measurement on an H200: they lie in groups of 16 and 18.
  constexpr std::array<int64_t, 9> most = {0, 132, 66, 39, 30, 22, 17, 15, 15};
  assert(blocks > 0 && blocks < int(most.size()));
  return has({Clusters}) ? most[blocks] * multiprocessors / most[1] : multiprocessors / blocks;
}

std::vector<TargetGroup> targetGroups(llvm::ArrayRef<std::string> archs, const TargetRates &rates) {
  std::vector<TargetGroup> groups;
  for (const std::string &arch : archs) {
    Target target = Target::of({arch});
    target.rates = rates;
    if (rates.multiprocessors > 0)
      target.multiprocessors = rates.multiprocessors;
    auto group = llvm::find_if(groups, [&](const TargetGroup &g) { return g.target == target; });
    if (group == groups.end())
      group = groups.insert(group, {target, {}});
    if (!llvm::is_contained(group->archs, arch))
      group->archs.push_back(arch);
  }
  return groups;
}

} // namespace gpt2c
