// Statistics of a model on the host and as a plan of one function with further results.
#include "tools/common/Calibrate.h"

#include "cpu/CpuBackend.h"
#include "frontend/Import.h"

#include <gtest/gtest.h>

#include <cstdlib>

using namespace gpt2c;

namespace {

std::unique_ptr<Module> recognised() {
  auto module = importOnnx(GPT2C_SOURCE_DIR "/examples/sample/model.onnx");
  EXPECT_TRUE(!!module);
  PassOptions options;
  std::vector<Remark> remarks;
  PassContext ctx(**module, options, remarks);
  PipelineOptions pipeline;
  pipeline.stopBefore = "quantised";
  llvm::cantFail(runPipeline(ctx, pipeline));
  return std::move(*module);
}

Calibration statistics(const Module &module, const OpenForward &open) {
  rt::Tokens tokens;
  for (int32_t i = 0; i < 100; ++i)
    tokens.push_back(i * 37 % 4096);
  CalibrateOptions options;
  options.window = 40; // the last is shorter
  options.open = [&](const Function &observed) -> llvm::Expected<std::unique_ptr<TextForward>> {
    auto lowered = lowerForward(module, observed, {}, {});
    if (!lowered)
      return lowered.takeError();
    return open(std::move(*lowered), 1);
  };
  return llvm::cantFail(calibrate(*module.function("forward"), tokens, options));
}

TEST(Calibrate, APlanGivesTheStatisticsOfTheHost) {
  std::unique_ptr<Module> module = recognised();
  // As many threads as the host's BLAS has: the number decides how it adds up.
  const char *threads = std::getenv("OPENBLAS_NUM_THREADS");
  auto device = [&](rt::Plan::Ptr plan) {
    return makeCpuBackend(std::move(plan), {.threads = threads ? std::atoi(threads) : 0});
  };
  Calibration host = statistics(*module, openHostForward);
  Calibration plan = statistics(
      *module, [&](Module m, int64_t batch) { return openPlanForward(m, batch, {}, device); });
  EXPECT_EQ(host.layers.size(), 17u);
  for (auto &[name, stats] : host.layers) {
    EXPECT_EQ(stats.rows, 100);
    EXPECT_GT(stats.largest, 0);
  }
  EXPECT_EQ(plan.toJson(), host.toJson());
}

} // namespace
