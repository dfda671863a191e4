// How samples of a measure spread, and tables of such.
#pragma once

#include "tools/gpt2c-bench/Sheet.h"
#include "tools/runtime-common/Json.h"

namespace gpt2c {

struct Spread {
  double mean = 0, median = 0, p90 = 0, p99 = 0, largest = 0;
};
Spread spreadOf(const std::vector<double> &samples); ///< zeros of none

struct NamedSpread {
  const char *name, *key; ///< in a table, and in JSON
  const Spread &spread;
  int digits; ///< behind the point
};
/// What there is one number of.
using Totals = std::vector<std::pair<const char *, double>>;

/// 0 of nothing.
double share(double part, double whole);

Sheet sheetOf(const std::vector<NamedSpread> &measures);
/// The table, an empty line, and the totals as one row.
void writeCsv(const std::vector<NamedSpread> &measures, const Totals &totals, std::ostream &os);
void addTo(Json &object, const Totals &totals, const std::vector<NamedSpread> &measures);

} // namespace gpt2c
