// Why an answer ended.
#pragma once

namespace gpt2c::rt {

enum class Finish {
  Length,  ///< it has as many tokens as were asked for
  Stop,    ///< a token or a string that ends it
  Context, ///< the plan's context, or the model's, is full
  Caller,  ///< whoever asked for it said so
  Failed,  ///< of an engine's request alone
};
inline constexpr int finishes = 5;

/// "length", "stop", "context", "cancelled" or "failed", as in metrics and JSON.
const char *nameOf(Finish finish);

} // namespace gpt2c::rt
