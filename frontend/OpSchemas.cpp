#include "frontend/OpSchemas.h"

#include "frontend/OpTable.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"

namespace gpt2c {

namespace {

struct Row {
  const char *domain, *op;
  unsigned inputs;
  /// Separated by spaces; "axes:13" is one of the opsets before 13, an input since.
  const char *attributes;
};

} // namespace

static constexpr unsigned any = ~0U;

static constexpr Row schemas[] = {
    {onnxDomain, "Abs", 1, ""},
    {onnxDomain, "Add", 2, ""},
    {onnxDomain, "And", 2, ""},
    {onnxDomain, "Atan", 1, ""},
    {onnxDomain, "Cast", 1, "round_mode saturate to"},
    {onnxDomain, "CastLike", 2, "round_mode saturate"},
    {onnxDomain, "Ceil", 1, ""},
    {onnxDomain, "Celu", 1, "alpha"},
    {onnxDomain, "Clip", 3, "max:11 min:11"},
    {onnxDomain, "Cos", 1, ""},
    {onnxDomain, "Div", 2, ""},
    {onnxDomain, "Dropout", 3, "ratio:12 seed"},
    {onnxDomain, "Elu", 1, "alpha"},
    {onnxDomain, "Equal", 2, ""},
    {onnxDomain, "Erf", 1, ""},
    {onnxDomain, "Exp", 1, ""},
    {onnxDomain, "Floor", 1, ""},
    {onnxDomain, "Gelu", 1, "approximate"},
    {onnxDomain, "Greater", 2, ""},
    {onnxDomain, "GreaterOrEqual", 2, ""},
    {onnxDomain, "HardSigmoid", 1, "alpha beta"},
    {onnxDomain, "HardSwish", 1, ""},
    {onnxDomain, "Identity", 1, ""},
    {onnxDomain, "IsInf", 1, "detect_negative detect_positive"},
    {onnxDomain, "IsNaN", 1, ""},
    {onnxDomain, "LeakyRelu", 1, "alpha"},
    {onnxDomain, "Less", 2, ""},
    {onnxDomain, "LessOrEqual", 2, ""},
    {onnxDomain, "Log", 1, ""},
    {onnxDomain, "Max", any, ""},
    {onnxDomain, "Mean", any, ""},
    {onnxDomain, "Min", any, ""},
    {onnxDomain, "Mish", 1, ""},
    {onnxDomain, "Mod", 2, "fmod"},
    {onnxDomain, "Mul", 2, ""},
    {onnxDomain, "Neg", 1, ""},
    {onnxDomain, "Not", 1, ""},
    {onnxDomain, "Or", 2, ""},
    {onnxDomain, "Pow", 2, ""},
    {onnxDomain, "PRelu", 2, ""},
    {onnxDomain, "Reciprocal", 1, ""},
    {onnxDomain, "Relu", 1, ""},
    {onnxDomain, "Round", 1, ""},
    {onnxDomain, "Selu", 1, "alpha gamma"},
    {onnxDomain, "Sigmoid", 1, ""},
    {onnxDomain, "Sign", 1, ""},
    {onnxDomain, "Sin", 1, ""},
    {onnxDomain, "Softplus", 1, ""},
    {onnxDomain, "Softsign", 1, ""},
    {onnxDomain, "Sqrt", 1, ""},
    {onnxDomain, "Sub", 2, ""},
    {onnxDomain, "Sum", any, ""},
    {onnxDomain, "Swish", 1, "alpha"},
    {onnxDomain, "Tanh", 1, ""},
    {onnxDomain, "ThresholdedRelu", 1, "alpha"},
    {onnxDomain, "Where", 3, ""},
    {onnxDomain, "Xor", 2, ""},
    {onnxDomain, "Concat", any, "axis"},
    {onnxDomain, "Constant", 0,
     "sparse_value value value_float value_floats "
     "value_int value_ints value_string value_strings"},
    {onnxDomain, "ConstantOfShape", 1, "value"},
    {onnxDomain, "Expand", 2, ""},
    {onnxDomain, "EyeLike", 1, "dtype k"},
    {onnxDomain, "Flatten", 1, "axis"},
    {onnxDomain, "Pad", 4, "mode pads:11 value:11"},
    {onnxDomain, "Range", 3, ""},
    {onnxDomain, "Reshape", 2, "allowzero"},
    {onnxDomain, "Shape", 1, "end start"},
    {onnxDomain, "Size", 1, ""},
    {onnxDomain, "Slice", 5, ""},
    {onnxDomain, "Split", 2, "axis num_outputs split:13"},
    {onnxDomain, "Squeeze", 2, "axes:13"},
    {onnxDomain, "Tile", 2, ""},
    {onnxDomain, "Transpose", 1, "perm"},
    {onnxDomain, "Trilu", 2, "upper"},
    {onnxDomain, "Unsqueeze", 2, "axes:13"},
    {onnxDomain, "ConcatFromSequence", 1, "axis new_axis"},
    {onnxDomain, "SequenceAt", 2, ""},
    {onnxDomain, "SequenceConstruct", any, ""},
    {onnxDomain, "SequenceEmpty", 0, "dtype"},
    {onnxDomain, "SequenceInsert", 3, ""},
    {onnxDomain, "SequenceLength", 1, ""},
    {onnxDomain, "SplitToSequence", 2, "axis keepdims"},
    {onnxDomain, "ArgMax", 1, "axis keepdims select_last_index"},
    {onnxDomain, "CumSum", 2, "exclusive reverse"},
    {onnxDomain, "Gather", 2, "axis"},
    {onnxDomain, "GatherElements", 2, "axis"},
    {onnxDomain, "GatherND", 2, "batch_dims"},
    {onnxDomain, "NonZero", 1, ""},
    {onnxDomain, "OneHot", 3, "axis"},
    {onnxDomain, "ReduceL1", 2, "axes:18 keepdims noop_with_empty_axes"},
    {onnxDomain, "ReduceL2", 2, "axes:18 keepdims noop_with_empty_axes"},
    {onnxDomain, "ReduceLogSum", 2, "axes:18 keepdims noop_with_empty_axes"},
    {onnxDomain, "ReduceLogSumExp", 2, "axes:18 keepdims noop_with_empty_axes"},
    {onnxDomain, "ReduceMax", 2, "axes:18 keepdims noop_with_empty_axes"},
    {onnxDomain, "ReduceMean", 2, "axes:18 keepdims noop_with_empty_axes"},
    {onnxDomain, "ReduceMin", 2, "axes:18 keepdims noop_with_empty_axes"},
    {onnxDomain, "ReduceProd", 2, "axes:18 keepdims noop_with_empty_axes"},
    {onnxDomain, "ReduceSum", 2, "axes:13 keepdims noop_with_empty_axes"},
    {onnxDomain, "ReduceSumSquare", 2, "axes:18 keepdims noop_with_empty_axes"},
    {onnxDomain, "ScatterElements", 3, "axis reduction"},
    {onnxDomain, "ScatterND", 3, "reduction"},
    {onnxDomain, "TensorScatter", 3, "axis mode"},
    {onnxDomain, "TopK", 2, "axis largest sorted"},
    {onnxDomain, "Attention", 7,
     "is_causal kv_num_heads q_num_heads "
     "qk_matmul_output_mode scale softcap softmax_precision"},
    {onnxDomain, "Conv", 3, "auto_pad dilations group kernel_shape pads strides"},
    {onnxDomain, "Einsum", any, "equation"},
    {onnxDomain, "Gemm", 3, "alpha beta transA transB"},
    {onnxDomain, "LayerNormalization", 3, "axis epsilon stash_type"},
    {onnxDomain, "LogSoftmax", 1, "axis"},
    {onnxDomain, "LpNormalization", 1, "axis p"},
    {onnxDomain, "NegativeLogLikelihoodLoss", 3, "ignore_index reduction"},
    {onnxDomain, "SoftmaxCrossEntropyLoss", 3, "ignore_index reduction"},
    {onnxDomain, "MatMul", 2, ""},
    {onnxDomain, "RMSNormalization", 2, "axis epsilon stash_type"},
    {onnxDomain, "RotaryEmbedding", 4, "interleaved num_heads rotary_embedding_dim"},
    {onnxDomain, "SimplifiedLayerNormalization", 2, "axis epsilon stash_type"},
    {onnxDomain, "Softmax", 1, "axis"},
    {onnxDomain, "DequantizeLinear", 3, "axis block_size output_dtype"},
    {onnxDomain, "DynamicQuantizeLinear", 1, ""},
    {onnxDomain, "MatMulInteger", 4, ""},
    {onnxDomain, "QLinearMatMul", 8, ""},
    {onnxDomain, "QuantizeLinear", 3, "axis block_size output_dtype precision saturate"},
    {microsoftDomain, "Attention", 7,
     "do_rotary mask_filter_value num_heads past_present_share_buffer "
     "qkv_hidden_sizes rotary_embedding_dim scale unidirectional"},
    {microsoftDomain, "BiasGelu", 2, ""},
    {microsoftDomain, "DequantizeLinear", 3, "axis"},
    {microsoftDomain, "DynamicQuantizeMatMul", 5, ""},
    {microsoftDomain, "EmbedLayerNormalization", 9, "epsilon mask_index_type"},
    {microsoftDomain, "FastGelu", 2, ""},
    {microsoftDomain, "FusedMatMul", 2, "alpha transA transB transBatchA transBatchB"},
    {microsoftDomain, "GatherBlockQuantized", 4, "bits block_size gather_axis quantize_axis"},
    {microsoftDomain, "Gelu", 1, ""},
    {microsoftDomain, "GroupQueryAttention", 17,
     "causal do_rotary k_norm_epsilon k_quant_type kv_cache_bit_width kv_num_heads "
     "local_window_size num_heads q_norm_epsilon qk_norm_epsilon qk_output rotary_interleaved "
     "scale sliding_window_cache smooth_softmax softcap v_quant_type"},
    {microsoftDomain, "MatMulIntegerToFloat", 7, ""},
    {microsoftDomain, "MatMulNBits", 6, "K N accuracy_level bits block_size weight_prepacked"},
    {microsoftDomain, "MultiHeadAttention", 10, "mask_filter_value num_heads scale unidirectional"},
    {microsoftDomain, "QAttention", 9,
     "do_rotary mask_filter_value num_heads past_present_share_buffer "
     "rotary_embedding_dim scale unidirectional"},
    {microsoftDomain, "QGemm", 9, "alpha transA transB"},
    {microsoftDomain, "QLinearAdd", 8, ""},
    {microsoftDomain, "QLinearMul", 8, ""},
    {microsoftDomain, "QLinearSigmoid", 5, ""},
    {microsoftDomain, "QLinearSoftmax", 5, "axis opset"},
    {microsoftDomain, "QuantizeLinear", 3, "axis"},
    {microsoftDomain, "QuickGelu", 1, "alpha"},
    {microsoftDomain, "RotaryEmbedding", 4,
     "interleaved is_packed_batching num_heads rotary_embedding_dim scale"},
    {microsoftDomain, "SimplifiedLayerNormalization", 2, "axis epsilon stash_type"},
    {microsoftDomain, "SkipLayerNormalization", 5, "epsilon"},
    {microsoftDomain, "SkipSimplifiedLayerNormalization", 4, "epsilon"},
    {microsoftDomain, "TransposeMatMul", 2, "alpha transA transB"},
};

static const Row *findRow(llvm::StringRef domain, llvm::StringRef op) {
  static const auto *index = [] {
    auto *m = new llvm::StringMap<const Row *>();
    for (const Row &r : schemas)
      (*m)[(llvm::Twine(r.domain) + "." + r.op).str()] = &r;
    return m;
  }();
  return index->lookup((domain + "." + op).str());
}

std::optional<std::string> schemaMismatch(llvm::StringRef domain, const onnx::NodeProto &node,
                                          int64_t opset) {
  const Row *row = findRow(domain, node.op_type());
  if (!row)
    return std::nullopt;
  if (unsigned(node.input_size()) > row->inputs)
    return "has " + std::to_string(node.input_size()) + " inputs, its operator has at most " +
           std::to_string(row->inputs);
  llvm::SmallVector<llvm::StringRef> known;
  llvm::StringRef(row->attributes).split(known, ' ', -1, false);
  llvm::StringMap<int64_t> ends;
  for (llvm::StringRef &name : known) {
    auto [plain, end] = name.split(':');
    int64_t since = 0;
    if (!end.getAsInteger(10, since))
      ends[plain] = since;
    name = plain;
  }
  for (const onnx::AttributeProto &a : node.attribute())
    if (auto end = ends.find(a.name()); end != ends.end() && opset >= end->second)
      return "has an attribute '" + a.name() + "', which is an input since opset " +
             std::to_string(end->second) + "; the model's is " + std::to_string(opset);
    else if (!llvm::is_contained(known, llvm::StringRef(a.name())))
      return "has an attribute '" + a.name() + "', which its operator does not have" +
             (known.empty() ? "" : " (it has " + llvm::join(known, ", ") + ")");
  return std::nullopt;
}

} // namespace gpt2c
