// Frequencies of rotary embeddings. Su et al. 2021, RoFormer.
#pragma once

#include "frontend/checkpoint/Config.h"
#include "frontend/checkpoint/Decoder.h"

namespace gpt2c {

/// What a family takes where config.json says nothing.
struct RopeDefaults {
  double theta = 10000;
  double partial = 1; ///< of each head is turned
  const char *thetaKey = "rope_theta";
  const char *partialKey = nullptr; ///< null: whole heads are turned
};

/// The rotation that config.json asks for, by rope_parameters, or by rope_theta and rope_scaling.
/// Kinds: default, linear and llama3; others, which depend on the length of a text, become problems
/// of `config`.
Decoder::Rope readRope(Config &config, int64_t headDim, const RopeDefaults &defaults = {});

/// Two rotations: of layers that see everything, and of those with a window. By rope_parameters
/// with an object for each kind of layer, or by rope_theta, rope_scaling and rope_local_base_freq.
std::vector<Decoder::Rope> readRopeByLayer(Config &config, int64_t headDim, double theta,
                                           double localTheta);

} // namespace gpt2c
