// The tiles of linear_tf32 and linear_tf32_wgmma, and what each costs.
#pragma once

#include "codegen/Grid.h"
#include "schedule/products/LinearProblem.h"

#include <string>
#include <variant>
#include <vector>

namespace gpt2c {

/// linear_tf32: fp32 operands by 3xTF32, k a multiple of 4; blocks: that many share a
/// multiprocessor.
struct LinearTf32Config {
  Scalar y = Scalar::F32;
  int bm = 128, bn = 96, warpsM = 4, warpsN = 2, stages = 4, splitK = 1, blocks = 1;
};
/// linear_tf32_wgmma: the same on sm_90a alone; bm is 64 or 128.
struct LinearTf32WgmmaConfig {
  Scalar y = Scalar::F32;
  int bm = 128, bn = 96, stages = 4, splitK = 1;
};
/// Of one of both, where they are compared.
using Tf32Tile = std::variant<LinearTf32Config, LinearTf32WgmmaConfig>;

constexpr unsigned tf32SharedBytes(const LinearTf32Config &c) {
  return c.stages * (c.bm + c.bn) * 32 * 4;
}
constexpr unsigned tf32SharedBytes(const LinearTf32WgmmaConfig &c) {
  return c.stages * (c.bm + 2 * c.bn) * 32 * 4 + 1024;
}

std::string nameOf(const LinearTf32Config &c);
std::string nameOf(const LinearTf32WgmmaConfig &c);
Grid gridOf(const LinearTf32Config &c, const plan::ExprT &m, int64_t n, int64_t processors);
Grid gridOf(const LinearTf32WgmmaConfig &c, const plan::ExprT &m, int64_t n, int64_t processors);

/// Every configuration that pays for some product of this size; k is a multiple of 4.
std::vector<Tf32Tile> tf32Configs(const LinearShape &s);
/// Estimated microseconds on an H200.
double tf32Cost(const LinearTf32Config &config, const LinearShape &s);
double tf32Cost(const LinearTf32WgmmaConfig &config, const LinearShape &s);
Tf32Tile bestTf32Tile(const LinearShape &s);
/// The cheapest of both kernels, then those that cost up to 1.6 times as much.
std::vector<Tf32Tile> tf32Candidates(const LinearShape &s);
/// Why neither computes a product; empty: linear_tf32 does.
std::string tf32Refusal(const LinearProblem &p);

} // namespace gpt2c
