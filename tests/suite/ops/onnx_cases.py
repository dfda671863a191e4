"""Cases of the ops that ONNX has, too."""
import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

from reference import Const, SPECIAL, add, array, check, f, i64, inf, ints, nan, rng


def elementwise_unary():
    table = {"sqrt": "Sqrt", "exp": "Exp", "log": "Log", "sin": "Sin", "cos": "Cos", "tanh": "Tanh",
             "erf": "Erf",
             "floor": "Floor", "ceil": "Ceil", "reciprocal": "Reciprocal", "sigmoid": "Sigmoid",
             "abs": "Abs",
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
        add(op, "half", [SPECIAL[:7].astype(np.float16)],
            [getattr(np, op.replace("_", ""))(SPECIAL[:7])])
    dtypes = {"f32": np.float32, "f16": np.float16, "i32": np.int32, "i64": np.int64, "bool": bool,
              "u8": np.uint8,
              "i8": np.int8, "f64": np.float64}
    for to, dt in dtypes.items():
        proto = helper.np_dtype_to_tensor_dtype(np.dtype(dt))
        for source in (np.float32, np.int64, bool):
            x = np.array([[0, 1, 2.75], [3, 0, 100.5]]).astype(source)
            check("cast", "Cast", f"{np.dtype(source).name} to {to}", [x], {"to": "dtype:" + to},
                  onnx_attrs={"to": proto})
    check("cast", "Cast", "negative", [np.array([-1.5, -0.2, 7.9], dtype=np.float32)],
          {"to": "dtype:i64"},
          onnx_attrs={"to": TensorProto.INT64})
    add("cast", "half to f32", [SPECIAL.astype(np.float16)],
        [SPECIAL.astype(np.float16).astype(np.float32)],
        {"to": "dtype:f32"})
    check("cast", "Cast", "empty", [f(0, 3)], {"to": "dtype:i32"},
          onnx_attrs={"to": TensorProto.INT32})
    add("cast", "overflow to half", [np.array([65519.0, 65520.0, -1e6, 6e-8, 2e-8, nan],
                                              dtype=np.float32)],
        [np.array([65504, inf, -inf, 6e-8, 0, nan], dtype=np.float16)], {"to": "dtype:f16"}, tol=0,
        native_only=True)


def elementwise_binary():
    table = {"add": "Add", "sub": "Sub", "mul": "Mul", "div": "Div", "min": "Min", "max": "Max",
             "equal": "Equal",
             "less": "Less", "less_equal": "LessOrEqual", "greater": "Greater",
             "greater_equal": "GreaterOrEqual"}
    a, b = np.meshgrid(SPECIAL[:11], SPECIAL[:11])
    shapes = [((2, 3, 4), (2, 3, 4)), ((2, 3, 4), (4,)), ((3, 1), (1, 4)), ((), (2, 2)),
              ((2, 1, 3, 1), (4, 1, 5)),
              ((1, 3, 4), (2, 1, 1)), ((2, 3, 4), (3, 1)), ((0, 3), (1, 3)), ((2, 0), (1,)),
              ((5,), ())]
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
        check("mod", "Mod", f"fmod {divisor}", [x, np.array([divisor])], {"fmod": True},
              onnx_attrs={"fmod": 1})
    check("mod", "Mod", "float", [f(3, 4, scale=5), np.float32(1.5)], {"fmod": True},
          onnx_attrs={"fmod": 1})
    check("mod", "Mod", "empty", [ints(0), np.array([3])])
    c = rng.random((3, 4)) < 0.5
    check("where", "Where", "same", [c, f(3, 4), f(3, 4)])
    check("where", "Where", "mask", [c[None, None], f(2, 2, 3, 4), np.float32(-inf)])
    check("where", "Where", "broadcast all", [c[:, :1], f(2, 1, 4), f(3, 1)])
    check("where", "Where", "i64", [c, ints(3, 4), np.int64(7)])
    check("where", "Where", "u8", [c, ints(3, 4, low=0, dtype=np.uint8),
                                   ints(4, low=0, dtype=np.uint8)])
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
    check("reshape", "Reshape", "allowzero", [f(0, 3), i64(3, 0)], {"allowzero": True},
          onnx_attrs={"allowzero": 1})
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
    check("unsqueeze", "Unsqueeze", "scalar", [np.int64(5)], {"axes": [0]},
          [np.int64(5), np.array([0])], {})
    y = f(1, 3, 1, 2, 1)
    for axes in ([0], [-1], [0, 2], [2, -1, 0]):
        check("squeeze", "Squeeze", str(axes), [y], {"axes": axes}, [y, np.array(axes)], {})
    check("squeeze", "Squeeze", "all", [y], {}, [y], {})
    check("squeeze", "Squeeze", "empty", [f(1, 0)], {"axes": [0]}, [f(1, 0), np.array([0])], {})
    for s, t in (((3, 1), [2, 3, 4]), ((3, 4), [1, 1]), ((), [2, 2]), ((1,), [0, 3]),
                 ((3, 1), [3, 1]), ((2, 1, 4), [3, 1])):
        v = f(*s)
        check("expand", "Expand", f"{list(s)} to {t}", [v, i64(*t)])
        check("expand", "Expand", f"{list(s)} to {t} as attribute", [v], {"shape": t},
              [v, np.array(t)], {})
    check("expand", "Expand", "i64", [np.array([[1], [2]]), i64(2, 3)])
    check("expand", "Expand", "half", [f(2, 1).astype(np.float16), np.array([2, 3])])
    for r in ([2, 1, 3], [1, 1, 1], [0, 1, 2], [3, 2, 1]):
        check("tile", "Tile", str(r), [x, i64(*r)])
    check("tile", "Tile", "attribute", [x], {"repeats": [1, 2, 1]}, [x, np.array([1, 2, 1])], {})
    for axis in (0, 1, -1):
        other = f(*[2 if k != axis % 3 else 5 for k in range(3)])
        check("concat", "Concat", f"axis {axis}", [f(2, 2, 2), other], {"axis": axis})
    check("concat", "Concat", "three", [np.array([1]), np.array([2, 3]), np.array([], np.int64)],
          {"axis": 0})
    check("concat", "Concat", "one", [x], {"axis": 1})
    check("concat", "Concat", "empty past", [f(2, 2, 0, 4), f(2, 2, 3, 4)], {"axis": -2})
    check("concat", "Concat", "half", [f(1, 2).astype(np.float16), f(2, 2).astype(np.float16)],
          {"axis": 0})
    check("concat", "Concat", "bool", [np.array([True]), np.array([False])], {"axis": 0})
    v = f(5, 6, 7)
    far = 2**63 - 1
    slices = [([1], [3], [0], None), ([-2], [far], [0], None), ([0, 2], [5, -1], [0, 2], None),
              ([1, 1], [4, 5], None, None),
              ([0], [far], [1], [2]), ([-1], [-far - 1], [1], [-1]), ([4], [1], [1], [-2]),
              ([3], [3], [0], None),
              ([4], [2], [0], None), ([-100], [100], [2], None), ([6], [-8], [2], [-3]),
              ([1, 0], [far, 2], [-1, -2], [3, 1]),
              ([100], [far], [0], None), ([0], [-1], [-1], None),
              # parts of an axis that is shorter
              ([-8], [far], [1], None), ([0], [-8], [1], None), ([-9], [-3], [1], None),
              ([8], [far], [1], None), ([0], [8], [1], None), ([-9], [-1], [1], [2]),
              ([9], [-9], [1], [-2]), ([-2], [-far], [1], [-3])]
    for s, e, a, p in slices:
        inputs = [v, i64(*s), i64(*e), None if a is None else i64(*a),
                  None if p is None else i64(*p)]
        while inputs[-1] is None:
            inputs.pop()
        label = f"{s} to {e} of {a} by {p}"
        check("slice", "Slice", label, inputs)
        attrs = {"starts": s, "ends": e} | ({} if a is None else {"axes": a}) | ({} if p is None
            else {"steps": p})
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
        check("gather_elements", "GatherElements", f"axis {axis}",
              [f(3, 4), ints(3, 4, low=-3, high=3)], {"axis": axis})
    check("gather_elements", "GatherElements", "fewer", [f(4, 5), ints(2, 3, low=0, high=4)],
          {"axis": 0})
    check("gather_elements", "GatherElements", "empty", [f(4, 5), np.zeros((0, 5), np.int64)],
          {"axis": 0})
    check("gather_nd", "GatherND", "full", [x, np.array([[0, 1, 2], [3, -1, -6]])])
    check("gather_nd", "GatherND", "partial", [x, np.array([[[0], [1]], [[2], [-1]]])])
    check("gather_nd", "GatherND", "batch", [x, ints(4, 2, 1, low=0, high=5)], {"batch_dims": 1})
    check("gather_nd", "GatherND", "bool", [rng.random((3, 4)) < 0.5, ints(5, 2, low=0, high=3)])
    check("gather_nd", "GatherND", "no tuple", [x, np.zeros((0, 2), np.int64)])
    check("scatter_nd", "ScatterND", "rows", [x, np.array([[2], [0]]), f(2, 5, 6)])
    check("scatter_nd", "ScatterND", "elements", [x, np.array([[0, 1, 2], [3, 4, -1]]), f(2)])
    check("scatter_nd", "ScatterND", "i64", [np.arange(8), np.array([[4], [3], [1], [7]]),
                                             np.array([9, 10, 11, 12])])
    check("scatter_nd", "ScatterND", "nothing", [x, np.zeros((0, 1), np.int64), f(0, 5, 6)])
    for upper in (True, False):
        for k in (None, 0, 1, -2, 9, -9):
            inputs = [f(2, 4, 5)] + ([] if k is None else [np.int64(k)])
            check("trilu", "Trilu", f"upper {upper} k {k}", inputs, {"upper": upper},
                  onnx_attrs={"upper": int(upper)})
    check("trilu", "Trilu", "i64", [ints(3, 3)], {"upper": False}, onnx_attrs={"upper": 0})
    check("trilu", "Trilu", "bool", [np.ones((3, 3), bool)], {"upper": False},
          onnx_attrs={"upper": 0})
    check("trilu", "Trilu", "empty", [f(0, 3)])
    add("trilu", "infinity", [np.full((3, 3), -inf, np.float32)],
        [np.triu(np.full((3, 3), -inf, np.float32), 0)])
    check("non_zero", "NonZero", "2d", [np.array([[1, 0], [0, 2], [nan, 0]], np.float32)])
    check("non_zero", "NonZero", "bool", [rng.random((2, 3, 4)) < 0.5])
    check("non_zero", "NonZero", "none", [np.zeros((3, 2), np.int64)])
    check("one_hot", "OneHot", "last", [np.array([0, 2, -1, 5]), np.int64(3),
                                        np.array([0.0, 1.0], np.float32)])
    check("one_hot", "OneHot", "axis 0", [ints(2, 3, low=0, high=4), Const(np.int64(4)),
                                          np.array([2.0, 5.0], np.float32)],
          {"axis": 0})
    check("one_hot", "OneHot", "i64", [ints(2, 3, low=0, high=4), np.int64(4), np.array([0, 1])],
          {"axis": 1})
    for a in ((0, 5, 1), (3, 3, 1), (2, 11, 3), (10, 0, -3), (0, -4, 1)):
        check("range", "Range", str(a), [np.int64(v) for v in a])
        check("range", "Range", f"{a} constant", [Const(np.int64(v)) for v in a])
        add("range", f"{a} attributes", [], [np.arange(*a)],
            {"start": [a[0]], "limit": [a[1]], "delta": [a[2]], "dtype": "dtype:i64"})
    check("range", "Range", "f32", [np.float32(0.5), np.float32(3.0), np.float32(0.25)])
    for shape in ((2, 3), (), (0, 4)):
        for value, name, dt in ((0.0, "f32", np.float32), (7.0, "i64", np.int64),
                                (1.0, "bool", bool), (-inf, "f16", np.float16)):
            add("constant_of_shape", f"{list(shape)} {name}", [Const(np.array(shape, np.int64))],
                [np.full(shape, value).astype(dt)], {"value": value if np.isfinite(value)
                                                     else str(value), "dtype": "dtype:" + name})
    add("constant_of_shape", "attribute", [], [np.ones((2, 2), np.float32)],
        {"shape": [2, 2], "value": 1.0})
    add("constant_of_shape", "argument", [np.array([3, 1])], [np.ones((3, 1), np.float32)],
        {"value": 1.0})


def reductions():
    x = f(3, 4, 5)
    table = {"reduce_sum": "ReduceSum", "reduce_mean": "ReduceMean", "reduce_max": "ReduceMax",
             "reduce_min": "ReduceMin",
             "reduce_prod": "ReduceProd"}
    for op, onnx_op in table.items():
        for axes in ([], [0], [-1], [1], [0, 2], [0, 1, 2]):
            for keep in (True, False):
                check(op, onnx_op, f"{axes} keep {keep}", [x], {"axes": axes, "keepdims": keep},
                      [x] + ([np.array(axes)] if axes else []), {"keepdims": int(keep)})
        for name, y in (("i64", ints(3, 4)), ("half", f(3, 4).astype(np.float16))):
            check(op, onnx_op, name, [y], {"axes": [1]}, [y, np.array([1])], {})
    for op, value in (("reduce_sum", 0), ("reduce_prod", 1), ("reduce_max", -inf),
                      ("reduce_min", inf), ("reduce_mean", nan)):
        add(op, "no elements", [f(2, 0)], [np.full((2, 1), value, np.float32)], {"axes": [1]})
        add(op, "no rows", [f(0, 3)], [np.zeros((0, 1), np.float32)], {"axes": [1]})
    row = np.array([[1, nan, 3], [inf, 1, 2], [inf, -inf, 0]], np.float32)
    for op, fold in (("reduce_sum", np.sum), ("reduce_max", np.max), ("reduce_min", np.min),
                     ("reduce_mean", np.mean)):
        with np.errstate(invalid="ignore"):
            add(op, "special", [row], [fold(row, axis=1, keepdims=True)], {"axes": [1]})
    for axis in (0, 1, -1):
        for last in (False, True):
            y = ints(3, 4, 5, low=0, high=3).astype(np.float32)
            check("arg_max", "ArgMax", f"axis {axis} last {last}", [y],
                  {"axis": axis, "select_last_index": last},
                  onnx_attrs={"axis": axis, "select_last_index": int(last)})
    check("arg_max", "ArgMax", "no keepdims", [x], {"axis": 1, "keepdims": False},
          onnx_attrs={"axis": 1, "keepdims": 0})
    check("arg_max", "ArgMax", "i32", [ints(3, 4, dtype=np.int32)], {"axis": 1})
    add("arg_max", "NaN never wins", [np.array([[nan, 1, 2], [nan, -inf, nan], [nan, nan, nan]],
                                               np.float32)],
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
    shapes = [((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)),
              ((2, 1, 3, 4), (1, 3, 4, 2)), ((4,), (4, 5)),
              ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (4,)), ((4,), (2, 4, 3)), ((1, 8), (8, 6)),
              ((2, 1, 8), (2, 8, 6))]
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
    check("softmax", "Softmax", "masked", [np.array([[0.5, -inf, 1.0], [-inf, -inf, 2.0]],
                                                    np.float32)])
    add("softmax", "all masked", [np.full((1, 3), -inf, np.float32)],
        [np.full((1, 3), nan, np.float32)])
    add("softmax", "NaN", [np.array([[nan, 1, 2], [1, nan, 2]], np.float32)],
        [np.full((2, 3), nan, np.float32)])
    check("softmax", "Softmax", "half", [f(3, 8).astype(np.float16)])
    add("softmax", "empty", [f(0, 3)], [f(0, 3)])
    for axis, shape in ((-1, (3, 16)), (1, (2, 3, 4)), (0, (6,)), (-2, (2, 3, 4))):
        rest = shape[axis:]
        for bias in (True, False):
            inputs = [f(*shape, scale=3), f(*rest)] + ([f(*rest)] if bias else [])
            check("layer_norm", "LayerNormalization", f"axis {axis} bias {bias}", inputs,
                  {"axis": axis, "epsilon": 1e-5}, tol=1e-5)
    check("layer_norm", "LayerNormalization", "large mean", [f(2, 64) + 1000, f(64), f(64)],
          {"epsilon": 1e-5}, tol=2e-3)
    check("layer_norm", "LayerNormalization", "constant row",
          [np.full((2, 8), 3.0, np.float32), f(8), f(8)], {"epsilon": 1e-5})
    check("layer_norm", "LayerNormalization", "half", [f(3, 16).astype(np.float16),
                                                       f(16).astype(np.float16),
                                                       f(16).astype(np.float16)],
          tol=5e-3)
    x, g, b = f(2, 3, 4), f(1, 4), f(3, 1)
    d = x.astype(np.float64)
    mean, var = d.mean((1, 2), keepdims=True), d.var((1, 2), keepdims=True)
    add("layer_norm", "broadcast scale", [x, g, b], [((d - mean) / np.sqrt(var + 1e-3) * g
                                                      + b).astype(np.float32)],
        {"axis": 1, "epsilon": 1e-3}, tol=1e-5)
    for shape in ((3, 16), (2, 1, 5), (0, 4)):
        x, g = f(*shape, scale=2), f(shape[-1])
        d = x.astype(np.float64)
        y = d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-6) * g if x.size else d
        add("rms_norm", str(list(shape)), [x, g], [y.astype(np.float32)], {"epsilon": 1e-6},
            tol=1e-5)


