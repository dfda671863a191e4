// The tuner on a device that tells times as it is told: what it measures, what it takes, and what
// it gives back when a function as a whole gets slower.
#include "tools/common/tuning/Tuner.h"

#include "codegen/Nvrtc.h"
#include "ir/Text.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"

#include <gtest/gtest.h>

using namespace gpt2c;

namespace {

const char *const text = R"(module @m {}

func @decode(%ids: i32[batch, 1], %kv: f32[1, 2, slots, 1, 64, 64], %past: i32[batch])
    -> (%next: i32[batch], %logits: f32[batch, 96], %kv: f32[1, 2, slots, 1, 64, 64]) {
  %table = constant dense<0.5> : f32[96, 64]
  %wide = constant dense<0.25> : f32[192, 64]
  %x = embed(%ids, %table) : f32[batch, 1, 64]
  %qkv = linear(%x, %wide) : f32[batch, 1, 192]
  %0, %a = append_attention(%kv, %qkv, %past) {layer = 0, num_heads = 1, scale = 0.125}
      : f32[1, 2, slots, 1, 64, 64], f32[batch, 1, 64]
  %l = linear(%a, %table) : f32[batch, 1, 96]
  %y = reshape(%l) {shape = [batch, 96]} : f32[batch, 96]
  %n = arg_max(%y) {axis = -1, keepdims = false, dtype = i32} : i32[batch]
  return %n, %y, %0
}

func @forward(%ids: i32[batch, seq]) -> (%y: f32[batch, seq, 80]) {
  %table = constant dense<0.5> : f32[96, 64]
  %narrow = constant dense<0.5> : f32[80, 64]
  %x = embed(%ids, %table) : f32[batch, seq, 64]
  %y = linear(%x, %narrow) : f32[batch, seq, 80]
  return %y
}
)";
const char *const wide = "linear rows=1 n=192 k=64 f32 x f32";
const char *const head = "linear rows=1 n=96 k=64 f32 x f32";
const char *const fast = "linear_rowdot cols=1 warps=4 split=1";
const char *const slightlyFaster = "linear_rowdot cols=1 warps=4 split=2";

/// Milliseconds of a step, alone or as a part of the whole function.
using Times = std::function<double(const plan::StepT &, bool whole)>;

class FakeDevice : public rt::Backend {
public:
  FakeDevice(rt::Plan::Ptr plan, Times times) : plan_(std::move(plan)), times_(std::move(times)) {}

  std::string name() const override { return "fake"; }
  std::string kind() const override { return "fake"; }
  std::span<const std::unique_ptr<plan::FunctionT>> functions() const override {
    return plan_->meta().functions;
  }
  rt::Result<rt::FunctionProfile> profile(std::string_view function,
                                          std::span<const rt::Tokens> sequences,
                                          std::span<const int32_t> past, int,
                                          const WantedSteps &wanted) override {
    EXPECT_EQ(function, "decode");
    EXPECT_EQ(sequences.size(), 1u);
    EXPECT_EQ(past[0], 32);
    rt::FunctionProfile profile;
    profile.function = functions()[0].get();
    const bool whole = wanted(*profile.function->steps.back()); // which has one candidate
    double now = 0;
    for (size_t i = 0; i < profile.function->steps.size(); ++i) {
      const plan::StepT &step = *profile.function->steps[i];
      double end = now + times_(step, whole);
      if (wanted(step))
        profile.steps.push_back({i, now, end});
      now = end;
    }
    return profile;
  }

  rt::Result<rt::StepOutput> prefill(std::span<const rt::Tokens>, std::span<const int32_t>,
                                     bool) override {
    return unused();
  }
  rt::Result<std::vector<rt::Tokens>> decode(int) override { return unused(); }
  rt::Result<rt::StepOutput> step(std::span<const int32_t>, bool) override { return unused(); }
  rt::Result<std::vector<rt::HostTensor>>
  run(const plan::FunctionT &, std::span<const rt::HostTensor>, std::span<const int64_t>) override {
    return unused();
  }
  rt::Status writeKv(int, plan::KvPart, const rt::HostTensor &) override { return unused(); }
  rt::Result<rt::HostTensor> readKv(int, plan::KvPart, int64_t, int64_t) override {
    return unused();
  }

private:
  static rt::Status unused() { return {rt::Code::Unsupported, "not here"}; }
  rt::Plan::Ptr plan_;
  Times times_;
};

struct Outcome {
  TuningTable table{"compute_80"};
  int plans = 0;
  std::string error, report;
};

