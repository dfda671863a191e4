#include "server/Model.h"

#include "runtime/text/TextGeneration.h"

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <limits>

namespace gpt2c::serve {

static std::string fingerprintOf(const rt::Plan &plan) {
  std::string all = GPT2C_VERSION;
  for (const rt::Section &section : plan.sections())
    all += "/" + std::to_string(section.checksum);
  char text[24];
  std::snprintf(text, sizeof text, "fp_%016llx",
                static_cast<unsigned long long>(
                    rt::hashBytes(std::as_bytes(std::span(all.data(), all.size())))));
  return text;
}

/// The template that speaks of tools: the one named so, else the usual one; "" where there is none.
static std::string_view templateForTools(const rt::Tokenizer &tokenizer) {
  std::string_view found;
  for (const rt::NamedText &known : tokenizer.texts().chatTemplates)
    if (found.empty() || known.name == "tool_use" || known.name == "default") {
      found = known.text;
      if (known.name == "tool_use")
        break;
    }
  return found;
}

rt::Result<std::shared_ptr<Model>> Model::create(std::unique_ptr<rt::Session> session,
                                                 std::optional<rt::Tokenizer> tokenizer,
                                                 ModelOptions options) {
  std::shared_ptr<Model> model(new Model());
  model->names_ = std::move(options.names);
  if (model->names_.empty())
    model->names_ = {"gpt2c"};
  model->session_ = std::move(session);
  model->tokenizer_ = std::move(tokenizer);
  model->created_ = std::time(nullptr);
  model->fingerprint_ = fingerprintOf(model->session_->plan());

  const std::string_view source = options.chatTemplate ? std::string_view(*options.chatTemplate)
                                  : model->tokenizer_  ? templateForTools(*model->tokenizer_)
                                                       : std::string_view();
  if (model->tokenizer_ && !source.empty()) {
    rt::Result<rt::Chat> chat =
        rt::Chat::of(*model->tokenizer_, options.chatTemplate ? source : std::string_view());
    if (!chat)
      return {chat.status().code(), "the chat template: " + chat.status().message()};
    model->chat_ = chat.take();
    model->tools_ = options.tools.value_or(toolFormatOf(source));
  }
  model->ends_ = rt::endsOfText(*model->session_, model->tokenizer());
  model->special_ = model->ends_;
  if (model->tokenizer_)
    for (const rt::NamedText &special : model->tokenizer_->texts().specialTokens)
      if (const int32_t id = model->tokenizer_->find(special.text); id >= 0)
        model->special_.push_back(id);

  model->grammars_ = std::make_unique<rt::GrammarCompiler>(
      model->tokenizer(), int32_t(model->session_->plan().meta().vocab_size), model->ends_);
  const plan::PlanT &meta = model->session_->plan().meta();
  model->context_ = meta.kv ? meta.kv->max_context : std::numeric_limits<int32_t>::max();
  size_t longest = 1;
  for (int32_t id = 0; model->tokenizer_ && id < model->tokenizer_->vocabSize(); ++id)
    longest = std::max(longest, model->tokenizer_->tokenBytes(id).size());
  model->longestText_ = longest * size_t(model->context_);
  if (!model->session_->hasKvState() && rt::hiddenOutput(*model->session_))
    return model;
  options.engine.tokenizer = model->tokenizer();
  rt::Result<std::unique_ptr<rt::Engine>> engine =
      rt::Engine::create(*model->session_, std::move(options.engine));
  if (!engine)
    return engine.status();
  model->engine_ = std::make_unique<rt::EngineThread>(engine.take());
  return model;
}

rt::Result<std::vector<float>> Model::embed(const rt::Tokens &text, rt::Pooling pooling,
                                            bool normalised) {
  if (engine_)
    return {rt::Code::Usage, "the plan's device is the engine's"};
  const std::lock_guard lock(embedding_);
  return rt::embed(*session_, text, pooling, normalised);
}

bool Model::isCalled(std::string_view name) const {
  return std::ranges::find(names_, name) != names_.end();
}

} // namespace gpt2c::serve
