// The self-test passes where a device computes what the plan says, and finds every fault put into
// plan or device. A list of faults.
#include "runtime/session/SelfTest.h"
#include "FaultyDevice.h"

#include "cpu/CpuBackend.h"
#include "frontend/Import.h"
#include "ir/Error.h"
#include "tools/common/verification/GeneratedSession.h"
#include "tools/common/verification/Verification.h"

#include "llvm/ADT/STLExtras.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <iterator>

using namespace gpt2c;
using namespace gpt2c::test;

namespace {

/// The sample model at a precision, with the golden prompts that gpt2c makes for it.
struct Compiled {
  std::unique_ptr<Module> module;
  std::unique_ptr<plan::GoldenT> golden;

  explicit Compiled(DType precision) {
    module = llvm::cantFail(importOnnx(GPT2C_SOURCE_DIR "/examples/sample/model.onnx"));
    PlanVerifier verifier(*module, VerifyMode::Fast, 4);
    PassOptions options;
    options.precision = precision;
    options.maxBatch = 4;
    options.maxContext = 64;
    std::vector<Remark> remarks;
    PassContext context(*module, options, remarks);
    PipelineOptions pipeline;
    pipeline.afterStage = [&](const Stage &stage, const Module &m) {
      verifier.afterStage(stage, m);
      return llvm::Error::success();
    };
    llvm::cantFail(runPipeline(context, pipeline));
    llvm::cantFail(verifier.check(*module, options));
    golden = verifier.takeGolden();
  }

  static const Compiled &at(DType precision) {
    if (precision == DType::F16) {
      static const Compiled half(DType::F16);
      return half;
    }
    static const Compiled single(DType::F32);
    return single;
  }
};

using Wrap = std::function<std::unique_ptr<rt::Backend>(std::unique_ptr<rt::Backend>)>;

class SelfTest : public testing::TestWithParam<std::string> {
protected:
  SelfTest() {
    for (auto &f : compiled_.module->functions)
      module.functions.push_back(f->clone(f->name()));
    module.name = compiled_.module->name;
    module.properties = compiled_.module->properties;
    golden = std::make_unique<plan::GoldenT>(*compiled_.golden);
  }

  /// Each op of the plan for which `is` holds.
  void forEach(llvm::function_ref<bool(const Op &)> is, llvm::function_ref<void(Op &)> f) {
    unsigned found = 0;
    for (auto &function : module.functions)
      for (auto &op : function->ops())
        if (is(*op)) {
          f(*op);
          ++found;
        }
    EXPECT_GE(found, 3u) << "in each of @forward, @prefill and @decode";
  }

  static bool isNamed(const Op &op, llvm::StringRef name) {
    return op.is(OpCode::Constant) && llvm::StringRef(op.result()->name).ends_with(name);
  }

  /// The constants whose names end so become what `f` makes of element and place.
  void changeConstants(llvm::StringRef name,
                       llvm::function_ref<double(const Tensor &, int64_t)> f) {
    forEach([&](const Op &op) { return isNamed(op, name); },
            [&](Op &op) {
              Tensor wide(DType::F64, op.constant.shape());
              for (int64_t i = 0; i < wide.count(); ++i)
                wide.data<double>()[i] = f(op.constant, i);
              op.constant = wide.cast(op.constant.dtype());
            });
  }

  rt::Result<rt::SelfTestReport> run(const Wrap &wrap = {}) {
    CodegenOptions options;
    options.maxBatch = 4;
    options.precision = GetParam();
    auto plan = llvm::cantFail(generatePlan(module, options));
    plan->contents.meta.golden = std::make_unique<plan::GoldenT>(*golden);
    auto session = llvm::cantFail(
        openGenerated(*plan, [&](rt::Plan::Ptr opened) -> rt::Result<std::unique_ptr<rt::Backend>> {
          auto device = makeCpuBackend(std::move(opened));
          return device && wrap ? wrap(device.take()) : std::move(device);
        }));
    return rt::selfTest(*session);
  }

