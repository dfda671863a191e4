"""What is put onto a value: functions of (rng, what the value holds), which return words and a
builder, or None where it does not fit. A builder is a function of (Editor, value)."""

import numpy as np
from onnx import TensorProto

NUMERIC = {
    np.dtype(np.float32): TensorProto.FLOAT,
    np.dtype(np.int64): TensorProto.INT64,
    np.dtype(np.int32): TensorProto.INT32,
    np.dtype(np.bool_): TensorProto.BOOL,
}


def limit_of(rng, held):
    """A limit that bites somewhere, seldom one that does not."""
    finite = np.abs(held[np.isfinite(held) & (np.abs(held) < 1e3)])
    if not finite.size or finite.max() == 0:
        return 1.0
    share = float(rng.choice([0.5, 0.9, 0.98, 0.999, 1.0]))
    return float(np.float32(np.quantile(finite, share) * (1.5 if share == 1 else 1) + 1e-3))


def clip(rng, held):
    limit = limit_of(rng, held)
    low, high = [(-limit, limit), (-1e38, limit), (-limit, 1e38)][int(rng.integers(3))]
    return f"Clip {low:g} {high:g}", lambda e, v: e.op(
        "Clip", v, e.const(low, held.dtype), e.const(high, held.dtype)
    )


def extreme(rng, held):
    kind, limit = ("Min", "Max")[int(rng.integers(2))], limit_of(rng, held)
    limit = limit if kind == "Min" else -limit
    return f"{kind} {limit:g}", lambda e, v: e.op(kind, v, e.const(limit, held.dtype))


def cap(rng, held):
    limit = limit_of(rng, held)
    return f"soft cap {limit:g}", lambda e, v: e.op(
        "Mul", e.op("Tanh", e.op("Div", v, e.const(limit, held.dtype))), e.const(limit, held.dtype)
    )


def above(rng, held):
    limit, other = limit_of(rng, held), float(rng.choice([0.0, 1.0, -1.0]))
    return f"{other:g} where above {limit:g}", lambda e, v: e.op(
        "Where", e.op("Greater", v, e.const(limit, held.dtype)), e.const(other, held.dtype), v
    )


def factor(rng, held):
    by = float(rng.choice([0.9, 0.99, 0.999, 1.001, 1.01, 1.1]))
    return f"times {by:g}", lambda e, v: e.op("Mul", v, e.const(by, held.dtype))


def unary(rng, held):
    kind = ("Abs", "LeakyRelu", "Identity", "Neg")[int(rng.integers(4))]
    attrs = {"alpha": 0.9} if kind == "LeakyRelu" else {}
    if kind == "Neg":
        return "Neg Neg", lambda e, v: e.op("Neg", e.op("Neg", v))
    return kind, lambda e, v: e.op(kind, v, **attrs)


def plus(rng, held):
    by = float(rng.choice([-0.5, 1e-3, 0.01, 0.5]))
    return f"plus {by:g}", lambda e, v: e.op("Add", v, e.const(by, held.dtype))


def along(rng, held):
    """A vector along one axis of known size: heads, or the last one."""
    axis = held.ndim - 1 if held.ndim != 4 or rng.random() < 0.4 else 1
    size = held.shape[axis]
    shape = [1] * held.ndim
    shape[axis] = size
    values = rng.uniform(0.7, 1.3, size).reshape(shape)
    if rng.random() < 0.5:
        values = np.where(np.arange(size) == size - 1, 0.8, 1.0).reshape(shape)
    return f"times a vector along axis {axis}", lambda e, v: e.op(
        "Mul", v, e.const(values, held.dtype)
    )


def rounded(rng, held):
    to = (TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.DOUBLE)[int(rng.integers(3))]
    return f"through type {to}", lambda e, v: e.op(
        "Cast", e.op("Cast", v, to=to), to=NUMERIC[held.dtype]
    )


def normalised(rng, held):
    return "minus half its mean", lambda e, v: e.op(
        "Sub", v, e.op("Mul", e.reduce_mean(v), e.const(0.5, held.dtype))
    )


def flipped(rng, held):
    """The last axis, or heads, in another order."""
    axis = 1 if held.ndim == 4 else held.ndim - 1
    order = rng.permutation(held.shape[axis])
    return f"axis {axis} reordered", lambda e, v: e.op(
        "Gather", v, e.const(order, np.int64), axis=axis
    )


