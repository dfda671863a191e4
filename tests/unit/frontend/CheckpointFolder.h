// Folders of checkpoints that tests change.
#pragma once

#include "frontend/Import.h"
#include "ir/Error.h"

#include "llvm/Support/raw_ostream.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <filesystem>
#include <fstream>

namespace gpt2c {

namespace fs = std::filesystem;
using Json = nlohmann::json;

inline const fs::path checkpointData =
    fs::path(GPT2C_SOURCE_DIR) / "tests" / "data" / "checkpoints";

/// A copy of a toy that a test changes.
class CheckpointFolder : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "gpt2c-checkpoint-XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  void TearDown() override { fs::remove_all(folder_); }

  void take(const std::string &name) {
    fs::remove_all(folder_);
    fs::copy(checkpointData / name, folder_);
  }
  std::string readFile(const std::string &name) const {
    std::ifstream in(folder_ / name, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void writeFile(const std::string &name, const std::string &text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }
  Json config() const { return Json::parse(readFile("config.json")); }
  void setConfig(const Json &config) const { writeFile("config.json", config.dump()); }
  void set(const std::string &key, const Json &value) const {
    Json changed = config();
    changed[key] = value;
    setConfig(changed);
  }
  /// The header of model.safetensors with another in its place, its length kept.
  void renameTensor(const std::string &from, const std::string &to) const {
    ASSERT_EQ(from.size(), to.size());
    std::string file = readFile("model.safetensors");
    const size_t at = file.find('"' + from + '"');
    ASSERT_NE(at, std::string::npos);
    writeFile("model.safetensors", file.replace(at + 1, to.size(), to));
  }

  void expectTaken() const {
    auto module = importModel(folder_.string());
    EXPECT_TRUE(bool(module)) << llvm::toString(module.takeError());
  }
  void expectRefused(ExitCode code, std::initializer_list<const char *> parts) const {
    auto module = importModel(folder_.string());
    ASSERT_FALSE(bool(module)) << "should be refused: " << *parts.begin();
    std::string text;
    llvm::raw_string_ostream os(text);
    EXPECT_EQ(printError(module.takeError(), os), code) << text;
    for (const char *part : parts)
      EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in: " << text;
  }

  fs::path folder_;
};

} // namespace gpt2c
