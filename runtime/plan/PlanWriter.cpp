#include "runtime/plan/PlanWriter.h"

#include "runtime/plan/OutputFile.h"
#include "runtime/plan/PackedWeight.h"
#include "runtime/plan/PlanFormat.h"
#include "runtime/plan/PlanVerify.h"

#include <array>
#include <cstring>
#include <map>

namespace gpt2c::rt {
namespace {

using Bytes = std::span<const std::byte>;

/// One tensor's place in the weights section.
struct Placed {
  uint64_t offset;
  Bytes bytes;
};

/// Gives every weight its offset and returns the distinct tensors in file order.
std::vector<Placed> placeWeights(PlanContents &contents) {
  std::vector<Placed> placed;
  std::multimap<uint64_t, size_t> byHash;
  uint64_t end = 0;
  for (size_t i = 0; i < contents.weights.size(); ++i) {
    plan::WeightT &weight = *contents.meta.weights[i];
    Bytes bytes = contents.weights[i];
    weight.bytes = bytes.size();
    weight.hash = hashBytes(bytes);
    if (weight.packed >= 0) {
      weight.offset = kUnpackedOffset;
      continue; // the bytes of what it is made of are enough
    }
    const Placed *same = nullptr;
    auto [first, last] = byHash.equal_range(weight.hash);
    for (auto it = first; it != last && !same; ++it) {
      const Placed &other = placed[it->second];
      if (other.bytes.size() == bytes.size() &&
          (bytes.empty() || std::memcmp(other.bytes.data(), bytes.data(), bytes.size()) == 0))
        same = &other;
    }
    if (same) {
      weight.offset = same->offset;
      continue;
    }
    weight.offset = alignUp(end, kWeightAlignment);
    end = weight.offset + bytes.size();
    byHash.emplace(weight.hash, placed.size());
    placed.push_back({weight.offset, bytes});
  }
  return placed;
}

struct NewSection {
  SectionKind kind;
  std::string name;
  uint64_t alignment = kSectionAlignment;
  std::vector<Placed> pieces; ///< in order of their offset within the section; gaps are zeros

