// Which columns of a product's input go together.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gpt2c {

/// Sums of x_i x_j over rows of an input, for columns i and j of one block: what error feedback
/// needs to know of it. Blocks are of `width` columns, the last one of those that are left.
class InputProducts {
public:
  /// Of up to `most` columns a block; more than one block are of as many as the others, and
  /// multiples of 128, so that no group of weights lies in two.
  InputProducts(int64_t channels, int64_t most);

  struct Block {
    int64_t first, end;
    int64_t width() const { return end - first; }
  };
  int64_t channels() const { return channels_; }
  int64_t blocks() const { return int64_t(sums_.size()); }
  Block block(int64_t b) const;
  /// [width, width] of a block, of which the lower half counts: the sum of i and j is at
  /// max(i, j) width + min(i, j).
  const float *sums(int64_t b) const { return sums_[size_t(b)].data(); }
  float diagonal(int64_t column) const;

  /// Parts of the sums that threads may add to at a time.
  int64_t parts() const { return int64_t(parts_.size()); }
  /// Adds what `count` rows give to a part.
  void add(int64_t part, const float *x, int64_t count);

private:
  struct Part {
    int64_t block, first, end; // rows of the block's sums
  };
  int64_t channels_, width_;
  std::vector<std::vector<float>> sums_;
  std::vector<Part> parts_;
};

} // namespace gpt2c
