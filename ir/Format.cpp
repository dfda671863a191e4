#include "ir/Format.h"

#include "ir/ops/Quantize.h"

#include "llvm/ADT/STLExtras.h"

#include <cassert>
#include <cmath>

namespace gpt2c {

/// Elements that share a scale.
static int64_t shared(const FormatInfo &info, int64_t k, int64_t group) {
  assert((info.scale != FormatInfo::Group || (group > 0 && k % group == 0)) && "no whole groups");
  return info.scale == FormatInfo::Group ? group : k;
}

int64_t rowBytes(OperandFormat f, int64_t k, int64_t group) {
  const FormatInfo &info = infoOf(f);
  const int64_t scales = info.scale == FormatInfo::None || k == 0 ? 0 : k / shared(info, k, group);
  return storedBytes(info.storage, k) + scales * scaleBytes(f);
}

/// Elements that share a scale, to `to` from `at` on; the scale.
static float encodeSteps(const FormatInfo &info, llvm::ArrayRef<float> from, int64_t at,
                         Tensor &to) {
  const bool finite = llvm::all_of(from, [](float v) { return std::isfinite(v); });
  float largest = 0;
  for (float v : from)
    largest = std::fmax(largest, std::fabs(v));
  const float scale = !finite ? NAN : largest < 0x1p-100F ? 1 : largest / info.largest;
  std::vector<double> steps(from.size(), 0);
  for (size_t i = 0; finite && i < from.size(); ++i)
    steps[i] = from[i] * (1.0F / scale);
  to.store(at, steps);
  return scale;
}

EncodedRow encodeRow(OperandFormat f, llvm::ArrayRef<float> row, int64_t group) {
  const FormatInfo &info = infoOf(f);
  const int64_t k = int64_t(row.size());
  if (info.scale == FormatInfo::None)
    return {Tensor::of<float>(row, {k}).cast(info.storage), {}};
  const int64_t size = shared(info, k, group);
  EncodedRow out{Tensor::zeros(info.storage, {k}), std::vector<float>(k ? k / size : 0)};
  if (info.storage == DType::I8)
    quantiseRows(row.data(), 1, k, size, out.elements.data<int8_t>(), out.scales.data());
  else
    for (size_t g = 0; g < out.scales.size(); ++g)
      out.scales[g] = encodeSteps(info, row.slice(g * size, size), g * size, out.elements);
  return out;
}

std::vector<float> decodeRow(OperandFormat f, const EncodedRow &row) {
  std::vector<float> values = floatElements(row.elements.cast(DType::F32));
  if (infoOf(f).scale == FormatInfo::None || values.empty())
    return values;
  const size_t size = values.size() / row.scales.size();
  for (size_t i = 0; i < values.size(); ++i)
    values[i] *= row.scales[i / size];
  return values;
}

double errorBound(OperandFormat f, double x, double largest) {
  const FormatInfo &info = infoOf(f);
  return info.bound * std::fabs(info.scale == FormatInfo::None ? x : largest);
}

} // namespace gpt2c
