// The configurations that may compute an op: the compiler takes the first, the choice of the cost
// model, unless a measurement says otherwise. No list holds one twice; all of a list compute the
// same up to rounding. suite_kernels checks every list. linearCandidates (codegen/FusedLowerings.h)
// joins those of all kernels of a product.
#pragma once

#include "codegen/KernelSource.h"

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace gpt2c {

/// A configuration as tuning files and gpt2c-dump name it. What the op decides, such as types, is
/// not part of the name.
std::string nameOf(const LinearRowDotConfig &c);
std::string nameOf(const LinearSkinnyConfig &c);
std::string nameOf(const LinearRowsConfig &c);
std::string nameOf(const LinearStreamConfig &c);
std::string nameOf(const LinearClusterConfig &c);
std::string nameOf(const LinearStreamTmaConfig &c);
std::string nameOf(const LinearTmaConfig &c);
std::string nameOf(const LinearWgmmaConfig &c);
std::string nameOf(const LinearMmaConfig &c);
std::string nameOf(const LinearSimtConfig &c);
std::string nameOf(const LinearTf32Config &c);
std::string nameOf(const LinearInt8Config &c);
std::string nameOf(const LinearInt8TmaConfig &c);

/// A kernel of linear with floating-point rows.
using LinearConfig =
    std::variant<LinearRowDotConfig, LinearRowsConfig, LinearStreamConfig, LinearClusterConfig,
                 LinearStreamTmaConfig, LinearSkinnyConfig, LinearTmaConfig, LinearWgmmaConfig,
                 LinearMmaConfig, LinearTf32Config, LinearSimtConfig>;
std::string nameOf(const LinearConfig &c);

/// A kernel of attention over the KV state.
enum class AttentionKernel { Decode, DecodeMma, Mma, Simt, Wgmma, Tf32 };
struct AttentionChoice {
  AttentionKernel kernel;
  AttentionConfig config;
};
std::string nameOf(const AttentionChoice &c);

//===-- lists that begin with the given configuration ---------------------------------------===//

/// Kernels with int8 weights have no others. n: columns of the result.
std::vector<LinearRowDotConfig> candidates(const LinearRowDotConfig &model, int64_t n);
std::vector<LinearSkinnyConfig> candidates(const LinearSkinnyConfig &model);
/// `clusters`: every architecture of the plan has them.
std::vector<LinearRowsConfig> candidates(const LinearRowsConfig &model, bool clusters);
std::vector<LinearStreamConfig> candidates(const LinearStreamConfig &model);
std::vector<LinearClusterConfig> candidates(const LinearClusterConfig &model, int64_t rows,
                                            int64_t n);
std::vector<LinearStreamTmaConfig> candidates(const LinearStreamTmaConfig &model);
/// For products of up to `rows` rows with weights [n, k]. Where the cost model knows the kernel,
/// the cheapest of its configurations.
std::vector<LinearTmaConfig> candidates(const LinearTmaConfig &model, int64_t rows, int64_t n,
                                        int64_t k);
std::vector<LinearWgmmaConfig> candidates(const LinearWgmmaConfig &model, int64_t rows, int64_t n,
                                          int64_t k, unsigned sharedLimit);
std::vector<LinearSimtConfig> candidates(const LinearSimtConfig &model, int64_t rows, int64_t n,
                                         int64_t k);
std::vector<LinearTf32Config> candidates(const LinearTf32Config &model, int64_t rows, int64_t n,
                                         int64_t k, unsigned sharedLimit, bool hopper);
std::vector<LinearInt8Config> candidates(const LinearInt8Config &model);
std::vector<LinearInt8TmaConfig> candidates(const LinearInt8TmaConfig &model, int64_t rows,
                                            int64_t n, int64_t k, bool residual = false);
/// Of the same kernel, for up to `rows` queries of all sequences.
std::vector<AttentionChoice> candidates(const AttentionChoice &model, int64_t rows);

} // namespace gpt2c
