// A device that does what another one does, but for a fault.
#pragma once

#include "runtime/device/Backend.h"

namespace gpt2c::test {

class FaultyDevice : public rt::Backend {
public:
  explicit FaultyDevice(std::unique_ptr<rt::Backend> device) : device_(std::move(device)) {}

  std::string name() const override { return "faulty " + device_->name(); }
  std::string kind() const override { return device_->kind(); }
  std::span<const std::unique_ptr<plan::FunctionT>> functions() const override {
    return device_->functions();
  }
  rt::BackendStats stats() const override { return device_->stats(); }
  rt::Result<rt::StepOutput> prefill(std::span<const rt::Tokens> sequences,
                                     std::span<const int32_t> past, bool wantLogits) override {
    return device_->prefill(sequences, past, wantLogits);
  }
  rt::Result<std::vector<rt::Tokens>> decode(int steps) override { return device_->decode(steps); }
  rt::Result<rt::StepOutput> step(std::span<const int32_t> tokens, bool wantLogits) override {
    return device_->step(tokens, wantLogits);
  }
  rt::Result<std::vector<rt::HostTensor>> run(const plan::FunctionT &function,
                                              std::span<const rt::HostTensor> inputs,
                                              std::span<const int64_t> symbols) override {
    return device_->run(function, inputs, symbols);
  }
  rt::Status writeKv(int layer, plan::KvPart part, const rt::HostTensor &values) override {
    return device_->writeKv(layer, part, values);
  }
  rt::Result<rt::HostTensor> readKv(int layer, plan::KvPart part, int64_t batch,
                                    int64_t tokens) override {
    return device_->readKv(layer, part, batch, tokens);
  }

protected:
  std::unique_ptr<rt::Backend> device_;
};

/// Every output of a call goes through `change`.
class ChangedOutputs : public FaultyDevice {
public:
  using FaultyDevice::FaultyDevice;
  rt::Result<rt::StepOutput> prefill(std::span<const rt::Tokens> sequences,
                                     std::span<const int32_t> past, bool wantLogits) override {
    return changed(device_->prefill(sequences, past, wantLogits), sequences.size());
  }
  rt::Result<rt::StepOutput> step(std::span<const int32_t> tokens, bool wantLogits) override {
    return changed(device_->step(tokens, wantLogits), tokens.size());
  }

protected:
  virtual void change(rt::StepOutput &out, size_t batch) = 0;

private:
  rt::Result<rt::StepOutput> changed(rt::Result<rt::StepOutput> out, size_t batch) {
    if (out && !out->logits.empty())
      change(*out, batch);
    return out;
  }
};

} // namespace gpt2c::test
