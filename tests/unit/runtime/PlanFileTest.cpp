#include "PlanSample.h"
#include "runtime/plan/FunctionNames.h"
#include "runtime/plan/PackedWeight.h"
#include "runtime/plan/PlanVerify.h"

#include <gtest/gtest.h>

#include <filesystem>

#include <sys/stat.h>
#include <unistd.h>

namespace gpt2c::rt {
namespace {

using sample::readFile;
using sample::Sample;
using sample::writeFile;
namespace fs = std::filesystem;

class PlanFile : public ::testing::Test {
protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("gpt2c-plan-" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string file(const char *name) { return folder_ / name; }
  size_t filesInFolder() {
    return size_t(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  std::string writeSample(const char *name = "sample.plan") {
    Sample made;
    Status status = writePlan(file(name), made.contents);
    EXPECT_TRUE(status.ok()) << status.message();
    return file(name);
  }

  fs::path folder_;
};

std::string packed(const plan::PlanT &meta) {
  flatbuffers::FlatBufferBuilder builder;
  builder.Finish(plan::Plan::Pack(builder, &meta));
  return std::string(reinterpret_cast<const char *>(builder.GetBufferPointer()), builder.GetSize());
}

/// `bytes` with the checksums of table and header redone, so that only what lies behind them is
/// tested.
std::vector<std::byte> sealed(std::vector<std::byte> bytes) {
  FileHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::span<std::byte> table =
      std::span(bytes).subspan(header.tableOffset, header.sectionCount * sizeof(SectionEntry));
  header.tableChecksum = hashBytes(table);
  header.headerChecksum =
      hashBytes(std::as_bytes(std::span(&header, 1)).first(offsetof(FileHeader, headerChecksum)));
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

template <typename Change>
std::vector<std::byte> withHeader(std::vector<std::byte> bytes, Change change) {
  FileHeader header;
  std::memcpy(&header, bytes.data(), sizeof header);
  change(header);
  std::memcpy(bytes.data(), &header, sizeof header);
  return sealed(std::move(bytes));
}

template <typename Change>
std::vector<std::byte> withEntry(std::vector<std::byte> bytes, size_t index, Change change) {
  SectionEntry entry;
  std::byte *place = bytes.data() + sizeof(FileHeader) + index * sizeof entry;
  std::memcpy(&entry, place, sizeof entry);
  change(entry);
  std::memcpy(place, &entry, sizeof entry);
  return sealed(std::move(bytes));
}

OpenOptions onDevice(ComputeCapability device) {
  OpenOptions options;
  options.device = device;
  return options;
}

void expectRefused(std::vector<std::byte> bytes, Code code, const std::string &reason,
                   const OpenOptions &options = {}) {
  Result<Plan::Ptr> plan = Plan::fromBytes(std::move(bytes), "test.plan", options);
  ASSERT_FALSE(plan.ok()) << "accepted, expected: " << reason;
  EXPECT_EQ(plan.status().code(), code) << plan.status().message();
  EXPECT_NE(plan.status().message().find(reason), std::string::npos) << plan.status().message();
}

TEST_F(PlanFile, RoundTrip) {
  Sample made;
  std::string path = file("a.plan");
  ASSERT_TRUE(writePlan(path, made.contents).ok());
  Result<Plan::Ptr> opened = Plan::open(path);
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const Plan &plan = **opened;
  EXPECT_EQ(packed(plan.meta()), packed(made.meta()));
  EXPECT_EQ(plan.irText(), made.ir);
  ASSERT_EQ(plan.tokenizerBlob().size(), made.tokenizer.size());
  EXPECT_EQ(std::memcmp(plan.tokenizerBlob().data(), made.tokenizer.data(), made.tokenizer.size()),
            0);
  for (size_t i = 0; i < made.contents.weights.size(); ++i) {
    std::span<const std::byte> expected = made.contents.weights[i], got = plan.weight(i);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin(), expected.end())) << i;
    EXPECT_EQ(plan.meta().weights[i]->hash, hashBytes(expected));
  }
  for (size_t i = 0; i < made.contents.images.size(); ++i) {
    std::span<const std::byte> expected = made.contents.images[i], got = plan.image(i);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), expected.begin(), expected.end())) << i;
  }
  EXPECT_EQ(reinterpret_cast<uintptr_t>(plan.weights().data()) % 4096, 0u);
  EXPECT_EQ(plan.meta().weights[0]->offset, plan.meta().weights[2]->offset)
      << "equal tensors are stored once";
  EXPECT_NE(plan.function("prefill"), nullptr);
  EXPECT_EQ(plan.function("decode"), nullptr);
  EXPECT_EQ(fieldText(plan.header().architectures), "compute_80 sm_90a");
}

TEST_F(PlanFile, PackedWeightsAreMadeAgain) {
  Sample made;
  const PackedShape shape = *PackedShape::of(std::vector<int64_t>{40, 96});
  std::vector<uint16_t> matrix(40 * 96);
  for (size_t i = 0; i < matrix.size(); ++i)
    matrix[i] = i % 777 == 5 ? 0x8000 : uint16_t(0x3c80 + i % 1500);
  const std::optional<std::vector<std::byte>> bytes = packWeight(shape, matrix);
  ASSERT_TRUE(bytes);
  auto add = [&](plan::DType dtype, std::vector<int64_t> of, std::span<const std::byte> data) {
    made.meta().weights.push_back(std::make_unique<plan::WeightT>());
    made.meta().weights.back()->dtype = dtype;
    made.meta().weights.back()->shape = std::move(of);
    made.contents.weights.push_back(data);
    return made.meta().weights.size() - 1;
  };
  const auto whole = std::as_bytes(std::span(matrix));
  const size_t packed = add(plan::DType::U8, {int64_t(bytes->size())}, *bytes),
               of = add(plan::DType::BF16, {40, 96}, whole);
  made.meta().weights[of]->packed = int32_t(packed);
  ASSERT_TRUE(writePlan(file("a.plan"), made.contents).ok());
  Result<Plan::Ptr> opened = Plan::open(file("a.plan"));
  ASSERT_TRUE(opened.ok()) << opened.status().message();
  const Plan &plan = **opened;
  EXPECT_LT(plan.weights().size(), plan.meta().weights[packed]->offset + whole.size());
  EXPECT_EQ(plan.meta().weights[of]->hash, hashBytes(whole));
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(std::ranges::equal(plan.weight(of), whole));
  std::vector<std::byte> to(whole.size());
  plan.readWeight(of, to);
  EXPECT_TRUE(std::ranges::equal(to, whole));
}

TEST_F(PlanFile, WithoutTokenizerWeightsOrImages) {
  Sample made;
  made.contents.tokenizer = {};
  made.contents.weights.clear();
  made.contents.images.clear();
  made.meta().weights.clear();
  made.meta().images.clear();
  made.step().args.clear();
  std::string path = file("bare.plan");
  Status written = writePlan(path, made.contents);
  ASSERT_TRUE(written.ok()) << written.message();
  Result<Plan::Ptr> plan = Plan::open(path);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_TRUE((*plan)->tokenizerBlob().empty());
  EXPECT_TRUE((*plan)->weights().empty());
}

TEST_F(PlanFile, EqualContentsGiveEqualBytes) {
  EXPECT_EQ(readFile(writeSample("a.plan")), readFile(writeSample("b.plan")));
}

TEST_F(PlanFile, WriterReplacesWholeFilesOnly) {
  std::string path = file("old.plan");
  writeFile(path, std::as_bytes(std::span("old", 3)));
  Sample invalid;
  invalid.step().kernel = 5;
  Status status = writePlan(path, invalid.contents);
  EXPECT_FALSE(status.ok());
  EXPECT_EQ(readFile(path).size(), 3u) << "a refused plan must not touch the file";
  EXPECT_EQ(filesInFolder(), 1u);
  writeSample("old.plan");
  EXPECT_TRUE(Plan::open(path).ok());
  EXPECT_EQ(filesInFolder(), 1u) << "no temporary file remains";
}

TEST_F(PlanFile, WriterKeepsSymbolicLinks) {
  std::string target = file("target.plan"), link = file("link.plan");
  writeFile(target, {});
  fs::create_symlink(target, link);
  writeSample("link.plan");
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_TRUE(Plan::open(target).ok());
}

TEST_F(PlanFile, WriterReportsWhatItCannotWrite) {
  Sample made;
  Status status = writePlan(file("missing/a.plan"), made.contents);
  EXPECT_EQ(status.code(), Code::Io);
  EXPECT_NE(status.message().find("missing/a.plan"), std::string::npos);
  EXPECT_EQ(writePlan(folder_, made.contents).code(), Code::Io);
  if (::access("/dev/full", W_OK) == 0) {
    status = writePlan("/dev/full", made.contents);
    EXPECT_EQ(status.code(), Code::Io) << "a full disk is an error";
  }
}

TEST_F(PlanFile, OpenReportsWhatItCannotRead) {
  EXPECT_EQ(Plan::open(file("absent.plan")).status().code(), Code::Io);
  EXPECT_EQ(Plan::open(folder_).status().code(), Code::Io);
  writeFile(file("empty.plan"), {});
  EXPECT_EQ(Plan::open(file("empty.plan")).status().code(), Code::Corrupt);
}

/// Every byte of the file is covered by some check.
TEST_F(PlanFile, EveryFlippedByteIsNoticed) {
  std::vector<std::byte> bytes = readFile(writeSample());
  ASSERT_TRUE(Plan::fromBytes(bytes, "intact").ok());
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (std::byte mask : {std::byte{1}, std::byte{0x80}, std::byte{0xff}}) {
      bytes[i] ^= mask;
      Result<Plan::Ptr> plan = Plan::fromBytes(bytes, "flipped");
      ASSERT_FALSE(plan.ok()) << "byte " << i;
      ASSERT_EQ(plan.status().code(), Code::Corrupt) << plan.status().message();
      bytes[i] ^= mask;
    }
  }
}

