#include "cpu/Convert.h"

#include "ir/ops/AppendAttention.h"
#include "runtime/plan/KvLayout.h"

#include <cstring>

namespace gpt2c {

// The enumerators of both sides are in one order.
static_assert(int(DType::F32) == int(plan::DType::F32) &&
              int(DType::F16) == int(plan::DType::F16) &&
              int(DType::BF16) == int(plan::DType::BF16) &&
              int(DType::F64) == int(plan::DType::F64) && int(DType::I8) == int(plan::DType::I8) &&
              int(DType::U8) == int(plan::DType::U8) && int(DType::I32) == int(plan::DType::I32) &&
              int(DType::I64) == int(plan::DType::I64) &&
              int(DType::Bool) == int(plan::DType::Bool));
/// Whether rows of a KV state have the same bytes on both sides.
static constexpr bool statesAgree() {
  for (int t = 0; t <= int(DType::Bool); ++t)
    if (kvScaleBytes(DType(t)) != rt::kvScaleBytes(plan::DType(t)))
      return false;
  return true;
}
static_assert(statesAgree());

DType fromPlan(plan::DType t) { return static_cast<DType>(t); }
plan::DType toPlan(DType t) { return static_cast<plan::DType>(t); }

Tensor toTensor(const rt::HostTensor &t) {
  Tensor out(fromPlan(t.dtype), t.shape);
  std::memcpy(out.raw(), t.data.data(), t.data.size());
  return out;
}

rt::HostTensor toHost(const Tensor &t) {
  rt::HostTensor out(toPlan(t.dtype()), {t.shape().begin(), t.shape().end()});
  std::memcpy(out.data.data(), t.raw(), out.data.size());
  return out;
}

} // namespace gpt2c
