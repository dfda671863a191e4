"""Writes cases.jsonl: inputs and expected outputs for every op of the IR, from references that share no code with us.

ONNX Runtime computes the ops that ONNX has; numpy in double precision the ones that only we have, and the few that
ONNX Runtime lacks on the CPU. Run by hand after an op or a case was added:

    pip install ml_dtypes numpy onnx onnxruntime && python generate.py

One JSON object a line: op, name, attrs, inputs, outputs, tol. A tensor is {t: dtype, s: shape, d: little-endian bytes in
hex, c: 1 when it is a constant rather than an argument}; null is an absent operand. tol is relative to 1 + |expected|; native: 1 when the
case is about the rounding of a narrow type, which a run in double precision does not do.
"""
import json
import os

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

rng = np.random.default_rng(20240229)
OPSET = 20
NAMES = {"float32": "f32", "float16": "f16", "float64": "f64", "int8": "i8", "uint8": "u8", "int32": "i32",
         "int64": "i64", "bool": "bool", "bfloat16": "bf16"}
nan, inf = np.nan, np.inf
cases = []


class Const:
    """An input that is a constant of the graph, such as a shape."""

    def __init__(self, value):
        self.value = np.asarray(value)


def array(x):
    return x.value if isinstance(x, Const) else np.asarray(x)


def f(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def ints(*shape, low=-9, high=10, dtype=np.int64):
    return rng.integers(low, high, shape).astype(dtype)


def i64(*values):
    return Const(np.array(values, dtype=np.int64))


def widened(x):
    return x.astype(np.float32) if x is not None and x.dtype == np.float16 else x


def run(op, inputs, attrs, outputs=1):
    """One node through ONNX Runtime; half precision as single precision."""
    names = [f"i{k}" if x is not None else "" for k, x in enumerate(inputs)]
    while names and names[-1] == "":
        names.pop()
    outs = [f"o{k}" for k in range(outputs)]
    node = helper.make_node(op, names, outs, **attrs)
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype), list(x.shape))
             for n, x in zip(names, inputs) if n]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=o) for o in outs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(outs, {n: x for n, x in zip(names, inputs) if n})


def encode(x, constant=False):
    if x is None:
        return None
    x = np.asarray(x)
    t = {"t": NAMES[x.dtype.name], "s": list(np.shape(x)), "d": x.tobytes().hex()}
    if constant:
        t["c"] = 1
    return t


def add(op, name, inputs, outputs, attrs=None, tol=2e-6, native_only=False):
    cases.append({"op": op, "name": name, "attrs": attrs or {},
                  "inputs": [encode(array(x) if x is not None else None, isinstance(x, Const)) for x in inputs],
                  "outputs": [encode(np.asarray(o)) for o in outputs], "tol": tol} | ({"native": 1} if native_only else {}))


def check(op, onnx_op, name, inputs, attrs=None, onnx_inputs=None, onnx_attrs=None, tol=2e-6, cast=None):
    """A case whose outputs ONNX Runtime computes."""
    attrs = attrs or {}
    feed = [widened(None if x is None else array(x)) for x in (inputs if onnx_inputs is None else onnx_inputs)]
    out = run(onnx_op, feed, attrs if onnx_attrs is None else onnx_attrs)
    if any(x is not None and array(x).dtype == np.float16 for x in inputs):
        with np.errstate(over="ignore"):
            out = [o.astype(np.float16) if o.dtype == np.float32 else o for o in out]
        tol = max(tol, 1e-3)
    add(op, name, inputs, [o.astype(cast) for o in out] if cast else out, attrs, tol)


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, nan, inf, -inf, 1e30, -1e30, 1e-30, 0.5, -2.5, 88.0, -104.0], dtype=np.float32)


def elementwise_unary():
    table = {"sqrt": "Sqrt", "exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos", "tanh": "Tanh", "erf": "Erf",
             "floor": "Floor", "ceil": "Ceil", "reciprocal": "Reciprocal", "sigmoid": "Sigmoid", "abs": "Abs",
             "neg": "Neg", "sign": "Sign", "relu": "Relu", "gelu": "Gelu"}
    for op, onnx_op in table.items():
        low = op in ("sqrt", "log")
        values = f(2, 3, 5, scale=3)
        check(op, onnx_op, "3d", [np.abs(values) if low else values])
        check(op, onnx_op, "scalar", [np.float32(0.7)])
        check(op, onnx_op, "empty", [f(2, 0, 3)])
        check(op, onnx_op, "half", [np.abs(f(3, 4)).astype(np.float16)])
        special = SPECIAL[:-4] if op in ("sin", "cos") else SPECIAL
        if op in ("sin", "cos"):
            special = special[np.abs(np.nan_to_num(special)) < 1e6]
        if op == "sign":  # ONNX leaves the sign of NaN open
            special = special[~np.isnan(special)]
        if op == "gelu":  # -inf * 0 is NaN in the formula, 0 in ONNX Runtime's kernel
            special = special[~np.isinf(special)]
        check(op, onnx_op, "special", [special])
    for op, onnx_op in {"abs": "Abs", "neg": "Neg", "sign": "Sign"}.items():
        check(op, onnx_op, "i64", [np.array([0, -3, 5, 2**40, -2**40])])
        check(op, onnx_op, "i32", [ints(4, 2, dtype=np.int32)])
    check("gelu", "Gelu", "tanh", [f(4, 7, scale=2)], {"approximate": "tanh"})
    check("gelu", "Gelu", "tanh half", [f(4, 7).astype(np.float16)], {"approximate": "tanh"})
    check("exp", "Exp", "f64", [f(5).astype(np.float64)])
    check("not", "Not", "2d", [rng.random((3, 4)) < 0.5])
    check("not", "Not", "scalar", [np.bool_(True)])
    check("not", "Not", "empty", [np.zeros((0, 2), dtype=bool)])
    for op, onnx_op in {"is_nan": "IsNaN", "is_inf": "IsInf"}.items():
        check(op, onnx_op, "special", [SPECIAL])
        check(op, onnx_op, "empty", [f(0)])
        add(op, "half", [SPECIAL[:7].astype(np.float16)], [getattr(np, op.replace("_", ""))(SPECIAL[:7])])
    dtypes = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "i64": np.int64, "bool": bool, "u8": np.uint8,
              "i8": np.int8, "f64": np.float64}
    for to, dt in dtypes.items():
        proto = helper.np_dtype_to_tensor_dtype(np.dtype(dt))
        for source in (np.float32, np.int64, bool):
            x = np.array([[0, 1, 2.75], [3, 0, 100.5]]).astype(source)
            check("cast", "Cast", f"{np.dtype(source).name} to {to}", [x], {"to": "dtype:" + to}, onnx_attrs={"to": proto})
    check("cast", "Cast", "negative", [np.array([-1.5, -0.2, 7.9], dtype=np.float32)], {"to": "dtype:i64"},
          onnx_attrs={"to": TensorProto.INT64})
    add("cast", "half to f32", [SPECIAL.astype(np.float16)], [SPECIAL.astype(np.float16).astype(np.float32)],
        {"to": "dtype:f32"})
    check("cast", "Cast", "empty", [f(0, 3)], {"to": "dtype:i32"}, onnx_attrs={"to": TensorProto.INT32})
    add("cast", "overflow to half", [np.array([65519.0, 65520.0, -1e6, 6e-8, 2e-8, nan], dtype=np.float32)],
        [np.array([65504, inf, -inf, 6e-8, 0, nan], dtype=np.float16)], {"to": "dtype:f16"}, tol=0, native_only=True)


