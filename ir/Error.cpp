#include "ir/Error.h"

#include "llvm/Support/raw_ostream.h"

namespace gpt2c {

char CodedError::ID = 0;
char SourceError::ID = 0;

llvm::Error makeError(ExitCode code, const llvm::Twine &message) {
  return llvm::make_error<CodedError>(code, message.str());
}

llvm::Error inContext(const llvm::Twine &where, llvm::Error e) {
  std::string prefix = (where + ": ").str();
  llvm::Error out = llvm::Error::success();
  llvm::handleAllErrors(std::move(e), [&](const llvm::ErrorInfoBase &info) {
    auto code = info.isA<CodedError>() ? static_cast<const CodedError &>(info).code()
                                       : ExitCode::InvalidModel;
    out = llvm::joinErrors(std::move(out), makeError(code, prefix + info.message()));
  });
  return out;
}

ExitCode printError(llvm::Error e, llvm::raw_ostream &os) {
  ExitCode result = e ? ExitCode::InvalidModel : ExitCode::Ok;
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
