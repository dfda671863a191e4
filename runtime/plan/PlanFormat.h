// The container of a plan file: header, section table, sections. See docs/plan-format.md. Little
// endian throughout.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace gpt2c::rt {

static_assert(std::endian::native == std::endian::little, "plan files are read in place");

inline constexpr unsigned char kPlanMagic[8] = {0x89, 'G', '2', 'C', '\r', '\n', 0x1a, '\n'};
inline constexpr uint32_t kPlanFormatVersion = 2;

enum class SectionKind : uint32_t { Metadata = 1, Weights, Image, Ir, Tokenizer };
const char *sectionKindName(SectionKind kind);

inline constexpr uint64_t kSectionAlignment = 64;
inline constexpr uint64_t kWeightsAlignment = 4096; ///< of the section in the file
inline constexpr uint64_t kWeightAlignment = 256;   ///< of one tensor in the section
inline constexpr uint64_t kMaxSections = 4096;
inline constexpr uint64_t kMaxMetadataBytes = uint64_t(1) << 30;

/// The header keeps this layout, and its own checksum, in every format version: an older or newer
/// reader can always say which compiler made a plan.
struct FileHeader {
  unsigned char magic[8];
  uint32_t formatVersion;
  uint32_t headerBytes;
  uint64_t fileBytes;
  uint64_t tableOffset;
  uint32_t sectionCount;
  uint32_t sectionEntryBytes;
  char compilerVersion[48]; ///< zero-padded text
  char architectures[152];  ///< zero-padded text, see headerArchitectures
  uint64_t tableChecksum;
  uint64_t headerChecksum; ///< of all bytes before this field
};
static_assert(sizeof(FileHeader) == 256);

struct SectionEntry {
  uint32_t kind;
  uint32_t alignment;
  uint64_t offset;
  uint64_t bytes;
  uint64_t checksum; ///< SectionHasher over the section's bytes
  char name[32];     ///< zero-padded text
};
static_assert(sizeof(SectionEntry) == 64);

constexpr uint64_t alignUp(uint64_t value, uint64_t alignment) {
  return (value + alignment - 1) & ~(alignment - 1);
}

/// XXH3-64 of a byte range.
uint64_t hashBytes(std::span<const std::byte> bytes);

/// The checksum of a section: the XXH3-64 of the little-endian list of the XXH3-64 of its 16 MiB
/// chunks, so that large sections can be checked by several threads. An empty section has an empty
/// list.
inline constexpr uint64_t kChecksumChunk = uint64_t(16) << 20;
uint64_t sectionChecksum(std::span<const std::byte> bytes, unsigned threads = 1);

/// The same checksum over bytes that arrive in pieces.
class SectionHasher {
public:
  SectionHasher();
  ~SectionHasher();
  SectionHasher(const SectionHasher &) = delete;
  SectionHasher &operator=(const SectionHasher &) = delete;

  void update(std::span<const std::byte> bytes);
  uint64_t finish();

private:
  void endChunk();
  struct State;
  State *state_;
};

/// Text of a zero-padded field, up to the first NUL.
template <size_t N> std::string fieldText(const char (&field)[N]) {
  size_t length = 0;
  while (length < N && field[length])
    ++length;
  return std::string(field, length);
}

/// Stores `text` zero-padded, cut to leave at least one NUL.
template <size_t N> void setField(char (&field)[N], const std::string &text) {
  for (size_t i = 0; i < N; ++i)
    field[i] = i < text.size() && i + 1 < N ? text[i] : '\0';
}

} // namespace gpt2c::rt
