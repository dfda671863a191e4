// What decode steps of a decoder take on several GPUs, of which some share every layer and some
// stand behind each other.
#pragma once

#include "schedule/DecodeForm.h"
#include "schedule/cost/LinkRates.h"

#include "llvm/Support/Error.h"

namespace gpt2c {

/// `stages` groups of `tensor` GPUs.
struct Division {
  int64_t tensor = 1, stages = 1;
  int64_t gpus() const { return tensor * stages; }
};

/// What each of `tensor` ranks computes: the decoder with its heads, and its columns of the MLP and
/// of the vocabulary. Errors have no code: a rank would have no head, with the numbers.
llvm::Expected<DecoderShape> shapeOfRank(const DecoderShape &shape, int64_t tensor);

/// The part of a decoder that the stage with most to do has, 1 / stages where they are alike:
/// layers cannot be divided, and the last stage has the vocabulary.
double slowestStage(const DecoderShape &shape, int64_t stages);

/// Microseconds between two tokens of each of `rows` sequences. As compilers choose the form of a
/// step, by `kernels`; with two exchanges a layer, and stages that work on as many groups of the
/// sequences as there are stages.
double stepMicroseconds(const DecoderShape &shape, const Division &division, int64_t rows,
                        DecodeProblem step, llvm::ArrayRef<const DecodeKernel *> kernels,
                        const LinkRates &link);

} // namespace gpt2c
