// Weight files beside a model.
#pragma once

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

#include <memory>
#include <string>

namespace gpt2c {

/// Maps each file once. A model is untrusted input: it may name only files inside `folder`, also
/// after symbolic links are followed.
class ExternalFiles {
public:
  explicit ExternalFiles(std::string folder) : folder_(std::move(folder)) {}

  /// The file's bytes; they live as long as the result does.
  llvm::Expected<std::shared_ptr<const llvm::MemoryBuffer>> open(llvm::StringRef location);

private:
  std::string folder_;
  llvm::StringMap<std::shared_ptr<const llvm::MemoryBuffer>> files_;
};

} // namespace gpt2c
