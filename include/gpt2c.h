/* gpt2c runtime: running a plan from C.
 *
 *   gpt2c_plan *plan;
 *   gpt2c_session *session;
 *   gpt2c_answers *answers;
 *   if (gpt2c_plan_open("gpt2.plan", &plan) || gpt2c_session_create(plan, NULL, &session) ||
 *       gpt2c_complete(session, prompt, strlen(prompt), NULL, &answers))
 *     fail(gpt2c_last_error());
 *
 * Errors. Every function that can fail returns a gpt2c_status and leaves its outputs alone when it
 * is not GPT2C_OK; gpt2c_last_error() has the message. No function throws, none ends the program.
 *
 * Structs. A struct that begins with struct_size may get more fields at its end. Begin with its
 * GPT2C_..._INIT, which sets the size and the defaults: the library takes the fields it knows, and
 * refuses a struct that sets others. A field of zero that a program was compiled without is the
 * default of that field. Reserved for the library: names that begin with gpt2c_ or GPT2C_.
 *
 * Threads. Every function may be called by several threads at once, with these limits: a plan may
 * be used by all of them, but is closed by one after all others are done with it; a session, an
 * engine, a stream and answers are used by one thread at a time, whichever it is. A call for a
 * session that another call uses, or an engine holds, is GPT2C_USAGE; gpt2c_session_cancel alone is
 * for any thread at any time until the session is destroyed. Messages are kept for each thread.
 * Threads of the CPU device are those of the process.
 *
 * The whole interface is this header.
 *
 * Link with -lgpt2c (or find_package(gpt2c), or pkg-config gpt2c). The library opens the NVIDIA
 * driver (libcuda.so.1) when a GPU is asked for, and libgpt2c_cpu.so, which is installed beside it,
 * when the CPU is; it needs neither to start.
 */
#ifndef GPT2C_H
#define GPT2C_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define GPT2C_API __attribute__((visibility("default")))
#else
#define GPT2C_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* The exit codes of the command line tools. */
typedef enum gpt2c_status {
  GPT2C_OK = 0,
  GPT2C_USAGE = 1,         /* an argument is wrong, or more than the plan holds */
  GPT2C_IO = 2,            /* a file cannot be read */
  GPT2C_UNSUPPORTED = 4,   /* the plan cannot do this */
  GPT2C_INCOMPATIBLE = 6,  /* no driver, no GPU, or no code in the plan for it */
  GPT2C_CORRUPT = 7,       /* the plan is damaged */
  GPT2C_QUALITY = 8,       /* the model computed NaN */
  GPT2C_CUDA = 9,          /* a call of the driver failed */
  GPT2C_OUT_OF_MEMORY = 10 /* the message says how much was asked for and how much there is */
} gpt2c_status;

typedef struct gpt2c_plan gpt2c_plan;
typedef struct gpt2c_session gpt2c_session;
typedef struct gpt2c_stream gpt2c_stream;
typedef struct gpt2c_answers gpt2c_answers;

/* "0.1.0" */
GPT2C_API const char *gpt2c_version(void);

/* Why the last call of this thread failed: one paragraph for people. Valid until the thread's next
 * call; empty after one that succeeded. */
GPT2C_API const char *gpt2c_last_error(void);

/* -- Plans ------------------------------------------------------------------------------------ */

/* Maps and verifies the plan file, which must not change while it is open. */
GPT2C_API gpt2c_status gpt2c_plan_open(const char *path, gpt2c_plan **plan);

/* Sessions and streams made from the plan may live on. Null is allowed. */
GPT2C_API void gpt2c_plan_close(gpt2c_plan *plan);

typedef struct gpt2c_plan_info {
  size_t struct_size;
  int32_t vocab_size;
  int32_t eos_token;   /* -1: the plan knows none */
  int32_t max_batch;   /* 0: the plan has no KV state, and its sequences run one by one */
  int32_t max_context; /* tokens of one sequence */
  int32_t has_tokenizer;
  int32_t has_chat_template;
} gpt2c_plan_info;
#define GPT2C_PLAN_INFO_INIT {sizeof(gpt2c_plan_info), 0, 0, 0, 0, 0, 0}

