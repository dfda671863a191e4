// Bytes -> protobuf messages.
#pragma once

#include "onnx.pb.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

#include <memory>

namespace gpt2c {

/// The file's bytes, mapped where the system allows; "-" is standard input. Fails with Io.
llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>> readFile(llvm::StringRef path);

/// Parses one message of up to protobuf's limit of 2 GiB. Fields that this version of the schema
/// does not know are skipped. Fails with InvalidModel; `what` names the kind of file: "an ONNX
/// model".
llvm::Error parseMessage(llvm::StringRef bytes, google::protobuf::MessageLite &message,
                         llvm::StringRef name, llvm::StringRef what);

} // namespace gpt2c
