// A device with pages whose model is a hash: the logits behind a token are random numbers drawn by
// all tokens before it, as its memory holds them. So a page that is wrong anywhere changes what
// comes next. It checks what runtime/device/Rows.h asks of callers.
#pragma once

#include "PlanSample.h"
#include "runtime/device/PageSums.h"
#include "runtime/sampling/Random.h"
#include "runtime/session/Session.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <filesystem>
#include <functional>
#include <set>

#include <unistd.h>

namespace gpt2c::rt::toy {

struct Shape {
  int32_t vocabulary = 40, context = 96;
  PagedState paged{.pageTokens = 4, .pages = 64, .maxRows = 64, .maxSegments = 16};
};

class PagedBackend : public Backend {
public:
  explicit PagedBackend(const Shape &shape) : shape_(shape) {
    for (const char *name : {"prefill", "decode"}) {
      functions_.push_back(std::make_unique<plan::FunctionT>());
      functions_.back()->name = name;
    }
  }

  std::string name() const override { return "toy"; }
  std::string kind() const override { return "toy"; }
  std::span<const std::unique_ptr<plan::FunctionT>> functions() const override {
    return functions_;
  }

  //===-- one batch -------------------------------------------------------------------------===//

  Result<StepOutput> prefill(std::span<const Tokens> sequences, std::span<const int32_t> past,
                             bool wantLogits) override {
    state_.resize(sequences.size());
    for (size_t b = 0; b < sequences.size(); ++b) {
      state_[b].resize(size_t(past[b]));
      state_[b].insert(state_[b].end(), sequences[b].begin(), sequences[b].end());
    }
    return output(wantLogits);
  }
  Result<std::vector<Tokens>> decode(int steps) override {
    std::vector<Tokens> out;
    for (int i = 0; i < steps; ++i)
      out.push_back(step(Tokens(next_), false)->next);
    return out;
  }
  Result<StepOutput> step(std::span<const int32_t> tokens, bool wantLogits) override {
    for (size_t b = 0; b < tokens.size(); ++b)
      state_[b].push_back(tokens[b]);
    return output(wantLogits);
  }

  //===-- pages -----------------------------------------------------------------------------===//

  PagedState pagedState() const override {
    PagedState now = shape_.paged;
    now.pages = allocations ? now.pages : 0;
    return now;
  }
  bool samples() const override { return choosesItself; }
  Status allocatePages(uint64_t) override {
    ++allocations;
    memory_.assign(size_t(shape_.paged.pages) * size_t(shape_.paged.pageTokens), Slot());
    return {};
  }
  Status extend(std::span<const Segment> segments) override {
    if (failsNow(failAt))
      return {Code::Cuda, "the toy's extend failed"};
    EXPECT_LT(flying_.size(), 2u) << "two calls may be in flight";
    EXPECT_LE(segments.size(), size_t(shape_.paged.maxSegments));
    EXPECT_GE(segments.size(), 1u);
    checkPages(segments);
    rows = 0;
    this->segments = segments.size();
    RowsOutput out;
    for (const Segment &s : segments)
      run(s, out);
    EXPECT_LE(rows, shape_.paged.maxRows);
    ++calls;
    mixed += segments.size() > 1;
    before_ = out.next;
    flying_.push_back(std::move(out));
    return {};
  }
  Result<RowsOutput> extended() override {
    if (flying_.empty())
      return {Code::Usage, "no call is in flight"};
    mostFlying = std::max(mostFlying, flying_.size());
    RowsOutput out = std::move(flying_.front());
    flying_.pop_front();
    if (failsNow(failCollectAt))
      return {Code::Cuda, "the toy's extended failed"};
    return out;
  }

  //===-- pages in host memory --------------------------------------------------------------===//

  Status allocateHostPages(int32_t count, bool checks) override {
    EXPECT_TRUE(moving_[0].empty() && moving_[1].empty());
    shape_.paged.hostPages = count;
    host_.assign(size_t(count) * size_t(shape_.paged.pageTokens), Slot());
    sums_ = {count, checks};
    return {};
  }
  /// What a copy writes is garbage until it has ended, some time later, and what it reads it reads
  /// then.
  Status movePages(std::span<const PageMove> moves) override {
    for (const PageMove &m : moves) {
      if (Status s = m.out ? Status() : sums_.check(m.hostPage, hostPage(m.hostPage)); !s.ok())
        return s;
      std::ranges::fill(m.out ? hostSlots(m.hostPage) : slots(m.page), Slot());
      moving_[m.out].push_back(m);
    }
    return {};
  }
  Result<MovedPages> movedPages(bool waits) override {
    for (auto &way : moving_)
      while (!way.empty() && (waits || (moveSeed_ = moveSeed_ * 69069 + 1) >> 30)) {
        const PageMove m = way.front();
        way.pop_front();
        waits = false;
        std::ranges::copy(m.out ? slots(m.page) : hostSlots(m.hostPage),
                          (m.out ? hostSlots(m.hostPage) : slots(m.page)).begin());
        ++(m.out ? moved_.out : moved_.in);
        if (m.out)
          sums_.put(m.hostPage, hostPage(m.hostPage));
      }
    return moved_;
  }
  std::span<std::byte> hostPage(int32_t page) override {
    return std::as_writable_bytes(hostSlots(page));
  }

