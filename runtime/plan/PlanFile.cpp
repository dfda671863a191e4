#include "runtime/plan/PlanFile.h"

#include "runtime/plan/ForeignFile.h"
#include "runtime/plan/PackedWeight.h"
#include "runtime/plan/PlanMapping.h"
#include "runtime/plan/PlanMetadata.h"
#include "runtime/plan/PlanVerify.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <new>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gpt2c::rt {
namespace {

using Bytes = std::span<const std::byte>;

Status ioError(const std::string &name, int error) {
  return Status(Code::Io, "cannot read '" + name + "': " + strerror(error));
}

/// An open file descriptor, closed at the end of the scope; stdin stays open.
struct ScopedFd {
  int fd;
  ~ScopedFd() {
    if (fd > STDIN_FILENO)
      ::close(fd);
  }
};

/// How many bytes of a stream are worth reading, from those at its begin: one more than the header
/// promises, and no more where there is no header of a plan.
size_t bytesWorthReading(Bytes begin) {
  FileHeader header;
  if (begin.size() < sizeof header)
    return sizeof header;
  std::memcpy(&header, begin.data(), sizeof header);
  const bool good =
      std::memcmp(&header, kPlanMagic, sizeof kPlanMagic) == 0 &&
      hashBytes(begin.first(offsetof(FileHeader, headerChecksum))) == header.headerChecksum;
  return good ? size_t(std::min<uint64_t>(header.fileBytes, PTRDIFF_MAX - 1)) + 1 : sizeof header;
}

/// An endless stream ends where what it holds cannot be a plan.
Result<std::vector<std::byte>> readAll(int fd, const std::string &name) {
  std::vector<std::byte> bytes;
  size_t size = 0;
  while (size < bytesWorthReading(Bytes(bytes).first(size))) {
    if (bytes.size() - size < (1 << 20))
      bytes.resize(std::max<size_t>(bytes.size() * 2, 4 << 20));
    ssize_t count = ::read(fd, bytes.data() + size, bytes.size() - size);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return ioError(name, errno);
    if (count == 0)
      break;
    size += size_t(count);
  }
  bytes.resize(size);
  return bytes;
}

bool allZero(Bytes bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

template <size_t N> bool zeroPadded(const char (&field)[N]) {
  size_t length = fieldText(field).size();
  return length < N && allZero(std::as_bytes(std::span(field)).subspan(length));
}

/// Reads the header. False when nothing after it can be interpreted.
bool readHeader(Bytes file, const OpenOptions &options, FileHeader &header, Issues &issues) {
  if (file.size() < sizeof kPlanMagic ||
      std::memcmp(file.data(), kPlanMagic, sizeof kPlanMagic) != 0) {
    const auto *text = reinterpret_cast<const char *>(file.data());
    const std::string kind = foreignFile({text, std::min<size_t>(file.size(), 512)});
    issues.corrupt("this is no gpt2c plan (the first bytes differ)" +
                   (kind.empty() ? "" : ": " + kind));
    return false;
  }
  if (file.size() < sizeof(FileHeader)) {
    issues.corrupt("the file ends inside its header");
    return false;
  }
  std::memcpy(&header, file.data(), sizeof header);
  if (hashBytes(file.first(offsetof(FileHeader, headerChecksum))) != header.headerChecksum) {
    issues.corrupt("the header's checksum is wrong");
    return false;
  }
  if (header.fileBytes != file.size())
    issues.corrupt("the file has " + std::to_string(file.size()) + " bytes of " +
                   std::to_string(header.fileBytes));
  if (header.formatVersion == kPlanFormatVersion)
    return true;
  issues.incompatible("format version " + std::to_string(header.formatVersion) +
                      ", this runtime reads version " + std::to_string(kPlanFormatVersion) +
                      " (made by gpt2c " + inQuotes(fieldText(header.compilerVersion)) + ")");
  if (options.device) {
    std::string names = fieldText(header.architectures);
    bool fits = false;
    for (size_t begin = 0; begin < names.size();) {
      size_t end = std::min(names.find(' ', begin), names.size());
      std::optional<Arch> arch = Arch::parse(std::string_view(names).substr(begin, end - begin));
      fits |= arch && imageRank(*arch, *options.device) > 0;
      begin = end + 1;
    }
    if (!fits)
      issues.incompatible("no code for compute capability " +
                          std::to_string(options.device->major) + "." +
                          std::to_string(options.device->minor) + "; there is " + inQuotes(names));
  }
  return false;
}

/// Reads the section table. The sections follow each other in table order, each at the next
/// multiple of its alignment, with zeros between them, up to the end of the file.
std::vector<Section> readSections(Bytes file, const FileHeader &header, Issues &issues) {
  std::vector<Section> sections;
  uint64_t tableBytes = header.sectionCount * sizeof(SectionEntry);
  if (header.headerBytes != sizeof(FileHeader) || header.tableOffset != sizeof(FileHeader) ||
      header.sectionEntryBytes != sizeof(SectionEntry) || header.sectionCount > kMaxSections ||
      !zeroPadded(header.compilerVersion) || !zeroPadded(header.architectures)) {
    issues.corrupt("a field of the header is invalid");
    return sections;
  }
  if (tableBytes > file.size() - header.tableOffset) {
    issues.corrupt("the file ends inside its section table");
    return sections;
  }
  Bytes table = file.subspan(header.tableOffset, tableBytes);
  if (hashBytes(table) != header.tableChecksum) {
    issues.corrupt("the section table's checksum is wrong");
    return sections;
  }
  uint64_t end = header.tableOffset + tableBytes;
  for (uint32_t i = 0; i < header.sectionCount; ++i) {
    SectionEntry entry;
    std::memcpy(&entry, table.data() + i * sizeof entry, sizeof entry);
    std::string where =
        "section " + std::to_string(i) + " (" + inQuotes(fieldText(entry.name)) + ")";
    bool goodAlignment = std::has_single_bit(entry.alignment) && entry.alignment <= (1u << 20);
    if (!goodAlignment || entry.offset != alignUp(end, entry.alignment) ||
        !zeroPadded(entry.name)) {
      issues.corrupt(where + ": its place in the file is invalid");
      return sections;
    }
    if (entry.offset > file.size() || entry.bytes > file.size() - entry.offset) {
      issues.corrupt(where + ": lies outside the file");
      return sections;
    }
    if (!allZero(file.subspan(end, entry.offset - end)))
      issues.corrupt(where + ": the padding before it is not zero");
    sections.push_back({SectionKind(entry.kind), fieldText(entry.name), entry.alignment,
                        entry.offset, entry.checksum, file.subspan(entry.offset, entry.bytes)});
    end = entry.offset + entry.bytes;
  }
  if (end != file.size() && header.fileBytes == file.size())
    issues.corrupt("the file goes on after its last section");
  return sections;
}

void checkSections(const std::vector<Section> &sections, const OpenOptions &options,
                   Issues &issues) {
  std::map<SectionKind, int> count;
  for (size_t i = 0; i < sections.size(); ++i) {
    const Section &section = sections[i];
    std::string where = "section " + std::to_string(i) + " (" + inQuotes(section.name) + ")";
    if (section.kind < SectionKind::Metadata || section.kind > SectionKind::Tokenizer) {
      issues.corrupt(where + ": unknown kind " + std::to_string(uint32_t(section.kind)));
      continue;
    }
    ++count[section.kind];
    bool isWeights = section.kind == SectionKind::Weights;
    if (section.alignment < (isWeights ? kWeightsAlignment : kSectionAlignment))
      issues.corrupt(where + ": alignment " + std::to_string(section.alignment));
    if (isWeights && !options.verifyWeights)
      continue;
    if (sectionChecksum(section.bytes, options.threads) != section.checksum)
      issues.corrupt(where + ": the checksum is wrong");
  }
  for (SectionKind kind : {SectionKind::Metadata, SectionKind::Weights, SectionKind::Ir})
    if (count[kind] == 0)
      issues.corrupt(std::string("section ") + sectionKindName(kind) + " is missing");
  for (const auto &[kind, number] : count)
    if (number > 1 && kind != SectionKind::Image)
      issues.corrupt(std::string("there are several sections ") + sectionKindName(kind));
}

} // namespace

Plan::~Plan() {
  if (!mapping_)
    return;
  forgetMapping(mapping_);
  ::munmap(mapping_, bytes_.size());
}

Result<Plan::Ptr> Plan::open(const std::string &path, const OpenOptions &options) {
  std::string name = path == "-" ? "stdin" : path;
  ScopedFd file{path == "-" ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0)
    return ioError(name, errno);
  struct stat info;
  if (::fstat(file.fd, &info) != 0)
    return ioError(name, errno);
  if (S_ISDIR(info.st_mode))
    return Status(Code::Io, "cannot read '" + name + "' as a plan: it is a folder; 'gpt2c " + name +
                                " -o MODEL.plan' compiles a model's");
  if (!S_ISREG(info.st_mode) || path == "-" || info.st_size == 0) {
    Result<std::vector<std::byte>> bytes = readAll(file.fd, name);
    if (!bytes)
      return bytes.status();
    return fromBytes(bytes.take(), name, options);
  }
  void *mapping = ::mmap(nullptr, size_t(info.st_size), PROT_READ, MAP_PRIVATE, file.fd, 0);
  if (mapping == MAP_FAILED)
    return ioError(name, errno);
  std::shared_ptr<Plan> plan(new Plan);
  plan->mapping_ = mapping;
  rememberMapping(mapping, size_t(info.st_size), file.fd);
  plan->bytes_ = {static_cast<const std::byte *>(mapping), size_t(info.st_size)};
  if (Status status = plan->load(name, options); !status.ok())
    return status;
  return Ptr(std::move(plan));
}

Result<Plan::Ptr> Plan::fromBytes(std::vector<std::byte> bytes, const std::string &name,
                                  const OpenOptions &options) {
  std::shared_ptr<Plan> plan(new Plan);
  plan->owned_ = std::move(bytes);
  plan->bytes_ = plan->owned_;
  if (Status status = plan->load(name, options); !status.ok())
    return status;
  return Ptr(std::move(plan));
}

Status Plan::load(const std::string &name, const OpenOptions &options) try {
  Issues issues;
  if (!readHeader(bytes_, options, header_, issues))
    return issues.status(name);
  sections_ = readSections(bytes_, header_, issues);
  checkSections(sections_, options, issues);
  if (!issues.empty())
    return issues.status(name); // what damaged bytes say is of no use to anyone

  PlanSurroundings around;
  Bytes metadata;
  for (const Section &section : sections_) {
    around.sections.push_back({section.kind, section.bytes});
    switch (section.kind) {
    case SectionKind::Metadata:
      metadata = section.bytes;
      break;
    case SectionKind::Weights:
      weights_ = section.bytes;
      around.weightsBytes = section.bytes.size();
      break;
    case SectionKind::Ir:
      irText_ = {reinterpret_cast<const char *>(section.bytes.data()), section.bytes.size()};
      break;
    case SectionKind::Tokenizer:
      tokenizer_ = section.bytes;
      break;
    case SectionKind::Image:
      break;
    }
  }
  if (std::unique_ptr<plan::PlanT> meta = unpackMetadata(metadata, issues)) {
    meta_ = std::move(*meta);
    verifyPlan(meta_, around, issues);
    FileHeader expected{};
    setField(expected.compilerVersion, meta_.compiler_version);
    setField(expected.architectures, headerArchitectures(meta_));
    if (fieldText(expected.compilerVersion) != fieldText(header_.compilerVersion) ||
        fieldText(expected.architectures) != fieldText(header_.architectures))
      issues.corrupt("header and metadata name different compilers or architectures");
    if (options.device)
      verifyDevice(meta_, *options.device, issues);
  }
  return issues.status(name);
} catch (const std::bad_alloc &) {
  return Status(Code::OutOfMemory, "out of memory while reading '" + name + "' (" +
                                       std::to_string(bytes_.size()) + " bytes)");
}

Bytes Plan::weight(size_t index) const {
  const plan::WeightT &weight = *meta_.weights[index];
  if (weight.packed < 0)
    return weights_.subspan(weight.offset, weight.bytes);
  const std::lock_guard lock(unpacking_);
  auto [it, isNew] = unpacked_.try_emplace(index);
  if (isNew) {
    it->second.resize(weight.bytes);
    readWeight(index, it->second);
  }
  return it->second;
}

void Plan::readWeight(size_t index, std::span<std::byte> to) const {
  const plan::WeightT &weight = *meta_.weights[index];
  if (weight.packed >= 0)
    unpackWeight(*PackedShape::of(weight.shape), this->weight(size_t(weight.packed)), to);
  else if (weight.bytes > 0)
    std::memcpy(to.data(), weights_.data() + weight.offset, weight.bytes);
}

Bytes Plan::image(size_t index) const { return sections_[meta_.images[index]->section].bytes; }

const plan::FunctionT *Plan::function(std::string_view name) const {
  for (const std::unique_ptr<plan::FunctionT> &function : meta_.functions)
    if (function->name == name)
      return function.get();
  return nullptr;
}

std::optional<size_t> Plan::bestImage(size_t source, ComputeCapability device) const {
  return rt::bestImage(meta_, source, device);
}

} // namespace gpt2c::rt
