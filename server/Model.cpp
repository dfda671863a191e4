#include "server/Model.h"

#include "runtime/text/TextGeneration.h"

#include <algorithm>
#include <cstdio>
#include <ctime>

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

/// The template of the plan's tokenizer that is named "default", or its only one.
static const std::string *templateOf(const rt::Tokenizer *tokenizer) {
  if (!tokenizer)
    return nullptr;
  const std::vector<rt::NamedText> &all = tokenizer->texts().chatTemplates;
  const auto usual = std::ranges::find(all, "default", &rt::NamedText::name);
  if (usual != all.end())
    return &usual->text;
  return all.size() == 1 ? &all[0].text : nullptr;
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

  const std::string *source = templateOf(model->tokenizer());
  if (options.chatTemplate)
    source = &*options.chatTemplate;
  if (source) {
    rt::Result<rt::ChatTemplate> parsed = rt::ChatTemplate::parse(*source);
    if (!parsed)
      return {parsed.status().code(), "the chat template: " + parsed.status().message()};
    model->template_ = parsed.take();
    model->tools_ = options.tools.value_or(toolFormatOf(*source));
  }
  model->ends_ = rt::endsOfText(*model->session_, model->tokenizer());
  model->special_ = model->ends_;
  if (model->tokenizer_)
    for (const rt::NamedText &special : model->tokenizer_->texts().specialTokens)
      if (const int32_t id = model->tokenizer_->find(special.text); id >= 0)
        model->special_.push_back(id);

  options.engine.tokenizer = model->tokenizer();
  rt::Result<std::unique_ptr<rt::Engine>> engine =
      rt::Engine::create(*model->session_, std::move(options.engine));
  if (!engine)
    return engine.status();
  size_t longest = 1;
  for (int32_t id = 0; model->tokenizer_ && id < model->tokenizer_->vocabSize(); ++id)
    longest = std::max(longest, model->tokenizer_->tokenBytes(id).size());
  model->longestText_ = longest * size_t((*engine)->limits().context);
  model->engine_ = std::make_unique<rt::EngineThread>(engine.take());
  return model;
}

bool Model::isCalled(std::string_view name) const {
  return std::ranges::find(names_, name) != names_.end();
}

} // namespace gpt2c::serve
