// Parts of bodies that more than one route has. Only the files that read bodies include this.
#pragma once

#include "server/http/Fields.h"
#include "server/requests/GenerationRequest.h"

namespace gpt2c::serve {

/// What completions and chats have in common, but for prompt and lengths.
void readCommon(Fields &f, const Model &model, const RequestLimits &limits, GenerationRequest &r);
/// Fields that nobody knows, and a model that is not served.
std::optional<ApiError> finish(Fields &f, const std::string &asked, const Model &model);

/// Adds a prompt of a text, unless no cut into tokens could make that short enough.
std::optional<ApiError> addText(std::string_view text, const Model &model, rt::AddBos bos,
                                std::vector<Prompt> &to, const char *field = "prompt");
/// A field: a text, a list of texts, a list of ids, or a list of those. `shown`: ids have their
/// text, too.
std::optional<ApiError> readPrompts(Fields &f, const Model &model, const RequestLimits &limits,
                                    std::vector<Prompt> &to, const char *field = "prompt",
                                    bool shown = false);
/// Grammars, lists of tokens and lengths that an answer keeps to.
void readConstraints(Fields &f, const Model &model, GenerationRequest &r);

/// How calls of tools stand in an answer, and what it is where it has to be one.
struct ToolUse {
  ToolFormat format = ToolFormat::None;
  std::optional<rt::GrammarText> forced = {};
};
/// The text that the model's template makes of "messages" and "tools".
std::variant<std::string, ApiError> renderChat(Fields &f, const Model &model, ToolUse &tools);

ApiError noObject();

} // namespace gpt2c::serve
