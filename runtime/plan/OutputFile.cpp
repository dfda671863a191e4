#include "runtime/plan/OutputFile.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gpt2c::rt {
namespace {

constexpr const char *temporaryMark = ".tmp.";

enum class Slot { Free, Filled, Named, Taken };

/// Names of unfinished files, in memory that is never freed: a signal may come at any time. Only a
/// `Named` entry is read by a handler, which takes it for good; a process writes few at once.
struct Unfinished {
  std::atomic<Slot> state = Slot::Free;
  char path[4096];
};
std::array<Unfinished, 16> unfinished;
static_assert(std::atomic<Slot>::is_always_lock_free);

/// The entry that now holds `name`, -1 where none is free or the name is too long for one.
int remember(const std::string &name) {
  if (name.size() >= sizeof(Unfinished::path))
    return -1;
  for (size_t i = 0; i < unfinished.size(); ++i) {
    Slot free = Slot::Free;
    if (!unfinished[i].state.compare_exchange_strong(free, Slot::Filled))
      continue;
    std::memcpy(unfinished[i].path, name.c_str(), name.size() + 1);
    unfinished[i].state = Slot::Named;
    return int(i);
  }
  return -1;
}

void forget(int slot) {
  Slot named = Slot::Named;
  if (slot >= 0)
    unfinished[slot].state.compare_exchange_strong(named, Slot::Free);
}

extern "C" void onSignal(int number) {
  const int before = errno;
  OutputFile::removeUnfinished();
  errno = before;
  // The process ends as without a handler. What loads it, as NVRTC, may have put this one back
  // without the flags that it was installed with.
  ::signal(number, SIG_DFL);
  ::raise(number);
}

/// "<pid>.<number>" of a process that is no more, in a file that nobody on another machine writes.
bool isAbandoned(const std::string &path, std::string_view suffix) {
  int pid = 0, number = 0;
  const char *end = std::to_address(suffix.end());
  auto first = std::from_chars(std::to_address(suffix.begin()), end, pid);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '.' || pid <= 0)
    return false;
  auto second = std::from_chars(first.ptr + 1, end, number);
  if (second.ec != std::errc() || second.ptr != end || ::kill(pid, 0) == 0 || errno != ESRCH)
    return false;
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  bool free = fd >= 0 && ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  if (fd >= 0)
    ::close(fd);
  return free;
}

void removeAbandoned(const std::string &target) {
  const size_t slash = target.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : target.substr(0, slash + 1);
  const std::string begin =
      target.substr(slash == std::string::npos ? 0 : slash + 1) + temporaryMark;
  DIR *entries = ::opendir(folder.c_str());
  if (!entries)
    return;
  while (const dirent *entry = ::readdir(entries)) {
    std::string_view name = entry->d_name;
    const std::string path = folder + "/" + entry->d_name;
    if (name.starts_with(begin) && isAbandoned(path, name.substr(begin.size())))
      ::unlink(path.c_str());
  }
  ::closedir(entries);
}

} // namespace

void OutputFile::removeUnfinished() {
  for (Unfinished &file : unfinished) {
    Slot named = Slot::Named;
    if (file.state.compare_exchange_strong(named, Slot::Taken))
      ::unlink(file.path);
  }
}

void OutputFile::removeOnSignals() {
  for (int number : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction now{};
    if (::sigaction(number, nullptr, &now) != 0 || now.sa_handler != SIG_DFL)
      continue;
    struct sigaction ours{};
    ours.sa_handler = onSignal;
    ours.sa_flags = SA_RESETHAND | SA_NODEFER;
    ::sigaction(number, &ours, nullptr);
  }
  ::signal(SIGXFSZ, SIG_IGN); // beyond `ulimit -f` a write fails instead
}

OutputFile::~OutputFile() { discard(); }

void OutputFile::discard() {
  if (fd_ >= 0 && ownsFd_)
    ::close(fd_);
  fd_ = -1;
  if (!temporary_.empty())
    ::unlink(temporary_.c_str());
  temporary_.clear();
  forget(std::exchange(slot_, -1));
}

Status OutputFile::failed(const char *what) {
  const std::string target = path_ == "-" ? "to stdout" : "'" + path_ + "'";
  Status status(Code::Io, "cannot " + std::string(what) + " " + target + ": " + strerror(errno));
  discard();
  return status;
}

Status OutputFile::open() {
  if (path_ == "-") {
    fd_ = STDOUT_FILENO;
    return Status();
  }
  ownsFd_ = true;
  target_ = path_;
  struct stat info;
  if (::stat(path_.c_str(), &info) == 0) {
    if (!S_ISREG(info.st_mode)) {
      fd_ = ::open(path_.c_str(), O_WRONLY | O_CLOEXEC);
      return fd_ < 0 ? failed("write") : Status();
    }
    char *resolved = ::realpath(path_.c_str(), nullptr);
    if (!resolved)
      return failed("write");
    target_ = resolved;
    std::free(resolved);
    if (::access(target_.c_str(), W_OK) != 0) // a rename would replace even a read-only file
      return failed("write");
  }
  removeAbandoned(target_);
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::string name =
        target_ + temporaryMark + std::to_string(::getpid()) + "." + std::to_string(attempt);
    slot_ = remember(name);
    fd_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ >= 0) {
      ::flock(fd_, LOCK_EX | LOCK_NB); // best effort: not every file system has locks
      temporary_ = name;
      return Status();
    }
    forget(std::exchange(slot_, -1)); // it may be another's
    if (errno != EEXIST)
      break;
  }
  return failed("write");
}

Status OutputFile::write(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    ssize_t count = ::write(fd_, bytes.data(), std::min<size_t>(bytes.size(), size_t(1) << 30));
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0)
      return failed("write");
    bytes = bytes.subspan(size_t(count));
  }
  return Status();
}

Status OutputFile::commit() {
  if (temporary_.empty()) {
    if (ownsFd_ && ::close(std::exchange(fd_, -1)) != 0)
      return failed("write");
    return Status();
  }
  if (::fsync(fd_) != 0 || ::close(std::exchange(fd_, -1)) != 0 ||
      ::rename(temporary_.c_str(), target_.c_str()) != 0)
    return failed("write");
  temporary_.clear();
  forget(std::exchange(slot_, -1));
  // The rename itself lasts only once the directory is on disk. Not every file system can sync one:
  // best effort.
  size_t slash = target_.rfind('/');
  std::string directory = slash == std::string::npos ? "." : target_.substr(0, slash + 1);
  if (int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC); fd >= 0) {
    ::fsync(fd);
    ::close(fd);
  }
  return Status();
}

} // namespace gpt2c::rt
