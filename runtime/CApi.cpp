#include "include/gpt2c.h"

#include "runtime/Session.h"
#include "runtime/Tokenizer.h"
#include "runtime/cuda/CudaBackend.h"

#include <algorithm>
#include <exception>
#include <new>
#include <optional>

using namespace gpt2c::rt;

struct gpt2c_plan {
  Plan::Ptr plan;
  std::optional<Tokenizer> tokenizer;
};

struct gpt2c_session {
  Session session;
};

static_assert(GPT2C_USAGE == int(Code::Usage) && GPT2C_IO == int(Code::Io) &&
              GPT2C_UNSUPPORTED == int(Code::Unsupported) &&
              GPT2C_INCOMPATIBLE == int(Code::Incompatible) &&
              GPT2C_CORRUPT == int(Code::Corrupt) && GPT2C_CUDA == int(Code::Cuda) &&
              GPT2C_OUT_OF_MEMORY == int(Code::OutOfMemory));

static std::string &lastError() {
  thread_local std::string message;
  return message;
}

/// Runs the body of an API function, which returns a Status; keeps its message and every exception
/// inside.
template <typename F> static gpt2c_status guarded(F body) noexcept {
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

static Status nullArgument(const char *name) {
  return Status(Code::Usage, std::string("argument '") + name + "' is null");
}

/// Stores what fits; the caller learns the whole size.
template <typename T, typename Container>
static void store(const Container &values, T *to, size_t capacity, size_t *count) {
  std::copy_n(values.begin(), std::min(capacity, values.size()), to);
  *count = values.size();
}

static void storeStep(const StepOutput &out, int32_t *next, float *logits) {
  std::copy(out.next.begin(), out.next.end(), next);
  if (logits)
    std::copy(out.logits.begin(), out.logits.end(), logits);
}

const char *gpt2c_version(void) { return GPT2C_VERSION; }

const char *gpt2c_last_error(void) { return lastError().c_str(); }

gpt2c_status gpt2c_plan_open(const char *path, gpt2c_plan **plan) {
  return guarded([&]() -> Status {
    if (!path || !plan)
      return nullArgument(path ? "plan" : "path");
    Result<Plan::Ptr> opened = Plan::open(path);
    if (!opened)
      return opened.status();
    auto made = std::make_unique<gpt2c_plan>(gpt2c_plan{*opened, std::nullopt});
    if (std::span<const std::byte> blob = made->plan->tokenizerBlob(); !blob.empty()) {
      Result<Tokenizer> tokenizer =
          Tokenizer::fromBytes({reinterpret_cast<const std::uint8_t *>(blob.data()), blob.size()});
      if (!tokenizer)
        return tokenizer.status();
      made->tokenizer = tokenizer.take();
    }
    *plan = made.release();
    return {};
  });
}

void gpt2c_plan_close(gpt2c_plan *plan) { delete plan; }

gpt2c_status gpt2c_plan_get_info(const gpt2c_plan *plan, gpt2c_plan_info *info) {
  return guarded([&]() -> Status {
    if (!plan || !info)
      return nullArgument(plan ? "info" : "plan");
    const gpt2c::plan::PlanT &meta = plan->plan->meta();
    *info = {.vocab_size = meta.vocab_size,
             .eos_token = meta.eos_token,
             .max_batch = meta.kv ? meta.kv->max_batch : 0,
             .max_context = meta.kv ? meta.kv->max_context : 0,
             .has_tokenizer = plan->tokenizer.has_value()};
    return {};
  });
}

static Status needsTokenizer(const gpt2c_plan *plan) {
  if (!plan)
    return nullArgument("plan");
  if (!plan->tokenizer)
    return Status(Code::Unsupported,
                  "the plan has no tokenizer; compile it with gpt2c --tokenizer");
  return {};
}

gpt2c_status gpt2c_encode(const gpt2c_plan *plan, const char *text, size_t bytes, int32_t *tokens,
                          size_t capacity, size_t *count) {
  return guarded([&]() -> Status {
    if (Status s = needsTokenizer(plan); !s.ok())
      return s;
    if ((!text && bytes) || (!tokens && capacity) || !count)
      return nullArgument(!count ? "count" : tokens || !capacity ? "text" : "tokens");
    store(plan->tokenizer->encode({text, bytes}, {.allowSpecial = false}), tokens, capacity, count);
    return {};
  });
}

gpt2c_status gpt2c_decode_text(const gpt2c_plan *plan, const int32_t *tokens, size_t count,
                               char *text, size_t capacity, size_t *bytes) {
  return guarded([&]() -> Status {
    if (Status s = needsTokenizer(plan); !s.ok())
      return s;
    if ((!tokens && count) || (!text && capacity) || !bytes)
      return nullArgument(!bytes ? "bytes" : text || !capacity ? "tokens" : "text");
    store(plan->tokenizer->decode({tokens, count}), text, capacity, bytes);
    return {};
  });
}

gpt2c_status gpt2c_session_create(const gpt2c_plan *plan, gpt2c_session **session) {
  return guarded([&]() -> Status {
    if (!plan || !session)
      return nullArgument(plan ? "session" : "plan");
    Result<std::unique_ptr<Backend>> backend = makeCudaBackend(plan->plan);
    if (!backend)
      return backend.status();
    *session = new gpt2c_session{Session(plan->plan, backend.take())};
    return {};
  });
}

void gpt2c_session_destroy(gpt2c_session *session) { delete session; }

gpt2c_status gpt2c_prefill(gpt2c_session *session, const int32_t *tokens, const int32_t *lengths,
                           int32_t batch, int32_t *next, float *logits) {
  return guarded([&]() -> Status {
    if (!session || !tokens || !lengths || !next)
      return nullArgument(!session   ? "session"
                          : !tokens  ? "tokens"
                          : !lengths ? "lengths"
                                     : "next");
    std::vector<Tokens> sequences;
    for (int32_t b = 0; b < batch; ++b) {
      if (lengths[b] < 0)
        return Status(Code::Usage, "the length of a sequence is negative");
      sequences.emplace_back(tokens, tokens + lengths[b]);
      tokens += lengths[b];
    }
    Result<StepOutput> out = session->session.prefill(sequences, {}, logits);
    if (!out)
      return out.status();
    storeStep(*out, next, logits);
    return {};
  });
}

gpt2c_status gpt2c_decode(gpt2c_session *session, int32_t steps, int32_t *tokens) {
  return guarded([&]() -> Status {
    if (!session || !tokens)
      return nullArgument(session ? "tokens" : "session");
    Result<std::vector<Tokens>> out = session->session.decode(steps);
    if (!out)
      return out.status();
    for (const Tokens &step : *out)
      tokens = std::copy(step.begin(), step.end(), tokens);
    return {};
  });
}

gpt2c_status gpt2c_step(gpt2c_session *session, const int32_t *tokens, int32_t *next,
                        float *logits) {
  return guarded([&]() -> Status {
    if (!session || !tokens || !next)
      return nullArgument(!session ? "session" : !tokens ? "tokens" : "next");
    Result<StepOutput> out =
        session->session.step({tokens, session->session.lengths().size()}, logits);
    if (!out)
      return out.status();
    storeStep(*out, next, logits);
    return {};
  });
}
