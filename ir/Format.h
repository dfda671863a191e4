// What ir/Formats.def says of each format, and how numbers become and leave it.
#pragma once

#include "ir/Tensor.h"

#include "llvm/ADT/ArrayRef.h"

#include <iterator>

namespace gpt2c {

enum class OperandFormat : uint8_t {
#define FORMAT(Name, ...) Name,
#include "ir/Formats.def"
};

struct FormatInfo {
  enum Scale : uint8_t { None, Row, Group };

  llvm::StringLiteral name;
  DType storage;
  int bits;      ///< of an element
  Scale scale;   ///< what shares one in fp32
  bool zero;     ///< whether a zero point stands beside each scale
  float largest; ///< steps of the scale that the largest magnitude is; 0 without scales
  double bound;  ///< of rounding: of the number, or with a scale of the largest that shares it
};

inline constexpr FormatInfo formatInfos[] = {
#define FORMAT(Name, name, storage, bits, scale, zero, largest, bound)                             \
  {name, DType::storage, bits, FormatInfo::scale, zero, largest, bound},
#include "ir/Formats.def"
};
constexpr const FormatInfo &infoOf(OperandFormat f) { return formatInfos[size_t(f)]; }

/// Two-byte floats: sums, norms and softmax are computed in single precision.
constexpr bool isNarrow(DType t) { return t == DType::F16 || t == DType::BF16; }

/// Weights or activations of which `group` elements of a row share a scale; 0: a row.
constexpr OperandFormat int8Format(int64_t group) {
  return group > 0 ? OperandFormat::I8Group : OperandFormat::I8Row;
}

/// The format of rows of a KV state in that type, floats, or bytes of which each row has a scale.
constexpr OperandFormat rowFormat(DType storage) {
  for (size_t f = 0; f < std::size(formatInfos); ++f)
    if (formatInfos[f].storage == storage && formatInfos[f].scale != FormatInfo::Group &&
        formatInfos[f].bits >= 8)
      return OperandFormat(f);
  return OperandFormat::F32;
}
/// Bytes of a scale; 0: there is none.
constexpr int64_t scaleBytes(OperandFormat f) {
  return infoOf(f).scale == FormatInfo::None ? 0 : byteSize(DType::F32);
}
/// Bytes of a row of k elements with its scales, of which each stands for `group` elements.
int64_t rowBytes(OperandFormat f, int64_t k, int64_t group = 0);

/// A row in a format; without a scale `scales` is empty.
struct EncodedRow {
  Tensor elements; ///< storage[k]
  std::vector<float> scales;
};
/// Rounds to the nearest, ties to even. A NaN or infinity makes all that shares its scale 0 times
/// that, as `quantize` does.
EncodedRow encodeRow(OperandFormat f, llvm::ArrayRef<float> row, int64_t group = 0);
std::vector<float> decodeRow(OperandFormat f, const EncodedRow &row);
/// What rounding changes x at most, where the largest magnitude that shares its scale is `largest`;
/// of numbers in the normal range.
double errorBound(OperandFormat f, double x, double largest);

} // namespace gpt2c
