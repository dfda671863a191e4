// A service over a toy model, and clients without sockets.
#pragma once

#include "../runtime/PagedToy.h"
#include "runtime/text/tokenizer/TokenizerModel.h"
#include "server/Service.h"

#include <boost/json.hpp>

#include <condition_variable>
#include <deque>
#include <random>

namespace gpt2c::serve::toy {

namespace json = boost::json;

inline constexpr const char *kTemplate =
    "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}"
    "{% if tools %}<tool_call>{{ tools | length }};{% endif %}"
    "{% if add_generation_prompt %}assistant:{% endif %}";

/// The 256 bytes and <|endoftext|>: texts of random tokens are rarely UTF-8.
inline rt::Tokenizer tokenizer(bool chats) {
  rt::TokenizerModel model;
  model.bytes = true;
  for (int byte = 0; byte < 256; ++byte)
    model.tokens.push_back({std::string(1, char(byte)), 0});
  model.texts.ends = {256};
  model.texts.specialTokens.push_back({"eos_token", "<|endoftext|>"});
  if (chats)
    model.texts.chatTemplates.push_back({"default", kTemplate});
  model.added.push_back({256, "<|endoftext|>", rt::TokenizerModel::AddedToken::Special});
  const std::string blob = model.serialize();
  auto made =
      rt::Tokenizer::fromBytes({reinterpret_cast<const uint8_t *>(blob.data()), blob.size()});
  EXPECT_TRUE(made) << made.status().message();
  return made.take();
}

inline rt::toy::Shape shape() {
  rt::toy::Shape s;
  s.vocabulary = 260;
  return s;
}

inline std::shared_ptr<Model> model(ModelOptions options = {}, bool chats = true) {
  auto made = Model::create(rt::toy::makeSession(shape()), tokenizer(chats), std::move(options));
  EXPECT_TRUE(made) << made.status().message();
  return made.take();
}

/// Runs what is posted on the thread that waits for the answer.
class Client : public Responder {
public:
  void post(std::function<void()> work) override {
    {
      std::lock_guard lock(mutex_);
      work_.push_back(std::move(work));
    }
    changed_.notify_all();
  }
  void send(HttpResponse r) override {
    response = std::move(r);
    over = true;
  }
  void begin(HttpResponse head) override {
    response = std::move(head);
    begun = true;
  }
  bool write(std::string part, std::function<void()> written) override {
    body += part;
    if (++parts % 2 && !holdsWrites)
      return true;
    if (holdsWrites)
      held.push_back(std::move(written));
    else
      post(std::move(written));
    return false;
  }
  void end(std::string last) override {
    body += last;
    over = true;
  }
  void abort() override { over = true; }
  void onGone(std::function<void()> gone) override { gone_ = std::move(gone); }
  void after(std::chrono::milliseconds, std::function<void()>) override {}

  /// Until the answer is over, or `enough` holds.
  void wait(const std::function<bool()> &enough = [] { return false; }) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    std::unique_lock lock(mutex_);
    while (!over && !enough()) {
      if (work_.empty() && !changed_.wait_until(lock, end, [this] { return !work_.empty(); })) {
        ADD_FAILURE() << "no answer";
        return;
      }
      std::function<void()> work = std::move(work_.front());
      work_.pop_front();
      lock.unlock();
      work();
      work = nullptr; // what it holds may lock mailboxes, whose locks are held around post()
      lock.lock();
    }
  }
  void leave() {
    if (gone_)
      std::exchange(gone_, nullptr)();
  }

  HttpResponse response;
  std::string body; ///< of a stream
  int parts = 0;
  bool begun = false, over = false;
  bool holdsWrites = false;
  std::vector<std::function<void()>> held;

private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::function<void()> gone_;
};

inline HttpRequest post(const std::string &path, const json::value &body) {
  return {.method = "POST",
          .path = path,
          .body = json::serialize(body),
          .contentType = "application/json"};
}

/// What a stream's events have, until [DONE].
inline std::vector<json::value> eventsOf(const std::string &body) {
  std::vector<json::value> out;
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    const std::string line = body.substr(at, end - at);
    at = end + 2;
    if (line == "data: [DONE]") {
      EXPECT_EQ(at, body.size()) << "something behind [DONE]";
      return out;
    }
    EXPECT_TRUE(line.starts_with("data: ")) << line;
    out.push_back(json::parse(line.substr(6)));
  }
  ADD_FAILURE() << "no [DONE]";
  return out;
}

} // namespace gpt2c::serve::toy
