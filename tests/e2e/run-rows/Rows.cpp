// e2e_rows PLAN cpu|cuda [TOLERANCE [SEQUENCES]]: runs sequences with random cuts, mixed in calls
// of extend(), over shared pages, and compares the logits behind every call with those of prefill()
// and step() of each sequence alone. The tolerance is relative to the largest logit of a row; 0 for
// none. Many calls are made again with choices by temperature, also among the tokens of a mask,
// which have to be the host's, to the token.
#include "cpu/CpuBackend.h"
#include "runtime/cuda/CudaBackend.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>

using namespace gpt2c;
using rt::Tokens;

namespace {

[[noreturn]] void fail(const std::string &message, int code = 1) {
  std::fprintf(stderr, "e2e_rows: %s\n", message.c_str());
  std::exit(code);
}

template <typename T> T need(rt::Result<T> result) {
  if (!result)
    fail(result.status().message(), int(result.status().code()));
  return result.take();
}
void need(const rt::Status &status) {
  if (!status.ok())
    fail(status.message(), int(status.code()));
}

/// The same tokens, whatever came before.
struct Mask final : rt::TokenMask {
  std::vector<uint32_t> bits;
  std::span<const uint32_t> allowedBehind(int32_t) override { return bits; }
};

/// A sequence: its prompt, then what the model chose.
struct Sequence {
  Tokens tokens;
  int32_t prompt = 0;
  std::vector<std::vector<float>> logits; ///< behind the prompt, and each token after it
  // Of the run in rows:
  int32_t done = 0, shared = 0; ///< tokens in the state; those that are another's pages
  int lastSegment = -1;         ///< of the call before, when it made a choice
  bool choseAlike = false;
  std::vector<int32_t> pages;
};

struct Run {
  rt::Backend &backend;
  rt::PagedState state;
  double tolerance;
  std::mt19937 random{7};
  std::vector<Sequence> sequences = {};
  double largest = 0; ///< relative difference that was seen
  int calls = 0, carried = 0, compared = 0, drawn = 0;

  int below(int n) { return int(random() % unsigned(n)); }

  void makeSequences(int vocabulary, int context, int count) {
    const int page = state.pageTokens, generated = 6;
    const int lengths[] = {1, 7, page + 9, page - 1, 2 * page + 3, 3 * page, 5, 2 * page};
    for (int i = 0; i < count; ++i) {
      Sequence s;
      s.prompt = std::clamp(lengths[i % 8], 1, context - generated);
      for (int t = 0; t < s.prompt; ++t)
        s.tokens.push_back(below(vocabulary));
      sequences.push_back(std::move(s));
    }
    // The second half of them begin as another does, whose first page they read.
    for (size_t i = 0; i < sequences.size(); ++i)
      if (Sequence &s = sequences[i], &other = sequences[2 % sequences.size()];
          i > 2 && s.prompt > page && other.prompt >= page) {
        std::copy_n(other.tokens.begin(), page, s.tokens.begin());
        s.shared = page;
      }
    for (Sequence &s : sequences)
      alone(s, generated);
  }

  /// What prefill() and step() say of one sequence.
  void alone(Sequence &s, int steps) {
    const int32_t zero = 0;
    rt::StepOutput out = need(backend.prefill(std::span(&s.tokens, 1), std::span(&zero, 1), true));
    for (int i = 0;; ++i) {
      s.logits.push_back(out.logits);
      if (i == steps)
        return;
      s.tokens.push_back(out.next[0]);
      out = need(backend.step(std::span(&s.tokens.back(), 1), true));
    }
  }

