// Estimated times of decode steps, by which the form of a step is chosen: what a launch, a hop
// between blocks and a byte take. Constants are those of an H200, fitted to the steps that
// docs/lab/decode/decode-forms.md has.
#pragma once

#include "schedule/DecoderShape.h"
#include "schedule/cost/LinkRates.h"
#include "schedule/cost/TargetRates.h"

#include <cstdint>

namespace gpt2c {

/// Keys of a sequence that steps are costed for.
constexpr int64_t usualKeys = 512;

/// Bytes of the weights of a layer's products, and of the vocabulary's.
int64_t layerWeightBytes(const DecoderShape &shape);
int64_t vocabularyBytes(const DecoderShape &shape);

/// Microseconds of a step of `rows` sequences as a CUDA graph of launches.
double graphStepMicroseconds(const DecoderShape &shape, int64_t rows,
                             const TargetRates &rates = {});

/// A block of a step in clusters, as it is costed: the one that has most to do.
struct BlockWork {
  double weightBytes = 0, keyBytes = 0; ///< that it reads of a layer
  int heads = 1;                        ///< of its cluster
  double sumBytes = 0;                  ///< of partial sums, which it looks at until all have come
  int rowGroups = 1;                    ///< of eight sequences
  bool packed = false, packedLast = false; ///< weights, and those of the vocabulary, are in 12 bits
};
/// Microseconds of a step in thread block clusters, of one sequence or of several.
double clusterStepMicroseconds(const DecoderShape &shape, const BlockWork &block, bool several,
                               const TargetRates &rates = {});

/// Microseconds that ranks of the shape take for what they exchange in a step of `rows` sequences,
/// as launches: two sums a layer and the choice. One alone takes none.
double exchangeMicroseconds(const DecoderShape &shape, int64_t rows, const TargetRates &rates = {},
                            const LinkRates &link = {});
/// The same within a persistent kernel, each of which sends so many words of 8 bytes for a sum.
double exchangedWordsMicroseconds(const DecoderShape &shape, int64_t wordsOfSum,
                                  const LinkRates &link = {});

} // namespace gpt2c
