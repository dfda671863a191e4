"""Writes onnx-ops/*.onnx: one small model per operator form, with inputs and ONNX Runtime's outputs inside.

A table of all forms. Run by hand when cases are added:  python make_onnx_ops.py [NAME...]   (needs onnx, onnxruntime, numpy)

Each file is a complete model. Its metadata holds the test data: "input:0", "output:0", ... are TensorProtos in base64.
Operators that ONNX Runtime does not have for an opset are checked against onnx.reference instead.
"""

import sys

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from onnx_ops_common import (BOOL, CASES, F, I32, I64, MS, OUT, RNG, case, ints, model, onnx_type,
                             rand, write)

X34, X234 = rand(3, 4), rand(2, 3, 4)

# Elementwise
for op, opset in [("Abs", 13), ("Ceil", 13), ("Cos", 7), ("Erf", 13), ("Exp", 13), ("Floor", 13), ("Neg", 13),
                  ("Relu", 14), ("Sigmoid", 13), ("Sign", 13), ("Sin", 7), ("Tanh", 13), ("Identity", 13)]:
    case(op.lower(), op, [X34 * 2], max(opset, 10))
for op in ["Log", "Sqrt", "Reciprocal"]:
    case(op.lower(), op, [np.abs(X34) + F(0.1)], 13)
for op in ["Add", "Sub", "Mul", "Div"]:
    case(op.lower(), op, [X234, rand(3, 1) + F(2)], 14)
    case(op.lower() + "_int", op, [RNG.integers(-9, 9, (2, 3)), RNG.integers(1, 9, (3,))], 14)
for op in ["And", "Or", "Xor"]:
    case(op.lower(), op, [X34 > 0, rand(4) > 0], 10)
case("not", "Not", [X34 > 0], 10)
for op in ["Equal", "Less", "Greater"]:
    case(op.lower(), op, [RNG.integers(0, 3, (3, 4)), RNG.integers(0, 3, (4,))], 11)
for op in ["LessOrEqual", "GreaterOrEqual"]:
    case(op.lower(), op, [RNG.integers(0, 3, (3, 4)), RNG.integers(0, 3, (4,))], 12)
case("isnan", "IsNaN", [np.array([1, np.nan, np.inf, -np.inf], F)], 13)
case("isinf", "IsInf", [np.array([1, np.nan, np.inf, -np.inf], F)], 10)
case("isinf_positive", "IsInf", [np.array([1, np.nan, np.inf, -np.inf], F)], 10, detect_negative=0)
case("isinf_negative", "IsInf", [np.array([1, np.nan, np.inf, -np.inf], F)], 10, detect_positive=0)
case("isinf_neither", "IsInf", [np.array([1, np.nan, np.inf, -np.inf], F)], 10, detect_positive=0, detect_negative=0)
case("cast_to_int", "Cast", [X34 * 3], 13, to=TensorProto.INT64)
case("cast_to_bool", "Cast", [np.array([0, 1, -2.5], F)], 13, to=TensorProto.BOOL)
case("cast_half", "Cast", [X34], 13, to=TensorProto.FLOAT16)
case("castlike", "CastLike", [X34 * 3, ints(1)], 15)
case("clip_10", "Clip", [X34], 10, min=-0.5, max=0.25)
case("clip_10_max", "Clip", [X34], 10, max=0.25)
case("clip_13", "Clip", [X34, np.array(-0.5, F), np.array(0.25, F)], 13)
case("clip_13_max", "Clip", [X34, None, np.array(0.25, F)], 13)
case("clip_13_int", "Clip", [ints(-3, 0, 9), np.array(-1, I64), np.array(4, I64)], 13)
case("dropout_10", "Dropout", [X34], 10)
case("dropout_13", "Dropout", [X34, np.array(0.5, F), np.array(False)], 13, outputs=2, constants=[1, 2])
case("gelu_none", "Gelu", [X34], 20)
case("gelu_tanh", "Gelu", [X34], 20, approximate="tanh")
for op in ["Max", "Min", "Sum", "Mean"]:
    case(op.lower() + "_3", op, [X234, rand(3, 4), rand(1, 4)], 13)
    case(op.lower() + "_1", op, [X234], 13)
case("mod_int", "Mod", [ints(-7, -1, 5, 9), ints(3, 3, -3, 4)], 13)
case("mod_float", "Mod", [np.array([-7.5, 5.25, 9], F), np.array([3, -3, 4], F)], 13, fmod=1)
case("pow_float", "Pow", [np.abs(X34), np.array(2.5, F)], 13)
case("pow_float_int", "Pow", [X34, np.array(3, I64)], 13)
case("pow_int_float", "Pow", [ints(1, 2, 3), np.array(2, F)], 13)
case("where", "Where", [X34 > 0, X34, np.array(0, F)], 10)

# Shapes
case("concat", "Concat", [X234, rand(2, 1, 4)], 13, axis=1)
case("concat_negative", "Concat", [X234, rand(2, 3, 2)], 13, axis=-1)
case("constantofshape", "ConstantOfShape", [ints(2, 3)], 10)
case("constantofshape_int", "ConstantOfShape", [ints(2, 3)], 10, value=numpy_helper.from_array(ints(7)))
case("expand", "Expand", [rand(3, 1), ints(2, 1, 4)], 13)
case("eyelike", "EyeLike", [rand(3, 4)], 10, k=1)
case("eyelike_int", "EyeLike", [rand(3, 4)], 10, k=-1, dtype=TensorProto.INT64)
for axis in [0, 1, 2, 3, -1]:
    case(f"flatten_{axis}".replace("-", "m"), "Flatten", [X234], 13, axis=axis, dims={"x0": ["a", 3, 4]})
case("flatten_symbolic", "Flatten", [X234], 13, axis=2, dims={"x0": ["a", "b", "c"]})
case("pad", "Pad", [X34, ints(1, 0, 2, 3), np.array(9, F)], 13, constants=[1])
case("pad_axes", "Pad", [X234, ints(1, 2), None, ints(-1)], 18, constants=[1, 3])
case("range", "Range", [np.array(2, I64), np.array(11, I64), np.array(3, I64)], 11)
case("range_float", "Range", [np.array(2, F), np.array(1, F), np.array(-0.25, F)], 11)
case("reshape", "Reshape", [X234, ints(0, -1)], 13)
case("reshape_14_zero", "Reshape", [rand(0, 3), ints(3, 0)], 14, allowzero=1)
case("shape", "Shape", [X234], 13)
case("shape_15", "Shape", [X234], 15, start=-2, end=100)
case("shape_15_empty", "Shape", [X234], 15, start=2, end=1)
case("size", "Size", [X234], 13)
case("slice", "Slice", [X234, ints(1, -3), ints(2**60, -1), ints(1, 2)], 13)
case("slice_steps", "Slice", [rand(10, 6), ints(8, 0), ints(-(2**60), 5), ints(0, 1), ints(-3, 2)], 13)
case("slice_default_axes", "Slice", [X234, ints(1, 0, 1), ints(2, 2, 3)], 11)
case("split_11", "Split", [rand(2, 6)], 11, outputs=3, axis=1)
case("split_11_sizes", "Split", [rand(2, 6)], 11, outputs=2, axis=-1, split=[2, 4])
case("split_13_sizes", "Split", [rand(2, 6), ints(1, 5)], 13, outputs=2, constants=[1], axis=1)
case("split_13", "Split", [rand(6, 2)], 13, outputs=2)
case("split_18", "Split", [rand(7, 2)], 18, outputs=3, num_outputs=3)
case("split_symbolic", "Split", [rand(6, 4)], 13, outputs=2, axis=1, dims={"x0": ["n", 4]})
case("squeeze_11", "Squeeze", [rand(1, 3, 1)], 11, axes=[0])
case("squeeze_11_all", "Squeeze", [rand(1, 3, 1)], 11)
case("squeeze_13", "Squeeze", [rand(1, 3, 1), ints(-1)], 13, constants=[1])
case("squeeze_13_all", "Squeeze", [rand(1, 3, 1)], 13)
case("tile", "Tile", [X34, ints(2, 3)], 13)
case("transpose", "Transpose", [X234], 13)
case("transpose_perm", "Transpose", [X234], 13, perm=[1, 2, 0])
case("trilu_upper", "Trilu", [rand(2, 4, 5), np.array(1, I64)], 14)
case("trilu_lower", "Trilu", [rand(4, 5)], 14, upper=0)
case("unsqueeze_11", "Unsqueeze", [X34], 11, axes=[0, 2])
case("unsqueeze_13", "Unsqueeze", [X34, ints(-1, 0)], 13, constants=[1])