  void takePages(int context) {
    std::vector<int32_t> free(state.pages);
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), random);
    const size_t each = (context + state.pageTokens - 1) / state.pageTokens;
    for (Sequence &s : sequences) {
      const size_t needed = std::min<size_t>(each, s.tokens.size() / state.pageTokens + 1);
      for (size_t p = 0; p < needed; ++p) {
        if (s.shared && p == 0) {
          s.pages.push_back(sequences[2].pages[0]);
        } else {
          if (free.empty())
            fail("too few pages");
          s.pages.push_back(free.back());
          free.pop_back();
        }
      }
      s.done = s.shared;
    }
  }

  void compare(Sequence &s, std::span<const float> got, int32_t next) {
    const std::vector<float> &want = s.logits[s.done - s.prompt];
    double scale = 1e-6, off = 0;
    for (size_t i = 0; i < want.size(); ++i) {
      scale = std::max(scale, std::abs(double(want[i])));
      off = std::max(off, std::isfinite(got[i]) ? std::abs(double(got[i]) - want[i]) : 1e30);
    }
    largest = std::max(largest, off / scale);
    ++compared;
    if (off > tolerance * scale)
      fail("logits of a sequence of " + std::to_string(s.prompt) + " tokens are off by " +
           std::to_string(off) + " of " + std::to_string(scale) + " behind token " +
           std::to_string(s.done));
    const int32_t best = int32_t(std::ranges::max_element(got) - got.begin());
    if (next != best)
      fail("the choice is " + std::to_string(next) + ", the largest logit is that of " +
           std::to_string(best));
    s.choseAlike = size_t(s.done) < s.tokens.size() && s.tokens[s.done] == next;
  }

  /// One call over some of the sequences; false when all are done.
  bool call() {
    std::vector<rt::Segment> segments;
    std::vector<std::pair<Sequence *, int32_t>> parts;
    int room = std::min<int>(state.maxRows, 1 + below(220));
    bool left = false;
    for (Sequence &s : sequences) {
      // Choices follow all tokens but the last, which nothing was computed behind.
      const int remaining = int(s.tokens.size()) - s.done;
      left |= remaining > 0;
      const bool waits = s.shared && s.done == s.shared && sequences[2].done < s.shared;
      if (remaining == 0 || waits || room == 0 || below(4) == 0 ||
          segments.size() == size_t(state.maxSegments)) {
        s.lastSegment = -1;
        continue;
      }
      const int ahead = s.done < s.prompt ? s.prompt - s.done : 1;
      const int count = std::min(room, below(3) == 0 ? ahead : 1 + below(ahead));
      rt::Segment segment{
          .tokens = std::span(s.tokens).subspan(s.done, count), .past = s.done, .pages = s.pages};
      if (s.done >= s.prompt && s.lastSegment >= 0 && s.choseAlike && below(2)) {
        segment.carry = s.lastSegment;
        ++carried;
      }
      segment.wantLogits = s.done + count >= s.prompt;
      s.lastSegment = segment.wantLogits ? int(segments.size()) : -1;
      room -= count;
      segments.push_back(segment);
      parts.push_back({&s, count});
    }
    if (segments.empty())
      return left;
    need(backend.extend(segments));
    const rt::RowsOutput out = need(backend.extended());
    ++calls;
    size_t at = 0, vocabulary = sequences[0].logits[0].size();
    for (size_t i = 0; i < parts.size(); ++i) {
      auto [s, count] = parts[i];
      s->done += count;
      if (!segments[i].wantLogits)
        continue;
      if (out.logits.size() < at + vocabulary)
        fail("logits are missing");
      compare(*s, std::span(out.logits).subspan(at, vocabulary), out.next[i]);
      at += vocabulary;
    }
    if (at != out.logits.size())
      fail("there are logits that nobody wanted");
    if (backend.samples() && below(2)) {
      draw(segments, out, -1); // where the logits are computed
      draw(segments, out, 0);  // behind them: there is a report
      draw(segments, out, -1, true);
      for (Sequence &s : sequences)
        s.lastSegment = -1; // the call before is another
    }
    return true;
  }

  /// The call once more, with other choices.
  void draw(std::vector<rt::Segment> segments, const rt::RowsOutput &before, int32_t report,
            bool masked = false) {
    std::vector<int32_t> want;
    std::vector<Mask> masks(segments.size());
    size_t at = 0, vocabulary = sequences[0].logits[0].size();
    for (size_t i = 0; i < segments.size(); ++i) {
      rt::Segment &s = segments[i];
      want.push_back(before.next[i]);
      s.carry = -1;
      if (!s.wantLogits)
        continue;
      s.wantLogits = false;
      const std::span<const float> logits(before.logits.data() + at, vocabulary);
      at += vocabulary;
      if (below(5) == 0)
        continue;
      rt::SampleRow row;
      row.mode = rt::SampleRow::Sampled;
      row.inverseTemperature = below(4) ? 1.25 : 0.01;
      row.logMinP = 1;
      row.seed = uint64_t(random()) << 32 | random();
      row.position = s.past + int64_t(s.tokens.size());
      row.report = report;
      s.sampled = rt::SampledChoice{.row = row};
      if (masked && below(3)) {
        for (size_t n = (vocabulary + 31) / 32; n > 0; --n)
          masks[i].bits.push_back(uint32_t(random() & random()));
        s.sampled->mask = &masks[i];
      }
      want.back() = rt::chooseToken(row, {}, logits, -1, masks[i].bits);
      ++drawn;
    }
    need(backend.extend(segments));
    const rt::RowsOutput out = need(backend.extended());
    for (size_t i = 0; i < segments.size(); ++i)
      if (out.next[i] != want[i])
        fail("segment " + std::to_string(i) + " of " + std::to_string(segments.size()) +
             (report < 0 ? " is drawn as " : " is sampled as ") + std::to_string(out.next[i]) +
             ", by the host as " + std::to_string(want[i]));
  }

  void expectUsage(const rt::Segment &segment, const char *what) {
    const rt::Status s = backend.extend(std::span(&segment, 1));
    if (s.code() != rt::Code::Usage)
      fail(std::string(what) + " is not refused");
  }
};

} // namespace

