// Matrices of weights that a model has quantised, as products take them.
#pragma once

#include "ir/Op.h"
#include "passes/Remark.h"

#include <optional>

namespace gpt2c {

/// (q - zero) scale, in the order of a product's weights.
struct StoredWeights {
  Tensor q, scale,
      zero; ///< i8, i4 or f8e4m3[N, K], f32[N, groups], i8[N, groups]; zero may be null
};

/// The affine_dequantize of constants that makes a product's w, [K, N] or [N, K]: of that shape, or
/// with one of its axes taken apart into blocks, which a reshape puts together. Null: there is
/// none.
const Op *dequantizeOf(const Value *w);

/// The weights with a scale for each of N, or for each block of K of each: in four bits where their
/// numbers are some of 16 that follow each other, else as bytes. None where they are neither, and
/// why. `transposed`: w is [N, K].
std::optional<StoredWeights> storedWeights(const Value *w, bool transposed, Obstacle &why);

/// Whether a gather looks tokens up: by an input of the model, rows of a table that has as many as
/// a result has columns, which are logits.
bool isTokenLookup(const Op &gather);

/// A table [V, D] of rows that are looked up, as bytes without zero points, with a scale for each
/// row or for each block of it. None where a row has not such scales, or is not within bytes.
std::optional<StoredWeights> storedTable(const Value *w);

} // namespace gpt2c