GPT2C_API gpt2c_status gpt2c_plan_get_info(const gpt2c_plan *plan, gpt2c_plan_info *info);

/* All tokens that end an answer. Stores the first `capacity` of them, and in *count how many there
 * are; with a capacity of 0 `tokens` may be null. */
GPT2C_API gpt2c_status gpt2c_plan_end_tokens(const gpt2c_plan *plan, int32_t *tokens,
                                             size_t capacity, size_t *count);

/* -- Text, for plans with a tokenizer --------------------------------------------------------- */

/* The token ids of `bytes` bytes of text. Stores the first `capacity` of them, and in *count how
 * many there are; with a capacity of 0 `tokens` may be null. Text such as <|endoftext|> is ordinary
 * text, not a special token. */
GPT2C_API gpt2c_status gpt2c_encode(const gpt2c_plan *plan, const char *text, size_t bytes,
                                    int32_t *tokens, size_t capacity, size_t *count);

/* The text of `count` tokens, not terminated by a NUL; `capacity` and *bytes as above. A character
 * may be spread over several tokens: decode a whole sequence, or use a stream. */
GPT2C_API gpt2c_status gpt2c_decode_text(const gpt2c_plan *plan, const int32_t *tokens,
                                         size_t count, char *text, size_t capacity, size_t *bytes);

/* The text of a sequence as it grows: whole characters, cut where the first of `stop_count` stop
 * strings (each ends with a NUL and is not empty) begins. What may still become part of one is held
 * back. All pieces together are the text, byte for byte. */
GPT2C_API gpt2c_status gpt2c_stream_create(const gpt2c_plan *plan, const char *const *stops,
                                           size_t stop_count, gpt2c_stream **stream);
GPT2C_API void gpt2c_stream_destroy(gpt2c_stream *stream); /* null is allowed */

/* What can be shown behind this token: *bytes of *text, valid until the stream's next call. *stop
 * (null is allowed) receives the index of the stop string that ended the text, -1: none yet.
 * Nothing comes behind a stop string. */
GPT2C_API gpt2c_status gpt2c_stream_push(gpt2c_stream *stream, int32_t token, const char **text,
                                         size_t *bytes, int32_t *stop);

/* What was held back, for a text that ends here. */
GPT2C_API gpt2c_status gpt2c_stream_finish(gpt2c_stream *stream, const char **text, size_t *bytes);

/* -- Sessions --------------------------------------------------------------------------------- */

typedef struct gpt2c_session_options {
  size_t struct_size;
  /* "cuda", "cuda:N" (N as the driver counts), "cuda:N,M,.." (a rank on each, of a plan that gpt2c
   * --tensor-parallel made for as many; one that is named twice is two ranks), "cpu", or "auto",
   * the first GPU where the plan has code for it, else the CPU. Null is "auto". */
  const char *device;
  int32_t threads; /* of the CPU device, for the whole process; 0: one for each core */
  int32_t reserved;
  /* On "cpu", of a plan that gpt2c --tensor-parallel made for as many: ranks that share every
   * layer, each a thread. 0 and 1: one. */
  int32_t ranks;
  /* Of any plan with a KV state, on "cpu" or "cuda:N,M,..": stages one behind the other, each with
   * some of the layers; on "cpu" of `ranks` each, else the GPUs in their order are dealt to them.
   * 0 and 1: one. */
  int32_t stages;
  int32_t micro_rows; /* on which a stage works at a time; 0: as many as the device thinks best */
} gpt2c_session_options;
#define GPT2C_SESSION_OPTIONS_INIT {sizeof(gpt2c_session_options), NULL, 0, 0, 0, 0, 0}

/* Loads the plan onto a device. Null options are the defaults. */
GPT2C_API gpt2c_status gpt2c_session_create(const gpt2c_plan *plan,
                                            const gpt2c_session_options *options,
                                            gpt2c_session **session);
GPT2C_API void gpt2c_session_destroy(gpt2c_session *session); /* null is allowed */

/* "NVIDIA H200" or "CPU, 2 threads"; the session's. */
GPT2C_API const char *gpt2c_session_device(const gpt2c_session *session);