Outcome tuneWith(const Times &times, TuningTable known = TuningTable("compute_80")) {
  Outcome out;
  auto module = parseModule(text, "test.ir");
  if (!module) {
    out.error = toString(module.takeError());
    return out;
  }
  CodegenOptions options;
  options.archs = {"compute_80"};
  options.maxBatch = 1;
  options.precision = "fp32";
  options.kernelCache = testing::TempDir() + "gpt2c-tuner-test";
  out.table = std::move(known);
  auto open = [&](rt::Plan::Ptr plan) -> rt::Result<std::unique_ptr<rt::Backend>> {
    ++out.plans;
    return std::unique_ptr<rt::Backend>(std::make_unique<FakeDevice>(std::move(plan), times));
  };
  auto report = [&](const llvm::Twine &line) { out.report += line.str() + "\n"; };
  if (llvm::Error e = tune(**module, options, out.table, open, report))
    out.error = toString(std::move(e));
  return out;
}

class TunerTest : public testing::Test {
protected:
  static void TearDownTestSuite() {
    EXPECT_FALSE(llvm::sys::fs::remove_directories(testing::TempDir() + "gpt2c-tuner-test"));
  }
  void SetUp() override {
    auto nvrtc = Nvrtc::load();
    if (!nvrtc) {
      llvm::consumeError(nvrtc.takeError());
      GTEST_SKIP() << "no NVRTC";
    }
  }
};

TEST_F(TunerTest, TakesTheFastest) {
  Outcome out = tuneWith([](const plan::StepT &step, bool) {
    if (step.choice == fast && step.choice_key == wide)
      return 0.5;
    return step.choice == slightlyFaster ? 0.99 : 1.0; // within what two runs differ by
  });
  ASSERT_EQ(out.error, "");
  ASSERT_TRUE(out.table.find(wide) && out.table.find(head)) << out.table.text();
  EXPECT_EQ(out.table.find(wide)->choice, fast);
  EXPECT_EQ(out.table.find(wide)->microseconds, 500);
  EXPECT_EQ(out.table.find(wide)->modelMicroseconds, 1000);
  EXPECT_NE(out.table.find(head)->choice, slightlyFaster);
  EXPECT_EQ(out.table.find(head)->microseconds, out.table.find(head)->modelMicroseconds);
  EXPECT_EQ(out.table.entries().size(), 3u); // and attention
  EXPECT_NE(out.report.find("decode batch 1: 5.0000 ms by the cost model, 4.5000 ms tuned, 1 of 3 "
                            "choices differ"),
            std::string::npos)
      << out.report;

  // What is known is not measured again: one plan to see that, and nothing changes.
  Outcome again = tuneWith([](const plan::StepT &, bool) { return 1.0; }, out.table);
  ASSERT_EQ(again.error, "");
  EXPECT_EQ(again.plans, 1);
  EXPECT_EQ(again.table.text(), out.table.text());
}

TEST_F(TunerTest, TakesNothingForATimeBelowZero) {
  Outcome out = tuneWith([](const plan::StepT &step, bool whole) {
    return !whole && step.choice == fast && step.choice_key == wide ? -0.5 : 1.0;
  });
  ASSERT_EQ(out.error, "");
  ASSERT_TRUE(out.table.find(wide)) << out.table.text();
  EXPECT_NE(out.table.find(wide)->choice, fast);
  EXPECT_EQ(out.table.find(wide)->microseconds, 1000);
}

TEST_F(TunerTest, GivesBackWhatMakesAFunctionSlower) {
  // What is fast alone leaves work to others.
  Outcome out = tuneWith([](const plan::StepT &step, bool whole) {
    const bool chosen = step.choice == fast && step.choice_key == wide;
    return !chosen ? 1.0 : whole ? 3.0 : 0.5;
  });
  ASSERT_EQ(out.error, "");
  ASSERT_TRUE(out.table.find(wide));
  EXPECT_NE(out.table.find(wide)->choice, fast);
  EXPECT_EQ(out.table.find(wide)->microseconds, 1000);
}

TEST_F(TunerTest, TakesWhatIsSlowAloneButMakesAFunctionFaster) {
  Outcome out = tuneWith([](const plan::StepT &step, bool whole) {
    const bool chosen = step.choice == fast && step.choice_key == wide;
    return !chosen ? 1.0 : whole ? 0.5 : 1.1;
  });
  ASSERT_EQ(out.error, "");
  ASSERT_TRUE(out.table.find(wide)) << out.table.text();
  EXPECT_EQ(out.table.find(wide)->choice, fast);
  EXPECT_NEAR(out.table.find(wide)->microseconds, 1100, 1e-6);
}

TEST_F(TunerTest, ADeviceThatFailsEndsIt) {
  auto module = parseModule(text, "test.ir");
  ASSERT_TRUE(bool(module));
  CodegenOptions options;
  options.archs = {"compute_80"};
  options.kernelCache = testing::TempDir() + "gpt2c-tuner-test";
  TuningTable table("compute_80");
  llvm::Error e = tune(
      **module, options, table,
      [](const rt::Plan::Ptr &) -> rt::Result<std::unique_ptr<rt::Backend>> {
        return rt::Status(rt::Code::Cuda, "the device is lost");
      },
      [](const llvm::Twine &) {});
  EXPECT_EQ(toString(std::move(e)), "the device is lost");
  EXPECT_TRUE(table.entries().empty());
}

} // namespace
