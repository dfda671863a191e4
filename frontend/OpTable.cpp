#include "frontend/OpTable.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

namespace gpt2c {

using namespace onnxops;

// `since` is 1 where the form is older than the oldest opset understood.

static const OpRow rows[] = {
    // Elementwise
    {onnxDomain, "Abs", 1, direct<OpCode::Abs>},
    {onnxDomain, "Add", 1, direct<OpCode::Add>},
    {onnxDomain, "And", 1, direct<OpCode::And>},
    {onnxDomain, "Atan", 7, atanOp},
    {onnxDomain, "Cast", 1, castOp},
    {onnxDomain, "CastLike", 15, castLike},
    {onnxDomain, "Ceil", 1, direct<OpCode::Ceil>},
    {onnxDomain, "Celu", 12, celu},
    {onnxDomain, "Clip", 1, clipByAttr},
    {onnxDomain, "Clip", 11, clip},
    {onnxDomain, "Cos", 1, direct<OpCode::Cos>},
    {onnxDomain, "Div", 1, direct<OpCode::Div>},
    {onnxDomain, "Dropout", 1, dropoutByAttr},
    {onnxDomain, "Dropout", 12, dropout},
    {onnxDomain, "Elu", 1, elu},
    {onnxDomain, "Equal", 1, direct<OpCode::Equal>},
    {onnxDomain, "Erf", 1, direct<OpCode::Erf>},
    {onnxDomain, "Exp", 1, direct<OpCode::Exp>},
    {onnxDomain, "Floor", 1, direct<OpCode::Floor>},
    {onnxDomain, "Gelu", 20, gelu},
    {onnxDomain, "Greater", 1, direct<OpCode::Greater>},
    {onnxDomain, "GreaterOrEqual", 12, direct<OpCode::GreaterEqual>},
    {onnxDomain, "HardSigmoid", 1, hardSigmoid},
    {onnxDomain, "HardSwish", 14, hardSwish},
    {onnxDomain, "Identity", 1, identity},
    {onnxDomain, "IsInf", 10, isInf},
    {onnxDomain, "IsNaN", 1, direct<OpCode::IsNaN>},
    {onnxDomain, "LeakyRelu", 1, leakyRelu},
    {onnxDomain, "Less", 1, direct<OpCode::Less>},
    {onnxDomain, "LessOrEqual", 12, direct<OpCode::LessEqual>},
    {onnxDomain, "Log", 1, direct<OpCode::Log>},
    {onnxDomain, "Max", 1, fold<OpCode::Max>},
    {onnxDomain, "Mean", 1, mean},
    {onnxDomain, "Min", 1, fold<OpCode::Min>},
    {onnxDomain, "Mish", 18, mish},
    {onnxDomain, "Mod", 10, mod},
    {onnxDomain, "Mul", 1, direct<OpCode::Mul>},
    {onnxDomain, "Neg", 1, direct<OpCode::Neg>},
    {onnxDomain, "Not", 1, direct<OpCode::Not>},
    {onnxDomain, "Or", 1, direct<OpCode::Or>},
    {onnxDomain, "Pow", 1, onnxops::pow},
    {onnxDomain, "PRelu", 7, prelu},
    {onnxDomain, "Reciprocal", 1, direct<OpCode::Reciprocal>},
    {onnxDomain, "Relu", 1, direct<OpCode::Relu>},
    {onnxDomain, "Round", 11, roundOp},
    {onnxDomain, "Selu", 1, selu},
    {onnxDomain, "Sigmoid", 1, direct<OpCode::Sigmoid>},
    {onnxDomain, "Sign", 1, direct<OpCode::Sign>},
    {onnxDomain, "Sin", 1, direct<OpCode::Sin>},
    {onnxDomain, "Softplus", 1, softplus},
    {onnxDomain, "Softsign", 1, softsign},
    {onnxDomain, "Sqrt", 1, direct<OpCode::Sqrt>},
    {onnxDomain, "Sub", 1, direct<OpCode::Sub>},
    {onnxDomain, "Sum", 1, fold<OpCode::Add>},
    {onnxDomain, "Swish", 24, swish},
    {onnxDomain, "Tanh", 1, direct<OpCode::Tanh>},
    {onnxDomain, "ThresholdedRelu", 10, thresholdedRelu},
    {onnxDomain, "Where", 1, direct<OpCode::Where>},
    {onnxDomain, "Xor", 1, direct<OpCode::Xor>},

    // Constants and shapes
    {onnxDomain, "Concat", 1, concatOp},
    {onnxDomain, "Constant", 1, constantOp},
    {onnxDomain, "ConstantOfShape", 1, constantOfShape},
    {onnxDomain, "Expand", 1, direct<OpCode::Expand>},
    {onnxDomain, "EyeLike", 1, eyeLike},
    {onnxDomain, "Flatten", 1, flatten},
    {onnxDomain, "Pad", 11, pad},
    {onnxDomain, "Range", 11, range},
    {onnxDomain, "Reshape", 1, reshapeOp},
    {onnxDomain, "Shape", 1, shapeOp},
    {onnxDomain, "Size", 1, sizeOp},
    {onnxDomain, "Slice", 10, direct<OpCode::Slice>},
    {onnxDomain, "Split", 1, splitByAttr},
    {onnxDomain, "Split", 13, split},
    {onnxDomain, "Squeeze", 1, squeezeByAttr},
    {onnxDomain, "Squeeze", 13, squeezeOp},
    {onnxDomain, "Tile", 1, direct<OpCode::Tile>},
    {onnxDomain, "Transpose", 1, transposeOp},
    {onnxDomain, "Trilu", 14, trilu},
    {onnxDomain, "Unsqueeze", 1, unsqueezeByAttr},
    {onnxDomain, "Unsqueeze", 13, unsqueezeOp},

    // Sequences of known elements
    {onnxDomain, "ConcatFromSequence", 11, concatFromSequence},
    {onnxDomain, "SequenceAt", 11, sequenceAt},
    {onnxDomain, "SequenceConstruct", 11, sequenceConstruct},
    {onnxDomain, "SequenceEmpty", 11, sequenceEmpty},
    {onnxDomain, "SequenceInsert", 11, sequenceInsert},
    {onnxDomain, "SequenceLength", 11, sequenceLength},
    {onnxDomain, "SplitToSequence", 11, splitToSequence},

    // Indexing and reductions
    {onnxDomain, "ArgMax", 1, argMax},
    {onnxDomain, "CumSum", 11, cumSum},
    {onnxDomain, "Gather", 1, gather},
    {onnxDomain, "GatherElements", 11, gatherElements},
    {onnxDomain, "GatherND", 11, gatherND},
    {onnxDomain, "NonZero", 1, direct<OpCode::NonZero>},
    {onnxDomain, "OneHot", 1, oneHot},
    {onnxDomain, "ReduceL1", 1, composedByAttr<ComposedReduction::L1>},
    {onnxDomain, "ReduceL1", 18, composedByInput<ComposedReduction::L1>},
    {onnxDomain, "ReduceL2", 1, composedByAttr<ComposedReduction::L2>},
    {onnxDomain, "ReduceL2", 18, composedByInput<ComposedReduction::L2>},
    {onnxDomain, "ReduceLogSum", 1, composedByAttr<ComposedReduction::LogSum>},
    {onnxDomain, "ReduceLogSum", 18, composedByInput<ComposedReduction::LogSum>},
    {onnxDomain, "ReduceLogSumExp", 1, composedByAttr<ComposedReduction::LogSumExp>},
    {onnxDomain, "ReduceLogSumExp", 18, composedByInput<ComposedReduction::LogSumExp>},
    {onnxDomain, "ReduceMax", 1, reduceByAttr<OpCode::ReduceMax>},
    {onnxDomain, "ReduceMax", 18, reduceByInput<OpCode::ReduceMax>},
    {onnxDomain, "ReduceMean", 1, reduceByAttr<OpCode::ReduceMean>},
    {onnxDomain, "ReduceMean", 18, reduceByInput<OpCode::ReduceMean>},
    {onnxDomain, "ReduceMin", 1, reduceByAttr<OpCode::ReduceMin>},
    {onnxDomain, "ReduceMin", 18, reduceByInput<OpCode::ReduceMin>},
    {onnxDomain, "ReduceProd", 1, reduceByAttr<OpCode::ReduceProd>},
    {onnxDomain, "ReduceProd", 18, reduceByInput<OpCode::ReduceProd>},
    {onnxDomain, "ReduceSum", 1, reduceByAttr<OpCode::ReduceSum>},
    {onnxDomain, "ReduceSum", 13, reduceByInput<OpCode::ReduceSum>},
    {onnxDomain, "ReduceSumSquare", 1, composedByAttr<ComposedReduction::SumSquare>},
    {onnxDomain, "ReduceSumSquare", 18, composedByInput<ComposedReduction::SumSquare>},
    {onnxDomain, "ScatterElements", 11, scatterElements},
    {onnxDomain, "ScatterND", 11, scatterND},
    {onnxDomain, "TensorScatter", 24, tensorScatter},
    {onnxDomain, "TopK", 10, topK},

    // Linear algebra and normalisation. ONNX Runtime's optimizer writes LayerNormalization and
    // SimplifiedLayerNormalization in ONNX's domain whatever the opset.
    {onnxDomain, "Attention", 23, attention},
    {onnxDomain, "Conv", 1, conv},
    {onnxDomain, "Einsum", 12, einsum},
    {onnxDomain, "Gemm", 1, gemm},
    {onnxDomain, "LayerNormalization", 1, layerNorm},
    {onnxDomain, "LogSoftmax", 1, logSoftmaxFlattened},
    {onnxDomain, "LogSoftmax", 13, logSoftmax},
    {onnxDomain, "LpNormalization", 1, lpNormalization},
    {onnxDomain, "MatMul", 1, direct<OpCode::MatMul>},
    {onnxDomain, "NegativeLogLikelihoodLoss", 12, negativeLogLikelihoodLoss},
    {onnxDomain, "RMSNormalization", 23, rmsNorm},
    {onnxDomain, "RotaryEmbedding", 23, rotaryEmbedding},
    {onnxDomain, "SimplifiedLayerNormalization", 1, rmsNorm},
    {onnxDomain, "Softmax", 1, softmaxFlattened},
    {onnxDomain, "Softmax", 13, softmaxOp},
    {onnxDomain, "SoftmaxCrossEntropyLoss", 12, softmaxCrossEntropyLoss},

    // Quantisation
    {onnxDomain, "DequantizeLinear", 10, dequantizeLinear},
    {onnxDomain, "DynamicQuantizeLinear", 11, dynamicQuantizeLinear},
    {onnxDomain, "MatMulInteger", 10, matMulInteger},
    {onnxDomain, "QLinearMatMul", 10, qLinearMatMul},
    {onnxDomain, "QuantizeLinear", 10, quantizeLinear},

    // ONNX Runtime
    {microsoftDomain, "Attention", 1, contribAttention},
    {microsoftDomain, "BiasGelu", 1, biasGelu},
    {microsoftDomain, "DequantizeLinear", 1, dequantizeLinear},
    {microsoftDomain, "DynamicQuantizeMatMul", 1, dynamicQuantizeMatMul},
    {microsoftDomain, "EmbedLayerNormalization", 1, embedLayerNorm},
    {microsoftDomain, "FastGelu", 1, fastGelu},
    {microsoftDomain, "FusedMatMul", 1, fusedMatMul},
    {microsoftDomain, "GatherBlockQuantized", 1, gatherBlockQuantized},
    {microsoftDomain, "Gelu", 1, contribGelu},
    {microsoftDomain, "GroupQueryAttention", 1, groupQueryAttention},
    {microsoftDomain, "MatMulIntegerToFloat", 1, matMulIntegerToFloat},
    {microsoftDomain, "MatMulNBits", 1, matmulNBits},
    {microsoftDomain, "MultiHeadAttention", 1, multiHeadAttention},
    {microsoftDomain, "QAttention", 1, qAttention},
    {microsoftDomain, "QGemm", 1, qGemm},
    {microsoftDomain, "QLinearAdd", 1, qLinear<OpCode::Add>},
    {microsoftDomain, "QLinearMul", 1, qLinear<OpCode::Mul>},
    {microsoftDomain, "QLinearSigmoid", 1, qLinearSigmoid},
    {microsoftDomain, "QLinearSoftmax", 1, qLinearSoftmax},
    {microsoftDomain, "QuantizeLinear", 1, quantizeLinear},
    {microsoftDomain, "QuickGelu", 1, quickGelu},
    {microsoftDomain, "RotaryEmbedding", 1, contribRotaryEmbedding},
    {microsoftDomain, "SimplifiedLayerNormalization", 1, rmsNorm},
    {microsoftDomain, "SkipLayerNormalization", 1, skipLayerNorm},
    {microsoftDomain, "SkipSimplifiedLayerNormalization", 1, skipRmsNorm},
    {microsoftDomain, "TransposeMatMul", 1, fusedMatMul}, // its name in older versions
};

llvm::ArrayRef<OpRow> opRows() { return rows; }

static std::string key(llvm::StringRef domain, llvm::StringRef op) {
  return (domain + "." + op).str();
}

OpLookup lookUpOp(llvm::StringRef domain, llvm::StringRef op, int64_t opset) {
  static const auto *index = [] {
    auto *m = new llvm::StringMap<llvm::SmallVector<const OpRow *, 2>>();
    for (const OpRow &r : rows)
      (*m)[key(r.domain, r.op)].push_back(&r);
    return m;
  }();
  OpLookup found;
  auto it = index->find(key(domain, op));
  if (it == index->end())
    return found;
  for (const OpRow *r : it->second) {
    if (r->since <= opset && (!found.row || r->since > found.row->since))
      found.row = r;
    if (!found.firstSince || r->since < found.firstSince)
      found.firstSince = r->since;
  }
  return found;
}

bool isKnownDomain(llvm::StringRef domain) {
  return llvm::any_of(rows, [&](const OpRow &r) { return domain == r.domain; });
}

} // namespace gpt2c
