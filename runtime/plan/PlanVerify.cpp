#include "runtime/plan/PlanVerify.h"
#include "runtime/plan/FunctionNames.h"

#include "runtime/plan/KvLayout.h"
#include "runtime/plan/PackedWeight.h"
#include "runtime/plan/PlanFile.h"
#include "runtime/plan/WeightPart.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>
#include <map>
#include <set>

#include <elf.h>

namespace gpt2c::rt {

void Issues::add(bool corrupt, std::string reason) {
  ++count_;
  corrupt_ |= corrupt;
  if (!full())
    reasons_.push_back(std::move(reason));
}

std::string Issues::text() const {
  if (count_ == 1)
    return ": " + reasons_.front();
  std::string text = " (" + std::to_string(count_) + " reasons):";
  for (const std::string &reason : reasons_)
    text += "\n  - " + reason;
  if (count_ > reasons_.size())
    text += "\n  - and " + std::to_string(count_ - reasons_.size()) + " more";
  return text;
}

Status Issues::status(const std::string &planName) const {
  if (empty())
    return Status();
  if (corrupt_)
    return Status(Code::Corrupt, planName + ": the plan is corrupt" + text() +
                                     "\ncopy it again, or rebuild it with gpt2c");
  return Status(Code::Incompatible,
                planName + ": the plan cannot be used here" + text() + "\nrebuild it with gpt2c");
}

std::string inQuotes(std::string_view text) {
  std::string out = "'";
  for (unsigned char c : text.substr(0, 80))
    out += c < 0x20 || c == 0x7f ? '?' : char(c);
  return out + (text.size() > 80 ? "...'" : "'");
}

namespace {
struct DTypeInfo {
  const char *name;
  uint64_t bits;
};
/// In the order of plan::DType.
constexpr DTypeInfo dtypes[] = {{"f32", 32}, {"f16", 16},   {"bf16", 16}, {"f64", 64},
                                {"i8", 8},   {"u8", 8},     {"i32", 32},  {"i64", 64},
                                {"bool", 8}, {"f8e4m3", 8}, {"i4", 4}};
static_assert(std::size(dtypes) == size_t(plan::DType::MAX) + 1);
} // namespace

uint64_t dtypeBytes(plan::DType dtype) {
  return dtype <= plan::DType::MAX ? dtypes[size_t(dtype)].bits / 8 : 0;
}

std::optional<uint64_t> storedBytes(plan::DType dtype, uint64_t count) {
  const uint64_t bits = dtype <= plan::DType::MAX ? dtypes[size_t(dtype)].bits : 0,
                 each = bits < 8 && bits > 0 ? 32 / bits : 1; // elements that are stored as one
  uint64_t bytes;
  if (__builtin_mul_overflow(count / each + (count % each != 0), bits * each / 8, &bytes))
    return std::nullopt;
  return bytes;
}

const char *dtypeName(plan::DType dtype) {
  return dtype <= plan::DType::MAX ? dtypes[size_t(dtype)].name : "unknown";
}

namespace {

/// Whether [offset, offset + bytes) lies inside [0, limit).
bool inside(uint64_t offset, uint64_t bytes, uint64_t limit) {
  return offset <= limit && bytes <= limit - offset;
}

/// Product of all factors; nothing when it exceeds 64 bits.
std::optional<uint64_t> product(std::initializer_list<uint64_t> factors) {
  uint64_t out = 1;
  for (uint64_t factor : factors)
    if (__builtin_mul_overflow(out, factor, &out))
      return std::nullopt;
  return out;
}

void verifyWeight(const plan::WeightT &weight, uint64_t sectionBytes, const std::string &where,
                  Issues &issues) {
  std::optional<uint64_t> count = 1;
  if (weight.dtype > plan::DType::MAX)
    return issues.corrupt(where + ": unknown dtype " + std::to_string(int(weight.dtype)));
  for (int64_t dim : weight.shape) {
    if (dim < 0)
      return issues.corrupt(where + ": negative dimension");
    count = product({*count, uint64_t(dim)});
    if (!count)
      return issues.corrupt(where + ": shape exceeds 64 bits");
  }
  const std::optional<uint64_t> bytes = storedBytes(weight.dtype, *count);
  if (!bytes)
    return issues.corrupt(where + ": shape exceeds 64 bits");
  if (*bytes != weight.bytes)
    issues.corrupt(where + ": " + std::to_string(weight.bytes) + " bytes, shape and dtype need " +
                   std::to_string(*bytes));
  if (weight.offset % kWeightAlignment != 0)
    issues.corrupt(where + ": offset is not a multiple of " + std::to_string(kWeightAlignment));
  if (weight.packed == -1 && !inside(weight.offset, weight.bytes, sectionBytes))
    issues.corrupt(where + ": lies outside the weights section");
}

/// Of a weight that is packed: what it is made of is there, of the size that its shape says.
void verifyPacked(const plan::PlanT &meta, const plan::WeightT &weight, const std::string &where,
                  Issues &issues) {
  const std::optional<PackedShape> shape = PackedShape::of(weight.shape);
  const plan::WeightT *const packed =
      weight.packed >= 0 && size_t(weight.packed) < meta.weights.size()
          ? meta.weights[size_t(weight.packed)].get()
          : nullptr;
  if (!packed || packed->packed != -1 || packed->dtype != plan::DType::U8)
    return issues.corrupt(where + ": there is no weight " + std::to_string(weight.packed) +
                          " to make it of");
  if (!shape || weight.dtype != plan::DType::BF16 || weight.offset != kUnpackedOffset ||
      !shape->mayHave(packed->bytes))
    issues.corrupt(where + ": its type, shape or offset, or the size of weight " +
                   std::to_string(weight.packed) + " are none of a packed matrix");
}

void verifyKv(const plan::KvPlanT &kv, Issues &issues) {
  for (int32_t size : {kv.layers, kv.heads, kv.head_dim, kv.max_batch, kv.max_context})
    if (size < 1)
      return issues.corrupt("KV plan: a size is below one");
  if (kv.dtype != plan::DType::F32 && kv.dtype != plan::DType::F16 &&
      kv.dtype != plan::DType::BF16 && !isQuantised(kv))
    return issues.corrupt("KV plan: dtype " + std::to_string(int(kv.dtype)) + " cannot hold keys");
  std::optional<uint64_t> perToken = product({uint64_t(kv.layers), 2, uint64_t(kv.heads),
                                              uint64_t(kvRowElements(kv)), dtypeBytes(kv.dtype)});
  if (!perToken || *perToken != kv.bytes_per_token)
    issues.corrupt("KV plan: bytes per token contradict its sizes");
  std::optional<uint64_t> total =
      product({kv.bytes_per_token, uint64_t(kv.max_batch), uint64_t(kv.max_context)});
  if (!total || *total != kv.bytes)
    issues.corrupt("KV plan: bytes contradict its sizes");
}

/// Whether each head of the KV state is some rank's, and no rank has one that does not exist.
const char *ranksProblem(const plan::PlanT &meta, const plan::RanksT &ranks) {
  constexpr int32_t most = 1024;
  if (ranks.tensor < 1 || ranks.tensor > most || ranks.stages < 0 || ranks.stages > most ||
      ranks.tensor * std::max(ranks.stages, 1) < 2)
    return "has no number of ranks";
  if (!meta.kv)
    return "needs a KV plan";
  if (ranks.kv_heads.empty() || ranks.kv_heads.size() % ranks.tensor != 0)
    return "does not say which heads each rank has";
  std::vector<bool> had(meta.kv->heads);
  for (int32_t head : ranks.kv_heads) {
    if (head < -1 || head >= meta.kv->heads)
      return "has a head that does not exist";
    if (head >= 0)
      had[head] = true;
  }
  return std::ranges::find(had, false) == had.end() ? nullptr : "lacks a head";
}

void verifyRanks(const plan::PlanT &meta, Issues &issues) {
  for (const auto &ranks : meta.ranks)
    if (const char *problem = ranksProblem(meta, *ranks))
      issues.corrupt("the division among " + std::to_string(ranks->tensor) + " ranks " + problem);
}

void verifyExported(const plan::PlanT &meta, const plan::ExportedPortT &port, const char *direction,
                    Issues &issues) {
  std::string where = std::string(direction) + " " + inQuotes(port.name);
  if (dtypeBytes(port.dtype) == 0)
    issues.corrupt(where + ": unknown dtype " + std::to_string(int(port.dtype)));
  if (port.role > plan::Role::MAX)
    issues.corrupt(where + ": unknown role " + std::to_string(int(port.role)));
  if (port.part > plan::KvPart::MAX)
    issues.corrupt(where + ": unknown part " + std::to_string(int(port.part)));
  if (port.role != plan::Role::PastTensor && port.role != plan::Role::PresentTensor)
    return;
  if (!meta.kv)
    issues.corrupt(where + ": past and present tensors need a KV plan");
  else if (port.layer < 0 || port.layer >= meta.kv->layers)
    issues.corrupt(where + ": layer " + std::to_string(port.layer) + " does not exist");
}

/// The driver takes an image without its length, so the tables of its ELF header must stay inside
/// the section.
const char *elfProblem(std::span<const std::byte> image) {
  Elf64_Ehdr header;
  if (image.size() < sizeof header)
    return "is shorter than an ELF header";
  std::memcpy(&header, image.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_ident[EI_DATA] != ELFDATA2LSB)
    return "is no 64-bit ELF file";
  if (header.e_phnum && header.e_phentsize != sizeof(Elf64_Phdr))
    return "has a program table of unknown form";
  if (header.e_shnum && header.e_shentsize != sizeof(Elf64_Shdr))
    return "has a section table of unknown form";
  if (!inside(header.e_phoff, uint64_t(header.e_phnum) * sizeof(Elf64_Phdr), image.size()) ||
      !inside(header.e_shoff, uint64_t(header.e_shnum) * sizeof(Elf64_Shdr), image.size()))
    return "is cut off";
  for (unsigned i = 0; i < header.e_shnum; ++i) {
    Elf64_Shdr section;
    std::memcpy(&section, image.data() + header.e_shoff + i * sizeof section, sizeof section);
    if (section.sh_type != SHT_NOBITS && section.sh_type != SHT_NULL &&
        !inside(section.sh_offset, section.sh_size, image.size()))
      return "is cut off";
  }
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, image.data() + header.e_phoff + i * sizeof segment, sizeof segment);
    if (!inside(segment.p_offset, segment.p_filesz, image.size()))
      return "is cut off";
  }
  return nullptr;
}