def elementwise_binary():
    table = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "min": "Min", "max": "Max", "equal": "Equal",
             "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater", "greater_equal": "GreaterOrEqual"}
    a, b = np.meshgrid(SPECIAL[:11], SPECIAL[:11])
    shapes = [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((3, 1), (1, 4)), ((), (2, 2)), ((2, 1, 3, 1), (4, 1, 5)),
              ((1, 3, 4), (2, 1, 1)), ((2, 3, 4), (3, 1)), ((0, 3), (1, 3)), ((2, 0), (1,)), ((5,), ())]
    for op, onnx_op in table.items():
        for s, t in shapes:
            check(op, onnx_op, f"{list(s)} with {list(t)}", [f(*s), f(*t)])
        check(op, onnx_op, "special", [a, b])
        check(op, onnx_op, "half", [f(3, 4).astype(np.float16), f(4).astype(np.float16)])
        check(op, onnx_op, "i64", [ints(3, 4), ints(4, low=1)])
        check(op, onnx_op, "i32", [ints(3, 1, dtype=np.int32), ints(2, low=1, dtype=np.int32)])
    for op in ("add", "sub", "mul"):
        x = np.array([2**63 - 1, -2**63, 2**62], dtype=np.int64)
        check(op, table[op], "wraps", [x, np.array([2, 3, 2**62], dtype=np.int64)])
    check("div", "Div", "toward zero", [np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])])
    for op, onnx_op in {"and": "And", "or": "Or", "xor": "Xor"}.items():
        t = rng.random((3, 4)) < 0.5
        check(op, onnx_op, "same", [t, rng.random((3, 4)) < 0.5])
        check(op, onnx_op, "broadcast", [t, rng.random((2, 1, 1)) < 0.5])
        check(op, onnx_op, "empty", [np.zeros((0, 4), dtype=bool), t[:1]])
    base, power = np.abs(f(3, 4)), f(4)
    check("pow", "Pow", "broadcast", [base, power])
    check("pow", "Pow", "square", [f(5, 3), np.float32(2)])
    check("pow", "Pow", "cube", [f(5, 3), np.float32(3)])
    check("pow", "Pow", "root", [base, np.float32(0.5)])
    check("pow", "Pow", "f32 to i64", [f(2, 3), np.array([2, 3, 0])])
    check("pow", "Pow", "i64 to i64", [ints(2, 3, low=-4, high=5), np.array([2, 3, 0])])
    check("pow", "Pow", "i64 to f32", [ints(4, low=0), np.float32(2)])
    check("pow", "Pow", "special", [SPECIAL[:7], np.float32(2)])
    check("pow", "Pow", "special odd", [SPECIAL[:7], np.float32(3)])
    check("pow", "Pow", "half", [base.astype(np.float16), np.float16(3)])
    check("pow", "Pow", "empty", [f(0, 3), f(3)])
    x = np.array([-7, -5, 5, 7, 0])
    for divisor in (3, -3):
        check("mod", "Mod", f"sign of divisor {divisor}", [x, np.array([divisor])])
        check("mod", "Mod", f"fmod {divisor}", [x, np.array([divisor])], {"fmod": True}, onnx_attrs={"fmod": 1})
    check("mod", "Mod", "float", [f(3, 4, scale=5), np.float32(1.5)], {"fmod": True}, onnx_attrs={"fmod": 1})
    check("mod", "Mod", "empty", [ints(0), np.array([3])])
    c = rng.random((3, 4)) < 0.5
    check("where", "Where", "same", [c, f(3, 4), f(3, 4)])
    check("where", "Where", "mask", [c[None, None], f(2, 2, 3, 4), np.float32(-inf)])
    check("where", "Where", "broadcast all", [c[:, :1], f(2, 1, 4), f(3, 1)])
    check("where", "Where", "i64", [c, ints(3, 4), np.int64(7)])
    check("where", "Where", "u8", [c, ints(3, 4, low=0, dtype=np.uint8), ints(4, low=0, dtype=np.uint8)])
    add("where", "half", [c, np.full((3, 4), 1.5, np.float16), np.float16(nan)],
        [np.where(c, np.float16(1.5), np.float16(nan))])
    check("where", "Where", "empty", [c[:0], f(1, 4), np.float32(1)])


def movement():
    x = f(2, 3, 4)
    for k, (start, end) in enumerate([(0, None), (1, None), (-1, None), (0, -1), (2, 1), (-9, 9)]):
        attrs = {"start": start} | ({} if end is None else {"end": end})
        check("shape", "Shape", f"{start} to {end}", [x], attrs)
    check("shape", "Shape", "scalar", [np.float32(1)])
    check("shape", "Shape", "empty", [f(0, 2)])
    for shape in ([6, 4], [-1], [0, -1], [2, -1, 2], [4, 3, 2], [0, 0, 0]):
        check("reshape", "Reshape", str(shape), [x, i64(*shape)])
        check("reshape", "Reshape", f"{shape} as argument", [x, np.array(shape)])
    check("reshape", "Reshape", "attribute", [x], {"shape": [4, 6]}, [x, np.array([4, 6])], {})
    check("reshape", "Reshape", "allowzero", [f(0, 3), i64(3, 0)], {"allowzero": True}, onnx_attrs={"allowzero": 1})
    check("reshape", "Reshape", "to scalar", [f(1, 1), Const(np.zeros(0, np.int64))])
    check("reshape", "Reshape", "half", [x.astype(np.float16), i64(24)])
    for perm in ([0, 2, 1], [2, 1, 0], [1, 0, 2], [0, 1, 2]):
        check("transpose", "Transpose", str(perm), [x], {"perm": perm})
    check("transpose", "Transpose", "4d", [f(2, 3, 4, 5)], {"perm": [0, 2, 1, 3]})
    check("transpose", "Transpose", "empty", [f(2, 0, 3)], {"perm": [2, 0, 1]})
    check("transpose", "Transpose", "bool", [rng.random((3, 4)) < 0.5], {"perm": [1, 0]})
    check("transpose", "Transpose", "half", [f(3, 4).astype(np.float16)], {"perm": [1, 0]})
    add("transpose", "scalar", [np.float32(3)], [np.float32(3)], {"perm": []})
    for axes in ([0], [-1], [0, 4], [1, -2], [2, 0]):
        check("unsqueeze", "Unsqueeze", str(axes), [x], {"axes": axes}, [x, np.array(axes)], {})
    check("unsqueeze", "Unsqueeze", "scalar", [np.int64(5)], {"axes": [0]}, [np.int64(5), np.array([0])], {})
    y = f(1, 3, 1, 2, 1)
    for axes in ([0], [-1], [0, 2], [2, -1, 0]):
        check("squeeze", "Squeeze", str(axes), [y], {"axes": axes}, [y, np.array(axes)], {})
    check("squeeze", "Squeeze", "all", [y], {}, [y], {})
    check("squeeze", "Squeeze", "empty", [f(1, 0)], {"axes": [0]}, [f(1, 0), np.array([0])], {})
    for s, t in (((3, 1), [2, 3, 4]), ((3, 4), [1, 1]), ((), [2, 2]), ((1,), [0, 3]), ((3, 1), [3, 1]), ((2, 1, 4), [3, 1])):
        v = f(*s)
        check("expand", "Expand", f"{list(s)} to {t}", [v, i64(*t)])
        check("expand", "Expand", f"{list(s)} to {t} as attribute", [v], {"shape": t}, [v, np.array(t)], {})
    check("expand", "Expand", "i64", [np.array([[1], [2]]), i64(2, 3)])
    check("expand", "Expand", "half", [f(2, 1).astype(np.float16), np.array([2, 3])])
    for r in ([2, 1, 3], [1, 1, 1], [0, 1, 2], [3, 2, 1]):
        check("tile", "Tile", str(r), [x, i64(*r)])
    check("tile", "Tile", "attribute", [x], {"repeats": [1, 2, 1]}, [x, np.array([1, 2, 1])], {})
    for axis in (0, 1, -1):
        other = f(*[2 if k != axis % 3 else 5 for k in range(3)])
        check("concat", "Concat", f"axis {axis}", [f(2, 2, 2), other], {"axis": axis})
    check("concat", "Concat", "three", [np.array([1]), np.array([2, 3]), np.array([], np.int64)], {"axis": 0})
    check("concat", "Concat", "one", [x], {"axis": 1})
    check("concat", "Concat", "empty past", [f(2, 2, 0, 4), f(2, 2, 3, 4)], {"axis": -2})
    check("concat", "Concat", "half", [f(1, 2).astype(np.float16), f(2, 2).astype(np.float16)], {"axis": 0})
    check("concat", "Concat", "bool", [np.array([True]), np.array([False])], {"axis": 0})
    v = f(5, 6, 7)
    far = 2**63 - 1
    slices = [([1], [3], [0], None), ([-2], [far], [0], None), ([0, 2], [5, -1], [0, 2], None), ([1, 1], [4, 5], None, None),
              ([0], [far], [1], [2]), ([-1], [-far - 1], [1], [-1]), ([4], [1], [1], [-2]), ([3], [3], [0], None),
              ([4], [2], [0], None), ([-100], [100], [2], None), ([6], [-8], [2], [-3]), ([1, 0], [far, 2], [-1, -2], [3, 1]),
              ([100], [far], [0], None), ([0], [-1], [-1], None)]
    for s, e, a, p in slices:
        inputs = [v, i64(*s), i64(*e), None if a is None else i64(*a), None if p is None else i64(*p)]
        while inputs[-1] is None:
            inputs.pop()
        label = f"{s} to {e} of {a} by {p}"
        check("slice", "Slice", label, inputs)
        attrs = {"starts": s, "ends": e} | ({} if a is None else {"axes": a}) | ({} if p is None else {"steps": p})
        check("slice", "Slice", label + " as attributes", [v], attrs,
              [None if q is None else array(q) for q in inputs], {})
    check("slice", "Slice", "i64 scalar pick", [np.array([4, 5, 6]), i64(1), i64(2), i64(0)])
    check("slice", "Slice", "arguments", [v, np.array([1]), np.array([3]), np.array([0])])
    check("slice", "Slice", "half", [v.astype(np.float16), i64(1), i64(3), i64(1)])


