#include "runtime/cuda/CudaStages.h"

#include <algorithm>
#include <thread>

namespace gpt2c::rt::cuda {

namespace {

/// Groups of rows that are begun and not collected, for each stage: two calls of some groups each.
constexpr size_t kGroupsOfStage = 8;
/// Fewer rows take no less time: their products wait for the weights.
constexpr int64_t kLeastRows = 64;

} // namespace

Result<std::unique_ptr<Backend>>
CudaStages::create(Plan::Ptr plan, std::vector<std::vector<std::unique_ptr<CudaBackend>>> ranks,
                   int microRows) {
  std::unique_ptr<CudaStages> out(new CudaStages(std::move(plan), microRows));
  for (auto &team : ranks) {
    out->teams_.emplace_back();
    for (auto &backend : team) {
      backend->setSlots(kGroupsOfStage * ranks.size());
      out->teams_.back().push_back({.backend = std::move(backend)});
    }
  }
  if (Status s = out->addEvents(); !s.ok())
    return s;
  if (const size_t team = out->teams_.front().size(); team > 1) {
    out->links_ = std::make_unique<ThreadLinks>(int(team));
    for (Team &ofStage : out->teams_)
      for (size_t place = 0; place < team; ++place)
        ofStage[place].backend->setLink(out->links_->link(int(place)));
  }
  for (Rank &rank : out->teams_.back())
    rank.backend->setOthers([all = out.get()] { return all->check(); });
  return std::unique_ptr<Backend>(std::move(out));
}

Status CudaStages::addEvents() {
  return forAll([](Rank &rank) -> Status {
    CudaDevice &device = rank.backend->device();
    if (Status s = device.bindThread(); !s.ok())
      return s;
    for (CUevent *event : {&rank.handed, &rank.ended})
      GPT2C_CUDA(device.api(), eventCreate, event, 2u /* no timing */);
    return {};
  });
}

CudaStages::~CudaStages() {
  (void)forAll([](Rank &rank) { return rank.backend->device().synchronize(); }).ok();
  (void)forAll([](Rank &rank) -> Status {
    CudaDevice &device = rank.backend->device();
    if (device.bindThread().ok())
      for (CUevent event : {rank.handed, rank.ended})
        if (event)
          device.api().eventDestroy(event);
    return {};
  }).ok();
}

std::string CudaStages::name() const {
  const size_t ranks = teams_.size() * teams_.front().size();
  return first().name() + ", " + std::to_string(ranks) + " ranks in " +
         std::to_string(teams_.size()) + " stages";
}

BackendStats CudaStages::stats() const {
  BackendStats all;
  for (const Team &team : teams_)
    for (const Rank &rank : team) {
      const BackendStats s = rank.backend->stats();
      all.loadSeconds = std::max(all.loadSeconds, s.loadSeconds);
      all.weightBytes += s.weightBytes;
      all.deviceBytes += s.deviceBytes;
      all.allocations += s.allocations;
    }
  return all;
}

PagedState CudaStages::stateNow() const {
  PagedState state = last().pagedState();
  state.pageBytes = 0;
  for (const Team &team : teams_) // the engine's bytes are those of one device
    state.pageBytes = std::max(state.pageBytes, team.front().backend->pagedState().pageBytes);
  for (const Team &team : teams_)
    for (const Rank &rank : team)
      if (const PagedState of = rank.backend->pagedState(); !of.readsHostPages) {
        state.readsHostPages = false;
        state.whyNotRead = of.whyNotRead;
      }
  return state;
}

/// As many pages on each, of its layers.
Status CudaStages::allocatePages(uint64_t bytes) {
  const PagedState state = pagedState();
  const plan::KvPlanT &kv = *plan_->meta().kv;
  const uint64_t ofSequence = state.pageTokens ? uint64_t(kv.max_context + state.pageTokens - 1) /
                                                     uint64_t(state.pageTokens)
                                               : 0;
  const uint64_t pages =
      bytes && state.pageBytes ? bytes / state.pageBytes : uint64_t(kv.max_batch) * ofSequence;
  if (state.pageTokens && pages < 1)
    return {Code::Usage, std::to_string(bytes) + " bytes hold no page, one takes " +
                             std::to_string(state.pageBytes)};
  const Status s = forAll([&](Rank &rank) {
    return rank.backend->allocatePages(pages * rank.backend->pagedState().pageBytes);
  });
  if (s.ok())
    state_ = stateNow();
  return s;
}

//===-- calls -------------------------------------------------------------------------------===//

/// What no stage has failed of.
Status CudaStages::check() {
  return forAll([](Rank &rank) {
    CudaDevice &device = rank.backend->device();
    if (Status s = device.bindThread(); !s.ok())
      return s;
    return device.idle().status();
  });
}

bool CudaStages::Call::hasChosen(size_t segment) const {
  for (const MicroBatch &group : std::span(groups).first(collected))
    for (size_t i = 0; i < group.of.size(); ++i)
      if (group.of[i] == segment && group.ends[i])
        return true;
  return false;
}

int64_t CudaStages::groupRows(int64_t rows) const {
  return microRows_ ? microRows_ : rt::microRows(rows, int(teams_.size()), kLeastRows);
}

Status CudaStages::extend(std::span<const Segment> segments) {
  const PagedState state = pagedState();
  if (state.pages < 1)
    return {Code::Usage, "extend: there are no pages; allocatePages() makes them"};
  if (calls_.size() >= 2)
    return {Code::Usage, "extend: two calls are begun and not collected"};
  const RowsLimits limits{state, plan_->meta().kv->max_context, plan_->meta().vocab_size};
  const auto carried = int32_t(before_ ? before_->out.next.size() : 0);
  if (Status s = checkSegments(segments, limits, carried); !s.ok())
    return s;
  int64_t rows = 0;
  for (const Segment &s : segments)
    rows += int64_t(s.tokens.size());
  auto call = std::make_shared<Call>();
  call->groups = microBatches(segments, groupRows(rows));
  call->out.next.resize(segments.size());
  const std::shared_ptr<Call> before = std::exchange(before_, call);
  Status done;
  for (const MicroBatch &group : call->groups) {
    for (const Segment &s : group.segments)
      while (done.ok() && s.carry >= 0 && !before->hasChosen(size_t(s.carry)))
        done = collectGroup();
    while (done.ok() && flying_.size() + 1 >= kGroupsOfStage * teams_.size())
      done = collectGroup();
    if (done.ok())
      done = beginGroup(group, before ? std::span<const int32_t>(before->out.next)
                                      : std::span<const int32_t>());
    if (!done.ok())
      return done;
    flying_.push_back(call);
  }
  calls_.push_back(std::move(call));
  return {};
}

/// Ranks of a team prepare their launches and meet before each launches its own, which wait for the
/// others'.
Status CudaStages::beginGroup(const MicroBatch &group, std::span<const int32_t> before) {
  if (!links_)
    return beginPlace(0, group, before);
  links_->begin();
  std::vector<std::thread> others;
  for (size_t place = 1; place < teams_.front().size(); ++place)
    others.emplace_back([&, place] {
      if (Status s = beginPlace(place, group, before); !s.ok())
        links_->fail(int(place), s);
    });
  if (Status s = beginPlace(0, group, before); !s.ok())
    links_->fail(0, s);
  for (std::thread &t : others)
    t.join();
  int rank = 0;
  return links_->failure(rank);
}

/// On the ranks that have the place in each team.
Status CudaStages::beginPlace(size_t place, const MicroBatch &group,
                              std::span<const int32_t> before) {
  for (size_t stage = 0; stage < teams_.size(); ++stage)
    if (Status s = beginRank(stage, place, group.segments, before); !s.ok())
      return s;
  return {};
}

/// The launches of a group on one rank, behind what the stage before hands to it, and what it
/// hands on.
Status CudaStages::beginRank(size_t stage, size_t place, std::span<const Segment> segments,
                             std::span<const int32_t> before) {
  Rank &rank = teams_[stage][place];
  CudaDevice &device = rank.backend->device();
  if (Status s = device.bindThread(); !s.ok())
    return s;
  if (stage > 0)
    GPT2C_CUDA(device.api(), streamWaitEvent, device.stream(), teams_[stage - 1][place].handed, 0u);
  if (place == 0) {
    if (Status s = rank.backend->beginRows(segments, before); !s.ok())
      return s;
  } else { // the first of the team chooses
    std::vector<Segment> greedy(segments.begin(), segments.end());
    for (Segment &s : greedy) {
      s.sampled.reset();
      s.wantLogits = false;
    }
    if (Status s = rank.backend->beginRows(greedy, before); !s.ok())
      return s;
  }
  GPT2C_CUDA(device.api(), eventRecord, rank.ended, device.stream());
  rank.hasEnded = true;
  return stage + 1 < teams_.size() ? handOn(rank, teams_[stage + 1][place]) : Status();
}

/// Copies what the launches of `to` take of those of `from`, once `to` is done with the group
/// before.
Status CudaStages::handOn(Rank &from, Rank &to) {
  CudaDevice &device = from.backend->device();
  const FunctionCall &call = from.backend->begunCall();
  const StageSteps *steps = to.backend->executor().stage()->of(*call.function);
  if (!steps)
    return {Code::Incompatible, "stages are on GPUs of different kinds, for which the plan has "
                                "different launches"};
  if (to.hasEnded)
    GPT2C_CUDA(device.api(), streamWaitEvent, device.stream(), to.ended, 0u);
  for (const size_t buffer : steps->given) {
    auto at = from.backend->executor().placeOf(*call.function, buffer, call.symbols);
    auto there = to.backend->executor().placeOf(*call.function, buffer, call.symbols);
    if (!at || !there)
      return at ? there.status() : at.status();
    if (Status s = device.beginCopy(there->first, at->first, at->second); !s.ok())
      return s;
  }
  GPT2C_CUDA(device.api(), eventRecord, from.handed, device.stream());
  return {};
}

/// Waits for the oldest group that is under way.
Status CudaStages::collectGroup() {
  const std::shared_ptr<Call> call = flying_.front();
  Result<RowsOutput> given = last().extended();
  if (!given)
    return given.status();
  for (size_t place = 1; place < teams_.back().size(); ++place)
    if (Result<RowsOutput> other = teams_.back()[place].backend->extended(); !other)
      return other.status();
  flying_.pop_front();
  addGroup(call->groups[call->collected++], given.take(), call->out);
  return {};
}

Result<RowsOutput> CudaStages::extended() {
  if (calls_.empty())
    return {Code::Usage, "extended: no call is begun and not collected"};
  const std::shared_ptr<Call> call = calls_.front();
  while (call->collected < call->groups.size())
    if (Status s = collectGroup(); !s.ok()) {
      calls_.pop_front();
      return s;
    }
  calls_.pop_front();
  return call == before_ ? call->out : std::move(call->out);
}

//===-- host pages --------------------------------------------------------------------------===//

Status CudaStages::allocateHostPages(int32_t count, bool checks) {
  const Status s =
      forAll([&](Rank &rank) { return rank.backend->allocateHostPages(count, checks); });
  state_ = stateNow();
  return s;
}

Status CudaStages::movePages(std::span<const PageMove> moves) {
  return forAll([&](Rank &rank) { return rank.backend->movePages(moves); });
}

/// A page is moved where it is on all.
Result<MovedPages> CudaStages::movedPages(bool waits) {
  MovedPages all;
  bool isFirst = true;
  Status s = forAll([&](Rank &rank) -> Status {
    Result<MovedPages> one = rank.backend->movedPages(waits);
    if (!one)
      return one.status();
    all.out = isFirst ? one->out : std::min(all.out, one->out);
    all.in = isFirst ? one->in : std::min(all.in, one->in);
    all.outSeconds = std::max(all.outSeconds, one->outSeconds);
    all.inSeconds = std::max(all.inSeconds, one->inSeconds);
    isFirst = false;
    return {};
  });
  return s.ok() ? Result<MovedPages>(all) : Result<MovedPages>(s);
}

Result<std::vector<HostTensor>> CudaStages::run(const plan::FunctionT &function,
                                                std::span<const HostTensor>,
                                                std::span<const int64_t>) {
  return {Code::Unsupported, "@" + function.name +
                                 " does not run in stages on GPUs, each of which has some of the "
                                 "layers of what generates: run it on one, or with --device=cpu"};
}

} // namespace gpt2c::rt::cuda
