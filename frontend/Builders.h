// Builder functions of the operator table: one per ONNX operator and form.
#pragma once

#include "frontend/NodeLowering.h"

namespace gpt2c::onnxops {

using BuilderFunction = void (*)(NodeLowering &);

/// The inputs as operands of one IR op, for operators that mean the same on both sides.
template <OpCode Code> void direct(NodeLowering &n) {
  llvm::SmallVector<Value *, 4> operands;
  for (unsigned i = 0; i < opInfo(Code).operands.size(); ++i)
    operands.push_back(opInfo(Code).operands[i].kind == OperandSpec::Required ? n.in(i)
                                                                              : n.optional(i));
  while (!operands.empty() && !operands.back())
    operands.pop_back();
  n.out(n.emit(Code, operands));
}

/// op(op(x0, x1), x2) ... for operators with any number of inputs.
template <OpCode Code> Value *foldInputs(NodeLowering &n) {
  Value *v = n.in(0);
  for (unsigned i = 1; i < n.numInputs(); ++i)
    v = n.emit(Code, {v, n.in(i)});
  return v;
}
template <OpCode Code> void fold(NodeLowering &n) { n.out(foldInputs<Code>(n)); }

/// A reduction whose axes are an attribute / the second input.
void reduceWith(NodeLowering &n, OpCode code, bool axesAreInput);
template <OpCode Code> void reduceByAttr(NodeLowering &n) { reduceWith(n, Code, false); }
template <OpCode Code> void reduceByInput(NodeLowering &n) { reduceWith(n, Code, true); }

/// Reductions that are a formula: sum |x|, sqrt(sum x^2), sum x^2, log(sum x), log(sum exp x).
enum class ComposedReduction { L1, L2, SumSquare, LogSum, LogSumExp };
void reduceComposed(NodeLowering &n, ComposedReduction kind, bool axesAreInput);
template <ComposedReduction Kind> void composedByAttr(NodeLowering &n) {
  reduceComposed(n, Kind, false);
}
template <ComposedReduction Kind> void composedByInput(NodeLowering &n) {
  reduceComposed(n, Kind, true);
}

// Activations.cpp
void atanOp(NodeLowering &n);
void celu(NodeLowering &n);
void elu(NodeLowering &n);
void leakyRelu(NodeLowering &n);
void prelu(NodeLowering &n);
void selu(NodeLowering &n);
void softsign(NodeLowering &n);
void thresholdedRelu(NodeLowering &n);
void hardSigmoid(NodeLowering &n);
void hardSwish(NodeLowering &n);
void mish(NodeLowering &n);
void quickGelu(NodeLowering &n);
void softplus(NodeLowering &n);
void swish(NodeLowering &n);

// Conv.cpp
void conv(NodeLowering &n);

// Einsum.cpp
void einsum(NodeLowering &n);

// MatMulNBits.cpp
void matmulNBits(NodeLowering &n);
void gatherBlockQuantized(NodeLowering &n);

// Elementwise.cpp
void castOp(NodeLowering &n);
void castLike(NodeLowering &n);
void clipByAttr(NodeLowering &n);
void clip(NodeLowering &n);
void dropoutByAttr(NodeLowering &n);
void dropout(NodeLowering &n);
void identity(NodeLowering &n);
void roundOp(NodeLowering &n);
void isInf(NodeLowering &n);
void mean(NodeLowering &n);
void mod(NodeLowering &n);
void pow(NodeLowering &n);

// Constants.cpp
void constantOfShape(NodeLowering &n);
void constantOp(NodeLowering &n);
void eyeLike(NodeLowering &n);
void range(NodeLowering &n);
void sizeOp(NodeLowering &n);

// Shapes.cpp
void concatOp(NodeLowering &n);
void flatten(NodeLowering &n);
void pad(NodeLowering &n);
void reshapeOp(NodeLowering &n);
void shapeOp(NodeLowering &n);
void splitByAttr(NodeLowering &n);
void split(NodeLowering &n);
void squeezeByAttr(NodeLowering &n);
void squeezeOp(NodeLowering &n);
void transposeOp(NodeLowering &n);
void trilu(NodeLowering &n);
void unsqueezeByAttr(NodeLowering &n);
void unsqueezeOp(NodeLowering &n);

// Sequences.cpp
void concatFromSequence(NodeLowering &n);
void sequenceAt(NodeLowering &n);
void sequenceConstruct(NodeLowering &n);
void sequenceEmpty(NodeLowering &n);
void sequenceInsert(NodeLowering &n);
void sequenceLength(NodeLowering &n);
void splitToSequence(NodeLowering &n);

// Indexing.cpp
void argMax(NodeLowering &n);
void cumSum(NodeLowering &n);
void gather(NodeLowering &n);
void gatherElements(NodeLowering &n);
void gatherND(NodeLowering &n);
void oneHot(NodeLowering &n);
void scatterElements(NodeLowering &n);
void scatterND(NodeLowering &n);
void tensorScatter(NodeLowering &n);
void topK(NodeLowering &n);

// MatMul.cpp
void fusedMatMul(NodeLowering &n);
void gemm(NodeLowering &n);

// Normalise.cpp
void biasGelu(NodeLowering &n);
void contribGelu(NodeLowering &n);
void embedLayerNorm(NodeLowering &n);
void fastGelu(NodeLowering &n);
void gelu(NodeLowering &n);
void layerNorm(NodeLowering &n);
void logSoftmax(NodeLowering &n);
void logSoftmaxFlattened(NodeLowering &n);
void lpNormalization(NodeLowering &n);
void rmsNorm(NodeLowering &n);
void skipLayerNorm(NodeLowering &n);
void skipRmsNorm(NodeLowering &n);
void softmaxOp(NodeLowering &n);
void softmaxFlattened(NodeLowering &n);
/// x - log(sum(exp(x))) along `axis`.
Value *logSoftmaxOf(NodeLowering &n, Value *x, int64_t axis);

// Losses.cpp
void negativeLogLikelihoodLoss(NodeLowering &n);
void softmaxCrossEntropyLoss(NodeLowering &n);

// Quantize.cpp
void dequantizeLinear(NodeLowering &n);
void dynamicQuantizeLinear(NodeLowering &n);
void dynamicQuantizeMatMul(NodeLowering &n);
void matMulInteger(NodeLowering &n);
void matMulIntegerToFloat(NodeLowering &n);
void qGemm(NodeLowering &n);
void qLinearBinary(NodeLowering &n, OpCode code);
template <OpCode Code> void qLinear(NodeLowering &n) { qLinearBinary(n, Code); }
void qLinearMatMul(NodeLowering &n);
void qLinearSigmoid(NodeLowering &n);
void qLinearSoftmax(NodeLowering &n);
void quantizeLinear(NodeLowering &n);
/// q with scale and zero point (null: 0) in floating point; a vector of them is along `axis`.
/// What is quantised; zeroPoint null: 0.
struct Quantised {
  Value *q, *scale, *zeroPoint;
};
/// (q - zeroPoint) scale with a scale, and a zero point, for each block of an axis.
Value *dequantisedBlocks(NodeLowering &n, const Quantised &v, DType to, unsigned axis,
                         int64_t block);
Value *dequantised(NodeLowering &n, Value *q, Value *scale, Value *zeroPoint, DType to,
                   int64_t axis);

// Attention.cpp, ContribAttention.cpp, GroupQueryAttention.cpp, MultiHeadAttention.cpp,
// RotaryEmbedding.cpp
void attention(NodeLowering &n);
void contribAttention(NodeLowering &n);
void qAttention(NodeLowering &n);
void contribRotaryEmbedding(NodeLowering &n);
void groupQueryAttention(NodeLowering &n);
void multiHeadAttention(NodeLowering &n);
void rotaryEmbedding(NodeLowering &n);

} // namespace gpt2c::onnxops
