#include "tools/gpt2c-serve/Serve.h"
#include "tools/runtime-common/Files.h"
#include "tools/runtime-common/Report.h"
#include "tools/runtime-common/Tokens.h"

#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <functional>
#include <mutex>

namespace gpt2c {

namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void say(const std::string &line) {
  const std::string whole = line + "\n"; // one write, as threads log
  std::fwrite(whole.data(), 1, whole.size(), stderr);
}

class Program {
public:
  explicit Program(ServeFlags &flags) : flags_(flags) {}
  rt::Status run();

private:
  struct Models {
    std::shared_ptr<serve::Model> model, embedder; ///< embedder: null where there is none
  };
  rt::Result<Models> load() const;
  rt::Result<std::shared_ptr<serve::Model>> load(const std::string &plan,
                                                 serve::ModelOptions options) const;
  rt::Status askToReload();
  void signalled(int signal);
  void reload(serve::Service &service);
  void drain(serve::Service &service, serve::HttpServer &server);

  ServeFlags &flags_;
  const Clock::time_point begun_ = Clock::now();
  std::mutex mutex_; ///< of what follows
  std::condition_variable changed_;
  int ends_ = 0;         ///< signals to end
  bool starting_ = true; ///< nothing is answered yet: a signal to end does so at once
  bool loading_ = true, wantsReload_ = false;
};

} // namespace

rt::Result<Program::Models> Program::load() const {
  auto model = load(flags_.plan, flags_.model());
  if (!model)
    return model.status();
  Models out{model.take(), nullptr};
  if (flags_.embeddings.empty())
    return out;
  auto embedder = load(flags_.embeddings, flags_.embedder());
  if (!embedder)
    return inContext("--embeddings", embedder.status());
  out.embedder = embedder.take();
  if (out.embedder->generates())
    return {rt::Code::Usage, "'" + flags_.embeddings +
                                 "' gives logits: compile the model with gpt2c --output-hidden"};
  return out;
}

rt::Result<std::shared_ptr<serve::Model>> Program::load(const std::string &plan,
                                                        serve::ModelOptions options) const {
  rt::Result<std::unique_ptr<rt::Session>> session = openSession(plan, flags_.device);
  if (!session)
    return session.status();
  rt::Result<std::optional<rt::Tokenizer>> tokenizer =
      planTokenizer((*session)->plan(), flags_.tokenizer);
  if (!tokenizer)
    return tokenizer.status();
  return serve::Model::create(session.take(), tokenizer.take(), std::move(options));
}

static std::string described(const serve::Model &model) {
  if (!model.generates())
    return "'" + model.names().front() + "' on " + model.device() + ", embeddings of up to " +
           std::to_string(model.context()) + " tokens" +
           (model.tokenizer() ? "" : ", no tokenizer");
  const rt::EngineLimits &limits = model.engine().limits();
  return "'" + model.names().front() + "' on " + model.device() + ", " +
         std::to_string(limits.sequences) + " sequences at once, " + std::to_string(limits.pages) +
         " pages of " + std::to_string(limits.pageTokens) + " tokens" +
         (model.chat() ? "" : ", no chat template") + (model.tokenizer() ? "" : ", no tokenizer");
}

void Program::signalled(int signal) {
  std::lock_guard lock(mutex_);
  if (signal == SIGHUP) {
    wantsReload_ = !loading_;
  } else if (++ends_ > 1 || starting_) {
    std::fflush(stderr);
    std::_Exit(0);
  }
  changed_.notify_all();
}

rt::Status Program::askToReload() {
  std::lock_guard lock(mutex_);
  if (loading_ || wantsReload_)
    return {rt::Code::Usage, "a plan is being loaded already"};
  wantsReload_ = true;
  changed_.notify_all();
  return {};
}

/// The plan that is served goes on until the new one is there, and with its answers beyond that.
void Program::reload(serve::Service &service) {
  const Clock::time_point begun = Clock::now();
  rt::Result<Models> models = load();
  if (!models)
    return say("error: the plan was not loaded again: " + models.status().message());
  const std::string what = described(*models->model);
  service.setModel(std::move(models->model), std::move(models->embedder));
  say("reloaded in " + std::to_string(secondsSince(begun)).substr(0, 5) + " s: " + what);
}

void Program::drain(serve::Service &service, serve::HttpServer &server) {
  service.drain();
  server.drain();
  say("draining " + std::to_string(service.active()) + " requests; a second signal ends at once");
  const auto wait = [&](double seconds, const std::function<int64_t()> &left) {
    const Clock::time_point begun = Clock::now();
    std::unique_lock lock(mutex_);
    while (left() > 0 && secondsSince(begun) < seconds)
      changed_.wait_for(lock, std::chrono::milliseconds(10));
    return left();
  };
  const auto answers = [&] { return int64_t(service.active()); };
  if (const int64_t left = wait(flags_.drainTimeout, answers)) {
    say("note: " + std::to_string(left) + " requests did not end in time, and end now");
    service.cancelAll();
    wait(5, answers);
  }
  // What is made may not be sent yet: a connection ends behind its answer.
  wait(3, [&] { return service.metrics().connections.load(); });
}

rt::Status Program::run() {
  if (rt::Status s = flags_.check(); !s.ok())
    return s;
  serve::ServiceOptions options = flags_.service();
  if (flags_.logFormat != LogFormat::None)
    options.log = say;
  options.reload = [this] { return askToReload(); };
  serve::Service service(std::move(options));
  rt::Result<std::unique_ptr<serve::HttpServer>> server =
      serve::HttpServer::listen(service, flags_.http());
  if (!server)
    return server.status();
  std::signal(SIGPIPE, SIG_IGN);
  raiseFileLimit(); // a connection is a file
  (*server)->onSignals({SIGTERM, SIGINT, SIGHUP}, [this](int signal) { signalled(signal); });
  const std::string at = "http://" + flags_.http().host + ":" + std::to_string((*server)->port());
  say("listening at " + at);

  rt::Result<Models> models = load();
  if (!models)
    return models.status();
  std::string what = described(*models->model);
  if (models->embedder)
    what += "; " + described(*models->embedder);
  {
    std::lock_guard lock(mutex_);
    starting_ = false;
  }
  service.setModel(std::move(models->model), std::move(models->embedder));
  say("ready in " + std::to_string(secondsSince(begun_)).substr(0, 5) + " s: " + what);

  std::unique_lock lock(mutex_);
  for (loading_ = false; ends_ == 0; loading_ = false) {
    changed_.wait(lock, [this] { return ends_ > 0 || wantsReload_; });
    if (ends_ > 0)
      break;
    wantsReload_ = false;
    loading_ = true;
    lock.unlock();
    reload(service);
    lock.lock();
  }
  lock.unlock();
  drain(service, **server);
  return {};
}

} // namespace gpt2c

int main(int argc, char **argv) {
  gpt2c::ServeFlags flags;
  flags.flags.parse(argc, argv);
  return gpt2c::runTool([&] {
    if (gpt2c::followsRank(flags.device))
      return gpt2c::followRank(flags.plan, flags.device);
    return gpt2c::Program(flags).run();
  });
}
