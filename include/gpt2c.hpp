// gpt2c runtime for C++20: gpt2c.h with owners, spans, and a value or an error for each call.
// Header only, all of it here; link as for gpt2c.h.
//
//   gpt2c::Result<gpt2c::Plan> plan = gpt2c::Plan::open("gpt2.plan");
//   if (!plan)
//     fail(plan.error().message);
//   gpt2c::Result<gpt2c::Session> session = plan->session("cpu");
//
// Nothing here throws, but for memory that runs out. What gpt2c.h says about threads holds here. A
// callback must not throw: the program would end.
#ifndef GPT2C_HPP
#define GPT2C_HPP

#if __cplusplus < 202002L
#error "gpt2c.hpp needs C++20 (-std=c++20); gpt2c.h is for C and any C++"
#else

#include "gpt2c.h"

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace gpt2c {

struct Error {
  gpt2c_status status = GPT2C_OK;
  std::string message; ///< one paragraph for people
};

/// A value or an Error, with the names of std::expected. Using the one that is not there is an
/// assert.
template <typename T> class [[nodiscard]] Result {
public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool has_value() const noexcept { return state_.index() == 0; }
  explicit operator bool() const noexcept { return has_value(); }
  T &operator*() & { return get(); }
  const T &operator*() const & { return const_cast<Result *>(this)->get(); }
  T &&operator*() && { return std::move(get()); }
  T *operator->() { return &get(); }
  const T *operator->() const { return &const_cast<Result *>(this)->get(); }
  const Error &error() const {
    assert(!has_value() && "there is no error");
    return *std::get_if<1>(&state_);
  }

private:
  T &get() {
    assert(has_value() && "there is no value: look at error()");
    return *std::get_if<0>(&state_);
  }
  std::variant<T, Error> state_;
};

/// Of calls that give nothing.
using Status = Result<std::monostate>;

namespace detail {

/// The thread's last error, for a status that is not GPT2C_OK.
inline Error error(gpt2c_status status) { return {status, gpt2c_last_error()}; }

template <auto destroy> struct Destroy {
  template <typename T> void operator()(T *handle) const { destroy(handle); }
};
template <typename T, auto destroy> using Owner = std::unique_ptr<T, Destroy<destroy>>;

} // namespace detail

/// gpt2c_sampling, greedy until a field is set. What its pointers lead to outlives the call.
struct Sampling : gpt2c_sampling {
  Sampling() : gpt2c_sampling(GPT2C_SAMPLING_INIT) {}
};

/// gpt2c_token.
struct Token {
  std::size_t sequence = 0;
  std::int32_t token = -1;             ///< -1 in the last call for a sequence
  gpt2c_finish finish = GPT2C_RUNNING; ///< and in that call another
  std::string_view text;               ///< what can be shown now
  double logprob = 0;
  std::span<const gpt2c_logprob> top;
};

/// gpt2c_generate_options.
struct GenerateOptions {
  std::int64_t max_tokens = 32;
  std::int64_t min_tokens = 0;
  std::vector<Sampling> sampling; ///< none: greedy; one for all, or one for each sequence
  std::vector<std::string> stops;
  std::vector<std::int32_t> stop_tokens;
  bool ignore_eos = false;
  std::optional<std::int64_t> slide_keep;      ///< none: a full context ends the answer
  std::function<bool(const Token &)> on_token; ///< false ends the sequence
};

/// gpt2c_answer: a view into Answers.
struct Answer {
  std::span<const std::int32_t> tokens;
  std::string_view text;
  gpt2c_finish finish = GPT2C_RUNNING;
  int stop = -1;
  std::span<const double> logprobs;   ///< of each token, where sampling asks for them
  std::span<const gpt2c_logprob> top; ///< [tokens][top_count]
  std::size_t top_count = 0;
  double first_token_seconds = 0; ///< from the call on
  double last_token_seconds = 0;
};

class Answers {
public:
  explicit Answers(gpt2c_answers *handle) : handle_(handle) {}

  std::size_t size() const { return gpt2c_answers_count(handle_.get()); }
  /// `index` is below size().
  Answer operator[](std::size_t index) const {
    gpt2c_answer a = GPT2C_ANSWER_INIT;
    [[maybe_unused]] gpt2c_status status = gpt2c_answers_get(handle_.get(), index, &a);
    assert(status == GPT2C_OK && "there is no such answer");
    return {.tokens = {a.tokens, a.token_count},
            .text = {a.text ? a.text : "", a.text_bytes},
            .finish = static_cast<gpt2c_finish>(a.finish),
            .stop = a.stop,
            .logprobs = {a.logprobs, a.logprobs ? a.token_count : 0},
            .top = {a.top, a.top ? a.token_count * a.top_count : 0},
            .top_count = a.top_count,
            .first_token_seconds = a.first_token_seconds,
            .last_token_seconds = a.last_token_seconds};
  }
  gpt2c_times times() const {
    gpt2c_times t = GPT2C_TIMES_INIT;
    (void)gpt2c_answers_get_times(handle_.get(), &t);
    return t;
  }

private:
  detail::Owner<gpt2c_answers, gpt2c_answers_destroy> handle_;
};

/// gpt2c_message.
struct Message {
  std::string role, content;
};

/// gpt2c_conversation.
struct Conversation {
  std::vector<Message> messages;
  std::string context;       ///< a JSON object with what else the template reads; empty: nothing
  std::string chat_template; ///< Jinja; empty: the plan's
};

namespace detail {

/// A conversation for C, as long as it lives and the C++ one does.
struct View {
  explicit View(const Conversation &c) {
    for (const Message &m : c.messages)
      messages.push_back({m.role.c_str(), m.content.c_str()});
    conversation.messages = messages.data();
    conversation.message_count = messages.size();
    conversation.context = c.context.empty() ? nullptr : c.context.c_str();
    conversation.chat_template = c.chat_template.empty() ? nullptr : c.chat_template.c_str();
  }
  View(const View &) = delete;

  std::vector<gpt2c_message> messages;
  gpt2c_conversation conversation = GPT2C_CONVERSATION_INIT;
};

} // namespace detail

/// gpt2c_stream.
class Stream {
public:
  explicit Stream(gpt2c_stream *handle) : handle_(handle) {}

  /// What can be shown behind this token, valid until the next call.
  Result<std::string_view> push(std::int32_t token) {
    const char *text = nullptr;
    std::size_t bytes = 0;
    if (gpt2c_status s = gpt2c_stream_push(handle_.get(), token, &text, &bytes, &stop_))
      return detail::error(s);
    return std::string_view(text, bytes);
  }
  Result<std::string_view> finish() {
    const char *text = nullptr;
    std::size_t bytes = 0;
    if (gpt2c_status s = gpt2c_stream_finish(handle_.get(), &text, &bytes))
      return detail::error(s);
    return std::string_view(text, bytes);
  }
  /// Which stop string ended the text, -1: none yet.
  int stop() const { return stop_; }

private:
  detail::Owner<gpt2c_stream, gpt2c_stream_destroy> handle_;
  std::int32_t stop_ = -1;
};

/// gpt2c_engine_options, the defaults until a field is set.
struct EngineOptions : gpt2c_engine_options {
  EngineOptions() : gpt2c_engine_options(GPT2C_ENGINE_OPTIONS_INIT) {}
};

/// gpt2c_request: a prompt of tokens, or of text where there are none.
struct Request {
  std::vector<std::int32_t> tokens;
  std::string text;
  std::int64_t max_tokens = 16;
  std::int64_t min_tokens = 0;
  std::optional<Sampling> sampling; ///< none: greedy
  std::vector<std::string> stops;
  std::vector<std::int32_t> stop_tokens;
  bool ignore_eos = false;
  bool fill_context = false; ///< false: refused where the answer might not fit
  std::string cache_salt;    ///< prompts share pages with those of the same salt alone
  /// The first update says how probable each token of the prompt is, and names so many of the most
  /// probable ones beside it; such a prompt takes a step for each of its tokens.
  std::optional<std::int32_t> prompt_logprobs;
};

/// gpt2c_update. Views are valid until the engine's next poll.
struct Update {
  std::uint64_t id = 0;
  std::int32_t token = -1;             ///< -1: none
  gpt2c_finish finish = GPT2C_RUNNING; ///< else how it ended
  std::string_view text;               ///< what can be shown now
  double logprob = 0;
  std::span<const gpt2c_logprob> top;
  int stop = -1;
  gpt2c_status status = GPT2C_OK; ///< of GPT2C_FINISH_FAILED, and why
  std::string_view message;
  std::int32_t prompt_tokens = 0, new_tokens = 0, cached_tokens = 0; ///< with the ending
  /// Of Request::prompt_logprobs, once: the prompt's tokens behind the first.
  std::span<const gpt2c_scored_token> prompt;
};

/// gpt2c_engine. It holds the session that it was made of, which has to outlive it.
class Engine {
public:
  explicit Engine(gpt2c_engine *handle) : handle_(handle) {}

  /// The request's id. Where it is refused, `refusal` says why.
  Result<std::uint64_t> submit(const Request &request, gpt2c_refusal *refusal = nullptr) {
    std::vector<const char *> stops;
    for (const std::string &stop : request.stops)
      stops.push_back(stop.c_str());
    gpt2c_request r = GPT2C_REQUEST_INIT;
    r.tokens = request.tokens.data();
    r.token_count = request.tokens.size();
    if (request.tokens.empty()) {
      r.text = request.text.data();
      r.text_bytes = request.text.size();
    }
    r.max_tokens = request.max_tokens;
    r.min_tokens = request.min_tokens;
    r.cache_salt = request.cache_salt.c_str();
    r.sampling = request.sampling ? &*request.sampling : nullptr;
    r.stops = stops.data();
    r.stop_count = stops.size();
    r.stop_tokens = request.stop_tokens.data();
    r.stop_token_count = request.stop_tokens.size();
    r.ignore_eos = request.ignore_eos;
    r.fill_context = request.fill_context;
    r.score_prompt = request.prompt_logprobs.has_value();
    r.prompt_top = request.prompt_logprobs.value_or(0);
    std::uint64_t id = 0;
    std::int32_t why = GPT2C_TAKEN;
    const gpt2c_status s = gpt2c_engine_submit(handle_.get(), &r, &id, &why);
    if (refusal)
      *refusal = static_cast<gpt2c_refusal>(why);
    if (s)
      return detail::error(s);
    return id;
  }
  /// One call of the device; true where something still runs or waits.
  Result<bool> step() {
    std::int32_t idle = 0;
    if (gpt2c_status s = gpt2c_engine_step(handle_.get(), &idle))
      return detail::error(s);
    return idle == 0;
  }
  /// The oldest update that was not seen yet.
  Result<std::optional<Update>> poll() { return next(gpt2c_engine_poll); }
  /// The next update, stepping until there is one; none where nothing runs or waits.
  Result<std::optional<Update>> wait() { return next(gpt2c_engine_wait); }
  /// Ends a request now, with an update.
  Status cancel(std::uint64_t id) {
    if (gpt2c_status s = gpt2c_engine_cancel(handle_.get(), id))
      return detail::error(s);
    return std::monostate();
  }
  gpt2c_engine_stats stats() const {
    gpt2c_engine_stats stats = GPT2C_ENGINE_STATS_INIT;
    (void)gpt2c_engine_get_stats(handle_.get(), &stats);
    return stats;
  }

private:
  Result<std::optional<Update>> next(gpt2c_status (*take)(gpt2c_engine *, gpt2c_update *,
                                                          std::int32_t *)) {
    gpt2c_update u = GPT2C_UPDATE_INIT;
    std::int32_t found = 0;
    if (gpt2c_status s = take(handle_.get(), &u, &found))
      return detail::error(s);
    if (!found)
      return std::optional<Update>();
    return std::optional<Update>({.id = u.id,
                                  .token = u.token,
                                  .finish = static_cast<gpt2c_finish>(u.finish),
                                  .text = {u.text ? u.text : "", u.text_bytes},
                                  .logprob = u.logprob,
                                  .top = {u.top, u.top ? u.top_count : 0},
                                  .stop = u.stop,
                                  .status = static_cast<gpt2c_status>(u.status),
                                  .message = u.message ? u.message : "",
                                  .prompt_tokens = u.prompt_tokens,
                                  .new_tokens = u.new_tokens,
                                  .cached_tokens = u.cached_tokens,
                                  .prompt = {u.prompt, u.prompt_count}});
  }

  detail::Owner<gpt2c_engine, gpt2c_engine_destroy> handle_;
};

/// gpt2c_session.
class Session {
public:
  explicit Session(gpt2c_session *handle) : handle_(handle) {}

  std::string_view device() const { return gpt2c_session_device(handle_.get()); }

  Result<Answers> complete(std::string_view prompt, const GenerateOptions &options = {}) {
    return call(options, [&](const gpt2c_generate_options *o, gpt2c_answers **answers) {
      return gpt2c_complete(handle_.get(), prompt.data() ? prompt.data() : "", prompt.size(), o,
                            answers);
    });
  }
  Result<Answers> generate(std::span<const std::vector<std::int32_t>> prompts,
                           const GenerateOptions &options = {}) {
    std::vector<std::int32_t> tokens, lengths;
    tokens.reserve(1); // data() of no tokens is not null
    lengths.reserve(1);
    flatten(prompts, tokens, lengths);
    return call(options, [&](const gpt2c_generate_options *o, gpt2c_answers **answers) {
      return gpt2c_generate(handle_.get(), tokens.data(), lengths.data(),
                            static_cast<std::int32_t>(lengths.size()), o, answers);
    });
  }
  /// gpt2c_chat: the next message of a conversation.
  Result<Answers> chat(const Conversation &conversation, const GenerateOptions &options = {}) {
    const detail::View view(conversation);
    return call(options, [&](const gpt2c_generate_options *o, gpt2c_answers **answers) {
      return gpt2c_chat(handle_.get(), &view.conversation, o, answers);
    });
  }
  /// For any thread: ends the generation that runs.
  void cancel() { gpt2c_session_cancel(handle_.get()); }

  /// gpt2c_prefill: `next` of the number of prompts, `logits` of prompts x vocabulary or empty.
  Status prefill(std::span<const std::vector<std::int32_t>> prompts, std::span<std::int32_t> next,
                 std::span<float> logits = {}) {
    assert(next.size() == prompts.size());
    std::vector<std::int32_t> tokens, lengths;
    flatten(prompts, tokens, lengths);
    return status(gpt2c_prefill(handle_.get(), tokens.data(), lengths.data(),
                                static_cast<std::int32_t>(lengths.size()), next.data(),
                                logits.empty() ? nullptr : logits.data()));
  }
  /// gpt2c_decode: tokens[steps][batch].
  Status decode(std::int32_t steps, std::span<std::int32_t> tokens) {
    return status(gpt2c_decode(handle_.get(), steps, tokens.data()));
  }
  /// gpt2c_step: tokens and `next` of the batch, `logits` of batch x vocabulary or empty.
  Status step(std::span<const std::int32_t> tokens, std::span<std::int32_t> next,
              std::span<float> logits = {}) {
    assert(tokens.size() == next.size());
    return status(gpt2c_step(handle_.get(), tokens.data(), next.data(),
                             logits.empty() ? nullptr : logits.data()));
  }

  /// gpt2c_engine_create: many requests at once. The session serves nothing else meanwhile.
  Result<Engine> engine(const EngineOptions &options = {}) {
    gpt2c_engine *engine = nullptr;
    if (gpt2c_status s = gpt2c_engine_create(handle_.get(), &options, &engine))
      return detail::error(s);
    return Engine(engine);
  }

  gpt2c_session *handle() { return handle_.get(); }

private:
  static Status status(gpt2c_status s) {
    return s ? Status(detail::error(s)) : Status(std::monostate());
  }
  static void flatten(std::span<const std::vector<std::int32_t>> prompts,
                      std::vector<std::int32_t> &tokens, std::vector<std::int32_t> &lengths) {
    for (const std::vector<std::int32_t> &p : prompts) {
      tokens.insert(tokens.end(), p.begin(), p.end());
      lengths.push_back(static_cast<std::int32_t>(p.size()));
    }
  }
  static int onToken(void *user, const gpt2c_token *t) noexcept {
    const auto &call = *static_cast<const std::function<bool(const Token &)> *>(user);
    return call({.sequence = t->sequence,
                 .token = t->token,
                 .finish = static_cast<gpt2c_finish>(t->finish),
                 .text = {t->text, t->text_bytes},
                 .logprob = t->logprob,
                 .top = {t->top, t->top_count}})
               ? 0
               : 1;
  }
  template <typename F> static Result<Answers> call(const GenerateOptions &options, F f) {
    std::vector<const char *> stops;
    for (const std::string &stop : options.stops)
      stops.push_back(stop.c_str());
    std::vector<gpt2c_sampling> sampling(options.sampling.begin(), options.sampling.end());
    gpt2c_generate_options o = GPT2C_GENERATE_OPTIONS_INIT;
    o.max_tokens = options.max_tokens;
    o.min_tokens = options.min_tokens;
    o.sampling = sampling.data();
    o.sampling_count = sampling.size();
    o.stops = stops.data();
    o.stop_count = stops.size();
    o.stop_tokens = options.stop_tokens.data();
    o.stop_token_count = options.stop_tokens.size();
    o.ignore_eos = options.ignore_eos;
    o.slides = options.slide_keep.has_value();
    o.slide_keep = options.slide_keep.value_or(0);
    if (options.on_token) {
      o.on_token = &Session::onToken;
      o.user = const_cast<void *>(static_cast<const void *>(&options.on_token));
    }
    gpt2c_answers *answers = nullptr;
    if (gpt2c_status s = f(&o, &answers))
      return detail::error(s);
    return Answers(answers);
  }

  detail::Owner<gpt2c_session, gpt2c_session_destroy> handle_;
};

/// gpt2c_plan.
class Plan {
public:
  static Result<Plan> open(const std::string &path) {
    gpt2c_plan *plan = nullptr;
    if (gpt2c_status s = gpt2c_plan_open(path.c_str(), &plan))
      return detail::error(s);
    return Plan(plan);
  }

  gpt2c_plan_info info() const {
    gpt2c_plan_info info = GPT2C_PLAN_INFO_INIT;
    (void)gpt2c_plan_get_info(handle_.get(), &info);
    return info;
  }
  Result<std::vector<std::int32_t>> encode(std::string_view text) const {
    std::vector<std::int32_t> tokens(text.size()); // a token has at least one byte
    std::size_t count = 0;
    if (gpt2c_status s = gpt2c_encode(handle_.get(), text.data(), text.size(), tokens.data(),
                                      tokens.size(), &count))
      return detail::error(s);
    tokens.resize(count);
    return tokens;
  }
  /// gpt2c_chat_tokens.
  Result<std::vector<std::int32_t>> chat_tokens(const Conversation &conversation) const {
    const detail::View view(conversation);
    return grown([&](std::int32_t *tokens, std::size_t capacity, std::size_t *count) {
      return gpt2c_chat_tokens(handle_.get(), &view.conversation, tokens, capacity, count);
    });
  }
  /// gpt2c_plan_end_tokens.
  std::vector<std::int32_t> end_tokens() const {
    Result<std::vector<std::int32_t>> ends =
        grown([&](std::int32_t *tokens, std::size_t capacity, std::size_t *count) {
          return gpt2c_plan_end_tokens(handle_.get(), tokens, capacity, count);
        });
    return ends ? *ends : std::vector<std::int32_t>();
  }
  /// gpt2c_plan_get_sampling: what the model's makers advise.
  Sampling sampling() const {
    Sampling sampling;
    (void)gpt2c_plan_get_sampling(handle_.get(), &sampling);
    return sampling;
  }
  Result<std::string> decode(std::span<const std::int32_t> tokens) const {
    std::string text;
    std::size_t bytes = 0;
    do {
      text.resize(bytes);
      if (gpt2c_status s = gpt2c_decode_text(handle_.get(), tokens.data(), tokens.size(),
                                             text.data(), text.size(), &bytes))
        return detail::error(s);
    } while (bytes > text.size());
    return text;
  }
  Result<Stream> stream(const std::vector<std::string> &stops = {}) const {
    std::vector<const char *> texts;
    for (const std::string &stop : stops)
      texts.push_back(stop.c_str());
    gpt2c_stream *stream = nullptr;
    if (gpt2c_status s = gpt2c_stream_create(handle_.get(), texts.data(), texts.size(), &stream))
      return detail::error(s);
    return Stream(stream);
  }
  /// On "auto", "cuda", "cuda:N", "cuda:N,M,.." (a rank on each) or "cpu"; `threads` are the CPU's,
  /// 0: one for each core; `ranks` share the layers there, where the plan is for as many; `stages`
  /// have some of the layers each, there or on several GPUs.
  Result<Session> session(const std::string &device = "auto", int threads = 0, int ranks = 1,
                          int stages = 1, int microRows = 0) const {
    gpt2c_session_options options = GPT2C_SESSION_OPTIONS_INIT;
    options.device = device.c_str();
    options.threads = threads;
    options.ranks = ranks;
    options.stages = stages;
    options.micro_rows = microRows;
    gpt2c_session *session = nullptr;
    if (gpt2c_status s = gpt2c_session_create(handle_.get(), &options, &session))
      return detail::error(s);
    return Session(session);
  }

  gpt2c_plan *handle() { return handle_.get(); }

private:
  explicit Plan(gpt2c_plan *handle) : handle_(handle) {}
  /// All tokens of a function that stores as many as there is room for.
  template <typename F> static Result<std::vector<std::int32_t>> grown(F store) {
    std::vector<std::int32_t> tokens;
    std::size_t count = 0;
    do {
      tokens.resize(count);
      if (gpt2c_status s = store(tokens.data(), tokens.size(), &count))
        return detail::error(s);
    } while (count > tokens.size());
    return tokens;
  }

  detail::Owner<gpt2c_plan, gpt2c_plan_close> handle_;
};

} // namespace gpt2c

#endif
#endif
