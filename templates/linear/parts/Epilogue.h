// What happens to the sums of a product before they are stored.
#pragma once

#include "codegen/KernelWriter.h"
#include "ir/Activations.h"

#include <vector>

namespace gpt2c {

/// A rotary embedding of neighbouring columns (templates/linear/parts/rotation.cuh). Parameters:
/// cosines, sines, positions, places, rowsOfSequence.
struct EpilogueRotation {
  enum Positions { OfRows, OfSequence, OfFirst };
  Scalar stored = Scalar::F16, table = Scalar::F32; ///< of the product, as it would be stored
  DType position = DType::I32;
  int headDim = 0, pairs = 0, columns = 0; ///< of heads that turn, the first columns
  Positions of = OfRows;
};

/// One stage; an epilogue is a list of them in order. Stages with an operand take it, most of them
/// its pointer, as the next parameter, named e0, e1, ... in order.
struct EpilogueStage {
  enum Kind {
    // with an operand
    AddBias,
    AddMatrix,
    MulMatrix,
    AddLastRows,  ///< as AddMatrix, row length[row] - 1 of the `seq` that each has
    ScaleRow,     ///< by f32[M]
    ScaleColumn,  ///< by f32[N]
    ScaleAll,     ///< by f32[1]
    ScaleByValue, ///< by a parameter
                  // without
#define ACTIVATION(Name, ...) Name,
#define HALVES(Name, ...) Name,
#include "ir/Activations.def"
  // last: what stands behind the product
#define PRODUCT_END(Name, ...) Name,
#include "schedule/products/ProductEnds.def"
    // last, for results in int8 or fp8: steps of a scale that is a parameter (`Given`)
    QuantiseByScale,
    QuantiseByScaleAndZero,
    QuantiseByFp8Scale
  };
  Kind kind;
  Scalar operand = Scalar::F32;   ///< AddBias, AddMatrix, MulMatrix, AddLastRows
  Kind ofGate = Gate;             ///< Gate: its activation; Gate for none
  EpilogueRotation rotation = {}; ///< Rotation
  int ranks = 0;                  ///< Send, Scatter, Receive
};
constexpr bool hasOperand(const EpilogueStage &s) { return s.kind <= EpilogueStage::ScaleByValue; }
using Epilogue = std::vector<EpilogueStage>;
/// The stage of an activation that is not none.
EpilogueStage::Kind stageOf(Activation a);
/// Activations as exact as results in fp16, bf16 and int8 need them, where there are such.
void halveActivations(Epilogue &e);
inline bool isGated(const Epilogue &e) {
  return !e.empty() && e.back().kind == EpilogueStage::Gate;
}
inline Given givenOf(const Epilogue &e) {
  return e.empty()                                                ? Given::None
         : e.back().kind == EpilogueStage::QuantiseByScale        ? Given::Scale
         : e.back().kind == EpilogueStage::QuantiseByScaleAndZero ? Given::ScaleAndZero
         : e.back().kind == EpilogueStage::QuantiseByFp8Scale     ? Given::Fp8Scale
                                                                  : Given::None;
}

/// The stage that quantises by a scale that is given.
constexpr EpilogueStage::Kind stageOf(Given given) {
  return given == Given::Scale          ? EpilogueStage::QuantiseByScale
         : given == Given::ScaleAndZero ? EpilogueStage::QuantiseByScaleAndZero
                                        : EpilogueStage::QuantiseByFp8Scale;
}

/// Writes the struct <name>Epilogue (templates/linear/parts/epilogue.cuh says what kernels ask of
/// one) and declares its parameters. Returns the expression that makes one for rows of `n`
/// elements.
std::string writeEpilogue(KernelWriter &w, const Epilogue &stages, llvm::StringRef n = "n");

} // namespace gpt2c
