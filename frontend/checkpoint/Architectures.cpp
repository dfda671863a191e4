#include "frontend/checkpoint/Architectures.h"
#include "frontend/checkpoint/PackedWeights.h"
#include "frontend/checkpoint/Rope.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <cmath>

namespace gpt2c {

namespace {

constexpr WeightNames gpt2Names = {
    .base = "transformer.",
    .layers = "h.{}.",
    .tokens = "wte",
    .positions = "wpe",
    .inputNorm = "ln_1",
    .qkv = "attn.c_attn",
    .out = "attn.c_proj",
    .mlpNorm = "ln_2",
    .up = "mlp.c_fc",
    .down = "mlp.c_proj",
    .norm = "ln_f",
    .head = "lm_head",
};

constexpr WeightNames llamaNames = {
    .base = "model.",
    .layers = "layers.{}.",
    .tokens = "embed_tokens",
    .inputNorm = "input_layernorm",
    .q = "self_attn.q_proj",
    .k = "self_attn.k_proj",
    .v = "self_attn.v_proj",
    .queryNorm = "self_attn.q_norm",
    .keyNorm = "self_attn.k_norm",
    .out = "self_attn.o_proj",
    .mlpNorm = "post_attention_layernorm",
    .gate = "mlp.gate_proj",
    .up = "mlp.up_proj",
    .down = "mlp.down_proj",
    .norm = "norm",
    .head = "lm_head",
};

constexpr WeightNames phi3Names = [] {
  WeightNames names = llamaNames;
  names.q = names.k = names.v = names.gate = names.up = nullptr;
  names.qkv = "self_attn.qkv_proj";
  names.gateUp = "mlp.gate_up_proj";
  return names;
}();

/// Norms behind attention and MLP, too.
constexpr WeightNames gemmaNames = [] {
  WeightNames names = llamaNames;
  names.attentionNorm = "post_attention_layernorm";
  names.mlpNorm = "pre_feedforward_layernorm";
  names.mlpOutNorm = "post_feedforward_layernorm";
  return names;
}();

constexpr WeightNames neoxNames = {
    .base = "gpt_neox.",
    .layers = "layers.{}.",
    .tokens = "embed_in",
    .inputNorm = "input_layernorm",
    .qkv = "attention.query_key_value",
    .out = "attention.dense",
    .mlpNorm = "post_attention_layernorm",
    .up = "mlp.dense_h_to_4h",
    .down = "mlp.dense_4h_to_h",
    .norm = "final_layer_norm",
    .head = "embed_out",
};

void readLayers(Config &c, Decoder &d, llvm::StringRef key) {
  constexpr int64_t most = 4096;
  const int64_t layers = c.size(key);
  if (layers > most)
    c.invalid(key, "is more than " + llvm::Twine(most));
  d.layers.resize(size_t(std::min(layers, most)));
}

/// Heads of `headDim`, by default of the whole width.
void readHeads(Config &c, Decoder &d, llvm::StringRef key, bool grouped) {
  constexpr int64_t widest = 4096;
  d.heads = c.size(key);
  d.keyHeads = grouped ? c.size("num_key_value_heads", d.heads) : d.heads;
  if (d.heads % d.keyHeads != 0)
    c.invalid("num_key_value_heads", "does not divide " + key);
  if (!c.has("head_dim") && d.width % d.heads != 0)
    c.invalid(key, "does not divide the model's width, " + llvm::Twine(d.width));
  const int64_t usual = std::max<int64_t>(d.width / d.heads, 1);
  d.headDim = grouped ? c.size("head_dim", usual) : usual;
  if (d.headDim > widest)
    c.invalid(grouped ? "head_dim" : key, "gives heads wider than " + llvm::Twine(widest));
  d.headDim = std::min(d.headDim, widest);
  for (Decoder::Layer &layer : d.layers)
    layer.scale = 1 / std::sqrt(double(d.headDim));
}

/// Families in Llama's likeness, by their own defaults of keys.
void readLlamaSizes(Config &c, Decoder &d, double epsilon) {
  d.names = &llamaNames;
  d.vocabulary = c.size("vocab_size");
  d.width = c.size("hidden_size");
  d.hidden = c.size("intermediate_size");
  readLayers(c, d, "num_hidden_layers");
  readHeads(c, d, "num_attention_heads", true);
  d.epsilon = c.positive("rms_norm_eps", epsilon);
}

/// Which layers have a window: as layer_types say, else where `hasWindow` holds.
void readWindows(Config &c, Decoder &d, std::optional<int64_t> window,
                 llvm::function_ref<bool(size_t)> hasWindow) {
  const std::vector<std::string> kinds = c.texts("layer_types");
  if (!kinds.empty() && kinds.size() != d.layers.size())
    return c.invalid("layer_types", "has " + llvm::Twine(kinds.size()) + " layers, the model " +
                                        llvm::Twine(d.layers.size()));
  for (size_t i = 0; i < d.layers.size(); ++i) {
    if (!kinds.empty() && kinds[i] != "full_attention" && kinds[i] != "sliding_attention")
      return c.unsupported("layer_types", "'" + llvm::Twine(kinds[i]) +
                                              "' is neither full_attention nor sliding_attention");
    if (!(kinds.empty() ? window && hasWindow(i) : kinds[i] == "sliding_attention"))
      continue;
    if (!window)
      return c.invalid("layer_types", "has layers with a window, but there is no sliding_window");
    d.layers[i].window = *window;
  }
}

std::optional<int64_t> windowOf(Config &c, int64_t ifAbsent) {
  // A window of null is none, which is not one that is not given.
  return c.mentions("sliding_window") ? c.maybeSize("sliding_window") : ifAbsent;
}

void readGpt2(Config &c, Decoder &d) {
  d.names = &gpt2Names;
  d.vocabulary = c.size("vocab_size");
  d.width = c.size("n_embd");
  d.hidden = c.size("n_inner", 4 * d.width);
  d.positions = c.size("n_positions");
  readLayers(c, d, "n_layer");
  readHeads(c, d, "n_head", false);
  const bool scaled = c.flag("scale_attn_weights", true);
  const bool byLayer = c.flag("scale_attn_by_inverse_layer_idx", false);
  for (size_t i = 0; i < d.layers.size(); ++i)
    d.layers[i].scale = (scaled ? d.layers[i].scale : 1) / double(byLayer ? i + 1 : 1);
  d.norm = NormKind::Layer;
  d.epsilon = c.positive("layer_norm_epsilon", 1e-5);
  d.activation = c.text("activation_function", "gelu_new");
  d.qkv = Decoder::Qkv::Joined;
  d.qkvBias = d.outBias = d.mlpBias = d.inputsFirst = true;
  d.gated = false;
  d.tied = c.flag("tie_word_embeddings", true);
}

void readLlama(Config &c, Decoder &d) {
  readLlamaSizes(c, d, 1e-6);
  d.activation = c.text("hidden_act", "silu");
  d.qkvBias = d.outBias = c.flag("attention_bias", false);
  d.mlpBias = c.flag("mlp_bias", false);
  d.ropes = {readRope(c, d.headDim)};
  d.tied = c.flag("tie_word_embeddings", false);
}

void readMistral(Config &c, Decoder &d) {
  readLlamaSizes(c, d, 1e-6);
  d.activation = c.text("hidden_act", "silu");
  d.ropes = {readRope(c, d.headDim)};
  d.tied = c.flag("tie_word_embeddings", false);
  for (Decoder::Layer &layer : d.layers)
    layer.window = windowOf(c, 4096).value_or(0);
}

void readQwen(Config &c, Decoder &d) {
  readLlamaSizes(c, d, 1e-6);
  d.activation = c.text("hidden_act", "silu");
  d.ropes = {readRope(c, d.headDim)};
  d.tied = c.flag("tie_word_embeddings", false);
  std::optional<int64_t> window = windowOf(c, 4096);
  if (!c.flag("use_sliding_window", false))
    window.reset();
  const auto first = size_t(c.count("max_window_layers", 28));
  readWindows(c, d, window, [&](size_t i) { return i >= first; });
}

void readQwen2(Config &c, Decoder &d) {
  readQwen(c, d);
  d.qkvBias = true;
}

void readQwen3(Config &c, Decoder &d) {
  readQwen(c, d);
  if (!c.has("head_dim"))
    c.invalid("head_dim", "is missing");
  d.qkvBias = d.outBias = c.flag("attention_bias", false);
  d.headNorms = true;
}

void readPhi3(Config &c, Decoder &d) {
  readLlamaSizes(c, d, 1e-5);
  d.names = &phi3Names;
  d.activation = c.text("hidden_act", "silu");
  d.qkv = Decoder::Qkv::Joined;
  d.gateUpJoined = true;
  d.ropes = {readRope(c, d.headDim, {.partialKey = "partial_rotary_factor"})};
  (void)c.maybeSize("original_max_position_embeddings"); // for kinds of rotation that are refused
  d.tied = c.flag("tie_word_embeddings", false);
  for (Decoder::Layer &layer : d.layers)
    layer.window = c.maybeSize("sliding_window").value_or(0);
}

void readGemma(Config &c, Decoder &d) {
  readLlamaSizes(c, d, 1e-6);
  d.names = &gemmaNames;
  if (!c.has("head_dim"))
    c.invalid("head_dim", "is missing");
  (void)c.text("hidden_act", ""); // an older name, which transformers does not read
  d.activation = c.text("hidden_activation", "gelu_pytorch_tanh");
  d.qkvBias = d.outBias = c.flag("attention_bias", false);
  d.gainPlusOne = d.normsBehind = true;
  d.tokenScale = std::sqrt(double(d.width));
  d.tied = c.flag("tie_word_embeddings", true);
  for (Decoder::Layer &layer : d.layers)
    layer.scale = 1 / std::sqrt(c.positive("query_pre_attn_scalar", 256));
}

/// null: no cap.
double capOf(Config &c, llvm::StringRef key, double ifAbsent) {
  return c.mentions(key) ? c.maybePositive(key).value_or(0) : ifAbsent;
}

void readGemma2(Config &c, Decoder &d) {
  readGemma(c, d);
  d.ropes = {readRope(c, d.headDim)};
  d.scoreCap = capOf(c, "attn_logit_softcapping", 50);
  d.logitCap = capOf(c, "final_logit_softcapping", 30);
  readWindows(c, d, windowOf(c, 4096), [](size_t i) { return i % 2 == 0; });
}

void readGemma3(Config &c, Decoder &d) {
  readGemma(c, d);
  d.headNorms = true;
  d.ropes = readRopeByLayer(c, d.headDim, 1e6, 1e4);
  if (c.maybePositive("attn_logit_softcapping"))
    c.unsupported("attn_logit_softcapping", "transformers has the key, but caps no scores");
  d.logitCap = capOf(c, "final_logit_softcapping", 0);
  const int64_t older = c.size("sliding_window_pattern", 6);
  const auto pattern = size_t(c.size("_sliding_window_pattern", older));
  readWindows(c, d, windowOf(c, 4096), [&](size_t i) { return (i + 1) % pattern != 0; });
  for (Decoder::Layer &layer : d.layers)
    layer.rope = layer.window ? 1 : 0;
}

void readNeox(Config &c, Decoder &d) {
  d.names = &neoxNames;
  d.vocabulary = c.size("vocab_size");
  d.width = c.size("hidden_size");
  d.hidden = c.size("intermediate_size");
  readLayers(c, d, "num_hidden_layers");
  readHeads(c, d, "num_attention_heads", false);
  d.norm = NormKind::Layer;
  d.epsilon = c.positive("layer_norm_eps", 1e-5);
  d.activation = c.text("hidden_act", "gelu");
  d.qkv = Decoder::Qkv::JoinedByHead;
  d.qkvBias = d.outBias = c.flag("attention_bias", true);
  d.mlpBias = true;
  d.gated = false;
  d.parallel = c.flag("use_parallel_residual", true);
  d.ropes = {readRope(
      c, d.headDim, {.partial = 0.25, .thetaKey = "rotary_emb_base", .partialKey = "rotary_pct"})};
  d.tied = c.flag("tie_word_embeddings", false);
}

struct Architecture {
  const char *modelType;
  const char *model, *base; // transformers' classes with and without the head
  void (*read)(Config &, Decoder &);
};

constexpr Architecture architectures[] = {
    {"gemma2", "Gemma2ForCausalLM", "Gemma2Model", readGemma2},
    {"gemma3_text", "Gemma3ForCausalLM", "Gemma3TextModel", readGemma3},
    {"gpt2", "GPT2LMHeadModel", "GPT2Model", readGpt2},
    {"gpt_neox", "GPTNeoXForCausalLM", "GPTNeoXModel", readNeox},
    {"llama", "LlamaForCausalLM", "LlamaModel", readLlama},
    {"mistral", "MistralForCausalLM", "MistralModel", readMistral},
    {"phi3", "Phi3ForCausalLM", "Phi3Model", readPhi3},
    {"qwen2", "Qwen2ForCausalLM", "Qwen2Model", readQwen2},
    {"qwen3", "Qwen3ForCausalLM", "Qwen3Model", readQwen3},
};

/// Keys with which another model would be meant if they were on, where the family has no use for
/// them.
void refuseVariants(Config &c) {
  for (llvm::StringRef key :
       {"add_cross_attention", "attention_bias", "is_encoder_decoder", "mlp_bias",
        "rope_interleaved", "use_bidirectional_attention", "use_mrope", "use_sliding_window"})
    if (!c.wasRead(key) && c.flag(key, false))
      c.unsupported(key, "models of this type are read without");
  if (std::optional<Config> pruned = c.object("pruned_heads"))
    pruned->refuseUnreadBut({});
}

} // namespace

Decoder readDecoder(Config &config) {
  Decoder decoder;
  const std::string type = config.text("model_type", "");
  auto known = llvm::find_if(architectures, [&](auto &row) { return row.modelType == type; });
  if (known == std::end(architectures)) {
    std::string names;
    for (const Architecture &row : architectures)
      names += (names.empty() ? "" : ", ") + std::string(row.modelType);
    config.unsupported("model_type", "checkpoints are read of " + llvm::Twine(names));
    return decoder;
  }
  const std::vector<std::string> classes = config.texts("architectures");
  if (!classes.empty() && !llvm::is_contained(classes, known->model) &&
      !llvm::is_contained(classes, known->base))
    config.unsupported("architectures",
                       "of " + llvm::Twine(type) + " it is " + known->model + " that is read");
  decoder.family = type;
  known->read(config, decoder);
  decoder.packing = readPacking(config);
  refuseVariants(config);
  config.refuseUnreadBut(keysWithoutEffect());
  return decoder;
}

} // namespace gpt2c
