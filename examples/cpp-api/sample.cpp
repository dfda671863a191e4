// sample PLAN TEXT [DEVICE]: three sampled answers to TEXT in one batch, up to the end of a
// sentence, with how probable the model finds them. The C++ API end to end.
#include <gpt2c.hpp>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

/// Prints the error; its exit code.
static int fail(const gpt2c::Error &error) {
  std::fprintf(stderr, "error: %s\n", error.message.c_str());
  return error.status;
}

int main(int argc, char **argv) {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: sample PLAN TEXT [DEVICE]\n");
    return GPT2C_USAGE;
  }
  gpt2c::Result<gpt2c::Plan> plan = gpt2c::Plan::open(argv[1]);
  if (!plan)
    return fail(plan.error());
  gpt2c::Result<gpt2c::Session> session = plan->session(argc > 3 ? argv[3] : "auto");
  if (!session)
    return fail(session.error());
  gpt2c::Result<std::vector<std::int32_t>> prompt = plan->encode(argv[2]);
  if (!prompt)
    return fail(prompt.error());

  gpt2c::GenerateOptions options;
  options.max_tokens = 40;
  options.stops = {".", "!", "?"};
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    gpt2c::Sampling &sampling = options.sampling.emplace_back();
    sampling.temperature = 0.8;
    sampling.top_p = 0.95;
    sampling.seed = seed;
    sampling.logprobs = 0;
  }
  const std::vector<std::vector<std::int32_t>> prompts(options.sampling.size(), *prompt);
  gpt2c::Result<gpt2c::Answers> answers = session->generate(prompts, options);
  if (!answers)
    return fail(answers.error());
  for (std::size_t i = 0; i < answers->size(); ++i) {
    const gpt2c::Answer answer = (*answers)[i];
    double sum = 0;
    for (double logprob : answer.logprobs)
      sum += logprob;
    const std::string text(answer.text);
    std::printf("%zu: %s%s (%.3f a token)\n", i + 1, text.c_str(),
                answer.stop < 0 ? "..." : options.stops[std::size_t(answer.stop)].c_str(),
                std::exp(sum / double(answer.tokens.size())));
  }
  return GPT2C_OK;
}
