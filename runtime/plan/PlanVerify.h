// The checks that make a plan safe to execute.
#pragma once

#include "plan_generated.h"
#include "runtime/Status.h"
#include "runtime/plan/Arch.h"
#include "runtime/plan/PlanFormat.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

/// Collects every reason to refuse a plan.
class Issues {
public:
  void corrupt(std::string reason) { add(true, std::move(reason)); }
  void incompatible(std::string reason) { add(false, std::move(reason)); }
  bool empty() const { return count_ == 0; }
  bool full() const { return reasons_.size() >= kMaxReasons; }

  /// Ok, or one message with all reasons. Corrupt wins over Incompatible: a damaged plan proves
  /// nothing about this machine.
  Status status(const std::string &planName) const;
  /// The reasons alone: one on the same line, several as a list.
  std::string text() const;

private:
  static constexpr size_t kMaxReasons = 32;
  void add(bool corrupt, std::string reason);

  std::vector<std::string> reasons_;
  size_t count_ = 0;
  bool corrupt_ = false;
};

/// What the metadata refers to outside itself.
struct PlanSurroundings {
  struct SectionView {
    SectionKind kind;
    std::span<const std::byte> bytes;
  };
  std::vector<SectionView> sections;
  uint64_t weightsBytes = 0;
};

/// Checks everything an executor relies on:
///  - weights lie inside the section and have the bytes that shape and dtype say;
///  - every index (kernel, source, section, weight, buffer, port, symbol) is in range, every enum
///    value known;
///  - expressions are well formed and cannot overflow within the symbols' bounds; grids are never
///    negative nor larger than a launch allows; a buffer holds its largest shape and lies inside
///    the arena, and an argument that points into one stays inside;
///  - parts of weights are those of their shapes, and functions of several ranks alone have them;
///  - roles have the dtype and rank of plan.fbs; the KV state's sizes agree with each other;
///  - each head of the KV state is some rank's, where it is divided among ranks;
///  - golden prompts fit the vocabulary and the context, their numbers are finite;
///  - images are whole ELF files or NUL-terminated PTX.
void verifyPlan(const plan::PlanT &meta, const PlanSurroundings &around, Issues &issues);
/// The part of verifyPlan that concerns one function.
void verifyFunction(const plan::PlanT &meta, const plan::FunctionT &function, Issues &issues);
/// The functions that `device` has of a verified plan: those for the architecture, of all images,
/// that suits it best, as one alone runs them or as one of so many ranks. None: it can load no
/// image, or there are none for ranks.
std::span<const std::unique_ptr<plan::FunctionT>>
functionsFor(const plan::PlanT &meta, ComputeCapability device, int ranks = 1);
/// Which sources have a kernel that such a function launches.
std::vector<bool> sourcesFor(const plan::PlanT &meta, ComputeCapability device, int ranks = 1);

/// Every source of those functions needs an image that `device` can load; each one without is an
/// issue that lists what there is. Every function of them needs steps, except @extend: without,
/// Backend::pagedState() says so.
void verifyDevice(const plan::PlanT &meta, ComputeCapability device, Issues &issues, int ranks = 1);

/// Index of the best image of `source` for `device`.
std::optional<size_t> bestImage(const plan::PlanT &meta, size_t source, ComputeCapability device);

/// The architectures of all images, sorted, each once, separated by spaces, as the header states
/// them.
std::string headerArchitectures(const plan::PlanT &meta);

/// `text` in single quotes, with control characters and anything beyond 80 characters left out.
std::string inQuotes(std::string_view text);

} // namespace gpt2c::rt
