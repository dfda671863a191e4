#include "runtime/text/ChatTemplate.h"

#include "runtime/text/jinja/Interpreter.h"
#include "runtime/text/jinja/Parser.h"

#include <nlohmann/json.hpp>

namespace gpt2c::rt {
namespace {

constexpr std::size_t kLongestSource = 1 << 20;

Status statusOf(Code code, const jinja::Error &error) {
  return {code, "the chat template" +
                    (error.line ? ", line " + std::to_string(error.line) : std::string()) + ": " +
                    error.message};
}

} // namespace

struct ChatTemplate::Impl {
  jinja::Block block;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate &&) noexcept = default;
ChatTemplate &ChatTemplate::operator=(ChatTemplate &&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  if (source.size() > kLongestSource)
    return {Code::Unsupported, "the chat template is longer than 1 MiB"};
  try {
    return ChatTemplate(std::make_unique<const Impl>(Impl{jinja::parse(source)}));
  } catch (const jinja::Error &error) {
    return statusOf(Code::Unsupported, error);
  }
}

Result<std::string> ChatTemplate::render(const nlohmann::ordered_json &context,
                                         std::time_t now) const {
  if (!context.is_object())
    return {Code::Usage, "what a chat template is given is no JSON object"};
  try {
    return jinja::render(impl_->block, jinja::Value::fromJson(context).dict(), now);
  } catch (const jinja::Error &error) {
    return statusOf(Code::Usage, error);
  }
}

Result<std::string> ChatTemplate::render(std::string_view context, std::time_t now) const {
  try {
    return render(nlohmann::ordered_json::parse(context), now);
  } catch (const nlohmann::json::exception &error) {
    return {Code::Usage, std::string("what a chat template is given is no JSON: ") + error.what()};
  }
}

} // namespace gpt2c::rt
