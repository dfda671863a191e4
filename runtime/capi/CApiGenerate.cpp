// The C API's generation: options in, tokens to a callback, answers out.
#include "runtime/capi/CApi.h"

#include "runtime/text/TextGeneration.h"

using namespace gpt2c::rt;
using namespace gpt2c::rt::capi;

struct gpt2c_answers {
  struct One {
    TextAnswer answer;
    std::vector<double> logprobs;
    std::vector<gpt2c_logprob> top; ///< [tokens][topCount]
    size_t topCount = 0;
  };
  std::vector<One> all;
  gpt2c_times times = GPT2C_TIMES_INIT;
};

static_assert(GPT2C_FINISH_LENGTH == 1 + int(Finish::Length) &&
              GPT2C_FINISH_STOP == 1 + int(Finish::Stop) &&
              GPT2C_FINISH_CONTEXT == 1 + int(Finish::Context) &&
              GPT2C_FINISH_CALLER == 1 + int(Finish::Caller) &&
              GPT2C_FINISH_FAILED == 1 + int(Finish::Failed));

gpt2c_finish capi::finishOf(Finish finish) { return gpt2c_finish(1 + int(finish)); }

static_assert(GPT2C_JSON_OBJECT == 1 + int(GrammarText::Kind::Json) &&
              GPT2C_JSON_SCHEMA == 1 + int(GrammarText::Kind::Schema) &&
              GPT2C_REGEX == 1 + int(GrammarText::Kind::Regex) &&
              GPT2C_EBNF == 1 + int(GrammarText::Kind::Ebnf) &&
              GPT2C_CHOICE == 1 + int(GrammarText::Kind::Choice));

static Result<std::vector<std::string>> textsOf(const char *const *texts, size_t count,
                                                const char *name) {
  std::vector<std::string> out;
  for (size_t i = 0; i < count; ++i) {
    if (!texts || !texts[i])
      return nullArgument(name);
    out.emplace_back(texts[i]);
  }
  return out;
}

/// What s.grammar_kind says, which is not GPT2C_ANY_TEXT.
static Result<std::shared_ptr<const Constraint>> constraintOf(const gpt2c_sampling &s,
                                                              gpt2c_session &session) {
  if (s.grammar_kind < 0 || s.grammar_kind > GPT2C_CHOICE)
    return {Code::Usage,
            "sampling.grammar_kind is " + std::to_string(s.grammar_kind) + ", no gpt2c_grammar"};
  GrammarText what{.kind = GrammarText::Kind(s.grammar_kind - 1)};
  if (s.grammar_kind == GPT2C_CHOICE) {
    Result<std::vector<std::string>> choices =
        textsOf(s.choices, s.choice_count, "sampling.choices");
    if (!choices)
      return choices.status();
    what.choices = choices.take();
  } else if (s.grammar_kind != GPT2C_JSON_OBJECT) {
    if (!s.grammar)
      return nullArgument("sampling.grammar");
    what.text = s.grammar;
  }
  if (!session.grammars)
    session.grammars = std::make_unique<GrammarCompiler>(
        session.tokenizer.get(), int32_t(session.session.plan().meta().vocab_size),
        endsOfText(session.session, session.tokenizer.get()));
  return session.grammars->compile(what);
}

Result<SamplingParams> capi::samplingOf(const gpt2c_sampling *given, gpt2c_session &session) {
  Result<gpt2c_sampling> s = readStruct<gpt2c_sampling>(given, GPT2C_SAMPLING_INIT, "sampling");
  if (!s)
    return s.status();
  if (!s->bias && s->bias_count)
    return nullArgument("sampling.bias");
  SamplingParams p{.temperature = s->temperature,
                   .topK = s->top_k,
                   .topP = s->top_p,
                   .minP = s->min_p,
                   .repetitionPenalty = s->repetition_penalty,
                   .frequencyPenalty = s->frequency_penalty,
                   .presencePenalty = s->presence_penalty,
                   .seed = s->seed,
                   .logprobs = s->logprobs};
  for (size_t i = 0; i < s->bias_count; ++i)
    p.logitBias.emplace_back(s->bias[i].token, s->bias[i].bias);
  if (!s->allowed_tokens && s->allowed_token_count)
    return nullArgument("sampling.allowed_tokens");
  if (s->allowed_token_count)
    p.allowedTokens.assign(s->allowed_tokens, s->allowed_tokens + s->allowed_token_count);
  const Result<std::vector<std::string>> words =
      textsOf(s->bad_words, s->bad_word_count, "sampling.bad_words");
  if (!words)
    return words.status();
  if (!words->empty() && !session.tokenizer)
    return {Code::Usage, "bad_words need a tokenizer, and the plan has none"};
  if (!words->empty())
    p.badWords = badWordsOf(*session.tokenizer, *words);
  if (s->grammar_kind == GPT2C_ANY_TEXT)
    return p;
  Result<std::shared_ptr<const Constraint>> made = constraintOf(*s, session);
  if (!made)
    return made.status();
  p.constraint = made.take();
  return p;
}

