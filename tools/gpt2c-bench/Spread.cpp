#include "tools/gpt2c-bench/Spread.h"

#include "tools/gpt2c-bench/Measure.h"

#include <algorithm>
#include <numeric>

namespace gpt2c {

Spread spreadOf(const std::vector<double> &samples) {
  if (samples.empty())
    return {};
  const Quantiles q = quantiles(samples);
  return {std::accumulate(samples.begin(), samples.end(), 0.0) / double(samples.size()), q.median,
          q.p90, q.p99, *std::ranges::max_element(samples)};
}

double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

Sheet sheetOf(const std::vector<NamedSpread> &measures) {
  Sheet sheet{{"measure", ">mean", ">p50", ">p90", ">p99", ">max"}, {}};
  for (const NamedSpread &m : measures) {
    sheet.rows.push_back({m.name});
    for (double v : {m.spread.mean, m.spread.median, m.spread.p90, m.spread.p99, m.spread.largest})
      sheet.rows.back().push_back(fixed(v, m.digits));
  }
  return sheet;
}

void writeCsv(const std::vector<NamedSpread> &measures, const Totals &totals, std::ostream &os) {
  sheetOf(measures).csv(os);
  os << "\n";
  Sheet sheet{{}, {{}}};
  for (auto [key, value] : totals) {
    sheet.titles.push_back(key);
    sheet.rows[0].push_back(numberText(value));
  }
  sheet.csv(os);
}

void addTo(Json &object, const Totals &totals, const std::vector<NamedSpread> &measures) {
  for (auto [key, value] : totals)
    object[key] = value;
  for (const NamedSpread &m : measures)
    object[m.key] = Json{{"mean", m.spread.mean},
                         {"p50", m.spread.median},
                         {"p90", m.spread.p90},
                         {"p99", m.spread.p99},
                         {"max", m.spread.largest}};
}

} // namespace gpt2c
