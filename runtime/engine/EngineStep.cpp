// One step of an engine: plan a call, begin it, take the results of the one before.
//
// The order of the device's work is that of the calls, so the next call is begun before the last
// one's results were read wherever it does not need them: a token that the device chooses is
// carried from call to call. If such a sequence turns out to have ended, the row that was begun for
// it writes into a page that is the next owner's by then; that owner's calls come later and write
// every position before they read it.
#include "runtime/engine/EngineSequence.h"
#include "runtime/sampling/Logits.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

namespace gpt2c::rt {

/// A call in the making.
struct Engine::NextCall {
  std::vector<Segment> segments;
  Call parts;
  std::vector<Sequence *> sequences; ///< of each segment
  int32_t rows = 0;
};

/// A bias that no logit outweighs.
static constexpr double kForces = 1e30;

/// In the place of a token that is carried.
static constexpr int32_t carried[1] = {0};

Status Engine::step() {
  if (stepping_ || delivering_)
    return {Code::Usage, "a callback of an engine called step()"};
  stepping_ = true;
  Status status;
  if (waitsForHost())
    status = collect();
  if (status.ok()) {
    admit();
    status = takeTurns();
  }
  if (status.ok()) {
    NextCall next;
    planNextTokens(next);
    planPrompts(next);
    const bool begins = !next.segments.empty();
    if (begins)
      status = begin(next);
    if (status.ok() && (calls_.size() > 1 || (!begins && !calls_.empty())))
      status = collect();
    else if (status.ok() && !begins && swap_)
      status = swap_->wait(); // for somebody's turn
  }
  if (!status.ok())
    status = fail(std::move(status));
  stepping_ = false;
  deliver();
  return status;
}

/// Whether the next token of a sequence in the newest call is chosen on the host.
bool Engine::waitsForHost() const {
  return !calls_.empty() && std::ranges::any_of(calls_.back(), [&](const Part &part) {
    auto it = running_.find(part.id);
    return part.chooses && it != running_.end() && it->second->onHost();
  });
}

//===-- the next call -----------------------------------------------------------------------===//

void Engine::addSegment(NextCall &next, Sequence &s, int32_t rows, int32_t carry) {
  const int32_t to = s.begun + rows;
  while (int64_t(s.pages.size()) * pool_.pageTokens() < to) {
    assert(!swap_ && "a turn has pages for all of its tokens");
    s.pages.push_back(pool_.take());
    --s.reserved;
  }
  if (swap_) {
    s.frames.clear();
    for (const int32_t page : s.pages)
      s.frames.push_back(swap_->placeOf(page));
    counted_.pagesRead +=
        std::ranges::count_if(s.frames, [&](int32_t place) { return place >= paged_.pages; });
  }
  const bool prompt = s.isPrompt(), chooses = to >= s.inPieces, scores = s.scores() && !chooses;
  // A greedy choice is made among what is no number as well; the largest logit is not.
  const bool checks =
      chooses && !s.sampler && options_.checkPrompts && prompt && s.newTokens() == 0;
  const bool isForced = s.pending > 0 && !s.forced.empty();
  const size_t ahead = isForced ? size_t(rows) : 0; // of what is forced
  const int32_t known = ahead < s.forced.size() ? s.forced[ahead] : -1;
  s.forcedRows = int32_t(ahead);
  std::optional<SampledChoice> sampled;
  if (chooses && s.sampler && s.onDevice && known < 0)
    sampled = s.sampler->choiceAt(to);
  else if (checks && backend_.samples())
    sampled = SampledChoice{.row = {.position = to, .mode = SampleRow::Largest}};
  if (scores && backend_.samples()) {
    s.wanted = {.id = s.tokens[size_t(to)], .bias = kForces};
    sampled = SampledChoice{
        .row = {.position = to, .mode = SampleRow::Largest, .report = s.request.promptLogprobs},
        .adjustments = {&s.wanted, 1}};
  }
  const bool logits = (chooses && (s.onHost() || (checks && !sampled))) || (scores && !sampled);
  next.segments.push_back(
      {.tokens = carry >= 0 ? std::span<const int32_t>(carried)
                 : isForced ? std::span<const int32_t>(s.forced).first(ahead)
                            : std::span<const int32_t>(s.tokens).subspan(s.begun, rows),
       .past = s.begun,
       .pages = swap_ ? s.frames : s.pages,
       .carry = carry,
       .wantLogits = logits,
       .sampled = sampled});
  const bool reports = sampled && sampled->row.report >= 0;
  next.parts.push_back({s.id, rows, prompt, chooses, logits, reports, scores, known});
  next.sequences.push_back(&s);
  next.rows += rows;
}

/// The sequences whose prompt is through and that go on. `ahead`: rows that they could have beside
/// one of each, of tokens that must come.
std::vector<Engine::Sequence *> Engine::findNextTokens(int64_t &ahead) {
  const auto rows = int64_t(rowBudget_) - std::ranges::count_if(running_, [](const auto &entry) {
                      return entry.second->runs() && !entry.second->isPrompt();
                    });
  std::vector<Sequence *> out;
  for (auto &[id, s] : running_) {
    const int64_t left = s->request.mostTokens() - s->newTokens() - s->pending;
    if (!s->runs() || s->isPrompt() || left <= 0 || room(*s) == 0)
      continue;
    if (s->forced.empty() && s->pending && s->sampler && s->onDevice)
      s->forced = s->sampler->force(std::min(left, rows - ahead + 1));
    const auto known = int32_t(s->forced.size());
    if (known > 0 && s->sampler->completeBehindForced()) {
      s->forcedRows = known;
      continue;
    }
    ahead += s->pending ? std::max(0, known - 1) : 0;
    out.push_back(s.get());
  }
  return out;
}

/// A row for every sequence whose prompt is through. There is room: limits_.sequences is at most
/// the row budget. Tokens that must come are rows as well, as far as there is room, but where a
/// call of single tokens alone is the faster one: they have to be more than the sequences then, so
/// that the call makes more than twice as many tokens.
void Engine::planNextTokens(NextCall &next) {
  int64_t ahead = 0;
  const std::vector<Sequence *> going = findNextTokens(ahead);
  const bool isMixed = std::ranges::any_of(
      running_, [](const auto &entry) { return entry.second->runs() && entry.second->isPrompt(); });
  const bool takesAll =
      isMixed || going.size() > size_t(paged_.maxSteps) || ahead > int64_t(going.size());
  int64_t spare = takesAll ? int64_t(rowBudget_) - int64_t(going.size()) : 0;
  for (Sequence *s : going) {
    if (!s->pending || s->forced.empty()) {
      addSegment(next, *s, 1, s->pending ? s->segment : -1);
      continue;
    }
    const int64_t more = std::min({spare, int64_t(s->forced.size()) - 1, room(*s) - 1});
    addSegment(next, *s, int32_t(1 + more), -1);
    spare -= more;
  }
}

/// Pieces of prompts in what is left of the row budget, oldest request first.
void Engine::planPrompts(NextCall &next) {
  const int32_t size = pool_.pageTokens();
  // Pages that this call fills: one that would fill the same waits, and finds them cached then.
  std::set<std::pair<PageEntry, uint64_t>> filling;
  for (auto &[id, s] : running_) {
    if (next.rows >= rowBudget_)
      return;
    if (!s->runs() || !s->isPrompt())
      continue;
    if (s->scores()) { // of each row the next token is asked, and a segment has one choice
      addSegment(next, *s, 1, -1);
      continue;
    }
    adopt(*s);
    if (room(*s) == 0)
      continue;
    const int32_t page = s->begun / size;
    if ((page + 1) * size < s->inPieces) {
      const PageEntry parent = page ? pool_.entryOf(s->pages[page - 1]) : s->root;
      const auto tokens = std::span<const int32_t>(s->tokens).subspan(page * size, size);
      const bool isNew = filling.emplace(parent, PagePool::hashOf(parent, tokens)).second;
      if (!isNew && s->begun % size == 0)
        continue;
    }
    const int64_t rows = std::min<int64_t>(rowBudget_ - next.rows, s->inPieces - s->begun);
    addSegment(next, *s, int32_t(std::min(rows, room(*s))), -1);
  }
}

Status Engine::begin(NextCall &next) {
  if (calls_.empty())
    busySince_ = collected_ = Clock::now();
  if (Status s = backend_.extend(next.segments); !s.ok())
    return s;
  ++counted_.calls;
  counted_.rows += next.rows;
  counted_.segments += int64_t(next.parts.size());
  for (size_t i = 0; i < next.parts.size(); ++i) {
    Sequence &s = *next.sequences[i];
    const Part &part = next.parts[i];
    counted_.promptRows += part.isPrompt ? part.rows : 0;
    s.begun += part.rows;
    s.pending += part.chooses;
    s.segment = int32_t(i);
    publish(s);
  }
  calls_.push_back(std::move(next.parts));
  return {};
}

//===-- its results -------------------------------------------------------------------------===//

Status Engine::collect() {
  Result<RowsOutput> out = backend_.extended();
  const Call call = std::move(calls_.front());
  calls_.pop_front();
  if (calls_.empty()) {
    counted_.busySeconds += std::chrono::duration<double>(Clock::now() - busySince_).count();
    busySince_ = Clock::now();
  }
  if (!out)
    return out.status();
  counted_.lost.clear();
  time(call);
  const auto wanted = size_t(std::ranges::count_if(call, &Part::logits));
  const size_t width = wanted ? out->logits.size() / wanted : 0;
  if (out->next.size() != call.size() || (wanted && width < size_t(limits_.vocabulary)))
    return {Code::Corrupt, backend_.name() + " gave " + std::to_string(out->next.size()) +
                               " choices and " + std::to_string(out->logits.size()) +
                               " logits for " + std::to_string(call.size()) + " segments"};
  if (out->reports.size() != size_t(std::ranges::count_if(call, &Part::reports)))
    return {Code::Corrupt, backend_.name() + " gave " + std::to_string(out->reports.size()) +
                               " reports of log probabilities"};
  std::span<const float> logits = out->logits;
  auto report = out->reports.begin();
  for (size_t i = 0; i < call.size(); ++i) {
    std::span<const float> row;
    if (call[i].logits) {
      row = logits.first(width);
      logits = logits.subspan(width);
    }
    const LogprobReport *reported = call[i].reports ? &*report++ : nullptr;
    if (!call[i].chooses && !call[i].scores)
      continue;
    if (auto it = running_.find(call[i].id); it == running_.end())
      counted_.wastedRows += call[i].isPrompt ? 0 : call[i].rows;
    else if (call[i].scores)
      score(*it->second, out->next[i], row, reported);
    else
      take(*it->second, call[i], out->next[i], row, reported);
  }
  return {};
}

/// What a choice that is no token stands for.
static Status notANumber(RequestId id, size_t tokens, int32_t choice) {
  return {Code::Quality, "logits behind token " + std::to_string(tokens) + " of request " +
                             std::to_string(id) +
                             (choice == choiceOfNothing
                                  ? " are all minus infinity"
                                  : " are NaN: an overflow, in fp16 most likely; compile with "
                                    "--precision=fp32")};
}

void Engine::take(Sequence &s, const Part &part, int32_t next, std::span<const float> logits,
                  const LogprobReport *report) {
  --s.pending;
  if (part.known >= 0)
    next = part.known;
  Status status;
  Choice choice{.token = next};
  if (s.sampler && s.onDevice) {
    if (next < 0)
      status = s.sampler->failure(next);
    else
      status = s.sampler->accept(next);
    choice.completes = s.sampler->complete();
    if (report) {
      choice.logprob = report->logprob;
      choice.top.assign(report->best, report->best + report->count);
    }
  } else if (s.sampler) {
    Result<Choice> chosen = s.sampler->choose(logits.first(size_t(limits_.vocabulary)));
    status = chosen.status();
    if (chosen)
      choice = chosen.take();
  } else if (part.logits) {
    status = checkLogits(logits, int64_t(s.id) - 1, int64_t(s.tokens.size()));
  }
  if (status.ok() && choice.token < 0)
    status = notANumber(s.id, s.tokens.size(), choice.token);
  const RequestId id = s.id;
  // The first is the choice.
  const auto taken =
      s.forced.begin() + std::min<int64_t>(std::max(1, s.forcedRows), int64_t(s.forced.size()));
  const std::vector<int32_t> forced(s.forced.begin(), taken);
  s.forced.erase(s.forced.begin(), taken);
  s.forcedRows = 0;
  if (status.ok())
    accept(s, std::move(choice));
  else
    end(id, s.answer.end(Finish::Failed), std::move(status));
  for (size_t i = 1; i < forced.size() && running_.contains(id); ++i)
    acceptForced(s, forced[i]);
}

/// A token that no other could take the place of, and that nobody chose.
void Engine::acceptForced(Sequence &s, int32_t token) {
  if (Status status = s.sampler->accept(token); !status.ok())
    return end(s.id, s.answer.end(Finish::Failed), std::move(status));
  ++counted_.forcedTokens;
  accept(s, {.token = token, .completes = s.sampler->complete()});
}

/// Of the prompt's next token: from the device's report, or from logits on the host.
void Engine::score(Sequence &s, int32_t next, std::span<const float> logits,
                   const LogprobReport *report) {
  const size_t at = s.scored.size() + 1;
  Choice c{.token = s.tokens[at]};
  Status status;
  if (next == choiceOfNaN)
    status = notANumber(s.id, at, next);
  LogprobReport made;
  if (status.ok() && !report) {
    status = checkLogits(logits, int64_t(s.id) - 1, int64_t(at));
    made = reportOf({.report = s.request.promptLogprobs}, logits.first(size_t(limits_.vocabulary)),
                    c.token);
  }
  if (!status.ok())
    return end(s.id, s.answer.end(Finish::Failed), std::move(status));
  const LogprobReport &r = report ? *report : made;
  // The largest of all, with the bias, is another one where this one is minus infinity.
  c.logprob = report && next != c.token ? -std::numeric_limits<double>::infinity() : r.logprob;
  c.top.assign(r.best, r.best + r.count);
  s.scored.push_back(std::move(c));
}

void Engine::accept(Sequence &s, Choice choice) {
  s.tokens.push_back(choice.token);
  ++counted_.newTokens;
  publish(s);
  AnswerPiece piece = s.answer.push(std::move(choice));
  if (piece.finish)
    return end(s.id, std::move(piece));
  updates_.push_back({.id = s.id,
                      .choice = std::move(piece.choice),
                      .text = std::move(piece.text),
                      .prompt = std::exchange(s.scored, {})});
}

} // namespace gpt2c::rt