void verifyImages(const plan::PlanT &meta, const PlanSurroundings &around, Issues &issues) {
  std::vector<bool> hasImage(meta.sources.size()), used(around.sections.size());
  for (size_t i = 0; i < meta.images.size(); ++i) {
    const plan::ImageT &image = *meta.images[i];
    std::string where = "image " + std::to_string(i) + " (" + inQuotes(image.arch) + ")";
    if (image.source < 0 || size_t(image.source) >= meta.sources.size())
      issues.corrupt(where + ": unknown source " + std::to_string(image.source));
    else
      hasImage[image.source] = true;
    std::optional<Arch> arch = Arch::parse(image.arch);
    if (!arch || arch->ptx != image.ptx)
      issues.corrupt(where + ": unknown architecture");
    if (image.section >= around.sections.size() ||
        around.sections[image.section].kind != SectionKind::Image) {
      issues.corrupt(where + ": section " + std::to_string(image.section) + " holds no image");
      continue;
    }
    used[image.section] = true;
    std::span<const std::byte> bytes = around.sections[image.section].bytes;
    if (image.ptx) {
      if (bytes.empty() || bytes.back() != std::byte{0})
        issues.corrupt(where + ": PTX does not end with a NUL");
    } else if (const char *problem = elfProblem(bytes)) {
      issues.corrupt(where + " " + problem);
    }
  }
  for (size_t i = 0; i < around.sections.size(); ++i)
    if (around.sections[i].kind == SectionKind::Image && !used[i])
      issues.corrupt("section " + std::to_string(i) + ": no image refers to it");
  for (size_t i = 0; i < hasImage.size(); ++i)
    if (!meta.images.empty() && !hasImage[i])
      issues.corrupt("source " + inQuotes(meta.sources[i]->name) + ": has no image");
}

