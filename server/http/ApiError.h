// What a client is told that its request cannot have: an HTTP status and OpenAI's form of an error.
#pragma once

#include "runtime/engine/Admission.h"

#include <string>

namespace gpt2c::serve {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param = {}; ///< the field of the body; empty: none, or not one alone
  std::string code = {};  ///< for programs; empty: none
  int retryAfter = 0;     ///< seconds, of a request that may be sent again; 0: says nothing
  std::string allow = {}; ///< the methods that the path takes, of a request with another one

  /// "invalid_request_error" and others, by the status.
  const char *type() const;
};

/// {"error":{"message":..,"type":..,"param":..,"code":..}}
std::string bodyOf(const ApiError &error);

/// Why the engine does not take a request: 429 where it may be sent again, else 400.
ApiError errorOf(rt::Refusal refusal, const rt::Status &status);
/// Why an answer failed.
ApiError errorOf(const rt::Status &status);

} // namespace gpt2c::serve
