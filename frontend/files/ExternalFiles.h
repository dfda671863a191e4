// Weight files beside a model.
#pragma once

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"

#include <functional>
#include <memory>
#include <string>

namespace gpt2c {

/// Maps each file once. A model is untrusted input: it may name only files inside `folder`, also
/// after symbolic links are followed; and where the folder lies in a cache of Hugging Face's tools,
/// files among that cache's blobs.
class ExternalFiles {
public:
  /// `opened` receives each file's path and may refuse it.
  using Opened = std::function<llvm::Error(llvm::StringRef)>;
  explicit ExternalFiles(std::string folder, Opened opened = nullptr)
      : folder_(std::move(folder)), opened_(std::move(opened)) {}

  /// The file's bytes; they live as long as the result does.
  llvm::Expected<std::shared_ptr<const llvm::MemoryBuffer>> open(llvm::StringRef location);

private:
  std::string folder_;
  Opened opened_;
  llvm::StringMap<std::shared_ptr<const llvm::MemoryBuffer>> files_;
};

} // namespace gpt2c