  Result<std::vector<HostTensor>> run(const plan::FunctionT &, std::span<const HostTensor>,
                                      std::span<const int64_t>) override {
    return {Code::Unsupported, "the toy runs no function"};
  }
  Status writeKv(int, plan::KvPart, const HostTensor &) override { return {}; }
  Result<HostTensor> readKv(int, plan::KvPart, int64_t, int64_t) override { return HostTensor(); }

  std::vector<float> logitsOf(std::span<const int32_t> text) const {
    uint64_t h = 1469598103934665603u;
    for (int32_t t : text)
      h = (h ^ uint64_t(uint32_t(t))) * 1099511628211u;
    std::vector<float> row(size_t(shape_.vocabulary));
    for (size_t i = 0; i < row.size(); ++i)
      row[i] = float(8 * uniformAt(h, 0, int32_t(i)));
    if (poison && std::ranges::find(text, *poison) != text.end())
      row[3] = NAN;
    return row;
  }

  bool choosesItself = true; ///< samples()
  int64_t sampledHere = 0;   ///< choices made of Segment::sampled
  int allocations = 0, failAt = 0, failCollectAt = 0;
  int64_t calls = 0, mixed = 0;
  size_t mostFlying = 0;
  int32_t rows = 0;              ///< of the last call
  size_t segments = 0;           ///< the same
  std::optional<int32_t> poison; ///< a token behind which logits are NaN

private:
  struct Slot {
    int32_t token = -1, position = -1;
  };

  std::span<Slot> slots(int32_t page) {
    const auto size = size_t(shape_.paged.pageTokens);
    return {memory_.data() + size_t(page) * size, size};
  }
  std::span<Slot> hostSlots(int32_t page) {
    const auto size = size_t(shape_.paged.pageTokens);
    return {host_.data() + size_t(page) * size, size};
  }

  /// Counts a call down to the one that fails; 0: none does.
  static bool failsNow(int &left) {
    if (left == 0)
      return false;
    --left;
    return left == 0;
  }
  static int32_t greedy(std::span<const float> row) {
    return int32_t(std::max_element(row.begin(), row.end()) - row.begin());
  }

  StepOutput output(bool wantLogits) {
    StepOutput out;
    for (const Tokens &text : state_) {
      std::vector<float> row = logitsOf(text);
      out.next.push_back(greedy(row));
      if (wantLogits)
        out.logits.insert(out.logits.end(), row.begin(), row.end());
    }
    next_ = out.next;
    return out;
  }

  /// Two segments write into one page, or one reads what another writes: neither may be.
  void checkPages(std::span<const Segment> segments) const {
    const int32_t size = shape_.paged.pageTokens;
    std::set<int32_t> written, seen;
    for (const Segment &s : segments) {
      EXPECT_GE(s.tokens.size(), 1u);
      const int32_t end = s.past + int32_t(s.tokens.size());
      EXPECT_LE(end, shape_.context);
      EXPECT_GE(int64_t(s.pages.size()) * size, end);
      for (int32_t i = s.past / size; i <= (end - 1) / size; ++i) {
        EXPECT_TRUE(written.insert(s.pages[size_t(i)]).second) << "a page is written twice";
        EXPECT_LT(s.pages[size_t(i)], shape_.paged.pages) << "host memory is written";
      }
      for (int32_t page : s.pages) {
        for (const PageMove &m : moving_[0])
          EXPECT_NE(m.page, page) << "a page is on its way here";
        for (const PageMove &m : moving_[1])
          EXPECT_NE(shape_.paged.pages + m.hostPage, page) << "a page is on its way to the host";
        EXPECT_GE(page, 0);
        EXPECT_LT(page,
                  shape_.paged.pages + (shape_.paged.readsHostPages ? shape_.paged.hostPages : 0));
      }
    }
    for (const Segment &s : segments)
      for (int32_t i = 0; i < s.past / size; ++i)
        EXPECT_FALSE(written.contains(s.pages[size_t(i)])) << "a page is read and written";
  }