# Indexing and reductions
case("argmax", "ArgMax", [X234], 13, axis=1)
case("argmax_last", "ArgMax", [np.round(X234)], 13, axis=-1, keepdims=0, select_last_index=1)
case("cumsum", "CumSum", [X34, np.array(1, I64)], 14)
case("cumsum_exclusive_reverse", "CumSum", [X34, np.array(-2, I64)], 14, exclusive=1, reverse=1)
case("gather", "Gather", [X234, ints(2, -1, 0)], 13, axis=1)
case("gather_scalar", "Gather", [X234, np.array(-1, I64)], 13)
case("gatherelements", "GatherElements", [X34, RNG.integers(-3, 3, (2, 4))], 13, axis=0)
case("gathernd", "GatherND", [X234, RNG.integers(0, 2, (5, 2))], 13)
case("gathernd_batch", "GatherND", [X234, RNG.integers(0, 3, (2, 1))], 13, batch_dims=1)
case("nonzero", "NonZero", [np.array([[0, 1], [2, 0]], F)], 13)
case("onehot", "OneHot", [ints(0, 2, -1), np.array(4, I64), np.array([0, 5], F)], 11)
case("onehot_axis", "OneHot", [ints(0, 2, -1), np.array(4, I64), np.array([0, 5], F)], 11, axis=0, constants=[1])
case("scatternd", "ScatterND", [X34, np.array([[0], [2]], I64), rand(2, 4)], 16)
for op in ["ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"]:
    case(op.lower() + "_11", op, [X234], 11, axes=[-1])
    case(op.lower() + "_11_all", op, [X234], 11, keepdims=0)
    case(op.lower() + "_18", op, [X234, ints(0, 2)], 18, constants=[1], keepdims=0)
    case(op.lower() + "_18_all", op, [X234], 18)
    case(op.lower() + "_18_noop", op, [X234], 18, noop_with_empty_axes=1)
case("reducesum_13", "ReduceSum", [X234, ints(1)], 13, constants=[1])

# Linear algebra and normalisation
case("gemm", "Gemm", [X34, rand(4, 5), rand(5)], 13)
case("gemm_scaled", "Gemm", [rand(4, 3), rand(5, 4), rand(3, 5)], 13, alpha=0.5, beta=2.0, transA=1, transB=1)
case("gemm_no_c", "Gemm", [X34, rand(4, 5)], 11)
case("matmul", "MatMul", [rand(2, 1, 3, 4), rand(5, 4, 2)], 13)
case("matmul_vector", "MatMul", [rand(4), rand(5, 4, 2)], 13)
W4, B4 = rand(4), rand(4)
case("layernorm", "LayerNormalization", [X234, W4, B4], 17, epsilon=1e-3)
case("layernorm_no_bias", "LayerNormalization", [X234, W4], 17)
case("layernorm_axis", "LayerNormalization", [X234, rand(3, 4), rand(3, 4)], 17, axis=1)
case("layernorm_outputs", "LayerNormalization", [X234, W4, B4], 17, outputs=3)
case("simplifiedlayernorm", "SimplifiedLayerNormalization", [X234, W4], 13)
case("rmsnorm", "RMSNormalization", [X234, W4], 23, reference=True)
for axis in [0, 1, 2, -1]:
    case(f"softmax_11_{axis}".replace("-", "m"), "Softmax", [X234], 11, axis=axis)
    case(f"softmax_13_{axis}".replace("-", "m"), "Softmax", [X234], 13, axis=axis)
case("softmax_11_default", "Softmax", [X234], 11, dims={"x0": ["a", "b", 4]})
case("softmax_13_default", "Softmax", [X234], 13)
case("logsoftmax_11", "LogSoftmax", [X234], 11, axis=1)
case("logsoftmax_13", "LogSoftmax", [X234 * 50], 13, axis=1)

# ONNX Attention. ONNX Runtime 1.31 and onnx.reference agree on bottom-right causal masks and on zeros for masked rows.
Q, K, V = rand(2, 4, 3, 8), rand(2, 4, 5, 8), rand(2, 4, 5, 6)
Q3, K3, V3 = rand(2, 3, 32), rand(2, 5, 32), rand(2, 5, 24)
MASK = RNG.random((3, 5)) > 0.4
MASK[1] = False


def attention(name, inputs, outputs=1, **attrs):
    case("attention_" + name, "Attention", inputs, 23, outputs=outputs, reference=True, **attrs)


attention("4d", [Q, K, V])
attention("3d", [Q3, K3, V3], q_num_heads=4, kv_num_heads=4)
attention("scale", [Q, K, V], scale=0.3)
attention("causal", [Q, K[:, :, :3], V[:, :, :3]], is_causal=1)
attention("bool_mask", [Q, K, V, MASK])
attention("float_mask", [Q, K, V, rand(2, 1, 3, 5)])
attention("mask_causal", [Q, K, V, RNG.random((2, 4, 3, 5)) > 0.3], is_causal=1)
attention("short_mask", [Q, K, V, MASK[:, :4]])
attention("past", [Q, K[:, :, :3], V[:, :, :3], None, rand(2, 4, 2, 8), rand(2, 4, 2, 6)], outputs=3, is_causal=1)
attention("grouped", [Q, K[:, :2], V[:, :2]])
attention("grouped_3d", [Q3, K3[:, :, :16], V3[:, :, :12]], q_num_heads=4, kv_num_heads=2)
attention("precision", [Q, K, V], softmax_precision=TensorProto.DOUBLE)

