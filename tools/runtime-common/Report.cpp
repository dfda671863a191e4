#include "tools/runtime-common/Report.h"

#include "runtime/plan/OutputFile.h"
#include "runtime/plan/PlanMapping.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <new>
#include <streambuf>
#include <system_error>
#include <utility>

#include <unistd.h>

namespace gpt2c {

namespace {

/// Standard output, and why it could not be written.
class StdoutBuffer : public std::streambuf {
public:
  StdoutBuffer() { setp(bytes_, bytes_ + sizeof(bytes_)); }
  /// errno of the first write that failed.
  int error = 0;

private:
  int_type overflow(int_type c) override {
    if (sync() != 0)
      return traits_type::eof();
    if (!traits_type::eq_int_type(c, traits_type::eof())) {
      *pptr() = traits_type::to_char_type(c);
      pbump(1);
    }
    return traits_type::not_eof(c);
  }

  int sync() override {
    for (const char *at = pbase(); at != pptr();) {
      const ssize_t written = ::write(STDOUT_FILENO, at, size_t(pptr() - at));
      if (written >= 0) {
        at += written;
      } else if (errno != EINTR) {
        error = error ? error : errno;
        break;
      }
    }
    setp(bytes_, bytes_ + sizeof(bytes_));
    return error ? -1 : 0;
  }

  char bytes_[1 << 14];
};

/// It lives as long as std::cout.
StdoutBuffer &stdoutBuffer() {
  static auto *buffer = new StdoutBuffer;
  return *buffer;
}

} // namespace

rt::Status flushStdout() {
  std::cout.flush();
  if (std::cout)
    return {};
  std::cout.clear();
  return {rt::Code::Io, std::string("cannot write to stdout: ") +
                            std::strerror(std::exchange(stdoutBuffer().error, 0))};
}

rt::Status inContext(const std::string &context, const rt::Status &status) {
  return status.ok() ? status : rt::Status(status.code(), context + ": " + status.message());
}

static constexpr const char *wayOut =
    "; the process has what its limits (ulimit -v, -u, cgroup) and the machine leave";

void endOutOfMemory(const char *what) {
  for (const char *part : {"error: out of memory: ", what, wayOut, "\n"})
    if (::write(STDERR_FILENO, part, std::strlen(part)) < 0)
      break;
  rt::OutputFile::removeUnfinished();
  ::_exit(int(rt::Code::OutOfMemory));
}

/// In a thread of a pool an exception reaches nobody.
[[noreturn]] static void onTerminate() {
  if (std::exception_ptr e = std::current_exception()) {
    try {
      std::rethrow_exception(e);
    } catch (const std::bad_alloc &alloc) {
      endOutOfMemory(alloc.what());
    } catch (const std::system_error &system) {
      endOutOfMemory(system.what());
    } catch (...) {
      std::abort();
    }
  }
  std::abort();
}

void beginTool() {
  std::cout.rdbuf(&stdoutBuffer());
  std::set_terminate(onTerminate);
  rt::OutputFile::removeOnSignals();
  rt::endWhereAPlanIsCut();
}

int runTool(const std::function<rt::Status()> &body) {
  beginTool();
  rt::Status status;
  try {
    status = body();
  } catch (const std::bad_alloc &e) {
    endOutOfMemory(e.what());
  } catch (const std::system_error &e) {
    endOutOfMemory(e.what());
  }
  rt::Code code = rt::Code::Ok;
  for (const rt::Status &s : {status, flushStdout()}) {
    if (s.ok())
      continue;
    std::cerr << "error: " << s.message() << (s.message().ends_with('\n') ? "" : "\n");
    code = code == rt::Code::Ok ? s.code() : code;
  }
  return int(code);
}

} // namespace gpt2c
