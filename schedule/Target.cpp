#include "schedule/Target.h"

#include "llvm/ADT/STLExtras.h"

namespace gpt2c {

Target Target::of(llvm::ArrayRef<std::string> archs) {
  Target target;
  auto all = [&](auto is) { return !archs.empty() && llvm::all_of(archs, is); };
  auto isHopper = [](llvm::StringRef a) { return a == "sm_90a" || a == "compute_90a"; };
  // 227 KB a block on sm_90 and sm_100.
  if (all([&](llvm::StringRef a) {
        return isHopper(a) || a.starts_with("sm_90") || a.starts_with("sm_100");
      }))
    target.sharedBytes = wholeShared;
  target.wgmma = target.tma = target.clusters = all(isHopper);
  return target;
}

} // namespace gpt2c
