#include "tools/common/CommandLine.h"

#include "ir/Error.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/ToolOutputFile.h"
#include "llvm/Support/raw_ostream.h"

namespace gpt2c {

llvm::cl::OptionCategory &toolCategory() {
  static llvm::cl::OptionCategory category("Options");
  return category;
}

void parseCommandLine(int argc, char **argv, llvm::StringRef overview) {
  llvm::cl::HideUnrelatedOptions(toolCategory());
  llvm::cl::SetVersionPrinter([](llvm::raw_ostream &os) { os << "gpt2c " GPT2C_VERSION "\n"; });
  llvm::cl::ParseCommandLineOptions(argc, argv, overview);
}

llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> readInput(llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFileOrSTDIN(path);
  if (!buffer)
    return makeError(ExitCode::Io, "cannot read '" + path + "': " + buffer.getError().message());
  return std::move(*buffer);
}

llvm::Error writeOutput(llvm::StringRef path, llvm::function_ref<void(llvm::raw_ostream &)> write) {
  std::error_code error;
  llvm::ToolOutputFile file(path, error, llvm::sys::fs::OF_None);
  if (!error) {
    write(file.os());
    file.os().flush();
    error = file.os().error();
    file.os().clear_error();
  }
  if (error)
    return makeError(ExitCode::Io, "cannot write '" + path + "': " + error.message());
  file.keep();
  return llvm::Error::success();
}

} // namespace gpt2c
