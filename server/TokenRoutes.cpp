#include "server/requests/RequestParts.h"

namespace gpt2c::serve {

namespace json = boost::json;

std::variant<std::string, ApiError> tokenize(const json::value &body, const Model &model) {
  if (!body.is_object())
    return noObject();
  Fields f(body.get_object());
  std::string name = model.names().front();
  f.text("model", name);
  bool withTexts = false;
  f.boolean("return_token_strs", withTexts);
  std::vector<Prompt> prompts;
  if (body.get_object().contains("messages")) {
    ToolUse tools;
    auto text = renderChat(f, model, tools);
    if (auto *error = std::get_if<ApiError>(&text))
      return *error;
    if (auto error = addText(std::get<std::string>(text), model, rt::AddBos::No, prompts))
      return *error;
  } else if (auto error = readPrompts(f, model, {.prompts = 1}, prompts)) {
    return *error;
  }
  if (auto error = finish(f, name, model))
    return *error;
  JsonWriter w;
  w.object().key("count").integer(int64_t(prompts[0].tokens.size()));
  w.key("max_model_len").integer(model.context()).key("tokens").array();
  for (const int32_t token : prompts[0].tokens)
    w.integer(token);
  w.end();
  if (withTexts && model.tokenizer()) {
    w.key("token_strs").array();
    for (const int32_t token : prompts[0].tokens)
      w.text(model.tokenizer()->tokenBytes(token));
    w.end();
  }
  w.end();
  return w.take();
}

std::variant<std::string, ApiError> detokenize(const json::value &body, const Model &model) {
  if (!body.is_object())
    return noObject();
  Fields f(body.get_object());
  std::string name = model.names().front();
  f.text("model", name);
  std::vector<int32_t> ids;
  if (!f.ids("tokens", ids) && !f.error())
    f.fail("tokens", "there are no tokens");
  for (const int32_t id : ids)
    if (id < 0 || id >= model.vocabulary())
      f.fail("tokens", "tokens has " + std::to_string(id) + "; the model's ids go from 0 to " +
                           std::to_string(model.vocabulary() - 1));
  if (auto error = finish(f, name, model))
    return *error;
  if (!model.tokenizer())
    return ApiError{.message = "the plan has no tokenizer: compile it with gpt2c --tokenizer"};
  JsonWriter w;
  w.object().key("prompt").text(model.tokenizer()->decode(ids)).end();
  return w.take();
}

} // namespace gpt2c::serve