def indexing():
    x = f(4, 5, 6)
    for axis in (0, 1, -1):
        check("gather", "Gather", f"axis {axis}", [x, np.array([[0, 3], [-1, 1]])], {"axis": axis})
    check("gather", "Gather", "scalar index", [x, np.int64(2)], {"axis": 0})
    check("gather", "Gather", "of a shape", [np.array([7, 8, 9]), np.int64(-1)], {"axis": 0})
    check("gather", "Gather", "i32 ids", [f(9, 4), ints(2, 3, low=0, high=9, dtype=np.int32)])
    check("gather", "Gather", "no index", [x, np.zeros((0,), np.int64)], {"axis": 1})
    check("gather", "Gather", "half", [x.astype(np.float16), np.array([1, 0])], {"axis": 0})
    for axis in (0, 1, -1):
        check("gather_elements", "GatherElements", f"axis {axis}", [f(3, 4), ints(3, 4, low=-3, high=3)], {"axis": axis})
    check("gather_elements", "GatherElements", "fewer", [f(4, 5), ints(2, 3, low=0, high=4)], {"axis": 0})
    check("gather_elements", "GatherElements", "empty", [f(4, 5), np.zeros((0, 5), np.int64)], {"axis": 0})
    check("gather_nd", "GatherND", "full", [x, np.array([[0, 1, 2], [3, -1, -6]])])
    check("gather_nd", "GatherND", "partial", [x, np.array([[[0], [1]], [[2], [-1]]])])
    check("gather_nd", "GatherND", "batch", [x, ints(4, 2, 1, low=0, high=5)], {"batch_dims": 1})
    check("gather_nd", "GatherND", "bool", [rng.random((3, 4)) < 0.5, ints(5, 2, low=0, high=3)])
    check("gather_nd", "GatherND", "no tuple", [x, np.zeros((0, 2), np.int64)])
    check("scatter_nd", "ScatterND", "rows", [x, np.array([[2], [0]]), f(2, 5, 6)])
    check("scatter_nd", "ScatterND", "elements", [x, np.array([[0, 1, 2], [3, 4, -1]]), f(2)])
    check("scatter_nd", "ScatterND", "i64", [np.arange(8), np.array([[4], [3], [1], [7]]), np.array([9, 10, 11, 12])])
    check("scatter_nd", "ScatterND", "nothing", [x, np.zeros((0, 1), np.int64), f(0, 5, 6)])
    for upper in (True, False):
        for k in (None, 0, 1, -2, 9, -9):
            inputs = [f(2, 4, 5)] + ([] if k is None else [np.int64(k)])
            check("trilu", "Trilu", f"upper {upper} k {k}", inputs, {"upper": upper}, onnx_attrs={"upper": int(upper)})
    check("trilu", "Trilu", "i64", [ints(3, 3)], {"upper": False}, onnx_attrs={"upper": 0})
    check("trilu", "Trilu", "bool", [np.ones((3, 3), bool)], {"upper": False}, onnx_attrs={"upper": 0})
    check("trilu", "Trilu", "empty", [f(0, 3)])
    add("trilu", "infinity", [np.full((3, 3), -inf, np.float32)], [np.triu(np.full((3, 3), -inf, np.float32), 0)])
    check("non_zero", "NonZero", "2d", [np.array([[1, 0], [0, 2], [nan, 0]], np.float32)])
    check("non_zero", "NonZero", "bool", [rng.random((2, 3, 4)) < 0.5])
    check("non_zero", "NonZero", "none", [np.zeros((3, 2), np.int64)])
    check("one_hot", "OneHot", "last", [np.array([0, 2, -1, 5]), np.int64(3), np.array([0.0, 1.0], np.float32)])
    check("one_hot", "OneHot", "axis 0", [ints(2, 3, low=0, high=4), Const(np.int64(4)), np.array([2.0, 5.0], np.float32)],
          {"axis": 0})
    check("one_hot", "OneHot", "i64", [ints(2, 3, low=0, high=4), np.int64(4), np.array([0, 1])], {"axis": 1})
    for a in ((0, 5, 1), (3, 3, 1), (2, 11, 3), (10, 0, -3), (0, -4, 1)):
        check("range", "Range", str(a), [np.int64(v) for v in a])
        check("range", "Range", f"{a} constant", [Const(np.int64(v)) for v in a])
        add("range", f"{a} attributes", [], [np.arange(*a)],
            {"start": [a[0]], "limit": [a[1]], "delta": [a[2]], "dtype": "dtype:i64"})
    check("range", "Range", "f32", [np.float32(0.5), np.float32(3.0), np.float32(0.25)])
    for shape in ((2, 3), (), (0, 4)):
        for value, name, dt in ((0.0, "f32", np.float32), (7.0, "i64", np.int64), (1.0, "bool", bool), (-inf, "f16", np.float16)):
            add("constant_of_shape", f"{list(shape)} {name}", [Const(np.array(shape, np.int64))],
                [np.full(shape, value).astype(dt)], {"value": value if np.isfinite(value) else str(value), "dtype": "dtype:" + name})
    add("constant_of_shape", "attribute", [], [np.ones((2, 2), np.float32)], {"shape": [2, 2], "value": 1.0})
    add("constant_of_shape", "argument", [np.array([3, 1])], [np.ones((3, 1), np.float32)], {"value": 1.0})


