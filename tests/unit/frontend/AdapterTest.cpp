// LoRA adapters: merged weights give the logits of a checkpoint that holds them, and what an
// adapter may not say is refused with its name.
#include "frontend/checkpoint/NamePattern.h"
#include "ir/Executor.h"
#include "tests/unit/frontend/CheckpointFolder.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <cstring>
#include <map>
#include <random>

using namespace gpt2c;

namespace {

struct Values {
  std::vector<int64_t> shape;
  std::vector<float> at;
};
using Tensors = std::map<std::string, Values>;

class AdapterFolder : public CheckpointFolder {
protected:
  Tensors readTensors(const std::string &name) const {
    const std::string file = readFile(name);
    uint64_t length = 0;
    std::memcpy(&length, file.data(), sizeof(length));
    Tensors tensors;
    const Json header = Json::parse(file.substr(8, length));
    for (const auto &[key, entry] : header.items()) {
      if (key == "__metadata__")
        continue;
      Values &values = tensors[key];
      values.shape = entry["shape"].get<std::vector<int64_t>>();
      const uint64_t begin = entry["data_offsets"][0], end = entry["data_offsets"][1];
      values.at.resize((end - begin) / sizeof(float));
      std::memcpy(values.at.data(), file.data() + 8 + length + begin, end - begin);
    }
    return tensors;
  }
  void writeTensors(const std::string &name, const Tensors &tensors) const {
    Json header = Json::object();
    std::string data;
    for (const auto &[key, values] : tensors) {
      const size_t bytes = values.at.size() * sizeof(float);
      header[key] = {{"dtype", "F32"},
                     {"shape", values.shape},
                     {"data_offsets", {data.size(), data.size() + bytes}}};
      data.append(reinterpret_cast<const char *>(values.at.data()), bytes);
    }
    const std::string text = header.dump();
    const uint64_t length = text.size();
    writeFile(name, std::string(reinterpret_cast<const char *>(&length), 8) + text + data);
  }
  void writeAdapter() const {
    writeFile("adapter_config.json", adapter_.dump());
    writeTensors("adapter_model.safetensors", tensors_);
  }

  Values drawn(std::vector<int64_t> shape) {
    Values values{std::move(shape), {}};
    int64_t count = 1;
    for (int64_t n : values.shape)
      count *= n;
    std::normal_distribution<float> normal(0, 0.3F);
    for (int64_t i = 0; i < count; ++i)
      values.at.push_back(normal(random_));
    return values;
  }
  /// A and B of a module, into the adapter and, multiplied, into the merged weight.
  void draw(Tensors &merged, const std::string &module, int64_t rank, double scale,
            bool inputsFirst, bool table = false) {
    Values &weight = merged.at(module + ".weight");
    const int64_t in = weight.shape[inputsFirst ? 0 : 1], out = weight.shape[inputsFirst ? 1 : 0];
    const Values a = drawn({rank, in}), b = drawn({out, rank});
    for (int64_t o = 0; o < out; ++o)
      for (int64_t i = 0; i < in; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < rank; ++k)
          sum += double(b.at[size_t(o * rank + k)]) * double(a.at[size_t(k * in + i)]);
        weight.at[size_t(inputsFirst ? i * out + o : o * in + i)] += float(scale * sum);
      }
    const std::string name = "base_model.model." + module + ".lora_";
    tensors_[name + (table ? "embedding_A" : "A.weight")] = a;
    tensors_[name + (table ? "embedding_B" : "B.weight")] = b;
  }

  static Tensor logitsOf(const fs::path &folder, const ImportOptions &options = {}) {
    auto module = importModel(folder.string(), options);
    EXPECT_TRUE(bool(module)) << llvm::toString(module.takeError());
    if (!module)
      return {};
    const Tensor ids = Tensor::of<int64_t>({3, 1, 4, 1, 5, 9, 2, 6, 5, 3}, {1, 10});
    ExecOptions exact;
    exact.float64 = true;
    return llvm::cantFail(Executor(*(*module)->function("main"), exact).run({ids}))[0];
  }
  /// |a - b| / |b|
  static double distance(const Tensor &a, const Tensor &b) {
    double difference = 0, norm = 0;
    for (int64_t i = 0; i < b.count(); ++i) {
      difference += std::pow(a.asDouble(i) - b.asDouble(i), 2);
      norm += std::pow(b.asDouble(i), 2);
    }
    return std::sqrt(difference / norm);
  }
  /// That the folder with its adapter computes what `merged` does, which is not what the base does.
  void expectMerged(const std::string &base, const Tensors &merged) {
    writeAdapter();
    const Tensor given = logitsOf(folder_);
    writeTensors("model.safetensors", merged);
    for (const char *name : {"adapter_config.json", "adapter_model.safetensors"})
      fs::remove(folder_ / name);
    const Tensor wanted = logitsOf(folder_);
    EXPECT_LT(distance(given, wanted), 1e-6);
    EXPECT_GT(distance(given, logitsOf(checkpointData / base)), 1e-2);
  }