def int_limit(rng, held):
    kind = ("Min", "Max", "Mod", "Add", "Sub", "Div")[int(rng.integers(6))]
    by = int(rng.integers(1, max(2, int(held.max(initial=1)) + 1)))
    by = min(by, 3) if kind in ("Add", "Sub") else max(by, 2)

    def build(e, v):
        v = e.op("Cast", v, to=TensorProto.INT64)
        if kind in ("Min", "Max") and e.opset < 12:
            v = e.op(
                "Cast",
                e.op(kind, e.op("Cast", v, to=TensorProto.FLOAT), e.const(by, np.float32)),
                to=TensorProto.INT64,
            )
        else:
            v = e.op(kind, v, e.const(by, np.int64))
        return e.op("Cast", v, to=NUMERIC[held.dtype])

    return f"{kind} {by}", build


def int_where(rng, held):
    late = np.unique(held)
    a = int(late[int(rng.integers(late.size // 2, late.size))])
    b = int(rng.integers(0, a + 1)) if a >= 0 else 0
    return f"{b} where {a}", lambda e, v: e.op(
        "Where", e.op("Equal", v, e.const(a, held.dtype)), e.const(b, held.dtype), v
    )


def int_table(rng, held):
    size = int(held.max(initial=0)) + 1
    if held.min(initial=0) < 0 or size < 4:
        return None
    table = np.arange(4 * size)
    a = int(rng.integers(size // 2, size - 1))
    table[[a, a + 1]] = table[[a + 1, a]]
    return f"{a} and {a + 1} swapped", lambda e, v: e.op(
        "Cast", e.op("Gather", e.const(table, np.int64), v), to=NUMERIC[held.dtype]
    )


def int_square(rng, held):
    return "Abs", lambda e, v: e.op("Abs", v)


def indices(e, v, axis, rank):
    """0, 1, 2 .. along an axis of v, to be broadcast against it."""
    size = e.op("Gather", e.op("Shape", v), e.const(axis, np.int64))
    span = e.op("Range", e.const(0, np.int64), size, e.const(1, np.int64))
    return e.axes("Unsqueeze", span, [a for a in range(rank) if a != axis]), size


def far_keys(e, v, rank):
    """How far each key stands behind the query; the last query stands at the last key."""
    q, rows = indices(e, v, rank - 2, rank)
    k, columns = indices(e, v, rank - 1, rank)
    return e.op("Sub", e.op("Add", q, e.op("Sub", columns, rows)), k)


def bool_window(rng, held):
    if held.ndim < 2 or held.shape[-1] < 4:
        return None
    size = int(rng.integers(1, held.shape[-1] + 1))

    def build(e, v):
        return e.op("And", v, e.op("Less", far_keys(e, v, held.ndim), e.const(size, np.int64)))

    return f"window of {size}", build


def bool_column(rng, held):
    if held.shape[-1] < 4:
        return None
    key = int(rng.integers(0, held.shape[-1]))

    def build(e, v):
        k, _ = indices(e, v, held.ndim - 1, held.ndim)
        return e.op("And", v, e.op("Not", e.op("Equal", k, e.const(key, np.int64))))

    return f"key {key} hidden", build


def bool_not(rng, held):
    return "Not Not", lambda e, v: e.op("Not", e.op("Not", v))


def float_window(rng, held):
    """A value of its own for keys that stand far behind: what a window adds or sets."""
    if held.ndim < 2 or min(held.shape[-2:]) < 4:
        return None
    size, fill = int(rng.integers(1, held.shape[-1] + 1)), float(rng.choice([-20, -1e4, -1e9]))

    def build(e, v):
        near = e.op("Less", far_keys(e, v, held.ndim), e.const(size, np.int64))
        return e.op("Where", near, v, e.const(fill, held.dtype))

    return f"{fill:g} from {size} keys behind on", build


def by_index(rng, held):
    """Half of it for one token."""
    if held.ndim < 3 or held.shape[-2] < 4:
        return None
    token = int(rng.integers(0, held.shape[-2]))

    def build(e, v):
        at, _ = indices(e, v, held.ndim - 2, held.ndim)
        half = e.op("Mul", v, e.const(0.5, held.dtype))
        return e.op("Where", e.op("Equal", at, e.const(token, np.int64)), half, v)

    return f"half for token {token}", build


def nan_guard(rng, held):
    return "0 where NaN", lambda e, v: e.op("Where", e.op("IsNaN", v), e.const(0, held.dtype), v)


FLOATS = [
    by_index,
    nan_guard,
    clip,
    clip,
    extreme,
    cap,
    above,
    factor,
    unary,
    plus,
    along,
    rounded,
    normalised,
    flipped,
    float_window,
    float_window,
]
INTS = [int_limit, int_limit, int_where, int_where, int_table, int_square]
BOOLS = [bool_window, bool_window, bool_column, bool_column, bool_not]