def reductions():
    x = f(3, 4, 5)
    table = {"reduce_sum": "ReduceSum", "reduce_mean": "ReduceMean", "reduce_max": "ReduceMax", "reduce_min": "ReduceMin",
             "reduce_prod": "ReduceProd"}
    for op, onnx_op in table.items():
        for axes in ([], [0], [-1], [1], [0, 2], [0, 1, 2]):
            for keep in (True, False):
                check(op, onnx_op, f"{axes} keep {keep}", [x], {"axes": axes, "keepdims": keep},
                      [x] + ([np.array(axes)] if axes else []), {"keepdims": int(keep)})
        for name, y in (("i64", ints(3, 4)), ("half", f(3, 4).astype(np.float16))):
            check(op, onnx_op, name, [y], {"axes": [1]}, [y, np.array([1])], {})
    for op, value in (("reduce_sum", 0), ("reduce_prod", 1), ("reduce_max", -inf), ("reduce_min", inf), ("reduce_mean", nan)):
        add(op, "no elements", [f(2, 0)], [np.full((2, 1), value, np.float32)], {"axes": [1]})
        add(op, "no rows", [f(0, 3)], [np.zeros((0, 1), np.float32)], {"axes": [1]})
    row = np.array([[1, nan, 3], [inf, 1, 2], [inf, -inf, 0]], np.float32)
    for op, fold in (("reduce_sum", np.sum), ("reduce_max", np.max), ("reduce_min", np.min), ("reduce_mean", np.mean)):
        with np.errstate(invalid="ignore"):
            add(op, "special", [row], [fold(row, axis=1, keepdims=True)], {"axes": [1]})
    for axis in (0, 1, -1):
        for last in (False, True):
            y = ints(3, 4, 5, low=0, high=3).astype(np.float32)
            check("arg_max", "ArgMax", f"axis {axis} last {last}", [y], {"axis": axis, "select_last_index": last},
                  onnx_attrs={"axis": axis, "select_last_index": int(last)})
    check("arg_max", "ArgMax", "no keepdims", [x], {"axis": 1, "keepdims": False}, onnx_attrs={"axis": 1, "keepdims": 0})
    check("arg_max", "ArgMax", "i32", [ints(3, 4, dtype=np.int32)], {"axis": 1})
    add("arg_max", "NaN never wins", [np.array([[nan, 1, 2], [nan, -inf, nan], [nan, nan, nan]], np.float32)],
        [np.array([[2], [1], [0]])], {"axis": 1})
    for exclusive in (False, True):
        for reverse in (False, True):
            attrs = {"exclusive": exclusive, "reverse": reverse}
            check("cumsum", "CumSum", f"{attrs}", [x, Const(np.int64(1))], attrs,
                  onnx_attrs={k: int(v) for k, v in attrs.items()})
    check("cumsum", "CumSum", "i64 last", [ints(2, 6, low=0, high=2), np.int64(-1)])
    check("cumsum", "CumSum", "i32", [ints(2, 6, dtype=np.int32), np.int32(0)])
    check("cumsum", "CumSum", "empty", [f(2, 0), np.int64(1)])


def algebra():
    shapes = [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)), ((2, 1, 3, 4), (1, 3, 4, 2)), ((4,), (4, 5)),
              ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4,)), ((4,), (2, 4, 3)), ((1, 8), (8, 6)), ((2, 1, 8), (2, 8, 6))]
    for s, t in shapes:
        check("matmul", "MatMul", f"{list(s)} by {list(t)}", [f(*s), f(*t)], tol=1e-5)
    check("matmul", "MatMul", "larger", [f(17, 33), f(33, 29)], tol=1e-5)
    add("matmul", "no rows", [f(0, 4), f(4, 3)], [np.zeros((0, 3), np.float32)])
    add("matmul", "no inner", [f(2, 0), f(0, 3)], [np.zeros((2, 3), np.float32)])
    check("matmul", "MatMul", "i32", [ints(3, 4, dtype=np.int32), ints(4, 2, dtype=np.int32)])
    check("matmul", "MatMul", "half", [f(5, 8).astype(np.float16), f(8, 3).astype(np.float16)])
    a = f(2, 3)
    a[0, 1] = nan
    check("matmul", "MatMul", "NaN", [a, f(3, 2)], tol=1e-5)
    for axis in (-1, 0, 1):
        check("softmax", "Softmax", f"axis {axis}", [f(3, 4, 5, scale=3)], {"axis": axis})
    check("softmax", "Softmax", "large", [np.array([[1e30, 1e30, 0], [-1e30, 0, 1]], np.float32)])
    check("softmax", "Softmax", "masked", [np.array([[0.5, -inf, 1.0], [-inf, -inf, 2.0]], np.float32)])
    add("softmax", "all masked", [np.full((1, 3), -inf, np.float32)], [np.full((1, 3), nan, np.float32)])
    add("softmax", "NaN", [np.array([[nan, 1, 2], [1, nan, 2]], np.float32)], [np.full((2, 3), nan, np.float32)])
    check("softmax", "Softmax", "half", [f(3, 8).astype(np.float16)])
    add("softmax", "empty", [f(0, 3)], [f(0, 3)])
    for axis, shape in ((-1, (3, 16)), (1, (2, 3, 4)), (0, (6,)), (-2, (2, 3, 4))):
        rest = shape[axis:]
        for bias in (True, False):
            inputs = [f(*shape, scale=3), f(*rest)] + ([f(*rest)] if bias else [])
            check("layer_norm", "LayerNormalization", f"axis {axis} bias {bias}", inputs, {"axis": axis, "epsilon": 1e-5}, tol=1e-5)
    check("layer_norm", "LayerNormalization", "large mean", [f(2, 64) + 1000, f(64), f(64)], {"epsilon": 1e-5}, tol=2e-3)
    check("layer_norm", "LayerNormalization", "constant row", [np.full((2, 8), 3.0, np.float32), f(8), f(8)], {"epsilon": 1e-5})
    check("layer_norm", "LayerNormalization", "half", [f(3, 16).astype(np.float16), f(16).astype(np.float16), f(16).astype(np.float16)],
          tol=5e-3)
    x, g, b = f(2, 3, 4), f(1, 4), f(3, 1)
    d = x.astype(np.float64)
    mean, var = d.mean((1, 2), keepdims=True), d.var((1, 2), keepdims=True)
    add("layer_norm", "broadcast scale", [x, g, b], [((d - mean) / np.sqrt(var + 1e-3) * g + b).astype(np.float32)],
        {"axis": 1, "epsilon": 1e-3}, tol=1e-5)
    for shape in ((3, 16), (2, 1, 5), (0, 4)):
        x, g = f(*shape, scale=2), f(shape[-1])
        d = x.astype(np.float64)
        y = d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-6) * g if x.size else d
        add("rms_norm", str(list(shape)), [x, g], [y.astype(np.float32)], {"epsilon": 1e-6}, tol=1e-5)


def gelu_erf(x):
    from math import erf
    return x / 2 * (1 + np.vectorize(erf)(x / np.sqrt(2)))


