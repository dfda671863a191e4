// wrapper PLAN CHAT: gpt2c.hpp over the sample on the CPU, and over one with a chat template.
// Prints what is not as it should be.
#include <gpt2c.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#define EXPECT(condition)                                                                          \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      std::printf("FAIL: wrapper.cpp:%d: %s (%s)\n", __LINE__, #condition, gpt2c_last_error());    \
      failed = 1;                                                                                  \
    }                                                                                              \
  } while (0)

static int failed = 0;

static_assert(std::is_move_constructible_v<gpt2c::Plan> &&
              !std::is_copy_constructible_v<gpt2c::Plan> &&
              std::is_move_constructible_v<gpt2c::Session> &&
              std::is_move_assignable_v<gpt2c::Answers>);

static const std::string kPrompt = "The river";

static void texts(const gpt2c::Plan &plan) {
  const std::string text = "A caf\xC3\xA9.";
  auto tokens = plan.encode(text);
  EXPECT(tokens && !tokens->empty());
  auto back = plan.decode(*tokens);
  EXPECT(back && *back == text);
  EXPECT(plan.decode({}) && plan.encode("") && plan.encode("")->empty());
  auto stream = plan.stream({"\xC3\xA9", "zzz"});
  EXPECT(stream.has_value());
  std::string shown;
  for (std::int32_t token : *tokens) {
    auto piece = stream->push(token);
    EXPECT(piece.has_value());
    shown += *piece;
  }
  EXPECT(shown == "A caf" && stream->stop() == 0 && stream->finish()->empty());
  EXPECT(!plan.stream({""}));
}

/// Turns of a chat: each is answered as the whole conversation is afresh, for what is new.
static void chats(const gpt2c::Plan &plan) {
  auto session = plan.session("cpu", 1), fresh = plan.session("cpu", 1);
  EXPECT(session && fresh && plan.info().has_chat_template);
  gpt2c::GenerateOptions options;
  options.max_tokens = 8;
  gpt2c::Conversation chat{
      .messages = {{"system", "Be kind."}}, .context = "", .chat_template = ""};
  std::int64_t before = 0;
  for (const char *turn : {"The river", "and then", "A caf\xC3\xA9."}) {
    chat.messages.push_back({"user", turn});
    auto prompt = plan.chat_tokens(chat);
    auto answers = session->chat(chat, options);
    EXPECT(prompt && answers && answers->size() == 1);
    auto anew = fresh->generate({&*prompt, 1}, options);
    EXPECT(anew && (*anew)[0].text == (*answers)[0].text);
    const std::int64_t kept = answers->times().kept_tokens;
    EXPECT(kept >= before && (before == 0 || kept < std::int64_t(prompt->size())));
    before = std::int64_t(prompt->size());
    chat.messages.push_back({"assistant", std::string((*answers)[0].text)});
  }
  EXPECT(plan.chat_tokens({{}, R"({"messages": [{"role": "user", "content": "a"}]})", ""}));
  auto mine = plan.chat_tokens({{{"user", "The river"}}, "", "{{ messages[0].content }}"});
  EXPECT(mine && *mine == *plan.encode("The river"));
  auto refused = session->chat({{{"user", "forbidden"}}, "", ""}, options);
  EXPECT(!refused && refused.error().status == GPT2C_USAGE);
  EXPECT(refused.error().message.find("this is not said") != std::string::npos);
  EXPECT(!plan.chat_tokens({}) && !plan.chat_tokens({{{"user", "a"}}, "[]", ""}));
  const gpt2c::Sampling advised = plan.sampling();
  EXPECT(advised.temperature == 0.6 && advised.top_p == 0.9 && advised.repetition_penalty == 1.1);
  EXPECT(plan.end_tokens() == std::vector{plan.info().eos_token});
}

/// A plan without a template, and without advice.
static void plain(const gpt2c::Plan &plan) {
  EXPECT(!plan.info().has_chat_template && plan.sampling().temperature == 0);
  auto none = plan.chat_tokens({{{"user", "a"}}, "", ""});
  EXPECT(!none && none.error().status == GPT2C_UNSUPPORTED);
}

