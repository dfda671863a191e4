// ONNX models from untrusted bytes: the importer returns an error or a module that verifies. An
// input is a serialized model, or, after a first byte of 'T', a tensor file. External weights are
// looked for in a folder that does not exist.
#include "frontend/Import.h"
#include "frontend/files/DecodeTensor.h"
#include "frontend/files/OnnxFile.h"
#include "ir/Verifier.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  using namespace gpt2c;
  llvm::StringRef bytes(reinterpret_cast<const char *>(data), size);
  if (bytes.consume_front("T")) {
    onnx::TensorProto proto;
    if (llvm::Error e = parseMessage(bytes, proto, "fuzz", "a tensor")) {
      llvm::consumeError(std::move(e));
      return 0;
    }
    auto tensor = decodeTensor(proto, nullptr, nullptr);
    if (!tensor)
      llvm::consumeError(tensor.takeError());
    return 0;
  }
  ImportOptions options;
  options.externalFolder = "/nonexistent";
  options.warn = [](const std::string &) {};
  auto module = importOnnxBytes(bytes, "fuzz", options);
  if (!module)
    llvm::consumeError(module.takeError());
  else
    llvm::cantFail(verify(**module));
  return 0;
}