ACTIVATIONS = {
    "none": lambda x: x,
    "gelu_erf": gelu_erf,
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


def attention(q, keys, values, heads, scale, visible, bias=0):
    """q[b, s, H*d]; keys, values[b, H, t, d]; visible[b, s, t]; bias broadcasts to [b, H, s, t]. In double precision."""
    b, s, width = q.shape
    d = width // heads
    q = q.astype(np.float64).reshape(b, s, heads, d).transpose(0, 2, 1, 3)
    scores = scale * (q @ keys.astype(np.float64).transpose(0, 1, 3, 2))
    scores = np.where(visible[:, None], scores + bias, -inf)
    top = scores.max(-1, keepdims=True, initial=-1e300)
    p = np.exp(scores - top)
    total = p.sum(-1, keepdims=True)
    y = np.where(total > 0, p / np.where(total > 0, total, 1), 0) @ values.astype(np.float64)
    return y.transpose(0, 2, 1, 3).reshape(b, s, width)


def split_heads(x, heads):
    b, t, width = x.shape
    return x.reshape(b, t, heads, width // heads).transpose(0, 2, 1, 3)


def fused():
    for name, act in ACTIVATIONS.items():
        for bias in (False, True):
            for residual in (False, True):
                x, w, c, r = f(2, 3, 8), f(5, 8), f(5), f(2, 3, 5)
                y = act(x.astype(np.float64) @ w.T.astype(np.float64) + (c if bias else 0)) + (r if residual else 0)
                inputs = [x, w, c if bias else None, r if residual else None]
                while inputs[-1] is None:
                    inputs.pop()
                add("linear", f"{name} bias {bias} residual {residual}", inputs, [y.astype(np.float32)], {"activation": name}, tol=1e-5)
    for m, k, n in ((1, 8, 5), (1, 64, 33), (3, 1, 2), (0, 4, 3), (2, 0, 3), (17, 19, 23), (1, 1, 1)):
        x, w = f(m, k), f(n, k)
        add("linear", f"{m}x{k}x{n}", [x, w], [(x.astype(np.float64) @ w.T.astype(np.float64)).astype(np.float32)], tol=1e-5)
    x, w, c = (v.astype(np.float16) for v in (f(3, 8), f(5, 8), f(5)))
    y = x.astype(np.float64) @ w.T.astype(np.float64) + c
    add("linear", "half", [x, w, c], [y.astype(np.float16)], tol=1e-3)
    add("linear", "half to f32", [x, w, c], [y.astype(np.float32)], {"dtype": "dtype:f32"}, tol=1e-5)

    heads, d = 2, 8
    for b, s, p, causal, masked in ((1, 1, 0, True, False), (2, 5, 0, True, False), (2, 5, 0, False, False),
                                    (2, 3, 4, True, False), (2, 3, 4, True, True), (1, 1, 7, True, True),
                                    (2, 4, 0, False, True), (1, 19, 0, True, False), (0, 3, 0, True, False)):
        q, k, v = f(b, s, heads * d), f(b, s, heads * d), f(b, s, heads * d)
        past = [f(b, heads, p, d), f(b, heads, p, d)] if p else [None, None]
        keys, values = split_heads(k, heads), split_heads(v, heads)
        if p:
            keys, values = np.concatenate([past[0], keys], 2), np.concatenate([past[1], values], 2)
        visible = np.ones((b, s, p + s), bool)
        if causal:
            visible &= np.arange(p + s)[None, None] <= p + np.arange(s)[None, :, None]
        mask = None
        if masked:
            mask = np.ones((b, p + s), np.int64)
            mask[0, :2] = 0
            mask[-1, 1] = 0
            visible &= mask[:, None] != 0
        y = attention(q, keys, values, heads, 0.3, visible)
        inputs = [q, k, v] + past + [mask]
        while inputs[-1] is None:
            inputs.pop()
        add("attention", f"b{b} s{s} p{p} causal {causal} mask {masked}", inputs, [y.astype(np.float32)],
            {"num_heads": heads, "scale": 0.3, "causal": causal}, tol=1e-5)
    q, k, v = f(1, 2, 16), f(1, 3, 16), f(1, 3, 16)
    y = attention(q, split_heads(k, 2), split_heads(v, 2), 2, 1.0, np.ones((1, 2, 3), bool))
    add("attention", "more keys than queries", [q, k, v], [y.astype(np.float32)], {"num_heads": 2, "scale": 1.0, "causal": False}, tol=1e-5)
    q, k, v = f(1, 2, 4), f(1, 2, 4), f(1, 2, 4)
    add("attention", "nothing visible", [q, k, v, None, None, np.array([[0, 0]], np.int32)], [np.zeros((1, 2, 4), np.float32)],
        {"num_heads": 2, "scale": 1.0, "causal": True})
    shown = np.array([[True, False]])
    y = attention(q, split_heads(k, 2), split_heads(v, 2), 2, 1.0, np.broadcast_to(shown[:, None], (1, 2, 2)))
    add("attention", "mask of bool", [q, k, v, None, None, shown], [y.astype(np.float32)], {"num_heads": 2, "scale": 1.0, "causal": False}, tol=1e-5)
    q, k, v = (x.astype(np.float16) for x in (f(1, 3, 16), f(1, 3, 16), f(1, 3, 16)))
    y = attention(q, split_heads(k, 2), split_heads(v, 2), 2, 0.35, np.tril(np.ones((1, 3, 3), bool)))
    add("attention", "half", [q, k, v], [y.astype(np.float16)], {"num_heads": 2, "scale": 0.35, "causal": True}, tol=1e-3)

    for past, seq in (([0, 0], 3), ([5, 2], 1), ([1], 4), ([], 2)):
        past = np.array(past, np.int32)
        add("positions", f"{past.tolist()} {seq}", [past], [past.astype(np.int64)[:, None] + np.arange(seq)], {"seq": [seq]})

    layers, slots, context, d = 3, 4, 6, 4
    for layer, past, seq in ((0, [0, 0], 3), (2, [5, 2], 1), (1, [1, 3, 0, 2], 3)):
        for half in (False, True):
            kv = f(layers, 2, slots, heads, context, d)
            k, v = f(len(past), seq, heads * d), f(len(past), seq, heads * d)
            if half:
                kv, k, v = (x.astype(np.float16) for x in (kv, k, v))
            out = kv.copy()
            for row, at in enumerate(past):
                out[layer, 0, row, :, at:at + seq] = split_heads(k, heads)[row]
                out[layer, 1, row, :, at:at + seq] = split_heads(v, heads)[row]
            add("kv_append", f"layer {layer} past {past} half {half}", [kv, k, v, np.array(past, np.int32)], [out], {"layer": layer}, tol=0)
    for layer, past, seq, masked in ((0, [0, 0], 3, False), (2, [5, 2], 1, False), (1, [1, 3, 0, 2], 3, False), (1, [2, 3], 2, True)):
        b = len(past)
        kv, q = f(layers, 2, slots, heads, context, d), f(b, seq, heads * d)
        visible = np.arange(context)[None, None] <= np.array(past)[:, None, None] + np.arange(seq)[None, :, None]
        inputs = [q, kv, np.array(past, np.int32)]
        if masked:
            mask = np.ones((b, 5), np.int32)
            mask[0, 0:2] = 0
            mask[1, :] = 0
            inputs.append(mask)
            visible[:, :, :5] &= mask[:, None] != 0
        y = attention(q, kv[layer, 0, :b], kv[layer, 1, :b], heads, 0.5, visible)
        add("cached_attention", f"layer {layer} past {past} seq {seq} mask {masked}", inputs, [y.astype(np.float32)],
            {"layer": layer, "num_heads": heads, "scale": 0.5}, tol=1e-5)
    for layer, past, seq, masked, half in ((0, [0, 0], 3, False, False), (2, [5, 2], 1, False, False), (1, [1, 3, 0, 2], 3, False, False),
                                           (1, [2, 3], 2, True, False), (0, [4], 2, False, True)):
        b = len(past)
        kv, qkv = f(layers, 2, slots, heads, context, d), f(b, seq, 3 * heads * d)
        if half:
            kv, qkv = kv.astype(np.float16), qkv.astype(np.float16)
        q, k, v = np.split(qkv, 3, axis=-1)
        out = kv.copy()
        for row, at in enumerate(past):
            out[layer, 0, row, :, at:at + seq] = split_heads(k, heads)[row]
            out[layer, 1, row, :, at:at + seq] = split_heads(v, heads)[row]
        visible = np.arange(context)[None, None] <= np.array(past)[:, None, None] + np.arange(seq)[None, :, None]
        inputs = [kv, qkv, np.array(past, np.int32)]
        if masked:
            mask = np.ones((b, 5), np.int32)
            mask[0, 0:2] = 0
            inputs.append(mask)
            visible[:, :, :5] &= mask[:, None] != 0
        y = attention(q, out[layer, 0, :b], out[layer, 1, :b], heads, 0.5, visible)
        add("append_attention", f"layer {layer} past {past} seq {seq} mask {masked} half {half}", inputs, [out, y.astype(qkv.dtype)],
            {"layer": layer, "num_heads": heads, "scale": 0.5}, tol=1e-3 if half else 1e-5)
    ids, tokens, places = ints(2, 3, low=0, high=9, dtype=np.int32), f(9, 4), f(6, 4)
    past, places_ids = np.array([2, 0], np.int32), ints(2, 3, low=0, high=6, dtype=np.int32)
    add("embed", "tokens alone", [ids, tokens], [tokens[ids]])
    add("embed", "past", [ids, tokens, places, past], [tokens[ids] + places[past[:, None] + np.arange(3)]])
    add("embed", "position ids", [ids.astype(np.int64), tokens, places, None, places_ids], [tokens[ids] + places[places_ids]])
    tokens, places = tokens.astype(np.float16), places.astype(np.float16)
    add("embed", "half", [ids, tokens, places, past], [tokens[ids] + places[past[:, None] + np.arange(3)]], tol=1e-3)
    add("embed", "no ids", [ids[:, :0], tokens], [tokens[ids[:, :0]]])
    check("arg_max", "ArgMax", "i32 result", [y], {"axis": -1, "dtype": "dtype:i32"}, onnx_attrs={"axis": -1}, cast=np.int32)
    q, k, v = f(1, 100, 8), f(1, 100, 8), f(1, 100, 8)
    y = attention(q, split_heads(k, 4), split_heads(v, 4), 4, 0.5, np.tril(np.ones((1, 100, 100), bool)))
    add("attention", "long", [q, k, v], [y.astype(np.float32)], {"num_heads": 4, "scale": 0.5, "causal": True}, tol=1e-5)
    x = f(3, 4, 5)
    for lengths in ([1, 4, 2], [4, 4, 4]):
        add("gather_last", str(lengths), [x, np.array(lengths, np.int32)], [x[np.arange(3), np.array(lengths) - 1]])
    add("gather_last", "half", [x.astype(np.float16), np.array([2, 2, 1])], [x.astype(np.float16)[np.arange(3), [1, 1, 0]]])
    add("dim_values", "vector", [], [np.array([3, 0, 1])], {"values": [3, 0, 1]})
    add("dim_values", "scalar", [], [np.int64(9)], {"values": [9], "scalar": True})
    add("dim_values", "empty", [], [np.zeros(0, np.int64)], {"values": []})


def biased_attention():
    """Every axis of the bias broadcast or not; keys that only a bias of -inf hides; a row that sees nothing."""
    heads, d, b, s, p = 2, 4, 2, 3, 2
    for shape, causal, masked in (((b, heads, s, p + s), False, False), ((1, heads, s, p + s), True, False),
                                  ((b, 1, 1, p + s), True, True), ((1, 1, s, 1), False, False), ((1, 1, s, p + s), False, True)):
        q, k, v = f(b, s, heads * d), f(b, s, heads * d), f(b, s, heads * d)
        past = [f(b, heads, p, d), f(b, heads, p, d)]
        keys = np.concatenate([past[0], split_heads(k, heads)], 2)
        values = np.concatenate([past[1], split_heads(v, heads)], 2)
        visible = np.ones((b, s, p + s), bool)
        if causal:
            visible &= np.arange(p + s)[None, None] <= p + np.arange(s)[None, :, None]
        mask = None
        if masked:
            mask = np.ones((b, p + s), np.int32)
            mask[0, 1] = 0
            visible &= mask[:, None] != 0
        bias = f(*shape)
        if shape[2] > 1 and shape[3] > 1:
            bias[..., 0, 2:] = -inf
            bias[..., 1, :] = -inf
        y = attention(q, keys, values, heads, 0.5, visible, bias.astype(np.float64))
        add("attention", f"bias {list(shape)} causal {causal} mask {masked}", [q, k, v, *past, mask, bias], [y.astype(np.float32)],
            {"num_heads": heads, "scale": 0.5, "causal": causal}, tol=1e-5)
    q, k, v = (x.astype(np.float16) for x in (f(1, 3, 8), f(1, 3, 8), f(1, 3, 8)))
    bias = f(1, 2, 3, 3).astype(np.float16)
    y = attention(q, split_heads(k, 2), split_heads(v, 2), 2, 0.5, np.ones((1, 3, 3), bool), bias.astype(np.float64))
    add("attention", "half, bias", [q, k, v, None, None, None, bias], [y.astype(np.float16)],
        {"num_heads": 2, "scale": 0.5, "causal": False}, tol=1e-3)


def added_norms():
    for shape, biased in (((2, 3, 8), True), ((5, 3), False), ((0, 4), True), ((1, 1), True)):
        x, r, g, c = f(*shape), f(*shape), f(shape[-1]), f(shape[-1])
        total = x.astype(np.float64) + r
        mean = total.mean(-1, keepdims=True) if total.size else total
        y = (total - mean) / np.sqrt(((total - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * g + (c if biased else 0)
        add("add_layer_norm", f"{list(shape)} bias {biased}", [x, r, g] + [c] * biased, [x + r, y.astype(np.float32)], tol=1e-5)
    x, r, g, c = (v.astype(np.float16) for v in (f(3, 8), f(3, 8), f(8), f(8)))
    total = x.astype(np.float64) + r
    y = (total - total.mean(-1, keepdims=True)) / np.sqrt(total.var(-1, keepdims=True) + 1e-5) * g + c
    add("add_layer_norm", "half", [x, r, g, c], [total.astype(np.float16), y.astype(np.float16)], tol=2e-3)


def brain_floats():
    """bfloat16 rounds to nearest even after each op, which computes in single precision."""
    b16 = lambda x: np.asarray(x, dtype=np.float32).astype(ml_dtypes.bfloat16)
    x, y = b16(f(3, 4)), b16(f(4))
    add("cast", "f32 to bf16", [SPECIAL], [b16(SPECIAL)], {"to": "dtype:bf16"}, tol=0, native_only=True)
    ties = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF], np.uint32).view(np.float32)
    add("cast", "ties to bf16", [ties], [b16(ties)], {"to": "dtype:bf16"}, tol=0, native_only=True)
    add("cast", "bf16 to f32", [b16(SPECIAL)], [b16(SPECIAL).astype(np.float32)], {"to": "dtype:f32"}, tol=0)
    add("add", "bf16", [x, y], [b16(x.astype(np.float32) + y.astype(np.float32))], tol=0, native_only=True)
    add("tanh", "bf16", [x], [b16(np.tanh(x.astype(np.float32)))], tol=8e-3)
    add("matmul", "bf16", [x, x.T], [b16(x.astype(np.float32) @ x.T.astype(np.float32))], tol=8e-3)
    add("transpose", "bf16", [x], [x.T], {"perm": [1, 0]}, tol=0)
    add("concat", "bf16", [x, x], [np.concatenate([x, x], 1)], {"axis": 1}, tol=0)


def quantise(x, group=0, scale=None):
    """(q, s) of rows, as ir/ops/Quantize.h states it; in single precision throughout."""
    x = np.asarray(x, np.float32)
    rows = x.reshape(-1, group or x.shape[-1] or 1)
    if scale is None:
        top = np.abs(rows).max(-1) if rows.size else np.zeros(len(rows), np.float32)
        scale = np.where(top < np.float32(2.0**-100), np.float32(1), top / np.float32(127)).astype(np.float32)
        out = scale.reshape(x.shape[:-1] + (x.shape[-1] // (group or x.shape[-1] or 1),))
    else:
        out = scale = np.float32(scale)
    q = np.clip(np.rint(rows * np.broadcast_to(1 / scale, (len(rows),))[:, None].astype(np.float32)), -127, 127)
    return q.astype(np.int8).reshape(x.shape), out


def dequantise(q, s):
    s = np.asarray(s, np.float64)
    return q.astype(np.float64) * (np.repeat(s, q.shape[-1] // s.shape[-1], -1) if s.ndim else s)


def single(x):
    return np.asarray(x).astype(np.float32)


def int8():
    ties = np.array([[127, 0.5, 1.5, -0.5, -1.5, 2.5, -127, 0], [0, 0, 0, -0.0, 0, 0, 0, 0]], np.float32)
    tiny = np.array([[2.0**-101, -(2.0**-140), 0, 1e-45], [2.0**-100, 2.0**-101, 0, -(2.0**-100)]], np.float32)
    for name, x, group in (("3d", f(2, 3, 8), 0), ("groups", f(2, 3, 8), 4), ("groups of one", f(3, 4), 1), ("ties", ties, 0),
                           ("vanishing", tiny, 0), ("vector", f(6, scale=1e30), 3), ("no rows", f(0, 4), 2), ("long", f(2, 100), 50)):
        add("quantize", name, [x], list(quantise(x, group)), {"group": group}, tol=1e-7)
    half = f(3, 8).astype(np.float16)
    add("quantize", "half", [half], list(quantise(half)), tol=1e-7)
    x = f(3, 4, scale=3)
    for scale in (0.02, 0.5, 127.0):
        add("quantize", f"scale {scale}", [x, np.float32(scale)], list(quantise(x, scale=scale)), tol=0)

    q, s = quantise(f(3, 8), 4)
    add("dequantize", "groups", [q, s], [single(dequantise(q, s))])
    add("dequantize", "half", [q, s], [dequantise(q, s).astype(np.float16)], {"dtype": "dtype:f16"}, tol=1e-3)
    add("dequantize", "one scale", [q, np.float32(0.3)], [single(dequantise(q, np.float32(0.3)))])
    add("dequantize", "no rows", [q[:0], s[:0]], [single(q[:0])])

    def product(x, w, c, act=ACTIVATIONS["none"]):
        """x and w dequantised; as exact as doubles are"""
        return act(x @ w.T + (0 if c is None else c.astype(np.float64)))

    forms = {  # how x is given: operands x, x_scale; attributes; its value
        "weights": lambda x: (x, None, {}, x.astype(np.float64)),
        "rows": lambda x: (x, None, {"x_group": 0}, dequantise(*quantise(x))),
        "groups": lambda x: (x, None, {"x_group": 4}, dequantise(*quantise(x, 4))),
        "scale": lambda x: (x, np.float32(0.02), {}, dequantise(*quantise(x, scale=0.02))),
        "i8 rows": lambda x: (*quantise(x), {"dtype": "dtype:f32"}, dequantise(*quantise(x))),
        "i8 groups": lambda x: (*quantise(x, 8), {"dtype": "dtype:f32"}, dequantise(*quantise(x, 8))),
        "i8 scale": lambda x: (*quantise(x, scale=0.02), {"dtype": "dtype:f32"}, dequantise(*quantise(x, scale=0.02))),
    }

    def cut(inputs):
        while inputs[-1] is None:
            inputs.pop()
        return inputs

    for name, form in forms.items():
        for m, n, k, wgroup in ((1, 5, 16, 0), (2, 33, 16, 8), (7, 5, 16, 4), (0, 3, 8, 0)):
            x, wq, c, r = f(m, k), quantise(f(n, k), wgroup), f(n), f(m, n)
            given, scale, attrs, value = form(x)
            y = product(value, dequantise(*wq), c, ACTIVATIONS["gelu_tanh"]) + r
            add("quantized_linear", f"{name} {m}x{k}x{n} weight groups {wgroup}", [given, *wq, scale, c, r], [single(y)],
                attrs | {"activation": "gelu_tanh"}, tol=2e-5)
            if m:
                y = product(value, dequantise(*wq), c)
                qs = quantise(y)
                add("requantized_linear", f"{name} {m}x{k}x{n} weight groups {wgroup}", cut([given, *wq, scale, c]), list(qs),
                    {a: v for a, v in attrs.items() if a != "dtype"}, tol=2e-5)
    x, wq = f(2, 3, 16), quantise(f(5, 16))
    y = product(x.astype(np.float64), dequantise(*wq), None)
    add("quantized_linear", "3d", [x, *wq], [single(y)], tol=2e-5)
    half = x.astype(np.float16)
    y = product(dequantise(*quantise(half)), dequantise(*wq), None)
    add("quantized_linear", "half", [half, *wq], [y.astype(np.float16)], {"x_group": 0}, tol=1e-3)
    add("quantized_linear", "half to f32", [half, *wq], [single(y)], {"x_group": 0, "dtype": "dtype:f32"}, tol=2e-5)
    # Every product is 127 * 127: the sum of 1041 of them does not fit a float's 24 bits.
    ones = np.full((5, 1041), 127, np.int8)
    ones[:, -1] = [127, 126, 125, -127, 0]
    s = np.ones((5, 1), np.float32)
    add("quantized_linear", "exact sums", [ones, ones[:3], s[:3], s],
        [single(ones.astype(np.int64) @ ones[:3].T.astype(np.int64))], {"dtype": "dtype:f32"}, tol=0, native_only=True)
    add("quantized_linear", "exact sums, few rows", [ones[:1], ones, s, s[:1]],
        [single(ones[:1].astype(np.int64) @ ones.T.astype(np.int64))], {"dtype": "dtype:f32"}, tol=0, native_only=True)
    x, wq, c = f(4, 16), quantise(f(8, 16)), f(8)
    y = product(dequantise(*quantise(x)), dequantise(*wq), c, ACTIVATIONS["gelu_tanh"])
    add("requantized_linear", "groups", [*quantise(x)[:1], *wq, quantise(x)[1], c], list(quantise(y, 4)),
        {"activation": "gelu_tanh", "y_group": 4}, tol=2e-5)
    add("requantized_linear", "scale", [*quantise(x)[:1], *wq, quantise(x)[1], c, np.float32(0.1)], list(quantise(y, scale=0.1)),
        {"activation": "gelu_tanh"}, tol=2e-5)

    for name, x in (("3d", f(2, 3, 8)), ("half", f(3, 8).astype(np.float16)), ("wide", f(2, 64, scale=5))):
        g, b = (v.astype(x.dtype) for v in (f(x.shape[-1]), f(x.shape[-1])))
        wide = x.astype(np.float64)
        y = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5) * g + b
        add("quantized_layer_norm", name, [x, g, b], list(quantise(y)), tol=1e-5)
        add("quantized_layer_norm", name + " groups", [x, g, b], list(quantise(y, 4)), {"group": 4}, tol=1e-5)
        add("quantized_layer_norm", name + " scale", [x, g, b, np.float32(0.05)], list(quantise(y, scale=0.05)), tol=1e-5)

    layers, slots, heads, context, d = 2, 4, 2, 6, 4
    for layer, past, seq, masked in ((0, [0, 0], 3, False), (1, [5, 2], 1, False), (1, [1, 3, 0, 2], 3, False), (1, [2, 3], 2, True)):
        b = len(past)
        qkv = f(b, seq, 3 * heads * d)
        q, k, v = np.split(qkv, 3, axis=-1)
        inputs = [np.array(past, np.int32)]
        visible = np.arange(context)[None, None] <= np.array(past)[:, None, None] + np.arange(seq)[None, :, None]
        if masked:
            mask = np.ones((b, 5), np.int32)
            mask[0, 0:2] = 0
            inputs.append(mask)
            visible[:, :, :5] &= mask[:, None] != 0
        attrs = {"layer": layer, "num_heads": heads, "scale": 0.5}
        title = f"layer {layer} past {past} seq {seq} mask {masked}"
        old = quantise(f(layers, 2, slots, heads, context, d))
        new = [x.copy() for x in old]
        kv = f(layers, 2, slots, heads, context, d)
        out = kv.copy()
        for row, at in enumerate(past):
            for part, rows in enumerate((k, v)):
                rows = split_heads(rows, heads)[row]
                out[layer, part, row, :, at:at + seq] = rows
                new[0][layer, part, row, :, at:at + seq], new[1][layer, part, row, :, at:at + seq] = quantise(rows)

        def packed(state):
            rows, scales = (x.reshape(layers, 2, slots, heads, -1) for x in state)
            return np.concatenate([rows, scales.copy().view(np.int8)], -1).reshape(layers, 2, slots, heads, context, d + 4)

        values = dequantise(*new)
        y = attention(q, values[layer, 0, :b], values[layer, 1, :b], heads, 0.5, visible)
        add("append_attention", "int8 " + title, [packed(old), qkv] + inputs, [packed(new), single(y)], attrs, tol=1e-5)
        add("quantized_append_attention", "int8 " + title, [packed(old), qkv] + inputs, [packed(new), *quantise(y, d)],
            attrs | {"group": d}, tol=1e-5)
        y = attention(q, out[layer, 0, :b], out[layer, 1, :b], heads, 0.5, visible)
        add("quantized_append_attention", title, [kv, qkv] + inputs, [out, *quantise(y, d)], attrs | {"group": d}, tol=1e-5)
        if not masked:
            add("quantized_append_attention", title + " scale", [kv, qkv] + inputs + [None, np.float32(0.01)],
                [out, *quantise(y, scale=0.01)], attrs, tol=1e-5)


def int8_tables():
    ids, past, ids2 = ints(2, 3, low=0, high=9, dtype=np.int32), np.array([2, 0], np.int32), ints(2, 3, low=0, high=6, dtype=np.int32)
    for groups in (1, 2):
        q, scales = ints(9, 4, low=-127, high=128, dtype=np.int8), np.abs(f(9, groups, scale=0.02)) + np.float32(0.001)
        rows = (q.astype(np.float64).reshape(9, groups, -1) * scales[:, :, None]).reshape(9, 4)
        add("embed", f"int8, {groups} scales a row", [ids, q, None, None, None, scales], [rows[ids].astype(np.float32)], {"dtype": "dtype:f32"})
        places = f(6, 4)
        add("embed", f"int8, {groups} scales a row, position ids", [ids, q, places, None, ids2, scales],
            [(rows[ids] + places[ids2]).astype(np.float32)], {"dtype": "dtype:f32"})
        places = places.astype(np.float16)
        add("embed", f"int8, {groups} scales a row, half", [ids, q, places, past, None, scales],
            [(rows[ids] + places[past[:, None] + np.arange(3)]).astype(np.float16)], {"dtype": "dtype:f16"}, tol=1e-3)


def masked_softmaxes():
    """Masks of every kind alone and together, every axis of the bias broadcast or not, rows that see nothing, special values."""
    b, h, d = 2, 3, np.float64

    def case(name, x, scale=0.3, causal=False, mask=None, bias=None, tol=1e-6):
        queries, keys = x.shape[2:]
        visible = np.ones(x.shape, bool)
        if causal:
            visible &= np.arange(keys) <= keys - queries + np.arange(queries)[:, None]
        if mask is not None:
            visible &= mask[:, None, None] != 0
        with np.errstate(invalid="ignore"):
            s = np.where(visible, scale * x.astype(d) + (0 if bias is None else bias.astype(d)), -inf)
            top = np.fmax.reduce(s, -1, keepdims=True, initial=-1e300)
            p = np.exp(s - top)
            total = p.sum(-1, keepdims=True)
            y = np.where(p == 0, 0, p / np.where(total == 0, 1, total))
        inputs = [x, mask, bias]
        while inputs[-1] is None:
            inputs.pop()
        add("masked_softmax", name, inputs, [y.astype(x.dtype)], {"scale": scale, "causal": causal}, tol=tol)

    for queries, keys in ((5, 5), (3, 7), (1, 9), (8, 16), (7, 3), (0, 4)):
        for causal in (False, True):
            for masked in (False, True):
                x = f(b, h, queries, keys, scale=3)
                mask = (rng.random((b, keys)) < 0.6).astype(np.int64) if masked else None
                case(f"{queries}x{keys} causal {causal} mask {masked}", x, causal=causal, mask=mask)
    for shape in ((b, h, 4, 6), (1, h, 4, 6), (b, 1, 1, 6), (1, 1, 4, 1), (1, 1, 4, 6)):
        bias = f(*shape)
        if shape[2] > 1 and shape[3] > 1:
            bias[..., 0, 2:] = -inf
            bias[..., 1, :] = -inf
        case(f"bias {list(shape)}", f(b, h, 4, 6), causal=shape[0] == 1, bias=bias)
    x = f(b, h, 4, 6, scale=3)
    case("bool mask", x, mask=np.array([[1, 1, 1, 0, 0, 1], [0, 1, 1, 1, 1, 1]], bool))
    case("i32 mask, nothing visible", x, causal=True, mask=np.array([[0] * 6, [0, 0, 0, 7, -1, 0]], np.int32))
    case("half", (3 * x).astype(np.float16), causal=True, bias=f(b, 1, 1, 6).astype(np.float16), tol=1e-3)
    x = np.array([[[[1e30, 0, -1e30], [-inf, -inf, 2], [-inf, -inf, -inf], [-3e38, -3e38, -3e38], [nan, 1, 2], [nan, nan, nan]]]], np.float32)
    case("special values", x, scale=1.0)


def affine():
    ties = np.array([[0.5, 1.5, -0.5, -2.5, 1000, -1000], [63.25, -64, -0.0, 12.4, 3e38, -3e38]], np.float32)
    for zero in (np.uint8(0), np.uint8(128), np.uint8(255), np.int8(-128), np.int8(0), np.int8(5)):
        for scale in (np.float32(1), np.float32(0.3)):
            name = f"{zero.dtype} {zero} {scale}"
            check("affine_quantize", "QuantizeLinear", name, [ties, scale, zero], tol=0)
            check("affine_quantize", "QuantizeLinear", name + " random", [f(3, 7, scale=40), scale, zero], tol=0)
            q = ints(3, 7, low=np.iinfo(zero.dtype).min, high=np.iinfo(zero.dtype).max + 1, dtype=zero.dtype)
            check("affine_dequantize", "DequantizeLinear", name, [q, scale, zero])
    x, scales, zeros = f(2, 3, 5, scale=9), np.array([0.5, 0.25, 2], np.float32), np.array([0, 128, 255], np.uint8)
    check("affine_quantize", "QuantizeLinear", "axis", [x, scales[:, None], zeros[:, None]], onnx_inputs=[x, scales, zeros],
          onnx_attrs={"axis": 1}, tol=0)
    q = ints(2, 3, 5, low=0, high=256, dtype=np.uint8)
    check("affine_dequantize", "DequantizeLinear", "axis", [q, scales[:, None], zeros[:, None]], onnx_inputs=[q, scales, zeros],
          onnx_attrs={"axis": 1})
    bias = ints(7, low=-2**31, high=2**31, dtype=np.int32)
    check("affine_dequantize", "DequantizeLinear", "i32", [bias, np.float32(0.001), np.int32(0)])
    half, scale, zero = f(3, 8, scale=9).astype(np.float16), np.float32(0.125), np.int8(-3)
    check("affine_quantize", "QuantizeLinear", "half", [half, scale, zero], tol=0)
    q = ints(3, 8, low=-128, high=128, dtype=np.int8)
    add("affine_dequantize", "half", [q, scale, zero], [((q.astype(np.int32) + 3) * scale).astype(np.float16)],
        {"dtype": "dtype:f16"}, tol=1e-3)
    add("affine_quantize", "special", [np.array([nan, inf, -inf], np.float32), scale, zero], [np.array([-128, 127, -128], np.int8)],
        tol=0)
    add("affine_quantize", "no rows", [half[:0], scale, zero], [q[:0]], tol=0)

    # A zero point z of x adds -z times the sum of a row of w to its products; -128 is a value like others.
    for m, n, k, low in ((1, 5, 16, -128), (7, 33, 48, -128), (3, 4, 1056, 127)):
        x, w, z = (ints(*s, low=low, high=128, dtype=np.int8) for s in ((m, k), (n, k), ()))
        s, sw, c, r = np.float32(0.02), (f(n, 1)**2 + 1).astype(np.float32), f(n), f(m, n)
        sums = (-int(z) * w.astype(np.int64).sum(1)).astype(np.int32)
        y = ((x.astype(np.int64) - int(z)) @ w.T.astype(np.int64)) * (s.astype(np.float64) * sw[:, 0])
        add("quantized_linear", f"zero point {m}x{k}x{n}", [x, w, sw, s, c, r, sums],
            [single(np.maximum(y + c, 0) + r)], {"activation": "relu", "dtype": "dtype:f32"}, tol=1e-6)
        add("quantized_linear", f"zero point {m}x{k}x{n} half", [x, w, sw, s, None, None, sums], [y.astype(np.float16)],
            {"dtype": "dtype:f16"}, tol=1e-3)


for part in (elementwise_unary, elementwise_binary, movement, indexing, reductions, algebra, fused, brain_floats, int8, biased_attention, added_norms,
             int8_tables, masked_softmaxes, affine):
    part()
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases.jsonl")
with open(path, "w") as out:
    for c in cases:
        out.write(json.dumps(c, separators=(",", ":")) + "\n")
print(len(cases), "cases of", len({c["op"] for c in cases}), "ops,", os.path.getsize(path), "bytes")
