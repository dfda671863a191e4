// A checkpoint's folder -> IR: its decoder is written as a graph of ONNX operators over the mapped
// weights, which the importer reads like any other.
#include "frontend/Import.h"
#include "frontend/Importer.h"
#include "frontend/checkpoint/Adapter.h"
#include "frontend/checkpoint/Architectures.h"
#include "frontend/checkpoint/DecoderGraph.h"
#include "frontend/files/OnnxFile.h"
#include "ir/Error.h"

#include "llvm/Support/FileSystem.h"

namespace gpt2c {

llvm::Expected<std::unique_ptr<Module>> importCheckpoint(llvm::StringRef folder,
                                                         const ImportOptions &options) {
  if (!options.inputs.empty())
    return makeError(ExitCode::Usage, "the input '" + options.inputs.front().first +
                                          "' cannot be set: '" + folder +
                                          "' is a checkpoint, whose one input is the token ids");
  const std::string path = inFolder(folder, "config.json");
  auto text = readFile(path);
  if (!text)
    return text.takeError();
  auto config = Config::parse((*text)->getBuffer(), path);
  if (!config)
    return config.takeError();
  auto weights = CheckpointWeights::open(folder.str());
  if (!weights)
    return weights.takeError();
  Decoder decoder = readDecoder(*config);
  decoder.dtype = weights->mainType() == options.precision ? options.precision : DType::F32;
  if (llvm::Error e = config->takeError())
    return e;
  ExternalFiles files(folder.str(), options.externalFile);
  const bool beside = llvm::sys::fs::exists(inFolder(folder, adapterConfigFile));
  if (decoder.packing && (beside || !options.adapter.empty()))
    return makeError(
        ExitCode::Unsupported,
        "an adapter is merged into weights in floating point, and '" + folder + "' has them in " +
            llvm::Twine(decoder.packing->bits) +
            " bits: merge it into the model that they were made of, and quantise that");
  auto graph = decoderGraph(decoder, *weights, files);
  if (!graph)
    return graph.takeError();
  if (beside || !options.adapter.empty()) {
    const std::string adapter = options.adapter.empty() ? folder.str() : options.adapter;
    if (llvm::Error e = mergeAdapter(*graph, decoder, files, adapter, options.externalFile))
      return e;
  }
  ImportOptions resolved = options;
  resolved.externalFolder = folder.str();
  return importGraph(std::make_shared<const onnx::ModelProto>(std::move(*graph)), folder, resolved);
}

/// An export has its weights where its nodes want them: nothing can be merged into it.
static llvm::Error refuseAdapter(llvm::StringRef model, const ImportOptions &options) {
  if (options.adapter.empty())
    return llvm::Error::success();
  return makeError(ExitCode::Unsupported,
                   "an adapter is merged into the weights of a checkpoint, and '" + model +
                       "' is an export: give the folder of the checkpoint, or export the model "
                       "that peft's merge_and_unload gives");
}

llvm::Expected<std::unique_ptr<Module>> importModel(llvm::StringRef path,
                                                    const ImportOptions &options) {
  std::string model = path.str();
  const bool isFolder = path != "-" && llvm::sys::fs::is_directory(path);
  if (isFolder)
    model = inFolder(path, "model.onnx");
  if (!isFolder || llvm::sys::fs::exists(model)) {
    if (llvm::Error e = refuseAdapter(model, options))
      return e;
    if (isFolder && llvm::sys::fs::exists(inFolder(path, adapterConfigFile)))
      warnOf(options, path)("model.onnx is read as it is, without the adapter beside it");
    return importOnnx(model, options);
  }
  if (llvm::sys::fs::exists(inFolder(path, "config.json")))
    return importCheckpoint(path, options);
  if (llvm::sys::fs::exists(inFolder(path, adapterConfigFile)))
    return makeError(ExitCode::Unsupported,
                     "'" + path +
                         "' has an adapter, which changes the weights of a model, and not that "
                         "model: 'gpt2c MODEL --adapter=" +
                         path +
                         "' merges both, where MODEL is "
                         "the folder of the checkpoint that its base_model_name_or_path names");
  return makeError(ExitCode::Io, "'" + path +
                                     "' is a folder without a model: it has neither "
                                     "model.onnx nor config.json");
}

} // namespace gpt2c
