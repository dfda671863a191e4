/* requests PLAN DEVICE N TEXT...: continues every TEXT by at most N tokens, all at once through an
 * engine. The answers come on standard output, in the order of the texts.
 *
 *   cc requests.c $(pkg-config --cflags --libs gpt2c) -o requests
 */
#include <gpt2c.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Ends the program with the status as exit code when a call failed. */
static void check(gpt2c_status status) {
  if (status == GPT2C_OK)
    return;
  fprintf(stderr, "error: %s\n", gpt2c_last_error());
  exit(status);
}

/* An answer as it grows. */
typedef struct {
  char *text;
  size_t bytes;
  int32_t tokens, finish;
} answer;

static void append(answer *a, const char *text, size_t bytes) {
  char *longer = realloc(a->text, a->bytes + bytes + 1);
  if (!longer)
    exit(GPT2C_OUT_OF_MEMORY);
  memcpy(longer + a->bytes, text, bytes);
  a->text = longer;
  a->bytes += bytes;
  a->text[a->bytes] = '\0';
}

int main(int argc, char **argv) {
  if (argc < 5) {
    fprintf(stderr, "usage: requests PLAN DEVICE N TEXT...\n");
    return GPT2C_USAGE;
  }
  const int count = argc - 4;
  gpt2c_plan *plan;
  gpt2c_session *session;
  gpt2c_engine *engine;
  gpt2c_session_options options = GPT2C_SESSION_OPTIONS_INIT;
  options.device = argv[2];
  check(gpt2c_plan_open(argv[1], &plan));
  check(gpt2c_session_create(plan, &options, &session));
  check(gpt2c_engine_create(session, NULL, &engine));

  /* Requests are numbered from 1 in the order in which they are taken. */
  answer *answers = calloc((size_t)count + 1, sizeof *answers);
  if (!answers)
    return GPT2C_OUT_OF_MEMORY;
  for (int i = 1; i <= count; ++i) {
    gpt2c_request request = GPT2C_REQUEST_INIT;
    uint64_t id;
    request.text = argv[3 + i];
    request.text_bytes = strlen(request.text);
    request.max_tokens = atoi(argv[3]);
    check(gpt2c_engine_submit(engine, &request, &id, NULL));
  }

  gpt2c_update update = GPT2C_UPDATE_INIT;
  for (int32_t found;;) {
    check(gpt2c_engine_wait(engine, &update, &found));
    if (!found)
      break;
    answer *a = &answers[update.id];
    append(a, update.text, update.text_bytes);
    a->tokens += update.token >= 0;
    a->finish = update.finish;
    if (update.finish == GPT2C_FINISH_FAILED)
      fprintf(stderr, "error: %s\n", update.message);
  }

  for (int i = 1; i <= count; ++i) {
    printf("%d:%s (%d tokens%s)\n", i, answers[i].text, (int)answers[i].tokens,
           answers[i].finish == GPT2C_FINISH_STOP ? ", its end" : "");
    free(answers[i].text);
  }
  free(answers);
  gpt2c_engine_stats stats = GPT2C_ENGINE_STATS_INIT;
  check(gpt2c_engine_get_stats(engine, &stats));
  fprintf(stderr, "%lld tokens in %lld steps\n", (long long)stats.new_tokens,
          (long long)stats.steps);
  gpt2c_engine_destroy(engine);
  gpt2c_session_destroy(session);
  gpt2c_plan_close(plan);
  return GPT2C_OK;
}
