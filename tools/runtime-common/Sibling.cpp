#include "tools/runtime-common/Sibling.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace gpt2c {

static std::string pathOf(const std::string &name) {
  std::error_code ignored;
  return (std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path() / name).string();
}

static std::vector<char *> argumentsOf(const std::string &path,
                                       const std::vector<std::string> &arguments) {
  std::vector<char *> out{const_cast<char *>(path.c_str())};
  for (const std::string &a : arguments)
    out.push_back(const_cast<char *>(a.c_str()));
  out.push_back(nullptr);
  return out;
}

rt::Status becomeSibling(const std::string &name, const std::vector<std::string> &arguments,
                         const std::string &what) {
  const std::string path = pathOf(name);
  ::execv(path.c_str(), argumentsOf(path, arguments).data());
  return {rt::Code::Io, what + " takes the compiler, which is in " + name + ": '" + path +
                            "': " + std::strerror(errno)};
}

rt::Result<std::string> askSibling(const std::string &name,
                                   const std::vector<std::string> &arguments) {
  const std::string path = pathOf(name);
  // Files in memory: a pipe would have to be read while the other one is.
  const int out = ::memfd_create("stdout", MFD_CLOEXEC),
            err = ::memfd_create("stderr", MFD_CLOEXEC);
  if (out < 0 || err < 0)
    return {rt::Code::Io, std::string("no file in memory: ") + std::strerror(errno)};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
  pid_t process = 0;
  const int error = ::posix_spawn(&process, path.c_str(), &actions, nullptr,
                                  argumentsOf(path, arguments).data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  if (!error)
    ::waitpid(process, &status, 0);
  std::string text, said;
  for (auto [from, to] : {std::pair(out, &text), {err, &said}}) {
    char block[1 << 14];
    ::lseek(from, 0, SEEK_SET);
    for (ssize_t n; (n = ::read(from, block, sizeof(block))) > 0;)
      to->append(block, size_t(n));
    ::close(from);
  }
  if (error)
    return {rt::Code::Io, "'" + path + "': " + std::strerror(error)};
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return {rt::Code::KernelCompilation, said.substr(0, said.find_last_not_of('\n') + 1)};
  return text;
}

} // namespace gpt2c
