#include "python/src/Generation.h"

#include "runtime/text/TextStream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>
#include <sys/eventfd.h>
#include <unistd.h>

namespace gpt2c::python {

/// What has become of one request.
class Generation::Answer {
public:
  Answer(const Request &request, const rt::Tokenizer *tokenizer)
      : request_(request), tokenizer_(tokenizer), stream_(request.stops) {}

  Event take(size_t index, const rt::Choice &choice) {
    Event e{.request = index, .choice = choice};
    ++count_;
    const bool isEos = choice.token == request_.eos;
    const bool ends = isEos && !request_.ignoreEos;
    e.stopId = !ends && std::ranges::count(request_.stopIds, choice.token) > 0;
    const bool silent = isEos ? request_.skipEosText : e.stopId && !request_.includeStop;
    if (tokenizer_ && !silent)
      e.text = stream_.push(tokenizer_->tokenBytes(choice.token));
    if (stream_.stopped()) {
      e.stopString = stream_.stopIndex();
      e.stopId = false;
      if (request_.includeStop)
        e.text += request_.stops[size_t(e.stopString)];
    }
    if (ends || e.stopId || stream_.stopped())
      end(e, "stop");
    else if (count_ >= request_.maxTokens)
      end(e, "length");
    return e;
  }

  void end(Event &e, const char *why) {
    ended_ = true;
    e.finish = why;
    if (!stream_.stopped())
      e.text += stream_.finish();
  }

  bool ended() const { return ended_; }

private:
  const Request &request_;
  const rt::Tokenizer *tokenizer_;
  rt::TextStream stream_;
  int64_t count_ = 0;
  bool ended_ = false;
};

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
                       std::vector<Request> requests, int64_t slide)
    : session_(std::move(session)), tokenizer_(std::move(tokenizer)),
      requests_(std::move(requests)), slide_(slide), descriptor_(openDescriptor()) {
  for (const Request &r : requests_)
    answers_.push_back(std::make_unique<Answer>(r, tokenizer_.get()));
  {
    std::lock_guard lock(registryMutex);
    registry().insert(this);
  }
  thread_ = std::thread([this] { run(); });
}

Generation::~Generation() {
  {
    std::lock_guard lock(registryMutex);
    registry().erase(this);
  }
  cancel();
  ::close(descriptor_);
}

void Generation::run() {
  std::unique_lock lock(session_->mutex, std::defer_lock);
  while (!lock.try_lock_for(signalInterval))
    if (cancelled_)
      return finish({});
  rt::GenerateOptions options;
  options.maxNewTokens = 1;
  options.slide = slide_;
  std::vector<rt::Tokens> prompts;
  for (const Request &r : requests_) {
    options.maxNewTokens = std::max(options.maxNewTokens, r.maxTokens);
    options.sampling.push_back(r.sampling);
    prompts.push_back(r.prompt);
  }
  options.onToken = [this](size_t i, const rt::Choice &choice) { return onToken(i, choice); };
  options.goesOn = [this] { return !cancelled_; };
  rt::Result<rt::Generated> generated = session_->session.generate(prompts, options);
  lock.unlock();
  if (generated && !cancelled_)
    for (size_t i = 0; i < answers_.size(); ++i)
      if (!answers_[i]->ended()) {
        Event e{.request = i, .choice = std::nullopt};
        answers_[i]->end(e, generated->finish[i] == rt::Finish::Context ? "context" : "length");
        push(std::move(e));
      }
  finish(generated.status());
}

bool Generation::onToken(size_t index, const rt::Choice &choice) {
  if (cancelled_)
    return false;
  Answer &answer = *answers_[index];
  push(answer.take(index, choice));
  return !answer.ended();
}

void Generation::push(Event event) {
  event.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  {
    std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  changed_.notify_all();
  (void)!::eventfd_write(descriptor_, 1);
}

void Generation::finish(rt::Status status) {
  {
    std::lock_guard lock(mutex_);
    status_ = std::move(status);
    done_ = true;
  }
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

void Generation::cancel() {
  stop();
  std::lock_guard lock(joining_);
  if (thread_.joinable())
    thread_.join();
}

void Generation::cancelAll() {
  std::lock_guard lock(registryMutex);
  for (Generation *g : registry())
    g->cancel();
}

} // namespace gpt2c::python
