// What rounding the input of queries and keys does to attention.
#pragma once

#include "ir/Function.h"
#include "passes/quantize/Quantization.h"

#include <optional>

namespace gpt2c {

/// About the divergence, in nats, of attention's probabilities p where the rows that its product of
/// queries and keys reads are rounded to `type`, with a scale for each row: with d what scores are
/// off by,
///   mean of  (sum_j p_j d_j^2 - (sum_j p_j d_j)^2) / 2
/// over heads and the rows of the calibration's sample, each of which sees all of them. Positions
/// are left out. None where no attention over the KV state reads what the product gives.
std::optional<double> scoreDivergence(const Op &product, const ActivationStats &stats, DType type);

/// Adds the layers whose inputs would cost attention too much in fp8 to `options.wideInputs`, where
/// the scheme has such inputs and a calibration says what they are.
void findWideInputs(const Module &module, QuantizeOptions &options);

} // namespace gpt2c
