// sample: the choices of the host's chooseToken(), each of them.
#include "templates/sample/Sample.h"

#include "runtime/sampling/SampledChoice.h"
#include "tests/suite/kernels/Suite.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace gpt2c::kernels {
namespace sample_test {
namespace sample_test {

constexpr double inf = std::numeric_limits<double>::infinity();

struct Kind {
  const char *name;
  rt::SampleRow how; ///< of all rows; seeds and positions differ
  bool adjusts = false;
  bool masked = false; ///< most rows have a mask, of many tokens or of few; else some
};

std::vector<Kind> kinds(int vocabulary) {
  using Row = rt::SampleRow;
  constexpr auto sampled = Row::Sampled;
  const float tenth = std::log(0.1F);
  std::vector<Kind> all = {
      {"temperature", {.mode = sampled}},
      {"cold", {.inverseTemperature = 1 / 0.3, .mode = sampled}},
      {"hot", {.inverseTemperature = 1 / 50.0, .mode = sampled}},
      {"frozen", {.inverseTemperature = 1e30, .mode = sampled}},
      {"top-k 1", {.topK = 1, .mode = sampled}},
      {"top-k 50, top-p 0.9",
       {.inverseTemperature = 1 / 0.8, .topP = 0.9, .topK = 50, .mode = sampled}},
      {"top-k 5, min-p", {.logMinP = tenth, .topK = 5, .mode = sampled}},
      {"top-k 40", {.inverseTemperature = 1 / 0.8, .topK = 40, .mode = sampled}},
      {"top-k of nearly all", {.topK = vocabulary - 1, .mode = sampled}},
      {"top-p 0.9", {.topP = 0.9, .mode = sampled}},
      {"top-p of nearly all", {.topP = 0.999999, .mode = sampled}},
      {"top-p of nearly none", {.topP = 1e-9, .mode = sampled}},
      {"hot top-p", {.inverseTemperature = 0.05, .topP = 0.7, .mode = sampled}},
      {"min-p", {.logMinP = tenth, .mode = sampled}},
      {"all three",
       {.inverseTemperature = 1 / 1.3,
        .topP = 0.8,
        .logMinP = 2 * tenth,
        .topK = 30,
        .mode = sampled}},
      {"penalties", {.repetition = 1.3, .frequency = 0.4, .presence = 0.6, .mode = sampled}, true},
      {"penalties, top-k and top-p",
       {.topP = 0.9, .repetition = 0.8, .presence = -1, .topK = 50, .mode = sampled},
       true},
      {"largest", {.repetition = 1.7, .frequency = 1, .mode = Row::Largest}, true},
      {"largest, reported", {.mode = Row::Largest, .report = 5}},
      {"temperature, reported", {.mode = sampled, .report = 0}},
      {"penalties and top-k, reported",
       {.repetition = 1.4,
        .frequency = 0.3,
        .topK = 40,
        .mode = sampled,
        .report = rt::mostReported},
       true},
      {"largest, masked", {.mode = Row::Largest}, false, true},
      {"temperature, masked", {.inverseTemperature = 1 / 1.2, .mode = sampled}, false, true},
      {"top-k 40, masked", {.topK = 40, .mode = sampled}, false, true},
      {"all and penalties, masked, reported",
       {.inverseTemperature = 1 / 0.7,
        .topP = 0.95,
        .repetition = 1.2,
        .presence = 0.3,
        .logMinP = 3 * tenth,
        .topK = 60,
        .mode = sampled,
        .report = 3},
       true,
       true}};
  for (Kind &k : all)
    if (k.how.logMinP == 0)
      k.how.logMinP = 1;
  return all;
}

/// Rows of many forms: random ones of several spreads, with ties, and what has no choice.
std::vector<double> rowsOf(Run &run, int rows, int n) {
  std::vector<double> v;
  for (int r = 0; r < rows; ++r) {
    const double spread = r % 4 == 0 ? 3 : r % 4 == 1 ? 0.2 : r % 4 == 2 ? 12 : 4;
    std::vector<double> row = run.normal((size_t)n, spread);
    for (double &x : row)
      x = r % 4 == 3 ? std::round(x) : float(x - (r % 3 == 0 ? 100 : 0)); // ties, or a shift
    switch (r) {
    case 5:
      std::fill(row.begin(), row.end(), -7.5);
      break;
    case 6:
      row[(size_t)n / 2] = NAN;
      break;
    case 7:
      std::fill(row.begin(), row.end(), -inf);
      break;
    case 8:
      row[(size_t)n - 1] = inf;
      break;
    case 9: // a few among nothing; -0 equals 0
      std::fill(row.begin(), row.end(), -inf);
      row[(size_t)n / 3] = 0.0;
      row[(size_t)n - 1] = -0.0;
      row[0] = -1;
      break;
    default:
      break;
    }
    v.insert(v.end(), row.begin(), row.end());
  }
  return v;
}

std::vector<rt::Adjustment> adjustmentsOf(Run &run, int n) {
  std::vector<rt::Adjustment> all;
  const int step = std::max(1, n / 500);
  for (int id = run.integers(1, 0, step - 1)[0]; id < n; id += step) {
    const int kind = run.integers(1, 0, 9)[0];
    all.push_back({id, kind < 3 ? kind - 1 : kind, kind < 2 ? kind - 0.75 : 0});
  }
  all.push_back({}); // nothing
  return all;
}

/// A bit for each token: all but few, few, one or none.
std::vector<uint32_t> maskOf(Run &run, int n, int row) {
  std::vector<uint32_t> mask(size_t(n + 31) / 32, row % 4 == 0 ? ~uint32_t{0} : 0);
  auto flip = [&](int id) { mask[size_t(id) / 32] ^= 1U << (id % 32); };
  const int flips = row % 4 == 0 ? n / 3 : row % 4 == 1 ? 40 : row % 4 == 2 ? 1 : 0;
  for (const int id : run.integers(size_t(flips), 0, n - 1))
    flip(id);
  return mask;
}

std::vector<int> wordsOf(const void *from, size_t bytes) {
  std::vector<int> words(bytes / sizeof(int));
  std::memcpy(words.data(), from, bytes);
  return words;
}

/// Tokens are those of the host; log probabilities differ by the rounding of sums, and of
/// exponentials in single precision.
void expectReports(Run &run, Tensor &reports, const std::vector<rt::LogprobReport> &want,
                   const std::vector<rt::SampleRow> &how, const std::vector<int> &choices) {
  const std::vector<int> words = run.readIntegers(reports);
  std::vector<int> ids, wantIds;
  double worst = 0;
  for (size_t r = 0; r < want.size(); ++r) {
    if (how[r].report < 0 || choices[r] < 0)
      continue;
    rt::LogprobReport got;
    std::memcpy(static_cast<void *>(&got), words.data() + r * sizeof(got) / sizeof(int),
                sizeof(got));
    ids.push_back(got.count), wantIds.push_back(want[r].count);
    auto compare = [&](double a, double b) { // infinity is no number to subtract
      if (!(a == b) && !(std::isnan(a) && std::isnan(b)))
        worst = std::isfinite(a) && std::isfinite(b) ? std::max(worst, std::abs(a - b)) : inf;
    };
    compare(got.logprob, want[r].logprob);
    for (int i = 0; i < want[r].count; ++i) {
      ids.push_back(got.best[i].token), wantIds.push_back(want[r].best[i].token);
      compare(got.best[i].logprob, want[r].best[i].logprob);
    }
  }
  run.expectEqual(ids, wantIds, "tokens of reports");
  const int near[] = {worst < 2e-6}, yes[] = {1};
  run.expectEqual(near, yes, "log probabilities of reports");
}

constexpr int rows = 48;

void addCase(Suite &suite, int id, const SampleConfig &c, const Kind &kind) {
  auto body = [=](Run &run) {
    const int n = (int)c.vocabulary;
    Tensor logits = run.input(rowsOf(run, rows, n), Scalar::F32);
    std::vector<rt::SampleRow> how;
    std::vector<rt::Adjustment> adjustments;
    std::vector<int> greedy, want;
    std::vector<rt::LogprobReport> reported;
    std::vector<uint32_t> masks(rows);
    for (int r = 0; r < rows; ++r) {
      rt::SampleRow h = kind.how;
      h.seed = 0x9e3779b97f4a7c15ULL * (uint64_t)(r + 1);
      h.position = r < 3 ? (int64_t{1} << 33) + r : 17 * r;
      if (r % 11 == 10)
        h.mode = rt::SampleRow::Given, h.report = -1;
      greedy.push_back(r * 3 % n);
      std::vector<rt::Adjustment> own;
      if (kind.adjusts)
        own = adjustmentsOf(run, n);
      h.firstAdjustment = (int32_t)adjustments.size();
      h.adjustments = (int32_t)own.size();
      adjustments.insert(adjustments.end(), own.begin(), own.end());
      how.push_back(h);
      std::vector<float> row(logits.values.begin() + (size_t)r * n,
                             logits.values.begin() + (size_t)(r + 1) * n);
      std::vector<uint32_t> mask;
      if ((kind.masked ? r % 7 != 3 : r % 6 == 2) && h.mode != rt::SampleRow::Given) {
        mask = maskOf(run, n, r);
        masks[size_t(r)] = uint32_t(masks.size());
        masks.insert(masks.end(), mask.begin(), mask.end());
      }
      want.push_back(run.isDry() ? 0 : rt::chooseToken(h, own, row, greedy.back(), mask));
      const bool reports = !run.isDry() && h.report >= 0 && want.back() >= 0;
      reported.push_back(reports ? rt::reportOf(h, row, want.back()) : rt::LogprobReport());
    }
    adjustments.push_back({});
    Tensor greedyTensor = run.integerInput(greedy),
           next = run.integerInput(std::vector<int>(rows, -9)),
           rowsTensor = run.integerInput(wordsOf(how.data(), how.size() * sizeof(how[0]))),
           masksTensor = run.integerInput(wordsOf(masks.data(), masks.size() * sizeof(masks[0]))),
           reports = run.integerInput(std::vector<int>(rows * sizeof(reported[0]) / sizeof(int))),
           adjustmentsTensor = run.integerInput(
               wordsOf(adjustments.data(), adjustments.size() * sizeof(adjustments[0])));
    run.launch(id, gridOf(c, rt::constantExpr(rows)),
               {{"logits", &logits},
                {"greedy", &greedyTensor},
                {"rows", &rowsTensor},
                {"masks", &masksTensor},
                {"adjustments", &adjustmentsTensor},
                {"next", &next},
                {"reports", &reports}});
    run.expectEqual(run.readIntegers(next), want, "next");
    if (!run.isDry())
      expectReports(run, reports, reported, how, want);
  };
  suite.test("sample/n " + std::to_string(c.vocabulary) + " blocks " + std::to_string(c.blocks) +
                 (c.held ? " held" : "") + (c.rehearsed ? " rehearsed" : "") + " " + kind.name,
             body, c.blocks > 1);
}

void addCases(Suite &suite) {
  auto add = [&](const SampleConfig &c) {
    const int id = suite.kernel("sample", [&](llvm::StringRef name) { return sample(name, c); });
    for (const Kind &kind : kinds((int)c.vocabulary))
      addCase(suite, id, c, kind);
  };
  // One block a row or a cluster, with its logits in shared memory or without.
  for (int64_t vocabulary : {257, 50257, 152064}) {
    Target hopper, others;
    hopper.features = {Feature::Clusters};
    hopper.sharedBytes = wholeShared;
    SampleConfig c = sampleConfig(vocabulary, hopper);
    add(c);
    c.rehearsed = rows;
    add(c);
    add(spreadSampleConfig(vocabulary, hopper));
    if (vocabulary > 257)
      add(sampleConfig(vocabulary, others));
  }
}

const Cases cases(addCases);
} // namespace sample_test
} // namespace sample_test

} // namespace gpt2c::kernels