static std::string generation(gpt2c::Session &session) {
  gpt2c::GenerateOptions options;
  options.max_tokens = 12;
  std::string streamed;
  int ends = 0;
  options.on_token = [&](const gpt2c::Token &token) {
    streamed += token.text;
    ends += token.finish != GPT2C_RUNNING;
    return true;
  };
  auto answers = session.complete(kPrompt, options);
  EXPECT(answers && answers->size() == 1);
  const gpt2c::Answer answer = (*answers)[0];
  EXPECT(answer.text == streamed && ends == 1);
  EXPECT(answer.tokens.size() == 12 && answer.finish == GPT2C_FINISH_LENGTH && answer.stop == -1);
  EXPECT(answer.logprobs.empty() && answer.top.empty());
  EXPECT(answers->times().decode_steps >= 11);
  return streamed;
}

static void options(gpt2c::Session &session, const std::string &greedy,
                    const std::vector<std::int32_t> &prompt) {
  gpt2c::GenerateOptions options;
  options.max_tokens = 12;
  options.stops = {greedy.substr(5, 4)};
  auto stopped = session.complete(kPrompt, options);
  EXPECT(stopped && (*stopped)[0].stop == 0 && (*stopped)[0].finish == GPT2C_FINISH_STOP);
  EXPECT((*stopped)[0].text == greedy.substr(0, greedy.find(options.stops[0])));

  // Two answers in one batch, one of them sampled: each with its own parameters.
  options.stops.clear();
  options.sampling.resize(2);
  options.sampling[0].logprobs = 2;
  options.sampling[1].temperature = 1;
  options.sampling[1].seed = 3;
  const std::vector<std::vector<std::int32_t>> prompts{prompt, prompt};
  auto both = session.generate(prompts, options);
  EXPECT(both && both->size() == 2 && (*both)[0].text == greedy && (*both)[1].text != greedy);
  const gpt2c::Answer best = (*both)[0];
  EXPECT(best.top_count == 2 && best.logprobs.size() == 12 && best.top.size() == 24);
  EXPECT(best.top[0].token == best.tokens[0] && best.top[0].logprob == best.logprobs[0]);
  EXPECT((*both)[1].logprobs.empty());
  options.sampling[0] = gpt2c::Sampling();
  const gpt2c_bias never[] = {{best.tokens[0], -1e9}};
  options.sampling[0].bias = never;
  options.sampling[0].bias_count = 1;
  auto biased = session.generate(prompts, options);
  EXPECT(biased && (*biased)[0].tokens[0] != best.tokens[0]);

  gpt2c::GenerateOptions cut;
  cut.on_token = [](const gpt2c::Token &) { return false; };
  auto one = session.complete(kPrompt, cut);
  EXPECT(one && (*one)[0].tokens.size() == 1 && (*one)[0].finish == GPT2C_FINISH_CALLER);
}

static void steps(gpt2c::Session &session, const gpt2c_plan_info &info,
                  const std::vector<std::int32_t> &prompt, std::span<const std::int32_t> greedy) {
  std::vector<std::int32_t> next(1), more(2);
  std::vector<float> logits(std::size_t(info.vocab_size));
  const std::vector<std::vector<std::int32_t>> prompts{prompt};
  EXPECT(session.prefill(prompts, next, logits) && next[0] == greedy[0]);
  EXPECT(logits[std::size_t(next[0])] >= logits[0]);
  EXPECT(session.decode(2, more) && more[0] == greedy[1] && more[1] == greedy[2]);
  EXPECT(session.step(std::vector{greedy[2]}, next) && next[0] == greedy[3]);
}

static void errors(const gpt2c::Plan &plan, gpt2c::Session &session) {
  auto none = gpt2c::Plan::open("/nowhere.plan");
  EXPECT(!none && none.error().status == GPT2C_IO &&
         none.error().message.find("/nowhere.plan") != std::string::npos);
  EXPECT(plan.session("tpu").error().status == GPT2C_USAGE);
  gpt2c::GenerateOptions options;
  options.sampling.resize(1);
  options.sampling[0].top_p = 2;
  EXPECT(session.complete(kPrompt, options).error().message.find("top_p") != std::string::npos);
  EXPECT(session.complete("").error().status == GPT2C_USAGE);
  EXPECT(session.generate({}).error().status == GPT2C_USAGE);
  EXPECT(session.complete(kPrompt).has_value()); // an error leaves the session as it was
}

