// A service over a toy model, as its tests ask it.
#pragma once

#include "ServiceToy.h"

#include "server/http/Fields.h"

namespace gpt2c::serve {

using toy::Client;
using toy::eventsOf;
using toy::post;
namespace json = boost::json;

class ServiceTest : public ::testing::Test {
protected:
  Service &open(ServiceOptions options = {}, ModelOptions model = {}, bool chats = true) {
    options.pingInterval = {};
    service_ = std::make_unique<Service>(std::move(options));
    service_->setModel(toy::model(std::move(model), chats));
    return *service_;
  }

  std::shared_ptr<Client> ask(HttpRequest request) {
    auto client = std::make_shared<Client>();
    service_->handle(std::move(request), client);
    return client;
  }
  HttpResponse answer(const HttpRequest &request) {
    auto client = ask(request);
    client->wait();
    return client->response;
  }
  json::value whole(const std::string &path, const json::value &body) {
    const HttpResponse response = answer(post(path, body));
    EXPECT_EQ(response.status, 200) << response.body;
    return json::parse(response.body);
  }
  /// The error's message, behind its status and, where there is one, its field.
  std::string refusal(const std::string &path, const std::string &body) {
    const HttpResponse response =
        answer({.method = "POST", .path = path, .body = body, .contentType = "application/json"});
    const json::value error = json::parse(response.body).at("error");
    std::string out = std::to_string(response.status) + " ";
    if (error.at("param").is_string())
      out += std::string(textOf(error.at("param"))) + ": ";
    return out + std::string(textOf(error.at("message")));
  }

  void expectNoLeak() {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    rt::EngineStats s;
    do // what was cancelled ends with the next step
      s = service_->model()->engine().stats();
    while (s.pagesUsed + s.pagesReserved + s.running + s.waiting > 0 &&
           std::chrono::steady_clock::now() < end);
    EXPECT_EQ(s.pagesUsed + s.pagesReserved, 0);
    EXPECT_EQ(s.running + s.waiting, 0);
    EXPECT_EQ(service_->active(), 0u);
  }

  std::unique_ptr<Service> service_;
};

/// A body of random parameters; greedy and drawn, with stops and without.
inline json::object randomBody(std::mt19937 &random) {
  json::object body;
  json::array prompt;
  for (int n = 1 + int(random() % 20); n > 0; --n)
    prompt.push_back(int(random() % 256));
  body["prompt"] = std::move(prompt);
  body["max_tokens"] = 1 + random() % 30;
  body["temperature"] = random() % 2 ? 0.0 : 0.8;
  body["seed"] = random() % 1000;
  if (random() % 2)
    body["stop"] = json::array{std::string(1, char('a' + random() % 26)), "xy"};
  if (random() % 3 == 0)
    body["logprobs"] = random() % 4;
  if (random() % 3 == 0)
    body["n"] = 3;
  if (random() % 3 == 0)
    body["echo"] = true;
  if (random() % 4 == 0)
    body["include_stop_str_in_output"] = true;
  if (random() % 4 == 0)
    body["return_token_ids"] = true;
  return body;
}

/// The choices of an answer without what differs from answer to answer.
inline json::array choicesOf(const json::value &answer) { return answer.at("choices").get_array(); }

/// The choices that the events of a stream add up to.
inline json::array added(const std::vector<json::value> &events, size_t choices) {
  json::array out(choices, json::object());
  auto append = [](json::value &to, const json::value &from) {
    if (to.is_null())
      to = from;
    else if (from.is_array())
      for (const json::value &v : from.get_array())
        to.as_array().push_back(v);
  };
  for (const json::value &event : events)
    for (const json::value &piece : event.at("choices").get_array()) {
      json::object &c = out[size_t(piece.at("index").to_number<int>())].get_object();
      for (const auto &[name, value] : piece.get_object()) {
        if (name == "text") {
          json::value &text = c[name];
          if (text.is_null())
            text = json::string();
          text.get_string().append(value.get_string());
        } else if (name == "logprobs" && value.is_object()) {
          json::value &all = c[name];
          if (all.is_null())
            all = json::object();
          for (const auto &[list, values] : value.get_object())
            append(all.get_object()[list], values);
        } else if (value.is_array()) {
          append(c[name], value);
        } else {
          c[name] = value;
        }
      }
    }
  return out;
}

} // namespace gpt2c::serve