  /// A layer's two projections, as PEFT writes them.
  Tensors takeLlama() {
    take("llama");
    tensors_.clear();
    adapter_ = {{"peft_type", "LORA"},
                {"task_type", "CAUSAL_LM"},
                {"r", 3},
                {"lora_alpha", 6},
                {"lora_dropout", 0.1},
                {"bias", "none"},
                {"rank_pattern", {}},
                {"alpha_pattern", {}},
                {"use_dora", false},
                {"use_rslora", false},
                {"modules_to_save", nullptr},
                {"inference_mode", true},
                {"fan_in_fan_out", false},
                {"target_modules", {"q_proj", "v_proj"}}};
    Tensors merged = readTensors("model.safetensors");
    for (const char *layer : {"0", "1"})
      for (const char *name : {"q_proj", "v_proj"})
        draw(merged, std::string("model.layers.") + layer + ".self_attn." + name, 3, 2, false);
    return merged;
  }

  std::mt19937 random_{17};
  Json adapter_;
  Tensors tensors_;
};

TEST_F(AdapterFolder, OfLinearLayers) { expectMerged("llama", takeLlama()); }

TEST_F(AdapterFolder, InAFolderOfItsOwn) {
  (void)takeLlama();
  writeAdapter();
  const Tensor beside = logitsOf(folder_);
  ImportOptions options;
  options.adapter = folder_.string();
  const Tensor apart = logitsOf(checkpointData / "llama", options);
  EXPECT_EQ(beside.byteArray(), apart.byteArray());
}

TEST_F(AdapterFolder, WithRanksAndScalesByPattern) {
  (void)takeLlama();
  Tensors merged = readTensors("model.safetensors");
  tensors_.clear();
  adapter_["use_rslora"] = true;
  adapter_["target_modules"] = R"(.*\.(?:mlp\.(?!up)\w+_proj|\d\.self_attn\.k_proj))";
  adapter_["rank_pattern"] = {{"down_proj", 4}};
  adapter_["alpha_pattern"] = {{R"(layers\.1\..*\.gate_proj)", 12}};
  for (const char *layer : {"0", "1"}) {
    const std::string at = std::string("model.layers.") + layer;
    draw(merged, at + ".self_attn.k_proj", 3, 6 / std::sqrt(3.0), false);
    draw(merged, at + ".mlp.down_proj", 4, 6 / std::sqrt(4.0), false);
    draw(merged, at + ".mlp.gate_proj", 3, (*layer == '1' ? 12 : 6) / std::sqrt(3.0), false);
  }
  expectMerged("llama", merged);
}

TEST_F(AdapterFolder, OfSomeLayersAndTheHead) {
  (void)takeLlama();
  Tensors merged = readTensors("model.safetensors");
  tensors_.clear();
  adapter_["target_modules"] = {"o_proj", "embed_tokens"};
  adapter_["exclude_modules"] = {"layers.0.self_attn.o_proj"};
  adapter_["modules_to_save"] = {"lm_head", "norm"};
  draw(merged, "model.layers.1.self_attn.o_proj", 3, 2, false);
  // A table that changes is saved with the adapter.
  merged["model.embed_tokens.weight"] = drawn(merged["model.embed_tokens.weight"].shape);
  tensors_["base_model.model.model.embed_tokens.base_layer.weight"] =
      merged["model.embed_tokens.weight"];
  draw(merged, "model.embed_tokens", 3, 2, true, true);
  for (const char *name :
       {"lm_head.weight", "model.norm.weight", "model.layers.1.input_layernorm.weight"})
    merged[name] = tensors_[std::string("base_model.model.") + name] = drawn(merged[name].shape);
  expectMerged("llama", merged);
  take("llama");
  adapter_["target_modules"] = {"o_proj"};
  adapter_["exclude_modules"] = nullptr;
  adapter_["layers_to_transform"] = 1;
  for (const char *part : {"lora_embedding_A", "lora_embedding_B", "base_layer.weight"})
    tensors_.erase(std::string("base_model.model.model.embed_tokens.") + part);
  writeAdapter();
  expectTaken();
  adapter_["layers_to_transform"] = {0, 1};
  writeAdapter();
  expectRefused(ExitCode::InvalidModel, {"'model.layers.0.self_attn.o_proj'", "no tensors"});
  adapter_["layers_to_transform"] = {1};
  adapter_["layers_pattern"] = "blocks";
  writeAdapter();
  expectRefused(ExitCode::InvalidModel, {"'model.layers.1.self_attn.o_proj'", "none of the"});
}

