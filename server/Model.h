// What is served: a plan on its device, its texts, and the engine's thread over it, or embeddings.
#pragma once

#include "runtime/engine/EngineThread.h"
#include "runtime/grammar/Grammar.h"
#include "runtime/session/Embeddings.h"
#include "runtime/text/Chat.h"
#include "runtime/text/tokenizer/Tokenizer.h"
#include "server/requests/ToolCalls.h"

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace gpt2c::serve {

struct ModelOptions {
  std::vector<std::string> names = {}; ///< as clients call it, the usual first; empty: "gpt2c"
  rt::EngineOptions engine = {};       ///< without tokenizer and callback
  /// Jinja, in place of the plan's.
  std::optional<std::string> chatTemplate = {};
  std::optional<ToolFormat> tools = {}; ///< none: as the template speaks of them
};

class Model {
public:
  /// Allocates what the engine needs; a plan without a head, which gives hidden states, has none.
  /// Errors: Unsupported for another plan without a KV state in pages or a template that cannot be
  /// read.
  static rt::Result<std::shared_ptr<Model>> create(std::unique_ptr<rt::Session> session,
                                                   std::optional<rt::Tokenizer> tokenizer,
                                                   ModelOptions options);

  const std::vector<std::string> &names() const { return names_; }
  bool isCalled(std::string_view name) const;
  std::string device() const { return session_->backend().name(); }
  /// Null where the plan has none.
  const rt::Tokenizer *tokenizer() const { return tokenizer_ ? &*tokenizer_ : nullptr; }
  /// Null where there is no chat template.
  const rt::Chat *chat() const { return chat_ ? &*chat_ : nullptr; }
  ToolFormat tools() const { return tools_; }
  /// Tokens that end a text.
  const std::vector<int32_t> &ends() const { return ends_; }
  /// Tokens that are no text: those, and others that the model's folder calls special.
  const std::vector<int32_t> &special() const { return special_; }
  /// The most bytes that a context of tokens has.
  size_t longestText() const { return longestText_; }
  /// "fp_" and a hash of the plan and of this version.
  const std::string &fingerprint() const { return fingerprint_; }
  int64_t created() const { return created_; } ///< seconds since 1970
  /// Tokens of a text.
  int64_t context() const { return context_; }
  int32_t vocabulary() const { return session_->plan().meta().vocab_size; }
  /// Whether there is an engine; else there are embeddings.
  bool generates() const { return engine_ != nullptr; }
  rt::EngineThread &engine() const { return *engine_; }
  /// The vector of a text, where generates() is false. Texts are computed one by one.
  rt::Result<std::vector<float>> embed(const rt::Tokens &text, rt::Pooling pooling,
                                       bool normalised);
  /// Of the model's tokens.
  rt::GrammarCompiler &grammars() const { return *grammars_; }

private:
  Model() = default;

  std::vector<std::string> names_;
  std::unique_ptr<rt::Session> session_;
  std::optional<rt::Tokenizer> tokenizer_;
  std::optional<rt::Chat> chat_;
  ToolFormat tools_ = ToolFormat::None;
  std::vector<int32_t> ends_, special_;
  size_t longestText_ = 0;
  int64_t context_ = 0;
  std::mutex embedding_; ///< held while the session computes a text
  std::string fingerprint_;
  int64_t created_ = 0;
  std::unique_ptr<rt::GrammarCompiler> grammars_;
  std::unique_ptr<rt::EngineThread> engine_; ///< ends first: it uses all of the above
};

} // namespace gpt2c::serve
