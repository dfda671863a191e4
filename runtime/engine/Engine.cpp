// Requests in and out; EngineStep.cpp has what happens in between.
#include "runtime/engine/Engine.h"

#include "runtime/engine/EngineSequence.h"

#include <algorithm>
#include <cassert>
#include <set>
#include <utility>

namespace gpt2c::rt {

static Status allocateHost(Backend &backend, const EngineOptions &options) {
  const PagedState paged = backend.pagedState();
  if (options.hostPages < 0 || options.turnTokens < 0)
    return {Code::Usage, "an engine's pages in host memory and tokens of a turn are numbers of at "
                         "least 0"};
  if (options.hostPages && options.hostBytes)
    return {Code::Usage, "an engine's host memory is pages or bytes, and both are given"};
  const uint64_t pages = options.hostBytes && paged.pageBytes ? options.hostBytes / paged.pageBytes
                                                              : uint64_t(options.hostPages);
  if (options.hostBytes && pages < 1)
    return {Code::Usage, std::to_string(options.hostBytes) +
                             " bytes of host memory hold no page, one takes " +
                             std::to_string(paged.pageBytes)};
  const auto wanted = int32_t(std::min<uint64_t>(pages, INT32_MAX / 2));
  if (wanted == 0 && paged.hostPages == 0)
    return {};
  return backend.allocateHostPages(wanted, options.checkHostPages);
}

Result<std::unique_ptr<Engine>> Engine::create(Backend &backend, const Model &model,
                                               EngineOptions options) {
  if (options.rowBudget < 0 || options.maxSequences < 0 || options.maxWaiting < 0)
    return {Code::Usage, "an engine's row budget, sequences and waiting requests are numbers of at "
                         "least 0"};
  if (backend.pagedState().pages == 0) // an engine before this one may have taken them
    if (Status s = backend.allocatePages(options.kvBytes); !s.ok())
      return s;
  PagedState paged = backend.pagedState();
  if (paged.pageTokens < 1 || paged.pages < 1 || paged.maxRows < 1 || paged.maxSegments < 1)
    return {Code::Unsupported,
            "an engine needs a KV state in pages, and on " + backend.name() + " the plan has none"};
  const int32_t rows = options.rowBudget ? options.rowBudget : std::min(paged.maxRows, 512);
  if (rows > paged.maxRows)
    return {Code::Usage, "the row budget is " + std::to_string(rows) + "; a call of this plan on " +
                             backend.name() + " takes at most " + std::to_string(paged.maxRows)};
  if (Status s = allocateHost(backend, options); !s.ok())
    return s;
  paged = backend.pagedState();
  EngineLimits limits{.vocabulary = model.vocabulary,
                      .context = model.context,
                      .pages = paged.readsHostPages ? PageSwap::pagesOf(paged) : paged.pages,
                      .hostPages = paged.hostPages,
                      .readsHostPages = paged.readsHostPages,
                      .whyNotRead = paged.whyNotRead,
                      .pageTokens = paged.pageTokens,
                      .sequences = std::min(paged.maxSegments, rows),
                      .waiting = options.maxWaiting,
                      .hasTokenizer = options.tokenizer != nullptr};
  if (options.maxSequences)
    limits.sequences = std::min(limits.sequences, options.maxSequences);
  return std::unique_ptr<Engine>(
      new Engine(backend, limits, rows, model.isBatchInvariant, std::move(options)));
}

Result<std::unique_ptr<Engine>> Engine::create(Session &session, EngineOptions options) {
  const plan::PlanT &meta = session.plan().meta();
  if (!meta.kv)
    return {Code::Unsupported, "an engine needs a plan with a KV state; the remarks of gpt2c say "
                               "why this one has none"};
  return create(session.backend(), {meta.vocab_size, meta.kv->max_context, meta.batch_invariant},
                std::move(options));
}

/// How many pages the pool has: those of the device, or of device and host together.
static int32_t pagesOf(const PagedState &paged) {
  return paged.hostPages ? PageSwap::pagesOf(paged) : paged.pages;
}

Engine::Engine(Backend &backend, const EngineLimits &limits, int32_t rowBudget,
               bool isBatchInvariant, EngineOptions options)
    : backend_(backend), options_(std::move(options)), limits_(limits), rowBudget_(rowBudget),
      paged_(backend.pagedState()), isBatchInvariant_(isBatchInvariant),
      swap_(paged_.hostPages ? std::make_unique<PageSwap>(backend) : nullptr),
      pool_(pagesOf(paged_), limits.pageTokens) {}

Engine::~Engine() {
  for (; !calls_.empty(); calls_.pop_front())
    (void)backend_.extended();
}

Submitted Engine::submit(Request request) {
  Verdict verdict = check(request, limits_, int64_t(waiting_.size()));
  if (verdict.refusal != Refusal::None)
    return {0, verdict.refusal, std::move(verdict.status)};
  const RequestId id = ++lastId_;
  request.room = roomBehind(int64_t(request.prompt.size()), limits_.context);
  const Tokenizer *tokenizer = request.tokenizer ? request.tokenizer : options_.tokenizer;
  const PageEntry root = options_.prefixCaching ? rootOf(request.cacheSalt) : pool_.newRoot();
  auto sequence = std::make_unique<Sequence>(id, std::move(request), limits_.vocabulary,
                                             backend_.samples(), tokenizer);
  sequence->root = root;
  sequence->turn = swap_ ? Sequence::Resting : Sequence::Running;
  waiting_.emplace(id, std::move(sequence));
  return {id, Refusal::None, {}};
}

bool Engine::cancel(RequestId id) {
  const Running &from = running_.contains(id) ? running_ : waiting_;
  const auto it = from.find(id);
  if (it == from.end())
    return false;
  end(id, it->second->answer.end(Finish::Caller));
  if (!stepping_)
    deliver();
  return true;
}

std::optional<Update> Engine::poll() {
  if (updates_.empty())
    return std::nullopt;
  Update first = std::move(updates_.front());
  updates_.pop_front();
  return first;
}

Result<std::optional<Update>> Engine::wait() {
  if (options_.onUpdate)
    return {Code::Usage, "an engine with a callback gives it every update: step() it"};
  for (;;) {
    if (std::optional<Update> update = poll(); update || idle())
      return update;
    if (Status s = step(); !s.ok() && updates_.empty())
      return s;
  }
}

void Engine::forget() {
  assert(idle() && "what runs needs its pages");
  pool_.forgetAll();
  if (swap_)
    swap_->reset();
}

EngineStats Engine::stats() const {
  EngineStats now = counted_;
  now.waiting = int32_t(waiting_.size());
  now.running = int32_t(running_.size());
  now.pages = pool_.pages();
  now.pagesUsed = pool_.used();
  now.pagesReserved = pool_.reserved();
  now.deviceAllocations = backend_.stats().allocations;
  addTurns(now);
  if (!calls_.empty())
    now.busySeconds += std::chrono::duration<double>(Clock::now() - busySince_).count();
  return now;
}

std::string Engine::whyWaiting() const {
  return waiting_.empty() ? std::string()
                          : whyNot(demandOf(*waiting_.begin()->second), supply(), limits_);
}

//===-- admission ---------------------------------------------------------------------------===//

/// Of sequences that take turns any number may be on their way.
Supply Engine::supply() const { return {pool_.unreserved(), swap_ ? 0 : int32_t(running_.size())}; }

/// Salts of which nothing is kept are forgotten, so there are never more than twice as many as
/// pages and requests.
PageEntry Engine::rootOf(const std::string &salt) {
  if (salt.empty())
    return 0;
  if (const auto it = roots_.find(salt); it != roots_.end())
    return it->second;
  const size_t live = size_t(pool_.pages()) + waiting_.size() + running_.size();
  if (roots_.size() >= 2 * live) {
    std::set<PageEntry> used;
    for (int32_t page = 0; page < pool_.pages(); ++page)
      used.insert(pool_.parentOf(page));
    for (const Running *all : {&waiting_, &running_})
      for (const auto &[id, s] : *all)
        used.insert(s->root);
    std::erase_if(roots_, [&](const auto &root) { return !used.contains(root.second); });
  }
  return roots_[salt] = pool_.newRoot();
}

/// The last token of a prompt is always computed: its logits are what the answer begins with.
Demand Engine::demandOf(const Sequence &s) const {
  const int32_t size = pool_.pageTokens();
  Demand demand{.pages = pagesFor(stateTokens(s.prompt, s.request.mostTokens()), size)};
  PageEntry parent = s.root;
  for (int32_t at = 0; at + size < s.prompt && !s.scores(); at += size) {
    const int32_t page = pool_.find(parent, std::span(s.tokens).subspan(at, size));
    if (page < 0)
      break;
    ++demand.hits;
    demand.idleHits += pool_.isIdle(page);
    parent = pool_.entryOf(page);
  }
  return demand;
}

void Engine::admit() {
  while (!waiting_.empty()) {
    Sequence &s = *waiting_.begin()->second;
    const Demand demand = demandOf(s);
    if (!admits(demand, supply(), limits_))
      return; // nobody overtakes it: it would wait for ever
    const int32_t size = pool_.pageTokens();
    for (int32_t i = 0; i < demand.hits; ++i) {
      const PageEntry parent = i ? pool_.entryOf(s.pages.back()) : s.root;
      s.pages.push_back(pool_.find(parent, std::span(s.tokens).subspan(i * size, size)));
      pool_.share(s.pages.back());
    }
    s.published = demand.hits;
    s.begun = s.cached = demand.hits * size;
    s.reserved = demand.pages - demand.hits;
    s.admitted = Clock::now();
    [[maybe_unused]] const bool promised = pool_.reserve(s.reserved);
    assert(promised && "admits() counts what the pool counts");
    counted_.prefixQueries += s.prompt;
    counted_.prefixHits += s.cached;
    if (swap_)
      resting_.push_back(s.id);
    running_.insert(waiting_.extract(waiting_.begin()));
  }
}

/// Takes pages of the prompt that another sequence has filled since this one was admitted.
void Engine::adopt(Sequence &s) {
  const int32_t size = pool_.pageTokens();
  while (s.begun == s.published * size &&
         (swap_ ? room(s) > 0 : size_t(s.published) == s.pages.size()) &&
         s.begun + size < s.inPieces) {
    const PageEntry parent = s.published ? pool_.entryOf(s.pages[s.published - 1]) : s.root;
    const int32_t page = pool_.find(parent, std::span(s.tokens).subspan(s.begun, size));
    if (page < 0 || (swap_ && !swap_->isHere(page)))
      return;
    if (swap_) { // in the place of one that was taken for it
      exchange(s.pages[s.published], page);
    } else {
      pool_.unreserve(1);
      --s.reserved;
      pool_.share(page);
      s.pages.push_back(page);
    }
    ++s.published;
    s.begun += size;
    if (s.inPieces == s.prompt) {
      s.cached += size;
      counted_.prefixHits += size;
    }
  }
}

/// Makes entries of the pages that are full of known tokens. Later calls may read them, also those
/// that a call not collected writes.
void Engine::publish(Sequence &s) {
  const int32_t size = pool_.pageTokens();
  const int32_t known = std::min(s.begun, int32_t(s.tokens.size()));
  for (; (s.published + 1) * size <= known; ++s.published) {
    const PageEntry parent = s.published ? pool_.entryOf(s.pages[s.published - 1]) : s.root;
    int32_t &page = s.pages[s.published];
    const int32_t mine = page;
    page = pool_.publish(mine, parent, std::span(s.tokens).subspan(s.published * size, size));
    if (swap_ && page != mine)
      merged(s, s.published, mine, page);
  }
}

//===-- endings -----------------------------------------------------------------------------===//

void Engine::giveBack(Sequence &s) {
  while (!s.pages.empty())
    release(s);
  pool_.unreserve(s.reserved);
  turns_ -= swap_ && s.turn != Sequence::Resting;
}

/// `piece` is the last one of the answer.
void Engine::end(RequestId id, AnswerPiece piece, Status status) {
  Running &from = running_.contains(id) ? running_ : waiting_;
  auto it = from.find(id);
  Sequence &s = *it->second;
  if (piece.finish != Finish::Failed)
    publish(s);
  ++counted_.ended[size_t(*piece.finish)];
  updates_.push_back({.id = id,
                      .choice = std::move(piece.choice),
                      .text = std::move(piece.text),
                      .ending = Ending{.reason = *piece.finish,
                                       .stopToken = piece.stopToken,
                                       .stopString = piece.stopString,
                                       .status = std::move(status),
                                       .promptTokens = s.prompt,
                                       .newTokens = s.newTokens(),
                                       .cachedTokens = s.cached,
                                       .admitted = s.admitted},
                      .prompt = std::exchange(s.scored, {})});
  giveBack(s);
  from.erase(it);
}

/// What the device's memory holds after a failure is not known: nothing of it is used again.
Status Engine::fail(Status status) {
  for (; !calls_.empty(); calls_.pop_front())
    (void)backend_.extended();
  counted_.busySeconds += std::chrono::duration<double>(Clock::now() - busySince_).count();
  while (!running_.empty()) {
    const auto &[id, s] = *running_.begin();
    end(id, s->answer.end(Finish::Failed), status);
  }
  pool_.forgetAll();
  if (swap_)
    swap_->reset();
  if (status.code() == Code::Cuda)
    counted_.lost = status.message();
  return status;
}

void Engine::deliver() {
  if (!options_.onUpdate || delivering_)
    return;
  delivering_ = true; // a callback that cancels adds to the queue that is being delivered
  while (std::optional<Update> update = poll())
    options_.onUpdate(*update);
  delivering_ = false;
}

} // namespace gpt2c::rt
