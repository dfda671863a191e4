// What a model's folder says of its texts beside its tokenizer, which has it in plans: which tokens
// end an answer, how the model's makers sample, how a chat becomes a prompt.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpt2c::rt {

/// What generation_config.json advises. It is offered, never taken in silence.
struct SamplingAdvice {
  bool sample = false; ///< else the most probable token
  double temperature = 1, topP = 1, minP = 0, repetitionPenalty = 1;
  std::int32_t topK = 0; ///< 0: all tokens
  bool operator==(const SamplingAdvice &) const = default;
};

/// A text by a name.
struct NamedText {
  std::string name, text;
  bool operator==(const NamedText &) const = default;
};

struct ModelTexts {
  std::vector<std::int32_t> ends; ///< tokens that end an answer, the usual first
  std::optional<SamplingAdvice> sampling;
  std::vector<NamedText> chatTemplates; ///< in Jinja; the usual one is named "default"
  std::vector<NamedText> specialTokens; ///< bos_token, eos_token and others, for the templates
  bool operator==(const ModelTexts &) const = default;
};

} // namespace gpt2c::rt
