#include "server/http/ApiError.h"

#include "server/http/Json.h"

namespace gpt2c::serve {

const char *ApiError::type() const {
  switch (status) {
  case 401:
    return "authentication_error";
  case 404:
  case 405:
    return "not_found_error";
  case 429:
    return "rate_limit_error";
  case 503:
  case 504:
    return "unavailable_error";
  default:
    return status < 500 ? "invalid_request_error" : "server_error";
  }
}

std::string bodyOf(const ApiError &error) {
  JsonWriter w;
  w.object().key("error").object();
  w.key("message").text(error.message).key("type").text(error.type());
  w.key("param").textOrNull(error.param).key("code").textOrNull(error.code);
  w.end().end();
  return w.take();
}

/// The field that a message begins with: "top_p is 2; ..", "logit_bias names token 9; ..".
static std::string fieldOf(const std::string &message, const char *otherwise) {
  const size_t end = message.find_first_not_of("abcdefghijklmnopqrstuvwxyz_");
  const std::string_view behind = std::string_view(message).substr(std::min(end, message.size()));
  return end > 0 && (behind.starts_with(" is ") || behind.starts_with(" names "))
             ? message.substr(0, end)
             : otherwise;
}

ApiError errorOf(rt::Refusal refusal, const rt::Status &status) {
  using rt::Refusal;
  ApiError error{.message = status.message()};
  switch (refusal) {
  case Refusal::Full:
    error.status = 429;
    error.code = "queue_full";
    error.retryAfter = 1;
    break;
  case Refusal::Context:
  case Refusal::Pages:
    error.param = "max_tokens";
    error.code = "context_length_exceeded";
    break;
  case Refusal::Prompt:
    error.param = "prompt";
    break;
  case Refusal::Vocabulary:
    error.param = error.message.starts_with("stop token") ? "stop_token_ids" : "prompt";
    break;
  case Refusal::MaxTokens:
    error.param = fieldOf(error.message, "max_tokens");
    break;
  case Refusal::Stop:
    error.param = "stop";
    break;
  case Refusal::Sampling:
    error.param = fieldOf(error.message, "");
    break;
  case Refusal::None:
    break;
  }
  return error;
}

ApiError errorOf(const rt::Status &status) {
  return {.status = 500, .message = status.message(), .code = "generation_failed"};
}

} // namespace gpt2c::serve