void verifyParts(const plan::PlanT &meta, Issues &issues) {
  for (size_t i = 0; i < meta.weight_parts.size() && !issues.full(); ++i) {
    const plan::WeightPartT &part = *meta.weight_parts[i];
    if (part.weight < 0 || size_t(part.weight) >= meta.weights.size() ||
        !sizesOf(part, meta.weights[size_t(part.weight)]->dtype,
                 meta.weights[size_t(part.weight)]->shape))
      issues.corrupt("part " + std::to_string(i) + " of weights is none of weight " +
                     std::to_string(part.weight));
  }
}

/// Functions of one list for one number of ranks stand together, and the plan says which heads
/// those ranks have.
void verifyRankFunctions(const plan::PlanT &meta, Issues &issues) {
  std::set<std::pair<std::vector<std::string>, int>> seen;
  for (size_t i = 0; i < meta.functions.size(); ++i) {
    const plan::FunctionT &f = *meta.functions[i];
    const int ranks = ranksOf(f);
    if (ranks > 1 && std::ranges::none_of(meta.ranks, [&](const auto &r) {
          return r->tensor == ranks && r->stages <= 1;
        }))
      issues.corrupt("@" + f.name + " is for " + std::to_string(ranks) +
                     " ranks, of which the plan knows nothing");
    const bool follows = i > 0 && f.archs == meta.functions[i - 1]->archs &&
                         ranks == ranksOf(*meta.functions[i - 1]);
    if (!follows && !seen.emplace(f.archs, ranks).second)
      issues.corrupt("@" + f.name + " for " + std::to_string(ranks) +
                     " ranks stands apart from others for as many");
  }
}