/// Two requests at once are answered as alone; a third is cancelled, a fourth refused.
static void engine(gpt2c::Session &session, const std::string &greedy,
                   const std::vector<std::int32_t> &prompt) {
  auto engine = session.engine();
  EXPECT(engine.has_value());
  EXPECT(session.complete(kPrompt).error().status == GPT2C_USAGE); // the engine holds it
  gpt2c::Request asked;
  asked.text = kPrompt;
  asked.max_tokens = 12;
  auto first = engine->submit(asked);
  asked.text.clear();
  asked.tokens = prompt;
  asked.sampling.emplace().logprobs = 1;
  auto second = engine->submit(asked);
  auto third = engine->submit(asked);
  EXPECT(first && second && third && *first != *second && engine->cancel(*third));
  asked.max_tokens = 0;
  gpt2c_refusal why = GPT2C_TAKEN;
  EXPECT(engine->submit(asked, &why).error().status == GPT2C_USAGE &&
         why == GPT2C_REFUSED_MAX_TOKENS);
  std::string texts[2];
  int ended = 0;
  for (bool busy = true; busy;) {
    auto more = engine->step();
    EXPECT(more.has_value());
    busy = more && *more;
    for (auto update = engine->poll(); update && *update; update = engine->poll()) {
      const gpt2c::Update &u = **update;
      ended += u.finish != GPT2C_RUNNING;
      if (u.id == *third) {
        EXPECT(u.finish == GPT2C_FINISH_CALLER);
        continue;
      }
      EXPECT(u.finish == GPT2C_RUNNING || (u.finish == GPT2C_FINISH_LENGTH && u.new_tokens == 12));
      EXPECT(u.id != *second || u.token < 0 || u.top.size() == 1);
      texts[u.id == *second] += u.text;
    }
  }
  EXPECT(ended == 3 && texts[0] == greedy && texts[1] == greedy);
  EXPECT(engine->stats().running == 0 && engine->stats().new_tokens >= 24);
}

/// Two sessions of one plan in two threads.
static void threads(const gpt2c::Plan &plan, const std::string &greedy) {
  std::vector<std::thread> running;
  for (int i = 0; i < 2; ++i)
    running.emplace_back([&] {
      auto session = plan.session("cpu", 1);
      EXPECT(session.has_value());
      for (int round = 0; round < 3; ++round) {
        gpt2c::GenerateOptions options;
        options.max_tokens = 12;
        auto answers = session->complete(kPrompt, options);
        EXPECT(answers && (*answers)[0].text == greedy);
      }
    });
  for (std::thread &t : running)
    t.join();
}

int main(int argc, char **argv) {
  if (argc != 3)
    return 1;
  auto plan = gpt2c::Plan::open(argv[1]), chatty = gpt2c::Plan::open(argv[2]);
  if (!plan || !chatty) {
    std::printf("FAIL: %s\n", (plan ? chatty : plan).error().message.c_str());
    return 1;
  }
  EXPECT(plan->info().has_tokenizer == 1 && plan->info().vocab_size == 4096);
  auto session = plan->session("cpu");
  if (!session) {
    std::printf("FAIL: %s\n", session.error().message.c_str());
    return 1;
  }
  EXPECT(session->device().starts_with("CPU, "));
  texts(*plan);
  plain(*plan);
  chats(*chatty);
  const std::string greedy = generation(*session);
  auto prompt = plan->encode(kPrompt);
  gpt2c::GenerateOptions twelve;
  twelve.max_tokens = 12;
  auto answers = session->complete(kPrompt, twelve);
  options(*session, greedy, *prompt);
  steps(*session, plan->info(), *prompt, (*answers)[0].tokens);
  errors(*plan, *session);
  engine(*session, greedy, *prompt);
  EXPECT(session->complete(kPrompt).has_value()); // it is free again
  threads(*plan, greedy);
  return failed;
}
