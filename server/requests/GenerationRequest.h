// What a body of /v1/completions or /v1/chat/completions asks for.
#pragma once

#include "runtime/engine/Admission.h"
#include "runtime/grammar/Grammar.h"
#include "server/Model.h"
#include "server/http/Json.h"
#include "server/requests/ToolCalls.h"

#include <boost/json/value.hpp>

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace gpt2c::serve {

/// The most that one body may ask for.
struct RequestLimits {
  int32_t prompts = 1024;
  int32_t choices = 128; ///< n
  int32_t stops = 32;
};

struct Prompt {
  rt::Tokens tokens;
  std::string text; ///< as echo shows it
};

struct GenerationRequest {
  bool chat = false;
  std::vector<Prompt> prompts;
  int32_t n = 1;
  /// Of every choice: all but the prompt and, where n is larger than 1, the seed, to which a
  /// choice's index is added.
  rt::Request common;
  bool echo = false;
  bool dropsAnswer = false;    ///< max_tokens is 0: of the answer nothing is told
  bool promptLogprobs = false; ///< told in vLLM's form, beside those of echo
  bool tokenIds = false;       ///< return_token_ids
  bool stream = false, includeUsage = false;
  bool eachHasUsage = false; ///< events say what their choice has come to, too
  /// What the answer is to be, and the field that says so; compileGrammar() has not been there.
  std::optional<rt::GrammarText> grammar = {};
  std::string grammarField = {};
  ToolFormat tools = ToolFormat::None; ///< how calls stand in the answer
  std::string model;                   ///< as the client calls it
  std::vector<int32_t> ends; ///< tokens of common.stopTokens that end a text by themselves

  size_t choices() const { return prompts.size() * size_t(n); }
  /// Log probabilities are told of each token.
  bool logprobs() const { return common.sampling.logprobs >= 0; }
};

/// Reads a body for /v1/completions.
std::variant<GenerationRequest, ApiError>
readCompletion(const boost::json::value &body, const Model &model, const RequestLimits &limits);
/// Reads a body for /v1/chat/completions.
std::variant<GenerationRequest, ApiError> readChat(const boost::json::value &body,
                                                   const Model &model, const RequestLimits &limits);

/// Makes a constraint of the request's grammar, which takes milliseconds.
std::optional<ApiError> compileGrammar(GenerationRequest &request, const Model &model);

/// What POST /tokenize and /detokenize answer.
std::variant<std::string, ApiError> tokenize(const boost::json::value &body, const Model &model);
std::variant<std::string, ApiError> detokenize(const boost::json::value &body, const Model &model);

} // namespace gpt2c::serve