/// Weights of GPT-2 are [in, out], whatever fan_in_fan_out says: PEFT sets it by the layer.
TEST_F(AdapterFolder, OfLayersWithInputsFirst) {
  (void)takeLlama();
  take("gpt2");
  Tensors merged = readTensors("model.safetensors");
  tensors_.clear();
  adapter_["target_modules"] = {"c_attn", "mlp.c_proj", "wpe"};
  adapter_["bias"] = "all";
  for (const char *layer : {"0", "1"})
    for (const char *name : {".attn.c_attn", ".mlp.c_proj"})
      draw(merged, std::string("transformer.h.") + layer + name, 3, 2, true);
  draw(merged, "transformer.wpe", 3, 2, true, true);
  const std::string bias = "transformer.h.1.attn.c_attn";
  merged[bias + ".bias"] = tensors_["base_model.model." + bias + ".base_layer.bias"] =
      drawn(merged[bias + ".bias"].shape);
  for (bool first : {true, false}) {
    take("gpt2");
    adapter_["fan_in_fan_out"] = first;
    expectMerged("gpt2", merged);
  }
}

TEST_F(AdapterFolder, WhatIsNotKnownIsRefusedByName) {
  const std::pair<const char *, Json> values[] = {{"peft_type", "IA3"},
                                                  {"peft_type", nullptr},
                                                  {"task_type", "SEQ_CLS"},
                                                  {"use_dora", true},
                                                  {"use_qalora", true},
                                                  {"lora_bias", true},
                                                  {"use_bdlora", {{"nblocks", 2}}},
                                                  {"init_lora_weights", "pissa_niter_4"},
                                                  {"init_lora_weights", "olora"},
                                                  {"layer_replication", {{0, 2}, {1, 2}}},
                                                  {"trainable_token_indices", {1, 2}},
                                                  {"alora_invocation_tokens", {1}},
                                                  {"target_parameters", {"experts.down_proj"}},
                                                  {"megatron_config", {{"a", 1}}},
                                                  {"bias", "some"},
                                                  {"a_key_of_tomorrow", 2}};
  for (const auto &[key, value] : values) {
    (void)takeLlama();
    adapter_[key] = value;
    writeAdapter();
    expectRefused(ExitCode::Unsupported, {key, "merge_and_unload"});
  }
  for (const auto &[key, value] : {std::pair<const char *, Json>{"r", 0},
                                   {"r", "8"},
                                   {"lora_alpha", -1},
                                   {"use_rslora", 1},
                                   {"layers_to_transform", {-1}},
                                   {"rank_pattern", {{"q_proj", "x"}}},
                                   {"target_modules", {1, 2}}}) {
    (void)takeLlama();
    adapter_[key] = value;
    writeAdapter();
    expectRefused(ExitCode::InvalidModel, {key});
  }
}

