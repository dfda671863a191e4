"""Which keys a query sees: functions of a Gpt (graphs.py) that return a bool value which broadcasts
to [b, h, seq, total]."""

import numpy as np
from onnx import TensorProto


def everything(g):
    return None


def causal(g):
    """A stored triangle, cut to size."""
    triangle = np.tril(np.ones((1, 1, g.context, g.context), bool))
    return cut(g, triangle)


def cut(g, table):
    """The rows of queries and columns of keys of a stored [1, h, context, context]."""
    rows = g.op("Slice", g.const(table, bool), g.past_len, g.total, g.ints(2))
    return g.op("Slice", rows, g.ints(0), g.total, g.ints(3))


def computed(g):
    return g.op("LessOrEqual", g.keys(), g.queries())


def window(size):
    """The last `size` keys, by comparison."""

    def seen(g):
        near = g.op("Less", g.op("Sub", g.queries(), g.keys()), g.const(size, np.int64))
        return g.op("And", near, computed(g))

    return seen


def by_head(sizes):
    """A window of its own for each head, stored."""

    def seen(g):
        q, k = np.arange(g.context)[:, None], np.arange(g.context)[None]
        return cut(
            g, np.stack([(k <= q) & (q - k < sizes[h % len(sizes)]) for h in range(g.heads)])[None]
        )

    return seen


def each_head(size):
    """A window that is expanded to all heads."""

    def seen(g):
        shape = g.op("Concat", g.ints(1, g.heads), g.seq, g.total, axis=0)
        return g.op("Expand", window(size)(g), shape)

    return seen


def scaled_window(size):
    """The window as a comparison of floats."""

    def seen(g):
        far = g.op("Cast", g.op("Sub", g.queries(), g.keys()), to=TensorProto.FLOAT)
        far = g.op("Mul", far, g.const(1 / size - 1e-6))
        return g.op("And", g.op("Less", far, g.const(1.0)), computed(g))

    return seen


def stored(change):
    """The triangle after change(table, q, k), with q [context, 1] and k [1, context]."""

    def seen(g):
        q, k = np.arange(g.context)[:, None], np.arange(g.context)[None]
        return cut(
            g, np.broadcast_to(change(k <= q, q, k), (g.context, g.context))[None, None].copy()
        )

    return seen


def shifted(by):
    """Keys up to `by` behind (negative) or ahead of the query."""
    return stored(lambda seen, q, k: k <= q + by)


def hole(query, key):
    return stored(lambda seen, q, k: seen & ~((q == query) & (k == key)))


def hidden_ids(token):
    """Keys whose id is not `token`; to be joined with the causal mask."""

    def seen(g):
        same = g.op("Not", g.op("Equal", g.ids, g.const(token, np.int64)))
        return g.op("Unsqueeze", same, g.ints(1, 2))

    return seen