# ONNX Runtime's operators
case("fastgelu", "FastGelu", [X34], 13, domain=MS)
case("fastgelu_bias", "FastGelu", [X34, B4], 13, domain=MS)
case("biasgelu", "BiasGelu", [X34, B4], 13, domain=MS)
case("ms_gelu", "Gelu", [X34], 13, domain=MS)
case("quickgelu", "QuickGelu", [X34], 13, domain=MS, alpha=1.5)
case("fusedmatmul", "FusedMatMul", [rand(2, 4, 3), rand(2, 5, 4)], 13, domain=MS, alpha=0.5, transA=1, transB=1)
case("transposematmul", "TransposeMatMul", [rand(2, 4, 3), rand(2, 4, 5)], 13, domain=MS, transA=1)
case("skiplayernorm", "SkipLayerNormalization", [X234, rand(2, 3, 4), W4, B4, rand(4)], 13, domain=MS,
     outputs=["y", "", "", "sum"], epsilon=1e-5)
case("skiplayernorm_plain", "SkipLayerNormalization", [X234, rand(2, 3, 4), W4], 13, domain=MS)
case("skiprmsnorm", "SkipSimplifiedLayerNormalization", [X234, rand(2, 3, 4), W4, rand(4)], 13, domain=MS,
     outputs=["y", "", "", "sum"])
IDS = RNG.integers(0, 9, (2, 3)).astype(I32)
case("embedlayernorm", "EmbedLayerNormalization", [IDS, None, rand(9, 4), rand(6, 4), None, W4, B4], 13, domain=MS,
     outputs=["y", "mask"])
case("embedlayernorm_all", "EmbedLayerNormalization",
     [IDS, (IDS % 2).astype(I32), rand(9, 4), rand(6, 4), rand(2, 4), W4, B4,
      np.array([[1, 1, 0], [1, 1, 1]], I32), np.array([[0, 1, 2], [3, 4, 5]], I32)], 13, domain=MS,
     outputs=["y", "mask", "sum"])


def contrib(name, inputs, outputs=1, **attrs):
    case("ms_attention_" + name, "Attention", inputs, 13, domain=MS, outputs=outputs, num_heads=2, **attrs)


AX, AW, AB = rand(2, 3, 8), rand(8, 24), rand(24)
PAST = rand(2, 2, 2, 4, 4)
contrib("plain", [AX, AW, AB])
contrib("causal", [AX, AW, AB], unidirectional=1)
contrib("scale", [AX, AW, AB], scale=0.7)
contrib("past", [AX, AW, AB, None, PAST], outputs=2, unidirectional=1)
contrib("mask_2d", [AX, AW, AB, np.array([[1, 1, 1, 0, 1, 1, 1], [0, 1, 1, 1, 1, 1, 0]], I32), PAST], outputs=2,
        unidirectional=1)
contrib("mask_lengths", [AX, AW, AB, np.array([2, 3], I32)])
contrib("mask_ends_starts", [AX, AW, AB, np.array([2, 3, 0, 1], I32)])
contrib("mask_3d", [AX, AW, AB, (RNG.random((2, 3, 3)) > 0.4).astype(I32)])
contrib("mask_filter", [AX, AW, AB, np.array([[1, 1, 0], [1, 0, 0]], I32)], mask_filter_value=-3.0)
contrib("sizes", [AX, rand(8, 22), rand(22)], qkv_hidden_sizes=[8, 8, 6])
contrib("bias", [AX, AW, AB, None, None, rand(2, 2, 3, 3)])


def constants():
    """All spellings of Constant."""
    node = lambda out, **kw: helper.make_node("Constant", [], [out], **kw)
    nodes = [
        node("t", value=numpy_helper.from_array(X34)),
        node("f", value_float=1.5),
        node("fs", value_floats=[1.5, -2.0]),
        node("i", value_int=7),
        node("is", value_ints=[3, -4]),
        helper.make_node("Identity", ["x"], ["y"]),
    ]
    inputs = {"x": X34}
    write("constant_forms", model(nodes, inputs, ["t", "f", "fs", "i", "is", "y"], 13), inputs)


def typed_fields():
    """Initializers in typed fields instead of raw bytes, one of each element type."""
    make = helper.make_tensor
    tensors = [
        make("f32", TensorProto.FLOAT, [3], [1.5, -2, 0.25]),
        make("f64", TensorProto.DOUBLE, [2], [1e-300, 3.0]),
        make("f16", TensorProto.FLOAT16, [3], [1.5, -2.0, 65504.0]),
        make("i8", TensorProto.INT8, [3], [-128, 0, 127]),
        make("u8", TensorProto.UINT8, [2], [0, 255]),
        make("i32", TensorProto.INT32, [2], [-(2**31), 2**31 - 1]),
        make("i64", TensorProto.INT64, [2], [-(2**63), 2**63 - 1]),
        make("b", TensorProto.BOOL, [3], [True, False, True]),
        make("scalar", TensorProto.FLOAT, [], [4.0]),
        make("empty", TensorProto.FLOAT, [0, 3], []),
    ]
    names = [t.name for t in tensors]
    nodes = [helper.make_node("Identity", [n], ["y_" + n]) for n in names]
    inputs = {"x": X34}
    m = model(nodes + [helper.make_node("Identity", ["x"], ["y"])], inputs, ["y_" + n for n in names] + ["y"], 13)
    m.graph.initializer.extend(tensors)
    write("typed_fields", m, inputs)


def bfloat16():
    t = helper.make_tensor("b", TensorProto.BFLOAT16, [3], [1.5, -2.0, 3.0e38])
    m = model([helper.make_node("Cast", ["b"], ["c"], to=TensorProto.FLOAT), helper.make_node("Mul", ["c", "x"], ["y"])],
              {"x": np.array(1, F)}, ["y"], 13)
    m.graph.initializer.append(t)
    write("bfloat16", m, {"x": np.array(1, F)})


def outputs_of_all_kinds():
    """Graph outputs that are an input, an initializer, and one value twice."""
    inputs = {"x": X34}
    m = model([helper.make_node("Identity", ["x"], ["a"]), helper.make_node("Identity", ["w"], ["b"]),
               helper.make_node("Add", ["x", "w"], ["y"]), helper.make_node("Identity", ["y"], ["z"])],
              inputs, ["a", "b", "y", "z"], 13, {"w": B4})
    write("outputs_of_all_kinds", m, inputs)


def branch(nodes, out):
    return helper.make_graph(nodes, "branch", [], [onnx.ValueInfoProto(name=out)])


def if_on_shape():
    """The condition is a fact about a constant dimension; the branch reads tensors from outside."""
    inputs = {"x": X34}
    const = lambda out, v: helper.make_node("Constant", [], [out], value=numpy_helper.from_array(v))
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        const("one", np.array(1, I64)),
        helper.make_node("Gather", ["s", "one"], ["d"], axis=0),
        const("four", np.array(4, I64)),
        helper.make_node("Equal", ["d", "four"], ["c"]),
        helper.make_node("If", ["c"], ["r"], name="if",
                         then_branch=branch([helper.make_node("Mul", ["x", "w"], ["t"])], "t"),
                         else_branch=branch([helper.make_node("Neg", ["x"], ["e"])], "e")),
        helper.make_node("Add", ["r", "x"], ["y"]),
    ]
    write("if_on_shape", model(nodes, inputs, ["y"], 13, {"w": B4}, {"x": ["n", 4]}), inputs)