/// Elements of an array of structs lie as far apart as the caller's struct_size says.
static const gpt2c_sampling *elementOf(const gpt2c_sampling *first, size_t index) {
  return reinterpret_cast<const gpt2c_sampling *>(reinterpret_cast<const char *>(first) +
                                                  index * first->struct_size);
}

static Result<TextOptions> optionsOf(const gpt2c_generate_options &o, gpt2c_session &session) {
  if ((!o.sampling && o.sampling_count) || (!o.stops && o.stop_count) ||
      (!o.stop_tokens && o.stop_token_count))
    return nullArgument(!o.sampling && o.sampling_count ? "options.sampling"
                        : !o.stops && o.stop_count      ? "options.stops"
                                                        : "options.stop_tokens");
  TextOptions out;
  out.generate.maxNewTokens = o.max_tokens;
  out.generate.minNewTokens = o.min_tokens;
  if (o.slides && o.slide_keep < 0)
    return {Code::Usage, "slide_keep is " + std::to_string(o.slide_keep) + "; at least 0"};
  out.generate.slide = o.slides ? o.slide_keep : -1;
  if (o.stop_token_count)
    out.generate.stopTokens.assign(o.stop_tokens, o.stop_tokens + o.stop_token_count);
  for (size_t i = 0; i < o.sampling_count; ++i) {
    Result<SamplingParams> sampling = samplingOf(elementOf(o.sampling, i), session);
    if (!sampling)
      return sampling.status();
    out.generate.sampling.push_back(sampling.take());
  }
  for (size_t i = 0; i < o.stop_count; ++i) {
    if (!o.stops[i])
      return nullArgument("options.stops[]");
    out.stops.emplace_back(o.stops[i]);
  }
  out.ignoreEos = o.ignore_eos;
  return out;
}

static std::vector<gpt2c_logprob> topOf(const Choice &choice) {
  std::vector<gpt2c_logprob> top;
  for (const TokenLogprob &t : choice.top)
    top.push_back({t.token, t.logprob});
  return top;
}

/// Ties the callbacks of a generation to the caller's, and to gpt2c_session_cancel.
static void connect(TextOptions &options, gpt2c_session *session,
                    const gpt2c_generate_options &given) {
  options.onToken = [given](size_t sequence, const Choice &choice, std::string_view text) {
    bool goesOn = true;
    if (given.on_token) {
      const std::vector<gpt2c_logprob> top = topOf(choice);
      const gpt2c_token token = {.struct_size = sizeof(gpt2c_token),
                                 .sequence = sequence,
                                 .token = choice.token,
                                 .finish = GPT2C_RUNNING,
                                 .text = text.empty() ? "" : text.data(),
                                 .text_bytes = text.size(),
                                 .logprob = choice.logprob,
                                 .top = top.data(),
                                 .top_count = top.size()};
      goesOn = given.on_token(given.user, &token) == 0;
    }
    return goesOn;
  };
  options.generate.goesOn = [session] { return !session->cancelled; };
  if (given.on_token)
    options.onEnd = [given](size_t sequence, Finish finish, std::string_view rest) {
      const gpt2c_token token = {.struct_size = sizeof(gpt2c_token),
                                 .sequence = sequence,
                                 .token = -1,
                                 .finish = finishOf(finish),
                                 .text = rest.empty() ? "" : rest.data(),
                                 .text_bytes = rest.size(),
                                 .logprob = 0,
                                 .top = nullptr,
                                 .top_count = 0};
      given.on_token(given.user, &token);
    };
}

static std::unique_ptr<gpt2c_answers> answersOf(TextGenerated generated) {
  auto out = std::make_unique<gpt2c_answers>();
  for (TextAnswer &answer : generated.answers) {
    gpt2c_answers::One one;
    for (const Choice &choice : answer.choices) {
      one.logprobs.push_back(choice.logprob);
      one.topCount = choice.top.size();
      for (const gpt2c_logprob &t : topOf(choice))
        one.top.push_back(t);
    }
    one.answer = std::move(answer);
    out->all.push_back(std::move(one));
  }
  out->times.prefill_seconds = generated.generated.prefillSeconds;
  out->times.decode_seconds = generated.generated.decodeSeconds;
  out->times.decode_steps = generated.generated.decodeSteps;
  out->times.kept_tokens = generated.generated.keptTokens;
  return out;
}

