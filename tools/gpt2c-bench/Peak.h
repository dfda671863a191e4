// What the device can do at most, measured on it.
#pragma once

#include "runtime/session/Session.h"

namespace gpt2c {

struct Peak {
  double bytesPerSecond = 0; ///< reading memory
  double flopsPerSecond = 0; ///< in the precision of the plan; 0: could not be measured
  /// For people: how it was measured, or why not.
  std::string note;
};

/// On a GPU by kernels that are compiled with NVRTC; where there is none, bandwidth by copies. On
/// the CPU by summing an array with all threads and by a matrix product of the BLAS.
rt::Result<Peak> measurePeak(const rt::Backend &backend, const std::string &precision);

} // namespace gpt2c
