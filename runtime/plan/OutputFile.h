// A file that appears whole or not at all.
#pragma once

#include "runtime/Status.h"

#include <cstddef>
#include <span>
#include <string>

namespace gpt2c::rt {

/// Writes beside the target and renames over it on commit(); without a commit nothing remains. "-"
/// is stdout; that and targets that are no regular files (pipes, devices) are written in place. A
/// symbolic link keeps pointing where it did. What processes that are no more left beside the
/// target is removed.
class OutputFile {
public:
  explicit OutputFile(std::string path) : path_(std::move(path)) {}
  ~OutputFile();
  OutputFile(const OutputFile &) = delete;
  OutputFile &operator=(const OutputFile &) = delete;

  Status open();
  Status write(std::span<const std::byte> bytes);
  /// Syncs, closes and renames. The file is complete on disk afterwards.
  Status commit();

  /// From now on SIGINT, SIGTERM and SIGHUP, unless they are ignored, remove unfinished files
  /// before they end the process; and a file that may not grow (ulimit -f) is an error of write().
  static void removeOnSignals();
  /// Removes them now; safe in a signal handler.
  static void removeUnfinished();

private:
  Status failed(const char *what);
  void discard();

  std::string path_;
  std::string target_;    ///< path_ with symbolic links resolved
  std::string temporary_; ///< empty when written in place
  int slot_ = -1;         ///< among the names that signals remove
  int fd_ = -1;
  bool ownsFd_ = false;
};

} // namespace gpt2c::rt
