#include "frontend/checkpoint/Rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace gpt2c {

namespace {

/// theta^(-2 i / dims) in single precision, as transformers has them.
std::vector<float> frequencies(double theta, int64_t dims) {
  std::vector<float> out;
  for (int64_t i = 0; i + 1 < dims; i += 2)
    out.push_back(1 / std::pow(float(theta), float(i) / float(dims)));
  return out;
}

/// Long waves are stretched by `factor`, short ones stay, those between in part. Llama 3.1.
void scaleLlama3(Config &config, std::vector<float> &values) {
  const auto factor = float(config.positive("factor"));
  const auto low = float(config.positive("low_freq_factor"));
  const auto high = float(config.positive("high_freq_factor"));
  const auto context = float(config.size("original_max_position_embeddings"));
  if (high <= low)
    config.invalid("high_freq_factor", "must be above low_freq_factor");
  for (float &value : values) {
    const float wave = 2 * std::numbers::pi_v<float> / value;
    if (wave > context / low)
      value /= factor;
    else if (wave >= context / high) {
      const float part = (context / wave - low) / (high - low);
      value = (1 - part) * (value / factor) + part * value;
    }
  }
}

/// `config` has "rope_type" (older: "type") and what belongs to it.
void scale(Config &config, std::vector<float> &values) {
  const char *key = config.has("rope_type") ? "rope_type" : "type";
  const std::string kind = config.text(key, "default");
  if (config.has("rope_type"))
    (void)config.text("type", "");
  if (kind == "linear") {
    const auto factor = float(config.positive("factor"));
    for (float &value : values)
      value /= factor;
  } else if (kind == "llama3") {
    scaleLlama3(config, values);
  } else if (kind != "default") {
    config.unsupported(key, "rotations are of the kinds default, linear and llama3");
  }
}

struct Sizes {
  double theta, partial;
  int64_t headDim;
  bool partialKnown; // whether the family turns parts of heads
};

/// `inner`: the object that describes the rotation; none where config.json has none.
Decoder::Rope ropeOf(std::optional<Config> inner, Sizes sizes) {
  if (inner) {
    sizes.theta = inner->positive("rope_theta", sizes.theta);
    sizes.partial = inner->positive("partial_rotary_factor", sizes.partial);
  }
  // Of a head, transformers turns as many elements as this, rounded down.
  const auto dims = int64_t(double(sizes.headDim) * std::min(sizes.partial, 1.0));
  Decoder::Rope rope{frequencies(sizes.theta, dims)};
  if (inner) {
    if (sizes.partial != 1 && !sizes.partialKnown)
      inner->unsupported("partial_rotary_factor", "this model turns whole heads");
    scale(*inner, rope.frequencies);
    // Said without a use where nothing is scaled, or where all waves are.
    inner->refuseUnreadBut({"original_max_position_embeddings"});
  }
  return rope;
}

/// rope_parameters, or the older rope_scaling.
std::optional<Config> parameters(Config &config) {
  if (!config.has("rope_parameters"))
    return config.object("rope_scaling");
  if (config.has("rope_scaling"))
    config.unsupported("rope_scaling", "rope_parameters are given as well");
  return config.object("rope_parameters");
}

} // namespace

Decoder::Rope readRope(Config &config, int64_t headDim, const RopeDefaults &defaults) {
  const double theta = config.positive(defaults.thetaKey, defaults.theta);
  double partial = defaults.partial;
  if (defaults.partialKey)
    partial = config.positive(defaults.partialKey, partial);
  return ropeOf(parameters(config), {theta, partial, headDim, defaults.partialKey != nullptr});
}

std::vector<Decoder::Rope> readRopeByLayer(Config &config, int64_t headDim, double theta,
                                           double localTheta) {
  theta = config.positive("rope_theta", theta);
  localTheta = config.positive("rope_local_base_freq", localTheta);
  std::optional<Config> all = parameters(config), local;
  if (all && (all->has("full_attention") || all->has("sliding_attention"))) {
    Config byKind = *all;
    all = byKind.object("full_attention");
    local = byKind.object("sliding_attention");
    byKind.refuseUnreadBut({});
  }
  return {ropeOf(all, {theta, 1, headDim, false}), ropeOf(local, {localTheta, 1, headDim, false})};
}

} // namespace gpt2c