/* -- Generation ------------------------------------------------------------------------------- */

typedef struct gpt2c_logprob {
  int32_t token;
  double logprob; /* log softmax of the logits as the model gives them */
} gpt2c_logprob;

typedef struct gpt2c_bias {
  int32_t token;
  double bias; /* added to the token's logit */
} gpt2c_bias;

/* How the next token is chosen. Bias and penalties change the logits, temperature divides them,
 * then min_p, top_k and top_p in turn take candidates away. A seed gives one text for a prompt,
 * whatever else is in the batch. */
/* What an answer is, token by token: tokens that do not fit are never chosen, and the answer ends
 * where it is complete. docs/serving/structured-output.md has what each takes and its limits. Of a
 * build without grammars, or a plan without a tokenizer, all but the first are refused. */
typedef enum gpt2c_grammar {
  GPT2C_ANY_TEXT = 0,
  GPT2C_JSON_OBJECT = 1,
  GPT2C_JSON_SCHEMA = 2, /* gpt2c_sampling.grammar is the schema */
  GPT2C_REGEX = 3,       /* it is a regular expression of the whole answer */
  GPT2C_EBNF = 4,        /* it is a grammar whose first rule is named root */
  GPT2C_CHOICE = 5       /* one of gpt2c_sampling.choices */
} gpt2c_grammar;

typedef struct gpt2c_sampling {
  size_t struct_size;
  double temperature;        /* 0: the most probable token, the others do not matter */
  double top_p;              /* (0, 1], 1: off */
  double min_p;              /* [0, 1], 0: off */
  int32_t top_k;             /* 0: off; 1: the largest, as temperature 0 */
  int32_t logprobs;          /* how many of the best tokens are reported; 0: the chosen one alone;
                                -1: none */
  double repetition_penalty; /* above 0, 1: off; of tokens in prompt or answer */
  double frequency_penalty;  /* 0: off; for each time the answer has the token */
  double presence_penalty;   /* 0: off; once if the answer has the token */
  uint64_t seed;
  const gpt2c_bias *bias;
  size_t bias_count;
  int32_t grammar_kind; /* a gpt2c_grammar */
  const char *grammar;
  const char *const *choices;
  size_t choice_count;
  const int32_t *allowed_tokens; /* the only ones that may be chosen; allowed_token_count 0: any */
  size_t allowed_token_count;
  const char *const
      *bad_words; /* texts whose tokens the answer does not have, one behind the other */
  size_t bad_word_count;
} gpt2c_sampling;
#define GPT2C_SAMPLING_INIT                                                                        \
  {sizeof(gpt2c_sampling), 0,    1,    0, 0,    -1, 1,    0, 0, 0, NULL, 0,                        \
   GPT2C_ANY_TEXT,         NULL, NULL, 0, NULL, 0,  NULL, 0}

/* How the model's makers advise to sample, by generation_config.json, for who asks: nothing takes
 * it by itself. Where they say nothing *sampling is GPT2C_SAMPLING_INIT. */
GPT2C_API gpt2c_status gpt2c_plan_get_sampling(const gpt2c_plan *plan, gpt2c_sampling *sampling);

typedef enum gpt2c_finish {
  GPT2C_RUNNING = 0,
  GPT2C_FINISH_LENGTH = 1,  /* max_tokens are there */
  GPT2C_FINISH_STOP = 2,    /* the end of text, a stop token or a stop string came */
  GPT2C_FINISH_CONTEXT = 3, /* the context is full */
  GPT2C_FINISH_CALLER = 4,  /* on_token, gpt2c_session_cancel or gpt2c_engine_cancel said so */
  GPT2C_FINISH_FAILED = 5   /* of an engine's request alone, as its message says */
} gpt2c_finish;

/* One new token. Pointers are valid during the call. */
typedef struct gpt2c_token {
  size_t struct_size;
  size_t sequence;  /* of the call's */
  int32_t token;    /* -1 in the last call for a sequence, which brings no token */
  int32_t finish;   /* GPT2C_RUNNING, and in the last call a gpt2c_finish */
  const char *text; /* text_bytes bytes that can be shown now, as from a stream */
  size_t text_bytes;
  double logprob;           /* 0 where sampling asks for none */
  const gpt2c_logprob *top; /* the best first */
  size_t top_count;
} gpt2c_token;

