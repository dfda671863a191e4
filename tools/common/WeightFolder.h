// A folder that holds constants beside an IR text, one file of raw bytes for each hash.
#pragma once

#include "ir/Text.h"

namespace gpt2c {

class WeightFolder {
public:
  explicit WeightFolder(std::string path) : path_(std::move(path)) {}
  ~WeightFolder() { llvm::consumeError(std::move(error_)); }

  /// Creates the folder and every file that is missing; the first failure is kept for `takeError`.
  void store(uint64_t hash, const Tensor &t);
  /// Maps the file; an invalid tensor when it is missing, has another size or other content.
  Tensor load(uint64_t hash, const Type &type) const;
  llvm::Error takeError() { return std::move(error_); }

private:
  std::string file(uint64_t hash) const;

  std::string path_;
  llvm::Error error_ = llvm::Error::success();
};

} // namespace gpt2c
