#include "cpu/Convert.h"

#include "ir/ops/AppendAttention.h"
#include "runtime/plan/KvLayout.h"

#include <cstring>
#include <iterator>

namespace gpt2c {

// The enumerators of both sides are in one order.
#define DTYPE(Name, ...) static_assert(int(DType::Name) == int(plan::DType::Name));
#include "ir/DTypes.def"
/// Whether rows of a KV state have the same bytes on both sides.
static constexpr bool statesAgree() {
  for (size_t t = 0; t < std::size(dtypeInfos); ++t)
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
