// Errors a user can cause, with the exit code the command line ends with.
#pragma once

#include "llvm/ADT/Twine.h"
#include "llvm/Support/Error.h"

#include <string>

namespace gpt2c {

/// Exit codes, the same for every tool (the values of rt::Code). See docs/errors.md.
enum class ExitCode : int {
  Ok = 0,
  Usage = 1,
  Io = 2,
  InvalidModel = 3,
  Unsupported = 4,
  KernelCompilation = 5,
  PlanIncompatible = 6,
  PlanCorrupt = 7,
  Quality = 8,
  Cuda = 9,
  OutOfMemory = 10,
};

class CodedError : public llvm::ErrorInfo<CodedError> {
public:
  static char ID;
  CodedError(ExitCode code, std::string message) : code_(code), message_(std::move(message)) {}
  ExitCode code() const { return code_; }
  void log(llvm::raw_ostream &os) const override { os << message_; }
  std::error_code convertToErrorCode() const override { return llvm::inconvertibleErrorCode(); }

private:
  ExitCode code_;
  std::string message_;
};

/// An error about a place in a text: the message is complete, `file:line:column: error: ...` with
/// the source line.
class SourceError : public llvm::ErrorInfo<SourceError, CodedError> {
public:
  static char ID;
  using llvm::ErrorInfo<SourceError, CodedError>::ErrorInfo;
};

llvm::Error makeError(ExitCode code, const llvm::Twine &message);

/// Puts "where: " before the message of every error in `e`; codes stay.
llvm::Error inContext(const llvm::Twine &where, llvm::Error e);

/// Writes every error in `e`, one paragraph each and prefixed with "error: ", and returns the exit
/// code: that of the first coded error, Ok for success. Errors of inference and of passes have no
/// code of their own: what they find is a contradiction in the model, InvalidModel.
ExitCode printError(llvm::Error e, llvm::raw_ostream &os);

} // namespace gpt2c
