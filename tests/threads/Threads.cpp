// The promises of gpt2c.h about threads, under ThreadSanitizer: plans, encoding and messages shared
// by many threads, sessions of one plan side by side, a session that a second thread asks for, and
// one that another thread cancels.
#include "runtime/capi/CApi.h"
#include "runtime/cuda/CudaBackend.h"
#include "runtime/cuda/CudaRanks.h"
#include "runtime/device/WorkerThreads.h"
#include "tests/unit/runtime/engine/RandomModel.h"

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

using namespace gpt2c::rt;

#define EXPECT(condition)                                                                          \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      std::printf("FAIL: %s:%d: %s (%s)\n", __FILE__, __LINE__, #condition, gpt2c_last_error());   \
      std::exit(1);                                                                                \
    }                                                                                              \
  } while (0)

/// The machine of this test has no GPU.
// NOLINTNEXTLINE(performance-unnecessary-value-param): as it is declared
Result<std::unique_ptr<Backend>> gpt2c::rt::makeCudaBackendOn(Plan::Ptr, int) {
  return {Code::Incompatible, "no GPU here"};
}
Result<std::unique_ptr<Backend>> gpt2c::rt::makeCudaBackend(Plan::Ptr plan) {
  return makeCudaBackendOn(std::move(plan), 0);
}
Result<std::unique_ptr<Backend>>
gpt2c::rt::makeCudaRanks(const Plan::Ptr &plan, std::span<const int>, const CudaRankOptions &) {
  return makeCudaBackendOn(plan, 0);
}

constexpr int kThreads = 6, kRounds = 30;

static gpt2c_session *sessionOf(const gpt2c_plan *plan) {
  return new gpt2c_session{Session(plan->plan, std::make_unique<test::RandomModel>(5)),
                           plan->tokenizer, "nonsense"};
}

template <typename F> static void inThreads(F f) {
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&f, i] { f(i); });
  for (std::thread &t : threads)
    t.join();
}

static std::string completion(gpt2c_session *session, uint64_t seed) {
  gpt2c_sampling sampling = GPT2C_SAMPLING_INIT;
  sampling.temperature = 1;
  sampling.seed = seed;
  const char *const stops[] = {"abc", "\xE2\x82\xAC"};
  gpt2c_generate_options options = GPT2C_GENERATE_OPTIONS_INIT;
  options.sampling = &sampling;
  options.sampling_count = 1;
  options.stops = stops;
  options.stop_count = 2;
  options.ignore_eos = 1;
  std::string streamed;
  options.user = &streamed;
  options.on_token = [](void *user, const gpt2c_token *token) {
    static_cast<std::string *>(user)->append(token->text, token->text_bytes);
    return 0;
  };
  gpt2c_answers *answers = nullptr;
  EXPECT(gpt2c_complete(session, "ab", 2, &options, &answers) == GPT2C_OK);
  gpt2c_answer answer = GPT2C_ANSWER_INIT;
  EXPECT(gpt2c_answers_get(answers, 0, &answer) == GPT2C_OK);
  EXPECT(0 < answer.first_token_seconds && answer.first_token_seconds <= answer.last_token_seconds);
  EXPECT(streamed == std::string(answer.text, answer.text_bytes));
  gpt2c_answers_destroy(answers);
  return streamed;
}

/// Everything that takes a const plan, from all threads at once.
static void sharePlan(const gpt2c_plan *plan) {
  inThreads([&](int thread) {
    for (int round = 0; round < kRounds; ++round) {
      gpt2c_plan_info info = GPT2C_PLAN_INFO_INIT;
      EXPECT(gpt2c_plan_get_info(plan, &info) == GPT2C_OK && info.has_tokenizer);
      const std::string text = "hello abc " + std::to_string(thread * 1000 + round);
      std::vector<int32_t> tokens(text.size());
      size_t count = 0, bytes = 0;
      EXPECT(gpt2c_encode(plan, text.data(), text.size(), tokens.data(), tokens.size(), &count) ==
             GPT2C_OK);
      std::string back(text.size(), '\0');
      EXPECT(gpt2c_decode_text(plan, tokens.data(), count, back.data(), back.size(), &bytes) ==
             GPT2C_OK);
      EXPECT(back == text);
      const std::string nowhere = "/nowhere-" + std::to_string(thread);
      gpt2c_plan *none = nullptr;
      EXPECT(gpt2c_plan_open(nowhere.c_str(), &none) == GPT2C_IO);
      EXPECT(std::string(gpt2c_last_error()).find(nowhere) != std::string::npos);
      gpt2c_session_options options = GPT2C_SESSION_OPTIONS_INIT;
      options.device = "cuda:99";
      gpt2c_session *session = nullptr;
      EXPECT(gpt2c_session_create(plan, &options, &session) == GPT2C_INCOMPATIBLE);
    }
  });
}

