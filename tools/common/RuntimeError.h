// Between the runtime's errors and the compiler's.
#pragma once

#include "ir/Error.h"
#include "runtime/Status.h"

namespace gpt2c {

/// The same code and message; success for Ok.
inline llvm::Error toError(const rt::Status &status) {
  if (status.ok())
    return llvm::Error::success();
  return makeError(ExitCode(int(status.code())), status.message());
}

/// The same code and messages, one a line; InvalidOnnx for an error without a code.
inline rt::Status toStatus(llvm::Error error) {
  rt::Code code = rt::Code::Ok;
  std::string text;
  llvm::handleAllErrors(std::move(error), [&](const llvm::ErrorInfoBase &info) {
    text += (text.empty() ? "" : "\n") + info.message();
    if (code == rt::Code::Ok)
      code = info.isA<CodedError>() ? rt::Code(int(static_cast<const CodedError &>(info).code()))
                                    : rt::Code::InvalidOnnx;
  });
  return code == rt::Code::Ok ? rt::Status() : rt::Status(code, std::move(text));
}

/// The value, or the same error.
template <typename T> llvm::Expected<T> toExpected(rt::Result<T> result) {
  if (!result)
    return toError(result.status());
  return result.take();
}

} // namespace gpt2c
