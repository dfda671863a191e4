#include "verify/Compare.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace gpt2c {

namespace {

struct Row {
  double difference = 0; // squared norm
  double norm = 0;       // squared norm of what is expected
  double deviation = 0;  // the same without its mean
  int64_t worst = -1;    // element with the largest difference
  bool lost = false;
};

constexpr double infinity = std::numeric_limits<double>::infinity();

Row compareRow(llvm::ArrayRef<double> got, llvm::ArrayRef<double> expected, int64_t &finite) {
  Row row;
  double sum = 0, largest = 0;
  int64_t counted = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    double g = got[i], e = expected[i];
    if (g == e || (std::isnan(g) && std::isnan(e))) {
      if (!std::isfinite(e))
        continue;
    } else if (!std::isfinite(g) || !std::isfinite(e)) {
      if (!row.lost)
        row.worst = int64_t(i);
      row.lost = true;
      continue;
    }
    double d = std::fabs(g - e);
    row.difference += d * d;
    row.norm += e * e;
    sum += e;
    ++counted;
    if (d > largest && !row.lost) {
      largest = d;
      row.worst = int64_t(i);
    }
  }
  finite += counted;
  row.deviation = counted ? std::max(0.0, row.norm - sum * sum / double(counted)) : 0;
  return row;
}

struct Rows {
  std::vector<Row> rows;
  std::vector<double> errors;
  int64_t finite = 0;
};

Rows compareAll(const Tensor &got, const Tensor &expected, RowScale rowScale) {
  assert(got.count() == expected.count() && "shapes are equal");
  Rows out;
  const int64_t count = expected.count();
  if (count == 0)
    return out;
  const int64_t width = expected.rank() ? expected.dim(-1) : 1, rows = count / width;
  std::vector<double> g(width), e(width);
  double norms = 0;
  for (int64_t r = 0; r < rows; ++r) {
    got.load(r * width, g);
    expected.load(r * width, e);
    out.rows.push_back(compareRow(g, e, out.finite));
    norms += out.rows.back().norm;
  }
  for (const Row &row : out.rows) {
    double own = rowScale == RowScale::Logits ? row.deviation : row.norm;
    double scale = std::max({own, row.norm * 1e-4, norms / double(rows) * 1e-6});
    out.errors.push_back(row.lost              ? infinity
                         : row.difference == 0 ? 0
                         : scale == 0          ? infinity
                                               : std::sqrt(row.difference / scale));
  }
  return out;
}

/// What the export's own rounding explains of each row (Compare.h).
struct Explained {
  std::vector<double> rows;
  std::vector<bool> overflows; ///< in a sample
};

Explained explainedBy(llvm::ArrayRef<Tensor> rounded, const Tensor &expected, RowScale scale) {
  Explained out;
  double squares = 0;
  size_t count = 0;
  for (const Tensor &sample : rounded) {
    const std::vector<double> errors = compareAll(sample, expected, scale).errors;
    out.rows.resize(errors.size());
    out.overflows.resize(errors.size());
    count += errors.size();
    for (auto [r, d] : llvm::enumerate(errors)) {
      if (!std::isfinite(d)) {
        out.overflows[r] = true;
        continue;
      }
      squares += d * d;
      out.rows[r] = std::max(out.rows[r], d);
    }
  }
  const double typical = count ? std::sqrt(squares / double(count)) : 0;
  for (double &d : out.rows)
    d = std::max(2 * d, 4 * typical);
  return out;
}

} // namespace

std::vector<double> rowErrors(const Tensor &got, const Tensor &expected, RowScale scale) {
  return compareAll(got, expected, scale).errors;
}

Difference compareRows(const Tensor &got, const Tensor &expected, RowScale scale,
                       llvm::ArrayRef<Tensor> rounded) {
  const Rows all = compareAll(got, expected, scale);
  Explained explained{std::vector<double>(all.rows.size(), 0),
                      std::vector<bool>(all.rows.size(), false)};
  if (llvm::all_of(rounded, [&](auto &sample) { return sample.count() == expected.count(); }) &&
      !rounded.empty())
    explained = explainedBy(rounded, expected, scale);
  Difference out;
  out.finite = all.finite;
  const int64_t width = expected.rank() ? expected.dim(-1) : 1;
  for (size_t r = 0; r < all.rows.size(); ++r) {
    if (all.rows[r].lost && explained.overflows[r]) {
      ++out.overflows;
      continue;
    }
    out.lost |= all.rows[r].lost;
    out.relative = std::max(out.relative, all.errors[r]);
    out.mostExplained = std::max(out.mostExplained, explained.rows[r]);
    if (const double beyond = all.errors[r] - explained.rows[r]; beyond > out.beyond) {
      out.beyond = beyond;
      out.explained = explained.rows[r];
      out.at = int64_t(r) * width + all.rows[r].worst;
    }
  }
  if (out.at >= 0) {
    out.got = got.asDouble(out.at);
    out.expected = expected.asDouble(out.at);
  }
  return out;
}

std::string threeDigits(double v) {
  std::string out;
  llvm::raw_string_ostream(out) << llvm::format("%.3g", v);
  return out;
}

std::string describeElement(llvm::StringRef name, llvm::ArrayRef<int64_t> shape,
                            const Difference &difference) {
  llvm::SmallVector<int64_t> index(difference.at >= 0 ? shape.size() : 0);
  int64_t rest = difference.at;
  for (size_t axis = index.size(); axis-- > 0; rest /= shape[axis])
    index[axis] = rest % shape[axis];
  std::string out;
  llvm::raw_string_ostream stream(out);
  stream << name << '[';
  llvm::interleaveComma(index, stream);
  stream << "]: " << threeDigits(difference.got) << " instead of "
         << threeDigits(difference.expected);
  return out;
}

} // namespace gpt2c
