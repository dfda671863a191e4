// The tiles that a product of many rows may be cut into, and what each costs.
#pragma once

#include "codegen/KernelSource.h"

#include <cstdint>
#include <vector>

namespace gpt2c {

/// Every configuration of linear_tma that pays for some product of this size: each tile with as
/// many stages as a multiprocessor has room for, and as half of one has; some also
/// columns first. k is a multiple of 8.
std::vector<LinearTmaConfig> tmaConfigs(int64_t rows, int64_t n, int64_t k);
/// Estimated microseconds on an H200. With int8 weights it is another fit than in fp16, so that
/// only costs of the same type of weights compare.
double tmaCost(const LinearTmaConfig &config, int64_t rows, int64_t n, int64_t k);
/// The cheapest of them, for a norm that is taken out of the sums with `normParts`, and where
/// `statistics` for the next one are wanted.
LinearTmaConfig bestTmaConfig(int64_t rows, int64_t n, int64_t k, int normParts = 0,
                              bool statistics = false);

/// The same of linear_tf32, for blocks of at most that much shared memory, with wgmma if `hopper`.
/// k is a multiple of 4.
std::vector<LinearTf32Config> tf32Configs(int64_t rows, int64_t n, int64_t k, unsigned sharedLimit,
                                          bool hopper);
double tf32Cost(const LinearTf32Config &config, int64_t rows, int64_t n, int64_t k);
LinearTf32Config bestTf32Config(int64_t rows, int64_t n, int64_t k, unsigned sharedLimit,
                                bool hopper);

/// The same of linear_cluster. k is a multiple of 8; there is none for a long K or very many
/// columns.
std::vector<LinearClusterConfig> clusterConfigs(int64_t rows, int64_t n, int64_t k);
double clusterCost(const LinearClusterConfig &config, int64_t rows, int64_t n, int64_t k);
LinearClusterConfig bestClusterConfig(int64_t rows, int64_t n, int64_t k);

} // namespace gpt2c
