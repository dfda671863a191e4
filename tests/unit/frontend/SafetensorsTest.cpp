// What a safetensors file may say, and what is refused.
#include "frontend/checkpoint/Safetensors.h"
#include "ir/Error.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/raw_ostream.h"

#include <gtest/gtest.h>

#include <random>

using namespace gpt2c;

namespace {

/// The file of a header and that many bytes behind it.
std::string fileOf(const std::string &header, size_t bytes) {
  std::string file(8, '\0');
  llvm::support::endian::write64le(file.data(), header.size());
  return file + header + std::string(bytes, 'x');
}

std::string tensor(const std::string &dtype, const std::string &shape, const std::string &span) {
  return R"({"dtype": ")" + dtype + R"(", "shape": )" + shape + R"(, "data_offsets": )" + span +
         "}";
}

/// The reader refuses the file as InvalidModel; the message has `part`.
void expectRefused(const std::string &file, const std::string &part) {
  auto entries = readSafetensors(file, "w.safetensors");
  ASSERT_FALSE(bool(entries)) << "should be refused: " << part;
  std::string text;
  llvm::raw_string_ostream os(text);
  EXPECT_EQ(printError(entries.takeError(), os), ExitCode::InvalidModel);
  EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in: " << text;
  EXPECT_NE(text.find("w.safetensors"), std::string::npos) << text;
}

TEST(Safetensors, OfAllTypes) {
  const std::string header =
      R"({"__metadata__": {"format": "pt"}, "b": )" + tensor("BF16", "[2, 3]", "[8, 20]") +
      R"(, "a": )" + tensor("F32", "[2]", "[0, 8]") + R"(, "none": )" +
      tensor("F16", "[0, 7]", "[20, 20]") + R"(, "scalar": )" + tensor("F64", "[]", "[20, 28]") +
      R"(, "mask": )" + tensor("BOOL", "[3]", "[28, 31]") + R"(, "q": )" +
      tensor("F4", "[5]", "[31, 34]") + "}  ";
  const std::string file = fileOf(header, 34);
  auto entries = readSafetensors(file, "w");
  ASSERT_TRUE(bool(entries)) << llvm::toString(entries.takeError());
  ASSERT_EQ(entries->size(), 6u);
  const SafetensorsEntry &a = (*entries)[0], &b = (*entries)[1];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, DType::F32);
  EXPECT_EQ(a.offset, 8 + header.size());
  EXPECT_EQ(b.dtype, DType::BF16);
  EXPECT_EQ(llvm::ArrayRef<int64_t>(b.shape), llvm::ArrayRef<int64_t>({2, 3}));
  EXPECT_EQ(b.offset, a.offset + 8);
  EXPECT_EQ(b.bytes, 12u);
  EXPECT_EQ((*entries)[4].dtype, std::nullopt);
  EXPECT_EQ((*entries)[5].dtypeName, "F4"); // of a size that is not known here
}

TEST(Safetensors, HeadersThatAreNone) {
  expectRefused("", "0 bytes");
  expectRefused("1234567", "7 bytes");
  expectRefused("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "git lfs pull");
  expectRefused("<!DOCTYPE html><html></html>", "is a web page, no safetensors file");
  expectRefused("GGUF\x03" + std::string(99, '\0'), "is a GGUF file, of llama.cpp");
  expectRefused(fileOf(std::string(50, ' '), 0).substr(0, 40), "cut short");
  std::string huge = fileOf("{}", 100);
  llvm::support::endian::write64le(huge.data(), UINT64_MAX);
  expectRefused(huge, "most are 100000000");
  llvm::support::endian::write64le(huge.data(), UINT64_MAX - 7);
  expectRefused(huge, "most are 100000000");
  expectRefused(fileOf("{\"a\": ", 0), "no JSON");
  expectRefused(fileOf("[]", 0), "no JSON object");
  expectRefused(fileOf("", 0), "no JSON");
  expectRefused(fileOf(std::string(1000000, '['), 0), "");
  expectRefused(fileOf(R"({"a": [[[[1]]]]})", 0), "deep");
}

TEST(Safetensors, NamesTwice) {
  const std::string one = tensor("F32", "[1]", "[0, 4]");
  expectRefused(fileOf(R"({"a": )" + one + R"(, "a": )" + one + "}", 4), "'a' twice");
  expectRefused(fileOf(R"({"a": {"dtype": "F32", "dtype": "F16", "shape": [1],
                                 "data_offsets": [0, 4]}})",
                       4),
                "'dtype' twice");
}