  void run(const Segment &s, RowsOutput &out) {
    const int32_t size = shape_.paged.pageTokens;
    auto slot = [&](int32_t position) -> Slot & {
      const int32_t page = s.pages[size_t(position) / size_t(size)];
      const std::span<Slot> of =
          page < shape_.paged.pages ? slots(page) : hostSlots(page - shape_.paged.pages);
      return of[size_t(position % size)];
    };
    for (size_t i = 0; i < s.tokens.size(); ++i, ++rows) {
      int32_t token = s.tokens[i];
      if (i == 0 && s.carry >= 0) {
        EXPECT_LT(size_t(s.carry), before_.size());
        token = std::max(0, before_[size_t(s.carry)]);
      }
      slot(s.past + int32_t(i)) = {token, s.past + int32_t(i)};
    }
    const Tokens before = s.carry >= 0 ? Tokens{std::max(0, before_[size_t(s.carry)])} : Tokens();
    Tokens text;
    const int32_t end = s.past + int32_t(s.tokens.size());
    for (int32_t p = 0; p < end; ++p) {
      EXPECT_EQ(slot(p).position, p) << "a page holds something else";
      text.push_back(slot(p).token);
    }
    std::vector<float> row = logitsOf(text);
    const bool isNaN = std::ranges::any_of(row, [](float v) { return std::isnan(v); });
    out.next.push_back(isNaN       ? -1
                       : s.sampled ? sampled(*s.sampled, end, before, row)
                                   : greedy(row));
    if (s.sampled && s.sampled->row.report >= 0)
      out.reports.push_back(isNaN ? LogprobReport()
                                  : reportOf(s.sampled->row, row, std::max(out.next.back(), 0)));
    EXPECT_FALSE(s.sampled && s.wantLogits) << "logits that nobody reads";
    if (s.wantLogits)
      out.logits.insert(out.logits.end(), row.begin(), row.end());
  }

  int32_t sampled(const SampledChoice &how, int32_t position, const Tokens &carried,
                  std::span<const float> row) {
    EXPECT_TRUE(choosesItself);
    EXPECT_EQ(how.row.position, position);
    ++sampledHere;
    std::vector<Adjustment> adjustments(how.adjustments.begin(), how.adjustments.end());
    if (how.penalises)
      for (int32_t token : carried) {
        adjustments.emplace_back();
        addToken(adjustments, token);
      }
    std::span<const uint32_t> allowed;
    if (how.mask)
      allowed = how.mask->allowedBehind(carried.empty() ? -1 : carried[0]);
    return chooseToken(how.row, adjustments, row, -1, allowed);
  }

  Shape shape_;
  std::vector<std::unique_ptr<plan::FunctionT>> functions_;
  std::vector<Tokens> state_;
  Tokens next_;
  std::vector<Slot> memory_;
  std::vector<Slot> host_;
  std::deque<PageMove> moving_[2]; ///< to the device, to the host
  MovedPages moved_;
  PageSums sums_;
  uint32_t moveSeed_ = 1;
  Tokens before_; ///< choices of the newest call
  std::deque<RowsOutput> flying_;
};

/// A session over the toy, for answers of one request at a time.
inline std::unique_ptr<Session> makeSession(const Shape &shape) {
  PlanContents contents;
  contents.meta.compiler_version = "test";
  contents.meta.precision = "fp32";
  contents.meta.vocab_size = shape.vocabulary;
  contents.meta.kv = std::make_unique<plan::KvPlanT>();
  plan::KvPlanT &kv = *contents.meta.kv;
  kv.layers = kv.heads = 1;
  kv.head_dim = 4;
  kv.max_batch = 1;
  kv.max_context = shape.context;
  kv.bytes_per_token = 2 * 4 * 4;
  kv.bytes = kv.bytes_per_token * shape.context;
  auto path = std::filesystem::temp_directory_path() /
              ("gpt2c-toy-" + std::to_string(::getpid()) + ".plan");
  Status written = writePlan(path, contents);
  EXPECT_TRUE(written.ok()) << written.message();
  Result<rt::Plan::Ptr> plan = rt::Plan::open(path);
  std::filesystem::remove(path);
  EXPECT_TRUE(plan) << plan.status().message();
  return std::make_unique<Session>(*plan, std::make_unique<PagedBackend>(shape));
}

} // namespace gpt2c::rt::toy
