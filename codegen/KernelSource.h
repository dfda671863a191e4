// One kernel as CUDA text, an instance of a template, with what a launch needs to know of it.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <string>
#include <vector>

namespace gpt2c {

/// Storage type of a tensor in a kernel.
enum class Scalar { F32, F16, I8, I32, BF16 };
/// Two-byte floats, whose sums are in fp32.
constexpr bool isNarrow(Scalar s) { return s == Scalar::F16 || s == Scalar::BF16; }
constexpr unsigned scalarBytes(Scalar s) { return isNarrow(s) ? 2 : s == Scalar::I8 ? 1 : 4; }

/// One kernel. `params` names the parameters in order, so that a plan can describe the arguments.
struct KernelSource {
  std::string name;
  std::vector<std::string> headers;
  std::string text;
  std::vector<std::string> params;
  std::vector<std::string> optional; ///< those of them that may be null
  unsigned threads = 0;
  unsigned sharedBytes = 0;
};

/// How a kernel that quantises its result by a scale that is given does it: q = x yInverse, or with
/// a zero point q = x yInverse + yZero, rounded and within int8 (templates/device/int8.cuh).
/// Parameters are named so and follow those of the result.
enum class Given { None, Scale, ScaleAndZero };

/// The norm of its rows that a kernel computes beside its own work.
enum class FusedNorm { None, Layer, Rms };

/// One module with all of `kernels`: their headers once, then their texts.
std::string moduleSource(llvm::ArrayRef<KernelSource> kernels);

} // namespace gpt2c
