// Reading a plan file. A plan is untrusted input: opening one checks every offset, size, index and
// expression once, so that whoever executes it may rely on them, and reports all reasons for a
// refusal together.
#pragma once

#include "plan_generated.h"
#include "runtime/Status.h"
#include "runtime/plan/Arch.h"
#include "runtime/plan/PlanFormat.h"

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gpt2c::rt {

struct OpenOptions {
  /// Read all weights once to verify their checksum, on up to `threads` threads. Without it damaged
  /// weights go unnoticed; everything else is always verified.
  bool verifyWeights = true;
  unsigned threads = 4;
  /// The device that is to run the plan: when given, every kernel source must have an image for it.
  std::optional<ComputeCapability> device;
};

struct Section {
  SectionKind kind;
  std::string name;
  uint64_t alignment;
  uint64_t offset;
  uint64_t checksum;
  std::span<const std::byte> bytes;
};

/// An opened, verified plan. Immutable; all members may be used from several threads.
class Plan {
public:
  using Ptr = std::shared_ptr<const Plan>;

  /// Maps `path` read-only, or reads stdin when it is "-". The file must not be written while it is
  /// open.
  static Result<Ptr> open(const std::string &path, const OpenOptions &options = {});
  /// The same for a plan held in memory; `name` appears in messages.
  static Result<Ptr> fromBytes(std::vector<std::byte> bytes, const std::string &name,
                               const OpenOptions &options = {});

  Plan(const Plan &) = delete;
  Plan &operator=(const Plan &) = delete;
  ~Plan();

  const plan::PlanT &meta() const { return meta_; }
  const FileHeader &header() const { return header_; }
  std::span<const Section> sections() const { return sections_; }
  uint64_t fileBytes() const { return bytes_.size(); }

  /// All weights, as laid out in the file; Weight.offset counts from its start, which is
  /// 4096-aligned when mapped.
  std::span<const std::byte> weights() const { return weights_; }
  /// The bytes of meta().weights[index]; of one that is packed they are made once.
  std::span<const std::byte> weight(size_t index) const;
  /// The same into `to`, weight.bytes of them, without keeping any.
  void readWeight(size_t index, std::span<std::byte> to) const;
  /// The bytes of meta().images[index]. PTX ends with a NUL.
  std::span<const std::byte> image(size_t index) const;
  std::string_view irText() const { return irText_; }
  /// Empty when the plan has no tokenizer.
  std::span<const std::byte> tokenizerBlob() const { return tokenizer_; }

  /// The first function of a name (forward, prefill, decode), null when the plan has none. Others
  /// of the same name may follow, for other bounds of the symbols.
  const plan::FunctionT *function(std::string_view name) const;
  /// The index of the best image of meta().sources[source] for `device`; nothing when none can run
  /// there.
  std::optional<size_t> bestImage(size_t source, ComputeCapability device) const;

private:
  Plan() = default;
  Status load(const std::string &name, const OpenOptions &options);

  std::vector<std::byte> owned_; ///< the file, when it is not mapped
  void *mapping_ = nullptr;
  std::span<const std::byte> bytes_;
  FileHeader header_{};
  std::vector<Section> sections_;
  plan::PlanT meta_;
  std::span<const std::byte> weights_;
  mutable std::mutex unpacking_;
  mutable std::map<size_t, std::vector<std::byte>> unpacked_; ///< by numbers of weights
  std::string_view irText_;
  std::span<const std::byte> tokenizer_;
};

/// Bytes of one element; 0 of those that share a byte, which weights alone hold.
uint64_t dtypeBytes(plan::DType dtype);
/// Bytes of so many elements, those that share a byte in words of 32 bits; nothing where they
/// exceed 64 bits.
std::optional<uint64_t> storedBytes(plan::DType dtype, uint64_t count);
const char *dtypeName(plan::DType dtype); ///< "f32", "i8", ...

} // namespace gpt2c::rt
