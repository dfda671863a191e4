// What the importer refuses of weights, in the model and in files beside it.
#include "tests/unit/frontend/ImportFailure.h"

#include <filesystem>
#include <fstream>

using namespace gpt2c;
using namespace gpt2c::test;
namespace fs = std::filesystem;

/// y = x + w, where a test spoils w.
class BadInitializer : public testing::Test {
protected:
  BadInitializer() {
    g.input("x", {2});
    g.node("Add", {"x", "w"}, {"y"}, "add");
    g.output("y");
  }
  OnnxGraph g;
};

TEST_F(BadInitializer, TooFewElements) {
  g.initializer("w", {2}, {1});
  expectFailure(g, ExitCode::InvalidModel, {"tensor 'w'", "1 elements", "2"});
}

TEST_F(BadInitializer, RawDataOfAnotherSize) {
  g.initializer("w", {2}, {}).set_raw_data("123");
  expectFailure(g, ExitCode::InvalidModel, {"tensor 'w'", "3 bytes", "8"});
}

TEST_F(BadInitializer, NegativeAndHugeDimensions) {
  OnnxGraph huge = g;
  g.initializer("w", {-2}, {1});
  expectFailure(g, ExitCode::InvalidModel, {"tensor 'w'", "-2"});
  huge.initializer("w", {int64_t(1) << 40, int64_t(1) << 40}, {1});
  expectFailure(huge, ExitCode::InvalidModel, {"tensor 'w'", "more elements"});
}

TEST_F(BadInitializer, ElementTypes) {
  constexpr int int4 = 22;
  g.initializer("w", {2}, {}).set_data_type(int4);
  expectFailure(g, ExitCode::Unsupported, {"'add'", "tensor 'w'", "int4"});
}

TEST_F(BadInitializer, UnreadOnesDoNotMatter) {
  g.initializer("w", {2}, {1, 2});
  g.initializer("unread", {5}, {}).set_data_type(onnx::TensorProto::STRING);
  EXPECT_TRUE(bool(importOnnxBytes(g.bytes(), "m")));
}

/// The same with w in a file.
class ExternalData : public BadInitializer {
protected:
  void SetUp() override {
    const auto *info = testing::UnitTest::GetInstance()->current_test_info();
    root = fs::temp_directory_path() /
           (std::string("gpt2c_external_") + info->name() + std::to_string(::getpid()));
    folder = root / "model";
    fs::create_directories(folder);
    write(folder / "weights.bin", 16);
    write(root / "secret.bin", 16);
  }
  void TearDown() override { fs::remove_all(root); }

  static void write(const fs::path &path, size_t size) {
    std::ofstream(path, std::ios::binary) << std::string(size, '\0');
  }

  llvm::Expected<std::unique_ptr<Module>> import(const std::string &location,
                                                 const std::string &offset = "",
                                                 const std::string &length = "") {
    g.graph().clear_initializer();
    auto &w = g.initializer("w", {2}, {});
    w.set_data_location(onnx::TensorProto::EXTERNAL);
    for (auto &[key, value] :
         {std::pair{"location", location}, {"offset", offset}, {"length", length}})
      if (!value.empty()) {
        auto *e = w.add_external_data();
        e->set_key(key);
        e->set_value(value);
      }
    std::ofstream(folder / "model.onnx", std::ios::binary) << g.bytes();
    return importOnnx((folder / "model.onnx").string());
  }

  fs::path root, folder;
};

TEST_F(ExternalData, Good) {
  EXPECT_TRUE(bool(import("weights.bin")));
  EXPECT_TRUE(bool(import("weights.bin", "8", "8")));
  EXPECT_TRUE(bool(import("./weights.bin", "3"))) << "an offset that is no multiple of the element";
  fs::create_directories(folder / "sub");
  write(folder / "sub" / "w", 8);
  EXPECT_TRUE(bool(import("sub/w")));
}

TEST_F(ExternalData, Missing) {
  expectFailure(import("absent.bin"), ExitCode::InvalidModel,
                {"tensor 'w'", "absent.bin", "No such file"});
  expectFailure(import(""), ExitCode::InvalidModel, {"tensor 'w'", "file name"});
  fs::create_directories(folder / "sub");
  expectFailure(import("sub"), ExitCode::InvalidModel, {"not a file"});
}

TEST_F(ExternalData, TooShort) {
  expectFailure(import("weights.bin", "12"), ExitCode::InvalidModel,
                {"tensor 'w'", "12 to 20", "only 16"});
  expectFailure(import("weights.bin", "18446744073709551615"), ExitCode::InvalidModel, {"only 16"});
}

TEST_F(ExternalData, BadNumbers) {
  expectFailure(import("weights.bin", "-1"), ExitCode::InvalidModel, {"offset", "'-1'"});
  expectFailure(import("weights.bin", "0", "many"), ExitCode::InvalidModel, {"length", "'many'"});
  expectFailure(import("weights.bin", "0", "12"), ExitCode::InvalidModel, {"12 bytes", "8"});
}

TEST_F(ExternalData, PathsThatLeaveTheFolder) {
  expectFailure(import("../secret.bin"), ExitCode::InvalidModel, {"below the model's folder"});
  expectFailure(import("a/../../secret.bin"), ExitCode::InvalidModel, {"below the model's folder"});
  expectFailure(import((root / "secret.bin").string()), ExitCode::InvalidModel,
                {"below the model's folder"});
  fs::create_symlink(root / "secret.bin", folder / "link");
  expectFailure(import("link"), ExitCode::InvalidModel, {"leads out of the model's folder"});
  fs::create_directory_symlink(root, folder / "up");
  expectFailure(import("up/secret.bin"), ExitCode::InvalidModel,
                {"leads out of the model's folder"});
  fs::create_symlink(folder / "weights.bin", folder / "inside");
  EXPECT_TRUE(bool(import("inside")));
}

/// The cache of Hugging Face's tools: snapshots/<revision> has links to files of blobs.
TEST_F(ExternalData, LinksOfACache) {
  const fs::path snapshot = root / "snapshots" / "1a2b" / "onnx";
  fs::create_directories(snapshot);
  fs::create_directories(root / "blobs" / "deeper");
  write(root / "blobs" / "3c4d", 16);
  write(root / "blobs" / "deeper" / "w", 16);
  folder = snapshot;
  fs::create_symlink("../../../blobs/3c4d", snapshot / "weights.bin");
  EXPECT_TRUE(bool(import("weights.bin")));
  // Nothing else outside of the model's folder.
  for (const char *target : {"../../../secret.bin", "../../../blobs/deeper/w"}) {
    fs::remove(snapshot / "weights.bin");
    fs::create_symlink(target, snapshot / "weights.bin");
    expectFailure(import("weights.bin"), ExitCode::InvalidModel,
                  {"leads out of the model's folder", "cp -L"});
  }
}

TEST_F(ExternalData, CallersMayRefuse) {
  ASSERT_TRUE(bool(import("weights.bin")));
  ImportOptions options;
  options.externalFile = [](llvm::StringRef path) {
    return makeError(ExitCode::Usage, "not " + path);
  };
  expectFailure(importOnnx((folder / "model.onnx").string(), options), ExitCode::Usage,
                {"not ", "weights.bin"});
}

TEST_F(BadInitializer, TwoFields) {
  auto &w = g.initializer("w", {2}, {1, 2});
  w.set_raw_data(std::string(8, '\0'));
  expectFailure(g, ExitCode::InvalidModel, {"tensor 'w'", "more than one field"});
}
