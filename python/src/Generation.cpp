#include "python/src/Generation.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <sys/eventfd.h>
#include <unistd.h>

namespace gpt2c::python {

namespace {

std::mutex registryMutex;

std::set<Generation *> &registry() {
  static std::set<Generation *> all;
  return all;
}

int openDescriptor() {
  const int fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fd < 0)
    throw StatusError(
        {rt::Code::Io, std::string("no descriptor for a generation: ") + std::strerror(errno)});
  return fd;
}

} // namespace

Generation::Generation(SessionPtr session, std::shared_ptr<const rt::Tokenizer> tokenizer,
                       std::vector<Request> requests, int64_t slide, rt::EngineThread *engine)
    : session_(std::move(session)), tokenizer_(std::move(tokenizer)),
      requests_(std::move(requests)), slide_(slide), engine_(engine), running_(requests_.size()) {
  for (size_t i = 0; i < requests_.size(); ++i) {
    requests_[i].tokenizer = tokenizer_.get();
    if (!engine_ && requests_[i].promptLogprobs >= 0)
      throw StatusError({rt::Code::Unsupported,
                         "prompt_logprobs are the engine's: the plan has none on this device, or "
                         "answers slide"});
    if (rt::Status s = engine_ ? engine_->check(requests_[i]) : rt::Status(); !s.ok())
      throw StatusError({s.code(), "answer " + std::to_string(i + 1) + " of " +
                                       std::to_string(requests_.size()) + ": " + s.message()});
  }
  descriptor_ = openDescriptor();
  if (engine_)
    submit();
  else
    thread_ = std::thread([this] { run(); });
  std::lock_guard lock(registryMutex);
  registry().insert(this);
}

Generation::~Generation() {
  {
    std::lock_guard lock(registryMutex);
    registry().erase(this);
  }
  cancel();
  ::close(descriptor_);
}

void Generation::submit() {
  for (size_t i = 0; i < requests_.size(); ++i)
    ids_.push_back(
        engine_
            ->submit(requests_[i], [this, i](rt::Update &&update) { take(i, std::move(update)); })
            .id);
}

/// On the engine's thread.
void Generation::take(size_t index, rt::Update &&update) {
  rt::AnswerPiece piece{.choice = std::move(update.choice), .text = std::move(update.text)};
  if (update.ending) {
    piece.finish = update.ending->reason;
    piece.stopToken = update.ending->stopToken;
    piece.stopString = update.ending->stopString;
  }
  const bool failed = piece.finish == rt::Finish::Failed;
  if (!failed)
    push(index, std::move(piece), std::move(update.prompt));
  if (!update.ending)
    return;
  std::lock_guard lock(mutex_);
  if (failed && status_.ok())
    status_ = update.ending->status;
  done_ = --running_ == 0;
  wake();
}

/// A session knows one set of ends for all answers of a call. They matter where tokens are kept
/// away until an end may come.
static rt::Status readEnds(const std::vector<Request> &requests, rt::GenerateOptions &options) {
  const Request &first = requests.front();
  bool same = true, matters = false;
  for (const Request &r : requests) {
    same = same && r.stopTokens == first.stopTokens && r.minTokens == first.minTokens;
    matters = matters || r.minTokens > 0 || r.sampling.constraint;
  }
  if (matters && !same)
    return {rt::Code::Unsupported, "where the plan has no engine, or answers slide, min_tokens and "
                                   "structured outputs take prompts that have the same min_tokens "
                                   "and the same ends"};
  options.minNewTokens = first.minTokens;
  if (same)
    options.stopTokens = first.stopTokens;
  return {};
}

void Generation::run() {
  Turn turn(session_->queue);
  while (!turn.hasCome())
    if (cancelled_)
      return finish({});
  session_->usedBesideEngine = true;
  rt::Session &session = session_->session;
  rt::GenerateOptions options;
  if (rt::Status s = readEnds(requests_, options); !s.ok())
    return finish(s);
  options.maxNewTokens = 1;
  options.slide = slide_;
  std::vector<rt::Tokens> prompts;
  for (Request &r : requests_) {
    options.maxNewTokens = std::max(options.maxNewTokens, r.maxTokens);
    options.sampling.push_back(r.sampling);
    prompts.push_back(r.prompt);
    if (session.hasKvState() && slide_ < 0)
      r.room = rt::roomBehind(int64_t(r.prompt.size()), session.plan().meta().kv->max_context);
    answers_.emplace_back(r, tokenizer_.get());
  }
  options.onToken = [this](size_t i, const rt::Choice &choice) { return onToken(i, choice); };
  options.goesOn = [this] { return !cancelled_; };
  rt::Result<rt::Generated> generated = session.generate(prompts, options);
  if (generated)
    for (size_t i = 0; i < answers_.size(); ++i)
      if (!answers_[i].ended())
        push(i, answers_[i].end(generated->finish[i]));
  finish(generated.status());
}

bool Generation::onToken(size_t index, const rt::Choice &choice) {
  push(index, answers_[index].push(choice));
  return !answers_[index].ended();
}

void Generation::push(size_t index, rt::AnswerPiece piece, std::vector<rt::Choice> prompt) {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
  std::lock_guard lock(mutex_);
  if (cancelled_)
    return;
  events_.push_back({index, std::move(piece), std::move(prompt), seconds.count()});
  wake();
}

void Generation::finish(rt::Status status) {
  std::lock_guard lock(mutex_);
  status_ = std::move(status);
  done_ = true;
  wake();
}

/// Under the lock: whoever sees done_ may end this object.
void Generation::wake() {
  changed_.notify_all();
  (void)!::eventfd_write(descriptor_, 1);
}

bool Generation::waitFor(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, time, [this] { return done_ || !events_.empty(); });
}

std::vector<Event> Generation::takeEvents() {
  eventfd_t count;
  (void)!::eventfd_read(descriptor_, &count);
  std::lock_guard lock(mutex_);
  std::vector<Event> events = std::exchange(events_, {});
  if (cancelled_)
    events.clear();
  return events;
}

bool Generation::ended() {
  std::lock_guard lock(mutex_);
  return done_ && (cancelled_ || events_.empty());
}

rt::Status Generation::status() {
  std::lock_guard lock(mutex_);
  return status_;
}

void Generation::stop() {
  if (cancelled_.exchange(true))
    return;
  for (rt::RequestId id : ids_)
    engine_->cancel(id);
}

void Generation::cancel() {
  stop();
  std::lock_guard joining(joining_);
  if (thread_.joinable())
    thread_.join();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_; });
}

void Generation::cancelAll() {
  std::lock_guard lock(registryMutex);
  for (Generation *g : registry())
    g->cancel();
}

} // namespace gpt2c::python
