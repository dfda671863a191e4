// Checkpoints with weights of a few bits (tests/data/make_packed.py): they stand for what numpy
// says, and what no such file may say is refused.
#include "ir/Executor.h"
#include "tests/unit/frontend/CheckpointFolder.h"

#include <cmath>
#include <cstring>

using namespace gpt2c;

namespace {

const fs::path packedData = fs::path(GPT2C_SOURCE_DIR) / "tests" / "data" / "packed";

class PackedWeights : public CheckpointFolder {
protected:
  void take(const std::string &name) {
    fs::remove_all(folder_);
    fs::copy(packedData / name, folder_);
  }
  void setPacking(const std::string &key, const Json &value) const {
    Json changed = config();
    changed["quantization_config"][key] = value;
    setConfig(changed);
  }
  static Tensor logitsOf(const fs::path &folder) {
    auto module = importModel(folder.string());
    EXPECT_TRUE(bool(module)) << llvm::toString(module.takeError());
    const Tensor ids = Tensor::of<int64_t>({3, 1, 4, 1, 5, 9, 2, 6, 5, 3}, {1, 10});
    return llvm::cantFail(Executor(*(*module)->function("main"), {}).run({ids}))[0];
  }
};

TEST_F(PackedWeights, StandForTheFloatsOfNumpy) {
  for (const char *name : {"gptq", "gptq-8", "awq", "fp8"})
    EXPECT_EQ(logitsOf(packedData / name).byteArray(),
              logitsOf(packedData / name / "wide").byteArray())
        << name;
}

/// Inputs in another order are added up in it.
TEST_F(PackedWeights, InTheOrderOfTheirGroups) {
  const Tensor a = logitsOf(packedData / "gptq-order"),
               b = logitsOf(packedData / "gptq-order" / "wide");
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < b.count(); ++i) {
    difference += std::pow(a.asDouble(i) - b.asDouble(i), 2);
    norm += std::pow(b.asDouble(i), 2);
  }
  EXPECT_LT(std::sqrt(difference / norm), 1e-6);
}

TEST_F(PackedWeights, WhatNobodyReadsIsRefused) {
  take("gptq");
  renameTensor("model.layers.0.self_attn.q_proj.g_idx", "model.layers.0.self_attn.q_proj.other");
  expectRefused(ExitCode::Unsupported, {"q_proj.other"});
}

TEST_F(PackedWeights, WhatIsNotKnownIsRefused) {
  const std::pair<const char *, Json> values[] = {{"bits", 3},
                                                  {"quant_method", "hqq"},
                                                  {"checkpoint_format", "marlin"},
                                                  {"pack_dtype", "int16"},
                                                  {"is_marlin_format", true},
                                                  {"dynamic", {{"x", 1}}},
                                                  {"lm_head", true},
                                                  {"group_size", 7}};
  for (const auto &[key, value] : values) {
    take("gptq");
    setPacking(key, value);
    expectRefused(ExitCode::Unsupported, {key == std::string("group_size") ? "groups of 7" : key});
  }
  take("awq");
  setPacking("version", "gemv");
  expectRefused(ExitCode::Unsupported, {"'quantization_config.version'", "gemm"});
  setPacking("version", "GEMM");
  expectTaken();
  setPacking("bits", 8);
  expectRefused(ExitCode::Unsupported, {"bits", "4 bits"});
}

TEST_F(PackedWeights, BlocksOfFp8) {
  const std::pair<const char *, Json> values[] = {{"fmt", "e5m2"},
                                                  {"activation_scheme", "static"},
                                                  {"weight_block_size", nullptr},
                                                  {"weight_block_size", {128}},
                                                  {"weight_block_size", {0, 16}},
                                                  {"weight_per_tensor", true}};
  for (const auto &[key, value] : values) {
    take("fp8");
    setPacking(key, value);
    expectRefused(ExitCode::Unsupported, {key});
  }
  take("fp8");
  setPacking("weight_block_size", {8, 16});
  expectRefused(ExitCode::InvalidModel, {"weight_scale_inv' is not [5, 2], the blocks"});
  take("fp8");
  renameTensor("model.layers.0.self_attn.q_proj.weight_scale_inv",
               "model.layers.0.self_attn.q_proj.weight_scale_all");
  expectRefused(ExitCode::Unsupported, {"q_proj.weight' is of type F8_E4M3"});
  take("fp8");
  renameTensor("model.layers.0.self_attn.q_proj.weight", "model.layers.0.self_attn.q_proj.others");
  expectRefused(ExitCode::InvalidModel, {"q_proj.weight' is missing"});
  take("fp8");
  writeFile("adapter_config.json", "{}");
  expectRefused(ExitCode::Unsupported, {"an adapter is merged into weights in floating point"});
}

TEST_F(PackedWeights, TensorsOfAnotherModule) {
  take("gptq");
  setPacking("group_size", 4);
  expectRefused(ExitCode::InvalidModel, {"qzeros' is not [6, 3]"});
  setPacking("group_size", -1);
  expectRefused(ExitCode::InvalidModel, {"qzeros' is not [1, 3]"});
  take("awq");
  setPacking("quant_method", "gptq");
  setPacking("version", nullptr);
  expectRefused(ExitCode::InvalidModel, {"qweight' is not [3, 24]"});
}

TEST_F(PackedWeights, GroupsOfDifferentSizes) {
  take("gptq");
  std::string file = readFile("model.safetensors");
  const size_t header = file.find("g_idx\""), span = file.find("data_offsets\": [", header);
  const size_t at = std::stoul(file.substr(span + std::strlen("data_offsets\": [")));
  uint64_t size = 0;
  std::memcpy(&size, file.data(), sizeof(size));
  file[sizeof(size) + size + at] = 1; // of group 0 before
  writeFile("model.safetensors", file);
  expectRefused(ExitCode::Unsupported, {"g_idx' gives group 0 7 inputs"});
  file[sizeof(size) + size + at] = 100;
  writeFile("model.safetensors", file);
  expectRefused(ExitCode::InvalidModel, {"g_idx' names group 100"});
}

TEST_F(PackedWeights, AnAdapterIsMergedIntoFloats) {
  take("awq");
  writeFile("adapter_config.json", "{}");
  expectRefused(ExitCode::Unsupported, {"an adapter is merged into weights in floating point"});
}

} // namespace