int main(int argc, char **argv) {
  if (argc < 3)
    fail("usage: e2e_rows PLAN cpu|cuda [TOLERANCE [SEQUENCES]]");
  rt::Plan::Ptr plan = need(rt::Plan::open(argv[1]));
  if (!plan->meta().kv)
    fail("the plan has no KV state");
  std::unique_ptr<rt::Backend> backend =
      need(std::strcmp(argv[2], "cpu") ? rt::makeCudaBackend(plan) : makeCpuBackend(plan, {}));
  Run run{*backend, {}, argc > 3 ? std::atof(argv[3]) : 0};
  need(backend->allocatePages(0));
  run.state = backend->pagedState();
  if (run.state.pages < 1 || run.state.pageTokens < 1 || run.state.maxRows < 1)
    fail("the paged state is empty");
  const plan::KvPlanT &kv = *plan->meta().kv;
  run.makeSequences(plan->meta().vocab_size, kv.max_context,
                    std::min(argc > 4 ? std::atoi(argv[4]) : 8, kv.max_batch));
  run.takePages(kv.max_context);
  while (run.call())
    ;
  const Tokens one{0}, past{0, 1};
  const std::vector<int32_t> page{0}, beyond{run.state.pages};
  run.expectUsage({.tokens = {}, .pages = page}, "a segment without tokens");
  run.expectUsage({.tokens = one, .pages = {}}, "a segment without pages");
  run.expectUsage({.tokens = one, .pages = beyond}, "a page that is not there");
  run.expectUsage({.tokens = one, .past = kv.max_context, .pages = page}, "too long a sequence");
  std::printf("%d calls, %d rows of logits compared, %d tokens carried, %d drawn, largest "
              "difference %.2g\n",
              run.calls, run.compared, run.carried, run.drawn, run.largest);
  return run.compared > 0 && (run.drawn > 0 || !backend->samples()) ? 0 : 1;
}
