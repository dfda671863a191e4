// The results of a run as Markdown, CSV or JSON.
#pragma once

#include "tools/gpt2c-bench/Profile.h"
#include "tools/runtime-common/Json.h"

#include <ostream>

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

void writeMarkdown(const Results &results, std::ostream &os);
void writeCsv(const Results &results, std::ostream &os);
Json jsonOf(const Results &results);

/// Results of any kind that has the three functions above.
template <typename R> void print(const R &results, Format format, std::ostream &os) {
  switch (format) {
  case Format::Markdown:
    return writeMarkdown(results, os);
  case Format::Csv:
    return writeCsv(results, os);
  case Format::Json:
    os << pretty(jsonOf(results));
  }
}

} // namespace gpt2c
