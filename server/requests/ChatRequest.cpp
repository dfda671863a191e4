#include "server/requests/RequestParts.h"

#include <limits>

namespace gpt2c::serve {

namespace json = boost::json;

namespace {

/// The text of a message's content, which may be in parts.
std::optional<ApiError> textOfContent(const json::value &content, json::value &to) {
  if (content.is_string() || content.is_null()) {
    to = content;
    return std::nullopt;
  }
  std::string text;
  ApiError wrong{.message = "a message's content must be a text or a list of "
                            "{\"type\":\"text\",\"text\":..}; other kinds are not supported",
                 .param = "messages"};
  if (!content.is_array())
    return wrong;
  for (const json::value &part : content.get_array()) {
    const json::object *object = part.if_object();
    const json::value *type = object ? object->if_contains("type") : nullptr;
    const json::value *piece = object ? object->if_contains("text") : nullptr;
    if (!type || !type->is_string() || textOf(*type) != "text" || !piece || !piece->is_string())
      return wrong;
    text += (text.empty() ? "" : "\n") + std::string(textOf(*piece));
  }
  to = json::string(text);
  return std::nullopt;
}

/// Templates write arguments of earlier calls as objects; clients send them as texts.
void readArguments(json::object &message) {
  json::value *calls = message.if_contains("tool_calls");
  if (!calls || !calls->is_array())
    return;
  for (json::value &call : calls->get_array()) {
    json::value *function = call.is_object() ? call.get_object().if_contains("function") : nullptr;
    json::value *arguments = function && function->is_object()
                                 ? function->get_object().if_contains("arguments")
                                 : nullptr;
    if (!arguments || !arguments->is_string())
      continue;
    auto parsed = parseJson(textOf(*arguments));
    if (auto *value = std::get_if<json::value>(&parsed); value && value->is_object())
      *arguments = std::move(*value);
  }
}

std::optional<ApiError> readMessages(const json::value *messages, json::array &to) {
  ApiError wrong{.message = "messages must be a list of at least one object with a role",
                 .param = "messages"};
  if (!messages || !messages->is_array() || messages->get_array().empty())
    return wrong;
  for (const json::value &item : messages->get_array()) {
    const json::object *message = item.if_object();
    const json::value *role = message ? message->if_contains("role") : nullptr;
    if (!role || !role->is_string())
      return wrong;
    json::object copy = *message;
    if (const json::value *content = message->if_contains("content"))
      if (auto error = textOfContent(*content, copy["content"]))
        return error;
    readArguments(copy);
    to.push_back(std::move(copy));
  }
  return std::nullopt;
}

/// One call of one of the tools, or of the one that is named.
std::variant<rt::GrammarText, ApiError> callOf(const json::array &tools, ToolFormat format,
                                               const std::optional<std::string> &name) {
  rt::GrammarText call{.kind = rt::GrammarText::Kind::Call};
  for (const json::value &tool : tools) {
    const json::object &function = tool.at("function").get_object();
    const std::string_view called = textOf(function.at("name"));
    if (name && called != *name)
      continue;
    JsonWriter schema;
    if (const json::value *parameters = function.if_contains("parameters"))
      schema.value(*parameters);
    else
      schema.raw(R"({"type":"object","properties":{}})");
    CallForm form = formOfCall(format, called);
    call.calls.push_back({std::move(form.begin), schema.take(), std::move(form.end)});
  }
  if (call.calls.empty())
    return ApiError{.message = "tool_choice names a tool that is not among tools",
                    .param = "tool_choice"};
  return call;
}

/// "tool_choice": one of the words, or a function by its name.
struct ToolChoice {
  std::string word = "auto"; ///< auto, none or required
  std::optional<std::string> name = {};
};

std::variant<ToolChoice, ApiError> readToolChoice(const json::value *choice) {
  if (!choice)
    return ToolChoice{};
  if (choice->is_string()) {
    const std::string_view word = textOf(*choice);
    if (word == "auto" || word == "none" || word == "required")
      return ToolChoice{.word = std::string(word)};
  } else if (const json::object *object = choice->if_object()) {
    const json::value *function = object->if_contains("function");
    const json::object *named = function ? function->if_object() : nullptr;
    const json::value *name = named ? named->if_contains("name") : nullptr;
    if (name && name->is_string())
      return ToolChoice{.word = "required", .name = std::string(textOf(*name))};
  }
  return ApiError{.message = "tool_choice may be \"auto\", \"none\", \"required\" or "
                             "{\"type\":\"function\",\"function\":{\"name\":..}}",
                  .param = "tool_choice"};
}

std::optional<ApiError> checkTools(const json::value &tools) {
  if (!tools.is_array())
    return ApiError{.message = "tools must be a list", .param = "tools"};
  for (const json::value &tool : tools.get_array()) {
    const json::object *object = tool.if_object();
    const json::value *function = object ? object->if_contains("function") : nullptr;
    const json::object *named = function ? function->if_object() : nullptr;
    if (!named || !named->contains("name") || !named->at("name").is_string())
      return ApiError{.message = "each of tools must be {\"type\":\"function\",\"function\":"
                                 "{\"name\":..}}",
                      .param = "tools"};
  }
  return std::nullopt;
}

/// Tools that the template shows, and what an answer has of them.
std::optional<ApiError> readTools(Fields &f, const Model &model, json::object &context,
                                  ToolUse &use) {
  f.refuse("functions", "[]", "it is called tools now");
  f.refuse("function_call", "\"none\"", "it is called tool_choice now");
  f.refuse("parallel_tool_calls", "true", "the model may call as often as it does");
  const json::value *tools = f.find("tools");
  auto read = readToolChoice(f.find("tool_choice"));
  if (auto *error = std::get_if<ApiError>(&read))
    return *error;
  const auto &choice = std::get<ToolChoice>(read);
  if (tools)
    if (auto error = checkTools(*tools))
      return error;
  if (!tools || tools->get_array().empty()) {
    if (choice.word == "required")
      return ApiError{.message = "tool_choice asks for a call, and there are no tools",
                      .param = "tool_choice"};
    return std::nullopt;
  }
  if (choice.word == "none")
    return std::nullopt;
  if (model.tools() == ToolFormat::None)
    return ApiError{.message = "the model's chat template knows no tools that this server can "
                               "read calls of: --tool-call-parser names the form of the calls",
                    .param = "tools"};
  context["tools"] = *tools;
  use.format = model.tools();
  if (choice.word != "required")
    return std::nullopt;
  auto call = callOf(tools->get_array(), use.format, choice.name);
  if (auto *error = std::get_if<ApiError>(&call))
    return *error;
  use.forced = std::get<rt::GrammarText>(std::move(call));
  return std::nullopt;
}

std::optional<ApiError> readContext(Fields &f, json::object &context) {
  if (const json::value *more = f.find("chat_template_kwargs")) {
    if (!more->is_object())
      return ApiError{.message = "chat_template_kwargs must be an object",
                      .param = "chat_template_kwargs"};
    context = more->get_object();
  }
  bool prompt = true;
  f.boolean("add_generation_prompt", prompt);
  context["add_generation_prompt"] = prompt;
  f.refuse("continue_final_message", "false", "an answer is a message of its own");
  f.refuse("chat_template", "\"\"", "the server's template is used");
  f.refuse("documents", "[]", "put them into messages");
  json::array messages;
  if (auto error = readMessages(f.find("messages"), messages))
    return error;
  context["messages"] = std::move(messages);
  return std::nullopt;
}

void readChatLengths(Fields &f, const Model &model, GenerationRequest &r) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  bool given = f.integer("max_completion_tokens", r.common.maxTokens, 1, most);
  int64_t older = 0;
  if (f.integer("max_tokens", older, 1, most) && !given) {
    r.common.maxTokens = older;
    given = true;
  }
  r.common.fillsContext = !given;
  if (!given)
    r.common.maxTokens = model.engine().limits().context;
  bool logprobs = false;
  f.boolean("logprobs", logprobs);
  int32_t top = 0;
  if (f.integer("top_logprobs", top, 0, rt::mostReported) && !logprobs)
    f.fail("top_logprobs", "top_logprobs belong to logprobs: true");
  if (logprobs)
    r.common.sampling.logprobs = top;
}

std::optional<ApiError> needsChat(const Model &model) {
  if (model.chat())
    return std::nullopt;
  return ApiError{.message = model.tokenizer()
                                 ? "the plan has no chat template: start the server with "
                                   "--chat-template=FILE, or use /v1/completions"
                                 : "the plan has no tokenizer, which chats need: compile it with "
                                   "gpt2c --tokenizer",
                  .code = "no_chat_template"};
}

} // namespace