/* Called by the thread that generates. What is not 0 ends the sequence. It may not use the session,
 * but for gpt2c_session_cancel. */
typedef int (*gpt2c_on_token)(void *user, const gpt2c_token *token);

typedef struct gpt2c_generate_options {
  size_t struct_size;
  int64_t max_tokens; /* new ones, of each sequence */
  const gpt2c_sampling
      *sampling;            /* sampling_count of them: one for all, or one for each sequence */
  size_t sampling_count;    /* 0: the most probable token */
  const char *const *stops; /* texts that end an answer and are not part of its text */
  size_t stop_count;
  const int32_t *stop_tokens; /* tokens that end an answer, beside the end of text */
  size_t stop_token_count;
  int32_t ignore_eos; /* not 0: the end of text is a token like any other */
  int32_t slides;     /* not 0: a sequence that fills the context goes on without the older half of
                         what lies behind its first slide_keep tokens; 0: it ends */
  int64_t slide_keep;
  gpt2c_on_token on_token; /* null: nobody looks on */
  void *user;
  int64_t min_tokens; /* so many have no end of text and no stop among them */
} gpt2c_generate_options;
#define GPT2C_GENERATE_OPTIONS_INIT                                                                \
  {sizeof(gpt2c_generate_options), 32, NULL, 0, NULL, 0, NULL, 0, 0, 0, 0, NULL, NULL, 0}

/* Continues `batch` sequences of at least one token. `tokens` holds them one after the other. More
 * than the plan's batch run in turn. Null options are the defaults; with null `answers` the
 * callback has seen all there is. */
GPT2C_API gpt2c_status gpt2c_generate(gpt2c_session *session, const int32_t *tokens,
                                      const int32_t *lengths, int32_t batch,
                                      const gpt2c_generate_options *options,
                                      gpt2c_answers **answers);

/* gpt2c_generate for one text of `bytes` bytes. */
GPT2C_API gpt2c_status gpt2c_complete(gpt2c_session *session, const char *prompt, size_t bytes,
                                      const gpt2c_generate_options *options,
                                      gpt2c_answers **answers);

/* -- Chats, by the template of the plan or of the caller -------------------------------------- */

typedef struct gpt2c_message {
  const char *role; /* "system", "user", "assistant", or what else the template knows */
  const char *content;
} gpt2c_message;

typedef struct gpt2c_conversation {
  size_t struct_size;
  const gpt2c_message *messages;
  size_t message_count;
  /* A JSON object with what else the template reads, as "tools" or "enable_thinking", or "messages"
   * in place of those above; null: nothing. "add_generation_prompt" is true until it says else. */
  const char *context;
  const char *chat_template; /* Jinja, in place of the plan's; null: that one */
} gpt2c_conversation;
#define GPT2C_CONVERSATION_INIT {sizeof(gpt2c_conversation), NULL, 0, NULL, NULL}

/* The tokens of the prompt that the template makes of a conversation, for gpt2c_generate or a
 * gpt2c_request; `capacity` and *count as of gpt2c_encode. Names of special tokens, also within
 * messages, are those tokens. GPT2C_UNSUPPORTED where there is no template, GPT2C_USAGE where it
 * refuses the conversation, with its reason. */
GPT2C_API gpt2c_status gpt2c_chat_tokens(const gpt2c_plan *plan,
                                         const gpt2c_conversation *conversation, int32_t *tokens,
                                         size_t capacity, size_t *count);

/* gpt2c_generate for the next message of a conversation. What it begins with and the session still
 * holds, of the chat before, is not computed again: a turn costs its new tokens. */
GPT2C_API gpt2c_status gpt2c_chat(gpt2c_session *session, const gpt2c_conversation *conversation,
                                  const gpt2c_generate_options *options, gpt2c_answers **answers);

/* Ends the generation that runs in another thread, if one does, ahead of its next step. */
GPT2C_API void gpt2c_session_cancel(gpt2c_session *session);

