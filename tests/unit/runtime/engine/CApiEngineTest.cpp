// The C API's engines over the toy device.
#include "runtime/capi/CApi.h"
#include "tests/unit/runtime/PagedToy.h"
#include "tests/unit/runtime/text/TokenizerToy.h"

#include <gtest/gtest.h>

namespace gpt2c::rt {
namespace {

class CApiEngine : public ::testing::Test {
protected:
  void SetUp() override {
    test::TemporaryFolder files;
    test::Toy().writeVocabAndMerges(files);
    Result<Tokenizer> tokenizer = Tokenizer::fromFiles(files.path());
    ASSERT_TRUE(tokenizer) << tokenizer.status().message();
    shape_.vocabulary = tokenizer->vocabSize();
    shape_.paged.pages = 20;
    session_.reset(new gpt2c_session{std::move(*toy::makeSession(shape_)),
                                     std::make_shared<const Tokenizer>(tokenizer.take()), "toy"});
    gpt2c_engine_options options = GPT2C_ENGINE_OPTIONS_INIT;
    options.max_waiting = 3;
    ASSERT_EQ(gpt2c_engine_create(session_.get(), &options, &engine_), GPT2C_OK)
        << gpt2c_last_error();
  }
  void TearDown() override { gpt2c_engine_destroy(engine_); }

  static void expectError(gpt2c_status got, gpt2c_status code, const std::string &text) {
    EXPECT_EQ(got, code);
    EXPECT_NE(std::string(gpt2c_last_error()).find(text), std::string::npos) << gpt2c_last_error();
  }

  struct Answer {
    Tokens tokens;
    std::string text;
    std::vector<double> logprobs;
    size_t top = 0;
    std::vector<std::pair<int32_t, double>> prompt;
    std::vector<gpt2c_logprob> promptTop; ///< of all its tokens
    gpt2c_update last = GPT2C_UPDATE_INIT;
  };

  std::map<uint64_t, Answer> runAll() {
    std::map<uint64_t, Answer> answers;
    gpt2c_update update = GPT2C_UPDATE_INIT;
    for (int32_t idle = 0, found = 0; !idle;) {
      EXPECT_EQ(gpt2c_engine_step(engine_, &idle), GPT2C_OK) << gpt2c_last_error();
      while (gpt2c_engine_poll(engine_, &update, &found) == GPT2C_OK && found) {
        Answer &a = answers[update.id];
        if (update.token >= 0) {
          a.tokens.push_back(update.token);
          a.logprobs.push_back(update.logprob);
          a.top = update.top_count;
        }
        a.text.append(update.text, update.text_bytes);
        for (const gpt2c_scored_token &t : std::span(update.prompt, update.prompt_count)) {
          a.prompt.emplace_back(t.token, t.logprob);
          a.promptTop.insert(a.promptTop.end(), t.top, t.top + t.top_count);
        }
        a.last = update;
      }
    }
    return answers;
  }

  Tokens alone(const Tokens &prompt, int64_t count) {
    GenerateOptions o;
    o.maxNewTokens = count;
    return toy::makeSession(shape_)->generate(std::vector<Tokens>{prompt}, o)->tokens[0];
  }

