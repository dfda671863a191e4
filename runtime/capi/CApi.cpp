#include "runtime/capi/CApi.h"

#include "runtime/device/Device.h"
#include "runtime/text/TextStream.h"

using namespace gpt2c::rt;
using namespace gpt2c::rt::capi;

struct gpt2c_stream {
  std::shared_ptr<const Tokenizer> tokenizer;
  TextStream stream;
  std::string text; ///< of the last call
};

static_assert(GPT2C_USAGE == int(Code::Usage) && GPT2C_IO == int(Code::Io) &&
              GPT2C_UNSUPPORTED == int(Code::Unsupported) &&
              GPT2C_INCOMPATIBLE == int(Code::Incompatible) &&
              GPT2C_CORRUPT == int(Code::Corrupt) && GPT2C_QUALITY == int(Code::Quality) &&
              GPT2C_CUDA == int(Code::Cuda) && GPT2C_OUT_OF_MEMORY == int(Code::OutOfMemory));

std::string &capi::lastError() {
  thread_local std::string message;
  return message;
}

Result<std::vector<Tokens>> capi::readSequences(const int32_t *tokens, const int32_t *lengths,
                                                int32_t batch) {
  std::vector<Tokens> sequences;
  for (int32_t b = 0; b < batch; ++b) {
    if (lengths[b] < 0)
      return {Code::Usage, "the length of a sequence is negative"};
    sequences.emplace_back(tokens, tokens + lengths[b]);
    tokens += lengths[b];
  }
  return sequences;
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
    auto made = std::make_unique<gpt2c_plan>(gpt2c_plan{*opened, nullptr});
    if (std::span<const std::byte> blob = made->plan->tokenizerBlob(); !blob.empty()) {
      Result<Tokenizer> tokenizer =
          Tokenizer::fromBytes({reinterpret_cast<const std::uint8_t *>(blob.data()), blob.size()});
      if (!tokenizer)
        return tokenizer.status();
      made->tokenizer = std::make_shared<const Tokenizer>(tokenizer.take());
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
    const gpt2c_plan_info known = {
        .struct_size = sizeof(gpt2c_plan_info),
        .vocab_size = meta.vocab_size,
        .eos_token = meta.eos_token,
        .max_batch = meta.kv ? meta.kv->max_batch : 0,
        .max_context = meta.kv ? meta.kv->max_context : 0,
        .has_tokenizer = plan->tokenizer != nullptr,
        .has_chat_template = plan->tokenizer && !plan->tokenizer->texts().chatTemplates.empty()};
    return writeStruct(known, info, "info");
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

gpt2c_status gpt2c_stream_create(const gpt2c_plan *plan, const char *const *stops,
                                 size_t stop_count, gpt2c_stream **stream) {
  return guarded([&]() -> Status {
    if (Status s = needsTokenizer(plan); !s.ok())
      return s;
    if ((!stops && stop_count) || !stream)
      return nullArgument(stream ? "stops" : "stream");
    std::vector<std::string> texts;
    for (size_t i = 0; i < stop_count; ++i)
      if (!stops[i] || !*stops[i])
        return Status(Code::Usage, "stop string " + std::to_string(i + 1) + " is empty");
      else
        texts.emplace_back(stops[i]);
    *stream = new gpt2c_stream{plan->tokenizer, TextStream(std::move(texts)), {}};
    return {};
  });
}

void gpt2c_stream_destroy(gpt2c_stream *stream) { delete stream; }

gpt2c_status gpt2c_stream_push(gpt2c_stream *stream, int32_t token, const char **text,
                               size_t *bytes, int32_t *stop) {
  return guarded([&]() -> Status {
    if (!stream || !text || !bytes)
      return nullArgument(!stream ? "stream" : text ? "bytes" : "text");
    stream->text = stream->stream.push(stream->tokenizer->tokenBytes(token));
    *text = stream->text.c_str();
    *bytes = stream->text.size();
    if (stop)
      *stop = stream->stream.stopIndex();
    return {};
  });
}

gpt2c_status gpt2c_stream_finish(gpt2c_stream *stream, const char **text, size_t *bytes) {
  return guarded([&]() -> Status {
    if (!stream || !text || !bytes)
      return nullArgument(!stream ? "stream" : text ? "bytes" : "text");
    stream->text = stream->stream.finish();
    *text = stream->text.c_str();
    *bytes = stream->text.size();
    return {};
  });
}

gpt2c_status gpt2c_session_create(const gpt2c_plan *plan, const gpt2c_session_options *options,
                                  gpt2c_session **session) {
  return guarded([&]() -> Status {
    if (!plan || !session)
      return nullArgument(plan ? "session" : "plan");
    Result<gpt2c_session_options> o =
        readStruct<gpt2c_session_options>(options, GPT2C_SESSION_OPTIONS_INIT, "options");
    if (!o)
      return o.status();
    const std::string_view name = o->device ? o->device : "auto";
    const RankOptions ranks{.ranks = std::max(1, o->ranks),
                            .stages = std::max(1, o->stages),
                            .microRows = o->micro_rows};
    Result<std::unique_ptr<Backend>> backend = openDevice(plan->plan, name, o->threads, ranks);
    if (!backend)
      return backend.status();
    std::string device = (*backend)->name();
    *session =
        new gpt2c_session{Session(plan->plan, backend.take()), plan->tokenizer, std::move(device)};
    return {};
  });
}

void gpt2c_session_destroy(gpt2c_session *session) { delete session; }

const char *gpt2c_session_device(const gpt2c_session *session) {
  return session ? session->device.c_str() : "";
}

gpt2c_status gpt2c_prefill(gpt2c_session *session, const int32_t *tokens, const int32_t *lengths,
                           int32_t batch, int32_t *next, float *logits) {
  return guarded([&]() -> Status {
    Use use(session);
    if (Status s = use.status(); !s.ok())
      return s;
    if (!tokens || !lengths || !next)
      return nullArgument(!tokens ? "tokens" : !lengths ? "lengths" : "next");
    Result<std::vector<Tokens>> sequences = readSequences(tokens, lengths, batch);
    if (!sequences)
      return sequences.status();
    Result<StepOutput> out = session->session.prefill(*sequences, {}, logits);
    if (!out)
      return out.status();
    storeStep(*out, next, logits);
    return {};
  });
}

gpt2c_status gpt2c_decode(gpt2c_session *session, int32_t steps, int32_t *tokens) {
  return guarded([&]() -> Status {
    Use use(session);
    if (Status s = use.status(); !s.ok())
      return s;
    if (!tokens)
      return nullArgument("tokens");
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
    Use use(session);
    if (Status s = use.status(); !s.ok())
      return s;
    if (!tokens || !next)
      return nullArgument(tokens ? "next" : "tokens");
    Result<StepOutput> out =
        session->session.step({tokens, session->session.lengths().size()}, logits);
    if (!out)
      return out.status();
    storeStep(*out, next, logits);
    return {};
  });
}