/// Functions with one list of architectures stand together, no two lists share one, and each image
/// is for one of them.
void verifyArchs(const plan::PlanT &meta, Issues &issues) {
  std::set<std::string> listed;
  for (size_t i = 0; i < meta.functions.size(); ++i) {
    const plan::FunctionT &function = *meta.functions[i];
    if (i > 0 && function.archs == meta.functions[i - 1]->archs)
      continue;
    if (function.archs.empty() && i > 0)
      issues.corrupt("@" + function.name + ": a list of architectures is missing");
    for (const std::string &arch : function.archs)
      if (!Arch::parse(arch) || !listed.insert(arch).second)
        issues.corrupt("@" + function.name + ": architecture " + inQuotes(arch) +
                       " is unknown, or that of other functions, too");
  }
  if (listed.empty())
    return;
  if (meta.functions.front()->archs.empty())
    issues.corrupt("some functions have lists of architectures, others have none");
  for (const auto &image : meta.images)
    if (!listed.contains(image->arch))
      issues.corrupt("no function is for " + inQuotes(image->arch) + ", there are images for it");
}

/// Whether a device may be asked for the sequence of a golden prompt, and each row be compared.
const char *goldenProblem(const plan::PlanT &meta, const plan::GoldenPromptT &prompt) {
  auto unknown = [&](int32_t id) { return id < 0 || id >= meta.vocab_size; };
  if (prompt.ids.empty() || prompt.rows.empty())
    return "is empty";
  if (std::ranges::any_of(prompt.ids, unknown))
    return "has a token outside the vocabulary";
  if (meta.kv && prompt.ids.size() + prompt.rows.size() - 1 > size_t(meta.kv->max_context))
    return "is longer than the context";
  auto wrong = [](float x) { return !std::isfinite(x); };
  for (const auto &row : prompt.rows) {
    if (row->top_ids.empty() || row->top_ids.size() != row->top_logprobs.size() ||
        std::ranges::any_of(row->top_ids, unknown))
      return "has a row without tokens of the vocabulary";
    if (row->projections.empty() || wrong(row->mean) || !(row->deviation >= 0) ||
        wrong(row->deviation) || std::ranges::any_of(row->top_logprobs, wrong) ||
        std::ranges::any_of(row->projections, wrong))
      return "has a row without finite numbers";
  }
  return nullptr;
}

void verifyGolden(const plan::PlanT &meta, Issues &issues) {
  const plan::GoldenT &golden = *meta.golden;
  if (golden.prompts.empty() || !(golden.tolerance > 0) || !std::isfinite(golden.tolerance))
    issues.corrupt("golden prompts: there is none, or no tolerance");
  for (size_t i = 0; i < golden.prompts.size() && !issues.full(); ++i)
    if (const char *problem = goldenProblem(meta, *golden.prompts[i]))
      issues.corrupt("golden prompt " + std::to_string(i) + ": " + problem);
}

} // namespace

void verifyPlan(const plan::PlanT &meta, const PlanSurroundings &around, Issues &issues) {
  if (meta.vocab_size < 0)
    issues.corrupt("negative vocabulary size");
  if (meta.eos_token < -1 || meta.eos_token >= std::max(meta.vocab_size, 0))
    issues.corrupt("end-of-text token " + std::to_string(meta.eos_token) +
                   " lies outside the vocabulary");
  for (size_t i = 0; i < meta.weights.size() && !issues.full(); ++i)
    verifyWeight(*meta.weights[i], around.weightsBytes,
                 "weight " + std::to_string(i) + " (" + inQuotes(meta.weights[i]->name) + ")",
                 issues);
  for (size_t i = 0; i < meta.weights.size() && !issues.full(); ++i)
    if (meta.weights[i]->packed != -1)
      verifyPacked(meta, *meta.weights[i], "weight " + std::to_string(i), issues);
  if (meta.kv)
    verifyKv(*meta.kv, issues);
  if (meta.golden)
    verifyGolden(meta, issues);
  verifyRanks(meta, issues);
  for (size_t i = 0; i < meta.kernels.size() && !issues.full(); ++i) {
    const plan::KernelT &kernel = *meta.kernels[i];
    if (kernel.name.empty() || kernel.name.find('\0') != std::string::npos)
      issues.corrupt("kernel " + std::to_string(i) + " has no valid name");
    if (kernel.source < 0 || size_t(kernel.source) >= meta.sources.size())
      issues.corrupt("kernel " + inQuotes(kernel.name) + ": unknown source " +
                     std::to_string(kernel.source));
  }
  verifyImages(meta, around, issues);
  for (const auto &port : meta.exported_inputs)
    verifyExported(meta, *port, "exported input", issues);
  for (const auto &port : meta.exported_outputs)
    verifyExported(meta, *port, "exported output", issues);
  verifyArchs(meta, issues);
  verifyParts(meta, issues);
  verifyRankFunctions(meta, issues);
  for (const auto &function : meta.functions) {
    if (issues.full())
      return;
    if (function->name.empty())
      issues.corrupt("a function has no name");
    verifyFunction(meta, *function, issues);
  }
}

