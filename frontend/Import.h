// Models -> IR.
//
// The importer of ONNX translates node by node and recognises nothing: composite operators become
// primitive ops of the IR, and what a model declares about intermediate and output shapes is not
// read, since exporters get it wrong.
#pragma once

#include "ir/Function.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace gpt2c {

struct ImportOptions {
  /// Where relative paths of external weights start; empty: the model's own folder.
  std::string externalFolder;
  /// Of checkpoints: the type to compute in, where the weights are of it; else it is f32, which the
  /// weights are cast to. Exports have types of their own.
  DType precision = DType::F32;
  /// Of checkpoints: the folder of a LoRA adapter that is merged into the weights; empty: the one
  /// in the checkpoint's own folder, where there is one.
  std::string adapter;
  /// Of exports: inputs by name all of whose elements are a number, and no inputs any more.
  std::vector<std::pair<std::string, double>> inputs;
  /// Receives remarks on models that break a rule of ONNX but have one usual reading; by default
  /// they go to stderr.
  std::function<void(const std::string &)> warn;
  /// Receives the path of each file of external weights before it is used, and may refuse it.
  std::function<llvm::Error(llvm::StringRef)> externalFile;
};

/// Reads an ONNX model ("-": standard input) into a module with one function, @main: its arguments
/// are the graph inputs that are not initializers, in order and by name; `resultNames` are the
/// output names.
///
/// Errors are CodedErrors: Io when the file cannot be read, InvalidModel when it is no valid ONNX,
/// Unsupported with a list of everything in it that this compiler does not know.
llvm::Expected<std::unique_ptr<Module>> importOnnx(llvm::StringRef path,
                                                   const ImportOptions &options = {});

/// The same for a model in memory. `name` stands for the path in messages.
llvm::Expected<std::unique_ptr<Module>> importOnnxBytes(llvm::StringRef bytes, llvm::StringRef name,
                                                        const ImportOptions &options = {});

/// Reads a checkpoint as Hugging Face's tools lay it out: config.json and safetensors, which are
/// mapped, in `folder`. The module is that of an export: @main(input_ids) -> logits.
///
/// Errors: Io, InvalidModel, and Unsupported with all that config.json asks for and this compiler
/// does not know. What is not known is never left out.
llvm::Expected<std::unique_ptr<Module>> importCheckpoint(llvm::StringRef folder,
                                                         const ImportOptions &options = {});

/// Reads what `path` names: an ONNX model, or a folder with model.onnx or else a checkpoint.
llvm::Expected<std::unique_ptr<Module>> importModel(llvm::StringRef path,
                                                    const ImportOptions &options = {});

} // namespace gpt2c