  uint64_t bytes() const {
    return pieces.empty() ? 0 : pieces.back().offset + pieces.back().bytes.size();
  }
};

/// Calls `sink` with consecutive pieces that make up the section, zeros between them included.
template <typename Sink> Status streamSection(const NewSection &section, Sink sink) {
  static constexpr std::array<std::byte, kWeightAlignment> zeros{};
  uint64_t at = 0;
  for (const Placed &piece : section.pieces) {
    assert(piece.offset - at < zeros.size() && "pieces are packed");
    if (Status status = sink(Bytes(zeros).first(piece.offset - at)); !status.ok())
      return status;
    if (Status status = sink(piece.bytes); !status.ok())
      return status;
    at = piece.offset + piece.bytes.size();
  }
  return Status();
}

uint64_t checksumOf(const NewSection &section) {
  SectionHasher hasher;
  Status status = streamSection(section, [&](Bytes bytes) {
    hasher.update(bytes);
    return Status();
  });
  assert(status.ok() && "hashing cannot fail");
  (void)status;
  return hasher.finish();
}

/// All sections but the metadata, which comes first and is filled in last, when all indices and
/// offsets are known.
std::vector<NewSection> makeSections(PlanContents &contents) {
  std::vector<NewSection> sections;
  auto add = [&](SectionKind kind, std::string name, Bytes bytes) {
    sections.push_back({kind, std::move(name), kSectionAlignment, {{0, bytes}}});
  };
  add(SectionKind::Metadata, "metadata", {});
  add(SectionKind::Ir, "ir", std::as_bytes(std::span(contents.irText)));
  if (!contents.tokenizer.empty())
    add(SectionKind::Tokenizer, "tokenizer", contents.tokenizer);
  for (size_t i = 0; i < contents.images.size(); ++i) {
    contents.meta.images[i]->section = uint32_t(sections.size());
    add(SectionKind::Image,
        contents.meta.images[i]->arch + "/" + std::to_string(contents.meta.images[i]->source),
        contents.images[i]);
  }
  sections.push_back({SectionKind::Weights, "weights", kWeightsAlignment, placeWeights(contents)});
  return sections;
}

Status verifyContents(const std::string &path, const PlanContents &contents,
                      const std::vector<NewSection> &sections) {
  PlanSurroundings around;
  for (const NewSection &section : sections)
    around.sections.push_back({section.kind, section.kind == SectionKind::Image
                                                 ? section.pieces.front().bytes
                                                 : Bytes()});
  around.weightsBytes = sections.back().bytes();
  Issues issues;
  verifyPlan(contents.meta, around, issues);
  if (sections.size() > kMaxSections)
    issues.corrupt(std::to_string(sections.size()) + " sections");
  if (issues.empty())
    return Status();
  return Status(Code::Corrupt,
                "cannot write '" + path + "': the compiler made an invalid plan" + issues.text());
}

} // namespace

Status writePlan(const std::string &path, PlanContents &contents) {
  assert(contents.weights.size() == contents.meta.weights.size() && "one span for each weight");
  assert(contents.images.size() == contents.meta.images.size() && "one span for each image");
  std::vector<NewSection> sections = makeSections(contents);
  if (Status status = verifyContents(path, contents, sections); !status.ok())
    return status;

  flatbuffers::FlatBufferBuilder builder(1 << 16);
  builder.Finish(plan::Plan::Pack(builder, &contents.meta), plan::PlanIdentifier());
  sections.front().pieces = {
      {0, std::as_bytes(std::span(builder.GetBufferPointer(), builder.GetSize()))}};

  std::vector<SectionEntry> table(sections.size());
  uint64_t end = sizeof(FileHeader) + table.size() * sizeof(SectionEntry);
  for (size_t i = 0; i < sections.size(); ++i) {
    SectionEntry &entry = table[i];
    entry.kind = uint32_t(sections[i].kind);
    entry.alignment = uint32_t(sections[i].alignment);
    entry.offset = alignUp(end, sections[i].alignment);
    entry.bytes = sections[i].bytes();
    entry.checksum = checksumOf(sections[i]);
    setField(entry.name, sections[i].name);
    end = entry.offset + entry.bytes;
  }

  FileHeader header{};
  std::memcpy(header.magic, kPlanMagic, sizeof kPlanMagic);
  header.formatVersion = kPlanFormatVersion;
  header.headerBytes = sizeof(FileHeader);
  header.fileBytes = end;
  header.tableOffset = sizeof(FileHeader);
  header.sectionCount = uint32_t(table.size());
  header.sectionEntryBytes = sizeof(SectionEntry);
  setField(header.compilerVersion, contents.meta.compiler_version);
  setField(header.architectures, headerArchitectures(contents.meta));
  header.tableChecksum = hashBytes(std::as_bytes(std::span(table)));
  header.headerChecksum =
      hashBytes(std::as_bytes(std::span(&header, 1)).first(offsetof(FileHeader, headerChecksum)));

  OutputFile file(path);
  if (Status status = file.open(); !status.ok())
    return status;
  uint64_t written = 0;
  auto write = [&](Bytes bytes) {
    written += bytes.size();
    return file.write(bytes);
  };
  if (Status status = write(std::as_bytes(std::span(&header, 1))); !status.ok())
    return status;
  if (Status status = write(std::as_bytes(std::span(table))); !status.ok())
    return status;
  const std::vector<std::byte> padding(kWeightsAlignment);
  for (size_t i = 0; i < sections.size(); ++i) {
    if (Status status = write(Bytes(padding).first(table[i].offset - written)); !status.ok())
      return status;
    if (Status status = streamSection(sections[i], write); !status.ok())
      return status;
  }
  return file.commit();
}

} // namespace gpt2c::rt
