// What a slice takes of an axis.
#pragma once

#include "ir/ops/Common.h"

namespace gpt2c {

struct SlicedPart {
  Dim first; // the position of the first element; any where there is none
  Dim count;
};

/// The part [start : end : step] of an axis of `size` elements, as ONNX clamps it: bounds below 0
/// count from the end. None where the step is not a constant.
std::optional<SlicedPart> slicedPart(const Dim &start, const Dim &end, const Dim &step,
                                     const Dim &size, const DimBounds &bounds);

} // namespace gpt2c
