// The families of decoders whose checkpoints are read: how config.json and weights say what they
// compute.
#pragma once

#include "frontend/checkpoint/Config.h"
#include "frontend/checkpoint/Decoder.h"

namespace gpt2c {

/// config.json as a decoder, but for the type that it computes in. What is wrong with it is in
/// `config` afterwards.
Decoder readDecoder(Config &config);

/// Keys of config.json that never change what a decoder computes from tokens: ids of special
/// tokens, dropout, what training and generation are told.
llvm::ArrayRef<llvm::StringRef> keysWithoutEffect();

} // namespace gpt2c
