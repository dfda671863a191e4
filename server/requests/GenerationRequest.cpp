#include "server/requests/RequestParts.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <random>

namespace gpt2c::serve {

namespace json = boost::json;

namespace {

uint64_t randomSeed() {
  thread_local std::random_device device;
  return uint64_t(device()) << 32 | device();
}

void readLogitBias(Fields &f, rt::SamplingParams &sampling) {
  const json::value *bias = f.find("logit_bias");
  if (!bias)
    return;
  if (!bias->is_object())
    return f.fail("logit_bias", "logit_bias must be an object from token ids to numbers");
  for (const auto &[name, value] : bias->get_object()) {
    int32_t id = 0;
    const char *end = name.data() + name.size();
    const auto read = std::from_chars(name.data(), end, id);
    const std::optional<double> number = numberOf(value);
    if (read.ec != std::errc() || read.ptr != end || !number || std::abs(*number) > 100)
      return f.fail("logit_bias",
                    "logit_bias must be an object from token ids to numbers from -100 to 100");
    sampling.logitBias.emplace_back(id, *number);
  }
}

void readSampling(Fields &f, GenerationRequest &r) {
  rt::SamplingParams &s = r.common.sampling;
  s.temperature = 1;
  f.number("temperature", s.temperature);
  f.number("top_p", s.topP);
  f.integer("top_k", s.topK, -1, std::numeric_limits<int32_t>::max());
  s.topK = std::max(s.topK, 0);
  f.number("min_p", s.minP);
  f.number("repetition_penalty", s.repetitionPenalty);
  f.number("frequency_penalty", s.frequencyPenalty);
  f.number("presence_penalty", s.presencePenalty);
  readLogitBias(f, s);
  int64_t seed = 0;
  s.seed = f.integer("seed", seed, std::numeric_limits<int64_t>::min(),
                     std::numeric_limits<int64_t>::max())
               ? uint64_t(seed)
               : randomSeed();
  if (const int32_t most = rt::mostReported;
      f.integer("prompt_logprobs", r.common.promptLogprobs, 0, most))
    r.promptLogprobs = true;
}

void readEnds(Fields &f, const Model &model, const RequestLimits &limits, GenerationRequest &r) {
  f.texts("stop", r.common.stops, size_t(limits.stops));
  f.ids("stop_token_ids", r.common.stopTokens);
  f.boolean("include_stop_str_in_output", r.common.includeStop);
  bool ignoreEos = false, skipSpecial = true;
  f.boolean("ignore_eos", ignoreEos);
  f.boolean("skip_special_tokens", skipSpecial);
  if (!ignoreEos)
    for (const int32_t end : model.ends()) {
      r.common.stopTokens.push_back(end);
      r.ends.push_back(end);
    }
  if (skipSpecial) // the marks of calls are special in some vocabularies
    r.common.hiddenTokens = r.tools == ToolFormat::None ? model.special() : model.ends();
}

void readStream(Fields &f, GenerationRequest &r) {
  f.boolean("stream", r.stream);
  const json::value *options = f.find("stream_options");
  if (!options)
    return;
  if (!r.stream)
    return f.fail("stream_options", "stream_options belong to stream: true");
  if (!options->is_object())
    return f.fail("stream_options", "stream_options must be an object");
  Fields inner(options->get_object());
  inner.boolean("include_usage", r.includeUsage);
  inner.boolean("continuous_usage_stats", r.eachHasUsage);
  inner.ignore({"include_obfuscation"});
  inner.finish();
  r.eachHasUsage = r.eachHasUsage && r.includeUsage; // without it there is none, as in vLLM
  if (inner.error())
    f.fail("stream_options", "stream_options: " + inner.error()->message);
}

} // namespace

void readCommon(Fields &f, const Model &model, const RequestLimits &limits, GenerationRequest &r) {
  r.model = model.names().front();
  f.text("model", r.model);
  readSampling(f, r);
  readEnds(f, model, limits, r);
  readStream(f, r);
  f.integer("n", r.n, 1, limits.choices);
  f.boolean("return_token_ids", r.tokenIds);
  int32_t best = r.n;
  if (f.integer("best_of", best, 1, limits.choices) && best != r.n)
    f.fail("best_of", "best_of is not supported: every one of n answers is given");
  readConstraints(f, model, r);
  f.refuse("priority", "0", "requests start in the order in which they come");
  f.refuse("truncate_prompt_tokens", "-1", "send the part of the prompt that is meant");
  f.refuse("use_beam_search", "false", "answers are sampled");
  f.refuse("length_penalty", "1", "answers are sampled");
  f.refuse("logits_processors", "[]", "a server runs no code of its clients");
  f.ignore({"user", "store", "metadata", "service_tier", "safety_identifier", "prompt_cache_key",
            "request_id", "spaces_between_special_tokens"});
}

std::optional<ApiError> finish(Fields &f, const std::string &asked, const Model &model) {
  f.finish();
  if (!f.error() && !model.isCalled(asked))
    return ApiError{.status = 404,
                    .message = "there is no model '" + asked.substr(0, 200) +
                               "'; this server has '" + model.names().front() + "'",
                    .param = "model",
                    .code = "model_not_found"};
  return f.error();
}

/// A text that is too long for the context, however it is cut into tokens, is not cut.
static std::optional<ApiError> tooLong(std::string_view text, const Model &model,
                                       const char *field) {
  const size_t most = model.longestText();
  if (text.size() <= most)
    return std::nullopt;
  return ApiError{.message = "a prompt of " + std::to_string(text.size()) +
                             " bytes is longer than the context of " +
                             std::to_string(model.context()) + " tokens, which have at most " +
                             std::to_string(most) + " bytes",
                  .param = field,
                  .code = "context_length_exceeded"};
}

std::optional<ApiError> addText(std::string_view text, const Model &model, rt::AddBos bos,
                                std::vector<Prompt> &to, const char *field) {
  if (!model.tokenizer())
    return ApiError{.message = "the plan has no tokenizer, so " + std::string(field) +
                               " is a list of token ids: compile it with gpt2c --tokenizer for "
                               "texts",
                    .param = field};
  if (auto error = tooLong(text, model, field))
    return error;
  to.push_back({model.tokenizer()->encode(text, {.addBos = bos}), std::string(text)});
  return std::nullopt;
}

static void addIds(std::vector<int32_t> ids, const rt::Tokenizer *shower, std::vector<Prompt> &to) {
  std::string text = shower ? shower->decode(ids) : std::string();
  to.push_back({std::move(ids), std::move(text)});
}

std::optional<ApiError> readPrompts(Fields &f, const Model &model, const RequestLimits &limits,
                                    std::vector<Prompt> &to, const char *field, bool shown) {
  const rt::Tokenizer *shower = shown ? model.tokenizer() : nullptr;
  bool special = true;
  f.boolean("add_special_tokens", special);
  const rt::AddBos bos = special ? rt::AddBos::Auto : rt::AddBos::No;
  const json::value *prompt = f.find(field);
  if (f.error())
    return f.error();
  if (!prompt)
    return ApiError{.message = "there is no " + std::string(field), .param = field};
  if (prompt->is_string())
    return addText(textOf(*prompt), model, bos, to, field);
  ApiError wrong{.message = std::string(field) +
                            " must be a text, a list of token ids, or a list of at least one and "
                            "at most " +
                            std::to_string(limits.prompts) + " of one kind of these",
                 .param = field};
  if (!prompt->is_array() || prompt->get_array().empty())
    return wrong;
  const json::array &items = prompt->get_array();
  if (items[0].is_number()) {
    std::optional<std::vector<int32_t>> ids = idsOf(*prompt);
    if (!ids)
      return wrong;
    addIds(std::move(*ids), shower, to);
    return std::nullopt;
  }
  if (items.size() > size_t(limits.prompts))
    return wrong;
  for (const json::value &item : items) {
    if (item.is_string() != items[0].is_string())
      return wrong;
    if (item.is_string()) {
      if (auto error = addText(textOf(item), model, bos, to, field))
        return error;
      continue;
    }
    std::optional<std::vector<int32_t>> ids = idsOf(item);
    if (!ids)
      return wrong;
    addIds(std::move(*ids), shower, to);
  }
  return std::nullopt;
}

ApiError noObject() { return {.message = "the body must be a JSON object"}; }

std::variant<GenerationRequest, ApiError>
readCompletion(const json::value &body, const Model &model, const RequestLimits &limits) {
  if (!body.is_object())
    return noObject();
  Fields f(body.get_object());
  GenerationRequest r;
  readCommon(f, model, limits, r);
  f.refuse("suffix", "\"\"", "answers follow a prompt");
  f.boolean("echo", r.echo);
  f.integer("logprobs", r.common.sampling.logprobs, 0, rt::mostReported);
  r.common.fillsContext =
      !f.integer("max_tokens", r.common.maxTokens, 0, std::numeric_limits<int32_t>::max());
  if (r.common.maxTokens == 0) {
    if (!r.echo && !f.error())
      f.fail("max_tokens", "max_tokens of 0 leaves nothing to tell without echo");
    r.dropsAnswer = true;
    r.common.maxTokens = 1;
    r.common.stops.clear();
  }
  if (r.echo && r.logprobs())
    r.common.promptLogprobs = std::max(r.common.promptLogprobs, r.common.sampling.logprobs);
  if (auto error = readPrompts(f, model, limits, r.prompts, "prompt", r.echo))
    return *error;
  if (auto error = finish(f, r.model, model))
    return *error;
  return r;
}

} // namespace gpt2c::serve
