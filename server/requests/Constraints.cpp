// Fields that say which tokens an answer may have: grammars by OpenAI's and vLLM's names, and
// lists.
#include "server/requests/RequestParts.h"

#include "runtime/text/TextGeneration.h"

#include <algorithm>
#include <limits>

namespace gpt2c::serve {

namespace json = boost::json;

namespace {

using Kind = rt::GrammarText::Kind;

constexpr size_t kMostWords = 1024;
constexpr size_t kLongestSalt = 256;

/// A schema as text; an object, a boolean, or a text that has one.
std::optional<std::string> schemaOf(const json::value &value) {
  if (value.is_string())
    return std::string(textOf(value));
  if (!value.is_object() && !value.is_bool())
    return std::nullopt;
  JsonWriter text;
  text.value(value);
  return text.take();
}

/// Keeps what one field asks for; a second one is too many.
class Asked {
public:
  Asked(Fields &f, GenerationRequest &r) : fields_(f), request_(r) {}

  void take(const char *field, rt::GrammarText what) {
    if (request_.grammar)
      return fields_.fail(field, std::string(field) + ": " + request_.grammarField +
                                     " says already what the answer is");
    request_.grammar = std::move(what);
    request_.grammarField = field;
  }
  void fail(const char *field, const std::string &message) { fields_.fail(field, message); }

  /// `name` is the field for messages, `value` null where it is not there.
  void schema(const char *field, const json::value *value) {
    if (!value)
      return;
    std::optional<std::string> text = schemaOf(*value);
    if (!text)
      return fail(field, std::string(field) + ": a schema is an object, or a text that has one");
    take(field, {.kind = Kind::Schema, .text = std::move(*text)});
  }
  void text(const char *field, Kind kind, const json::value *value) {
    if (!value)
      return;
    if (!value->is_string())
      return fail(field, std::string(field) + ": " + rt::nameOf(kind) + " must be a text");
    take(field, {.kind = kind, .text = std::string(textOf(*value))});
  }
  void choice(const char *field, const json::value *value) {
    if (!value)
      return;
    rt::GrammarText what{.kind = Kind::Choice};
    if (value->is_array())
      for (const json::value &item : value->get_array())
        if (item.is_string())
          what.choices.emplace_back(textOf(item));
    if (!value->is_array() || what.choices.size() != value->get_array().size())
      return fail(field, std::string(field) + ": choice must be a list of texts");
    take(field, std::move(what));
  }

private:
  Fields &fields_;
  GenerationRequest &request_;
};

void readResponseFormat(Fields &f, Asked &asked) {
  constexpr const char *name = "response_format";
  const json::value *format = f.find(name);
  if (!format)
    return;
  if (!format->is_object())
    return f.fail(name, "response_format must be an object with a type");
  Fields inner(format->get_object());
  std::string type;
  inner.text("type", type);
  const json::value *about = inner.find("json_schema");
  inner.finish();
  if (inner.error())
    return f.fail(name, "response_format: " + inner.error()->message);
  if (type == "text")
    return;
  if (type == "json_object")
    return asked.take(name, {.kind = Kind::Json});
  if (type != "json_schema")
    return f.fail(name, "response_format: the type may be text, json_object or json_schema");
  const json::object *object = about ? about->if_object() : nullptr;
  const json::value *schema = object ? object->if_contains("schema") : nullptr;
  if (!schema)
    return f.fail(name, "response_format: json_schema must be an object with a schema");
  asked.schema(name, schema);
}

void readStructuredOutputs(Fields &f, Asked &asked) {
  constexpr const char *name = "structured_outputs";
  const json::value *outputs = f.find(name);
  if (!outputs)
    return;
  if (!outputs->is_object())
    return f.fail(name, "structured_outputs must be an object");
  Fields inner(outputs->get_object());
  asked.schema(name, inner.find("json"));
  asked.text(name, Kind::Regex, inner.find("regex"));
  asked.text(name, Kind::Ebnf, inner.find("grammar"));
  asked.choice(name, inner.find("choice"));
  bool any = false;
  if (inner.boolean("json_object", any) && any)
    asked.take(name, {.kind = Kind::Json});
  inner.refuse("structural_tag", "\"\"", "tools make calls");
  inner.refuse("whitespace_pattern", "\"\"", "JSON is written on one line");
  inner.ignore({"disable_any_whitespace", "disable_fallback", "disable_additional_properties"});
  inner.finish();
  if (inner.error())
    f.fail(name, "structured_outputs: " + inner.error()->message);
}

} // namespace

void readConstraints(Fields &f, const Model &model, GenerationRequest &r) {
  Asked asked(f, r);
  readResponseFormat(f, asked);
  readStructuredOutputs(f, asked);
  asked.schema("guided_json", f.find("guided_json"));
  asked.text("guided_regex", Kind::Regex, f.find("guided_regex"));
  asked.text("guided_grammar", Kind::Ebnf, f.find("guided_grammar"));
  asked.choice("guided_choice", f.find("guided_choice"));
  f.ignore({"guided_decoding_backend"});

  f.integer("min_tokens", r.common.minTokens, 0, std::numeric_limits<int32_t>::max());
  if (f.ids("allowed_token_ids", r.common.sampling.allowedTokens) &&
      r.common.sampling.allowedTokens.empty())
    f.fail("allowed_token_ids", "allowed_token_ids is empty: no token could be chosen");
  std::vector<std::string> words;
  f.texts("bad_words", words, kMostWords);
  if (std::ranges::count(words, ""))
    return f.fail("bad_words", "bad_words has an empty text");
  if (!words.empty() && !model.tokenizer())
    return f.fail("bad_words", "bad_words need a tokenizer, and the plan has none");
  if (!words.empty())
    r.common.sampling.badWords = rt::badWordsOf(*model.tokenizer(), words);
  f.text("cache_salt", r.common.cacheSalt);
  if (r.common.cacheSalt.size() > kLongestSalt)
    f.fail("cache_salt", "cache_salt has at most " + std::to_string(kLongestSalt) + " bytes");
}

std::optional<ApiError> compileGrammar(GenerationRequest &r, const Model &model) {
  if (!r.grammar)
    return std::nullopt;
  rt::Result<std::shared_ptr<const rt::Constraint>> made = model.grammars().compile(*r.grammar);
  if (!made)
    return ApiError{.message = r.grammarField + ": " + made.status().message(),
                    .param = r.grammarField,
                    .code = made.status().code() == rt::Code::Unsupported ? "no_grammars" : ""};
  r.common.sampling.constraint = made.take();
  return std::nullopt;
}

} // namespace gpt2c::serve