TEST(Safetensors, TensorsThatAreNone) {
  for (const char *fields : {"3", "{}", R"({"dtype": "F32", "shape": [1]})",
                             R"({"dtype": 1, "shape": [1], "data_offsets": [0, 4]})",
                             R"({"dtype": "F32", "shape": 1, "data_offsets": [0, 4]})",
                             R"({"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]})"})
    expectRefused(fileOf(std::string(R"({"a": )") + fields + "}", 4), "'a'");
  for (const char *shape : {"[-1]", "[1.0]", "[\"1\"]", "[1e0]", "[99999999999999999999]"})
    expectRefused(fileOf(R"({"a": )" + tensor("F32", shape, "[0, 4]") + "}", 4), "list of sizes");
  for (const char *span : {"[4, 0]", "[-1, 3]", "[0.0, 4]", "[null, 4]"})
    expectRefused(fileOf(R"({"a": )" + tensor("F32", "[1]", span) + "}", 4), "no span");
}

TEST(Safetensors, BytesThatDoNotFit) {
  auto file = [](const char *dtype, const char *shape, const char *span, size_t bytes) {
    return fileOf(R"({"a": )" + tensor(dtype, shape, span) + "}", bytes);
  };
  expectRefused(file("F32", "[2]", "[0, 8]", 7), "cut short");
  expectRefused(file("F32", "[2]", "[0, 9223372036854775807]", 8), "cut short");
  expectRefused(file("F32", "[2]", "[0, 4]", 4), "shape and type F32");
  expectRefused(file("F16", "[2]", "[0, 8]", 8), "shape and type F16");
  expectRefused(file("F32", "[4611686018427387904, 4]", "[0, 0]", 0), "shape and type");
  expectRefused(file("F32", "[9223372036854775807, 9223372036854775807]", "[0, 4]", 4), "shape");
  expectRefused(file("F32", "[2]", "[4, 12]", 12), "in front of which");
  expectRefused(file("F32", "[2]", "[0, 8]", 9), "1 bytes that are no tensor's");
  expectRefused(fileOf(R"({"a": )" + tensor("F32", "[2]", "[0, 8]") + R"(, "b": )" +
                           tensor("F32", "[2]", "[4, 12]") + "}",
                       12),
                "another tensor's");
  expectRefused(fileOf(R"({"a": )" + tensor("F32", "[2]", "[0, 8]") + R"(, "b": )" +
                           tensor("F32", "[2]", "[0, 8]") + "}",
                       8),
                "another tensor's");
}

/// Any number of tensors of any sizes, in any order; and no file but a whole one.
TEST(Safetensors, DrawnFiles) {
  std::mt19937 random(11);
  for (int round = 0; round < 50; ++round) {
    std::vector<std::string> tensors;
    uint64_t end = 0;
    const unsigned count = random() % 6;
    for (unsigned i = 0; i < count; ++i) {
      const unsigned rank = random() % 4;
      uint64_t elements = 1;
      std::string shape;
      for (unsigned d = 0; d < rank; ++d) {
        const unsigned size = random() % 5;
        elements *= size;
        shape += (d ? ", " : "") + std::to_string(size);
      }
      const bool half = random() % 2;
      const uint64_t begin = end;
      end += elements * (half ? 2 : 4);
      tensors.push_back("\"t" + std::to_string(i) + "\": " +
                        tensor(half ? "F16" : "F32", "[" + shape + "]",
                               "[" + std::to_string(begin) + ", " + std::to_string(end) + "]"));
    }
    std::shuffle(tensors.begin(), tensors.end(), random);
    const std::string file = fileOf("{" + llvm::join(tensors, ", ") + "}", end);
    auto entries = readSafetensors(file, "w");
    ASSERT_TRUE(bool(entries)) << llvm::toString(entries.takeError());
    EXPECT_EQ(entries->size(), count);
    auto cut = readSafetensors(llvm::StringRef(file).drop_back(1), "w");
    EXPECT_FALSE(bool(cut));
    llvm::consumeError(cut.takeError());
  }
}

} // namespace
