// Plans in bf16 of exported models, token by token through their KV state, against the exported
// graphs in double precision and the golden tokens.
#include "frontend/Import.h"
#include "passes/Pipeline.h"
#include "passes/quantize/Precision.h"
#include "tests/unit/SharedDir.h"
#include "verify/Compare.h"
#include "verify/PlanRunner.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

using namespace gpt2c;
namespace fs = std::filesystem;

namespace {

TokenIds integers(const llvm::json::Object &root, llvm::StringRef name) {
  TokenIds out;
  if (const llvm::json::Array *array = root.getArray(name))
    for (const llvm::json::Value &v : *array)
      out.push_back(int32_t(*v.getAsInteger()));
  return out;
}

/// Row `token` of logits [1, tokens, vocabulary].
Tensor rowOf(const Tensor &logits, int64_t token) {
  Tensor row(DType::F64, {logits.dim(-1)});
  for (int64_t i = 0; i < row.count(); ++i)
    row.data<double>()[i] = logits.asDouble(token * row.count() + i);
  return row;
}

/// How far the best of a row is ahead of the next, in standard deviations of the row.
double lead(const Tensor &row) {
  const double *x = row.data<double>();
  std::vector<double> sorted(x, x + row.count());
  std::nth_element(sorted.begin(), sorted.begin() + 1, sorted.end(), std::greater<>());
  double mean = 0, square = 0;
  for (int64_t i = 0; i < row.count(); ++i)
    mean += x[i] / double(row.count());
  for (int64_t i = 0; i < row.count(); ++i)
    square += (x[i] - mean) * (x[i] - mean) / double(row.count());
  return (*std::max_element(sorted.begin(), sorted.begin() + 1) - sorted[1]) / std::sqrt(square);
}

class BfloatModels : public testing::TestWithParam<std::string> {};

/// A logit is rounded some ten times on its way through two to four layers, each time by at most
/// 2^-8: 20 roundings bound the error of a row. Where the best two logits are further apart than
/// the errors of both can be, the token is that of float64.
TEST_P(BfloatModels, TokensAreThoseOfFloat64WhereTheirLeadAllows) {
  const fs::path folder = fs::path(sharedDir()) / "models" / GetParam();
  if (!fs::exists(folder / "golden.json"))
    GTEST_SKIP() << "no " << folder;
  auto file = llvm::MemoryBuffer::getFile((folder / "golden.json").string());
  ASSERT_TRUE(bool(file));
  const llvm::json::Value golden = llvm::cantFail(llvm::json::parse((*file)->getBuffer()));
  const TokenIds prompt = integers(*golden.getAsObject(), "prompt"),
                 greedy = integers(*golden.getAsObject(), "greedy");

  auto module = llvm::cantFail(importOnnx((folder / "model.onnx").string()));
  const std::unique_ptr<Function> graph = module->functions.front()->clone("graph");
  PassOptions options;
  options.precision = DType::BF16;
  options.maxContext = int64_t(prompt.size() + greedy.size());
  std::vector<Remark> remarks;
  PassContext context(*module, options, remarks);
  llvm::cantFail(runPipeline(context, {}));
  for (const Remark &r : remarks)
    EXPECT_NE(r.severity, Remark::Missed) << r.message;
  const Function *decode = module->function("decode");
  ASSERT_NE(decode, nullptr);
  EXPECT_EQ(decode->argument("kv")->type.dtype, DType::BF16);

  const ExportedGraph exported = llvm::cantFail(ExportedGraph::of(*graph, *module));
  ASSERT_TRUE(exported.hasRows());
  TokenIds text = prompt;
  text.insert(text.end(), greedy.begin(), greedy.end());
  GraphCall call;
  call.texts = {text};
  const auto outputs =
      llvm::cantFail(exported.run(llvm::cantFail(exported.arguments(call)), Arithmetic::Double));
  const Tensor &logits = outputs[exported.output("logits")];

  const double error = 20 * unitRoundoff(DType::BF16);
  HostRunner runner(*module);
  StepResult step = llvm::cantFail(runner.prefill({prompt}, {0}));
  size_t decided = 0;
  for (size_t i = 0; i < greedy.size(); ++i) {
    const Tensor expected = rowOf(logits, int64_t(prompt.size() + i) - 1);
    const Tensor got = step.logits.reshaped({expected.count()});
    EXPECT_LE(compareRows(got, expected, RowScale::Logits).relative, error) << "token " << i;
    if (lead(expected) > 2 * error) {
      ++decided;
      EXPECT_EQ(step.next[0], greedy[i]) << "token " << i;
    }
    step = llvm::cantFail(
        runner.decode({greedy[i]}, {int32_t(prompt.size() + i)})); // whatever it chose
  }
  EXPECT_GE(2 * decided, greedy.size()) << "too few tokens are told apart";
}

INSTANTIATE_TEST_SUITE_P(
    Models, BfloatModels,
    testing::Values(
        "llama/genai-llama-gqa-fp16-external", "llama/genai-llama-gqa-fp32-external",
        "llama/genai-llama-gqa-rotary-fp16-external", "llama/hf5-llama-dynamo-opset18",
        "llama/hf5-llama-gqa-dynamo-opset23", "llama/hf5-llama-gqa-past-torchscript-opset17",
        "llama/hf5-llama-mqa-past-dynamo-opset23",
        "llama/hf5-llama3-rope-tied-fp16-past-dynamo-opset18",
        "llama/hf5-mistral-window8-dynamo-opset18", "llama/hf5-qwen2-tied-dynamo-opset20-external",
        "llama/native-llama-gqa-past-opset23", "llama/optimum-llama-gqa-past", "llama/sample",
        "llama/seed-decoder-bias-fp16-dynamo-opset20", "llama/seed-decoder-torchscript-opset17",
        "llama/torch-onnx-ops-gqa-dynamo-opset23", "ours/classic-torchscript-opset17",
        "ours/hf5-sdpa-dynamo-opset23", "ours/nano-dynamo-opset23", "ours/sample",
        "ours/shape-h1-d64", "ours/shape-h2-d64", "ours/shape-h2-d96"),
    [](const auto &info) {
      std::string name = info.param;
      std::replace_if(name.begin(), name.end(), [](char c) { return !std::isalnum(c); }, '_');
      return name;
    });

} // namespace
