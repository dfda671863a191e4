#include "tools/gpt2c/ModelFolder.h"

#include "passes/proof/PositionProof.h"
#include "runtime/plan/ForeignFile.h"
#include "runtime/text/ChatTemplate.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cmath>

namespace gpt2c {
namespace {

using llvm::json::Array;
using llvm::json::Object;
using llvm::json::Value;

constexpr uint64_t kMostBytes = uint64_t(64) << 20; // of one small file
constexpr const char *kSpecialTokens[] = {"bos_token", "eos_token", "unk_token", "pad_token",
                                          "sep_token", "cls_token", "mask_token"};

std::string inFolder(llvm::StringRef folder, llvm::StringRef name) {
  llvm::SmallString<256> path(folder);
  llvm::sys::path::append(path, name);
  return path.str().str();
}

void note(const llvm::Twine &path, const llvm::Twine &problem) {
  llvm::errs() << "note: " << path << ": " << problem << "; the file is not used\n";
}

std::optional<std::string> readText(const std::string &path) {
  uint64_t bytes = 0;
  if (llvm::sys::fs::file_size(path, bytes) || !llvm::sys::fs::is_regular_file(path))
    return std::nullopt;
  if (bytes > kMostBytes)
    return note(path, "more than 64 MiB"), std::nullopt;
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer)
    return note(path, buffer.getError().message()), std::nullopt;
  std::string text = (*buffer)->getBuffer().str();
  if (const std::string kind = rt::foreignFile(text); !kind.empty())
    return note(path, kind), std::nullopt;
  return text;
}

/// An empty object where there is no such file.
Object readObject(const std::string &path) {
  auto text = readText(path);
  if (!text)
    return {};
  auto value = llvm::json::parse(*text);
  if (!value)
    return note(path, llvm::toString(value.takeError())), Object();
  if (Object *object = value->getAsObject())
    return std::move(*object);
  return note(path, "it is no object"), Object();
}

void addEnd(int64_t id, std::vector<int32_t> &ends) {
  if (id >= 0 && id <= INT32_MAX && !llvm::is_contained(ends, int32_t(id)))
    ends.push_back(int32_t(id));
}

/// eos_token_id is an id, a list of ids or null.
void addEnds(const Object &config, std::vector<int32_t> &ends) {
  const Value *value = config.get("eos_token_id");
  if (!value)
    return;
  if (auto id = value->getAsInteger())
    addEnd(*id, ends);
  if (const Array *ids = value->getAsArray())
    for (const Value &entry : *ids)
      if (auto id = entry.getAsInteger())
        addEnd(*id, ends);
}

std::optional<rt::SamplingAdvice> samplingOf(const Object &config) {
  rt::SamplingAdvice out;
  auto number = [&](const char *key, double low, double high, double &value) {
    if (auto given = config.getNumber(key); given && *given >= low && *given <= high)
      value = *given;
  };
  out.sample = config.getBoolean("do_sample").value_or(false);
  number("temperature", 0, 1e6, out.temperature);
  number("top_p", 1e-6, 1, out.topP);
  number("min_p", 0, 1, out.minP);
  number("repetition_penalty", 1e-6, 1e6, out.repetitionPenalty);
  if (auto k = config.getInteger("top_k"); k && *k >= 0 && *k <= INT32_MAX)
    out.topK = int32_t(*k);
  if (out == rt::SamplingAdvice())
    return std::nullopt;
  return out;
}

std::string contentOf(const Value *token) {
  if (!token)
    return {};
  if (auto text = token->getAsString())
    return text->str();
  const Object *object = token->getAsObject();
  return object ? object->getString("content").value_or("").str() : std::string();
}

void addTemplate(llvm::StringRef name, llvm::StringRef text, rt::ModelTexts &out) {
  if (llvm::any_of(out.chatTemplates, [&](const auto &known) { return known.name == name; }))
    return;
  auto parsed = rt::ChatTemplate::parse({text.data(), text.size()});
  if (parsed)
    out.chatTemplates.push_back({name.str(), text.str()});
  else
    llvm::errs() << "note: the plan goes without the chat template \"" << name
                 << "\": " << parsed.status().message() << "\n";
}

/// A text, or a list of {"name", "template"}.
void addTemplates(const Object &config, rt::ModelTexts &out) {
  const Value *value = config.get("chat_template");
  if (!value)
    return;
  if (auto text = value->getAsString())
    addTemplate("default", *text, out);
  if (const Array *named = value->getAsArray())
    for (const Value &entry : *named)
      if (const Object *object = entry.getAsObject())
        if (auto text = object->getString("template"))
          addTemplate(object->getString("name").value_or("default"), *text, out);
}

void readTexts(const std::string &folder, rt::ModelTexts &out) {
  if (auto text = readText(inFolder(folder, "chat_template.jinja")))
    addTemplate("default", *text, out);
  const Object config = readObject(inFolder(folder, "tokenizer_config.json"));
  addTemplates(config, out);
  addTemplates(readObject(inFolder(folder, "chat_template.json")), out);
  const Object map = readObject(inFolder(folder, "special_tokens_map.json"));
  for (const char *key : kSpecialTokens) {
    std::string content = contentOf(config.get(key));
    if (content.empty())
      content = contentOf(map.get(key));
    if (!content.empty())
      out.specialTokens.push_back({key, std::move(content)});
  }
}

} // namespace

rt::ModelTexts readModelTexts(const CompileFlags &flags, const rt::Tokenizer *tokenizer,
                              int64_t vocabulary) {
  rt::ModelTexts out;
  const std::string folder = folderOf(flags.model);
  const Object generation = readObject(inFolder(folder, "generation_config.json"));
  if (flags.eos) {
    out.ends = *flags.eos;
  } else {
    addEnds(generation, out.ends);
    addEnds(readObject(inFolder(folder, "config.json")), out.ends);
    if (tokenizer)
      addEnd(tokenizer->eosToken(), out.ends);
  }
  llvm::erase_if(out.ends, [&](int32_t id) {
    const bool outside = vocabulary && id >= vocabulary;
    if (outside)
      llvm::errs() << "note: the token " << id
                   << ", which ends answers, lies outside of the model's "
                   << "vocabulary of " << vocabulary << "; it is left out\n";
    return outside;
  });
  out.sampling = samplingOf(generation);
  const bool named = !flags.tokenizer.empty() && flags.tokenizer != "none";
  readTexts(named ? flags.tokenizer : folder, out);
  return out;
}

static int64_t positionsOf(const Object &config) {
  for (const char *key : {"max_position_embeddings", "n_positions"})
    if (auto positions = config.getInteger(key); positions && *positions > 0)
      return *positions;
  return 0;
}

int64_t positionsOf(const CompileFlags &flags) {
  return positionsOf(readObject(inFolder(folderOf(flags.model), "config.json")));
}

void takeContext(CompileFlags &flags) {
  const Object config = readObject(inFolder(folderOf(flags.model), "config.json"));
  const bool turns = llvm::any_of(llvm::ArrayRef{"rope_theta", "rope_scaling", "rope_parameters",
                                                 "rotary_emb_base", "rotary_pct", "rotary_dim"},
                                  [&](const char *key) { return config.get(key) != nullptr; });
  const int64_t positions = turns ? positionsOf(config) : 0;
  if (flags.maxContext || positions == 0 || positions >= comparedTokens)
    return;
  flags.maxContext = flags.passes.maxContext = positions;
  llvm::errs() << "note: the plan holds " << positions
               << " tokens of a sequence, as many as config.json says the model is for; "
                  "--max-context holds more\n";
}

} // namespace gpt2c
