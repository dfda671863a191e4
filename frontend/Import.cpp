#include "frontend/Import.h"

#include "frontend/Importer.h"
#include "frontend/files/DecodeTensor.h"
#include "frontend/files/OnnxFile.h"
#include "ir/Error.h"

#include "llvm/ADT/STLExtras.h"
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

/// Makes inputs initializers, whose values are told.
static llvm::Error setInputs(onnx::GraphProto &graph, const ImportOptions &options) {
  auto refuse = [](llvm::StringRef name, const llvm::Twine &why) {
    return makeError(ExitCode::Usage, "the input '" + name + "' cannot be set: " + why);
  };
  for (const auto &[name, value] : options.inputs) {
    auto input = llvm::find_if(graph.input(), [&](auto &i) { return i.name() == name; });
    if (input == graph.input().end())
      return refuse(name, "the graph has no such input");
    auto dtype = fromOnnxType(input->type().tensor_type().elem_type());
    if (!dtype)
      return refuse(name, "its elements are no numbers");
    onnx::TensorProto &tensor = *graph.add_initializer();
    tensor.set_name(name);
    tensor.set_data_type(toOnnxType(*dtype));
    int64_t count = 1;
    for (const auto &d : input->type().tensor_type().shape().dim()) {
      constexpr int64_t most = 1 << 16;
      if (!d.has_dim_value() || d.dim_value() < 0 || (count *= d.dim_value()) > most)
        return refuse(name, "its size is open, or large; an input of one number, or of a few, can");
      tensor.add_dims(d.dim_value());
    }
    const Tensor one = Tensor::scalar<double>(value).cast(*dtype);
    for (int64_t i = 0; i < count; ++i)
      tensor.mutable_raw_data()->append(static_cast<const char *>(one.raw()), one.bytes());
  }
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<Module>> importOnnxBytes(llvm::StringRef bytes, llvm::StringRef name,
                                                        const ImportOptions &options) {
  auto model = std::make_shared<onnx::ModelProto>();
  if (llvm::Error e = parseMessage(bytes, *model, name, "an ONNX model"))
    return e;
  if (!model->has_graph())
    return makeError(ExitCode::InvalidModel,
                     "'" + name + "' is not an ONNX model: it has no graph");
  if (llvm::Error e = setInputs(*model->mutable_graph(), options))
    return e;
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
