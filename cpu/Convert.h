// The same element types and tensors in IR and plan.
#pragma once

#include "ir/Tensor.h"
#include "runtime/device/HostTensor.h"

namespace gpt2c {

DType fromPlan(plan::DType t);
plan::DType toPlan(DType t);

/// Copies.
Tensor toTensor(const rt::HostTensor &t);
rt::HostTensor toHost(const Tensor &t);

} // namespace gpt2c