std::optional<size_t> bestImage(const plan::PlanT &meta, size_t source, ComputeCapability device) {
  std::optional<size_t> best;
  int bestRank = 0;
  for (size_t i = 0; i < meta.images.size(); ++i) {
    const plan::ImageT &image = *meta.images[i];
    std::optional<Arch> arch = Arch::parse(image.arch);
    if (image.source < 0 || size_t(image.source) != source || !arch)
      continue;
    if (int rank = imageRank(*arch, device); rank > bestRank) {
      best = i;
      bestRank = rank;
    }
  }
  return best;
}

std::span<const std::unique_ptr<plan::FunctionT>>
functionsFor(const plan::PlanT &meta, ComputeCapability device, int ranks) {
  std::string best;
  int bestRank = 0;
  for (const auto &image : meta.images) {
    std::optional<Arch> arch = Arch::parse(image->arch);
    if (int rank = arch ? imageRank(*arch, device) : 0; rank > bestRank) {
      best = image->arch;
      bestRank = rank;
    }
  }
  auto isFor = [&](const std::unique_ptr<plan::FunctionT> &f) {
    return ranksOf(*f) == ranks &&
           (f->archs.empty() || std::ranges::find(f->archs, best) != f->archs.end());
  };
  const auto first = std::ranges::find_if(meta.functions, isFor),
             last = std::find_if_not(first, meta.functions.end(), isFor);
  return {first, last};
}

std::vector<bool> sourcesFor(const plan::PlanT &meta, ComputeCapability device, int ranks) {
  std::vector<bool> used(meta.sources.size());
  for (const auto &function : functionsFor(meta, device, ranks))
    for (const auto &step : function->steps)
      if (size_t(step->kernel) < meta.kernels.size())
        if (const size_t source = size_t(meta.kernels[step->kernel]->source); source < used.size())
          used[source] = true;
  return used;
}

void verifyDevice(const plan::PlanT &meta, ComputeCapability device, Issues &issues, int ranks) {
  std::string name = std::to_string(device.major) + "." + std::to_string(device.minor);
  // Sources almost always lack the same architectures, so those with the same list share a line.
  std::map<std::string, std::vector<std::string>> missing;
  const std::vector<bool> used = sourcesFor(meta, device, ranks);
  const bool none = functionsFor(meta, device, ranks).empty();
  for (size_t i = 0; i < meta.sources.size(); ++i) {
    if ((!used[i] && !none) || bestImage(meta, i, device))
      continue;
    std::string have;
    for (const std::unique_ptr<plan::ImageT> &image : meta.images)
      if (image->source >= 0 && size_t(image->source) == i)
        have += (have.empty() ? "" : " ") + image->arch;
    missing[have].push_back(inQuotes(meta.sources[i]->name));
  }
  for (const auto &[have, sources] : missing) {
    std::string in;
    if (sources.size() < meta.sources.size() || sources.size() == 1)
      for (const std::string &source : sources)
        in += (in.empty() ? " in " : ", ") + source;
    std::string reason = "no code for compute capability " + name;
    reason.append(in).append("; there is ").append(have.empty() ? "none at all" : have);
    issues.incompatible(std::move(reason));
  }
  for (const std::unique_ptr<plan::FunctionT> &function : functionsFor(meta, device, ranks))
    if (function->steps.empty() && function->name != functions::extend)
      issues.incompatible("@" + function->name + " has no steps");
}

std::string headerArchitectures(const plan::PlanT &meta) {
  std::set<std::string> names;
  for (const std::unique_ptr<plan::ImageT> &image : meta.images)
    names.insert(image->arch);
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "" : " ") + name;
  return text;
}

} // namespace gpt2c::rt
