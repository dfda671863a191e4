// What a service answers.
#include "ServiceFixture.h"

#include "runtime/text/TextGeneration.h"
#include "server/AnswerWriter.h"

#include <array>

namespace gpt2c::serve {
namespace {

// All that a stream says is what the whole answer says, byte for byte; and neither depends on what
// is asked at the same time.
TEST_F(ServiceTest, StreamsAndWholeAnswersAreEqualAloneAndTogether) {
  std::mt19937 random(11);
  for (int interval : {1, 5}) {
    open({.streamInterval = interval});
    std::vector<std::pair<json::object, json::array>> asked;
    for (int i = 0; i < 40; ++i) {
      json::object body = randomBody(random);
      json::array choices = choicesOf(whole("/v1/completions", body));
      asked.emplace_back(std::move(body), std::move(choices));
    }
    std::vector<std::shared_ptr<Client>> clients;
    for (auto &[body, choices] : asked) {
      body["stream"] = true;
      clients.push_back(ask(post("/v1/completions", body)));
    }
    for (size_t i = 0; i < asked.size(); ++i) {
      clients[i]->wait();
      EXPECT_EQ(clients[i]->response.contentType, "text/event-stream");
      const json::array got = added(eventsOf(clients[i]->body), asked[i].second.size());
      EXPECT_TRUE(got == asked[i].second) << json::serialize(asked[i].first);
    }
    expectNoLeak();
  }
}

TEST_F(ServiceTest, AnAnswerIsTheSessions) {
  open();
  const std::string text = "hello world";
  const json::value got = whole("/v1/completions", {{"prompt", text},
                                                    {"max_tokens", 20},
                                                    {"temperature", 0},
                                                    {"ignore_eos", true},
                                                    {"return_token_ids", true}});
  auto session = rt::toy::makeSession(toy::shape());
  const rt::Tokenizer tokenizer = toy::tokenizer(false);
  const rt::Tokens prompt = tokenizer.encode(text);
  rt::TextOptions options;
  options.generate.maxNewTokens = 20;
  options.ignoreEos = true;
  const auto alone = rt::generateText(*session, &tokenizer, {&prompt, 1}, options);
  ASSERT_TRUE(alone) << alone.status().message();
  json::array ids;
  for (int32_t id : alone->answers[0].tokens)
    ids.push_back(id);
  EXPECT_EQ(got.at("choices").at(0).at("token_ids"), ids);
  EXPECT_EQ(got.at("usage").at("completion_tokens").to_number<int>(), 20);
  EXPECT_EQ(got.at("usage").at("prompt_tokens").to_number<int>(), int(prompt.size()));
}

TEST_F(ServiceTest, SeedsOfChoicesFollowEachOther) {
  open();
  json::object body{{"prompt", "abc"}, {"max_tokens", 12}, {"seed", 40}, {"n", 3}};
  const json::value three = whole("/v1/completions", body);
  for (int i = 0; i < 3; ++i) {
    body["seed"] = 40 + i;
    body["n"] = 1;
    EXPECT_EQ(whole("/v1/completions", body).at("choices").at(0).at("text"),
              three.at("choices").at(i).at("text"));
  }
}

TEST_F(ServiceTest, PromptsAreScored) {
  open();
  const json::array prompt{1, 2, 3, 250};
  const json::value got = whole(
      "/v1/completions", {{"prompt", prompt}, {"max_tokens", 0}, {"echo", true}, {"logprobs", 2}});
  const json::value &choice = got.at("choices").at(0);
  const json::array &scores = choice.at("logprobs").at("token_logprobs").get_array();
  ASSERT_EQ(scores.size(), prompt.size());
  EXPECT_TRUE(scores[0].is_null());
  const rt::toy::PagedBackend model(toy::shape());
  const int32_t ids[] = {1, 2, 3, 250};
  for (size_t i = 1; i < 4; ++i) {
    const std::vector<float> logits = model.logitsOf(std::span(ids).first(i));
    EXPECT_NEAR(scores[i].to_number<double>(), logits[size_t(ids[i])] - rt::logSumExp(logits),
                1e-9);
    EXPECT_GE(choice.at("logprobs").at("top_logprobs").at(i).get_object().size(), 2u);
  }
  EXPECT_EQ(textOf(choice.at("logprobs").at("tokens").at(3)), "bytes:\\xfa");
  EXPECT_EQ(textOf(choice.at("finish_reason")), "length");
  EXPECT_EQ(got.at("usage").at("completion_tokens").to_number<int>(), 0);
  expectNoLeak();
}

TEST_F(ServiceTest, ManyPromptsAreManyChoices) {
  open();
  const json::value got = whole("/v1/completions", {{"prompt", json::array{"ab", "cd"}},
                                                    {"n", 2},
                                                    {"echo", true},
                                                    {"max_tokens", 1},
                                                    {"stop_token_ids", json::array{}}});
  ASSERT_EQ(choicesOf(got).size(), 4u);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(got.at("choices").at(i).at("index").to_number<int>(), i);
    EXPECT_TRUE(textOf(got.at("choices").at(i).at("text")).starts_with(i < 2 ? "ab" : "cd"));
  }
}

TEST_F(ServiceTest, ChatsAreRendered) {
  open();
  const json::object body{{"messages", {{{"role", "user"}, {"content", "hi"}}}},
                          {"temperature", 0},
                          {"max_tokens", 9},
                          {"logprobs", true},
                          {"top_logprobs", 1}};
  const json::value got = whole("/v1/chat/completions", body);
  const json::value same = whole(
      "/v1/completions", {{"prompt", "user:hi;assistant:"}, {"temperature", 0}, {"max_tokens", 9}});
  const json::value &choice = got.at("choices").at(0);
  EXPECT_EQ(choice.at("message").at("content"), same.at("choices").at(0).at("text"));
  EXPECT_EQ(textOf(choice.at("message").at("role")), "assistant");
  EXPECT_EQ(textOf(got.at("object")), "chat.completion");
  EXPECT_EQ(choice.at("logprobs").at("content").get_array().size(), 9u);
  const json::value tokens = whole("/tokenize", {{"messages", body.at("messages")}});
  EXPECT_EQ(tokens.at("count"), got.at("usage").at("prompt_tokens"));
  EXPECT_EQ(textOf(whole("/detokenize", {{"tokens", tokens.at("tokens")}}).at("prompt")),
            "user:hi;assistant:");

  json::object stream = body;
  stream["stream"] = true;
  stream["stream_options"] = {{"include_usage", true}};
  auto client = ask(post("/v1/chat/completions", stream));
  client->wait();
  std::string content;
  const std::vector<json::value> events = eventsOf(client->body);
  for (const json::value &event : events) {
    EXPECT_EQ(textOf(event.at("object")), "chat.completion.chunk");
    for (const json::value &c : event.at("choices").get_array()) {
      EXPECT_EQ(c.at("delta").get_object().contains("role"), &event == &events[0]);
      if (const json::value *piece = c.at("delta").get_object().if_contains("content"))
        content += textOf(*piece);
    }
  }
  EXPECT_EQ(content, textOf(choice.at("message").at("content")));
  EXPECT_EQ(events.back().at("usage").at("total_tokens"), got.at("usage").at("total_tokens"));
  EXPECT_TRUE(events.front().at("usage").is_null());
}

// Each event says how far its own choice is, the last one what all of them came to.
TEST_F(ServiceTest, UsageComesWithEachEventWhereThatIsAskedFor) {
  open();
  for (const bool included : {true, false}) {
    auto client = ask(post(
        "/v1/completions",
        {{"prompt", {"ab", "cde"}},
         {"n", 2},
         {"max_tokens", 5},
         {"ignore_eos", true},
         {"return_token_ids", true},
         {"stream", true},
         {"stream_options", {{"include_usage", included}, {"continuous_usage_stats", true}}}}));
    client->wait();
    std::vector<json::value> events = eventsOf(client->body);
    if (included) {
      EXPECT_EQ(events.back().at("usage").at("completion_tokens").as_int64(), 20);
      EXPECT_EQ(events.back().at("usage").at("prompt_tokens").as_int64(), 5);
      events.pop_back();
    }
    std::array<int64_t, 4> told{};
    for (const json::value &event : events) {
      EXPECT_EQ(event.as_object().contains("usage"), included);
      const json::value &choice = event.at("choices").at(0);
      const auto index = size_t(choice.at("index").as_int64());
      told[index] += int64_t(choice.at("token_ids").as_array().size());
      if (!included)
        continue;
      EXPECT_EQ(event.at("usage").at("completion_tokens").as_int64(), told[index]);
      EXPECT_EQ(event.at("usage").at("prompt_tokens").as_int64(), index < 2 ? 2 : 3);
    }
    EXPECT_EQ(told, (std::array<int64_t, 4>{5, 5, 5, 5}));
  }
}

TEST_F(ServiceTest, WhatCannotWorkIsSaid) {
  open({}, {.names = {"toy", "alias"}});
  struct Case {
    const char *body, *refusal;
  };
  for (const Case &c : std::initializer_list<Case>{
           {"[]", "400 the body must be a JSON object"},
           {"{", "400 the body is no JSON: "},
           {"{}", "400 prompt: there is no prompt"},
           {R"({"prompt": []})", "400 prompt: prompt must be"},
           {R"({"prompt": [[]]})", "400 prompt: the prompt is empty"},
           {R"({"prompt": ["a", 1]})", "400 prompt: prompt must be"},
           {R"({"prompt": [1, 2.5]})", "400 prompt: prompt must be"},
           {R"({"prompt": [999]})", "400 prompt: token 1 is 999"},
           {R"({"prompt": [-1]})", "400 prompt: token 1 is -1"},
           {R"({"prompt": ""})", "400 prompt: the prompt is empty"},
           {R"({"prompt": "a", "max_tokens": 500})",
            "400 max_tokens: a prompt of 1 token and 500 new tokens are more than the plan's "
            "context of 96; at most 96"},
           {R"({"prompt": "a", "max_tokens": -1})",
            "400 max_tokens: max_tokens must be an integer"},
           {R"({"prompt": "a", "max_tokens": "9"})", "400 max_tokens: max_tokens must be"},
           {R"({"prompt": "a", "max_tokens": 0})", "400 max_tokens: max_tokens of 0 leaves"},
           {R"({"prompt": "a", "temperature": -1})", "400 temperature: temperature is -1"},
           {R"({"prompt": "a", "top_p": "x"})", "400 top_p: top_p must be a number"},
           {R"({"prompt": "a", "logprobs": 21})", "400 logprobs: logprobs must be"},
           {R"({"prompt": "a", "n": 0})", "400 n: n must be"},
           {R"({"prompt": "a", "stop": [1]})", "400 stop: stop must be"},
           {R"({"prompt": "a", "stop": ""})", "400 stop: a stop string is empty"},
           {R"({"prompt": "a", "logit_bias": {"x": 1}})", "400 logit_bias: logit_bias must be"},
           {R"({"prompt": "a", "logit_bias": {"900": 1}})",
            "400 logit_bias: logit_bias names token 900"},
           {R"({"prompt": "a", "stream_options": {}})",
            "400 stream_options: stream_options belong"},
           {R"({"prompt": "a", "stream": true, "stream_options": {"x": 1}})",
            "400 stream_options: stream_options: there is no field 'x'"},
           {R"({"prompt": "a", "response_format": "json"})",
            "400 response_format: response_format"},
           {R"({"prompt": "a", "response_format": {"type": "xml"}})",
            "400 response_format: response_format: the type may be text, json_object or "
            "json_schema"},
           {R"({"prompt": "a", "response_format": {"type": "json_schema"}})",
            "400 response_format: response_format: json_schema must be an object with a schema"},
           {R"({"prompt": "a", "structured_outputs": {"regex": 1}})",
            "400 structured_outputs: structured_outputs: regex must be a text"},
           {R"({"prompt": "a", "structured_outputs": {"choice": ["a", 1]}})",
            "400 structured_outputs: structured_outputs: choice must be a list of texts"},
           {R"({"prompt": "a", "structured_outputs": {"regex": "a", "json": {}}})",
            "400 structured_outputs: structured_outputs: structured_outputs says already"},
           {R"({"prompt": "a", "structured_outputs": {"html": true}})",
            "400 structured_outputs: structured_outputs: there is no field 'html'"},
           {R"({"prompt": "a", "structured_outputs": {"regex": "a{9,1}"}})",
            "400 structured_outputs: "},
           {R"({"prompt": "a", "min_tokens": 17})", "400 min_tokens: min_tokens is 17"},
           {R"({"prompt": "a", "allowed_token_ids": []})",
            "400 allowed_token_ids: allowed_token_ids is empty"},
           {R"({"prompt": "a", "allowed_token_ids": [900]})",
            "400 allowed_token_ids: allowed_token_ids names token 900"},
           {R"({"prompt": "a", "bad_words": [1]})", "400 bad_words: bad_words must be"},
           {R"({"prompt": "a", "bad_words": [""]})", "400 bad_words: bad_words has an empty"},
           {R"({"prompt": "a", "stop_token_ids": [900]})", "400 stop_token_ids: stop token 1 is"},
           {R"({"prompt": "a", "cache_salt": 7})", "400 cache_salt: cache_salt must be"},
           {R"({"prompt": "a", "best_of": 2})", "400 best_of: best_of is not supported"},
           {R"({"prompt": "a", "suffix": "b"})", "400 suffix: suffix is not supported"},
           {R"({"prompt": "a", "model": "gpt-5"})", "404 model: there is no model 'gpt-5'; this"},
           {R"({"prompt": "a", "frobnicate": 1})", "400 frobnicate: there is no field"},
           {R"({"prompt": "a", "seed": 1e30})", "400 seed: seed must be"}}) {
    const std::string got = refusal("/v1/completions", c.body);
    EXPECT_TRUE(got.starts_with(c.refusal)) << c.body << ": " << got;
  }
  for (const Case &c : std::initializer_list<Case>{
           {R"({})", "400 messages: messages must be"},
           {R"({"messages": [{"content": "x"}]})", "400 messages: messages must be"},
           {R"({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]})",
            "400 messages: a message's content"},
           {R"({"messages": [{"role": "user", "content": "x"}], "tools": [{}]})",
            "400 tools: each of tools"},
           {R"({"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"})",
            "400 tool_choice: tool_choice asks for a call, and there are no tools"},
           {R"({"messages": [{"role": "user", "content": "x"}], "tool_choice": "any"})",
            "400 tool_choice: tool_choice may be"},
           {R"({"messages": [{"role": "user", "content": "x"}], "top_logprobs": 2})",
            "400 top_logprobs: top_logprobs belong"},
           {R"({"messages": [{"role": "user", "content": "x"}], "echo": true})",
            "400 echo: there is no field"}}) {
    const std::string got = refusal("/v1/chat/completions", c.body);
    EXPECT_TRUE(got.starts_with(c.refusal)) << c.body << ": " << got;
  }
  EXPECT_TRUE(refusal("/detokenize", R"({"tokens": [65, 260]})")
                  .starts_with("400 tokens: tokens has 260; the model's ids go from 0 to 259"));
  EXPECT_EQ(answer(post("/v1/completions", {{"prompt", "a"}, {"model", "alias"}})).status, 200);
  expectNoLeak();
}

TEST_F(ServiceTest, WithoutATemplateChatsAreRefused) {
  open({}, {}, false);
  EXPECT_TRUE(refusal("/v1/chat/completions", R"({"messages": [{"role": "user", "content": "x"}]})")
                  .starts_with("400 the plan has no chat template: start the server with"));
  open({}, {.chatTemplate = "{{ messages[0].content }}"}, false);
  EXPECT_EQ(answer(post("/v1/chat/completions",
                        {{"messages", {{{"role", "user"}, {"content", "x"}}}}, {"max_tokens", 2}}))
                .status,
            200);
}

// A text that cannot be short enough is not cut into tokens first.
TEST_F(ServiceTest, TextsHaveABound) {
  open();
  const json::object body{{"prompt", std::string(1 << 20, 'a')}};
  EXPECT_TRUE(refusal("/v1/completions", json::serialize(body))
                  .starts_with("400 prompt: a prompt of 1048576 bytes is longer"));
}

TEST_F(ServiceTest, Routes) {
  open({.keys = {"secret", "other"}});
  auto status = [&](const char *method, const char *path, const std::string &key = {}) {
    return answer({.method = method,
                   .path = path,
                   .contentType = "application/json",
                   .authorization = key.empty() ? "" : "Bearer " + key})
        .status;
  };
  EXPECT_EQ(status("GET", "/health"), 200);
  EXPECT_EQ(status("GET", "/v1/health"), 200);
  EXPECT_EQ(status("GET", "/version"), 200);
  EXPECT_EQ(status("GET", "/metrics"), 200);
  EXPECT_EQ(status("GET", "/"), 200);
  EXPECT_EQ(status("GET", "/v1/models"), 401);
  EXPECT_EQ(status("GET", "/v1/models", "secre"), 401);
  EXPECT_EQ(status("GET", "/v1/models", "secret2"), 401);
  EXPECT_EQ(status("GET", "/v1/models", "secret"), 200);
  EXPECT_EQ(status("GET", "/v1/models", "other"), 200);
  EXPECT_EQ(status("GET", "/v1/models/gpt2c", "other"), 200);
  EXPECT_EQ(status("GET", "/v1/models/none", "other"), 404);
  EXPECT_EQ(status("GET", "/nowhere"), 404);
  EXPECT_EQ(status("GET", "/v1/completions", "secret"), 405);
  EXPECT_EQ(status("POST", "/health"), 405);
  EXPECT_EQ(status("POST", "/v1/completions"), 401);
  EXPECT_EQ(status("POST", "/v1/completions", "secret"), 400);
  EXPECT_EQ(status("POST", "/admin/reload", "secret"), 403);
  EXPECT_EQ(answer({.method = "POST",
                    .path = "/tokenize",
                    .body = "{}",
                    .contentType = "text/plain",
                    .authorization = "Bearer secret"})
                .status,
            415);
  EXPECT_EQ(answer({.method = "POST",
                    .path = "/tokenize",
                    .body = "{}",
                    .contentType = "application/json",
                    .authorization = "Bearer secret",
                    .contentEncoding = "gzip"})
                .status,
            415);
  const auto headers = answer({.method = "PUT", .path = "/v1/models"}).headers;
  EXPECT_TRUE(
      std::ranges::count(headers, std::pair<std::string, std::string>("Allow", "GET, HEAD")));
  service_->setModel(nullptr);
  EXPECT_EQ(status("GET", "/health"), 503);
  EXPECT_EQ(status("GET", "/metrics"), 200);
  EXPECT_EQ(status("POST", "/v1/completions", "secret"), 503);
}

TEST_F(ServiceTest, TokensAreOfTheModelThatIsNamed) {
  open();
  for (const char *name : {"gpt2c", "none"}) {
    const int status = name == std::string_view("none") ? 404 : 200;
    EXPECT_EQ(answer(post("/tokenize", {{"model", name}, {"prompt", "a"}})).status, status);
    EXPECT_EQ(answer(post("/detokenize", {{"model", name}, {"tokens", {1}}})).status, status);
  }
}

TEST_F(ServiceTest, ALostDeviceIsNotHealthy) {
  service_ = std::make_unique<Service>(ServiceOptions{});
  auto session = rt::toy::makeSession(toy::shape());
  auto &device = static_cast<rt::toy::PagedBackend &>(session->backend());
  auto made = Model::create(std::move(session), toy::tokenizer(true), {});
  ASSERT_TRUE(made) << made.status().message();
  service_->setModel(made.take());
  auto health = [&] { return answer({.method = "GET", .path = "/health"}); };
  EXPECT_EQ(health().status, 200);
  device.failAt = 1;
  EXPECT_EQ(answer(post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 2}})).status, 500);
  // What the engine's thread tells of a step comes behind the answers of it.
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (health().status == 200 && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  const HttpResponse lost = health();
  EXPECT_EQ(lost.status, 503);
  EXPECT_NE(lost.body.find("the device failed: the toy's extend failed"), std::string::npos)
      << lost.body;
  EXPECT_EQ(answer(post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 2}})).status, 200);
  while (health().status == 503 && std::chrono::steady_clock::now() < end)
    std::this_thread::yield();
  EXPECT_EQ(health().status, 200); // it works again
}

TEST_F(ServiceTest, KeysAreComparedWhole) {
  EXPECT_TRUE(equalInConstantTime("abc", "abc"));
  for (const char *other : {"", "ab", "abcd", "abd", "abcabc"})
    EXPECT_FALSE(equalInConstantTime(other, "abc"));
  EXPECT_FALSE(equalInConstantTime("a", ""));
}

} // namespace
} // namespace gpt2c::serve
