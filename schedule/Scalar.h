// Element types of kernels, and what they compute beside their own work.
#pragma once

#include "ir/Format.h"
#include "ir/Norms.h"

namespace gpt2c {

/// Storage type of a tensor in a kernel; floats are F32, F16 and BF16.
using Scalar = DType;
constexpr unsigned scalarBytes(Scalar s) { return byteSize(s); }

/// How a kernel that quantises its result by a scale that is given does it: q = x yInverse, or with
/// a zero point q = x yInverse + yZero, rounded and within int8, or q = x yInverse to fp8
/// (templates/device/int8.cuh). Parameters are named so and follow those of the result.
enum class Given { None, Scale, ScaleAndZero, Fp8Scale };

} // namespace gpt2c
