#include "ir/Error.h"

#include "llvm/Support/raw_ostream.h"

namespace gpt2c {

char CodedError::ID = 0;
char SourceError::ID = 0;

llvm::Error makeError(ExitCode code, const llvm::Twine &message) {
  return llvm::make_error<CodedError>(code, message.str());
}

ExitCode printError(llvm::Error e, llvm::raw_ostream &os) {
  ExitCode result = e ? ExitCode::Usage : ExitCode::Ok;
  bool coded = false;
  llvm::handleAllErrors(std::move(e), [&](const llvm::ErrorInfoBase &info) {
    std::string text = info.message();
    os << (info.isA<SourceError>() ? "" : "error: ") << text;
    if (!llvm::StringRef(text).ends_with("\n"))
      os << "\n";
    if (!coded && info.isA<CodedError>()) {
      coded = true;
      result = static_cast<const CodedError &>(info).code();
    }
  });
  return result;
}

} // namespace gpt2c
