// A checkpoint's folder -> IR: its decoder is written as a graph of ONNX operators over the mapped
// weights, which the importer reads like any other.
#include "frontend/Import.h"
#include "frontend/Importer.h"
#include "frontend/OnnxFile.h"
#include "frontend/checkpoint/Architectures.h"
#include "frontend/checkpoint/DecoderGraph.h"
#include "ir/Error.h"

#include "llvm/Support/FileSystem.h"

namespace gpt2c {

llvm::Expected<std::unique_ptr<Module>> importCheckpoint(llvm::StringRef folder,
                                                         const ImportOptions &options) {
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
  auto graph = decoderGraph(decoder, *weights);
  if (!graph)
    return graph.takeError();
  ImportOptions resolved = options;
  resolved.externalFolder = folder.str();
  return importGraph(std::make_shared<const onnx::ModelProto>(std::move(*graph)), folder, resolved);
}

llvm::Expected<std::unique_ptr<Module>> importModel(llvm::StringRef path,
                                                    const ImportOptions &options) {
  if (path == "-" || !llvm::sys::fs::is_directory(path))
    return importOnnx(path, options);
  const std::string model = inFolder(path, "model.onnx");
  if (llvm::sys::fs::exists(model))
    return importOnnx(model, options);
  if (llvm::sys::fs::exists(inFolder(path, "adapter_config.json")))
    return makeError(ExitCode::Unsupported,
                     "'" + path +
                         "' has an adapter, which changes the weights of a model: merge "
                         "both with peft's merge_and_unload and save the result");
  if (llvm::sys::fs::exists(inFolder(path, "config.json")))
    return importCheckpoint(path, options);
  return makeError(ExitCode::Io, "'" + path +
                                     "' is a folder without a model: it has neither "
                                     "model.onnx nor config.json");
}

} // namespace gpt2c