/// Sessions of one plan, which is closed while they run: each thread gets the texts of its seeds.
static void sessionsSideBySide(const std::string &path) {
  gpt2c_plan *plan = nullptr;
  EXPECT(gpt2c_plan_open(path.c_str(), &plan) == GPT2C_OK);
  gpt2c_session *alone = sessionOf(plan);
  std::vector<std::string> expected;
  for (int seed = 0; seed < kRounds; ++seed)
    expected.push_back(completion(alone, uint64_t(seed)));
  gpt2c_session_destroy(alone);
  std::vector<gpt2c_session *> sessions;
  for (int i = 0; i < kThreads; ++i)
    sessions.push_back(sessionOf(plan));
  std::once_flag closed;
  inThreads([&](int thread) {
    std::call_once(closed, [&] { gpt2c_plan_close(plan); });
    for (int round = 0; round < kRounds; ++round) {
      const int seed = (round + thread) % kRounds;
      EXPECT(completion(sessions[size_t(thread)], uint64_t(seed)) == expected[size_t(seed)]);
    }
    gpt2c_session_destroy(sessions[size_t(thread)]);
  });
}

/// One session asked by all threads serves one and refuses the others.
static void oneSessionForAll(const gpt2c_plan *plan) {
  gpt2c_session *session = sessionOf(plan);
  std::atomic<int> served = 0, refused = 0;
  inThreads([&](int) {
    for (int round = 0; round < kRounds; ++round) {
      const gpt2c_status status = gpt2c_complete(session, "ab", 2, nullptr, nullptr);
      EXPECT(status == GPT2C_OK || status == GPT2C_USAGE);
      ++(status == GPT2C_OK ? served : refused);
    }
  });
  EXPECT(served > 0 && served + refused == kThreads * kRounds);
  gpt2c_session_destroy(session);
}

/// A generation ends when another thread says so, and the session serves the next one.
static void cancelled(const gpt2c_plan *plan) {
  gpt2c_session *session = sessionOf(plan);
  std::atomic<bool> runs = false;
  std::thread other([&] {
    while (!runs)
      std::this_thread::yield();
    gpt2c_session_cancel(session);
  });
  gpt2c_generate_options options = GPT2C_GENERATE_OPTIONS_INIT;
  options.max_tokens = int64_t(1) << 40;
  options.slides = 1;
  options.ignore_eos = 1;
  options.user = &runs;
  options.on_token = [](void *user, const gpt2c_token *) {
    *static_cast<std::atomic<bool> *>(user) = true;
    return 0;
  };
  gpt2c_answers *answers = nullptr;
  EXPECT(gpt2c_complete(session, "ab", 2, &options, &answers) == GPT2C_OK);
  gpt2c_answer answer = GPT2C_ANSWER_INIT;
  EXPECT(gpt2c_answers_get(answers, 0, &answer) == GPT2C_OK);
  EXPECT(0 < answer.first_token_seconds && answer.first_token_seconds <= answer.last_token_seconds);
  EXPECT(answer.finish == GPT2C_FINISH_CALLER);
  gpt2c_answers_destroy(answers);
  other.join();
  EXPECT(!completion(session, 1).empty());
  gpt2c_session_destroy(session);
}

/// Parts of short pieces of work, one piece right behind the other.
static void sharedWork() {
  WorkerThreads workers(kThreads - 1);
  std::vector<int> done(32);
  for (int round = 0; round < 200; ++round)
    workers.forEach(done.size(), [&](size_t i) { ++done[i]; });
  for (int times : done)
    EXPECT(times == 200);
}

int main() {
  sharedWork();
  test::TemporaryFolder folder;
  const std::string path = folder.path("random.plan");
  EXPECT(test::writeRandomPlan(path).ok());
  gpt2c_plan *plan = nullptr;
  EXPECT(gpt2c_plan_open(path.c_str(), &plan) == GPT2C_OK);
  sharePlan(plan);
  sessionsSideBySide(path);
  oneSessionForAll(plan);
  cancelled(plan);
  gpt2c_plan_close(plan);
  std::printf("%d threads, %d rounds: ok\n", kThreads, kRounds);
  return 0;
}
