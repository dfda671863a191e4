// The tiles of linear_tf32 and linear_tf32_wgmma, and what each costs.
#pragma once

#include "codegen/Grid.h"
#include "schedule/LinearProblem.h"

#include <string>
#include <vector>

namespace gpt2c {

/// fp32 operands by 3xTF32, k a multiple of 4; blocks: that many share a multiprocessor. With
/// `wgmma` on sm_90a alone: bm is 64 or 128, and warpsM and warpsN have no meaning.
struct LinearTf32Config {
  Scalar y = Scalar::F32;
  int bm = 128, bn = 96, warpsM = 4, warpsN = 2, stages = 4, splitK = 1, blocks = 1;
  bool wgmma = false;
};

constexpr unsigned tf32SharedBytes(const LinearTf32Config &c) {
  return c.wgmma ? c.stages * (c.bm + 2 * c.bn) * 32 * 4 + 1024 : c.stages * (c.bm + c.bn) * 32 * 4;
}

std::string nameOf(const LinearTf32Config &c);
Grid gridOf(const LinearTf32Config &c, const plan::ExprT &m, int64_t n, int64_t processors);

/// Every configuration that pays for some product of this size; k is a multiple of 4.
std::vector<LinearTf32Config> tf32Configs(const LinearShape &s);
/// Estimated microseconds on an H200.
double tf32Cost(const LinearTf32Config &config, const LinearShape &s);
LinearTf32Config bestTf32Config(const LinearShape &s);
/// The cheapest of both kernels, then those that cost up to 1.6 times as much.
std::vector<LinearTf32Config> tf32Candidates(const LinearShape &s);
/// Why neither computes a product; empty: linear_tf32 does.
std::string tf32Refusal(const LinearProblem &p);

} // namespace gpt2c