  toy::Shape shape_;
  std::unique_ptr<gpt2c_session> session_;
  gpt2c_engine *engine_ = nullptr;
};

TEST_F(CApiEngine, AnswersRequests) {
  const Tokens prompt{1, 2, 3};
  gpt2c_sampling sampling = GPT2C_SAMPLING_INIT;
  sampling.logprobs = 2;
  gpt2c_request request = GPT2C_REQUEST_INIT;
  request.tokens = prompt.data();
  request.token_count = prompt.size();
  request.max_tokens = 9;
  request.sampling = &sampling;
  uint64_t a = 0, b = 0;
  int32_t refusal = -1;
  ASSERT_EQ(gpt2c_engine_submit(engine_, &request, &a, &refusal), GPT2C_OK) << gpt2c_last_error();
  EXPECT_EQ(refusal, GPT2C_TAKEN);
  gpt2c_request text = GPT2C_REQUEST_INIT;
  text.text = "hello";
  text.text_bytes = 5;
  text.max_tokens = 4;
  ASSERT_EQ(gpt2c_engine_submit(engine_, &text, &b, nullptr), GPT2C_OK) << gpt2c_last_error();
  std::map<uint64_t, Answer> answers = runAll();
  EXPECT_EQ(answers[a].tokens, alone(prompt, 9));
  EXPECT_EQ(answers[a].text, session_->tokenizer->decode(answers[a].tokens));
  EXPECT_EQ(answers[a].top, 2u);
  EXPECT_LT(answers[a].logprobs[3], 0);
  EXPECT_EQ(answers[a].last.finish, GPT2C_FINISH_LENGTH);
  EXPECT_EQ(answers[a].last.prompt_tokens, 3);
  EXPECT_EQ(answers[a].last.new_tokens, 9);
  EXPECT_EQ(answers[a].last.status, GPT2C_OK);
  EXPECT_EQ(answers[b].tokens,
            alone(session_->tokenizer->encode("hello", {.allowSpecial = false}), 4));
  gpt2c_engine_stats stats = GPT2C_ENGINE_STATS_INIT;
  ASSERT_EQ(gpt2c_engine_get_stats(engine_, &stats), GPT2C_OK);
  EXPECT_EQ(stats.new_tokens, 13);
  EXPECT_EQ(stats.pages, 20);
  EXPECT_EQ(stats.pages_used, 0);
}

// By log softmax in double of the logits that the toy draws.
TEST_F(CApiEngine, ScoresPrompts) {
  const Tokens prompt{9, 2, 7, 7, 30};
  gpt2c_request request = GPT2C_REQUEST_INIT;
  request.tokens = prompt.data();
  request.token_count = prompt.size();
  request.max_tokens = 2;
  request.prompt_top = 2;
  uint64_t a = 0;
  expectError(gpt2c_engine_submit(engine_, &request, &a, nullptr), GPT2C_USAGE, "score_prompt");
  request.score_prompt = 1;
  ASSERT_EQ(gpt2c_engine_submit(engine_, &request, &a, nullptr), GPT2C_OK) << gpt2c_last_error();
  Answer answer = std::move(runAll()[a]);
  EXPECT_EQ(answer.tokens, alone(prompt, 2));
  ASSERT_EQ(answer.prompt.size(), 4u);
  ASSERT_EQ(answer.promptTop.size(), 8u);
  const toy::PagedBackend backend(shape_);
  for (size_t i = 0; i < 4; ++i) {
    const std::vector<float> logits = backend.logitsOf(std::span(prompt).first(i + 1));
    double sum = 0;
    for (const float l : logits)
      sum += std::exp(double(l));
    const auto best = std::ranges::max_element(logits);
    EXPECT_EQ(answer.prompt[i].first, prompt[i + 1]);
    EXPECT_NEAR(answer.prompt[i].second, logits[size_t(prompt[i + 1])] - std::log(sum), 1e-5);
    EXPECT_EQ(answer.promptTop[2 * i].token, best - logits.begin());
    EXPECT_NEAR(answer.promptTop[2 * i].logprob, *best - std::log(sum), 1e-5);
    EXPECT_LE(answer.promptTop[2 * i + 1].logprob, answer.promptTop[2 * i].logprob);
  }
  request.prompt_top = 1000;
  expectError(gpt2c_engine_submit(engine_, &request, &a, nullptr), GPT2C_USAGE, "prompt_logprobs");
}

TEST_F(CApiEngine, KeepsTokensAway) {
  const Tokens prompt{1, 2, 3};
  const int32_t allowed[] = {'a', 'b'};
  gpt2c_sampling sampling = GPT2C_SAMPLING_INIT;
  sampling.allowed_tokens = allowed;
  sampling.allowed_token_count = 2;
  gpt2c_request request = GPT2C_REQUEST_INIT;
  request.tokens = prompt.data();
  request.token_count = prompt.size();
  request.max_tokens = 9;
  request.cache_salt = "mine";
  request.sampling = &sampling;
  const int32_t stops[] = {'a', 'b'};
  request.stop_tokens = stops;
  request.stop_token_count = 1;
  uint64_t a = 0, b = 0;
  ASSERT_EQ(gpt2c_engine_submit(engine_, &request, &a, nullptr), GPT2C_OK) << gpt2c_last_error();
  request.min_tokens = 9;
  ASSERT_EQ(gpt2c_engine_submit(engine_, &request, &b, nullptr), GPT2C_OK) << gpt2c_last_error();
  std::map<uint64_t, Answer> answers = runAll();
  for (const int32_t t : answers[a].tokens)
    EXPECT_TRUE(t == 'a' || t == 'b') << t;
  EXPECT_EQ(answers[b].tokens, Tokens(9, 'b'));
  request.min_tokens = 10;
  EXPECT_EQ(gpt2c_engine_submit(engine_, &request, &b, nullptr), GPT2C_USAGE);
}

TEST_F(CApiEngine, AnswersByAGrammar) {
  const Tokens prompt{1, 2, 3};
  const char *choices[] = {"yes", "no"};
  gpt2c_sampling sampling = GPT2C_SAMPLING_INIT;
  sampling.grammar_kind = GPT2C_CHOICE;
  sampling.choices = choices;
  sampling.choice_count = 2;
  gpt2c_request request = GPT2C_REQUEST_INIT;
  request.tokens = prompt.data();
  request.token_count = prompt.size();
  request.sampling = &sampling;
  uint64_t id = 0;
  const gpt2c_status status = gpt2c_engine_submit(engine_, &request, &id, nullptr);
  if (!hasGrammars()) {
    EXPECT_EQ(status, GPT2C_UNSUPPORTED);
    GTEST_SKIP() << "this build has no XGrammar: scripts/setup.sh --grammar";
  }
  ASSERT_EQ(status, GPT2C_OK) << gpt2c_last_error();
  const Answer answer = runAll()[id];
  EXPECT_TRUE(answer.text == "yes" || answer.text == "no") << answer.text;
  EXPECT_EQ(answer.last.finish, GPT2C_FINISH_STOP);
  sampling.grammar_kind = GPT2C_REGEX;
  sampling.grammar = "(a";
  EXPECT_EQ(gpt2c_engine_submit(engine_, &request, &id, nullptr), GPT2C_USAGE);
  sampling.grammar_kind = 9;
  EXPECT_EQ(gpt2c_engine_submit(engine_, &request, &id, nullptr), GPT2C_USAGE);
  sampling.grammar_kind = GPT2C_EBNF;
  sampling.grammar = nullptr;
  EXPECT_EQ(gpt2c_engine_submit(engine_, &request, &id, nullptr), GPT2C_USAGE);
}

TEST_F(CApiEngine, EndsByStopStringAndByCancel) {
  const Tokens prompt{1, 2, 3};
  const std::string whole = session_->tokenizer->decode(alone(prompt, 20));
  const std::string stop = whole.substr(5, 3);
  const char *stops[] = {"never in it", stop.c_str()};
  gpt2c_request request = GPT2C_REQUEST_INIT;
  request.tokens = prompt.data();
  request.token_count = prompt.size();
  request.max_tokens = 20;
  request.stops = stops;
  request.stop_count = 2;
  uint64_t a = 0, b = 0;
  ASSERT_EQ(gpt2c_engine_submit(engine_, &request, &a, nullptr), GPT2C_OK) << gpt2c_last_error();
  ASSERT_EQ(gpt2c_engine_submit(engine_, &request, &b, nullptr), GPT2C_OK) << gpt2c_last_error();
  ASSERT_EQ(gpt2c_engine_cancel(engine_, b), GPT2C_OK);
  EXPECT_EQ(gpt2c_engine_cancel(engine_, 77), GPT2C_OK);
  std::map<uint64_t, Answer> answers = runAll();
  EXPECT_EQ(answers[a].text, whole.substr(0, whole.find(stop)));
  EXPECT_EQ(answers[a].last.finish, GPT2C_FINISH_STOP);
  EXPECT_EQ(answers[a].last.stop, 1);
  EXPECT_EQ(answers[b].last.finish, GPT2C_FINISH_CALLER);
  EXPECT_EQ(answers[b].last.token, -1);
}

TEST_F(CApiEngine, WaitGivesEveryUpdateUntilItIsIdle) {
  const Tokens prompt{4, 5, 6};
  gpt2c_request request = GPT2C_REQUEST_INIT;
  request.tokens = prompt.data();
  request.token_count = prompt.size();
  request.max_tokens = 1000;
  request.fill_context = 1;
  shape_.paged.pages = 24; // the whole context of 96
  TearDown();
  session_.reset(new gpt2c_session{std::move(*toy::makeSession(shape_)), nullptr, "toy"});
  ASSERT_EQ(gpt2c_engine_create(session_.get(), nullptr, &engine_), GPT2C_OK);
  uint64_t id = 0;
  ASSERT_EQ(gpt2c_engine_submit(engine_, &request, &id, nullptr), GPT2C_OK) << gpt2c_last_error();
  Tokens tokens;
  gpt2c_update update = GPT2C_UPDATE_INIT;
  int32_t found = 0;
  while (gpt2c_engine_wait(engine_, &update, &found) == GPT2C_OK && found) {
    EXPECT_EQ(update.id, id);
    EXPECT_EQ(update.finish == GPT2C_RUNNING, tokens.size() < 93);
    tokens.push_back(update.token);
  }
  EXPECT_EQ(update.finish, GPT2C_FINISH_CONTEXT);
  EXPECT_EQ(tokens.size(), 94u); // the last one needs no room
  EXPECT_EQ(tokens, alone(prompt, 1000));
  ASSERT_EQ(gpt2c_engine_wait(engine_, &update, &found), GPT2C_OK);
  EXPECT_EQ(found, 0);
  expectError(gpt2c_engine_wait(nullptr, &update, &found), GPT2C_USAGE, "'engine' is null");
}

TEST_F(CApiEngine, RefusesWithTheReason) {
  const Tokens prompt(30, 1);
  gpt2c_request request = GPT2C_REQUEST_INIT;
  request.tokens = prompt.data();
  request.token_count = prompt.size();
  request.max_tokens = 1000;
  uint64_t id = 42;
  int32_t refusal = 0;
  expectError(gpt2c_engine_submit(engine_, &request, &id, &refusal), GPT2C_USAGE, "context of 96");
  EXPECT_EQ(refusal, GPT2C_REFUSED_CONTEXT);
  EXPECT_EQ(id, 42u);
  request.max_tokens = 60;
  expectError(gpt2c_engine_submit(engine_, &request, &id, &refusal), GPT2C_OUT_OF_MEMORY,
              "need 23 pages of 4 tokens, the KV state has 20");
  EXPECT_EQ(refusal, GPT2C_REFUSED_PAGES);
  request.max_tokens = 2;
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(gpt2c_engine_submit(engine_, &request, &id, &refusal), GPT2C_OK);
  expectError(gpt2c_engine_submit(engine_, &request, &id, &refusal), GPT2C_OUT_OF_MEMORY,
              "3 requests wait already");
  EXPECT_EQ(refusal, GPT2C_REFUSED_FULL);
  request.text = "both";
  expectError(gpt2c_engine_submit(engine_, &request, &id, &refusal), GPT2C_USAGE, "has both");
  runAll();
}

TEST_F(CApiEngine, HoldsItsSession) {
  gpt2c_engine *second = nullptr;
  expectError(gpt2c_engine_create(session_.get(), nullptr, &second), GPT2C_USAGE, "in use");
  EXPECT_EQ(second, nullptr);
  gpt2c_engine_destroy(engine_);
  engine_ = nullptr;
  ASSERT_EQ(gpt2c_engine_create(session_.get(), nullptr, &engine_), GPT2C_OK);
}

TEST_F(CApiEngine, ChecksArguments) {
  uint64_t id = 0;
  int32_t found = 0;
  gpt2c_request request = GPT2C_REQUEST_INIT;
  gpt2c_update update = GPT2C_UPDATE_INIT;
  expectError(gpt2c_engine_create(nullptr, nullptr, nullptr), GPT2C_USAGE, "'session' is null");
  expectError(gpt2c_engine_submit(engine_, nullptr, &id, nullptr), GPT2C_USAGE, "'request'");
  expectError(gpt2c_engine_submit(engine_, &request, nullptr, nullptr), GPT2C_USAGE, "'id'");
  expectError(gpt2c_engine_submit(engine_, &request, &id, nullptr), GPT2C_USAGE, "empty");
  request.stop_count = 1;
  expectError(gpt2c_engine_submit(engine_, &request, &id, nullptr), GPT2C_USAGE, "request.stops");
  expectError(gpt2c_engine_step(nullptr, nullptr), GPT2C_USAGE, "'engine' is null");
  expectError(gpt2c_engine_poll(engine_, nullptr, &found), GPT2C_USAGE, "'update' is null");
  update.struct_size = 0;
  expectError(gpt2c_engine_poll(engine_, &update, &found), GPT2C_USAGE, "struct_size");
  gpt2c_engine_destroy(nullptr);
}

} // namespace
} // namespace gpt2c::rt
