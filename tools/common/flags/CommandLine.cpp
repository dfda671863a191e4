#include "tools/common/flags/CommandLine.h"

#include "ir/Error.h"
#include "runtime/plan/OutputFile.h"
#include "tools/common/RuntimeError.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"

#include <array>
#include <span>

#include <sys/mman.h>
#include <unistd.h>

namespace gpt2c {

llvm::cl::OptionCategory &toolCategory() {
  static llvm::cl::OptionCategory category("Options");
  return category;
}

/// After "for the --flag option: Cannot find option named 'x'!": what the flag takes. LLVM prints
/// that to stdout alone.
static void showChoices(llvm::StringRef errors) {
  llvm::StringRef flag = errors.split("for the -").second.split(" option: Cannot find").first;
  if (flag.size() == errors.size() || !errors.contains("Cannot find option named"))
    return;
  auto &options = llvm::cl::getRegisteredOptions();
  auto option = options.find(flag.ltrim('-'));
  if (option == options.end())
    return;
  llvm::errs().flush();
  llvm::outs().flush();
  const int out = ::dup(STDOUT_FILENO);
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  constexpr size_t column = 24;
  option->second->printOptionInfo(std::max(column, option->second->getOptionWidth()));
  llvm::outs().flush();
  ::dup2(out, STDOUT_FILENO);
  ::close(out);
}

void parseCommandLine(int argc, char **argv, llvm::StringRef overview) {
  llvm::cl::HideUnrelatedOptions(toolCategory());
  llvm::cl::SetVersionPrinter([](llvm::raw_ostream &os) { os << "gpt2c " GPT2C_VERSION "\n"; });
  // What is wrong with a value goes to stderr at once, whatever stream the parser is given.
  const int before = ::dup(STDERR_FILENO), seen = ::memfd_create("stderr", MFD_CLOEXEC);
  if (seen >= 0)
    ::dup2(seen, STDERR_FILENO);
  std::string errors, direct;
  llvm::raw_string_ostream os(errors);
  const bool good = llvm::cl::ParseCommandLineOptions(argc, argv, overview, &os);
  ::dup2(before, STDERR_FILENO);
  ::close(before);
  if (seen >= 0) {
    std::array<char, 4096> buffer;
    ::lseek(seen, 0, SEEK_SET);
    for (ssize_t n; (n = ::read(seen, buffer.data(), buffer.size())) > 0;)
      direct.append(buffer.data(), size_t(n));
    ::close(seen);
  }
  errors = direct + errors;
  llvm::errs() << errors;
  if (good)
    return;
  showChoices(errors);
  std::exit(int(ExitCode::Usage));
}

llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> readInput(llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFileOrSTDIN(path);
  if (!buffer)
    return makeError(ExitCode::Io, "cannot read '" + path + "': " + buffer.getError().message());
  return std::move(*buffer);
}

/// Whether both are one regular file, or one path of a file that is yet to be.
static bool areOneFile(llvm::StringRef a, llvm::StringRef b) {
  llvm::sys::fs::file_status first, second;
  if (llvm::sys::fs::status(a, first) || llvm::sys::fs::status(b, second))
    return a == b;
  return llvm::sys::fs::is_regular_file(first) && llvm::sys::fs::equivalent(first, second);
}

llvm::Error checkOutputs(llvm::ArrayRef<FlagPath> outputs, llvm::ArrayRef<FlagPath> inputs) {
  auto isFile = [](const FlagPath &f) { return !f.path.empty() && f.path != "-"; };
  for (size_t i = 0; i < outputs.size(); ++i) {
    const FlagPath &out = outputs[i];
    if (!isFile(out))
      continue;
    for (const FlagPath &in : inputs)
      if (isFile(in) && areOneFile(out.path, in.path))
        return makeError(ExitCode::Usage, out.flag + " would replace '" + in.path +
                                              "', which is read as " + in.flag +
                                              ": give another file");
    for (const FlagPath &other : outputs.take_front(i))
      if (isFile(other) && areOneFile(out.path, other.path))
        return makeError(ExitCode::Usage, out.flag + " and " + other.flag + " both name '" +
                                              out.path + "': give two files");
  }
  return llvm::Error::success();
}

namespace {

/// What is printed goes into the file; the first error stays.
class FileStream : public llvm::raw_ostream {
public:
  explicit FileStream(rt::OutputFile &file) : file_(file) {}
  ~FileStream() override { flush(); }
  rt::Status finish() {
    flush();
    return std::move(status_);
  }

private:
  void write_impl(const char *bytes, size_t size) override {
    if (status_.ok())
      status_ = file_.write(std::as_bytes(std::span(bytes, size)));
    position_ += size;
  }
  uint64_t current_pos() const override { return position_; }

  rt::OutputFile &file_;
  rt::Status status_;
  uint64_t position_ = 0;
};

} // namespace

llvm::Error writeOutput(llvm::StringRef path, llvm::function_ref<void(llvm::raw_ostream &)> write) {
  rt::OutputFile file(path.str());
  if (rt::Status s = file.open(); !s.ok())
    return toError(s);
  FileStream stream(file);
  write(stream);
  if (rt::Status s = stream.finish(); !s.ok())
    return toError(s);
  return toError(file.commit());
}

} // namespace gpt2c
