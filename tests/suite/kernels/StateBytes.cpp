#include "StateBytes.h"

#include <cstring>

namespace gpt2c::kernels {

static EncodedRow encoded(Scalar type, double *values, size_t d) {
  const std::vector<float> row(values, values + d);
  EncodedRow out = encodeRow(rowFormat(type), row);
  for (size_t i = 0; i < d; ++i) // in double: a step times its scale need not be a float
    values[i] = out.elements.asDouble(int64_t(i)) * double(out.scales[0]);
  return out;
}

void roundRow(Scalar type, double *values, int d) { encoded(type, values, size_t(d)); }

StateBytes::StateBytes(Scalar type, int tokens, int d, std::vector<double> &values)
    : type_(type), tokens_(tokens), d_(d), words_(values.size() / d_ * (d_ + 4) / 4) {
  for (size_t row = 0; row < values.size() / d_; ++row)
    set(row, values.data() + row * d_);
}

void StateBytes::set(size_t row, double *values) {
  const EncodedRow bytes = encoded(type_, values, d_);
  char *block = reinterpret_cast<char *>(words_.data()) + row / tokens_ * tokens_ * (d_ + 4);
  std::memcpy(block + row % tokens_ * d_, bytes.elements.raw(), d_);
  std::memcpy(block + tokens_ * d_ + row % tokens_ * 4, bytes.scales.data(), 4);
}

} // namespace gpt2c::kernels