def brain_floats():
    """bfloat16 rounds to nearest even after each op, which computes in single precision."""
    b16 = lambda x: np.asarray(x, dtype=np.float32).astype(ml_dtypes.bfloat16)
    x, y = b16(f(3, 4)), b16(f(4))
    add("cast", "f32 to bf16", [SPECIAL], [b16(SPECIAL)], {"to": "dtype:bf16"}, tol=0,
        native_only=True)
    ties = np.array([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF], np.uint32).view(np.float32)
    add("cast", "ties to bf16", [ties], [b16(ties)], {"to": "dtype:bf16"}, tol=0, native_only=True)
    add("cast", "bf16 to f32", [b16(SPECIAL)], [b16(SPECIAL).astype(np.float32)],
        {"to": "dtype:f32"}, tol=0)
    add("add", "bf16", [x, y], [b16(x.astype(np.float32) + y.astype(np.float32))], tol=0,
        native_only=True)
    add("tanh", "bf16", [x], [b16(np.tanh(x.astype(np.float32)))], tol=8e-3)
    add("matmul", "bf16", [x, x.T], [b16(x.astype(np.float32) @ x.T.astype(np.float32))], tol=8e-3)
    add("transpose", "bf16", [x], [x.T], {"perm": [1, 0]}, tol=0)
    add("concat", "bf16", [x, x], [np.concatenate([x, x], 1)], {"axis": 1}, tol=0)
