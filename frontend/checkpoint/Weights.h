// The weights of a checkpoint, in one file or in shards.
#pragma once

#include "frontend/checkpoint/Safetensors.h"
#include "frontend/files/ExternalFiles.h"

#include "llvm/ADT/StringMap.h"

namespace gpt2c {

/// The path of a file in a folder.
std::string inFolder(llvm::StringRef folder, llvm::StringRef name);

class CheckpointWeights {
public:
  struct Weight {
    SafetensorsEntry entry;
    std::string file; ///< in the folder
  };

  /// model.safetensors, or the files that model.safetensors.index.json names. Their headers are
  /// read, nothing of the weights. Io where there are none, InvalidModel, and Unsupported for
  /// weights in other kinds of files.
  static llvm::Expected<CheckpointWeights> open(const std::string &folder);

  /// Null where there is none.
  const Weight *find(llvm::StringRef name) const;
  std::vector<std::string> names() const; ///< sorted
  /// The type of floats that most bytes have.
  DType mainType() const;

private:
  llvm::Error addFile(llvm::StringRef name, ExternalFiles &files);

  llvm::StringMap<Weight> weights_;
};

} // namespace gpt2c
