// Ranks as threads, and as ends of sockets: a call reaches all, a rank that fails ends it on all
// with its name, and the next call is made as if nothing had been.
#include "runtime/group/GroupBackend.h"
#include "runtime/group/SocketRanks.h"
#include "runtime/group/ThreadRanks.h"
#include "tests/unit/runtime/PlanSample.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include <unistd.h>

namespace gpt2c::rt {
namespace {

/// A rank whose step is a sum over all ranks of token + rank: each stage adds its team's to what
/// the stage before hands on. A token of 1000 + r makes rank r fail ahead of the sum, one of 2000 +
/// r behind it.
class SummingRank : public Backend {
public:
  explicit SummingRank(RankLink &link) : link_(link) {}
  std::string name() const override { return "sums"; }
  std::string kind() const override { return "toy"; }
  std::span<const std::unique_ptr<plan::FunctionT>> functions() const override { return {}; }

  Result<StepOutput> prefill(std::span<const Tokens>, std::span<const int32_t>, bool) override {
    return StepOutput();
  }
  Result<std::vector<Tokens>> decode(int) override { return std::vector<Tokens>(); }
  Result<StepOutput> step(std::span<const int32_t> tokens, bool) override {
    if (tokens[0] == 1000 + link_.rank())
      return {Code::OutOfMemory, "no room"};
    if (Status s = link_.meet(); !s.ok())
      return s;
    const int32_t mine = tokens[0] + link_.rank();
    std::vector<int32_t> all(size_t(link_.teamSize()));
    if (Status s = link_.gather(std::as_bytes(std::span(&mine, 1)),
                                std::as_writable_bytes(std::span(all)));
        !s.ok())
      return s;
    StepOutput out;
    out.next.push_back(0);
    if (Status s =
            link_.stage() > 0 ? receive(link_.rank() - link_.teamSize(), out.next[0]) : Status();
        !s.ok())
      return s;
    if (tokens[0] == 2000 + link_.rank())
      return {Code::OutOfMemory, "no room behind"};
    for (int32_t v : all)
      out.next[0] += v;
    return exchanged(out.next[0]).ok() ? Result<StepOutput>(out) : exchanged_;
  }
  Result<std::vector<HostTensor>> run(const plan::FunctionT &, std::span<const HostTensor>,
                                      std::span<const int64_t>) override {
    return std::vector<HostTensor>();
  }
  Status writeKv(int, plan::KvPart, const HostTensor &values) override {
    written_ = values;
    return {};
  }
  Result<HostTensor> readKv(int, plan::KvPart, int64_t, int64_t) override { return written_; }

private:
  Status receive(int from, int32_t &value) {
    return link_.receive(from, std::as_writable_bytes(std::span(&value, 1)));
  }
  /// The sum goes to the stage behind, from the last one to all.
  Status exchanged(int32_t &sum) {
    const int team = link_.teamSize(), last = link_.size() - team + link_.placeInTeam();
    const auto bytes = std::as_bytes(std::span(&sum, 1));
    exchanged_ = Status();
    if (link_.rank() != last) {
      exchanged_ = link_.send(link_.rank() + team, bytes);
      return exchanged_.ok() ? exchanged_ = receive(last, sum) : exchanged_;
    }
    for (int to = link_.placeInTeam(); to < last && exchanged_.ok(); to += team)
      exchanged_ = link_.send(to, bytes);
    return exchanged_;
  }

  RankLink &link_;
  Status exchanged_;
  HostTensor written_;
};

/// Three heads of keys over as many ranks: [0 1 | 2 -] of two, [0 | 1 | 2] of three.
Plan::Ptr planFor(int ranks) {
  sample::Sample made;
  auto division = std::make_unique<plan::RanksT>();
  division->tensor = ranks;
  division->kv_heads =
      ranks == 2 ? std::vector<int32_t>{0, 1, 2, -1} : std::vector<int32_t>{0, 1, 2};
  if (ranks > 1)
    made.meta().ranks.push_back(std::move(division));
  const auto path = std::filesystem::temp_directory_path() /
                    ("gpt2c-group-" + std::to_string(::getpid()) + ".plan");
  EXPECT_TRUE(writePlan(path, made.contents).ok());
  Result<Plan::Ptr> plan = Plan::open(path);
  std::filesystem::remove(path);
  EXPECT_TRUE(plan) << plan.status().message();
  return *plan;
}

struct Way {
  int ranks;
  bool sockets;
  int stages = 1;
};
void PrintTo(const Way &way, std::ostream *out) {
  *out << way.ranks << (way.sockets ? " by sockets" : " threads") << ", stages: " << way.stages;
}

class Group : public testing::TestWithParam<Way> {
protected:
  void SetUp() override {
    const Plan::Ptr plan = planFor(GetParam().ranks / GetParam().stages);
    auto open = [](RankLink &link) -> Result<std::unique_ptr<Backend>> {
      return std::unique_ptr<Backend>(std::make_unique<SummingRank>(link));
    };
    if (!GetParam().sockets) {
      take(openThreadRanks(plan, {GetParam().ranks, GetParam().stages}, open));
      return;
    }
    Rendezvous at{.ranks = GetParam().ranks,
                  .stages = GetParam().stages,
                  .address = "127.0.0.1",
                  .port = freePort()};
    ended_.resize(size_t(at.ranks));
    for (int r = 1; r < at.ranks; ++r)
      followers_.emplace_back([this, plan, at, open, r]() mutable {
        at.rank = r;
        ended_[size_t(r)] = followRank(plan, at, open);
      });
    take(openSocketRanks(plan, at, open));
  }
  void TearDown() override {
    group_.reset();
    for (std::thread &t : followers_)
      t.join();
    for (const Status &s : ended_)
      EXPECT_TRUE(s.ok()) << s.message();
  }

