// linear_ring: some rows in fp16 or bf16, weights by bulk copies through a ring of the block.
#pragma once

#include "codegen/Grid.h"
#include "codegen/KernelSource.h"
#include "schedule/products/LinearProblem.h"
#include "templates/linear/parts/Epilogue.h"

#include <string>
#include <vector>

namespace gpt2c {

/// fp16 or bf16 rows, weights of their type or of four bits, or of a byte with a scale for each
/// column beside fp16, from sm_90 on. A block's k / splits is a multiple of `chunks` times the k
/// that four lanes read.
struct LinearRingConfig {
  Scalar y = Scalar::F16, p = Scalar::F32;
  int rows = 8, warps = 7, splits = 1, chunks = 1, slots = 2, columns = 8, k = 0;
  NormKind norm = NormKind::None;
  Scalar x = Scalar::F16, w = Scalar::F16;
  int wGroup = 0;      ///< of four bits: elements of K that share a scale
  bool wZeros = false; ///< a zero point stands beside each scale
};

/// K that four lanes have of a warp's loads.
constexpr int ringPiece(const LinearRingConfig &c) {
  return c.wGroup > 0 ? std::min(c.wGroup, 128) : isQuantised(c.w) ? 64 : 32;
}

/// Of a slot of eight columns, bytes.
constexpr int ringSlotBytes(const LinearRingConfig &c) {
  const int row = int(storedBytes(c.w, c.k / (c.splits * c.chunks))),
            ofQuad = c.wGroup > 0 ? 16 : 64;
  return 8 * (row + (row % (2 * ofQuad) == 0 ? ofQuad : 0));
}
/// Beside the ring: sums of the warps, what other blocks send, moments of a norm.
constexpr int ringOtherBytes(const LinearRingConfig &c) {
  return 4 * (c.warps * int(divideCeilSigned(c.columns, 8)) * c.rows * 8 +
              (c.splits > 1 ? c.splits * c.rows * int(divideCeilSigned(c.columns, c.splits)) : 0) +
              (c.norm != NormKind::None ? c.warps * 2 * c.rows : 0)) +
         8 * (2 * c.slots + 2); // barriers
}
constexpr unsigned ringSharedBytes(const LinearRingConfig &c) {
  return c.slots * ringSlotBytes(c) + ringOtherBytes(c);
}

KernelSource linearRing(llvm::StringRef name, const LinearRingConfig &config,
                        const Epilogue &epilogue);

std::string nameOf(const LinearRingConfig &c);
Grid gridOf(const LinearRingConfig &c, const plan::ExprT &m, int64_t n, int64_t processors);

/// The configuration for a product; none: refused, see there.
std::optional<LinearRingConfig> ringConfig(const LinearProblem &p, int splits);
/// What is taken for a product takes, in microseconds, fitted to 24 products of 8 to 235 MB for two
/// to sixteen rows on an H200 (docs/lab/decode/few-rows-of-large-models.md); none: it has no room
/// for the rows in registers or slots, with K in as many parts as it may have.
std::optional<double> ringMicroseconds(const LinearProblem &p);

} // namespace gpt2c
