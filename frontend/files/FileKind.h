// What a file is that was taken for a model.
#pragma once

#include "llvm/ADT/StringRef.h"

namespace gpt2c {

struct FileKind {
  llvm::StringRef name;   ///< "a GGUF file"; empty: not known
  llvm::StringRef wayOut; ///< what to do about it
};

/// Tells files of other kinds, which people give in place of an ONNX model or of its weights, by
/// their first bytes.
FileKind foreignKind(llvm::StringRef bytes);

} // namespace gpt2c
