#include "frontend/checkpoint/BlockWeights.h"

#include "ir/Error.h"
#include "ir/Tensor.h"

#include "llvm/Support/MathExtras.h"

#include <cstring>
#include <numeric>

namespace gpt2c {

static llvm::Error invalid(const std::string &name, const llvm::Twine &why) {
  return makeError(ExitCode::InvalidModel, "'" + name + "' " + why);
}

/// [rows, columns] as floats.
static llvm::Expected<Tensor> readScales(const CheckpointWeights::Weight &scales,
                                         const std::string &name, int64_t rows, int64_t columns,
                                         ExternalFiles &files) {
  const SafetensorsEntry &entry = scales.entry;
  const int64_t shape[] = {rows, columns};
  if (!entry.dtype)
    return invalid(name, "is of type " + entry.dtypeName + ", not of floats");
  if (llvm::ArrayRef<int64_t>(entry.shape) != llvm::ArrayRef<int64_t>(shape))
    return invalid(name, "is not [" + llvm::Twine(rows) + ", " + llvm::Twine(columns) +
                             "], the blocks of its weight");
  auto file = files.open(scales.file);
  if (!file)
    return file.takeError();
  if (entry.offset + entry.bytes > (*file)->getBufferSize())
    return invalid(name, "lies outside of its file");
  Tensor stored(*entry.dtype, shape);
  std::memcpy(stored.raw(), (*file)->getBufferStart() + entry.offset, stored.bytes());
  return stored.cast(DType::F32);
}

llvm::Expected<BlockWeights> readBlockWeights(const CheckpointWeights &weights,
                                              ExternalFiles &files, const std::string &module,
                                              int64_t in, int64_t out, const Packing &packing,
                                              llvm::function_ref<void(const std::string &)> found) {
  const std::string ofWeight = module + ".weight", ofScales = module + blockScales;
  found(ofWeight);
  found(ofScales);
  BlockWeights w;
  w.weight = weights.find(ofWeight);
  const CheckpointWeights::Weight *scales = weights.find(ofScales);
  if (!w.weight || !scales)
    return invalid(w.weight ? ofScales : ofWeight, "is missing");
  const SafetensorsEntry &entry = w.weight->entry;
  const int64_t shape[] = {out, in};
  if (entry.dtypeName != "F8_E4M3")
    return makeError(ExitCode::Unsupported, "'" + ofWeight + "' is of type " + entry.dtypeName +
                                                "; with scales of blocks it is F8_E4M3");
  if (llvm::ArrayRef<int64_t>(entry.shape) != llvm::ArrayRef<int64_t>(shape))
    return invalid(ofWeight, "is not [" + llvm::Twine(out) + ", " + llvm::Twine(in) + "]");
  const int64_t columns = llvm::divideCeilSigned(in, packing.group);
  auto blocks =
      readScales(*scales, ofScales, llvm::divideCeilSigned(out, packing.rows), columns, files);
  if (!blocks)
    return blocks.takeError();
  // Groups divide rows: those of a last block that is smaller are as large as it, or smaller.
  w.group = std::gcd(packing.group, in);
  const int64_t groups = in / w.group;
  w.scales.resize(size_t(out * groups));
  for (int64_t n = 0; n < out; ++n)
    for (int64_t g = 0; g < groups; ++g)
      w.scales[size_t(n * groups + g)] =
          blocks->data<float>()[n / packing.rows * columns + g * w.group / packing.group];
  return w;
}

} // namespace gpt2c
