#include "frontend/checkpoint/AdapterConfig.h"
#include "frontend/checkpoint/Config.h"
#include "frontend/checkpoint/NamePattern.h"
#include "ir/Error.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <cmath>

namespace gpt2c {

namespace {

constexpr const char *wayOut = "Merge the adapter with peft's merge_and_unload, save the result "
                               "with save_pretrained, and compile that folder";

/// Keys that say how the adapter was made, or what else may be done with it.
constexpr llvm::StringRef withoutEffect[] = {
    "auto_mapping",   "base_model_name_or_path", "corda_config",
    "eva_config",     "inference_mode",          "loftq_config",
    "lora_dropout",   "lora_ga_config",          "megatron_core",
    "peft_version",   "qalora_group_size",       "revision",
    "runtime_config", "ensure_weight_tying", // where it matters the table is refused
    "fan_in_fan_out", // follows from the kind of layer, whatever is written there
};

void readKind(Config &c) {
  if (const std::string type = c.text("peft_type", ""); type != "LORA")
    c.unsupported("peft_type", "adapters of kind LORA are merged");
  if (const std::string task = c.text("task_type", "CAUSAL_LM"); task != "CAUSAL_LM")
    c.unsupported("task_type", "models that continue texts, CAUSAL_LM, are compiled");
  for (llvm::StringRef key : {"lora_bias", "use_bdlora", "use_dora", "use_qalora"})
    if (!c.isFlag(key) ? c.has(key) : c.flag(key, false))
      c.unsupported(key, "adapters are merged that add B A to a weight, and nothing else");
  // Some ways to begin take from the base's weights what B A has to start with.
  if (!c.isFlag("init_lora_weights")) {
    const std::string way = c.text("init_lora_weights", "gaussian");
    if (!llvm::is_contained({"gaussian", "eva", "orthogonal"}, way))
      c.unsupported("init_lora_weights", "it may change the base's weights");
  } else {
    (void)c.flag("init_lora_weights", true);
  }
}

std::vector<std::string> listOrPattern(Config &c, llvm::StringRef key,
                                       std::optional<std::string> &pattern) {
  if (!c.isText(key))
    return c.texts(key);
  pattern = c.text(key, "");
  return {};
}

AdapterConfig::Patterns readPatterns(Config &c, llvm::StringRef key) {
  AdapterConfig::Patterns patterns;
  if (std::optional<Config> object = c.object(key))
    for (const std::string &pattern : object->keys())
      patterns.push_back({pattern, object->positive(pattern)});
  return patterns;
}

/// Of the patterns' values that of the module, by default `otherwise`. Where two match, the first
/// one counts, which objects of JSON do not have.
llvm::Expected<double> valueOf(const AdapterConfig::Patterns &patterns, llvm::StringRef module,
                               double otherwise) {
  const std::pair<std::string, double> *found = nullptr;
  for (const auto &entry : patterns) {
    auto matches = matchesWhole("(?:.*\\.)?(?:" + entry.first + ")", module);
    if (!matches)
      return matches.takeError();
    if (!*matches)
      continue;
    if (found && found->second != entry.second)
      return makeError(ExitCode::Unsupported, "'" + found->first + "' and '" + entry.first +
                                                  "' of the adapter both match '" + module +
                                                  "', with values of their own. " + wayOut);
    found = &entry;
  }
  return found ? found->second : otherwise;
}

bool endsWithName(llvm::StringRef module, llvm::ArrayRef<std::string> names) {
  return llvm::any_of(names, [&](llvm::StringRef name) {
    return module.consume_back(name) && (module.empty() || module.ends_with("."));
  });
}

} // namespace

llvm::Expected<AdapterConfig> AdapterConfig::parse(llvm::StringRef text, llvm::StringRef name) {
  auto config = Config::parse(text, name, wayOut);
  if (!config)
    return config.takeError();
  Config &c = *config;
  AdapterConfig a;
  readKind(c);
  a.rank = c.size("r", 8);
  a.alpha = c.positive("lora_alpha", 8);
  a.rootOfRank = c.flag("use_rslora", false);
  a.ranks = readPatterns(c, "rank_pattern");
  a.alphas = readPatterns(c, "alpha_pattern");
  a.targets = listOrPattern(c, "target_modules", a.targetPattern);
  a.excluded = listOrPattern(c, "exclude_modules", a.excludedPattern);
  a.saved = c.texts("modules_to_save");
  if (c.isList("layers_to_transform"))
    a.layers = c.counts("layers_to_transform");
  else if (c.has("layers_to_transform"))
    a.layers = {c.count("layers_to_transform", 0)};
  std::optional<std::string> pattern;
  a.layerPatterns = listOrPattern(c, "layers_pattern", pattern);
  if (pattern && !pattern->empty())
    a.layerPatterns = {*pattern};
  const std::string bias = c.text("bias", "none");
  if (bias != "none" && bias != "all" && bias != "lora_only")
    c.unsupported("bias", "it is none, all or lora_only");
  a.bias = bias == "all" ? Bias::All : bias == "lora_only" ? Bias::Adapted : Bias::None;
  if (!c.texts("target_parameters").empty())
    c.unsupported("target_parameters", "modules are changed, not parameters by their names");
  c.refuseUnreadBut(withoutEffect);
  if (llvm::Error e = c.takeError())
    return e;
  return a;
}

bool AdapterConfig::saves(llvm::StringRef module) const {
  return llvm::any_of(saved, [&](llvm::StringRef end) { return module.ends_with(end); });
}

llvm::Expected<bool> AdapterConfig::changes(llvm::StringRef module) const {
  if (endsWithName(module, saved) || endsWithName(module, excluded))
    return false;
  if (excludedPattern) {
    auto matches = matchesWhole(*excludedPattern, module);
    if (!matches || *matches)
      return matches ? llvm::Expected<bool>(false) : matches.takeError();
  }
  if (targetPattern)
    return matchesWhole(*targetPattern, module);
  if (!endsWithName(module, targets))
    return false;
  if (layers.empty())
    return true;
  const std::string lists =
      layerPatterns.empty() ? "[^.]*" : "(?:" + llvm::join(layerPatterns, "|") + ")";
  for (int64_t layer : layers) {
    auto matches = matchesWhole(".*\\." + lists + "\\." + std::to_string(layer) + "\\..*", module);
    if (!matches || *matches)
      return matches;
  }
  return false;
}

llvm::Expected<int64_t> AdapterConfig::rankOf(llvm::StringRef module) const {
  auto value = valueOf(ranks, module, double(rank));
  return value ? llvm::Expected<int64_t>(int64_t(*value)) : value.takeError();
}

llvm::Expected<double> AdapterConfig::scaleOf(llvm::StringRef module) const {
  auto own = rankOf(module);
  if (!own)
    return own.takeError();
  auto factor = valueOf(alphas, module, alpha);
  if (!factor)
    return factor.takeError();
  return *factor / (rootOfRank ? std::sqrt(double(*own)) : double(*own));
}

} // namespace gpt2c
