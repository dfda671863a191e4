#include "runtime/cuda/HostPorts.h"

#include "runtime/device/FunctionCall.h"

namespace gpt2c::rt::cuda {

Result<HostPorts::Placed> HostPorts::place(const plan::FunctionT &function,
                                           std::span<const HostTensor> inputs,
                                           std::span<const int64_t> symbols, CUdeviceptr kv) {
  constexpr uint64_t alignment = 256;
  uint64_t total = 0;
  auto offset = [&](const HostTensor &tensor) {
    uint64_t at = total;
    total += (tensor.data.size() + alignment - 1) / alignment * alignment;
    return at;
  };
  Placed p; // offsets at first
  for (const HostTensor &tensor : inputs)
    p.inputs.push_back(offset(tensor));
  for (const auto &port : function.outputs) {
    p.results.emplace_back();
    if (port->role != plan::Role::KvState) {
      Result<std::vector<int64_t>> shape = portShape(*port, symbols);
      if (!shape)
        return shape.status();
      p.results.back() = HostTensor(port->dtype, shape.take());
    }
    p.outputs.push_back(offset(p.results.back()));
  }
  if (total > memory_.bytes()) {
    memory_ = DeviceMemory();
    Result<DeviceMemory> memory =
        device_->allocate(total, "the inputs and outputs of @" + function.name);
    if (!memory)
      return memory.status();
    memory_ = memory.take();
  }
  for (size_t i = 0; i < p.inputs.size(); ++i) {
    bool state = function.inputs[i]->role == plan::Role::KvState;
    p.inputs[i] = state ? kv : memory_.address() + p.inputs[i];
    if (!state)
      if (Status s = device_->upload(p.inputs[i], inputs[i].data.data(), inputs[i].data.size());
          !s.ok())
        return s;
  }
  for (size_t i = 0; i < p.outputs.size(); ++i)
    p.outputs[i] =
        function.outputs[i]->role == plan::Role::KvState ? kv : memory_.address() + p.outputs[i];
  return p;
}

Status HostPorts::fetch(Placed &placed) const {
  for (size_t i = 0; i < placed.results.size(); ++i) {
    std::vector<std::byte> &to = placed.results[i].data;
    if (Status s = device_->download(to.data(), placed.outputs[i], to.size()); !s.ok())
      return s;
  }
  return {};
}

} // namespace gpt2c::rt::cuda
