#include "runtime/group/GroupBackend.h"

#include <algorithm>
#include <cstring>
#include <deque>

namespace gpt2c::rt {

const plan::RanksT *ranksOf(const plan::PlanT &meta, int tensor) {
  for (const auto &ranks : meta.ranks)
    if (ranks->tensor == tensor && ranks->stages <= 1)
      return ranks.get();
  return nullptr;
}

std::string patternOfRanks(int tensor) { return std::to_string(tensor) + " ranks"; }

std::string whyNoGain(const plan::PlanT &meta, int tensor) {
  for (const auto &remark : meta.remarks)
    if (remark->pass == "parallel" && remark->pattern == patternOfRanks(tensor))
      return remark->message;
  return {};
}

Status checkDivision(const plan::PlanT &meta, const Division &division) {
  const int stages = division.stages;
  if (division.ranks % stages != 0)
    return {Code::Usage, std::to_string(division.ranks) + " ranks do not stand in " +
                             std::to_string(stages) + " stages of as many each"};
  if (stages > 1 && (!meta.kv || meta.kv->layers < stages))
    return {Code::Incompatible, "the plan has " + std::to_string(meta.kv ? meta.kv->layers : 0) +
                                    " layers with a KV state, too few for " +
                                    std::to_string(stages) + " stages"};
  if (division.teamSize() == 1 && stages > 1)
    return {};
  return ranksOf(meta, division.teamSize()) ? Status() : noSuchRanks(meta, division.teamSize());
}

Status noSuchRanks(const plan::PlanT &meta, int tensor) {
  std::string there;
  for (const auto &ranks : meta.ranks)
    there += (there.empty() ? "" : ", ") + std::to_string(ranks->tensor);
  return {Code::Incompatible, "the plan is not for " + std::to_string(tensor) +
                                  " ranks; it is for 1" + (there.empty() ? "" : ", " + there) +
                                  " (gpt2c --tensor-parallel=" + std::to_string(tensor) +
                                  " makes one that is)"};
}

namespace {

class GroupBackend : public Backend {
public:
  GroupBackend(Plan::Ptr plan, std::unique_ptr<Backend> first, std::unique_ptr<OtherRanks> others,
               const Division &division)
      : plan_(std::move(plan)), others_(std::move(others)), first_(std::move(first)),
        division_(division),
        ranks_(division.teamSize() > 1 ? ranksOf(plan_->meta(), division.teamSize()) : nullptr) {}

  std::string name() const override {
    std::string name = first_->name() + ", " + std::to_string(division_.ranks) + " ranks";
    if (division_.stages > 1)
      name += " in " + std::to_string(division_.stages) + " stages";
    return name;
  }
  std::string kind() const override { return first_->kind(); }
  std::span<const std::unique_ptr<plan::FunctionT>> functions() const override {
    return first_->functions();
  }
  std::string note() const override {
    const std::string own = first_->note();
    const std::string gain =
        ranks_ && kind() == "cuda" ? whyNoGain(plan_->meta(), division_.teamSize()) : "";
    return own + (own.empty() || gain.empty() ? "" : "; ") + gain;
  }
  int decodeChunk() const override { return first_->decodeChunk(); }
  BackendStats stats() const override { return first_->stats(); }

  Result<StepOutput> prefill(std::span<const Tokens> sequences, std::span<const int32_t> past,
                             bool wantLogits) override {
    RankCall call{.kind = RankCall::Prefill};
    call.sequences.assign(sequences.begin(), sequences.end());
    call.past.assign(past.begin(), past.end());
    return onAll(call, [&] { return first_->prefill(sequences, past, wantLogits); });
  }
  bool padsPrompts() const override { return first_->padsPrompts(); }

  Result<std::vector<Tokens>> decode(int steps) override {
    return onAll({.kind = RankCall::Decode, .numbers = {steps}},
                 [&] { return first_->decode(steps); });
  }

  Result<StepOutput> step(std::span<const int32_t> tokens, bool wantLogits) override {
    RankCall call{.kind = RankCall::Step, .past = Tokens(tokens.begin(), tokens.end())};
    return onAll(call, [&] { return first_->step(tokens, wantLogits); });
  }

  PagedState pagedState() const override { return first_->pagedState(); }
  bool samples() const override { return first_->samples(); }