/* Pointers are valid until the answers are destroyed. */
typedef struct gpt2c_answer {
  size_t struct_size;
  const int32_t *tokens; /* with the token that ended it */
  size_t token_count;
  const char *text; /* text_bytes bytes, and a NUL; empty where there is no tokenizer */
  size_t text_bytes;
  int32_t finish;           /* gpt2c_finish */
  int32_t stop;             /* which of the stop strings ended it, -1: none */
  const double *logprobs;   /* of each token; null where sampling asks for none */
  const gpt2c_logprob *top; /* [token_count][top_count], the best first */
  size_t top_count;
  /* Until the first and the last token were there, from the call on: a prompt that waits for a
   * place in the batch counts that. */
  double first_token_seconds;
  double last_token_seconds;
} gpt2c_answer;
#define GPT2C_ANSWER_INIT {sizeof(gpt2c_answer), NULL, 0, NULL, 0, 0, -1, NULL, NULL, 0, 0, 0}

typedef struct gpt2c_times {
  size_t struct_size;
  double prefill_seconds; /* prompts in to first tokens out */
  double decode_seconds;  /* for all later tokens */
  int64_t decode_steps;   /* calls for one more token of each sequence that ran */
  int64_t kept_tokens;    /* of gpt2c_chat: tokens of the prompt that the session held */
} gpt2c_times;
#define GPT2C_TIMES_INIT {sizeof(gpt2c_times), 0, 0, 0, 0}

GPT2C_API size_t gpt2c_answers_count(const gpt2c_answers *answers); /* 0 for null */
GPT2C_API gpt2c_status gpt2c_answers_get(const gpt2c_answers *answers, size_t index,
                                         gpt2c_answer *answer);
GPT2C_API gpt2c_status gpt2c_answers_get_times(const gpt2c_answers *answers, gpt2c_times *times);
GPT2C_API void gpt2c_answers_destroy(gpt2c_answers *answers); /* null is allowed */

/* -- Single steps, for sampling by the caller, of plans with a KV state ----------------------- */

/* Starts a batch of sequences of any lengths of at least one. `tokens` holds them one after the
 * other. next[batch] receives the greedy choice after each. logits[batch][vocab_size] receives what
 * it was chosen by, unless it is null. */
GPT2C_API gpt2c_status gpt2c_prefill(gpt2c_session *session, const int32_t *tokens,
                                     const int32_t *lengths, int32_t batch, int32_t *next,
                                     float *logits);

/* `steps` greedy steps of the batch, without a round trip to the host between them: each appends
 * the last choice and makes the next one. tokens[steps][batch] receives the new choices. */
GPT2C_API gpt2c_status gpt2c_decode(gpt2c_session *session, int32_t steps, int32_t *tokens);

/* One step with tokens[batch] in place of the last choice. `next` and `logits` as in
 * gpt2c_prefill. */
GPT2C_API gpt2c_status gpt2c_step(gpt2c_session *session, const int32_t *tokens, int32_t *next,
                                  float *logits);

/* -- Engines: many requests at once ------------------------------------------------------------
 *
 * An engine takes requests at any time, and with every step each that runs gets its next token.
 * docs/engine.md says how. An engine holds its session, which serves nothing else until the engine
 * is destroyed, and has to be destroyed after it.
 *
 *   gpt2c_engine_create(session, NULL, &engine);
 *   gpt2c_engine_submit(engine, &request, &id, NULL);
 *   while (!gpt2c_engine_wait(engine, &update, &found) && found)
 *     show(&update);
 *
 * gpt2c_engine_step and gpt2c_engine_poll are its parts, for a loop that does other things, too.
 */

typedef struct gpt2c_engine gpt2c_engine;

