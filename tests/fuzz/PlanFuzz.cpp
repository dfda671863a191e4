// Plans from untrusted bytes. An input is either a whole file or, after a first byte of 'M',
// metadata that is put into an otherwise intact file with good checksums, which is how the fuzzer
// gets past them. Whatever is accepted is then used the way an executor would.
#include "runtime/plan/Expr.h"
#include "tests/unit/runtime/PlanSample.h"

#include <cstdlib>
#include <cstring>

using namespace gpt2c::rt;
namespace plan = gpt2c::plan;

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize);

namespace {

using ByteVector = std::vector<std::byte>;

void append(ByteVector &out, std::span<const std::byte> bytes, uint64_t alignment) {
  out.resize(alignUp(out.size(), alignment));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

ByteVector makeFile(std::span<const std::byte> metadata) {
  static const sample::Sample made;
  static const ByteVector weights(1024);
  struct Part {
    SectionKind kind;
    std::span<const std::byte> bytes;
    uint32_t alignment;
  };
  const Part parts[] = {{SectionKind::Metadata, metadata, 64},
                        {SectionKind::Ir, {}, 64},
                        {SectionKind::Image, made.cubin, 64},
                        {SectionKind::Image, std::as_bytes(std::span(made.ptx)), 64},
                        {SectionKind::Weights, weights, 4096}};
  std::vector<SectionEntry> table;
  ByteVector file(sizeof(FileHeader) + std::size(parts) * sizeof(SectionEntry));
  for (const Part &part : parts) {
    append(file, part.bytes, part.alignment);
    table.push_back({uint32_t(part.kind),
                     part.alignment,
                     file.size() - part.bytes.size(),
                     part.bytes.size(),
                     sectionChecksum(part.bytes),
                     {}});
  }
  FileHeader header{};
  std::memcpy(header.magic, kPlanMagic, sizeof kPlanMagic);
  header.formatVersion = kPlanFormatVersion;
  header.headerBytes = header.tableOffset = sizeof(FileHeader);
  header.fileBytes = file.size();
  header.sectionCount = uint32_t(table.size());
  header.sectionEntryBytes = sizeof(SectionEntry);
  setField(header.compilerVersion, "fuzz");
  setField(header.architectures, "compute_80 sm_90a");
  header.tableChecksum = hashBytes(std::as_bytes(std::span(table)));
  header.headerChecksum =
      hashBytes(std::as_bytes(std::span(&header, 1)).first(offsetof(FileHeader, headerChecksum)));
  std::memcpy(file.data(), &header, sizeof header);
  std::memcpy(file.data() + sizeof header, table.data(), table.size() * sizeof(SectionEntry));
  return file;
}

void require(bool condition) {
  if (!condition)
    std::abort();
}

void checkShape(const std::vector<std::unique_ptr<plan::ExprT>> &shape,
                std::span<const int64_t> symbols) {
  for (const auto &dim : shape) {
    Result<int64_t> value = evalExpr(*dim, symbols);
    require(value.ok() && *value >= 0);
  }
}

/// Relies on what an opened plan promises.
void use(const Plan &plan) {
  uint64_t sum = 0;
  for (size_t i = 0; i < plan.meta().weights.size(); ++i)
    sum += hashBytes(plan.weight(i));
  for (size_t i = 0; i < plan.meta().images.size(); ++i)
    sum += hashBytes(plan.image(i));
  for (const auto &function : plan.meta().functions) {
    for (bool largest : {false, true}) {
      std::vector<int64_t> symbols;
      for (const auto &symbol : function->symbols)
        symbols.push_back(largest ? symbol->max : symbol->min);
      for (const auto &port : function->inputs)
        checkShape(port->shape, symbols);
      for (const auto &buffer : function->buffers) {
        checkShape(buffer->shape, symbols);
        require(buffer->offset + buffer->bytes <= function->arena_bytes);
      }
      for (const auto &step : function->steps) {
        require(size_t(step->kernel) < plan.meta().kernels.size());
        checkShape(step->grid, symbols);
        for (const auto &arg : step->args)
          if (arg->expr && arg->kind <= plan::ArgKind::I64)
            require(evalExpr(*arg->expr, symbols).ok());
      }
    }
  }
  // Keeps the reads above from being optimised away.
  require(sum != 1);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::span<const std::byte> input = std::as_bytes(std::span(data, size));
  bool metadataOnly = size > 0 && data[0] == 'M';
  ByteVector file =
      metadataOnly ? makeFile(input.subspan(1)) : ByteVector(input.begin(), input.end());
  OpenOptions options;
  options.threads = 1;
  if (Result<Plan::Ptr> opened = Plan::fromBytes(std::move(file), "fuzz", options))
    use(**opened);
  return 0;
}

/// Starts from the metadata of the sample plan, which random bytes would never find.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize,
                                          unsigned seed) {
  if (size < 16 && seed % 2) {
    sample::Sample made;
    made.meta().compiler_version = "fuzz";
    made.meta().images[0]->section = 2;
    made.meta().images[1]->section = 3;
    for (size_t i = 0; i < made.meta().weights.size(); ++i) {
      made.meta().weights[i]->bytes = made.contents.weights[i].size();
      made.meta().weights[i]->offset = 256 * i;
    }
    flatbuffers::FlatBufferBuilder builder;
    builder.Finish(plan::Plan::Pack(builder, &made.meta()), plan::PlanIdentifier());
    if (builder.GetSize() + 1 <= maxSize) {
      data[0] = 'M';
      std::memcpy(data + 1, builder.GetBufferPointer(), builder.GetSize());
      size = builder.GetSize() + 1;
    }
    return size;
  }
  return LLVMFuzzerMutate(data, size, maxSize);
}
