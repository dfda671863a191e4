// Functions run one step after the other, for who wants to see what each leaves in memory.
#include "runtime/cuda/CudaBackendClass.h"

namespace gpt2c::rt::cuda {

namespace {

/// The last step that writes each output; -1: none does.
std::vector<int64_t> lastWrites(const plan::FunctionT &function) {
  std::vector<int64_t> last(function.outputs.size(), -1);
  for (size_t i = 0; i < function.steps.size(); ++i)
    for (const auto &arg : function.steps[i]->args)
      if (arg->kind == plan::ArgKind::Output)
        last[size_t(arg->index)] = int64_t(i);
  return last;
}

bool isTraced(const plan::PortT &port) {
  return port.role == plan::Role::Logits || port.role == plan::Role::Plain;
}

} // namespace

/// Buffers share bytes, so each is read when it is whole, before the next step.
Status CudaBackend::traceSteps(const plan::FunctionT &function, std::span<const int64_t> symbols,
                               std::span<const CUdeviceptr> inputs,
                               std::span<const CUdeviceptr> outputs, const OnValue &onValue) {
  const std::vector<int64_t> last = lastWrites(function);
  auto after = [&](size_t step) -> Result<bool> {
    for (size_t i = 0; i < function.buffers.size(); ++i) {
      const plan::BufferT &buffer = *function.buffers[i];
      if (buffer.value < 0 || size_t(buffer.whole_step) != step)
        continue;
      Result<HostTensor> tensor = executor_->readBuffer(function, i, symbols);
      if (!tensor)
        return tensor.status();
      if (Status s = onValue(step, buffer.value, tensor.take()); !s.ok())
        return s;
    }
    for (size_t i = 0; i < outputs.size(); ++i) {
      const plan::PortT &port = *function.outputs[i];
      if (last[i] != int64_t(step) || !isTraced(port) || !outputs[i])
        continue;
      Result<std::vector<int64_t>> shape = portShape(port, symbols);
      if (!shape)
        return shape.status();
      HostTensor tensor(port.dtype, shape.take());
      if (Status s = device_->download(tensor.data.data(), outputs[i], tensor.data.size()); !s.ok())
        return s;
      if (Status s = onValue(step, -1 - int(i), std::move(tensor)); !s.ok())
        return s;
    }
    return true;
  };
  if (Status s = executor_->enqueue(function, symbols, inputs, outputs, after); !s.ok())
    return s;
  return device_->synchronize();
}

Result<const plan::FunctionT *> CudaBackend::trace(std::string_view function,
                                                   std::span<const Tokens> sequences,
                                                   std::span<const int32_t> past,
                                                   const OnValue &onValue) {
  if (Status s = device_->synchronize(); !s.ok())
    return s;
  batch_ = static_cast<int64_t>(sequences.size());
  const int64_t length = static_cast<int64_t>(sequences[0].size());
  Result<Bound> bound = bind(std::string(function), length, true, 0);
  Status s = bound ? setSequences(sequences, past, length) : bound.status();
  if (s.ok())
    s = traceSteps(*bound->call.function, bound->call.symbols, bound->inputs, bound->outputs,
                   onValue);
  batch_ = 0;
  if (!s.ok())
    return s;
  return bound->call.function;
}

Status CudaBackend::traceRun(const plan::FunctionT &function, std::span<const HostTensor> inputs,
                             std::span<const int64_t> symbols, const OnValue &onValue) {
  Result<HostPorts::Placed> placed = place(function, inputs, symbols);
  if (!placed)
    return placed.status();
  return traceSteps(function, symbols, placed->inputs, placed->outputs, onValue);
}

} // namespace gpt2c::rt::cuda
