#include "runtime/group/Rendezvous.h"

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <string_view>

namespace gpt2c::rt {

namespace {

constexpr int mostRanks = 1024;

Result<int> numberOf(const char *name, int least, int most) {
  const char *text = std::getenv(name);
  if (!text || !*text)
    return {Code::Usage, std::string("--ranks=env: ") + name + " is not set"};
  const std::string_view view(text);
  int value = 0;
  const auto [end, error] = std::from_chars(view.begin(), view.end(), value);
  if (error != std::errc() || end != view.end() || value < least || value > most)
    return {Code::Usage, std::string("--ranks=env: ") + name + "=" + text + " is no number from " +
                             std::to_string(least) + " to " + std::to_string(most)};
  return value;
}

/// What a rank says of itself when it comes.
struct Hello {
  char magic[8] = {'g', '2', 'c', 'r', 'a', 'n', 'k', '1'};
  int32_t rank = 0, ranks = 0;
  uint64_t plan = 0;
};

/// What rank 0 answers: an exit code, 0 for welcome, and a text of so many bytes behind it.
struct Answer {
  int32_t code = 0;
  uint32_t bytes = 0;
};

constexpr auto patience = std::chrono::seconds(5); // with one who came, for what he says

Clock::time_point deadlineOf(const Rendezvous &at) {
  return Clock::now() +
         std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(at.waitSeconds));
}

template <typename T> std::span<std::byte> bytesOf(T &value) {
  return std::as_writable_bytes(std::span(&value, 1));
}

void answer(const Socket &to, const Status &s) {
  Answer a{int32_t(s.code()), uint32_t(s.message().size())};
  if (to.send(bytesOf(a), patience).ok())
    (void)to.send(std::as_bytes(std::span(s.message())), patience).ok();
}

std::string secondsOf(const Rendezvous &at) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", at.waitSeconds);
  return std::string(text) + " s";
}

/// Why rank 0 does not take who says this.
Status refusal(const Rendezvous &at, uint64_t plan, const Hello &hello,
               const std::vector<Socket> &there) {
  const std::string who = "rank " + std::to_string(hello.rank);
  if (hello.ranks != at.ranks)
    return {Code::Usage, who + " says that there are " + std::to_string(hello.ranks) +
                             " ranks, rank 0 that there are " + std::to_string(at.ranks)};
  if (hello.rank < 1 || hello.rank >= at.ranks)
    return {Code::Usage, "there is no " + who + " of " + std::to_string(at.ranks)};
  if (there[size_t(hello.rank)].valid())
    return {Code::Usage, "two processes say that they are " + who};
  if (hello.plan != plan)
    return {Code::Incompatible, who + " has another plan than rank 0, or another division: give "
                                      "all ranks copies of one file, "
                                      "and the same flags"};
  return {};
}

Result<std::vector<Socket>> meetAll(const Rendezvous &at, uint64_t plan) {
  Result<Socket> door = Socket::listenAt(at.address, at.port);
  if (!door)
    return door.status();
  std::vector<Socket> there(size_t(at.ranks));
  const auto deadline = deadlineOf(at);
  for (int missing = at.ranks - 1; missing > 0;) {
    Result<Socket> came = door->accept(deadline);
    if (!came)
      return came.status();
    if (!came->valid()) {
      std::string who;
      for (int r = 1; r < at.ranks; ++r)
        if (!there[size_t(r)].valid())
          who += (who.empty() ? "rank " : ", ") + std::to_string(r);
      const Status late{Code::Io, who + " did not come to port " + std::to_string(at.port) +
                                      " within " + secondsOf(at)};
      for (const Socket &s : there)
        if (s.valid())
          answer(s, late);
      return late;
    }
    Hello hello, own;
    if (!came->receive(bytesOf(hello), patience).ok() ||
        std::memcmp(hello.magic, own.magic, sizeof own.magic) != 0)
      continue; // no rank
    if (Status s = refusal(at, plan, hello, there); !s.ok()) {
      answer(*came, s);
      for (const Socket &other : there)
        if (other.valid())
          answer(other, s);
      return s;
    }
    there[size_t(hello.rank)] = came.take();
    --missing;
  }
  for (const Socket &s : there)
    if (s.valid())
      answer(s, {});
  return there;
}

Result<std::vector<Socket>> join(const Rendezvous &at, uint64_t plan) {
  const std::string me = "rank " + std::to_string(at.rank);
  const auto deadline = deadlineOf(at);
  Result<Socket> rank0 = Socket::connectTo(at.address, at.port, deadline);
  if (!rank0 && rank0.status().code() == Code::Io)
    return {Code::Io, me + " did not reach rank 0 at " + at.address + ":" +
                          std::to_string(at.port) + " within " + secondsOf(at) + ": " +
                          rank0.status().message()};
  if (!rank0)
    return rank0.status();
  Hello hello;
  hello.rank = at.rank;
  hello.ranks = at.ranks;
  hello.plan = plan;
  Answer a;
  Status s = rank0->send(bytesOf(hello), patience);
  if (s.ok()) // all others may be late
    s = rank0->receive(bytesOf(a), deadline - Clock::now() + patience);
  std::string text(std::min<uint32_t>(a.bytes, 4096), '\0');
  if (s.ok())
    s = rank0->receive(std::as_writable_bytes(std::span(text)), patience);
  if (!s.ok())
    return {Code::Io, me + " was not taken by rank 0: " + s.message()};
  if (a.code != 0)
    return {a.code > 0 && a.code <= int(Code::OutOfMemory) ? Code(a.code) : Code::Io,
            "rank 0 refuses: " + text};
  std::vector<Socket> one;
  one.push_back(rank0.take());
  return one;
}

} // namespace

Result<Rendezvous> rendezvousOfEnvironment() {
  Rendezvous at;
  Result<int> ranks = numberOf("WORLD_SIZE", 1, mostRanks);
  if (!ranks)
    return ranks.status();
  Result<int> rank = numberOf("RANK", 0, *ranks - 1);
  if (!rank)
    return rank.status();
  Result<int> port = numberOf("MASTER_PORT", 1, 65534);
  if (!port)
    return port.status();
  const char *address = std::getenv("MASTER_ADDR");
  if (!address || !*address)
    return {Code::Usage, "--ranks=env: MASTER_ADDR is not set"};
  const char *agent = std::getenv("TORCHELASTIC_USE_AGENT_STORE");
  at.rank = *rank;
  at.ranks = *ranks;
  at.address = address;
  at.port = *port + (agent && std::string_view(agent) == "True");
  return at;
}

Result<std::vector<Socket>> meet(const Rendezvous &at, uint64_t plan) {
  return at.rank == 0 ? meetAll(at, plan) : join(at, plan);
}

} // namespace gpt2c::rt
