// Dense row-major tensors on the host, as they go into and come out of a plan.
#pragma once

#include "plan_generated.h"
#include "runtime/Status.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace gpt2c::rt {

struct HostTensor {
  plan::DType dtype = plan::DType::F32;
  std::vector<int64_t> shape;
  std::vector<std::byte> data;

  HostTensor() = default;
  /// Zeros.
  HostTensor(plan::DType dtype, std::vector<int64_t> shape);

  int64_t count() const;
  /// T must have the element size of `dtype`; F16 and BF16 are uint16_t bits.
  template <typename T> std::span<T> values() {
    return {reinterpret_cast<T *>(data.data()), data.size() / sizeof(T)};
  }
  template <typename T> std::span<const T> values() const {
    return {reinterpret_cast<const T *>(data.data()), data.size() / sizeof(T)};
  }
};

/// IEEE binary16, round to nearest even; overflow becomes infinity, NaN stays NaN.
float halfToFloat(uint16_t bits);
uint16_t floatToHalf(float value);

/// The same values with another element type. An integer that does not fit is an error
/// (Code::Usage); a float becomes an integer by truncation toward zero.
Result<HostTensor> convert(HostTensor tensor, plan::DType to);

/// "f32[2, 8, 64]".
std::string describe(plan::DType dtype, std::span<const int64_t> shape);

} // namespace gpt2c::rt
