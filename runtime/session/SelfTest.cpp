#include "runtime/session/SelfTest.h"

#include "runtime/plan/Golden.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <thread>

namespace gpt2c::rt {
namespace {

/// Sequences of a batch on a GPU, where more of them cost little.
constexpr size_t kManySequences = 8;

std::string text(double x, const char *format = "%.3g") {
  char out[64];
  std::snprintf(out, sizeof out, format, x);
  return out;
}

std::string counted(size_t n, const char *what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

/// Golden prompts that run as one batch, by index.
using Group = std::vector<size_t>;

class SelfTest {
public:
  explicit SelfTest(Session &session)
      : session_(session), meta_(session.plan().meta()), golden_(*meta_.golden) {}

  Result<SelfTestReport> run();

private:
  /// A check while it runs.
  struct Finding {
    double error = 0;
    size_t rows = 0;
    std::string problem; ///< the first
    void fault(std::string what) {
      if (problem.empty())
        problem = std::move(what);
    }
  };

  void add(std::string what, SelfTestCheck::Outcome outcome, std::string detail) {
    report_.checks.push_back({std::move(what), outcome, std::move(detail)});
  }
  void add(std::string what, const Finding &finding, const std::string &passed) {
    const bool failed = !finding.problem.empty();
    add(std::move(what), failed ? SelfTestCheck::Fail : SelfTestCheck::Pass,
        failed ? finding.problem : passed);
  }
  std::string errors(const Finding &finding) const {
    return counted(finding.rows, "row") + " of logits, largest error " + text(finding.error) +
           " where " + text(golden_.tolerance) + " is allowed";
  }

  void checkWeights();
  Status checkAlone();
  Status checkBatch();
  Status checkGeneration();
  Status checkWhole();

  std::vector<Group> groups() const;
  size_t rowsOf(size_t prompt) const;
  std::string place(size_t prompt, size_t row) const;
  void compare(size_t prompt, size_t row, std::span<const float> logits, Finding &finding) const;
  Result<std::vector<float>> runRows(const Group &group, Finding &finding);
  Status generate(const Group &group, Finding &finding);

  Session &session_;
  const plan::PlanT &meta_;
  const plan::GoldenT &golden_;
  SelfTestReport report_;
};

//===-- weights -----------------------------------------------------------------------------===//

void SelfTest::checkWeights() {
  // Each range of bytes once, the largest first, by several threads.
  std::map<uint64_t, size_t> byOffset;
  for (size_t i = 0; i < meta_.weights.size(); ++i)
    byOffset.try_emplace(meta_.weights[i]->offset, i);
  Finding finding;
  uint64_t bytes = 0;
  std::vector<size_t> ofPlan;
  auto differs = [&](size_t i, std::span<const std::byte> content) {
    return hashBytes(content) != meta_.weights[i]->hash;
  };
  auto fault = [&](size_t i, const char *where) {
    finding.fault("the bytes of weight '" + meta_.weights[i]->name + "' in " + where +
                  " are not those that were compiled");
  };
  for (auto [offset, i] : byOffset) {
    bytes += meta_.weights[i]->bytes;
    if (Result<std::vector<std::byte>> held = session_.backend().readWeight(i); !held)
      ofPlan.push_back(i);
    else if (differs(i, *held))
      fault(i, "the memory of the device");
  }
  const unsigned threads = std::clamp(std::thread::hardware_concurrency(), 1u, 4u);
  std::vector<char> wrong(ofPlan.size());
  std::vector<std::thread> workers;
  for (unsigned t = 0; t < threads; ++t)
    workers.emplace_back([&, t] {
      for (size_t k = t; k < ofPlan.size(); k += threads)
        wrong[k] = differs(ofPlan[k], session_.plan().weight(ofPlan[k]));
    });
  for (std::thread &worker : workers)
    worker.join();
  for (size_t k = 0; k < ofPlan.size(); ++k)
    if (wrong[k])
      fault(ofPlan[k], "the plan");
  add("weights", finding,
      counted(byOffset.size(), "tensor") + ", " + text(double(bytes) / (1 << 20), "%.1f") + " MiB");
}

//===-- golden rows -------------------------------------------------------------------------===//

std::string SelfTest::place(size_t prompt, size_t row) const {
  const size_t tokens = golden_.prompts[prompt]->ids.size();
  return "golden prompt " + std::to_string(prompt) + ", behind " + counted(tokens + row, "token");
}

void SelfTest::compare(size_t prompt, size_t row, std::span<const float> logits,
                       Finding &finding) const {
  GoldenDifference d =
      compareGolden(*golden_.prompts[prompt]->rows[row], logits, golden_.tolerance);
  finding.error = std::max(finding.error, d.error);
  ++finding.rows;
  if (!d.problem.empty())
    finding.fault(place(prompt, row) + ": " + d.problem);
}

size_t SelfTest::rowsOf(size_t prompt) const { return golden_.prompts[prompt]->rows.size(); }

/// Prefills the prompts and appends the golden tokens one by one. Returns all logits.
Result<std::vector<float>> SelfTest::runRows(const Group &group, Finding &finding) {
  std::vector<Tokens> prompts;
  for (size_t prompt : group)
    prompts.push_back(golden_.prompts[prompt]->ids);
  std::vector<float> all;
  for (size_t row = 0; row < rowsOf(group[0]); ++row) {
    Tokens tokens;
    for (size_t prompt : group)
      if (row > 0)
        tokens.push_back(golden_.prompts[prompt]->rows[row - 1]->top_ids.front());
    Result<StepOutput> step =
        row == 0 ? session_.prefill(prompts, {}, true) : session_.step(tokens, true);
    if (!step)
      return step.status();
    const size_t width = step->logits.size() / group.size();
    for (size_t b = 0; b < group.size(); ++b) {
      const plan::GoldenRowT &golden = *golden_.prompts[group[b]]->rows[row];
      compare(group[b], row, std::span(step->logits).subspan(b * width, width), finding);
      if (!mayFollow(golden, step->next[b], golden_.tolerance))
        finding.fault(place(group[b], row) + ": the next token is " +
                      std::to_string(step->next[b]) + " instead of " +
                      std::to_string(golden.top_ids.front()));
    }
    all.insert(all.end(), step->logits.begin(), step->logits.end());
  }
  return all;
}

/// NaN is a wrong number, which the device reports itself; other errors are no finding.
Status asFinding(Status status, const std::string &where, std::string &problem) {
  if (status.code() != Code::Quality)
    return status;
  if (problem.empty())
    problem = where + status.message();
  return {};
}

Status SelfTest::checkAlone() {
  Finding finding;
  for (size_t prompt = 0; prompt < golden_.prompts.size(); ++prompt)
    if (Result<std::vector<float>> logits = runRows({prompt}, finding); !logits) {
      // A graph that was exported for a batch takes no single sequence.
      if (prompt == 0 && logits.status().code() == Code::Usage) {
        add("alone", SelfTestCheck::Skipped, logits.status().message());
        return {};
      }
      if (Status s = asFinding(logits.status(), "golden prompt " + std::to_string(prompt) + ": ",
                               finding.problem);
          !s.ok())
        return s;
    }
  add("alone", finding, errors(finding));
  return {};
}

/// All golden prompts in batches that the plan takes, those with as many rows together; on a GPU
/// with some of them several times.
std::vector<Group> SelfTest::groups() const {
  const size_t most = size_t(meta_.kv->max_batch);
  std::vector<Group> out;
  for (size_t i = 0; i < golden_.prompts.size(); ++i) {
    if (out.empty() || out.back().size() == most || rowsOf(out.back()[0]) != rowsOf(i))
      out.emplace_back();
    out.back().push_back(i);
  }
  if (session_.backend().kind() == "cuda")
    for (Group &group : out)
      for (size_t i = 0; group.size() < std::min(most, kManySequences); ++i)
        group.push_back(group[i]);
  return out;
}

Status SelfTest::checkBatch() {
  Finding first, second;
  std::vector<Group> batches = groups();
  if (std::ranges::any_of(batches, [](const Group &g) { return g.size() > 1; }))
    std::erase_if(batches, [](const Group &g) { return g.size() < 2; });
  else
    add("batch", SelfTestCheck::Skipped, "the plan takes one sequence at once");
  if (session_.backend().kind() == "cuda" && batches[0].size() > 1)
    batches.push_back({batches[0][0]}); // one sequence may have kernels of its own
  bool same = true;
  size_t sequences = 0;
  for (const Group &group : batches) {
    std::vector<float> logits[2];
    for (int turn = 0; turn < 2; ++turn) {
      Finding &finding = turn == 0 && group.size() > 1 ? first : second;
      Result<std::vector<float>> got = runRows(group, finding);
      if (Status s = asFinding(got.status(), "", finding.problem); !s.ok())
        return s;
      if (got)
        logits[turn] = got.take();
    }
    same &= std::ranges::equal(std::as_bytes(std::span(logits[0])),
                               std::as_bytes(std::span(logits[1])));
    sequences = std::max(sequences, group.size());
  }
  if (sequences > 1)
    add("batch", first, counted(sequences, "sequence") + ", " + errors(first));
  if (!same)
    second.fault("the same call gives other logits the second time: largest error " +
                 text(second.error) + " after " + text(first.error));
  add("again", second, "the same bits");
  return {};
}

//===-- generation --------------------------------------------------------------------------===//

Status SelfTest::generate(const Group &group, Finding &finding) {
  std::vector<Tokens> prompts, tokens;
  for (size_t prompt : group)
    prompts.push_back(golden_.prompts[prompt]->ids);
  Result<StepOutput> prefill = session_.prefill(prompts);
  if (!prefill)
    return prefill.status();
  tokens.push_back(prefill->next);
  if (const int steps = int(rowsOf(group[0])) - 1; steps > 0) {
    Result<std::vector<Tokens>> decoded = session_.decode(steps);
    if (!decoded)
      return decoded.status();
    tokens.insert(tokens.end(), decoded->begin(), decoded->end());
  }
  for (size_t b = 0; b < group.size(); ++b)
    for (size_t row = 0; row < tokens.size(); ++row) {
      const plan::GoldenRowT &golden = *golden_.prompts[group[b]]->rows[row];
      const int32_t token = tokens[row][b];
      ++finding.rows;
      if (!mayFollow(golden, token, golden_.tolerance))
        finding.fault(place(group[b], row) + ": the device goes on with token " +
                      std::to_string(token) + " instead of " +
                      std::to_string(golden.top_ids.front()));
      if (token != golden.top_ids.front())
        break; // as good a choice, and from here on another text
    }
  return {};
}

Status SelfTest::checkGeneration() {
  Finding finding;
  std::vector<Group> all = groups();
  if (all[0].size() > 1 && session_.backend().kind() == "cuda")
    all.push_back({all[0].back()}); // one sequence may have kernels of its own
  for (const Group &group : all)
    if (Status s = asFinding(generate(group, finding), "", finding.problem); !s.ok())
      return s;
  add("generation", finding, counted(finding.rows, "greedy token"));
  return {};
}

//===-- without a KV state ------------------------------------------------------------------===//

Status SelfTest::checkWhole() {
  Finding alone, again;
  for (size_t i = 0; i < golden_.prompts.size(); ++i) {
    std::vector<std::byte> bits;
    for (Finding *finding : {&alone, &again}) {
      Result<HostTensor> logits = session_.lastLogits(golden_.prompts[i]->ids);
      if (!logits)
        return logits.status();
      const size_t width = size_t(logits->shape.back());
      std::span<const float> rows = std::as_const(*logits).values<float>();
      compare(i, 0, rows.last(width), *finding);
      if (finding == &again && bits != logits->data)
        again.fault("the same call gives other logits the second time");
      bits = std::move(logits->data);
    }
  }
  add("alone", alone, errors(alone));
  add("again", again, "the same bits");
  for (const char *what : {"batch", "generation"})
    add(what, SelfTestCheck::Skipped, "the plan has no KV state, or no code for it here");
  return {};
}

Result<SelfTestReport> SelfTest::run() {
  checkWeights();
  if (!session_.hasKvState()) {
    if (Status s = checkWhole(); !s.ok())
      return s;
  } else {
    if (Status s = checkAlone(); !s.ok())
      return s;
    if (Status s = checkBatch(); !s.ok())
      return s;
    if (Status s = checkGeneration(); !s.ok())
      return s;
  }
  Result<SelfTestCheck> speed = testSpeed(session_, golden_.prompts.back()->ids);
  if (!speed)
    return speed.status();
  report_.checks.push_back(speed.take());
  return std::move(report_);
}

} // namespace

bool SelfTestReport::passed() const {
  return std::ranges::none_of(
      checks, [](const SelfTestCheck &c) { return c.outcome == SelfTestCheck::Fail; });
}

Result<SelfTestReport> selfTest(Session &session) {
  if (!session.plan().meta().golden)
    return {Code::Usage, "the plan has no golden prompts to test the machine with: it was compiled "
                         "with --verify=off, by an older gpt2c, or a remark says why; compile it "
                         "again, or use --check-against=MODEL.onnx"};
  return SelfTest(session).run();
}

} // namespace gpt2c::rt