  /// The checks that fail, separated by blanks.
  std::string failures(const Wrap &wrap = {}) {
    auto report = run(wrap);
    if (!report)
      return "error: " + report.status().message();
    std::string out;
    for (const rt::SelfTestCheck &c : report->checks)
      if (c.outcome == rt::SelfTestCheck::Fail)
        out += (out.empty() ? "" : " ") + c.what;
    EXPECT_EQ(report->passed(), out.empty());
    return out;
  }

  const Compiled &compiled_ = Compiled::at(GetParam() == "fp16" ? DType::F16 : DType::F32);
  Module module;
  std::unique_ptr<plan::GoldenT> golden;
};

/// A fault of the model is one in every run of it, but not in the bytes of its weights.
constexpr const char *inEveryRun = "alone batch again generation";

template <typename Device> std::unique_ptr<rt::Backend> wrapped(std::unique_ptr<rt::Backend> d) {
  return std::make_unique<Device>(std::move(d));
}

TEST_P(SelfTest, ASoundDevicePasses) {
  auto report = run();
  ASSERT_TRUE(report) << report.status().message();
  std::vector<std::string> names;
  for (const rt::SelfTestCheck &c : report->checks) {
    names.push_back(c.what);
    EXPECT_EQ(c.outcome, c.what == "speed" ? rt::SelfTestCheck::Skipped : rt::SelfTestCheck::Pass)
        << c.what << ": " << c.detail;
  }
  EXPECT_EQ(names, (std::vector<std::string>{"weights", "alone", "batch", "again", "generation",
                                             "speed"}));
}

TEST_P(SelfTest, APlanWithoutGoldenPromptsIsRefusedWithAWayOut) {
  golden.reset();
  CodegenOptions options;
  auto plan = llvm::cantFail(generatePlan(module, options));
  auto session = llvm::cantFail(
      openGenerated(*plan, [](rt::Plan::Ptr p) { return makeCpuBackend(std::move(p)); }));
  auto report = rt::selfTest(*session);
  ASSERT_FALSE(report);
  EXPECT_EQ(report.status().code(), rt::Code::Usage);
  EXPECT_NE(report.status().message().find("compile it again"), std::string::npos);
}

//===-- faults of the plan --------------------------------------------------------------------===//

TEST_P(SelfTest, ADroppedBiasIsFound) {
  changeConstants("h.1.mlp.c_fc.bias", [](const Tensor &, int64_t) { return 0; });
  EXPECT_EQ(failures().substr(0, 11), "alone batch");
}

TEST_P(SelfTest, AScaledGainIsFound) {
  // Gains are part of the products behind them; this is that of the last norm.
  forEach([](const Op &op) { return op.is(OpCode::LayerNorm) && !op.result()->uses().empty(); },
          [&](Op &op) {
            Op *gain = op.operand(1)->def();
            if (gain->constant.asDouble(0) != 1)
              return;
            Tensor scaled(DType::F64, gain->constant.shape());
            for (int64_t i = 0; i < scaled.count(); ++i)
              scaled.data<double>()[i] = GetParam() == "fp16" ? 1.25 : 1.01;
            gain->constant = scaled.cast(gain->constant.dtype());
          });
  EXPECT_EQ(failures().substr(0, 11), "alone batch");
}

TEST_P(SelfTest, PositionsThatAreOffByOneAreFound) {
  changeConstants("wpe.weight", [](const Tensor &t, int64_t i) {
    return t.asDouble((i + t.dim(1)) % t.count());
  });
  EXPECT_EQ(failures().substr(0, 11), "alone batch");
}

TEST_P(SelfTest, WeightsOfTwoLayersThatAreSwappedAreFound) {
  for (auto &function : module.functions) {
    Op *first = nullptr, *second = nullptr;
    for (auto &op : function->ops()) {
      first = isNamed(*op, "h.0.attn.c_proj.weight") ? op.get() : first;
      second = isNamed(*op, "h.1.attn.c_proj.weight") ? op.get() : second;
    }
    ASSERT_TRUE(first && second);
    std::swap(first->constant, second->constant);
  }
  EXPECT_EQ(failures().substr(0, 11), "alone batch");
}

TEST_P(SelfTest, AWrongEpilogueIsFound) {
  auto isFirst = [](const Op &op) {
    return op.is(OpCode::Linear) && op.stringAttr("activation") != "none";
  };
  forEach(isFirst, [](Op &op) { op.setAttr("activation", std::string("relu")); });
  EXPECT_EQ(failures().substr(0, 11), "alone batch");
}

TEST_P(SelfTest, AnotherScaleOfTheScoresIsFound) {
  forEach([](const Op &op) { return op.is(OpCode::AppendAttention); },
          [](Op &op) { op.setAttr("scale", op.floatAttr("scale") * 1.5); });
  EXPECT_EQ(failures().substr(0, 11), "alone batch");
}

TEST_P(SelfTest, AWeightThatIsNaNIsFound) {
  changeConstants("h.2.mlp.c_proj.bias",
                  [](const Tensor &t, int64_t i) { return i == 3 ? std::nan("") : t.asDouble(i); });
  EXPECT_EQ(failures(), inEveryRun);
}

TEST_P(SelfTest, AChangedGoldenTokenIsFound) {
  golden->prompts[2]->rows[1]->top_ids[0] ^= 1;
  EXPECT_NE(failures(), "");
}

TEST_P(SelfTest, AChangedPromptIsFound) {
  golden->prompts[1]->ids[5] ^= 1;
  EXPECT_NE(failures(), "");
}

/// A byte of a weight changes after the plan was opened.
class DamagedWeights final : public FaultyDevice {
public:
  using FaultyDevice::FaultyDevice;
  rt::Result<std::vector<std::byte>> readWeight(size_t index) override {
    std::vector<std::byte> bytes(64, std::byte{1});
    return index == 7 ? bytes : FaultyDevice::readWeight(index);
  }
};

TEST_P(SelfTest, WeightsThatAreOthersOnTheDeviceAreFound) {
  EXPECT_EQ(failures(wrapped<DamagedWeights>), "weights");
}

TEST_P(SelfTest, AChangedByteOfAWeightIsFoundWhereTheLoaderDidNotLook) {
  CodegenOptions options;
  options.maxBatch = 4;
  auto generated = llvm::cantFail(generatePlan(module, options));
  generated->contents.meta.golden = std::make_unique<plan::GoldenT>(*golden);
  std::string path = testing::TempDir() + "self-test.plan";
  ASSERT_TRUE(rt::writePlan(path, generated->contents).ok());
  std::ifstream file(path, std::ios::binary);
  std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  bytes[bytes.size() - bytes.size() / 3] ^= 1; // the weights are by far the most of it
  rt::OpenOptions open;
  open.verifyWeights = false;
  const auto *data = reinterpret_cast<const std::byte *>(bytes.data());
  auto plan = rt::Plan::fromBytes({data, data + bytes.size()}, "damaged", open);
  ASSERT_TRUE(plan) << plan.status().message();
  rt::Session session(*plan, makeCpuBackend(*plan).take());
  auto report = rt::selfTest(session);
  ASSERT_TRUE(report) << report.status().message();
  EXPECT_EQ(report->checks[0].outcome, rt::SelfTestCheck::Fail);
  EXPECT_NE(report->checks[0].detail.find("not those that were compiled"), std::string::npos);
}

//===-- faults of the device ------------------------------------------------------------------===//

class WrongRowInABatch final : public ChangedOutputs {
  void change(rt::StepOutput &out, size_t batch) override {
    const size_t width = out.logits.size() / batch;
    if (batch > 1) // the second row is computed from the first one's
      std::copy_n(out.logits.begin(), width, out.logits.begin() + ptrdiff_t(width));
  }

public:
  using ChangedOutputs::ChangedOutputs;
};

TEST_P(SelfTest, ARowThatIsWrongInABatchAloneIsFound) {
  EXPECT_EQ(failures(wrapped<WrongRowInABatch>), "batch again");
}

class LowBit final : public ChangedOutputs {
  void change(rt::StepOutput &out, size_t) override {
    if (++calls_ % 7 == 0) {
      float &x = out.logits[out.logits.size() / 2];
      x = std::nextafter(x, 0.0f);
    }
  }
  int calls_ = 0;

public:
  using ChangedOutputs::ChangedOutputs;
};

TEST_P(SelfTest, ABitThatDiffersTheSecondTimeIsFound) {
  EXPECT_EQ(failures(wrapped<LowBit>), "again");
}

class LostLogit final : public ChangedOutputs {
  void change(rt::StepOutput &out, size_t) override { out.logits[100] = NAN; }

public:
  using ChangedOutputs::ChangedOutputs;
};

TEST_P(SelfTest, ALogitThatIsNaNIsFound) {
  EXPECT_EQ(failures(wrapped<LostLogit>), "alone batch again");
}

class NarrowVocabulary final : public ChangedOutputs {
  void change(rt::StepOutput &out, size_t batch) override {
    const size_t width = out.logits.size() / batch;
    for (size_t b = 0; b < batch; ++b)
      std::fill_n(out.logits.begin() + ptrdiff_t(b * width + width - width / 16), width / 16, 0.f);
  }

public:
  using ChangedOutputs::ChangedOutputs;
};

TEST_P(SelfTest, AVocabularyThatIsCutOffIsFound) {
  EXPECT_EQ(failures(wrapped<NarrowVocabulary>).substr(0, 11), "alone batch");
}

/// Steps through prefill(), which says where in the state a token goes.
class OffByOne final : public FaultyDevice {
public:
  using FaultyDevice::FaultyDevice;
  rt::Result<rt::StepOutput> prefill(std::span<const rt::Tokens> sequences,
                                     std::span<const int32_t> past, bool wantLogits) override {
    past_.assign(past.begin(), past.end());
    for (size_t b = 0; b < past_.size(); ++b)
      past_[b] += int32_t(sequences[b].size()) - 1; // one too few
    return device_->prefill(sequences, past, wantLogits);
  }
  rt::Result<rt::StepOutput> step(std::span<const int32_t> tokens, bool wantLogits) override {
    std::vector<rt::Tokens> sequences;
    for (int32_t token : tokens)
      sequences.push_back({token});
    auto out = device_->prefill(sequences, past_, wantLogits);
    for (int32_t &p : past_)
      ++p;
    return out;
  }

private:
  std::vector<int32_t> past_;
};

TEST_P(SelfTest, AStateThatIsWrittenOnePositionOffIsFound) {
  EXPECT_EQ(failures(wrapped<OffByOne>).substr(0, 11), "alone batch");
}

/// A state that keeps what an earlier call left there: the prompt goes behind it.
class StaleState final : public FaultyDevice {
public:
  using FaultyDevice::FaultyDevice;
  rt::Result<rt::StepOutput> prefill(std::span<const rt::Tokens> sequences,
                                     std::span<const int32_t> past, bool wantLogits) override {
    std::vector<int32_t> stale(past.begin(), past.end());
    for (int32_t &p : stale)
      p += calls_ ? 1 : 0;
    ++calls_;
    return device_->prefill(sequences, stale, wantLogits);
  }

private:
  int calls_ = 0;
};

TEST_P(SelfTest, AStateThatIsNotEmptyAtTheStartIsFound) {
  EXPECT_EQ(failures(wrapped<StaleState>).substr(0, 11), "alone batch");
}

class OtherChoices final : public FaultyDevice {
public:
  using FaultyDevice::FaultyDevice;
  rt::Result<std::vector<rt::Tokens>> decode(int steps) override {
    auto out = device_->decode(steps);
    if (out)
      out->back().back() ^= 1;
    return out;
  }
};

TEST_P(SelfTest, AChoiceThatTheDeviceMakesWrongIsFound) {
  EXPECT_EQ(failures(wrapped<OtherChoices>), "generation");
}

INSTANTIATE_TEST_SUITE_P(, SelfTest, testing::Values("fp32", "fp16"),
                         [](const auto &info) { return info.param; });

//===-- speed ---------------------------------------------------------------------------------===//

/// A sound GPU of 3 TB/s, and a step that is near to what its bytes take.
rt::DeviceSpeed soundSpeed() {
  return {.bytesPerSecond = 3e12,
          .nominalBytesPerSecond = 3.3e12,
          .cacheBytes = 50 << 20,
          .clock = 1900,
          .maxClock = 1980,
          .slowedBy = ""};
}
constexpr rt::StepEstimate soundStep{.bytes = 3e8, .launches = 80, .milliseconds = 0.15};

TEST(SelfTestSpeed, ASoundOnePasses) {
  rt::SelfTestCheck check = rt::judgeSpeed(soundSpeed(), soundStep);
  EXPECT_EQ(check.outcome, rt::SelfTestCheck::Pass) << check.detail;
  EXPECT_NE(check.detail.find("memory 3000 GB/s of 3300 GB/s"), std::string::npos) << check.detail;
  EXPECT_NE(check.detail.find("clock 1900 of 1980 MHz"), std::string::npos) << check.detail;
}

TEST(SelfTestSpeed, WhatIsNotKnownIsNotJudged) {
  rt::DeviceSpeed speed{.bytesPerSecond = 3e12, .slowedBy = ""};
  EXPECT_EQ(rt::judgeSpeed(speed, {}).outcome, rt::SelfTestCheck::Pass);
}

TEST(SelfTestSpeed, SlowMemoryALowClockAndAWrongEstimateAreFound) {
  rt::DeviceSpeed slow = soundSpeed(), low = soundSpeed();
  slow.bytesPerSecond = 1e12;
  low.clock = 600;
  low.slowedBy = "its temperature";
  rt::StepEstimate late = soundStep, much = soundStep, little = soundStep;
  late.milliseconds = 5;
  much.bytes *= 100;
  little.milliseconds = 0.01;
  EXPECT_EQ(rt::judgeSpeed(slow, soundStep).outcome, rt::SelfTestCheck::Fail);
  rt::SelfTestCheck hot = rt::judgeSpeed(low, soundStep);
  EXPECT_EQ(hot.outcome, rt::SelfTestCheck::Fail);
  EXPECT_NE(hot.detail.find("slowed by its temperature"), std::string::npos) << hot.detail;
  for (const rt::StepEstimate &step : {late, much, little})
    EXPECT_EQ(rt::judgeSpeed(soundSpeed(), step).outcome, rt::SelfTestCheck::Fail);
}

/// A device that tells a speed and how long its calls took.
class TimedDevice final : public FaultyDevice {
public:
  using FaultyDevice::FaultyDevice;
  rt::Result<rt::DeviceSpeed> measureSpeed() override { return speed; }
  rt::BackendStats stats() const override {
    rt::BackendStats out;
    out.deviceMilliseconds = 1;
    return out;
  }
  rt::DeviceSpeed speed = soundSpeed();
};

TEST_P(SelfTest, TheSpeedOfADeviceIsJudged) {
  EXPECT_EQ(failures(wrapped<TimedDevice>), "");
  EXPECT_EQ(failures([](std::unique_ptr<rt::Backend> d) {
              auto device = std::make_unique<TimedDevice>(std::move(d));
              device->speed.clock = 300;
              return device;
            }),
            "speed");
}

} // namespace
