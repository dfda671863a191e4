#include "runtime/OutputFile.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gpt2c::rt {

OutputFile::~OutputFile() { discard(); }

void OutputFile::discard() {
  if (fd_ >= 0 && ownsFd_)
    ::close(fd_);
  fd_ = -1;
  if (!temporary_.empty())
    ::unlink(temporary_.c_str());
  temporary_.clear();
}

Status OutputFile::failed(const char *what) {
  Status status(Code::Io, "cannot " + std::string(what) + " '" + path_ + "': " + strerror(errno));
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
  for (int attempt = 0; attempt < 100; ++attempt) {
    std::string name =
        target_ + ".tmp." + std::to_string(::getpid()) + "." + std::to_string(attempt);
    fd_ = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd_ >= 0) {
      temporary_ = name;
      return Status();
    }
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
