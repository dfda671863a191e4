#include "DrawnRows.h"

#include <cstring>

namespace gpt2c::kernels {

DrawnRows::DrawnRows(Run &run, int rows) {
  for (int r = 0; r < rows; ++r) {
    rt::SampleRow row;
    row.mode = r % 3 == 2 ? rt::SampleRow::Given : rt::SampleRow::Sampled;
    // Next to nothing is drawn, what differs is; or nearly all are as likely.
    row.inverseTemperature = r % 4 == 1 ? 1e30 : r % 4 == 3 ? 1e-3 : 1.25;
    row.logMinP = 1;
    row.seed = 0x9e3779b97f4a7c15ULL * uint64_t(r + 1);
    row.position = r < 3 ? (int64_t{1} << 33) + r : 17 * r;
    how.push_back(row);
  }
  std::vector<int> words(how.size() * sizeof(how[0]) / sizeof(int));
  std::memcpy(words.data(), how.data(), words.size() * sizeof(int));
  tensor = run.integerInput(words);
}

int DrawnRows::choice(int row, const std::vector<double> &logits, int greedy) const {
  return rt::chooseToken(how[size_t(row)], {}, std::vector<float>(logits.begin(), logits.end()),
                         greedy);
}

} // namespace gpt2c::kernels
