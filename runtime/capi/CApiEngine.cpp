// The C API's engines: requests in, updates out.
#include "runtime/capi/CApi.h"

#include "runtime/engine/Engine.h"
#include "runtime/text/TextGeneration.h"

using namespace gpt2c::rt;
using namespace gpt2c::rt::capi;

struct gpt2c_engine {
  gpt2c_session *session; ///< held from create to destroy
  std::shared_ptr<const Tokenizer> tokenizer;
  std::unique_ptr<Engine> engine;
  /// Of the last poll: what its pointers lead to.
  Update update = {};
  std::vector<gpt2c_logprob> top = {};
  std::vector<gpt2c_scored_token> prompt = {};
};

static_assert(GPT2C_REFUSED_PROMPT == int(Refusal::Prompt) &&
              GPT2C_REFUSED_VOCABULARY == int(Refusal::Vocabulary) &&
              GPT2C_REFUSED_MAX_TOKENS == int(Refusal::MaxTokens) &&
              GPT2C_REFUSED_CONTEXT == int(Refusal::Context) &&
              GPT2C_REFUSED_PAGES == int(Refusal::Pages) &&
              GPT2C_REFUSED_SAMPLING == int(Refusal::Sampling) &&
              GPT2C_REFUSED_STOP == int(Refusal::Stop) && GPT2C_REFUSED_FULL == int(Refusal::Full));

static_assert(GPT2C_COMEBACK_AUTO == int(Comeback::Auto) &&
              GPT2C_COMEBACK_COPIED == int(Comeback::Copied) &&
              GPT2C_COMEBACK_RECOMPUTED == int(Comeback::Recomputed));

gpt2c_status gpt2c_engine_create(gpt2c_session *session, const gpt2c_engine_options *options,
                                 gpt2c_engine **engine) {
  return guarded([&]() -> Status {
    Use use(session);
    if (Status s = use.status(); !s.ok())
      return s;
    if (!engine)
      return nullArgument("engine");
    Result<gpt2c_engine_options> o =
        readStruct<gpt2c_engine_options>(options, GPT2C_ENGINE_OPTIONS_INIT, "options");
    if (!o)
      return o.status();
    EngineOptions known;
    known.rowBudget = o->row_budget;
    known.maxSequences = o->max_sequences;
    known.maxWaiting = o->max_waiting;
    known.kvBytes = o->kv_bytes;
    known.hostPages = o->host_pages;
    known.hostBytes = o->host_bytes;
    known.checkHostPages = o->check_host_pages != 0;
    known.turnTokens = o->turn_tokens;
    if (o->comeback < GPT2C_COMEBACK_AUTO || o->comeback > GPT2C_COMEBACK_RECOMPUTED)
      return {Code::Usage, "options.comeback is no gpt2c_comeback"};
    known.comeback = Comeback(o->comeback);
    known.tokenizer = session->tokenizer.get();
    Result<std::unique_ptr<Engine>> made = Engine::create(session->session, std::move(known));
    if (!made)
      return made.status();
    *engine = new gpt2c_engine{session, session->tokenizer, made.take()};
    use.keep();
    return {};
  });
}

void gpt2c_engine_destroy(gpt2c_engine *engine) {
  if (!engine)
    return;
  engine->engine.reset(); // it waits for the device
  engine->session->session.endBatch();
  engine->session->busy = false;
  delete engine;
}

static Result<Tokens> promptOf(const gpt2c_engine *engine, const gpt2c_request &r) {
  if (!r.text) {
    if (!r.tokens && r.token_count)
      return nullArgument("request.tokens");
    return Tokens(r.tokens, r.tokens + r.token_count);
  }
  if (r.tokens)
    return {Code::Usage, "a request has tokens or a text, and this one has both"};
  if (!engine->tokenizer)
    return {Code::Unsupported, "the plan has no tokenizer; compile it with gpt2c --tokenizer"};
  return engine->tokenizer->encode({r.text, r.text_bytes},
                                   {.allowSpecial = false, .addBos = AddBos::Auto});
}

static Result<Request> requestOf(const gpt2c_engine *engine, const gpt2c_request &r) {
  if (!r.stops && r.stop_count)
    return nullArgument("request.stops");
  if (!r.stop_tokens && r.stop_token_count)
    return nullArgument("request.stop_tokens");
  Result<Tokens> prompt = promptOf(engine, r);
  if (!prompt)
    return prompt.status();
  Result<SamplingParams> sampling = samplingOf(r.sampling, *engine->session);
  if (!sampling)
    return sampling.status();
  Request out;
  out.prompt = prompt.take();
  out.maxTokens = r.max_tokens;
  out.minTokens = r.min_tokens;
  if (r.cache_salt)
    out.cacheSalt = r.cache_salt;
  out.sampling = sampling.take();
  if (r.score_prompt)
    out.promptLogprobs = r.prompt_top;
  else if (r.prompt_top)
    return {Code::Usage, "prompt_top needs score_prompt"};
  if (r.stop_token_count)
    out.stopTokens.assign(r.stop_tokens, r.stop_tokens + r.stop_token_count);
  out.fillsContext = r.fill_context != 0;
  if (!r.ignore_eos)
    for (const int32_t end : endsOfText(engine->session->session, engine->session->tokenizer.get()))
      out.stopTokens.push_back(end);
  for (size_t i = 0; i < r.stop_count; ++i) {
    if (!r.stops[i])
      return nullArgument("request.stops[]");
    out.stops.emplace_back(r.stops[i]);
  }
  return out;
}

