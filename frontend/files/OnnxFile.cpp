#include "frontend/files/OnnxFile.h"
#include "frontend/files/FileKind.h"
#include "ir/Error.h"

#include "llvm/Support/FileSystem.h"

#include <google/protobuf/io/coded_stream.h>

#include <climits>

namespace gpt2c {

llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> readFile(llvm::StringRef path) {
  if (path != "-" && llvm::sys::fs::is_directory(path))
    return makeError(ExitCode::Io, "cannot read '" + path + "': it is a folder");
  auto buffer = llvm::MemoryBuffer::getFileOrSTDIN(path, /*IsText=*/false,
                                                   /*RequiresNullTerminator=*/false);
  if (!buffer)
    return makeError(ExitCode::Io, "cannot read '" + path + "': " + buffer.getError().message());
  return std::move(*buffer);
}

llvm::Error parseMessage(llvm::StringRef bytes, google::protobuf::MessageLite &message,
                         llvm::StringRef name, llvm::StringRef what) {
  if (bytes.empty())
    return makeError(ExitCode::InvalidModel, "'" + name + "' is empty, not " + what);
  const FileKind kind = foreignKind(bytes);
  const auto foreign = [&] {
    return makeError(ExitCode::InvalidModel,
                     "'" + name + "' is " + kind.name + ", not " + what + ": " + kind.wayOut);
  };
  if (bytes.size() > INT_MAX && !kind.name.empty())
    return foreign();
  if (bytes.size() > INT_MAX)
    return makeError(
        ExitCode::InvalidModel,
        "'" + name + "' has " + llvm::Twine(bytes.size()) +
            " bytes; protobuf files end at 2 GiB. Export the weights as external data");
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t *>(bytes.data()),
                                                static_cast<int>(bytes.size()));
  stream.SetTotalBytesLimit(INT_MAX);
  if (message.ParseFromCodedStream(&stream) && stream.ConsumedEntireMessage())
    return llvm::Error::success();
  if (!kind.name.empty())
    return foreign();
  return makeError(ExitCode::InvalidModel, "'" + name + "' is not " + what +
                                               ", or is damaged or cut short: the protobuf "
                                               "message cannot be decoded");
}

} // namespace gpt2c