TEST_F(PlanFile, EveryTruncationIsNoticed) {
  std::vector<std::byte> bytes = readFile(writeSample());
  for (size_t size = 0; size < bytes.size(); ++size) {
    Result<Plan::Ptr> plan =
        Plan::fromBytes({bytes.begin(), bytes.begin() + ptrdiff_t(size)}, "cut");
    ASSERT_FALSE(plan.ok()) << "size " << size;
    ASSERT_EQ(plan.status().code(), Code::Corrupt) << plan.status().message();
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(Plan::fromBytes(bytes, "longer").ok());
}

/// With the checksum of the section redone, damaged metadata must still be refused or harmless.
TEST_F(PlanFile, DamagedMetadataWithGoodChecksumsNeverCrashes) {
  const std::vector<std::byte> good = readFile(writeSample());
  SectionEntry metadata;
  std::memcpy(&metadata, good.data() + sizeof(FileHeader), sizeof metadata);
  ASSERT_EQ(metadata.kind, uint32_t(SectionKind::Metadata));
  size_t refused = 0;
  for (uint64_t i = 0; i < metadata.bytes; ++i) {
    for (std::byte value : {std::byte{0}, std::byte{0x7f}, std::byte{0xff}}) {
      std::vector<std::byte> bytes = good;
      bytes[metadata.offset + i] = value;
      uint64_t checksum =
          sectionChecksum(std::span(bytes).subspan(metadata.offset, metadata.bytes));
      bytes =
          withEntry(std::move(bytes), 0, [&](SectionEntry &entry) { entry.checksum = checksum; });
      refused += !Plan::fromBytes(std::move(bytes), "damaged").ok();
    }
  }
  EXPECT_GT(refused, metadata.bytes / 2);
}

TEST_F(PlanFile, WeightsAreVerifiedUnlessDeclined) {
  std::vector<std::byte> bytes = readFile(writeSample());
  bytes.back() ^= std::byte{1};
  expectRefused(bytes, Code::Corrupt, "'weights'): the checksum is wrong");
  OpenOptions unverified;
  unverified.verifyWeights = false;
  EXPECT_TRUE(Plan::fromBytes(bytes, "unverified", unverified).ok());
}

TEST_F(PlanFile, OtherFormatVersionsNameTheirCompiler) {
  std::vector<std::byte> bytes =
      withHeader(readFile(writeSample()), [](FileHeader &header) { header.formatVersion = 9; });
  expectRefused(bytes, Code::Incompatible, "format version 9");
  expectRefused(bytes, Code::Incompatible, "1.2.3-test");
  // Version and architecture, both at once.
  expectRefused(bytes, Code::Incompatible, "compute capability 7.5",
                onDevice(ComputeCapability{7, 5}));
  expectRefused(bytes, Code::Incompatible, "2 reasons", onDevice(ComputeCapability{7, 5}));
}

TEST_F(PlanFile, DeviceWithoutAnImageIsIncompatible) {
  std::vector<std::byte> bytes = readFile(writeSample());
  for (ComputeCapability good : {ComputeCapability{8, 0}, {9, 0}, {12, 0}})
    EXPECT_TRUE(Plan::fromBytes(bytes, "test", onDevice(good)).ok());
  expectRefused(bytes, Code::Incompatible, "sm_90a compute_80", onDevice(ComputeCapability{7, 5}));
}

/// A GPU may lack @extend alone: rows are then refused and the rest of the plan runs.
TEST_F(PlanFile, FunctionsWithoutStepsAreIncompatibleExceptExtend) {
  for (const char *name : {functions::extend, functions::decode}) {
    Sample made;
    made.meta().functions.push_back(std::make_unique<plan::FunctionT>());
    made.meta().functions.back()->name = name;
    Issues issues;
    verifyDevice(made.meta(), {9, 0}, issues);
    EXPECT_EQ(issues.empty(), std::string_view(name) == functions::extend) << issues.text();
  }
}

/// sm_90a beside compute_80: each device has the functions of the architecture that suits it best.
TEST_F(PlanFile, ADeviceHasTheFunctionsOfItsArchitecture) {
  Sample made;
  auto &functions = made.meta().functions;
  const size_t each = functions.size();
  for (size_t i = 0; i < each; ++i)
    functions.push_back(std::make_unique<plan::FunctionT>());
  auto namesFor = [&](ComputeCapability device) {
    std::vector<std::string> archs;
    for (const auto &f : functionsFor(made.meta(), device))
      archs.insert(archs.end(), f->archs.begin(), f->archs.end());
    return archs;
  };
  EXPECT_EQ(functionsFor(made.meta(), {9, 0}).size(), 2 * each) << "no lists: all of them";
  for (size_t i = 0; i < 2 * each; ++i)
    functions[i]->archs = {i < each ? "sm_90a" : "compute_80"};
  EXPECT_EQ(namesFor({9, 0}), std::vector<std::string>(each, "sm_90a"));
  EXPECT_EQ(namesFor({8, 6}), std::vector<std::string>(each, "compute_80"));
  EXPECT_EQ(namesFor({12, 0}), std::vector<std::string>(each, "compute_80"));
  EXPECT_EQ(namesFor({7, 5}), std::vector<std::string>());
}

TEST_F(PlanFile, InvalidTablesAreRefused) {
  const std::vector<std::byte> good = readFile(writeSample());
  FileHeader header;
  std::memcpy(&header, good.data(), sizeof header);
  size_t last = header.sectionCount - 1;
  auto corrupt = [&](size_t index, auto change, const char *reason) {
    expectRefused(withEntry(good, index, change), Code::Corrupt, reason);
  };
  corrupt(1, [](SectionEntry &e) { e.offset += 64; }, "its place in the file is invalid");
  corrupt(1, [](SectionEntry &e) { e.offset = 0; }, "its place in the file is invalid");
  corrupt(1, [](SectionEntry &e) { e.alignment = 3; }, "its place in the file is invalid");
  corrupt(1, [](SectionEntry &e) { e.alignment = 0; }, "its place in the file is invalid");
  corrupt(last, [](SectionEntry &e) { e.bytes = UINT64_MAX; }, "lies outside the file");
  corrupt(last, [](SectionEntry &e) { e.bytes -= 1; }, "goes on after its last section");
  corrupt(1, [](SectionEntry &e) { e.kind = 77; }, "unknown kind 77");
  corrupt(1, [](SectionEntry &e) { e.kind = 77; }, "section ir is missing");
  corrupt(0, [](SectionEntry &e) { e.kind = uint32_t(SectionKind::Ir); }, "several sections ir");
  expectRefused(withHeader(good, [](FileHeader &h) { h.tableOffset = 64; }), Code::Corrupt,
                "a field of the header is invalid");
  expectRefused(withHeader(good, [](FileHeader &h) { h.compilerVersion[0] = 'x'; }), Code::Corrupt,
                "name different compilers");
}

TEST_F(PlanFile, LargeSectionsHashTheSameInPieces) {
  std::vector<std::byte> bytes(kChecksumChunk * 2 + 12345);
  for (size_t i = 0; i < bytes.size(); i += 997)
    bytes[i] = std::byte(i);
  SectionHasher hasher;
  for (size_t at = 0; at < bytes.size(); at += 7654321)
    hasher.update(std::span(bytes).subspan(at, std::min<size_t>(7654321, bytes.size() - at)));
  uint64_t streamed = hasher.finish();
  EXPECT_EQ(streamed, sectionChecksum(bytes, 1));
  EXPECT_EQ(streamed, sectionChecksum(bytes, 4));
  bytes[kChecksumChunk] ^= std::byte{1};
  EXPECT_NE(streamed, sectionChecksum(bytes, 4));
}

TEST(Arch, ParsesAndRanks) {
  auto rank = [](const char *name, int major, int minor) {
    std::optional<Arch> arch = Arch::parse(name);
    EXPECT_TRUE(arch) << name;
    return arch ? imageRank(*arch, {major, minor}) : -1;
  };
  EXPECT_GT(rank("sm_90a", 9, 0), rank("sm_90", 9, 0));
  EXPECT_GT(rank("sm_89", 8, 9), rank("sm_86", 8, 9));
  EXPECT_GT(rank("sm_80", 8, 9), rank("compute_89", 8, 9)) << "machine code before PTX";
  EXPECT_GT(rank("compute_86", 8, 9), rank("compute_80", 8, 9));
  EXPECT_GT(rank("compute_80", 12, 0), 0) << "PTX runs on newer GPUs";
  EXPECT_GT(rank("sm_100f", 10, 3), 0);
  EXPECT_EQ(rank("sm_90a", 10, 0), 0);
  EXPECT_EQ(rank("sm_89", 8, 6), 0) << "not on an older minor version";
  EXPECT_EQ(rank("sm_80", 9, 0), 0) << "machine code is bound to its major version";
  EXPECT_EQ(rank("compute_90a", 10, 0), 0);
  EXPECT_EQ(rank("compute_90", 8, 0), 0);
  for (const char *bad : {"", "sm_", "sm_9", "sm_9x", "sm_1000", "gfx90a", "compute_", "sm_-10"})
    EXPECT_FALSE(Arch::parse(bad)) << bad;
}

} // namespace
} // namespace gpt2c::rt