  Status allocatePages(uint64_t bytes) override {
    return onAll({.kind = RankCall::AllocatePages, .numbers = {int64_t(bytes)}},
                 [&] { return asResult(first_->allocatePages(bytes)); })
        .status();
  }

  Status allocateHostPages(int32_t count, bool checks) override {
    return onAll({.kind = RankCall::AllocateHostPages, .numbers = {count, checks}},
                 [&] { return asResult(first_->allocateHostPages(count, checks)); })
        .status();
  }
  /// Ranks keep pages of the same numbers; all have moved theirs when this returns.
  Status movePages(std::span<const PageMove> moves) override {
    RankCall call{.kind = RankCall::MovePages};
    for (const PageMove &m : moves)
      call.numbers.insert(call.numbers.end(), {m.page, m.hostPage, m.out});
    return onAll(call, [&] { return asResult(moveNow(*first_, moves)); }).status();
  }
  Result<MovedPages> movedPages(bool) override { return first_->movedPages(false); }
  std::span<std::byte> hostPage(int32_t page) override { return first_->hostPage(page); }

  /// The first rank chooses tokens; the others are told what was chosen and draw nothing.
  Status extend(std::span<const Segment> segments) override {
    if (extended_.size() >= 2)
      return {Code::Usage, "extend: two calls are begun and not collected"};
    RankCall call{.kind = RankCall::Extend};
    for (const Segment &s : segments) {
      Tokens tokens(s.tokens.begin(), s.tokens.end());
      if (s.carry >= 0 && size_t(s.carry) < chosen_.size() && !tokens.empty())
        tokens[0] = std::max(chosen_[size_t(s.carry)], 0);
      call.sequences.push_back(std::move(tokens));
      call.past.push_back(s.past);
      call.pages.emplace_back(s.pages.begin(), s.pages.end());
    }
    Result<RowsOutput> rows = onAll(call, [&]() -> Result<RowsOutput> {
      if (Status s = first_->extend(segments); !s.ok())
        return s;
      return first_->extended();
    });
    if (!rows)
      return rows.status();
    chosen_ = rows->next;
    extended_.push_back(rows.take());
    return {};
  }

  Result<RowsOutput> extended() override {
    if (extended_.empty())
      return {Code::Usage, "extended: no call is begun and not collected"};
    RowsOutput out = std::move(extended_.front());
    extended_.pop_front();
    return out;
  }

  Result<std::vector<HostTensor>> run(const plan::FunctionT &function,
                                      std::span<const HostTensor> inputs,
                                      std::span<const int64_t> symbols) override {
    const auto list = functions();
    const auto it = std::ranges::find(list, &function, [](const auto &f) { return f.get(); });
    if (it == list.end())
      return {Code::Usage, "@" + function.name + " is no function of this device"};
    RankCall call{.kind = RankCall::Run, .numbers = {it - list.begin()}};
    call.tensors.assign(inputs.begin(), inputs.end());
    call.symbols.assign(symbols.begin(), symbols.end());
    return onAll(call, [&] { return first_->run(function, inputs, symbols); });
  }

  /// Each rank gets its heads, of whichever layers it has.
  Status writeKv(int layer, plan::KvPart part, const HostTensor &values) override {
    if (!ranks_) {
      RankCall call{.kind = RankCall::WriteKv, .numbers = {layer, int64_t(part)}};
      call.tensors.push_back(values);
      return onAll(call, [&] { return asResult(first_->writeKv(layer, part, values)); }).status();
    }
    std::vector<RankCall> calls;
    for (int r = 0; r < division_.ranks; ++r) {
      calls.push_back({.kind = RankCall::WriteKv, .numbers = {layer, int64_t(part)}});
      calls.back().tensors.push_back(headsOf(values, r % division_.teamSize()));
    }
    return onEach(std::span(calls).subspan(1),
                  [&] { return asResult(first_->writeKv(layer, part, calls[0].tensors[0])); })
        .status();
  }

