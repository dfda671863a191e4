#include "ir/ops/StateRows.h"

#include "ir/ops/AppendAttention.h"
#include "ir/ops/Quantize.h"

#include <array>
#include <cstring>

namespace gpt2c {

StateRows::StateRows(DType dtype, int64_t tokens, int64_t row)
    : dtype_(dtype), tokens_(tokens), scaleBytes_(kvScaleBytes(dtype)), d_(row - scaleBytes_) {}

template <typename T>
void StateRows::write(char *block, int64_t position, const Tensor &from, int64_t at) const {
  const Tensor row(from.dtype(), {d_},
                   static_cast<const char *>(from.raw()) + at * byteSize(from.dtype()), nullptr);
  char *to = block + position * d_ * byteSize(dtype_);
  if (scaleBytes_ == 0) {
    std::memcpy(to, row.cast(dtype_).raw(), d_ * byteSize(dtype_));
    return;
  }
  const Tensor wide = row.cast(DTypeOf<T>::value);
  float scale = 0;
  if (dtype_ == DType::I8)
    quantiseRows(wide.template data<T>(), 1, d_, 0, reinterpret_cast<int8_t *>(to), &scale);
  else
    quantiseRows(wide.template data<T>(), 1, d_, 0, reinterpret_cast<Fp8 *>(to), &scale);
  std::memcpy(block + tokens_ * d_ + position * scaleBytes_, &scale, sizeof(scale));
}

/// What each byte of a format is, in steps of its scale.
static const std::array<float, 256> &stepsOfBytes(DType dtype) {
  auto table = [](auto number) {
    std::array<float, 256> of{};
    for (size_t i = 0; i < of.size(); ++i)
      of[i] = number(static_cast<uint8_t>(i));
    return of;
  };
  static const auto integers =
      table([](uint8_t byte) { return static_cast<float>(static_cast<int8_t>(byte)); });
  static const auto floats = table([](uint8_t byte) { return fp8ToFloat(byte); });
  return dtype == DType::I8 ? integers : floats;
}

template <typename T> const T *StateRows::read(const char *block, int64_t count, T *room) const {
  if (dtype_ == DTypeOf<T>::value)
    return reinterpret_cast<const T *>(block);
  if (dtype_ == DType::F16) {
    for (int64_t i = 0; i < count * d_; ++i)
      room[i] = halfToFloat(reinterpret_cast<const uint16_t *>(block)[i]);
  } else if (scaleBytes_ > 0) {
    const std::array<float, 256> &steps = stepsOfBytes(dtype_);
    for (int64_t r = 0; r < count; ++r) {
      float scale = 0;
      std::memcpy(&scale, block + tokens_ * d_ + r * scaleBytes_, sizeof(scale));
      for (int64_t i = r * d_; i < (r + 1) * d_; ++i)
        room[i] = T(steps[static_cast<uint8_t>(block[i])]) * T(scale);
    }
  } else {
    const Tensor t(dtype_, {count * d_}, block, nullptr);
    for (int64_t i = 0; i < count * d_; ++i)
      room[i] = static_cast<T>(t.asDouble(i));
  }
  return room;
}

STATE_ROWS(template, float)
STATE_ROWS(template, double)

} // namespace gpt2c
