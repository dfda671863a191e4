// lost_step PLAN N,M: ranks of a plan whose decode step is one kernel on each, on GPUs N and M. The
// last one comes to a step and launches nothing: the other's kernel ends, with an error that names
// rank and round, which the next step has, too.
#include "runtime/cuda/CudaBackendClass.h"
#include "tests/e2e/common/Program.h"

#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>

using namespace gpt2c;
using e2e::fail;
using e2e::need;

namespace {

/// Ranks of one process, which do no more than meet.
class Meeting : public rt::RankLink {
public:
  Meeting(int rank, int size, std::barrier<> &all) : rank_(rank), size_(size), all_(all) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  rt::Status gather(std::span<const std::byte>, std::span<std::byte>) override {
    all_.arrive_and_wait();
    return {};
  }
  rt::Status send(int, std::span<const std::byte>) override { return {}; }
  rt::Status receive(int, std::span<std::byte>) override { return {}; }

private:
  int rank_, size_;
  std::barrier<> &all_;
};

using Ranks = std::vector<std::unique_ptr<rt::cuda::CudaBackend>>;

Ranks open(const rt::Plan::Ptr &plan, const char *ordinals, double patience) {
  std::vector<std::shared_ptr<rt::cuda::CudaDevice>> devices;
  std::stringstream list(ordinals);
  for (std::string one; std::getline(list, one, ',');)
    devices.push_back(need(rt::cuda::CudaDevice::open(std::atoi(one.c_str()))));
  auto ends = need(rt::cuda::Exchange::connect(devices, patience, uint64_t(1) << 20));
  Ranks ranks;
  std::vector<rt::cuda::CudaBackend *> all;
  for (size_t r = 0; r < devices.size(); ++r) {
    ranks.push_back(need(rt::cuda::openBackend(devices[r], plan, std::move(ends[r]))));
    all.push_back(ranks.back().get());
  }
  need(rt::cuda::joinRanks(all));
  return ranks;
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 3)
    fail("usage: lost_step PLAN N,M");
  constexpr double patience = 0.25; // of a clock that is slower than the host's
  const rt::Plan::Ptr plan = need(rt::Plan::open(argv[1]));
  Ranks ranks = open(plan, argv[2], patience);
  std::barrier<> met(std::ptrdiff_t(ranks.size()));
  std::vector<std::unique_ptr<Meeting>> links;
  for (size_t r = 0; r < ranks.size(); ++r) {
    links.push_back(std::make_unique<Meeting>(int(r), int(ranks.size()), met));
    ranks[r]->setLink(*links.back());
  }
  const std::vector<rt::Tokens> prompt = {{3, 1, 4, 1, 5}};
  const std::vector<int32_t> past = {0};
  rt::Status lost, again;
  std::vector<rt::Tokens> chosen(ranks.size());
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks.size(); ++r)
    threads.emplace_back([&, r] {
      rt::cuda::CudaBackend &rank = *ranks[r];
      need(rank.prefill(prompt, past, false));
      chosen[r] = need(rank.decode(1))[0];
      if (r + 1 == ranks.size())
        return met.arrive_and_drop(); // to the next step, of which it launches nothing
      const rt::Status status = rank.decode(1).status(), behind = rank.decode(1).status();
      if (r == 0) {
        lost = status;
        again = behind;
      }
    });
  for (std::thread &t : threads)
    t.join();
  for (const rt::Tokens &of : chosen)
    if (of != chosen[0])
      fail("ranks chose other tokens");
  const std::string whom = "in vain for rank " + std::to_string(ranks.size() - 1) + ", in round ";
  if (lost.code() != rt::Code::Cuda || lost.message().find(whom) == std::string::npos)
    fail("no error that says whom the step waited for: " + lost.message());
  if (again.message() != lost.message())
    fail("the step behind it has another error: " + again.message());
  std::printf("%s\n", lost.message().c_str());
  return 0;
}
