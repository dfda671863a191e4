// What exporters make of a Llama becomes the same ops, whatever the spelling of rotation, repeated
// heads, norms, masks and gates; without a remark about something that did not.
#include "frontend/Import.h"
#include "passes/Pipeline.h"
#include "tests/unit/SharedDir.h"

#include "llvm/ADT/STLExtras.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

using namespace gpt2c;
namespace fs = std::filesystem;

namespace {

using Names = std::vector<std::string>;

/// The ops of a function in order, without constants and what is no launch.
Names launches(const Function &f) {
  Names out;
  for (auto &op : f.ops())
    if (isLaunched(*op))
      out.push_back(op->info().mnemonic.str());
  return out;
}

/// `norm` is that of the model; of the prompt's last layer all behind the attention is computed for
/// the last rows.
Names decode(const std::string &norm, int64_t layers) {
  Names out{"embed"};
  for (int64_t i = 0; i < layers; ++i)
    llvm::append_range(out, Names{norm, "linear", "rope", "append_attention", "linear", norm,
                                  "linear", "gated", "linear"});
  llvm::append_range(out, Names{norm, "linear", "arg_max"});
  return out;
}

struct Model {
  const char *folder, *norm;
  int64_t heads, keyHeads, context;
  int64_t layers = 2, window = 0;
};

void PrintTo(const Model &model, std::ostream *out) { *out << model.folder; }

class LlamaExporters : public testing::TestWithParam<Model> {};

TEST_P(LlamaExporters, SameFunctions) {
  const Model &model = GetParam();
  fs::path folder = fs::path(sharedDir()) / "models" / "llama" / model.folder;
  if (!fs::exists(folder / "model.onnx"))
    GTEST_SKIP() << "no " << folder;
  auto module = importOnnx((folder / "model.onnx").string());
  ASSERT_TRUE(bool(module)) << llvm::toString(module.takeError());
  PassOptions options;
  options.precision = DType::F16;
  std::vector<Remark> remarks;
  PassContext context(**module, options, remarks);
  llvm::Error e = runPipeline(context, {});
  ASSERT_FALSE(bool(e)) << llvm::toString(std::move(e));
  for (const Remark &r : remarks)
    EXPECT_NE(r.severity, Remark::Missed) << r.message;

  const Function *f = (*module)->function("decode"), *prefill = (*module)->function("prefill");
  ASSERT_NE(f, nullptr);
  ASSERT_NE(prefill, nullptr);
  EXPECT_EQ(launches(*f), decode(model.norm, model.layers));
  Names prompt = decode(model.norm, model.layers);
  prompt.insert(prompt.end() - 8, "gather_last"); // of the residual behind the last attention
  Names got = launches(*prefill);
  llvm::sort(got);
  llvm::sort(prompt);
  EXPECT_EQ(got, prompt);
  const Type &kv = f->argument("kv")->type;
  EXPECT_EQ(kv.shape[3], Dim(model.keyHeads));
  EXPECT_EQ(kv.shape[4], Dim(model.context));
  for (auto &op : f->ops())
    if (op->is(OpCode::AppendAttention)) {
      EXPECT_EQ(op->intAttr("num_heads"), model.heads);
      EXPECT_EQ(op->intAttr("window"), model.window);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Models, LlamaExporters,
    testing::Values(Model{"genai-llama-gqa-fp16-external", "rms_norm", 4, 2, 128},
                    Model{"genai-llama-gqa-fp32-external", "rms_norm", 4, 2, 128},
                    Model{"genai-llama-gqa-rotary-fp16-external", "rms_norm", 4, 2, 128},
                    Model{"hf5-llama-dynamo-opset18", "rms_norm", 4, 4, 4096},
                    Model{"hf5-llama-gqa-dynamo-opset23", "rms_norm", 8, 2, 4096},
                    Model{"hf5-llama-gqa-past-torchscript-opset17", "rms_norm", 4, 2, 4096},
                    Model{"hf5-llama-mqa-past-dynamo-opset23", "rms_norm", 4, 1, 4096},
                    Model{"hf5-llama3-rope-tied-fp16-past-dynamo-opset18", "rms_norm", 4, 2, 4096},
                    Model{"hf5-mistral-window8-dynamo-opset18", "rms_norm", 4, 2, 4096, 2, 8},
                    Model{"hf5-qwen2-tied-dynamo-opset20-external", "rms_norm", 4, 2, 4096},
                    Model{"native-llama-gqa-past-opset23", "rms_norm", 4, 2, 128},
                    Model{"optimum-llama-gqa-past", "rms_norm", 4, 2, 4096},
                    Model{"sample", "rms_norm", 8, 2, 4096, 4},
                    Model{"seed-decoder-bias-fp16-dynamo-opset20", "layer_norm", 4, 4, 128},
                    Model{"seed-decoder-torchscript-opset17", "layer_norm", 4, 4, 128},
                    Model{"torch-onnx-ops-gqa-dynamo-opset23", "rms_norm", 4, 2, 128}),
    [](const auto &info) {
      std::string name = info.param.folder;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

} // namespace
