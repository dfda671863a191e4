"""Rotary embedding of a Gpt (graphs.py), spelled out. `rope` among its choices is a dict:

base, dims (rotated numbers of a head), kind (`half` or `interleaved`), how (`computed`, `table`,
`gathered`), factor (of positions), scale (of cos and sin), order (of frequencies), sign (of the
sine in q or k), swapped (cos and sin), by (what is added to the positions of q or k).
"""

import numpy as np
from onnx import TensorProto


def frequencies(o, dims):
    made = o.get("base", 1e4) ** (-np.arange(0, dims, 2) / dims)
    return made[o["order"]] if "order" in o else made


def angles(g, o, dims, by):
    """cos and sin of all given tokens, [b or 1, 1, seq, dims / 2]."""
    factor, scale = o.get("factor", 1.0), o.get("scale", 1.0)
    rank = 2 if g.o.get("position_ids") else 1
    if o.get("how") == "table" or o.get("how") == "gathered":
        rows = np.arange(g.context + 16)[:, None] * factor + by
        table = rows * frequencies(o, dims)
        parts = []
        for f in (np.cos, np.sin):
            stored = g.const(scale * f(table))
            if o["how"] == "table" and rank == 1 and "positions" not in g.o:
                part = g.op("Slice", stored, g.past_len, g.total, g.ints(0))
            else:
                part = g.op("Gather", stored, g.where)
            parts.append(part)
    else:
        at = g.op("Cast", g.op("Unsqueeze", g.where, g.ints(-1)), to=TensorProto.FLOAT)
        if factor != 1:
            at = g.op("Mul", at, g.const(factor))
        if by:
            at = g.op("Add", at, g.const(by))
        angle = g.op("Mul", at, g.const(frequencies(o, dims)))
        parts = [g.op("Cos", angle), g.op("Sin", angle)]
        if scale != 1:
            parts = [g.op("Mul", p, g.const(scale)) for p in parts]
    axes = g.ints(1) if rank == 2 else g.ints(0, 1)
    return [g.op("Unsqueeze", p, axes) for p in parts]


def halves(g, x, dims, step):
    """Two halves of the last axis, or its even and its odd numbers."""
    if step == 2:
        ends = g.ints(dims)
        return (g.op("Slice", x, g.ints(n), ends, g.ints(3), g.ints(2)) for n in (0, 1))
    return g.op("Split", x, g.ints(dims // 2, dims // 2), outputs=2, axis=3)


def rotate(g, x, part):
    """`x` [b, heads, seq, head_dim] of `part`, which is q, k or v."""
    o = g.o["rope"]
    dims = o.get("dims") or g.head_dim
    cos, sin = angles(g, o, dims, o.get("by", {}).get(part, 0))
    if o.get("swapped"):
        cos, sin = sin, cos
    if o.get("sign", "") == part:
        sin = g.op("Neg", sin)
    rest = None
    if dims < g.head_dim:
        x, rest = g.op("Split", x, g.ints(dims, g.head_dim - dims), outputs=2, axis=3)
    if o.get("kind") == "interleaved":
        a, b = halves(g, x, dims, 2)
        first = g.op("Sub", g.op("Mul", a, cos), g.op("Mul", b, sin))
        second = g.op("Add", g.op("Mul", b, cos), g.op("Mul", a, sin))
        pairs = [g.op("Unsqueeze", p, g.ints(-1)) for p in (first, second)]
        heads = g.kv_heads if part != "q" else g.heads
        y = g.op("Reshape", g.op("Concat", *pairs, axis=-1), g.ints(0, heads, -1, dims))
    else:
        a, b = halves(g, x, dims, 1)
        turned = g.op("Concat", g.op("Neg", b), a, axis=-1)
        cos, sin = (g.op("Concat", p, p, axis=-1) for p in (cos, sin))
        y = g.op("Add", g.op("Mul", x, cos), g.op("Mul", turned, sin))
    return g.op("Concat", y, rest, axis=3) if rest else y
