// What a service bounds, and what it does when clients or models come and go.
#include "ServiceFixture.h"

namespace gpt2c::serve {
namespace {

TEST_F(ServiceTest, AFullQueueIs429) {
  open({}, {.engine = {.maxSequences = 1, .maxWaiting = 2}});
  const json::object body{{"prompt", "a"}, {"max_tokens", 90}, {"ignore_eos", true}};
  std::vector<std::shared_ptr<Client>> clients;
  int full = 0;
  for (int i = 0; i < 40; ++i)
    clients.push_back(ask(post("/v1/completions", body)));
  for (const auto &client : clients) {
    client->wait();
    if (client->response.status == 200)
      continue;
    ++full;
    EXPECT_EQ(client->response.status, 429);
    EXPECT_EQ(client->response.headers.at(0),
              std::pair(std::string("Retry-After"), std::string("1")));
  }
  EXPECT_GT(full, 0);
  // Of several choices none is left behind where one does not fit.
  json::object many = body;
  many["n"] = 50;
  EXPECT_EQ(answer(post("/v1/completions", many)).status, 429);
  expectNoLeak();
}

TEST_F(ServiceTest, QueuedTokensAreBounded) {
  open({.maxQueuedTokens = 100}, {.engine = {.maxSequences = 1}});
  const json::object body{{"prompt", std::string(60, 'a')}, {"max_tokens", 30}};
  std::vector<std::shared_ptr<Client>> clients;
  for (int i = 0; i < 10; ++i)
    clients.push_back(ask(post("/v1/completions", body)));
  std::map<int, int> by;
  for (const auto &client : clients) {
    client->wait();
    ++by[client->response.status];
  }
  EXPECT_GT(by[429], 0);
  EXPECT_GT(by[200], 0);
  EXPECT_EQ(by[200] + by[429], 10);
  EXPECT_EQ(answer(post("/v1/completions", body)).status, 200) << "what has ended does not count";
}

TEST_F(ServiceTest, WhoGoesLeavesNoPage) {
  open();
  std::mt19937 random(3);
  for (int i = 0; i < 300; ++i) {
    json::object body = randomBody(random);
    body["max_tokens"] = 60;
    body["ignore_eos"] = true;
    body["stream"] = random() % 2 == 0;
    auto client = ask(post("/v1/completions", body));
    if (random() % 2)
      client->wait([&] { return client->parts > int(random() % 4); });
    client->leave();
  }
  expectNoLeak();
}

// A client that does not read holds back neither the engine nor others, and then gets all at once.
TEST_F(ServiceTest, ASlowReaderHoldsNobodyBack) {
  open();
  json::object body{{"prompt", "abc"}, {"max_tokens", 80}, {"ignore_eos", true}, {"seed", 1}};
  const json::array expected = choicesOf(whole("/v1/completions", body));
  body["stream"] = true;
  auto slow = std::make_shared<Client>();
  slow->holdsWrites = true;
  service_->handle(post("/v1/completions", body), slow);
  slow->wait([&] { return slow->parts == 1; });
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(choicesOf(whole(
                  "/v1/completions",
                  {{"prompt", "abc"}, {"max_tokens", 80}, {"ignore_eos", true}, {"seed", 1}})),
              expected);
  EXPECT_LE(slow->parts, 1) << "none where the model was faster than this thread";
  slow->holdsWrites = false;
  for (auto &written : slow->held)
    written();
  slow->wait();
  EXPECT_TRUE(added(eventsOf(slow->body), 1) == expected);
  EXPECT_LE(slow->parts, 3) << "what waited is one part";
}

TEST_F(ServiceTest, AModelIsReplacedWhileItAnswers) {
  open();
  json::object body{{"prompt", "abc"}, {"max_tokens", 80}, {"ignore_eos", true}, {"seed", 1}};
  const json::array expected = choicesOf(whole("/v1/completions", body));
  std::vector<std::shared_ptr<Client>> clients;
  for (int i = 0; i < 6; ++i)
    clients.push_back(ask(post("/v1/completions", body)));
  service_->setModel(toy::model({.names = {"next"}}));
  for (const auto &client : clients) {
    client->wait();
    EXPECT_EQ(choicesOf(json::parse(client->response.body)), expected);
  }
  EXPECT_EQ(textOf(whole("/v1/completions", body).at("model")), "next");
}

TEST_F(ServiceTest, NothingNewIsTakenWhileItDrains) {
  open();
  auto client = ask(post("/v1/completions", {{"prompt", "abc"}, {"max_tokens", 80}}));
  service_->drain();
  EXPECT_EQ(answer({.method = "GET", .path = "/health"}).status, 503);
  EXPECT_EQ(answer(post("/v1/completions", {{"prompt", "a"}})).status, 503);
  client->wait();
  EXPECT_EQ(client->response.status, 200);
  expectNoLeak();
}

TEST_F(ServiceTest, AnIdOfTheClientsComesBack) {
  std::vector<std::string> lines;
  open({.log = [&](const std::string &line) { lines.push_back(line); }, .jsonLog = true});
  auto idOf = [&](const std::string &given) {
    HttpRequest r = post("/v1/completions", {{"prompt", "a"}, {"max_tokens", 2}});
    r.requestId = given;
    for (const auto &[name, value] : answer(r).headers)
      if (name == "X-Request-Id")
        return value;
    return std::string();
  };
  EXPECT_EQ(idOf("mine-1"), "mine-1");
  EXPECT_TRUE(idOf("").starts_with("req-"));
  EXPECT_TRUE(idOf("a\r\nSet-Cookie: x").starts_with("req-"));
  EXPECT_TRUE(idOf(std::string(1000, 'a')).starts_with("req-"));
  ASSERT_EQ(lines.size(), 4u);
  const json::value line = json::parse(lines[0]);
  EXPECT_EQ(textOf(line.at("id")), "mine-1");
  EXPECT_EQ(line.at("new_tokens").to_number<int>(), 2);
}

TEST_F(ServiceTest, MetricsCountWhatWasAsked) {
  open();
  for (int i = 0; i < 5; ++i)
    whole("/v1/completions",
          {{"prompt", "abcd"}, {"max_tokens", 7}, {"ignore_eos", true}, {"n", 2}});
  const std::string page = answer({.method = "GET", .path = "/metrics"}).body;
  auto has = [&](const std::string &line) {
    EXPECT_NE(page.find("gpt2c:" + line), std::string::npos) << line;
  };
  const std::string labels = "{model_name=\"gpt2c\",engine=\"0\"";
  has("generation_tokens_total" + labels + "} 70\n");
  has("prompt_tokens_total" + labels + "} 40\n");
  has("request_success_total" + labels + ",finished_reason=\"length\"} 10\n");
  has("time_to_first_token_seconds_count" + labels + "} 10\n");
  has("inter_token_latency_seconds_count" + labels + "} 60\n");
  has("request_generation_tokens_bucket" + labels + ",le=\"10\"} 10\n");
  has("num_requests_running" + labels + "} 0\n");
  has("http_requests_total" + labels + ",path=\"/v1/completions\",status=\"200\"} 5\n");
}

} // namespace
} // namespace gpt2c::serve
