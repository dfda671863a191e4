// Folders of checkpoints: each family gives the logits that transformers does in float64, and what
// a folder may not say is refused with its name.
#include "frontend/files/TensorProto.h"
#include "ir/Executor.h"
#include "ir/Verifier.h"
#include "tests/unit/frontend/CheckpointFolder.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

using namespace gpt2c;

namespace {

std::vector<std::string> checkpointNames() {
  std::vector<std::string> found;
  for (const auto &folder : fs::directory_iterator(checkpointData))
    found.push_back(folder.path().filename().string());
  llvm::sort(found);
  return found;
}

class Checkpoints : public testing::TestWithParam<std::string> {};

/// In single precision, whatever the weights have.
TEST_P(Checkpoints, GiveTheirLogits) {
  const fs::path folder = checkpointData / GetParam();
  auto module = importModel(folder.string());
  ASSERT_TRUE(bool(module)) << llvm::toString(module.takeError());
  ASSERT_EQ(llvm::toString(verify(**module)), "");
  auto ids = readTensorProto((folder / "test_data_set_0" / "input_0.pb").string());
  auto expected = readTensorProto((folder / "test_data_set_0" / "output_0.pb").string());
  ASSERT_TRUE(ids && expected);
  ExecOptions options;
  options.float64 = true;
  auto outputs = Executor(*(*module)->function("main"), options).run({ids->tensor});
  ASSERT_TRUE(bool(outputs)) << llvm::toString(outputs.takeError());
  const Tensor &actual = (*outputs)[0], &wanted = expected->tensor;
  ASSERT_EQ(actual.shape(), wanted.shape());
  double difference = 0, norm = 0;
  for (int64_t i = 0; i < wanted.count(); ++i) {
    difference += std::pow(actual.asDouble(i) - wanted.asDouble(i), 2);
    norm += std::pow(wanted.asDouble(i), 2);
  }
  EXPECT_LT(std::sqrt(difference / norm), 2e-6);
}

INSTANTIATE_TEST_SUITE_P(Families, Checkpoints, testing::ValuesIn(checkpointNames()),
                         [](const auto &info) {
                           std::string name = info.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST_F(CheckpointFolder, WithoutAModel) {
  expectRefused(ExitCode::Io, {"neither", "model.onnx", "config.json"});
  writeFile("config.json", R"({"model_type": "llama"})");
  expectRefused(ExitCode::Io, {"no weights", "model.safetensors.index.json"});
  writeFile("pytorch_model.bin", "x");
  expectRefused(ExitCode::Unsupported, {"pytorch_model.bin", "save_pretrained", "ONNX"});
}

TEST_F(CheckpointFolder, TakesModelOnnxFirst) {
  take("llama");
  writeFile("model.onnx", "x");
  expectRefused(ExitCode::InvalidModel, {"model.onnx"});
}

TEST_F(CheckpointFolder, ConfigsThatAreNone) {
  take("llama");
  writeFile("config.json", "{");
  expectRefused(ExitCode::InvalidModel, {"config.json", "no JSON"});
  writeFile("config.json", R"({"model_type": "llama", "model_type": "gpt2"})");
  expectRefused(ExitCode::InvalidModel, {"'model_type' twice"});
  writeFile("config.json", R"({"model_type": "llama"})");
  expectRefused(ExitCode::InvalidModel, {"'vocab_size' is missing", "'hidden_size' is missing"});
}

TEST_F(CheckpointFolder, ValuesThatAreNone) {
  const std::pair<const char *, Json> values[] = {{"hidden_size", 0},
                                                  {"hidden_size", -24},
                                                  {"hidden_size", "24"},
                                                  {"hidden_size", 24.5},
                                                  {"hidden_size", 1e300},
                                                  {"num_attention_heads", 5},
                                                  {"num_hidden_layers", 1000000},
                                                  {"num_key_value_heads", 4},
                                                  {"rms_norm_eps", 0},
                                                  {"rms_norm_eps", "1e-6"},
                                                  {"attention_bias", 1},
                                                  {"hidden_act", 3},
                                                  {"architectures", "all"},
                                                  {"rope_parameters", 3},
                                                  {"head_dim", 1 << 20},
                                                  {"hidden_size", 18446744073709551615u}};
  for (const auto &[key, value] : values) {
    take("llama");
    set(key, value);
    expectRefused(ExitCode::InvalidModel, {key});
  }
}

TEST_F(CheckpointFolder, WhatIsNotKnownIsRefusedByName) {
  const std::pair<const char *, Json> values[] = {
      {"model_type", "mamba"},
      {"architectures", {"LlamaForSequenceClassification"}},
      {"embedding_multiplier", 12.0},
      {"rope_interleaved", true},
      {"use_sliding_window", true},
      {"quantization_config", {{"quant_method", "bitsandbytes"}}},
      {"pruned_heads", {{"0", {1}}}},
      {"partial_rotary_factor", 0.5},
      {"rope_scaling", {{"rope_type", "linear"}, {"factor", 2.0}}}, // beside rope_parameters
      {"hidden_act", "xielu"},
      {"add_cross_attention", true}};
  for (const auto &[key, value] : values) {
    take("llama");
    set(key, value);
    expectRefused(ExitCode::Unsupported,
                  {key == std::string("hidden_act") ? "xielu" : key, "Export the model to ONNX"});
  }
}

TEST_F(CheckpointFolder, CapsOfScoresInGemma3) {
  take("gemma3");
  set("attn_logit_softcapping", 50.0);
  expectRefused(ExitCode::Unsupported, {"'attn_logit_softcapping' is 50.0", "caps no scores"});
}

TEST_F(CheckpointFolder, AllProblemsAtOnce) {
  take("llama");
  set("one_key", 1);
  set("other_key", {1, 2});
  set("null_key", nullptr);
  set("torch_dtype", "float16"); // has no effect
  expectRefused(ExitCode::Unsupported, {"'one_key' is 1", "'other_key' is [1,2]"});
}

TEST_F(CheckpointFolder, RotationsThatAreNotKnown) {
  for (const char *kind : {"yarn", "longrope", "dynamic", "su"})
    for (const char *key : {"rope_type", "type"}) {
      take("llama");
      Json changed = config();
      changed.erase("rope_parameters");
      changed["rope_theta"] = 10000;
      changed["rope_scaling"] = {{key, kind}, {"factor", 2.0}};
      setConfig(changed);
      expectRefused(ExitCode::Unsupported,
                    {(std::string("'rope_scaling.") + key + "' is \"" + kind + "\"").c_str(),
                     "default, linear and llama3"});
    }
  take("llama3-tied");
  Json changed = config();
  changed["rope_parameters"]["attention_factor"] = 1.5;
  setConfig(changed);
  expectRefused(ExitCode::Unsupported, {"'rope_parameters.attention_factor'"});
  changed["rope_parameters"].erase("attention_factor");
  changed["rope_parameters"].erase("factor");
  setConfig(changed);
  expectRefused(ExitCode::InvalidModel, {"'rope_parameters.factor' is missing"});
}

TEST_F(CheckpointFolder, Windows) {
  take("qwen2");
  set("layer_types", {"full_attention", "chunked_attention"});
  expectRefused(ExitCode::Unsupported, {"chunked_attention"});
  set("layer_types", {"full_attention"});
  expectRefused(ExitCode::InvalidModel, {"layer_types"});
  set("layer_types", {"full_attention", "sliding_attention"});
  set("use_sliding_window", false);
  expectRefused(ExitCode::InvalidModel, {"layer_types", "sliding_window"});
}

TEST_F(CheckpointFolder, KeysThatAreOff) {
  take("phi3");
  set("attention_bias", false);
  set("auto_map", {{"AutoConfig", "configuration_phi3.Phi3Config"}});
  set("quantization_config", nullptr);
  expectTaken();
  set("attention_bias", true);
  expectRefused(ExitCode::Unsupported, {"'attention_bias' is true"});
}

/// The keys of older versions mean what the newer ones do.
TEST_F(CheckpointFolder, OlderKeys) {
  auto logitsOf = [](const fs::path &folder) {
    auto module = importModel(folder.string());
    EXPECT_TRUE(bool(module)) << llvm::toString(module.takeError());
    const Tensor ids = Tensor::of<int64_t>({3, 1, 4, 1, 5, 9, 2, 6, 5, 3}, {1, 10});
    return llvm::cantFail(Executor(*(*module)->function("main"), {}).run({ids}))[0];
  };
  auto expectSame = [&](const std::string &name, llvm::function_ref<void(Json &)> change) {
    take(name);
    Json older = config();
    older.erase("rope_parameters");
    older.erase("layer_types");
    change(older);
    setConfig(older);
    EXPECT_EQ(logitsOf(folder_).byteArray(), logitsOf(checkpointData / name).byteArray()) << name;
  };
  expectSame("llama3-tied", [](Json &c) {
    c["rope_theta"] = 500000;
    c["rope_scaling"] = {{"rope_type", "llama3"},
                         {"factor", 8},
                         {"low_freq_factor", 1},
                         {"high_freq_factor", 4},
                         {"original_max_position_embeddings", 16}};
    c["rope_interleaved"] = false;
    c["quantization_config"] = nullptr;
  });
  expectSame("qwen2", [](Json &c) { c["rope_scaling"] = {{"type", "linear"}, {"factor", 4}}; });
  expectSame("phi3", [](Json &c) { c["partial_rotary_factor"] = 0.5; });
  expectSame("gemma2", [](Json &c) { c.erase("tie_word_embeddings"); });
  expectSame("gemma3",
             [](Json &c) { c["sliding_window_pattern"] = 2, c.erase("_sliding_window_pattern"); });
  expectSame("gpt-neox", [](Json &c) { c["rotary_pct"] = 0.5; });
}

TEST_F(CheckpointFolder, WeightsOfAnotherModel) {
  take("llama");
  set("intermediate_size", 41);
  expectRefused(ExitCode::InvalidModel, {"mlp.gate_proj.weight' is [40, 24] where [41, 24]"});
  set("num_hidden_layers", 3);
  expectRefused(ExitCode::InvalidModel, {"more"});
  set("intermediate_size", 40);
  expectRefused(ExitCode::InvalidModel,
                {"there is no tensor 'model.layers.2.input_layernorm.weight'"});
  set("num_hidden_layers", 1);
  expectRefused(ExitCode::Unsupported, {"'model.layers.1.input_layernorm.weight'", "more"});
}

TEST_F(CheckpointFolder, WeightsThatAreNotRead) {
  take("gpt2");
  renameTensor("transformer.h.1.ln_1.bias", "transformer.h.1.ln_1.bia_");
  expectRefused(ExitCode::InvalidModel, {"there is no tensor 'transformer.h.1.ln_1.bias'"});
  take("llama");
  set("tie_word_embeddings", true); // a head beside it has no effect
  expectTaken();
  set("attention_bias", true);
  expectRefused(ExitCode::InvalidModel, {"self_attn.q_proj.bias"});
}

/// As files of base models and of older versions are.
TEST_F(CheckpointFolder, NamesOfBaseModelsAndBuffers) {
  take("gpt2");
  const std::string file = readFile("model.safetensors");
  uint64_t length = 0;
  std::memcpy(&length, file.data(), sizeof(length));
  const Json header = Json::parse(file.substr(8, length));
  const uint64_t bytes = file.size() - 8 - length;
  Json renamed;
  for (const auto &[name, tensor] : header.items())
    renamed[name.substr(0, 12) == "transformer." ? name.substr(12) : name] = tensor;
  for (const char *name : {"h.0.attn.bias", "h.1.attn.masked_bias"})
    renamed[name] = {{"dtype", "BOOL"}, {"shape", {0}}, {"data_offsets", {bytes, bytes}}};
  std::string text = renamed.dump();
  length = text.size();
  writeFile("model.safetensors", std::string(reinterpret_cast<const char *>(&length), 8) + text +
                                     file.substr(file.size() - bytes));
  set("architectures", {"GPT2Model"});
  expectTaken();
}

TEST_F(CheckpointFolder, TypesThatAreNotRead) {
  take("llama");
  std::string file = readFile("model.safetensors");
  // Four bytes an element, as F32.
  for (size_t at = 0; (at = file.find("\"F32\"", at)) != std::string::npos;)
    file.replace(at, 5, "\"I32\"");
  writeFile("model.safetensors", file);
  expectRefused(ExitCode::Unsupported, {"is of type I32", "fp32, fp16 and bf16"});
}

TEST_F(CheckpointFolder, Shards) {
  take("mistral");
  Json index = Json::parse(readFile("model.safetensors.index.json"));
  const std::string name = "model.norm.weight";
  const std::string file = index["weight_map"][name], other = "model-00001-of-00004.safetensors";
  ASSERT_NE(file, other);
  auto write = [&](const Json &j) { writeFile("model.safetensors.index.json", j.dump()); };
  Json changed = index;
  changed["weight_map"][name] = other;
  write(changed);
  expectRefused(ExitCode::InvalidModel, {"'model.norm.weight' is not in"});
  changed["weight_map"][name] = "../" + file;
  write(changed);
  expectRefused(ExitCode::InvalidModel, {"must be a path below the model's folder"});
  changed["weight_map"].erase(name);
  write(changed);
  expectRefused(ExitCode::InvalidModel, {"model.norm.weight"});
  changed = index;
  changed["weight_map"]["more"] = file;
  write(changed);
  expectRefused(ExitCode::InvalidModel, {"'more' is not in"});
  write({{"weight_map", {{name, 3}}}});
  expectRefused(ExitCode::InvalidModel, {"names no file"});
  write(Json::object());
  expectRefused(ExitCode::InvalidModel, {"no weight_map"});
  write(index);
  expectTaken();
  fs::copy_file(folder_ / other, folder_ / "copy.safetensors");
  changed = index;
  changed["weight_map"]["more"] = "copy.safetensors";
  write(changed);
  expectRefused(ExitCode::InvalidModel, {"and in"});
  write(index);
  fs::resize_file(folder_ / file, fs::file_size(folder_ / file) - 1);
  expectRefused(ExitCode::InvalidModel, {file.c_str(), "cut short"});
  fs::remove(folder_ / file);
  expectRefused(ExitCode::InvalidModel, {file.c_str(), "cannot be read"});
}

/// In the plan's precision where the weights are of it, else in single precision.
TEST_F(CheckpointFolder, Precision) {
  for (auto [asked, given] :
       {std::pair(DType::BF16, DType::BF16), {DType::F16, DType::F32}, {DType::F32, DType::F32}}) {
    ImportOptions options;
    options.precision = asked;
    auto module = importModel((checkpointData / "llama3-tied").string(), options);
    ASSERT_TRUE(bool(module)) << llvm::toString(module.takeError());
    EXPECT_EQ((*module)->function("main")->returned()[0]->type.dtype, given);
  }
}

} // namespace