  Result<HostTensor> readKv(int layer, plan::KvPart part, int64_t batch, int64_t tokens) override {
    const RankCall call{.kind = RankCall::ReadKv, .numbers = {layer, int64_t(part), batch, tokens}};
    std::vector<RankReply> replies;
    Result<HostTensor> own = onEach(
        std::span(&call, 1), [&] { return first_->readKv(layer, part, batch, tokens); }, &replies);
    if (!own)
      return own;
    std::vector<HostTensor *> parts; // of the ranks that have the layer
    for (int r = 0; r < division_.ranks; ++r)
      if (HostTensor &from = r == 0 ? *own : replies[size_t(r - 1)].tensors.at(0);
          !from.data.empty())
        parts.push_back(&from);
    if (parts.empty())
      return own; // of no token
    if (parts.size() != size_t(division_.teamSize()))
      return {Code::Corrupt, "layer " + std::to_string(layer) + " is with " +
                                 std::to_string(parts.size()) + " ranks"};
    if (!ranks_)
      return std::move(*parts[0]);
    const plan::KvPlanT &kv = *plan_->meta().kv;
    HostTensor out(own->dtype, {batch, kv.heads, tokens, parts[0]->shape[3]});
    for (int r = 0; r < division_.teamSize(); ++r) {
      const HostTensor &from = *parts[size_t(r)];
      if (from.data.size() * size_t(kv.heads) != out.data.size() * headsOfRank())
        return {Code::Corrupt, "rank " + std::to_string(r) + " has other heads than the plan says"};
      moveHeads(r, batch, out.data.size() / size_t(std::max<int64_t>(1, batch * kv.heads)),
                [&](size_t mine, size_t whole, size_t bytes) {
                  std::memcpy(out.data.data() + whole, from.data.data() + mine, bytes);
                });
    }
    return out;
  }

private:
  struct Nothing {};
  static Result<Nothing> asResult(const Status &s) {
    return s.ok() ? Result<Nothing>(Nothing()) : Result<Nothing>(s);
  }

  /// The result of `own`, the first rank's part of a call that all make.
  template <typename F> auto onAll(const RankCall &call, F own) -> decltype(own()) {
    return onEach(std::span(&call, 1), own);
  }
  template <typename F>
  auto onEach(std::span<const RankCall> calls, F own, std::vector<RankReply> *replies = nullptr)
      -> decltype(own()) {
    if (Status s = others_->begin(calls); !s.ok())
      return s;
    auto result = own();
    Result<std::vector<RankReply>> answers = others_->finish(result.status());
    if (!answers)
      return answers.status();
    if (replies)
      *replies = answers.take();
    return result;
  }

  size_t headsOfRank() const { return ranks_->kv_heads.size() / size_t(division_.teamSize()); }

  /// `rank`: its place in its team. Calls f(offset among the rank's heads, offset among all, bytes)
  /// for each head that the rank has of [batch, heads, ..]; `bytes` are those of a head.
  template <typename F> void moveHeads(int rank, int64_t batch, size_t bytes, F f) const {
    const size_t count = headsOfRank(), heads = size_t(plan_->meta().kv->heads);
    for (size_t b = 0; b < size_t(batch); ++b)
      for (size_t h = 0; h < count; ++h)
        if (const int32_t head = ranks_->kv_heads[size_t(rank) * count + h]; head >= 0)
          f((b * count + h) * bytes, (b * heads + size_t(head)) * bytes, bytes);
  }

  HostTensor headsOf(const HostTensor &values, int rank) const {
    std::vector<int64_t> shape = values.shape;
    shape[1] = int64_t(headsOfRank());
    HostTensor out(values.dtype, shape);
    const int64_t heads = values.shape[0] * values.shape[1];
    moveHeads(rank, shape[0], heads ? values.data.size() / size_t(heads) : 0,
              [&](size_t mine, size_t whole, size_t bytes) {
                std::memcpy(out.data.data() + mine, values.data.data() + whole, bytes);
              });
    return out;
  }

  Plan::Ptr plan_;
  std::unique_ptr<OtherRanks> others_;
  std::unique_ptr<Backend> first_; ///< may use links that the others hold
  Division division_;
  const plan::RanksT *ranks_; ///< of a team; null: each is one rank
  Tokens chosen_;             ///< by the last extend()
  std::deque<RowsOutput> extended_;
};

} // namespace

std::unique_ptr<Backend> makeGroupBackend(Plan::Ptr plan, std::unique_ptr<Backend> first,
                                          std::unique_ptr<OtherRanks> others,
                                          const Division &division) {
  return std::make_unique<GroupBackend>(std::move(plan), std::move(first), std::move(others),
                                        division);
}

} // namespace gpt2c::rt
