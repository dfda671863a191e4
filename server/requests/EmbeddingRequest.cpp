#include "server/requests/EmbeddingRequest.h"

#include "server/requests/RequestParts.h"

#include <bit>
#include <charconv>

namespace gpt2c::serve {

namespace json = boost::json;

int64_t EmbeddingRequest::tokens() const {
  int64_t all = 0;
  for (const rt::Tokens &input : inputs)
    all += int64_t(input.size());
  return all;
}

static void readForm(Fields &f, EmbeddingRequest &r) {
  std::string format = "float", pooling;
  if (f.text("encoding_format", format) && format != "float" && format != "base64")
    f.fail("encoding_format", "encoding_format may be float or base64");
  r.base64 = format == "base64";
  if (f.text("pooling", pooling) && pooling != "last" && pooling != "mean")
    f.fail("pooling", "pooling may be last or mean");
  if (!pooling.empty())
    r.pooling = pooling == "mean" ? rt::Pooling::Mean : rt::Pooling::Last;
  f.boolean("normalize", r.normalised);
  f.integer("dimensions", r.dimensions, 1, 1 << 20);
  f.refuse("truncate_prompt_tokens", "-1", "send the part of the text that is meant");
  f.refuse("priority", "0", "requests start in the order in which they come");
  f.ignore({"user", "request_id"});
}

std::variant<EmbeddingRequest, ApiError> readEmbedding(const json::value &body, const Model &model,
                                                       const RequestLimits &limits,
                                                       rt::Pooling pooling) {
  if (!body.is_object())
    return noObject();
  Fields f(body.get_object());
  EmbeddingRequest r;
  r.pooling = pooling;
  r.model = model.names().front();
  f.text("model", r.model);
  readForm(f, r);
  std::vector<Prompt> prompts;
  if (auto error = readPrompts(f, model, limits, prompts, "input"))
    return *error;
  if (auto error = finish(f, r.model, model))
    return *error;
  for (Prompt &prompt : prompts) {
    const auto tokens = int64_t(prompt.tokens.size());
    if (tokens == 0)
      return ApiError{.message = "input has a text without tokens", .param = "input"};
    if (tokens > model.context())
      return ApiError{.message = "input has a text of " + std::to_string(tokens) +
                                 " tokens, the plan's context is " +
                                 std::to_string(model.context()),
                      .param = "input",
                      .code = "context_length_exceeded"};
    const int32_t ids = model.vocabulary();
    for (const int32_t id : prompt.tokens)
      if (id < 0 || (ids > 0 && id >= ids))
        return ApiError{.message = "input has token " + std::to_string(id) +
                                   "; the model's ids go from 0 to " + std::to_string(ids - 1),
                        .param = "input"};
    r.inputs.push_back(std::move(prompt.tokens));
  }
  return r;
}

/// The numbers' bytes, the low one of each first, as base64.
static std::string base64Of(const std::vector<float> &numbers) {
  static constexpr char digits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes, out;
  for (const float number : numbers)
    for (int shift = 0; shift < 32; shift += 8)
      bytes += char(std::bit_cast<uint32_t>(number) >> shift & 0xff);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    for (size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (size_t k = 0; k < 4; ++k)
      out += k <= count ? digits[group >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

static void writeNumbers(JsonWriter &w, const std::vector<float> &numbers) {
  w.array();
  char text[32];
  for (const float number : numbers)
    w.raw({text, std::to_chars(text, text + sizeof text, number).ptr});
  w.end();
}

std::variant<std::string, ApiError> answerEmbedding(const EmbeddingRequest &r, Model &model,
                                                    const std::function<bool()> &goesOn) {
  JsonWriter w;
  w.object().key("object").text("list").key("data").array();
  for (size_t i = 0; i < r.inputs.size() && goesOn(); ++i) {
    rt::Result<std::vector<float>> made = model.embed(r.inputs[i], r.pooling, r.normalised);
    if (!made)
      return made.status().code() == rt::Code::Usage
                 ? ApiError{.message = made.status().message(), .param = "input"}
                 : errorOf(made.status());
    if (r.dimensions && r.dimensions != int64_t(made->size()))
      return ApiError{.message = "this model's embeddings have " + std::to_string(made->size()) +
                                 " dimensions, and no part of them means the same",
                      .param = "dimensions"};
    w.object().key("object").text("embedding").key("index").integer(int64_t(i)).key("embedding");
    if (r.base64)
      w.text(base64Of(*made));
    else
      writeNumbers(w, *made);
    w.end();
  }
  w.end().key("model").text(r.model).key("usage").object();
  w.key("prompt_tokens").integer(r.tokens()).key("total_tokens").integer(r.tokens());
  w.end().end();
  return w.take();
}

} // namespace gpt2c::serve
