// Several ranks as one device: sessions, the engine and servers do not know them.
#pragma once

#include "runtime/device/Backend.h"
#include "runtime/group/RankCall.h"
#include "runtime/group/RankLink.h"

#include <memory>
#include <vector>

namespace gpt2c::rt {

/// Makes a call on all ranks but the first, which is the caller's.
class OtherRanks {
public:
  virtual ~OtherRanks() = default;
  virtual int count() const = 0;
  /// Begins the call on each; `calls` has one for each, or one for all of them.
  virtual Status begin(std::span<const RankCall> calls) = 0;
  /// What each answered, waiting for them. `own` is what became of the call on the first rank,
  /// which others may wait for in vain.
  virtual Result<std::vector<RankReply>> finish(const Status &own) = 0;
};

/// `first` is rank 0. checkDivision() allows `division`, of 1 + others->count() ranks. Of stages
/// readKv() is empty where it is another that has the layer.
std::unique_ptr<Backend> makeGroupBackend(Plan::Ptr plan, std::unique_ptr<Backend> first,
                                          std::unique_ptr<OtherRanks> others,
                                          const Division &division);

/// The division of the plan among so many ranks; null: it has none.
const plan::RanksT *ranksOf(const plan::PlanT &meta, int tensor);
/// How a remark of a plan's pass "parallel" names a division: "2 ranks".
std::string patternOfRanks(int tensor);
/// What the compiler estimated where a division is no faster than one GPU; empty: it is.
std::string whyNoGain(const plan::PlanT &meta, int tensor);
/// Whether ranks can run the plan so.
Status checkDivision(const plan::PlanT &meta, const Division &division);
/// Incompatible: what divisions the plan has.
Status noSuchRanks(const plan::PlanT &meta, int tensor);

} // namespace gpt2c::rt