typedef struct gpt2c_engine_options {
  size_t struct_size;
  int32_t row_budget;    /* rows of a step: next tokens, and pieces of prompts; 0: 512 */
  int32_t max_sequences; /* running at once; 0: as many as the device takes */
  int64_t max_waiting;   /* requests that may wait */
  uint64_t kv_bytes;     /* for the KV state, at most; 0: what the plan or the device says */
  /* Pages of the KV state in host memory, or bytes for them: requests that find no room on the
   * device take turns there. 0: none. */
  int32_t host_pages;
  uint64_t host_bytes;
  int32_t check_host_pages; /* not 0: what comes back from there is checked */
  int32_t turn_tokens;      /* new tokens of a turn, at least; 0: as the speed of copies asks */
  int32_t comeback;         /* how state comes back: a gpt2c_comeback */
} gpt2c_engine_options;
#define GPT2C_ENGINE_OPTIONS_INIT {sizeof(gpt2c_engine_options), 0, 0, 4096, 0, 0, 0, 0, 0, 0}

/* How keys and values come back that gave their room to others. */
typedef enum gpt2c_comeback {
  GPT2C_COMEBACK_AUTO = 0, /* copied, or where that is faster and the same bits, recomputed */
  GPT2C_COMEBACK_COPIED = 1,
  GPT2C_COMEBACK_RECOMPUTED = 2
} gpt2c_comeback;

/* Allocates the KV state. Null options are the defaults. */
GPT2C_API gpt2c_status gpt2c_engine_create(gpt2c_session *session,
                                           const gpt2c_engine_options *options,
                                           gpt2c_engine **engine);
/* Waits for the device. Requests end without an update. Null is allowed. */
GPT2C_API void gpt2c_engine_destroy(gpt2c_engine *engine);

typedef struct gpt2c_request {
  size_t struct_size;
  const int32_t *tokens; /* the prompt: token_count tokens, or text_bytes bytes of text */
  size_t token_count;
  const char *text;
  size_t text_bytes;
  int64_t max_tokens;             /* new ones */
  const gpt2c_sampling *sampling; /* null: the most probable token */
  const char *const *stops;       /* texts that end the answer and are not part of its text */
  size_t stop_count;
  const int32_t *stop_tokens; /* tokens that end the answer, beside the end of text */
  size_t stop_token_count;
  int32_t ignore_eos; /* not 0: the end of text is a token like any other */
  /* Not 0: an answer that fills the context ends; 0: a request whose answer might is refused. */
  int32_t fill_context;
  int64_t min_tokens;     /* so many have no end of text and no stop among them */
  const char *cache_salt; /* prompts share pages with those of the same salt alone; null: no salt */
  /* Not 0: the first update has how probable each token of the prompt is, and beside it the
   * prompt_top most probable ones. Such a prompt takes a step for each of its tokens. */
  int32_t score_prompt;
  int32_t prompt_top;
} gpt2c_request;
#define GPT2C_REQUEST_INIT                                                                         \
  {sizeof(gpt2c_request), NULL, 0, NULL, 0, 16, NULL, NULL, 0, NULL, 0, 0, 0, 0, NULL, 0, 0}

/* Why a request is not taken. All but GPT2C_REFUSED_FULL hold for ever. */
typedef enum gpt2c_refusal {
  GPT2C_TAKEN = 0,
  GPT2C_REFUSED_PROMPT = 1,     /* it has no token */
  GPT2C_REFUSED_VOCABULARY = 2, /* a token that the model does not know */
  GPT2C_REFUSED_MAX_TOKENS = 3, /* it asks for no token, or for more at least than at most */
  GPT2C_REFUSED_CONTEXT = 4,    /* prompt and answer are longer than the context */
  GPT2C_REFUSED_PAGES = 5,      /* they need more pages than there are */
  GPT2C_REFUSED_SAMPLING = 6,   /* a sampling parameter out of its range */
  GPT2C_REFUSED_STOP = 7,       /* a stop string that is empty, or without a tokenizer */
  GPT2C_REFUSED_FULL = 8        /* as many requests wait as may: later there may be room */
} gpt2c_refusal;

/* Takes a request, whose arrays need not outlive the call; *id names it. Where it is refused the
 * status is GPT2C_USAGE or GPT2C_OUT_OF_MEMORY, the message has the numbers, and *refusal (null is
 * allowed) a gpt2c_refusal. */
GPT2C_API gpt2c_status gpt2c_engine_submit(gpt2c_engine *engine, const gpt2c_request *request,
                                           uint64_t *id, int32_t *refusal);

