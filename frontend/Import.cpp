#include "frontend/Import.h"
#include "frontend/Importer.h"
#include "frontend/files/OnnxFile.h"
#include "ir/Error.h"

#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

namespace gpt2c {

std::function<void(const std::string &)> warnOf(const ImportOptions &options,
                                                llvm::StringRef name) {
  if (options.warn)
    return options.warn;
  return [name = name.str()](const std::string &message) {
    llvm::errs() << "warning: " << name << ": " << message << "\n";
  };
}

llvm::Expected<std::unique_ptr<Module>> importGraph(std::shared_ptr<const onnx::ModelProto> model,
                                                    llvm::StringRef name,
                                                    const ImportOptions &options) {
  return Importer(std::move(model), options.externalFolder, warnOf(options, name),
                  options.externalFile)
      .run();
}

llvm::Expected<std::unique_ptr<Module>> importOnnxBytes(llvm::StringRef bytes, llvm::StringRef name,
                                                        const ImportOptions &options) {
  auto model = std::make_shared<onnx::ModelProto>();
  if (llvm::Error e = parseMessage(bytes, *model, name, "an ONNX model"))
    return e;
  if (!model->has_graph())
    return makeError(ExitCode::InvalidModel,
                     "'" + name + "' is not an ONNX model: it has no graph");
  return importGraph(std::move(model), name, options);
}

llvm::Expected<std::unique_ptr<Module>> importOnnx(llvm::StringRef path,
                                                   const ImportOptions &options) {
  auto buffer = readFile(path);
  if (!buffer)
    return buffer.takeError();
  ImportOptions resolved = options;
  if (resolved.externalFolder.empty() && path != "-")
    resolved.externalFolder = llvm::sys::path::parent_path(path).str();
  return importOnnxBytes((*buffer)->getBuffer(), path, resolved);
}

} // namespace gpt2c
