// A decoder over its weights, as a graph of ONNX operators.
#pragma once

#include "frontend/checkpoint/Decoder.h"
#include "frontend/checkpoint/Weights.h"

#include "onnx.pb.h"

namespace gpt2c {

/// input_ids [batch, seq] -> logits [batch, seq, vocabulary]. Weights are named, not read, but for
/// those of a few bits, which are read from `files` and become constants.
/// InvalidModel where one is missing or has another shape than the decoder says; Unsupported where
/// one has another type than floats of 16, 32 or 64 bits, for an activation that is not known, and
/// where the checkpoint has weights that the decoder does not read.
llvm::Expected<onnx::ModelProto>
decoderGraph(const Decoder &decoder, const CheckpointWeights &weights, ExternalFiles &files);

} // namespace gpt2c