/* One call of the device. *idle (null is allowed): nothing runs or waits. After an error of the
 * device the requests that ran have failed with it, and the engine goes on with the others. */
GPT2C_API gpt2c_status gpt2c_engine_step(gpt2c_engine *engine, int32_t *idle);

/* How probable a token of a prompt is behind those before it. */
typedef struct gpt2c_scored_token {
  int32_t token;
  double logprob;           /* -INFINITY where it cannot be */
  const gpt2c_logprob *top; /* the best first */
  size_t top_count;
} gpt2c_scored_token;

/* What became of a request: a token, its ending, or both. Pointers are valid until the next poll.
 */
typedef struct gpt2c_update {
  size_t struct_size;
  uint64_t id;
  int32_t token;    /* -1: none */
  int32_t finish;   /* GPT2C_RUNNING, or the gpt2c_finish it ended with */
  const char *text; /* text_bytes bytes that can be shown now, as from a stream, and a NUL */
  size_t text_bytes;
  double logprob;           /* 0 where sampling asks for none */
  const gpt2c_logprob *top; /* the best first */
  size_t top_count;
  int32_t stop;        /* which of the stop strings ended it, -1: none */
  int32_t status;      /* of GPT2C_FINISH_FAILED: the gpt2c_status, and why */
  const char *message; /* null while it runs */
  int32_t prompt_tokens, new_tokens, cached_tokens; /* with the ending; cached: of the prompt */
  const gpt2c_scored_token *prompt; /* of score_prompt, once: its tokens behind the first */
  size_t prompt_count;
} gpt2c_update;
#define GPT2C_UPDATE_INIT                                                                          \
  {sizeof(gpt2c_update), 0, -1, GPT2C_RUNNING, NULL, 0, 0, NULL, 0, -1, 0, NULL, 0, 0, 0, NULL, 0}

/* The next update, oldest first; *found is 0 where there is none now. */
GPT2C_API gpt2c_status gpt2c_engine_poll(gpt2c_engine *engine, gpt2c_update *update,
                                         int32_t *found);

/* The next update, stepping the device until there is one; *found is 0 where nothing runs or waits.
 * Requests that fail with an error of the device have updates that say so. */
GPT2C_API gpt2c_status gpt2c_engine_wait(gpt2c_engine *engine, gpt2c_update *update,
                                         int32_t *found);

/* Ends a request now, with an update; does nothing where it has ended. */
GPT2C_API gpt2c_status gpt2c_engine_cancel(gpt2c_engine *engine, uint64_t id);

typedef struct gpt2c_engine_stats {
  size_t struct_size;
  int32_t waiting, running;            /* requests, now */
  int32_t pages, pages_used;           /* of the KV state, now */
  int64_t steps, rows;                 /* of the device */
  int64_t prompt_rows;                 /* of rows: tokens of prompts */
  int64_t wasted_rows;                 /* of rows: of answers that turned out to have ended */
  int64_t new_tokens;                  /* of all answers */
  int64_t prefix_queries;              /* prompt tokens of requests that were started */
  int64_t prefix_hits;                 /* of these: found in the prefix cache */
  double busy_seconds;                 /* during which a step was begun and not read */
  int32_t host_pages, host_pages_used; /* of pages: in host memory */
  int32_t resting;                     /* of running: without a turn on the device, now */
  int64_t pages_out, pages_in;         /* copied to host memory, and back */
  double out_seconds, in_seconds;      /* during which they were copied */
  int64_t recomputed_tokens;           /* whose keys and values were computed again */
  /* Of a token that comes back: by a copy, and computed again. 0: not known. */
  double copy_seconds_per_token, recompute_seconds_per_token;
  int64_t pages_read; /* by steps in host memory, where they lie */
} gpt2c_engine_stats;
#define GPT2C_ENGINE_STATS_INIT                                                                    \
  {sizeof(gpt2c_engine_stats), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}

GPT2C_API gpt2c_status gpt2c_engine_get_stats(const gpt2c_engine *engine,
                                              gpt2c_engine_stats *stats);

#ifdef __cplusplus
}
#endif

#endif