  void take(Result<std::unique_ptr<Backend>> opened) {
    ASSERT_TRUE(opened) << opened.status().message();
    group_ = opened.take();
  }

  /// One that nobody listened at a moment ago.
  static int freePort() {
    for (int port = 20000 + ::getpid() % 20000;; ++port)
      if (Socket::listenAt("127.0.0.1", port))
        return port;
  }

  Result<StepOutput> step(int32_t token) { return group_->step(std::vector{token}, false); }
  void expectSum(int32_t token) {
    const Result<StepOutput> out = step(token);
    const int ranks = GetParam().ranks;
    ASSERT_TRUE(out) << out.status().message();
    EXPECT_EQ(out->next[0], ranks * token + ranks * (ranks - 1) / 2);
  }

  std::unique_ptr<Backend> group_;
  std::vector<std::thread> followers_;
  std::vector<Status> ended_;
};

TEST_P(Group, MakesCallsTogether) {
  for (int32_t i = 0; i < 300; ++i)
    expectSum(i);
  const std::string stages =
      GetParam().stages > 1 ? " in " + std::to_string(GetParam().stages) + " stages" : "";
  EXPECT_EQ(group_->name(), "sums, " + std::to_string(GetParam().ranks) + " ranks" + stages);
}

TEST_P(Group, AFailureIsNamedAndForgotten) {
  for (int when : {1000, 2000})
    for (int r = 0; r < GetParam().ranks; ++r) {
      const Status s = step(when + r).status();
      EXPECT_EQ(s.code(), Code::OutOfMemory) << s.message();
      const std::string who = r > 0 ? "rank " + std::to_string(r) : "";
      EXPECT_NE(s.message().find(who), std::string::npos) << s.message();
      EXPECT_NE(s.message().find("no room"), std::string::npos) << s.message();
      expectSum(5);
    }
}

TEST_P(Group, DealsHeadsAndCollectsThem) {
  if (GetParam().stages > 1)
    GTEST_SKIP() << "each stage has its own layers";
  HostTensor values(plan::DType::F16, {2, 3, 4, 4});
  for (size_t i = 0; i < values.values<uint16_t>().size(); ++i)
    values.values<uint16_t>()[i] = uint16_t(i);
  ASSERT_TRUE(group_->writeKv(0, plan::KvPart::Key, values).ok());
  const Result<HostTensor> read = group_->readKv(0, plan::KvPart::Key, 2, 4);
  ASSERT_TRUE(read) << read.status().message();
  EXPECT_EQ(read->data, values.data);
}

INSTANTIATE_TEST_SUITE_P(Ways, Group,
                         testing::Values(Way{2, false}, Way{3, false}, Way{2, true}, Way{3, true},
                                         Way{2, false, 2}, Way{4, false, 2}, Way{2, true, 2},
                                         Way{4, true, 2}, Way{6, true, 2}),
                         [](const auto &info) {
                           return (info.param.sockets ? "Sockets" : "Threads") +
                                  std::to_string(info.param.ranks) + "Of" +
                                  std::to_string(info.param.stages);
                         });

TEST(Rendezvous, SaysWhatIsMissing) {
  for (const char *name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"})
    ::unsetenv(name);
  EXPECT_EQ(rendezvousOfEnvironment().status().message(), "--ranks=env: WORLD_SIZE is not set");
  ::setenv("WORLD_SIZE", "2", 1);
  ::setenv("RANK", "2", 1);
  EXPECT_EQ(rendezvousOfEnvironment().status().message(),
            "--ranks=env: RANK=2 is no number from 0 to 1");
  ::setenv("RANK", "1", 1);
  ::setenv("MASTER_PORT", "29500", 1);
  EXPECT_EQ(rendezvousOfEnvironment().status().message(), "--ranks=env: MASTER_ADDR is not set");
  ::setenv("MASTER_ADDR", "host", 1);
  const Result<Rendezvous> at = rendezvousOfEnvironment();
  ASSERT_TRUE(at);
  EXPECT_EQ(at->port, 29500);
  ::setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  EXPECT_EQ(rendezvousOfEnvironment()->port, 29501) << "torchrun listens at the other";
  for (const char *name :
       {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"})
    ::unsetenv(name);
}

} // namespace
} // namespace gpt2c::rt
