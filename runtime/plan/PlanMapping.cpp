#include "runtime/plan/PlanMapping.h"

#include "runtime/plan/OutputFile.h"

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <string>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gpt2c::rt {
namespace {

constexpr const char *wayOut =
    ": give each plan a name of its own, or rename the new one over the old one (mv)";

/// Never freed, and complete where `begin` is set: a signal may come at any time. A process has few
/// plans open; those beyond the table are not looked after.
struct Mapping {
  std::atomic<bool> taken = false;
  std::atomic<const char *> begin = nullptr;
  size_t bytes = 0;
  int fd = -1;
  struct timespec written = {};
};
std::array<Mapping, 64> mappings;
static_assert(std::atomic<const char *>::is_always_lock_free);

bool holds(const Mapping &m, const void *address) {
  const char *begin = m.begin;
  return begin && uintptr_t(address) - uintptr_t(begin) < m.bytes;
}

extern "C" void onBusError(int number, siginfo_t *info, void *) {
  for (const Mapping &m : mappings)
    if (holds(m, info->si_addr)) {
      for (const char *part : {"error: cannot read the plan any more: its file was cut or "
                               "overwritten while it was open, or its disk fails",
                               wayOut, "\n"})
        if (::write(STDERR_FILENO, part, std::strlen(part)) < 0)
          break;
      OutputFile::removeUnfinished();
      ::_exit(int(Code::Io));
    }
  ::signal(number, SIG_DFL); // a fault of ours: it comes again, and ends the process
}

} // namespace

void rememberMapping(const void *begin, size_t bytes, int fd) {
  struct stat info{};
  if (::fstat(fd, &info) != 0)
    return;
  for (Mapping &m : mappings) {
    if (m.taken.exchange(true))
      continue;
    m.bytes = bytes;
    m.fd = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
    m.written = info.st_mtim;
    m.begin = static_cast<const char *>(begin);
    return;
  }
}

void forgetMapping(const void *begin) {
  for (Mapping &m : mappings) {
    const char *expected = static_cast<const char *>(begin);
    if (!m.begin.compare_exchange_strong(expected, nullptr))
      continue;
    if (m.fd >= 0)
      ::close(m.fd);
    m.taken = false;
    return;
  }
}

void endWhereAPlanIsCut() {
  struct sigaction action{};
  action.sa_sigaction = onBusError;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

Status plansUnchanged() {
  for (const Mapping &m : mappings) {
    struct stat now{};
    if (!m.begin || m.fd < 0 || ::fstat(m.fd, &now) != 0)
      continue;
    if (size_t(now.st_size) != m.bytes || now.st_mtim.tv_sec != m.written.tv_sec ||
        now.st_mtim.tv_nsec != m.written.tv_nsec)
      return {Code::Io, std::string("the plan's file was written to while it was open, so what was "
                                    "computed may be wrong") +
                            wayOut};
  }
  return {};
}

} // namespace gpt2c::rt
