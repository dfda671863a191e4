#include "tools/runtime-common/Files.h"

#include "runtime/plan/OutputFile.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>

#include <sys/resource.h>

namespace gpt2c {

rt::Result<std::string> readInput(const std::string &path) {
  auto failed = [&]() -> rt::Result<std::string> {
    return {rt::Code::Io, "cannot read '" + path + "': " + std::strerror(errno)};
  };
  struct Close {
    void operator()(std::FILE *file) const {
      if (file != stdin)
        std::fclose(file);
    }
  };
  std::unique_ptr<std::FILE, Close> file(path == "-" ? stdin : std::fopen(path.c_str(), "rb"));
  if (!file)
    return failed();
  std::string text;
  char block[1 << 16];
  errno = 0;
  for (size_t n; (n = std::fread(block, 1, sizeof(block), file.get())) > 0;)
    text.append(block, n);
  return std::ferror(file.get()) ? failed() : rt::Result<std::string>(std::move(text));
}

/// Whether both are one regular file, or one path of a file that is yet to be.
static bool areOneFile(const std::string &a, const std::string &b) {
  std::error_code ignored;
  if (!std::filesystem::exists(a, ignored) || !std::filesystem::exists(b, ignored))
    return a == b;
  return std::filesystem::is_regular_file(a, ignored) && std::filesystem::equivalent(a, b, ignored);
}

rt::Status checkOutputs(std::span<const NamedPath> outputs, std::span<const NamedPath> inputs) {
  auto isFile = [](const NamedPath &f) { return !f.path.empty() && f.path != "-"; };
  for (size_t i = 0; i < outputs.size(); ++i) {
    const NamedPath &out = outputs[i];
    if (!isFile(out))
      continue;
    for (const NamedPath &in : inputs)
      if (isFile(in) && areOneFile(out.path, in.path))
        return {rt::Code::Usage, out.flag + " would replace '" + in.path + "', which is read as " +
                                     in.flag + ": give another file"};
    for (const NamedPath &other : outputs.first(i))
      if (isFile(other) && areOneFile(out.path, other.path))
        return {rt::Code::Usage,
                out.flag + " and " + other.flag + " both name '" + out.path + "': give two files"};
  }
  return {};
}

rt::Status writeOutput(const std::string &path, const std::string &text) {
  rt::OutputFile file(path);
  if (rt::Status s = file.open(); !s.ok())
    return s;
  if (rt::Status s = file.write(std::as_bytes(std::span(text))); !s.ok())
    return s;
  return file.commit();
}

void raiseFileLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
  }
}

} // namespace gpt2c
