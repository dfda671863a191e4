// The runtime's error type. A Status is Ok or carries the exit code of the command line and one
// message that names the place and a way out. Result<T> is a value or a Status. No exceptions cross
// the runtime's boundary.
#pragma once

#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace gpt2c::rt {

/// Exit codes, the same for every tool. See docs/errors.md.
enum class Code : int {
  Ok = 0,
  Usage = 1,
  Io = 2,
  InvalidOnnx = 3,
  Unsupported = 4,
  KernelCompilation = 5,
  Incompatible = 6,
  Corrupt = 7,
  Quality = 8,
  Cuda = 9,
  OutOfMemory = 10,
};

class [[nodiscard]] Status {
public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {
    assert(code != Code::Ok && "an error needs a code");
  }
  bool ok() const { return code_ == Code::Ok; }
  Code code() const { return code_; }
  const std::string &message() const { return message_; }

private:
  Code code_ = Code::Ok;
  std::string message_;
};

template <typename T> class [[nodiscard]] Result {
public:
  Result(T value) : state_(std::move(value)) {}
  Result(Status status) : state_(std::move(status)) { assert(!std::get<Status>(state_).ok()); }
  Result(Code code, std::string message) : state_(Status(code, std::move(message))) {}

  bool ok() const { return std::holds_alternative<T>(state_); }
  explicit operator bool() const { return ok(); }
  T &operator*() { return std::get<T>(state_); }
  const T &operator*() const { return std::get<T>(state_); }
  T *operator->() { return &std::get<T>(state_); }
  const T *operator->() const { return &std::get<T>(state_); }
  Status status() const { return ok() ? Status() : std::get<Status>(state_); }
  T take() { return std::move(std::get<T>(state_)); }

private:
  std::variant<T, Status> state_;
};

} // namespace gpt2c::rt
