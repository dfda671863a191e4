/* generate PLAN TEXT [DEVICE [N]]: continues TEXT by N tokens (32) on DEVICE (auto), and shows each
 * as it comes. The C API end to end.
 *
 *   cc generate.c $(pkg-config --cflags --libs gpt2c) -o generate
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

/* Not 0 would end the answer. */
static int show(void *user, const gpt2c_token *token) {
  (void)user;
  fwrite(token->text, 1, token->text_bytes, stdout);
  return fflush(stdout) != 0;
}

int main(int argc, char **argv) {
  if (argc < 3 || argc > 5) {
    fprintf(stderr, "usage: generate PLAN TEXT [DEVICE [N]]\n");
    return GPT2C_USAGE;
  }

  gpt2c_plan *plan;
  gpt2c_plan_info info = GPT2C_PLAN_INFO_INIT;
  check(gpt2c_plan_open(argv[1], &plan));
  check(gpt2c_plan_get_info(plan, &info));

  gpt2c_session *session;
  gpt2c_session_options device = GPT2C_SESSION_OPTIONS_INIT;
  device.device = argc > 3 ? argv[3] : "auto";
  check(gpt2c_session_create(plan, &device, &session));
  fprintf(stderr, "%s, room for %d sequences of %d tokens\n", gpt2c_session_device(session),
          info.max_batch, info.max_context);

  gpt2c_answers *answers;
  gpt2c_generate_options options = GPT2C_GENERATE_OPTIONS_INIT;
  if (argc > 4)
    options.max_tokens = atoi(argv[4]);
  options.on_token = show;
  check(gpt2c_complete(session, argv[2], strlen(argv[2]), &options, &answers));
  printf("\n");

  gpt2c_answer answer = GPT2C_ANSWER_INIT;
  gpt2c_times times = GPT2C_TIMES_INIT;
  check(gpt2c_answers_get(answers, 0, &answer));
  check(gpt2c_answers_get_times(answers, &times));
  fprintf(stderr, "%zu tokens in %.3f s\n", answer.token_count,
          times.prefill_seconds + times.decode_seconds);

  gpt2c_answers_destroy(answers);
  gpt2c_session_destroy(session);
  gpt2c_plan_close(plan);
  return GPT2C_OK;
}