gpt2c_status gpt2c_engine_submit(gpt2c_engine *engine, const gpt2c_request *request, uint64_t *id,
                                 int32_t *refusal) {
  return guarded([&]() -> Status {
    if (!engine || !request || !id)
      return nullArgument(!engine ? "engine" : request ? "id" : "request");
    Result<gpt2c_request> known = readStruct<gpt2c_request>(request, GPT2C_REQUEST_INIT, "request");
    if (!known)
      return known.status();
    Result<Request> made = requestOf(engine, *known);
    if (!made)
      return made.status();
    Submitted submitted = engine->engine->submit(made.take());
    if (refusal)
      *refusal = int32_t(submitted.refusal);
    if (submitted)
      *id = submitted.id;
    return submitted.status;
  });
}

gpt2c_status gpt2c_engine_step(gpt2c_engine *engine, int32_t *idle) {
  return guarded([&]() -> Status {
    if (!engine)
      return nullArgument("engine");
    Status status = engine->engine->step();
    if (idle)
      *idle = engine->engine->idle();
    return status;
  });
}

/// What an update's pointers lead to, beside the update itself.
static void keepLists(gpt2c_engine &engine) {
  const Update &u = engine.update;
  engine.top.clear();
  engine.prompt.clear();
  auto add = [&](const Choice &choice) {
    for (const TokenLogprob &t : choice.top)
      engine.top.push_back({t.token, t.logprob});
  };
  if (u.choice)
    add(*u.choice);
  for (const Choice &scored : u.prompt)
    add(scored);
  const gpt2c_logprob *top = engine.top.data() + (u.choice ? u.choice->top.size() : 0);
  for (const Choice &scored : u.prompt) {
    const size_t count = scored.top.size();
    engine.prompt.push_back({scored.token, scored.logprob, count ? top : nullptr, count});
    top += count;
  }
}

static gpt2c_update updateOf(const gpt2c_engine &engine) {
  const Update &u = engine.update;
  gpt2c_update out = GPT2C_UPDATE_INIT;
  out.id = u.id;
  if (u.choice) {
    out.token = u.choice->token;
    out.logprob = u.choice->logprob;
    out.top_count = u.choice->top.size();
    out.top = out.top_count ? engine.top.data() : nullptr;
  }
  out.prompt_count = engine.prompt.size();
  out.prompt = out.prompt_count ? engine.prompt.data() : nullptr;
  out.text = u.text.c_str();
  out.text_bytes = u.text.size();
  if (u.ending) {
    out.finish = finishOf(u.ending->reason);
    out.stop = u.ending->stopString;
    out.status = int32_t(u.ending->status.code());
    out.message = u.ending->status.message().c_str();
    out.prompt_tokens = u.ending->promptTokens;
    out.new_tokens = u.ending->newTokens;
    out.cached_tokens = u.ending->cachedTokens;
  }
  return out;
}

/// Keeps the update that `next` takes, and writes it where there is one.
template <typename F>
static Status give(gpt2c_engine *engine, gpt2c_update *update, int32_t *found, F next) {
  if (!engine || !update || !found)
    return nullArgument(!engine ? "engine" : update ? "found" : "update");
  // Looked at before an update is taken, which would be lost.
  if (update->struct_size < sizeof(size_t))
    return writeStruct(gpt2c_update(GPT2C_UPDATE_INIT), update, "update");
  Result<std::optional<Update>> taken = next(*engine->engine);
  if (!taken)
    return taken.status();
  *found = taken->has_value();
  if (!*found)
    return {};
  engine->update = std::move(**taken);
  keepLists(*engine);
  return writeStruct(updateOf(*engine), update, "update");
}

gpt2c_status gpt2c_engine_poll(gpt2c_engine *engine, gpt2c_update *update, int32_t *found) {
  return guarded([&]() -> Status {
    return give(engine, update, found,
                [](Engine &e) -> Result<std::optional<Update>> { return e.poll(); });
  });
}

gpt2c_status gpt2c_engine_wait(gpt2c_engine *engine, gpt2c_update *update, int32_t *found) {
  return guarded(
      [&]() -> Status { return give(engine, update, found, [](Engine &e) { return e.wait(); }); });
}

gpt2c_status gpt2c_engine_cancel(gpt2c_engine *engine, uint64_t id) {
  return guarded([&]() -> Status {
    if (!engine)
      return nullArgument("engine");
    engine->engine->cancel(id);
    return {};
  });
}

gpt2c_status gpt2c_engine_get_stats(const gpt2c_engine *engine, gpt2c_engine_stats *stats) {
  return guarded([&]() -> Status {
    if (!engine || !stats)
      return nullArgument(engine ? "stats" : "engine");
    const EngineStats s = engine->engine->stats();
    const gpt2c_engine_stats known = {.struct_size = sizeof(gpt2c_engine_stats),
                                      .waiting = s.waiting,
                                      .running = s.running,
                                      .pages = s.pages,
                                      .pages_used = s.pagesUsed,
                                      .steps = s.calls,
                                      .rows = s.rows,
                                      .prompt_rows = s.promptRows,
                                      .wasted_rows = s.wastedRows,
                                      .new_tokens = s.newTokens,
                                      .prefix_queries = s.prefixQueries,
                                      .prefix_hits = s.prefixHits,
                                      .busy_seconds = s.busySeconds,
                                      .host_pages = s.hostPages,
                                      .host_pages_used = s.hostPagesUsed,
                                      .resting = s.resting,
                                      .pages_out = s.pagesOut,
                                      .pages_in = s.pagesIn,
                                      .out_seconds = s.outSeconds,
                                      .in_seconds = s.inSeconds,
                                      .recomputed_tokens = s.recomputedTokens,
                                      .copy_seconds_per_token = s.copySecondsPerToken,
                                      .recompute_seconds_per_token = s.recomputeSecondsPerToken,
                                      .pages_read = s.pagesRead};
    return writeStruct(known, stats, "stats");
  });
}
