// LoRA adapters as PEFT saves them: adapter_config.json and adapter_model.safetensors.
//
// With A [r, in], B [out, r] and s = lora_alpha / r, or lora_alpha / sqrt(r) where use_rslora is
// on, a layer's weight W [out, in] becomes W + s B A; one that is stored as [in, out], and a table
// of embeddings, W + s (B A)^T. Sums are in double precision and rounded once. Whole tensors, of
// modules_to_save, of biases, of a table that was saved with the adapter, take the place of the
// model's.
// https://arxiv.org/abs/2106.09685, section 4.1; https://arxiv.org/abs/2312.03732
#pragma once

#include "frontend/checkpoint/Decoder.h"
#include "frontend/files/ExternalFiles.h"

#include "onnx.pb.h"

namespace gpt2c {

constexpr const char *adapterConfigFile = "adapter_config.json";

/// Merges the adapter in `folder` into the weights of `graph`, which decoderGraph() wrote of
/// `decoder`; weights that it changes are read from `files` and become constants of the type that
/// the graph computes in. Io, InvalidModel for an adapter that is another model's, and Unsupported,
/// with the names, for what would change more than this knows.
llvm::Error mergeAdapter(onnx::ModelProto &graph, const Decoder &decoder, ExternalFiles &files,
                         const std::string &folder, ExternalFiles::Opened opened);

} // namespace gpt2c
