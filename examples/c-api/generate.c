/* generate PLAN TEXT [N]: continues TEXT by N tokens (32) on the GPU. The C API end to end.
 *
 *   cc generate.c -I../../include -L../../build/lib -lgpt2c -o generate
 */
#include <gpt2c.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static gpt2c_status status;

/* Ends the program with the status as exit code when a call failed. */
static void check(gpt2c_status result) {
  status = result;
  if (status == GPT2C_OK)
    return;
  fprintf(stderr, "error: %s\n", gpt2c_last_error());
  exit(status);
}

int main(int argc, char **argv) {
  if (argc < 3 || argc > 4) {
    fprintf(stderr, "usage: generate PLAN TEXT [N]\n");
    return GPT2C_USAGE;
  }
  int32_t steps = argc == 4 ? atoi(argv[3]) : 32;
  if (steps < 2)
    steps = 2;

  gpt2c_plan *plan;
  gpt2c_plan_info info;
  check(gpt2c_plan_open(argv[1], &plan));
  check(gpt2c_plan_get_info(plan, &info));

  size_t count, bytes;
  check(gpt2c_encode(plan, argv[2], strlen(argv[2]), NULL, 0, &count));
  int32_t *tokens = malloc((count + (size_t)steps) * sizeof *tokens);
  if (!tokens)
    return GPT2C_OUT_OF_MEMORY;
  check(gpt2c_encode(plan, argv[2], strlen(argv[2]), tokens, count, &count));
  fprintf(stderr, "%zu tokens, room for %d sequences of %d\n", count, info.max_batch,
          info.max_context);

  gpt2c_session *session;
  check(gpt2c_session_create(plan, &session));
  int32_t length = (int32_t)count;
  int32_t *new_tokens = tokens + count;
  check(gpt2c_prefill(session, tokens, &length, 1, new_tokens, NULL));
  check(gpt2c_decode(session, steps - 1, new_tokens + 1));

  check(gpt2c_decode_text(plan, new_tokens, (size_t)steps, NULL, 0, &bytes));
  char *text = malloc(bytes + 1);
  if (!text)
    return GPT2C_OUT_OF_MEMORY;
  check(gpt2c_decode_text(plan, new_tokens, (size_t)steps, text, bytes, &bytes));
  text[bytes] = '\0';
  printf("%s\n", text);

  free(text);
  free(tokens);
  gpt2c_session_destroy(session);
  gpt2c_plan_close(plan);
  return GPT2C_OK;
}
