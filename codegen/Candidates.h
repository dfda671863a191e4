// The configurations that may compute an op, for measurements to choose from. Each list begins with
// the given one, the choice of the cost model, and holds none twice; all of them compute the same
// up to rounding. suite_kernels checks every list.
#pragma once

#include "codegen/KernelSource.h"

#include <cstdint>
#include <string>
#include <vector>

namespace gpt2c {

/// A configuration as tuning files and gpt2c-dump name it. What the op decides, such as types, is
/// not part of the name.
std::string nameOf(const LinearRowDotConfig &c);
std::string nameOf(const LinearSkinnyConfig &c);
std::string nameOf(const LinearRowsConfig &c);
std::string nameOf(const LinearWgmmaConfig &c);
std::string nameOf(const LinearSimtConfig &c);
std::string nameOf(const LinearTf32Config &c);
std::string nameOf(const AttentionConfig &c); ///< of attention_decode

/// Kernels with int8 weights have no others.
std::vector<LinearRowDotConfig> candidates(const LinearRowDotConfig &model);
std::vector<LinearSkinnyConfig> candidates(const LinearSkinnyConfig &model);
/// `clusters`: every architecture of the plan has them.
std::vector<LinearRowsConfig> candidates(const LinearRowsConfig &model, bool clusters);
/// For products of up to `rows` rows with weights [n, k].
std::vector<LinearWgmmaConfig> candidates(const LinearWgmmaConfig &model, int64_t rows, int64_t n,
                                          int64_t k, unsigned sharedLimit);
std::vector<LinearSimtConfig> candidates(const LinearSimtConfig &model, int64_t rows, int64_t n,
                                         int64_t k);
std::vector<LinearTf32Config> candidates(const LinearTf32Config &model, int64_t rows, int64_t n,
                                         int64_t k, unsigned sharedLimit, bool hopper);
/// Of attention_decode.
std::vector<AttentionConfig> candidates(const AttentionConfig &model);

} // namespace gpt2c
