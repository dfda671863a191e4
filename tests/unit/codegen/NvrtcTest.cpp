// Every template compiles for every architecture we name, and failures say what went wrong.
#include "codegen/Nvrtc.h"

#include "ir/Error.h"
#include "templates/attention/decode/AttentionDecode.h"
#include "templates/attention/decode_mma/AttentionDecodeMma.h"
#include "templates/attention/kv_append/KvAppend.h"
#include "templates/attention/prefill_mma/AttentionPrefillMma.h"
#include "templates/attention/prefill_simt/AttentionPrefillSimt.h"
#include "templates/embed/Embed.h"
#include "templates/linear/mma/LinearMma.h"
#include "templates/linear/rowdot/LinearRowDot.h"
#include "templates/linear/simt/LinearSimt.h"
#include "templates/norm/Norm.h"
#include "templates/tokens/Tokens.h"
#include "llvm/Support/raw_ostream.h"

#include <gtest/gtest.h>

using namespace gpt2c;

namespace {
Nvrtc *nvrtc() {
  static std::unique_ptr<Nvrtc> loaded = [] {
    auto result = Nvrtc::load();
    if (result)
      return std::move(*result);
    llvm::errs() << toString(result.takeError()) << "\n";
    return std::unique_ptr<Nvrtc>();
  }();
  return loaded.get();
}

std::vector<KernelSource> oneOfEach() {
  const Scalar f16 = Scalar::F16, f32 = Scalar::F32;
  const Epilogue mlp = {{EpilogueStage::AddBias, f16}, {EpilogueStage::GeluTanh}};
  const Epilogue residual = {{EpilogueStage::AddBias, f32}, {EpilogueStage::AddMatrix, f32}};
  AttentionDecodeConfig half;
  half.headDim = 64;
  half.heads = 12;
  half.splits = 4;
  AttentionDecodeConfig bytes = half;
  bytes.kv = Scalar::I8;
  AttentionDecodeConfig odd;
  odd.x = odd.kv = f32;
  odd.headDim = 5;
  odd.heads = 3;
  odd.mask = true;
  LinearRowDotConfig rows{.rows = 1, .k = 768, .norm = NormKind::Layer};
  LinearRowDotConfig split{.rows = 4, .kSplit = 4, .k = 3072};
  return {
      linearMma("k0", {}, mlp),
      linearMma("k1", {.y = f32, .bm = 64, .bn = 64, .bk = 64, .warpsN = 2, .splitK = 4}, residual),
      linearSimt("k2", {}, residual),
      linearRowDot("k3", rows, mlp),
      linearRowDot("k4", split, residual),
      layerNorm("k5", {.d = 768, .residual = true}),
      embedding("k6", {.d = 768}),
      kvAppend("k7", {.headDim = 64, .heads = 12}),
      attentionDecode("k8", half),
      attentionDecode("k9", odd),
      attentionPrefillMma("k10", {half}),
      attentionPrefillSimt("k11", {odd}),
      gatherLast("k12", {.d = 768}),
      argmax("k13", {}),
      advance("k14"),
      attentionDecodeMma("k15", {half}),
      attentionDecodeMma("k16", {bytes})};
}

class NvrtcArch : public testing::TestWithParam<std::string> {};

TEST_P(NvrtcArch, CompilesEveryTemplate) {
  if (!nvrtc() || !nvrtc()->supports(GetParam()))
    GTEST_SKIP() << "no NVRTC for " << GetParam();
  std::string log;
  auto image = nvrtc()->compile(moduleSource(oneOfEach()), "all.cu", GetParam(), &log);
  ASSERT_TRUE(bool(image)) << toString(image.takeError());
  EXPECT_EQ(log, "") << "warnings";
  if (llvm::StringRef(GetParam()).starts_with("compute_")) {
    EXPECT_EQ(image->back(), '\0');
    llvm::StringRef text(image->data(), image->size() - 1);
    for (const KernelSource &kernel : oneOfEach())
      EXPECT_NE(text.find((".entry " + kernel.name + "(").c_str()), llvm::StringRef::npos)
          << kernel.name;
  } else {
    ASSERT_GT(image->size(), 4u);
    EXPECT_EQ(llvm::StringRef(image->data(), 4), "\x7f"
                                                 "ELF");
  }
}
TEST_P(NvrtcArch, CompilesThePeakKernels) {
  if (!nvrtc() || !nvrtc()->supports(GetParam()))
    GTEST_SKIP() << "no NVRTC for " << GetParam();
  std::string log;
  auto image = nvrtc()->compile("#include \"templates/peak.cuh\"\n", "peak.cu", GetParam(), &log);
  ASSERT_TRUE(bool(image)) << toString(image.takeError());
  EXPECT_EQ(log, "") << "warnings";
}

INSTANTIATE_TEST_SUITE_P(All, NvrtcArch,
                         testing::Values("sm_80", "sm_86", "sm_89", "sm_90a", "sm_100", "sm_120",
                                         "compute_80"),
                         [](const auto &info) { return info.param; });

/// A variable that is there and empty names no folder.
TEST(Nvrtc, AnEmptyVariableCountsAsUnset) {
  const char *before = getenv("GPT2C_CUDA_PATH");
  const std::string kept = before ? before : "";
  setenv("GPT2C_CUDA_PATH", "", 1);
  auto empty = Nvrtc::load();
  unsetenv("GPT2C_CUDA_PATH");
  auto unset = Nvrtc::load();
  if (before)
    setenv("GPT2C_CUDA_PATH", kept.c_str(), 1);
  ASSERT_EQ(bool(empty), bool(unset));
  if (empty)
    return;
  EXPECT_EQ(toString(empty.takeError()), toString(unset.takeError()));
}

TEST(Nvrtc, ReportsTheCompilersLog) {
  if (!nvrtc())
    GTEST_SKIP() << "no NVRTC";
  auto image =
      nvrtc()->compile("extern \"C\" __global__ void k() { missing(); }", "broken.cu", "sm_80");
  ASSERT_FALSE(bool(image));
  std::string text;
  llvm::raw_string_ostream os(text);
  EXPECT_EQ(printError(image.takeError(), os), ExitCode::KernelCompilation);
  EXPECT_NE(text.find("broken.cu(1)"), std::string::npos) << text;
  EXPECT_NE(text.find("missing"), std::string::npos) << text;
}

TEST(Nvrtc, RefusesUnknownArchitectures) {
  if (!nvrtc())
    GTEST_SKIP() << "no NVRTC";
  for (const char *arch : {"sm_20", "sm_", "gfx90a", "sm_90x", ""}) {
    EXPECT_FALSE(nvrtc()->supports(arch)) << arch;
    auto image = nvrtc()->compile("", "empty.cu", arch);
    ASSERT_FALSE(bool(image));
    llvm::consumeError(image.takeError());
  }
}

TEST(Nvrtc, ListsWhatWasTried) {
  auto result = Nvrtc::load("/nonexistent/cuda");
  ASSERT_FALSE(bool(result));
  std::string text;
  llvm::raw_string_ostream os(text);
  EXPECT_EQ(printError(result.takeError(), os), ExitCode::KernelCompilation);
  EXPECT_NE(text.find("/nonexistent/cuda"), std::string::npos) << text;
}

TEST(Nvrtc, IsDeterministic) {
  if (!nvrtc())
    GTEST_SKIP() << "no NVRTC";
  std::string source = moduleSource({layerNorm("k", {.d = 64})});
  auto first = nvrtc()->compile(source, "a.cu", "sm_80"),
       second = nvrtc()->compile(source, "a.cu", "sm_80");
  ASSERT_TRUE(first && second);
  EXPECT_EQ(*first, *second);
}
} // namespace
