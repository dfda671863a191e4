// What the files of the C API share. Only they include it.
#pragma once

#include "include/gpt2c.h"
#include "runtime/grammar/Grammar.h"
#include "runtime/session/Session.h"
#include "runtime/text/tokenizer/Tokenizer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>

struct gpt2c_plan {
  gpt2c::rt::Plan::Ptr plan;
  std::shared_ptr<const gpt2c::rt::Tokenizer> tokenizer; ///< null: the plan has none
};

struct gpt2c_session {
  gpt2c::rt::Session session;
  std::shared_ptr<const gpt2c::rt::Tokenizer> tokenizer;
  std::string device;
  std::atomic<bool> busy = false;      ///< a call uses the session
  std::atomic<bool> cancelled = false; ///< the generation that runs is to end
  /// Made with the first grammar.
  std::unique_ptr<gpt2c::rt::GrammarCompiler> grammars = {};
};

namespace gpt2c::rt::capi {

std::string &lastError();

/// Runs the body of an API function, which returns a Status; keeps its message and every exception
/// inside.
template <typename F> gpt2c_status guarded(F body) noexcept {
  try {
    Status status = body();
    lastError() = status.message();
    return static_cast<gpt2c_status>(status.code());
  } catch (const std::bad_alloc &) {
    lastError().clear(); // a short message fits without another allocation
    lastError() = "out of memory";
    return GPT2C_OUT_OF_MEMORY;
  } catch (const std::exception &e) {
    lastError() = e.what();
    return GPT2C_UNSUPPORTED;
  }
}

inline Status nullArgument(const char *name) {
  return Status(Code::Usage, std::string("argument '") + name + "' is null");
}

/// Holds a session for one call; Usage where another one has it.
class Use {
public:
  explicit Use(gpt2c_session *session) : session_(session) {
    mine_ = session && !session->busy.exchange(true);
  }
  ~Use() {
    if (mine_)
      session_->busy = false;
  }
  Use(const Use &) = delete;
  Use &operator=(const Use &) = delete;

  /// The session stays held: until somebody sets `busy` to false.
  void keep() { mine_ = false; }

  Status status() const {
    if (!session_)
      return nullArgument("session");
    if (!mine_)
      return Status(Code::Usage, "the session is in use by another call: a session serves one "
                                 "thread at a time");
    return {};
  }

private:
  gpt2c_session *session_;
  bool mine_;
};

/// The fields of `from` that both sides know, over `defaults` (the struct's GPT2C_..._INIT), which
/// are all of it where it is null.
template <typename T> Result<T> readStruct(const T *from, T defaults, const char *name) {
  if (!from)
    return defaults;
  const size_t size = from->struct_size;
  if (size < sizeof(size_t))
    return {Code::Usage, std::string("struct_size of '") + name + "' is " + std::to_string(size) +
                             ": begin with the struct's GPT2C_..._INIT"};
  const char *bytes = reinterpret_cast<const char *>(from);
  for (size_t i = sizeof(T); i < size; ++i)
    if (bytes[i] != 0)
      return {Code::Usage, std::string("'") + name + "' sets fields that gpt2c " + gpt2c_version() +
                               " does not know: it is older than the program's gpt2c.h"};
  std::memcpy(static_cast<void *>(&defaults), bytes, std::min(size, sizeof(T)));
  defaults.struct_size = sizeof(T);
  return defaults;
}

/// Stores the fields of `value` that the caller knows; others that it has become zero.
template <typename T> Status writeStruct(T value, T *to, const char *name) {
  const size_t size = to->struct_size;
  if (size < sizeof(size_t))
    return {Code::Usage, std::string("struct_size of '") + name + "' is " + std::to_string(size) +
                             ": begin with the struct's GPT2C_..._INIT"};
  value.struct_size = size;
  std::memset(static_cast<void *>(to), 0, size);
  std::memcpy(static_cast<void *>(to), &value, std::min(size, sizeof(T)));
  return {};
}

/// The sequences that `tokens` holds one after the other.
Result<std::vector<Tokens>> readSequences(const int32_t *tokens, const int32_t *lengths,
                                          int32_t batch);

/// Null is the default. Ranges are for the runtime to check. Grammars are the session's, which the
/// caller holds.
Result<SamplingParams> samplingOf(const gpt2c_sampling *given, gpt2c_session &session);

gpt2c_finish finishOf(Finish finish);

/// Stores what fits; the caller learns the whole size.
template <typename T, typename Container>
void store(const Container &values, T *to, size_t capacity, size_t *count) {
  std::copy_n(values.begin(), std::min(capacity, values.size()), to);
  *count = values.size();
}

/// The prompt of a conversation; `tokenizer` may be null.
Result<Tokens> chatTokens(const Tokenizer *tokenizer, const gpt2c_conversation *conversation);

} // namespace gpt2c::rt::capi
