/* gpt2c runtime: running a plan from C.
 *
 *   gpt2c_plan *plan;
 *   gpt2c_session *session;
 *   if (gpt2c_plan_open("gpt2.plan", &plan) || gpt2c_session_create(plan, &session))
 *     fail(gpt2c_last_error());
 *   gpt2c_prefill(session, prompt, &length, 1, &next, NULL);
 *   gpt2c_decode(session, 31, tokens);
 *
 * Every function that can fail returns a gpt2c_status and leaves its outputs alone when it is not
 * GPT2C_OK. No function throws. A plan may be used by several threads at once, a session by one at
 * a time. Link with -lgpt2c; the library opens the NVIDIA driver (libcuda.so.1) at run time and
 * needs nothing else of CUDA.
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
  GPT2C_CUDA = 9,          /* a call of the driver failed */
  GPT2C_OUT_OF_MEMORY = 10 /* the message says how much was asked for and how much there is */
} gpt2c_status;

typedef struct gpt2c_plan gpt2c_plan;
typedef struct gpt2c_session gpt2c_session;

/* "0.1.0" */
GPT2C_API const char *gpt2c_version(void);

/* Why the last call of this thread failed: one paragraph for people. Valid until the thread's next
 * call; empty after one that succeeded. */
GPT2C_API const char *gpt2c_last_error(void);

/* -- Plans ------------------------------------------------------------------------------------ */

/* Maps and verifies the plan file, which must not change while it is open. */
GPT2C_API gpt2c_status gpt2c_plan_open(const char *path, gpt2c_plan **plan);

/* Sessions made from the plan may live on. Null is allowed. */
GPT2C_API void gpt2c_plan_close(gpt2c_plan *plan);

typedef struct gpt2c_plan_info {
  int32_t vocab_size;
  int32_t eos_token;   /* -1: the plan knows none */
  int32_t max_batch;   /* 0: the plan has no KV state and cannot generate */
  int32_t max_context; /* tokens of one sequence */
  int32_t has_tokenizer;
} gpt2c_plan_info;

GPT2C_API gpt2c_status gpt2c_plan_get_info(const gpt2c_plan *plan, gpt2c_plan_info *info);

/* -- Text, for plans with a tokenizer -----------------------------------------------------------
 */

/* The token ids of `bytes` bytes of text. Stores the first `capacity` of them, and in *count how
 * many there are; with a capacity of 0 `tokens` may be null. Text such as <|endoftext|> is ordinary
 * text, not a special token. */
GPT2C_API gpt2c_status gpt2c_encode(const gpt2c_plan *plan, const char *text, size_t bytes,
                                    int32_t *tokens, size_t capacity, size_t *count);

/* The text of `count` tokens, not terminated by a NUL; `capacity` and *bytes as above. A character
 * may be spread over several tokens: decode a whole sequence, not token by token. */
GPT2C_API gpt2c_status gpt2c_decode_text(const gpt2c_plan *plan, const int32_t *tokens,
                                         size_t count, char *text, size_t capacity, size_t *bytes);

/* -- Sessions --------------------------------------------------------------------------------- */

/* Loads the plan onto the first CUDA device. */
GPT2C_API gpt2c_status gpt2c_session_create(const gpt2c_plan *plan, gpt2c_session **session);
GPT2C_API void gpt2c_session_destroy(gpt2c_session *session); /* null is allowed */

/* Starts a batch of sequences of any lengths of at least one. `tokens` holds them one after the
 * other. next[batch] receives the greedy choice after each. logits[batch][vocab_size] receives what
 * it was chosen by, unless it is null. */
GPT2C_API gpt2c_status gpt2c_prefill(gpt2c_session *session, const int32_t *tokens,
                                     const int32_t *lengths, int32_t batch, int32_t *next,
                                     float *logits);

/* `steps` greedy steps of the batch, without a round trip to the host between them: each appends
 * the last choice and makes the next one. tokens[steps][batch] receives the new choices. */
GPT2C_API gpt2c_status gpt2c_decode(gpt2c_session *session, int32_t steps, int32_t *tokens);

/* One step with tokens[batch] in place of the last choice, for sampling by the caller. `next` and
 * `logits` as in gpt2c_prefill. */
GPT2C_API gpt2c_status gpt2c_step(gpt2c_session *session, const int32_t *tokens, int32_t *next,
                                  float *logits);

#ifdef __cplusplus
}
#endif

#endif