/// The session is held by the caller.
static Status generate(gpt2c_session *session, std::span<const Tokens> prompts,
                       const gpt2c_generate_options *given, gpt2c_answers **answers,
                       bool keepsState = false) {
  Result<gpt2c_generate_options> known =
      readStruct<gpt2c_generate_options>(given, GPT2C_GENERATE_OPTIONS_INIT, "options");
  if (!known)
    return known.status();
  Result<TextOptions> options = optionsOf(*known, *session);
  if (!options)
    return options.status();
  session->cancelled = false;
  options->generate.keepsState = keepsState;
  connect(*options, session, *known);
  Result<TextGenerated> generated =
      generateText(session->session, session->tokenizer.get(), prompts, *options);
  if (!generated)
    return generated.status();
  if (answers)
    *answers = answersOf(generated.take()).release();
  return {};
}

gpt2c_status gpt2c_generate(gpt2c_session *session, const int32_t *tokens, const int32_t *lengths,
                            int32_t batch, const gpt2c_generate_options *options,
                            gpt2c_answers **answers) {
  return guarded([&]() -> Status {
    Use use(session);
    if (Status s = use.status(); !s.ok())
      return s;
    if (!tokens || !lengths)
      return nullArgument(tokens ? "lengths" : "tokens");
    Result<std::vector<Tokens>> prompts = readSequences(tokens, lengths, batch);
    if (!prompts)
      return prompts.status();
    return generate(session, *prompts, options, answers);
  });
}

gpt2c_status gpt2c_complete(gpt2c_session *session, const char *prompt, size_t bytes,
                            const gpt2c_generate_options *options, gpt2c_answers **answers) {
  return guarded([&]() -> Status {
    Use use(session);
    if (Status s = use.status(); !s.ok())
      return s;
    if (!prompt)
      return nullArgument("prompt");
    if (!session->tokenizer)
      return Status(Code::Unsupported,
                    "the plan has no tokenizer; compile it with gpt2c --tokenizer");
    const Tokens tokens = session->tokenizer->encode(
        {prompt, bytes}, {.allowSpecial = false, .addBos = AddBos::Auto});
    return generate(session, {&tokens, 1}, options, answers);
  });
}

gpt2c_status gpt2c_chat(gpt2c_session *session, const gpt2c_conversation *conversation,
                        const gpt2c_generate_options *options, gpt2c_answers **answers) {
  return guarded([&]() -> Status {
    Use use(session);
    if (Status s = use.status(); !s.ok())
      return s;
    const Result<Tokens> prompt = chatTokens(session->tokenizer.get(), conversation);
    if (!prompt)
      return prompt.status();
    return generate(session, {&*prompt, 1}, options, answers, true);
  });
}

void gpt2c_session_cancel(gpt2c_session *session) {
  if (session)
    session->cancelled = true;
}

size_t gpt2c_answers_count(const gpt2c_answers *answers) {
  return answers ? answers->all.size() : 0;
}

gpt2c_status gpt2c_answers_get(const gpt2c_answers *answers, size_t index, gpt2c_answer *answer) {
  return guarded([&]() -> Status {
    if (!answers || !answer)
      return nullArgument(answers ? "answer" : "answers");
    if (index >= answers->all.size())
      return Status(Code::Usage, "there is no answer " + std::to_string(index) + "; there are " +
                                     std::to_string(answers->all.size()));
    const gpt2c_answers::One &one = answers->all[index];
    const gpt2c_answer known = {.struct_size = sizeof(gpt2c_answer),
                                .tokens = one.answer.tokens.data(),
                                .token_count = one.answer.tokens.size(),
                                .text = one.answer.text.c_str(),
                                .text_bytes = one.answer.text.size(),
                                .finish = finishOf(one.answer.finish),
                                .stop = one.answer.stop,
                                .logprobs = one.logprobs.empty() ? nullptr : one.logprobs.data(),
                                .top = one.top.empty() ? nullptr : one.top.data(),
                                .top_count = one.topCount,
                                .first_token_seconds = one.answer.firstTokenSeconds,
                                .last_token_seconds = one.answer.lastTokenSeconds};
    return writeStruct(known, answer, "answer");
  });
}

gpt2c_status gpt2c_answers_get_times(const gpt2c_answers *answers, gpt2c_times *times) {
  return guarded([&]() -> Status {
    if (!answers || !times)
      return nullArgument(answers ? "times" : "answers");
    return writeStruct(answers->times, times, "times");
  });
}

void gpt2c_answers_destroy(gpt2c_answers *answers) { delete answers; }
