// The results of a run as Markdown, CSV or JSON.
#pragma once

#include "tools/gpt2c-bench/Profile.h"

namespace gpt2c {

enum class Format { Markdown, Csv, Json };

struct Results {
  std::string plan, precision, device;
  int repetitions = 0;
  double loadSeconds = 0; ///< opening and verifying the plan, the device, code and weights
  uint64_t deviceBytes = 0;
  Peak peak;
  std::vector<Row> rows;
  std::vector<Profile> profiles; ///< empty unless asked for
};

void print(const Results &results, Format format, std::ostream &os);

} // namespace gpt2c
