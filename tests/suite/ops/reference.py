"""What cases are made of: random inputs, ONNX Runtime, and the list they end in."""
import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper

rng = np.random.default_rng(20240229)
OPSET = 20
NAMES = {"float32": "f32", "float16": "f16", "float64": "f64", "int8": "i8", "uint8": "u8",
         "int32": "i32",
         "int64": "i64", "bool": "bool", "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3"}
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
    infos = [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(x.dtype),
                                           list(x.shape))
             for n, x in zip(names, inputs) if n]
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=o) for o in outs])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model.SerializeToString(), options,
                                   providers=["CPUExecutionProvider"])
    return session.run(outs, {n: x for n, x in zip(names, inputs) if n})


def encode(x, constant=False):
    if x is None:
        return None
    if hasattr(x, "words"): # int4_cases.Int4
        return {"t": "i4", "s": list(x.value.shape), "d": x.words.tobytes().hex(), "c": 1}
    x = np.asarray(x)
    t = {"t": NAMES[x.dtype.name], "s": list(np.shape(x)), "d": x.tobytes().hex()}
    if constant:
        t["c"] = 1
    return t


def add(op, name, inputs, outputs, attrs=None, tol=2e-6, native_only=False, slack=None):
    cases.append({"op": op, "name": name, "attrs": attrs or {},
                  "inputs": [encode(x if x is None or hasattr(x, "words") else array(x),
                                    isinstance(x, Const))
                             for x in inputs],
                  "outputs": [encode(np.asarray(o)) for o in outputs], "tol": tol}
                 | ({"native": 1} if native_only else {})
                 | ({} if slack is None else {"slack": encode(slack.astype(np.float32))}))


def check(op, onnx_op, name, inputs, attrs=None, onnx_inputs=None, onnx_attrs=None, tol=2e-6,
          cast=None):
    """A case whose outputs ONNX Runtime computes."""
    attrs = attrs or {}
    feed = [widened(None if x is None else array(x)) for x in (inputs if onnx_inputs is None
                                                               else onnx_inputs)]
    out = run(onnx_op, feed, attrs if onnx_attrs is None else onnx_attrs)
    if any(x is not None and array(x).dtype == np.float16 for x in inputs):
        with np.errstate(over="ignore"):
            out = [o.astype(np.float16) if o.dtype == np.float32 else o for o in out]
        tol = max(tol, 1e-3)
    add(op, name, inputs, [o.astype(cast) for o in out] if cast else out, attrs, tol)


SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, nan, inf, -inf, 1e30, -1e30, 1e-30, 0.5, -2.5, 88.0,
                    -104.0], dtype=np.float32)
