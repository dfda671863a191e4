// Stages on GPUs of one host as one device: each GPU, or team of GPUs that share every layer, has
// the launches, weights and KV state of its layers.
//
// One host thread begins the launches of all of them. A call is cut into groups of rows
// (MicroBatches.h); the stages' streams run beside each other and wait for each other by events,
// so that the second stage has one group while the first has the next. What a stage hands on is
// copied from its arena into the next one's, which no longer reads its own of the group before.
// Everything runs over pages, sessions' sequences too.
#pragma once

#include "runtime/cuda/CudaBackendClass.h"
#include "runtime/device/MicroBatches.h"
#include "runtime/group/ThreadLinks.h"

#include <deque>
#include <memory>
#include <vector>

namespace gpt2c::rt::cuda {

class CudaStages : public Backend {
public:
  /// `ranks`: by stage, in each those of its team. `microRows`: of RankLink.
  static Result<std::unique_ptr<Backend>>
  create(Plan::Ptr plan, std::vector<std::vector<std::unique_ptr<CudaBackend>>> ranks,
         int microRows);
  ~CudaStages() override;

  std::string name() const override;
  std::string kind() const override { return "cuda"; }
  Functions functions() const override { return first().functions(); }
  BackendStats stats() const override;

  /// Steps of one call overlap: the first stage begins the next where the last one ends.
  int decodeChunk() const override { return 8; }
  bool padsPrompts() const override { return false; }
  Result<StepOutput> prefill(std::span<const Tokens> sequences, std::span<const int32_t> past,
                             bool wantLogits) override;
  Result<std::vector<Tokens>> decode(int steps) override;
  Result<StepOutput> step(std::span<const int32_t> tokens, bool wantLogits) override;

  PagedState pagedState() const override { return state_.pages > 0 ? state_ : stateNow(); }
  bool samples() const override { return last().samples(); }
  Status allocatePages(uint64_t bytes) override;
  Status extend(std::span<const Segment> segments) override;
  Result<RowsOutput> extended() override;
  Status allocateHostPages(int32_t count, bool checks) override;
  Status movePages(std::span<const PageMove> moves) override;
  Result<MovedPages> movedPages(bool waits) override;
  std::span<std::byte> hostPage(int32_t page) override { return first().hostPage(page); }

  Result<std::vector<HostTensor>> run(const plan::FunctionT &function,
                                      std::span<const HostTensor> inputs,
                                      std::span<const int64_t> symbols) override;
  Status writeKv(int layer, plan::KvPart part, const HostTensor &values) override;
  Result<HostTensor> readKv(int layer, plan::KvPart part, int64_t batch, int64_t tokens) override;

private:
  /// A rank, and when what it hands on, and what it was handed, is done with.
  struct Rank {
    std::unique_ptr<CudaBackend> backend;
    CUevent handed = nullptr; ///< behind the copies to the stage behind it
    CUevent ended = nullptr;  ///< behind its launches of a group
    bool hasEnded = false;    ///< `ended` was recorded
  };
  using Team = std::vector<Rank>;
  /// A call of extend().
  struct Call {
    RowsOutput out;
    std::vector<MicroBatch> groups;
    size_t collected = 0; ///< of groups
    /// Whether the choice of a segment is in `out`.
    bool hasChosen(size_t segment) const;
  };

  CudaStages(Plan::Ptr plan, int microRows) : plan_(std::move(plan)), microRows_(microRows) {}
  CudaBackend &first() const { return *teams_.front().front().backend; }
  CudaBackend &last() const { return *teams_.back().front().backend; }
  template <typename F> Status forAll(F f) {
    for (Team &team : teams_)
      for (Rank &rank : team)
        if (Status s = f(rank); !s.ok())
          return s;
    return {};
  }
  PagedState stateNow() const;
  Status addEvents();
  Status beginGroup(const MicroBatch &group, std::span<const int32_t> before);
  Status beginPlace(size_t place, const MicroBatch &group, std::span<const int32_t> before);
  Status beginRank(size_t stage, size_t place, std::span<const Segment> segments,
                   std::span<const int32_t> before);
  Status handOn(Rank &from, Rank &to);
  Status collectGroup();
  Status collect(Call &call, size_t groups);
  Status check();
  int64_t groupRows(int64_t rows) const;

  Status ensurePages(size_t sequences);
  std::span<const int32_t> pagesOf(size_t sequence) const;
  Result<RowsOutput> extendAll(std::span<const Segment> segments);
  template <typename F>
  Status forEachRun(int layer, plan::KvPart part, int64_t batch, int64_t tokens, F f);

  Plan::Ptr plan_;
  int microRows_;
  std::unique_ptr<ThreadLinks> links_;       ///< of the ranks of a team; null: each is one
  std::vector<Team> teams_;                  ///< by stage
  std::deque<std::shared_ptr<Call>> calls_;  ///< begun and not collected
  std::shared_ptr<Call> before_;             ///< the last one begun
  std::deque<std::shared_ptr<Call>> flying_; ///< of each group that is begun and not collected
  PagedState state_;                         ///< once there are pages
  // Of a session.
  std::vector<int32_t> past_;
  Tokens next_;
  std::vector<int32_t> tables_; ///< [sequences, pages of one]
};

} // namespace gpt2c::rt::cuda