std::variant<std::string, ApiError> renderChat(Fields &f, const Model &model, ToolUse &tools) {
  if (auto error = needsChat(model))
    return *error;
  json::object context;
  if (auto error = readContext(f, context))
    return *error;
  if (auto error = readTools(f, model, context, tools))
    return *error;
  JsonWriter text;
  text.value(context);
  rt::Result<std::string> prompt = model.chat()->text({}, text.str());
  if (!prompt)
    return ApiError{.message = "the chat template: " + prompt.status().message(),
                    .param = "messages"};
  return prompt.take();
}

std::variant<GenerationRequest, ApiError> readChat(const json::value &body, const Model &model,
                                                   const RequestLimits &limits) {
  if (!body.is_object())
    return noObject();
  Fields f(body.get_object());
  GenerationRequest r;
  r.chat = true;
  ToolUse tools;
  auto text = renderChat(f, model, tools);
  if (auto *error = std::get_if<ApiError>(&text))
    return *error;
  r.tools = tools.format;
  if (tools.forced) {
    r.grammar = std::move(tools.forced);
    r.grammarField = "tool_choice";
  }
  readCommon(f, model, limits, r);
  readChatLengths(f, model, r);
  if (auto error = finish(f, r.model, model))
    return *error;
  // The template says what begins a text.
  if (auto error = addText(std::get<std::string>(text), model, rt::AddBos::No, r.prompts))
    return *error;
  return r;
}

} // namespace gpt2c::serve
