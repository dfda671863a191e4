// Rows of which every third is greedy and the others are drawn by temperature, for kernels that
// choose where they compute logits.
#pragma once

#include "Suite.h"

#include "runtime/sampling/SampledChoice.h"

#include <vector>

namespace gpt2c::kernels {

struct DrawnRows {
  DrawnRows(Run &run, int rows);
  /// What the host chooses.
  int choice(int row, const std::vector<double> &logits, int greedy) const;

  std::vector<rt::SampleRow> how;
  Tensor tensor;
};

} // namespace gpt2c::kernels
