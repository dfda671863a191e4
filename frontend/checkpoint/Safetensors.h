// The header of a safetensors file: 8 bytes, the length n of the header as a little-endian number;
// n bytes of JSON, {name: {"dtype", "shape", "data_offsets": [begin, end]}}; the tensors' bytes,
// one behind the other, from which the offsets count.
// https://huggingface.co/docs/safetensors/index#format
#pragma once

#include "ir/DType.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gpt2c {

struct SafetensorsEntry {
  std::string name;
  std::string dtypeName; ///< as the file has it: "BF16"
  /// None for what no weight of a model is read as: integers of 8 bits, floats of 8 bits, ...
  std::optional<DType> dtype;
  llvm::SmallVector<int64_t, 4> shape;
  uint64_t offset = 0; ///< of the first byte, from the begin of the file
  uint64_t bytes = 0;
};

/// What `file`, a whole file of that name, holds, in the order of the bytes. InvalidModel where the
/// header is longer than the file or than the format's 100 MB, is no JSON, has a name twice, where
/// a tensor's bytes lie outside, are not those of its shape and type, or overlap another's, and
/// where bytes are no tensor's.
llvm::Expected<std::vector<SafetensorsEntry>> readSafetensors(llvm::StringRef file,
                                                              llvm::StringRef name);

} // namespace gpt2c