def local_function():
    """A function that calls another, with an attribute passed on, one left at its default and an absent input."""
    domain = "local"
    opsets = [helper.make_opsetid("", 13), helper.make_opsetid(domain, 1)]
    ref = onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT)
    scale = helper.make_node("Gemm", ["a", "b"], ["c"])
    scale.attribute.append(ref)
    inner = helper.make_function(domain, "scaled", ["a", "b"], ["c"], [scale], opsets, ["slope"])
    call = helper.make_node("scaled", ["a", "b"], ["p"], domain=domain)
    call.attribute.append(onnx.AttributeProto(name="slope", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    keep = helper.make_node("ReduceSum", ["p", "axes"], ["q"])
    keep.attribute.append(onnx.AttributeProto(name="keepdims", ref_attr_name="keep", type=onnx.AttributeProto.INT))
    outer = helper.make_function(domain, "outer", ["a", "b", "axes"], ["p", "q"], [call, keep], opsets, ["slope"],
                                 [helper.make_attribute("keep", 0)])
    inputs = {"x": X34}
    nodes = [helper.make_node("outer", ["x", "w"], ["p", "q"], domain=domain, slope=0.5, name="call"),
             helper.make_node("outer", ["x", "w"], ["r", "s"], domain=domain, slope=2.0, keep=1, name="again")]
    m = model(nodes, inputs, ["p", "q", "r", "s"], 13, {"w": rand(4, 2)}, functions=[inner, outer])
    write("local_function", m, inputs)


# Quantisation. Ties go to the even integer, what does not fit saturates; zero points are absent, of u8 and of i8.
I8, U8 = np.int8, np.uint8
QX = np.concatenate([np.array([0.5, 1.5, -0.5, -2.5, 1000, -1000, 0.0, 12.4], F), rand(16) * F(20)]).reshape(2, 3, 4)
QW = RNG.integers(-128, 128, (4, 5)).astype(I8)
QA = RNG.integers(0, 256, (2, 3, 4)).astype(U8)
S, SN = F(0.25), np.array([0.5, 0.25, 0.125], F)
for domain, prefix, opset in [("", "", 10), ("", "", 13), ("", "", 19), ("", "", 21), (MS, "contrib_", 13)]:
    if opset in (10, 13):
        case(f"{prefix}quantizelinear_{opset}", "QuantizeLinear", [QX, np.array(1, F)], opset, domain=domain)
    for t, z in (("u8", U8(100)), ("i8", I8(-3))):
        case(f"{prefix}quantizelinear_{opset}_{t}", "QuantizeLinear", [QX, S, z], opset, domain=domain)
        case(f"{prefix}dequantizelinear_{opset}_{t}", "DequantizeLinear", [QA.astype(type(z)), S, z], opset, domain=domain)
case("quantizelinear_axis", "QuantizeLinear", [QX, SN, np.array([0, 128, 255], U8)], 13)
case("quantizelinear_axis_last", "QuantizeLinear", [QX[:, :, :3], SN, np.array([0, -128, 127], I8)], 13, axis=-1)
case("quantizelinear_one", "QuantizeLinear", [QX, np.array([0.5], F), np.array([7], U8)], 13)
case("quantizelinear_int", "QuantizeLinear", [np.array([-300, 3, 5, 700], I32), F(2), U8(9)], 10, reference=True)
case("quantizelinear_half", "QuantizeLinear", [QX.astype(np.float16), np.float16(0.25), U8(9)], 19)
case("quantizelinear_output_dtype", "QuantizeLinear", [QX, S], 21, output_dtype=TensorProto.INT8)
case("dequantizelinear_axis", "DequantizeLinear", [QW, np.array([0.5, 0.25, 2, 1], F), np.array([0, 3, -3, 127], I8)], 13, axis=0)
case("dequantizelinear_bias", "DequantizeLinear", [np.array([-70000, 3, 2**24], I32), F(0.003)], 10)
case("dequantizelinear_half", "DequantizeLinear", [QW, np.float16(0.25), I8(1)], 19)
case("dynamicquantizelinear", "DynamicQuantizeLinear", [rand(3, 4) * F(3) + F(1)], 11, outputs=3)
case("dynamicquantizelinear_positive", "DynamicQuantizeLinear", [np.abs(rand(3, 4)) + F(1)], 11, outputs=3)
case("dynamicquantizelinear_zeros", "DynamicQuantizeLinear", [np.zeros((3, 4), F)], 11, outputs=3)
case("matmulinteger", "MatMulInteger", [QA, QW], 10)
case("matmulinteger_zeros", "MatMulInteger", [QA, QW, U8(128), I8(3)], 10)
case("matmulinteger_columns", "MatMulInteger", [QA, QW.view(U8), U8(9), np.array([1, 128, 255, 0, 7], U8)], 10)
case("matmulinteger_large", "MatMulInteger", [np.full((2, 300), 255, U8), np.full((300, 2), 255, U8)], 10)
QY = [F(0.5), U8(120)]
case("qlinearmatmul", "QLinearMatMul", [QA, S, U8(128), QW, F(0.01), I8(0), *QY], 10)
case("qlinearmatmul_columns", "QLinearMatMul",
     [QA, S, U8(128), QW, np.array([0.01, 0.02, 0.005, 0.01, 0.03], F), np.zeros(5, I8), *QY], 21)
case("matmulintegertofloat", "MatMulIntegerToFloat", [QA, QW, S, F(0.01), U8(128), I8(2), rand(5)], 13, domain=MS)
case("matmulintegertofloat_columns", "MatMulIntegerToFloat", [QA, QW, S, np.array([0.01, 0.02, 0.005, 0.01, 0.03], F)], 13,
     domain=MS)
case("dynamicquantizematmul", "DynamicQuantizeMatMul", [rand(2, 3, 4), QW, F(0.01), I8(0), rand(5)], 13, domain=MS)
case("qgemm", "QGemm", [QA[0], S, U8(128), QW, F(0.01), I8(0), RNG.integers(-900, 900, 5).astype(I32), *QY], 13, domain=MS)
case("qgemm_float", "QGemm", [QA[0].T.copy(), S, U8(128), QW.T.copy(), np.array([0.01, 0.02, 0.005, 0.01, 0.03], F),
                              np.zeros(5, I8), RNG.integers(-900, 900, 5).astype(I32)], 13, domain=MS, alpha=0.5, transA=1, transB=1)
for op in ["Add", "Mul"]:
    case("qlinear" + op.lower(), "QLinear" + op, [QA, S, U8(128), QA[0], F(0.5), U8(3), F(3), U8(100)], 13, domain=MS)
case("qlinearsigmoid", "QLinearSigmoid", [QA, F(0.05), U8(128), F(1 / 256), U8(0)], 13, domain=MS)
case("qlinearsoftmax", "QLinearSoftmax", [QA, F(0.05), U8(128), F(1 / 256), U8(0)], 13, domain=MS, axis=-1, opset=13)


def unsorted():
    inputs = {"x": X34}
    nodes = [helper.make_node("Neg", ["b"], ["y"]), helper.make_node("Exp", ["a"], ["b"]),
             helper.make_node("Abs", ["x"], ["a"])]
    sorted_model = model(nodes[::-1], inputs, ["y"], 13)
    expected = ort.InferenceSession(sorted_model.SerializeToString()).run(None, inputs)
    write("unsorted", model(nodes, inputs, ["y"], 13), inputs, expected=expected)


def sequence_empty():
    nodes = [helper.make_node("SequenceEmpty", [], ["none"]), helper.make_node("SequenceInsert", ["none", "x"], ["one"]),
             helper.make_node("ConcatFromSequence", ["one"], ["y"], axis=0)]
    inputs = {"x": rand(3, 4)}
    write("sequence_empty", model(nodes, inputs, ["y"], 13), inputs)


def sequences():
    """Splitting into a sequence and taking it apart, also through a function."""
    const = lambda out, v: helper.make_node("Constant", [], [out], value=numpy_helper.from_array(np.array(v, I64)))
    node = helper.make_node
    pick = helper.make_function("local", "pick", ["s", "i"], ["t"], [node("SequenceAt", ["s", "i"], ["t"])],
                                [helper.make_opsetid("", 13)])
    nodes = [
        const("two", 2), const("zero", 0), const("last", -1), const("sizes", [1, 3]),
        node("SplitToSequence", ["x", "two"], ["rows"], axis=0),
        node("SplitToSequence", ["x", "sizes"], ["columns"], axis=-1),
        node("SplitToSequence", ["x"], ["vectors"], axis=1, keepdims=0),
        node("SequenceAt", ["rows", "last"], ["row"]),
        node("pick", ["columns", "zero"], ["column"], domain="local"),
        node("SequenceConstruct", ["x", "x"], ["built"]),
        node("SequenceInsert", ["built", "x", "zero"], ["three"]),
        node("SequenceLength", ["three"], ["length"]),
        node("ConcatFromSequence", ["three"], ["joined"], axis=1),
        node("ConcatFromSequence", ["vectors"], ["stacked"], axis=0, new_axis=1),
    ]
    inputs = {"x": rand(3, 4)}
    write("sequences", model(nodes, inputs, ["row", "column", "length", "joined", "stacked"], 13, functions=[pick]),
          inputs)


for build in [sequence_empty, sequences, constants, typed_fields, bfloat16, outputs_of_all_kinds, if_on_shape, local_function, unsorted]:
    CASES[build.__name__] = build


# Activations and reductions that are formulas
case("hardsigmoid", "HardSigmoid", [X34 * 4], 13)
case("hardsigmoid_attrs", "HardSigmoid", [X34], 13, alpha=0.7, beta=0.1)
case("hardswish", "HardSwish", [X34 * 4], 14)
case("mish", "Mish", [X34 * 3], 18)
case("softplus", "Softplus", [np.array([-100, -1, 0, 1, 100], F)], 13)
case("swish", "Swish", [X34], 24, reference=True)
case("swish_alpha", "Swish", [X34], 24, reference=True, alpha=1.7)
case("quickgelu_default", "QuickGelu", [X34], 13, domain=MS)
for op in ["ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"]:
    x = np.abs(X234) + F(0.1) if op == "ReduceLogSum" else X234
    case(op.lower() + "_11", op, [x], 11, axes=[1], keepdims=0)
    case(op.lower() + "_11_all", op, [x], 11)
    case(op.lower() + "_18", op, [x, ints(0, -1)], 18, constants=[1], keepdims=0)
    case(op.lower() + "_18_keep", op, [x, ints(-1)], 18, constants=[1])
    case(op.lower() + "_18_noop", op, [x], 18, noop_with_empty_axes=1, reference=True)
case("reducelogsumexp_large", "ReduceLogSumExp",
     [np.array([[1000, 999], [-1000, -1001], [-np.inf, 3]], F), ints(1)], 18, constants=[1], keepdims=0)
case("reducelogsumexp_infinite", "ReduceLogSumExp",
     [np.array([[-np.inf, -np.inf], [np.inf, 0]], F), ints(1)], 18, constants=[1])

# RMS norms
H234 = X234.astype(np.float16)
case("rmsnorm_axis", "RMSNormalization", [X234, rand(3, 4)], 23, reference=True, axis=1, epsilon=1e-3)
case("rmsnorm_scalar_scale", "RMSNormalization", [X234, np.array([0.5], F)], 23, reference=True)
case("rmsnorm_wide_scale", "RMSNormalization", [X234, rand(3, 1)], 23, reference=True, axis=-2)
case("rmsnorm_symbolic", "RMSNormalization", [X234, rand(3, 4)], 23, reference=True, axis=1, dims={"x0": ["b", "s", 4]})
case("rmsnorm_half", "RMSNormalization", [H234, W4.astype(np.float16)], 23, reference=True)
case("simplifiedlayernorm_outputs", "SimplifiedLayerNormalization", [X234 * 3, W4], 13, outputs=2, axis=-1,
     stash_type=1, epsilon=1e-2)
case("simplifiedlayernorm_half_scale", "SimplifiedLayerNormalization", [X234, W4], 13, axis=2)
case("skiprmsnorm_plain", "SkipSimplifiedLayerNormalization", [X234, rand(2, 3, 4), W4], 13, domain=MS, epsilon=1e-3)


def ms_simplifiedlayernorm():
    """The operator in ONNX Runtime's own domain, where older exporters put it."""
    inputs = {"x": X234}
    node = helper.make_node("SimplifiedLayerNormalization", ["x", "w"], ["y"], domain=MS, epsilon=1e-3)
    expected = X234 / np.sqrt(np.mean(X234.astype(np.float64) ** 2, -1, keepdims=True) + 1e-3) * W4
    write("ms_simplifiedlayernorm", model([node], inputs, ["y"], 13, {"w": W4}), inputs, expected=[expected.astype(F)])


CASES["ms_simplifiedlayernorm"] = ms_simplifiedlayernorm

# Rotary embeddings: tables of 6 positions, ids that repeat and go back
ANGLES = np.arange(6)[:, None] * np.array([1.0, 0.3, 0.1, 0.02])
COS, SIN = np.cos(ANGLES).astype(F), np.sin(ANGLES).astype(F)
IDS2 = np.array([[0, 1, 2], [5, 3, 3]], I64)
R4, R3 = rand(2, 2, 3, 8), rand(2, 3, 16)


def rotary(name, inputs, **attrs):
    case("rotary_" + name, "RotaryEmbedding", inputs, 23, **attrs)


rotary("4d", [R4, COS, SIN, IDS2])
rotary("4d_symbolic", [R4, COS, SIN, IDS2], dims={"x0": ["b", 2, "s", 8], "x3": ["b", "s"]})
rotary("3d", [R3, COS, SIN, IDS2], num_heads=2)
rotary("3d_symbolic", [R3, COS, SIN, IDS2], num_heads=2, dims={"x0": ["b", "s", 16], "x3": ["b", "s"]})
rotary("interleaved", [R4, COS, SIN, IDS2], interleaved=1)
rotary("interleaved_3d", [R3, COS, SIN, IDS2], interleaved=1, num_heads=2)
rotary("part", [R4, COS[:, :2], SIN[:, :2], IDS2], rotary_embedding_dim=4)
rotary("part_3d_interleaved", [R3, COS[:, :3], SIN[:, :3], IDS2], rotary_embedding_dim=6, num_heads=2, interleaved=1)
rotary("no_ids", [R4, COS[IDS2], SIN[IDS2]])
rotary("no_ids_3d", [R3, COS[IDS2], SIN[IDS2]], num_heads=2)
rotary("no_ids_part", [R4, COS[IDS2][:, :, :1], SIN[IDS2][:, :, :1]], rotary_embedding_dim=2)
rotary("half", [R4.astype(np.float16), COS.astype(np.float16), SIN.astype(np.float16), IDS2])


def contrib_rotary(name, inputs, **attrs):
    case("ms_rotary_" + name, "RotaryEmbedding", inputs, 13, domain=MS, **attrs)


contrib_rotary("3d", [R3, IDS2, COS, SIN])
contrib_rotary("3d_heads", [R3, IDS2, COS, SIN], num_heads=2, rotary_embedding_dim=8)
contrib_rotary("4d", [R4, IDS2, COS, SIN])
contrib_rotary("offset", [R3, ints(2), COS, SIN])
contrib_rotary("offset_4d", [R4, ints(3), COS, SIN])
contrib_rotary("interleaved", [R3, IDS2, COS, SIN], interleaved=1)
contrib_rotary("part", [R3, IDS2, COS[:, :2], SIN[:, :2]], num_heads=2, rotary_embedding_dim=4)
contrib_rotary("part_4d", [R4, IDS2, COS[:, :3], SIN[:, :3]], num_heads=2, rotary_embedding_dim=6, interleaved=1)
contrib_rotary("symbolic", [R3, IDS2, COS, SIN], dims={"x0": ["b", "s", 16], "x1": ["b", "s"]})

# ONNX Attention: what decoders with grouped heads use
attention("softcap", [Q, K, V], softcap=0.8)
attention("softcap_mask", [Q, K, V, MASK], softcap=0.8)
for mode in range(4):  # onnx.reference gives the capped scores in mode 0, too; ONNX Runtime and the text do not
    attention(f"scores_{mode}", [Q, K, V, MASK], outputs=["y", "", "", "scores"], softcap=1.5 if mode else 0.0,
              qk_matmul_output_mode=mode)
attention("grouped_past", [Q, K[:, :1, :3], V[:, :1, :3], None, rand(2, 1, 2, 8), rand(2, 1, 2, 6)], outputs=3, is_causal=1)
attention("grouped_past_mask", [Q, K[:, :2, :3], V[:, :2, :3], MASK, rand(2, 2, 2, 8), rand(2, 2, 2, 6)], outputs=3)
attention("grouped_past_3d",
          [Q3, K3[:, :3, :16], V3[:, :3, :12], rand(2, 1, 3, 5), rand(2, 2, 2, 8), rand(2, 2, 2, 6)], outputs=3,
          q_num_heads=4, kv_num_heads=2, scale=0.2)
attention("empty_past", [Q, K[:, :2, :3], V[:, :2, :3], None, rand(2, 2, 0, 8), rand(2, 2, 0, 6)], outputs=3, is_causal=1,
          dims={"x0": ["b", 4, "s", 8], "x1": ["b", 2, "s", 8], "x2": ["b", 2, "s", 6], "x4": ["b", 2, "p", 8],
                "x5": ["b", 2, "p", 6]})
attention("mask_half", [a.astype(np.float16) for a in (Q, K, V)] + [MASK])


def attention24(name, inputs, outputs=1, **attrs):
    case("attention24_" + name, "Attention", inputs, 24, outputs=outputs, reference=True, **attrs)


LENGTHS = ints(5, 2)
attention24("lengths", [Q, K, V, None, None, None, LENGTHS])
attention24("lengths_causal", [Q, K, V, None, None, None, LENGTHS], is_causal=1)
attention24("lengths_mask", [Q, K[:, :2], V[:, :2], MASK, None, None, LENGTHS], is_causal=1)
attention24("none_left", [Q, K, V, None, None, None, ints(0, 5)])

# com.microsoft GroupQueryAttention: 4 query heads of 8 share 2 key heads
GQ, GK, GV = rand(2, 3, 32), rand(2, 3, 16), rand(2, 3, 16)
GPK, GPV = rand(2, 2, 4, 8), rand(2, 2, 4, 8)
GCOS, GSIN = np.cos(np.arange(9)[:, None] * np.array([1.0, 0.3, 0.1, 0.02])).astype(F), np.sin(
    np.arange(9)[:, None] * np.array([1.0, 0.3, 0.1, 0.02])).astype(F)
GDIMS = {"x0": ["b", "s", 32], "x1": ["b", "s", 16], "x2": ["b", "s", 16], "x3": ["b", 2, "p", "d"], "x4": ["b", 2, "p", "d"],
         "x5": ["b"]}


def gqa(name, inputs, outputs=3, **attrs):
    attrs = {"num_heads": 4, "kv_num_heads": 2, **attrs}
    case("gqa_" + name, "GroupQueryAttention", inputs, 13, domain=MS, outputs=outputs, **attrs)


def lens(*values):
    return np.array([v - 1 for v in values], I32)


T = lambda v: np.array(v, I32)
NOPAST = [rand(2, 2, 0, 8), rand(2, 2, 0, 8)]
PROMPT = [GQ, GK, GV, *NOPAST, lens(3, 3), T(3)]
TOKEN = [GQ[:, :1], GK[:, :1], GV[:, :1], GPK, GPV, lens(5, 5), T(5)]
CHUNK = [GQ[:1], GK[:1], GV[:1], GPK[:1], GPV[:1], lens(7), T(7)]
gqa("prompt", PROMPT)
gqa("prompt_symbolic", PROMPT, dims=GDIMS)
gqa("prompt_no_past", [GQ, GK, GV, None, None, lens(3, 3), T(3)])
gqa("token", TOKEN)
gqa("token_symbolic", TOKEN, dims=GDIMS)
gqa("token_ragged", [*TOKEN[:5], lens(3, 5), T(5)])
gqa("token_long_buffer", [*TOKEN[:3], GPK, GPV, lens(4, 4), T(4)])
gqa("chunk", CHUNK)
gqa("chunk_symbolic", CHUNK, dims=GDIMS)
gqa("lengths_of_rank_2", [*TOKEN[:5], lens(3, 5)[:, None], T([5])])
gqa("packed", [np.concatenate([GQ, GK, GV], 2), None, None, *NOPAST, lens(3, 3), T(3)])
gqa("packed_token", [np.concatenate([GQ, GK, GV], 2)[:, :1], None, None, GPK, GPV, lens(5, 5), T(5)])
# ONNX Runtime rotates heads whose size is a multiple of 16.
WQ, WK, WV, WPK, WPV = rand(2, 3, 64), rand(2, 3, 32), rand(2, 3, 32), rand(2, 2, 4, 16), rand(2, 2, 4, 16)
WANGLES = np.arange(9)[:, None] * 0.5 ** np.arange(8)
TABLES = [np.cos(WANGLES).astype(F), np.sin(WANGLES).astype(F)]
WPROMPT = [WQ, WK, WV, rand(2, 2, 0, 16), rand(2, 2, 0, 16), lens(3, 3), T(3)]
WTOKEN = [WQ[:, :1], WK[:, :1], WV[:, :1], WPK, WPV, lens(3, 5), T(5)]
WCHUNK = [WQ[:1], WK[:1], WV[:1], WPK[:1], WPV[:1], lens(7), T(7)]
gqa("rotary", [*WPROMPT, *TABLES], do_rotary=1)
gqa("rotary_token", [*WTOKEN, *TABLES], do_rotary=1)
gqa("rotary_chunk", [*WCHUNK, *TABLES], do_rotary=1)
gqa("rotary_interleaved", [*WCHUNK, *TABLES], do_rotary=1, rotary_interleaved=1)
gqa("rotary_part", [*WTOKEN[:3], rand(2, 1, 4, 32), rand(2, 1, 4, 32), *WTOKEN[5:], *TABLES], do_rotary=1, num_heads=2,
    kv_num_heads=1)
gqa("rotary_packed", [np.concatenate([WQ, WK, WV], 2), None, None, *WPROMPT[3:], *TABLES], do_rotary=1)
gqa("rotary_ids", [*WTOKEN, *TABLES, ints(2, 7)[:, None]], do_rotary=1)
gqa("rotary_ids_prompt", [*WPROMPT, *TABLES, np.array([[2, 0, 0], [5, 5, 5]], I64)], do_rotary=1)
gqa("scale", TOKEN, scale=0.7)
gqa("softcap", TOKEN, softcap=0.9)
gqa("bias", [*CHUNK, None, None, None, rand(1, 4, 3, 7)])
gqa("bias_heads", [*TOKEN, None, None, None, rand(1, 1, 1, 5)], softcap=1.2)
for w in (1, 2, 3, 9):
    gqa(f"window_{w}", CHUNK, local_window_size=w)
gqa("window_token", TOKEN, local_window_size=2)
gqa("not_causal", PROMPT, causal=0)
gqa("smooth", TOKEN, smooth_softmax=1)
gqa("sinks", [*CHUNK, None, None, None, None, rand(4)])


def gqa_norms():
    """Norms of heads, which ONNX Runtime's CPU leaves to nodes in front, with those nodes' outputs."""
    fed = {f"x{i}": a for i, a in enumerate([*WTOKEN, *TABLES])}
    weights = {"wq": rand(16), "wk": rand(16)}
    attrs = dict(num_heads=4, kv_num_heads=2, do_rotary=1)
    outs = ["y0", "y1", "y2"]
    node = helper.make_node
    first = []
    for x, w, heads in (("x0", "wq", 4), ("x1", "wk", 2)):
        first += [node("Reshape", [x, "s" + w], [x + "h"]),
                  node("SimplifiedLayerNormalization", [x + "h", w], [x + "n"], epsilon=1e-6 if heads == 4 else 1e-2),
                  node("Reshape", [x + "n", "back"], [x + "r"])]
    names = ["x0r", "x1r", *list(fed)[2:]]
    shapes = {"swq": ints(0, 0, 4, 16), "swk": ints(0, 0, 2, 16), "back": ints(0, 0, -1)}
    plain = model([*first, node("GroupQueryAttention", names, outs, domain=MS, **attrs)], fed, outs, 13, {**weights, **shapes})
    expected = ort.InferenceSession(plain.SerializeToString()).run(None, fed)
    inputs = [*fed, "", "", "", "", "", "wq", "wk"]
    one = node("GroupQueryAttention", inputs, outs, name="node", domain=MS, k_norm_epsilon=1e-2, **attrs)
    write("gqa_norms", model([one], fed, outs, 13, weights), fed, expected=expected)


CASES["gqa_norms"] = gqa_norms
gqa("equal_heads", [GQ, GQ, GQ, None, None, lens(3, 3), T(3)], kv_num_heads=4)

# com.microsoft MultiHeadAttention: 2 heads of 4
MQ, MK, MV, MB = rand(2, 3, 8), rand(2, 5, 8), rand(2, 5, 6), rand(22)
MPK, MPV, MV4, MB4 = rand(2, 2, 4, 4), rand(2, 2, 4, 4), rand(2, 3, 8), rand(24)


def mha(name, inputs, outputs=1, **attrs):
    case("mha_" + name, "MultiHeadAttention", inputs, 13, domain=MS, outputs=outputs, num_heads=2, **attrs)


mha("plain", [MQ, MK, MV])
mha("symbolic", [MQ, MK, MV], dims={"x0": ["b", "s", 8], "x1": ["b", "t", 8], "x2": ["b", "t", 6]})
mha("bias", [MQ, MK, MV, MB])
mha("scale", [MQ, MK, MV], scale=0.3)
mha("causal", [MQ, MK[:, :3], MV[:, :3]], unidirectional=1)
mha("attention_bias", [MQ, MK, MV, None, None, rand(1, 2, 3, 5)])
mha("lengths", [MQ, MK, MV, None, np.array([2, 5], I32)])
mha("mask_2d", [MQ, MK, MV, None, np.array([[1, 1, 0, 0, 1], [1, 1, 1, 1, 1]], I32)])
mha("mask_3d", [MQ, MK, MV, None, (RNG.random((2, 3, 5)) > 0.4).astype(I32)], mask_filter_value=-5.0)
mha("past", [MQ, MK[:, :3], MV4, None, None, None, MPK, MPV], outputs=3)
mha("past_causal", [MQ, MK[:, :3], MV4, MB4, None, None, MPK, MPV], outputs=3, unidirectional=1)
mha("past_mask", [MQ, MK[:, :3], MV4, None, np.array([[1] * 7, [0, 1, 1, 1, 1, 1, 0]], I32), None, MPK, MPV], outputs=3)
mha("finished_keys", [MQ, rand(2, 2, 5, 4), rand(2, 2, 5, 4)])


def packed_heads(name, packed, parts, separate):
    """A packed form, which ONNX Runtime has on the GPU alone, with the outputs of the separate one."""

    def build():
        names = lambda k: [f"x{i}" for i in range(k)]
        node = lambda k: helper.make_node("MultiHeadAttention", names(k), ["y"], name="node", domain=MS, num_heads=2)
        plain = dict(zip(names(3), separate))
        session = ort.InferenceSession(model([node(3)], plain, ["y"], 13).SerializeToString())
        fed = dict(zip(names(parts), packed))
        write(name, model([node(parts)], fed, ["y"], 13), fed, expected=session.run(None, plain))

    CASES[name] = build


PQKV, PKV = rand(2, 3, 2, 3, 4), rand(2, 5, 2, 2, 4)
packed_heads("mha_packed", [PQKV], 1, [PQKV[:, :, :, i].reshape(2, 3, 8) for i in range(3)])
packed_heads("mha_packed_kv", [MQ, PKV], 2, [MQ, *[PKV[:, :, :, i].reshape(2, 5, 8) for i in range(2)]])

# Piecewise activations, to integers, unit vectors
for op, opset, attrs in [("LeakyRelu", 16, {}), ("Elu", 6, {"alpha": 1.3}), ("Celu", 12, {"alpha": 1.7}), ("Selu", 6, {}),
                         ("Softsign", 1, {}), ("ThresholdedRelu", 10, {"alpha": 0.4})]:
    case(op.lower(), op, [X34 * 3], max(opset, 11), **attrs)
case("leakyrelu_alpha", "LeakyRelu", [X34], 16, alpha=0.3)
case("prelu", "PRelu", [X234, np.array([0.1, 0.5, -1, 2], F)], 16, constants=(1,))
case("round", "Round", [np.array([-2.5, -1.5, -0.5, -0.2, 0.49999997, 0.5, 1.5, 2.5, 2.7, 8388609, 1e30, -1e-9], F)], 11)
case("lpnormalization", "LpNormalization", [np.concatenate([X34, np.zeros((1, 4), F)])], 11)
case("lpnormalization_1", "LpNormalization", [X34], 11, axis=0, p=1)

# Convolutions of kernel 1
CONV = {"x0": ["b", 6, "t"]}
case("conv_point", "Conv", [rand(2, 6, 5), rand(4, 6, 1), rand(4)], 11, constants=(1, 2), dims=CONV, kernel_shape=[1])
case("conv_point_2d", "Conv", [rand(2, 3, 2, 5), rand(4, 3, 1, 1)], 11, constants=(1,), dilations=[2, 2])

# Einsum
for name, equation, shapes, constants in [
        ("scores", "bhid,bhjd->bhij", [(2, 3, 4, 5), (2, 3, 6, 5)], ()), ("values", "bhij,bjhd->bihd", [(2, 3, 4, 5), (2, 5, 3, 6)], ()),
        ("implied", "kj, ik", [(4, 3), (2, 4)], ()), ("heads", "btd,dnh->btnh", [(2, 3, 8), (8, 2, 4)], (1,)),
        ("merge", "btnh,nhd->btd", [(2, 3, 2, 4), (2, 4, 8)], (1,)), ("weight_first", "hd,btd->bth", [(6, 8), (2, 3, 8)], (0,)),
        ("permute", "abc->cab", [(2, 3, 4)], ()), ("sum", "abc->b", [(2, 3, 4)], ()), ("outer", "bi,bj->bji", [(2, 3), (2, 4)], ()),
        ("dots", "bi,bi->b", [(2, 3), (2, 3)], ()), ("sums", "bi,bj->b", [(2, 3), (2, 4)], ()),
        ("two_left", "bxyc,bcz->bzxy", [(2, 3, 4, 5), (2, 5, 6)], ()), ("scalar", "i,i->", [(3,), (3,)], ())]:
    case("einsum_" + name, "Einsum", [rand(*shape) for shape in shapes], 12, constants=constants, equation=equation)


def nbits(name, bits, block, zeros, k=40, n=6, bias=False):
    blocks = -(-k // block)
    def packed(count):
        return RNG.integers(0, 256, count).astype(np.uint8)
    inputs = [rand(2, 3, k), packed((n, blocks, block * bits // 8)), rand(n * blocks), None, None, None]
    if zeros:
        inputs[3] = packed(n * -(-blocks * bits // 8)) if zeros == "packed" else rand(n * blocks) + 8
    if bias:
        inputs[5] = rand(n)
    while inputs[-1] is None:
        inputs.pop()
    case("matmul_nbits_" + name, "MatMulNBits", inputs, 17, domain=MS,
         constants=tuple(i for i, a in enumerate(inputs) if i and a is not None), K=k, N=n, bits=bits,
         block_size=block)


nbits("4", 4, 32, None)
nbits("4_zeros", 4, 16, "packed")
nbits("4_bias", 4, 16, "packed", k=64, bias=True)
nbits("8", 8, 32, "packed")

# Arcs, the largest
case("atan", "Atan", [np.array([0.0, -0.0, 1e-6, -0.1, 0.5, 1, -1, 1.5, -20, 1e4, 1e30, np.inf, -np.inf, np.nan], F)], 11)
TIES = np.array([[2, 7, 7, -np.inf, 1], [3, 3, 3, 3, 3], [-np.inf, -np.inf, 0, -np.inf, np.inf]], F)
case("topk", "TopK", [rand(2, 3, 9), ints(4)], 11, outputs=2, constants=(1,))
case("topk_ties", "TopK", [TIES, ints(3)], 11, outputs=2, constants=(1,))
case("topk_all", "TopK", [TIES, ints(5)], 11, outputs=2, constants=(1,))
case("topk_least", "TopK", [rand(3, 7, 2), ints(3)], 11, outputs=2, constants=(1,), axis=1, largest=0)
case("topk_integers", "TopK", [RNG.integers(-4, 4, (2, 8)), ints(5)], 11, outputs=2, constants=(1,), dims={"x0": ["n", 8]})


def qattention(name, inputs, outputs=1, constants=(1, 2, 4, 7), **attrs):
    case("ms_qattention_" + name, "QAttention", inputs, 13, domain=MS, outputs=outputs,
         constants=tuple(i for i in constants if i < len(inputs) and inputs[i] is not None), num_heads=2, **attrs)


QX, QW = RNG.integers(0, 256, (2, 3, 8)).astype(np.uint8), RNG.integers(-128, 128, (8, 24)).astype(np.int8)
SX, SW, ZX = np.array(0.011, F), np.array(0.007, F), np.array(131, np.uint8)
qattention("plain", [QX, QW, AB, SX, SW, None, ZX, np.array(3, np.int8)])
qattention("causal", [QX, QW, AB, SX, rand(24) * F(0.001) + F(0.007), None, ZX, np.zeros(24, np.int8)], unidirectional=1)
qattention("past", [QX, QW, AB, SX, SW, np.array([[1, 1, 1, 0, 1, 1, 1], [0, 1, 1, 1, 1, 1, 0]], I32), ZX,
                    np.array(0, np.int8), PAST], outputs=2, unidirectional=1)


PLACES = np.array([[0, 2, 1, 2], [1, 0, 2, 0]], I64)
case("scatterelements", "ScatterElements", [X34, PLACES, rand(2, 4)], 18)
case("scatterelements_axis", "ScatterElements", [rand(2, 3, 5), np.array([[[4, 0], [1, 3], [2, 2 - 5]]], I64),
                                                 rand(1, 3, 2)], 18, axis=-1, dims={"x0": ["n", 3, 5]})
CACHE, NEWS = rand(2, 3, 6, 4), rand(2, 3, 2, 4)
case("tensorscatter", "TensorScatter", [CACHE, NEWS, ints(3, 1)], 24)
case("tensorscatter_begin", "TensorScatter", [CACHE, NEWS], 24, dims={"x1": [2, 3, "seq", 4]})
case("tensorscatter_circular", "TensorScatter", [CACHE, NEWS, ints(5, 2)], 24, mode="circular")
case("tensorscatter_rows", "TensorScatter", [rand(2, 5, 3), rand(2, 1, 3), ints(4, 0)], 24, axis=1)

# Losses beside logits
LABELS, WEIGHTS = np.array([2, 0, -1, 1], I64), np.array([0.5, 2, 1], F)
for name, attrs, inputs in [("mean", {}, [rand(4, 3), np.abs(LABELS)]), ("weights", {}, [rand(4, 3), np.abs(LABELS), WEIGHTS]),
                            ("ignored", {"ignore_index": -1}, [rand(4, 3), LABELS, WEIGHTS]),
                            ("sum", {"reduction": "sum", "ignore_index": -1}, [rand(4, 3), LABELS]),
                            ("none", {"reduction": "none"}, [rand(4, 3, 2), np.abs(LABELS)[:, None].repeat(2, 1)])]:
    case("loss_" + name, "SoftmaxCrossEntropyLoss", inputs, 13, outputs=2, **attrs)
    case("nll_" + name, "NegativeLogLikelihoodLoss", inputs, 13, **attrs)

import onnx_ops_quantised  # noqa: E402,F401  its cases come last

if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    bad = 0
    for name, build in CASES.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        try:
            build()
        except Exception as e:
            bad += 1
            print(f"{name}: {str(e)[:300]}", file=sys.stderr)
    print(f"{len(CASES)} cases, {bad} failed")
