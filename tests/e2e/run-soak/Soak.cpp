// e2e_soak PLAN cpu|cuda [GENERATIONS [SEED]]: generations of random batch, lengths, sampling,
// stops and cuts on one session. Each is compared with the same one on a session of its own, and
// memory stays flat: that of the process from the first tenth on, and the GPU's.
#include "runtime/cuda/CudaDevice.h"
#include "tests/e2e/common/Program.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include <unistd.h>

using namespace gpt2c;
using e2e::fail;
using e2e::need;
using e2e::open;
using rt::Tokens;

namespace {

/// Bytes of the process in memory.
int64_t residentBytes() {
  long total = 0, resident = 0;
  FILE *file = std::fopen("/proc/self/statm", "r");
  if (!file || std::fscanf(file, "%ld %ld", &total, &resident) != 2)
    fail("/proc/self/statm cannot be read");
  std::fclose(file);
  return int64_t(resident) * sysconf(_SC_PAGESIZE);
}

struct Case {
  std::vector<Tokens> prompts;
  rt::GenerateOptions options;
  int64_t calls = -1; ///< of onToken, until it ends a sequence; -1: never

  Case(std::mt19937 &random, const rt::Plan &plan) {
    auto below = [&](int64_t n) { return int64_t(random() % uint64_t(n)); };
    const int64_t context = plan.meta().kv->max_context, batch = plan.meta().kv->max_batch;
    const int64_t vocabulary = plan.meta().vocab_size;
    for (int64_t n = 1 + below(batch + 2); n > 0; --n) { // more than the batch, too
      Tokens &prompt = prompts.emplace_back();
      for (int64_t length = 1 + below(context); length > 0; --length)
        prompt.push_back(int32_t(below(vocabulary)));
    }
    options.maxNewTokens = 1 + below(context); // beyond the context, too
    if (below(3) == 0)
      options.slide = below(context / 2 + 1);
    if (below(3) == 0)
      options.stopTokens.push_back(int32_t(below(vocabulary)));
    if (below(2) == 0)
      for (size_t i = 0; i < prompts.size(); ++i) {
        rt::SamplingParams &p = options.sampling.emplace_back();
        p.temperature = double(below(3)) * 0.5;
        p.topK = int32_t(below(4)) * 5;
        p.seed = random();
      }
    if (below(8) == 0)
      calls = below(8);
  }

  rt::Generated run(rt::Session &session) {
    int64_t left = calls;
    options.onToken = [&left](size_t, const rt::Choice &) {
      const bool goesOn = left != 0;
      left -= left > 0 ? 1 : 0;
      return goesOn;
    };
    return need(session.generate(prompts, options));
  }
};

} // namespace

int main(int argc, char **argv) {
  if (argc < 3)
    fail("e2e_soak PLAN cpu|cuda [GENERATIONS [SEED]]");
  const bool cuda = std::strcmp(argv[2], "cuda") == 0;
  const int count = argc > 3 ? std::atoi(argv[3]) : 300;
  std::mt19937 random(argc > 4 ? unsigned(std::atoi(argv[4])) : 20);
  const rt::Plan::Ptr plan = need(rt::Plan::open(argv[1]));
  if (!plan->meta().kv)
    fail("the plan has no KV state");
  std::shared_ptr<rt::cuda::CudaDevice> gpu;
  if (cuda)
    gpu = need(rt::cuda::CudaDevice::open());
  std::unique_ptr<rt::Session> session = open(plan, cuda);

  int64_t tokens = 0, resident = 0, free = 0;
  for (int i = 0; i < count; ++i) {
    Case c(random, *plan);
    const rt::Generated got = c.run(*session);
    const rt::Generated fresh = c.run(*open(plan, cuda));
    if (got.tokens != fresh.tokens || got.finish != fresh.finish)
      fail("generation " + std::to_string(i) + " differs from that of a fresh session");
    for (const Tokens &t : got.tokens)
      tokens += int64_t(t.size());
    if (i == count / 10) {
      resident = residentBytes();
      free = gpu ? int64_t(gpu->freeBytes()) : 0;
    }
    if ((i + 1) % 1000 == 0) // what a run that is ended has shown
      std::fprintf(stderr, "%d generations, %lld tokens, %.2f MiB\n", i + 1, (long long)tokens,
                   double(residentBytes()) / (1 << 20));
  }
  const int64_t grown = residentBytes() - resident;
  const int64_t taken = gpu ? free - int64_t(gpu->freeBytes()) : 0;
  std::printf("%d generations, %lld tokens, equal to fresh sessions; memory %.1f MiB, grown by "
              "%.2f MiB; of the GPU by %.2f MiB\n",
              count, (long long)tokens, double(resident) / (1 << 20), double(grown) / (1 << 20),
              double(taken) / (1 << 20));
  if (grown > (4 << 20) || taken > (4 << 20)) // a driver takes 2 MiB at a time
    fail("memory grows");
  return tokens > 0 ? 0 : 1;
}
