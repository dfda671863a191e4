#include "passes/quantize/InputProducts.h"

#include "ir/ops/Blas.h"

#include <algorithm>

namespace gpt2c {

InputProducts::InputProducts(int64_t channels, int64_t most) : channels_(channels) {
  constexpr int64_t unit = 128, partRows = 512;
  const int64_t count = std::max<int64_t>(1, (channels + most - 1) / most);
  width_ = count == 1 ? channels : ((channels + count - 1) / count + unit - 1) / unit * unit;
  for (int64_t first = 0; first < channels; first += width_) {
    const int64_t width = std::min(width_, channels - first);
    for (int64_t row = 0; row < width; row += partRows)
      parts_.push_back({int64_t(sums_.size()), row, std::min(width, row + partRows)});
    sums_.emplace_back(size_t(width * width));
  }
}

InputProducts::Block InputProducts::block(int64_t b) const {
  return {b * width_, std::min(channels_, (b + 1) * width_)};
}

float InputProducts::diagonal(int64_t column) const {
  const Block in = block(column / width_);
  return sums(column / width_)[(column - in.first) * (in.width() + 1)];
}

void InputProducts::add(int64_t part, const float *x, int64_t count) {
  const Part &p = parts_[size_t(part)];
  const Block in = block(p.block);
  const float *from = x + in.first;
  float *to = sums_[size_t(p.block)].data() + p.first * in.width();
  addTransposedProduct({from + p.first, channels_}, {from, channels_}, {to, in.width()},
                       p.end - p.first, p.end, count);
}

} // namespace gpt2c