TEST_F(AdapterFolder, OfAnotherModel) {
  const std::string q = "base_model.model.model.layers.0.self_attn.q_proj.";
  auto expect = [&](ExitCode code, std::initializer_list<const char *> parts,
                    llvm::function_ref<void()> change) {
    (void)takeLlama();
    change();
    writeAdapter();
    expectRefused(code, parts);
  };
  expect(ExitCode::InvalidModel, {"q_proj.lora_A.weight' is [3, 24] where [2, 24]"},
         [&] { adapter_["r"] = 2; });
  expect(ExitCode::InvalidModel, {"q_proj.lora_B.weight' is [25, 3] where [24, 3]"},
         [&] { tensors_[q + "lora_B.weight"] = drawn({25, 3}); });
  expect(ExitCode::InvalidModel, {"one alone"}, [&] { tensors_.erase(q + "lora_B.weight"); });
  expect(
      ExitCode::InvalidModel, {"there is no weight for its 'model.layers.7.q_proj.lora_A'"},
      [&] { tensors_["base_model.model.model.layers.7.q_proj.lora_A.weight"] = drawn({3, 24}); });
  expect(ExitCode::InvalidModel, {"none of the modules"},
         [&] { adapter_["target_modules"] = {"v_proj"}; });
  expect(ExitCode::InvalidModel, {"k_proj", "no tensors"},
         [&] { adapter_["target_modules"] = {"q_proj", "k_proj", "v_proj"}; });
  expect(ExitCode::InvalidModel, {"'model.norm.weight'", "does not have it save"},
         [&] { tensors_["base_model.model.model.norm.weight"] = drawn({24}); });
  expect(ExitCode::InvalidModel, {"'lm_head.weight' is [62, 24], the model's [61, 24]"}, [&] {
    adapter_["modules_to_save"] = {"lm_head"};
    tensors_["base_model.model.lm_head.weight"] = drawn({62, 24});
  });
  expect(ExitCode::InvalidModel, {"base_model.model."}, [&] { tensors_["x"] = drawn({1}); });
  expect(ExitCode::InvalidModel, {"no tensors"}, [&] { tensors_.clear(); });
  expect(ExitCode::Unsupported, {"lora_magnitude_vector", "neither A nor B"},
         [&] { tensors_[q + "lora_magnitude_vector"] = drawn({24}); });
  expect(ExitCode::Unsupported, {"lora_B.bias"},
         [&] { tensors_[q + "lora_B.bias"] = drawn({24}); });
  expect(ExitCode::Unsupported, {"'model.embed_tokens'", "the head, too"}, [&] {
    set("tie_word_embeddings", true);
    adapter_["modules_to_save"] = {"embed_tokens"};
    tensors_["base_model.model.model.embed_tokens.weight"] = drawn({61, 24});
  });
  expect(ExitCode::Unsupported, {"both match", "q_proj"},
         [&] { adapter_["alpha_pattern"] = {{"q_proj", 1}, {"self_attn.q_proj", 2}}; });
}

TEST_F(AdapterFolder, FilesThatAreMissing) {
  (void)takeLlama();
  writeAdapter();
  fs::remove(folder_ / "adapter_model.safetensors");
  expectRefused(ExitCode::Io, {"has no adapter_model.safetensors"});
  writeFile("adapter_model.bin", "x");
  expectRefused(ExitCode::Unsupported, {"adapter_model.bin", "merge_and_unload"});
  fs::remove(folder_ / "config.json");
  expectRefused(ExitCode::Unsupported, {"has an adapter", "--adapter="});
  ImportOptions options;
  options.adapter = folder_.string();
  auto module = importModel((checkpointData / "llama" / "export" / "model.onnx").string(), options);
  ASSERT_FALSE(bool(module));
  EXPECT_NE(llvm::toString(module.takeError()).find("is an export"), std::string::npos);
}

TEST(NamePattern, MatchesAsPythonDoes) {
  auto matches = [](llvm::StringRef pattern, llvm::StringRef name) {
    auto result = matchesWhole(pattern, name);
    EXPECT_TRUE(bool(result)) << llvm::toString(result.takeError());
    return result && *result;
  };
  EXPECT_TRUE(matches(R"(.*\.\d+\.(q|v)_proj)", "model.layers.10.q_proj"));
  EXPECT_FALSE(matches("q_proj", "x.q_proj"));
  EXPECT_FALSE(matches("x|x.q", "x.q_"));
  EXPECT_TRUE(matches("x|x.q_", "x.q_"));
  for (const std::string &pattern :
       {std::string("("), std::string(20000, 'x'), std::string("(a|aa)*[bc]")}) {
    auto result = matchesWhole(pattern, std::string(2000, 'a'));
    ASSERT_FALSE(bool(result)) << pattern;
    EXPECT_NE(llvm::toString(result.takeError()).find("cannot be matched"), std::string::npos);
  }
}

} // namespace
