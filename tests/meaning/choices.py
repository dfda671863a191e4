"""What is drawn for a graph that is built like GPT-2: choices that are common among exporters, and
twists that change a meaning.

`sound(rng)` draws what has to compile, whatever it is. Each twist is a function of (rng, choices)
that returns words and what to add to the choices.
"""

import numpy as np
from onnx import TensorProto

import masks

FILLS = [-20.0, -50.0, -100.0, -1e3, -1e4, -6.5e4, -1e9, float(np.finfo(np.float32).min), -np.inf]


def pick(rng, values):
    return values[int(rng.integers(len(values)))]


def sound(rng):
    heads = int(pick(rng, [1, 2, 4]))
    choices = dict(
        layers=int(pick(rng, [1, 2, 2])),
        heads=heads,
        head_dim=int(pick(rng, [4, 8])),
        context=int(pick(rng, [20, 24, 33])),
        norm=pick(rng, ["chain", "op", "product", "reciprocal", "rms"]),
        act=pick(rng, ["tanh", "erf", "tanh", "relu", "silu"]),
        tied=bool(rng.random() < 0.3),
        fill=pick(rng, FILLS[4:]),
        added=bool(rng.random() < 0.5),
        past=bool(rng.random() < 0.3),
        seen=pick(rng, [masks.causal, masks.computed]),
        parallel=bool(rng.random() < 0.1),
        strong={"qkv": float(pick(rng, [1, 1, 3, 9])), "mlp/fc": float(pick(rng, [1, 1, 4, 12]))},
    )
    choices["attention_mask"] = bool(rng.random() < 0.3)
    choices["cut_mask"] = choices["attention_mask"] and bool(rng.random() < 0.5)
    choices["own_names"] = choices["past"] and bool(rng.random() < 0.3)
    choices["position_ids"] = bool(rng.random() < (0.6 if choices["past"] else 0.1))
    return choices


# -- Functions that take a graph and a value


def clip(low, high):
    return lambda g, x: g.op("Clip", x, g.const(low), g.const(high))


def soft_cap(cap):
    return lambda g, x: g.op("Mul", g.op("Tanh", g.op("Div", x, g.const(cap))), g.const(cap))


def above(limit, value):
    """value where x is above the limit."""
    return lambda g, x: g.op("Where", g.op("Greater", x, g.const(limit)), g.const(value), x)


def times(factor):
    return lambda g, x: g.op("Mul", x, g.const(factor))


def by_head(low, high):
    def apply(g, x):
        return g.op("Mul", x, g.const(g.rng.uniform(low, high, (1, g.heads, 1, 1))))

    return apply


def through(dtype):
    return lambda g, x: g.op("Cast", g.op("Cast", x, to=dtype), to=TensorProto.FLOAT)


def unary(kind):
    return lambda g, x: g.op(kind, x)


def distance(slopes):
    """ALiBi: minus the distance times a slope for each head."""

    def apply(g, x):
        far = g.op("Cast", g.op("Sub", g.keys(), g.queries()), to=TensorProto.FLOAT)
        return g.op("Add", x, g.op("Mul", far, g.const(np.resize(slopes, (1, g.heads, 1, 1)))))

    return apply


def limited(rng):
    """Something that bends large values, at a limit somewhere between what samples reach and what
    weights reach."""
    limit = float(pick(rng, [1.5, 2.5, 4.0, 6.0, 8.5, 10.0, 20.0, 50.0, 100.0]))
    kind = pick(rng, ["clip", "min", "max", "cap", "above", "relu"])
    if kind == "clip":
        return f"Clip at {limit}", clip(-limit, limit)
    if kind == "min":
        return f"Min {limit}", lambda g, x: g.op("Min", x, g.const(limit))
    if kind == "max":
        return f"Max -{limit}", lambda g, x: g.op("Max", x, g.const(-limit))
    if kind == "cap":
        return f"soft cap {limit}", soft_cap(limit)
    if kind == "above":
        return f"0 where above {limit}", above(limit, 0.0)
    return "LeakyRelu", lambda g, x: g.op("LeakyRelu", x, alpha=0.9)


def changed(rng):
    """Any change of a value of four dimensions or a row of width."""
    if rng.random() < 0.6:
        return limited(rng)
    factor = float(pick(rng, [0.9, 0.99, 0.999, 1.001, 1.01, 1.1]))
    return pick(
        rng,
        [
            ("Abs", unary("Abs")),
            (f"times {factor}", times(factor)),
            ("through fp16", through(TensorProto.FLOAT16)),
            ("plus 0.01", lambda g, x: g.op("Add", x, g.const(0.01))),
        ],
    )


# -- Twists


def scores(rng, c):
    said, f = changed(rng)
    where = pick(rng, ["scores", "masked"])
    return f"{where}: {said}", {where: f}


def heads_of(rng, c):
    part = pick(rng, ["q", "k", "v", "scores", "shares"])
    return f"{part}: a factor for each head", {part: by_head(0.6, 1.4)}


def part(rng, c):
    said, f = changed(rng)
    which = pick(rng, ["q", "k", "v", "shares", "normalised", "variance", "activated", "logits"])
    return f"{which}: {said}", {which: f}


def gelu(rng, c):
    kind = pick(rng, ["tanh", "erf", "quick"])
    more = {"act": kind}
    if kind == "tanh" and rng.random() < 0.5:
        more["cubic"] = float(pick(rng, [0.044, 0.0447, 0.05, 0.04]))
    elif kind == "tanh":
        more["inner"] = float(pick(rng, [0.79, 0.7978, 0.8]))
    elif kind == "erf":
        more["root"] = float(pick(rng, [1.414, 1.4, 1.42]))
    if rng.random() < 0.5:
        said, more["activated"] = limited(rng)
        return f"{more['act']} GELU, {said}", more
    return f"GELU {more}", more


def epsilon(rng, c):
    value = float(pick(rng, [0.0, 1e-12, 1e-6, 1e-4, 1e-2, 0.5]))
    kind = pick(rng, ["chain", "outside", "op", "rms"])
    return f"epsilon {value} in {kind}", {"epsilon": value or 1e-12, "norm": kind}


def seen(rng, c):
    context, size = c["context"], int(rng.integers(1, c["context"] + 2))
    query = int(rng.integers(context // 2, context))
    key = int(rng.integers(0, query + 1))
    sizes = [int(s) for s in rng.choice([3, 6, 8, 12, context, context], 4)]
    return pick(
        rng,
        [
            ("no mask", {"seen": masks.everything}),
            (f"window {size}", {"seen": masks.window(size)}),
            (f"window {size}", {"seen": masks.window(size)}),
            (f"stored window {size}", {"seen": masks.by_head([size])}),
            (f"stored windows {sizes} by head", {"seen": masks.by_head(sizes)}),
            (f"window {size} expanded to heads", {"seen": masks.each_head(size)}),
            (f"window {size} of floats", {"seen": masks.scaled_window(size)}),
            (f"hole at {query}, {key}", {"seen": masks.hole(query, key)}),
            (
                f"key {key} hidden",
                {"seen": masks.stored(lambda s, q, k: s & ((k != key) | (q < 2)))},
            ),
            ("strictly lower", {"seen": masks.shifted(-1)}),
            (f"up to {size % 4 + 1} ahead", {"seen": masks.shifted(size % 4 + 1)}),
            (
                f"prefix of {size % 8 + 2}",
                {"seen": masks.stored(lambda s, q, k: s | (k < size % 8 + 2))},
            ),
            (
                f"blocks of {size + 1}",
                {"seen": masks.stored(lambda s, q, k: s & (q // (size + 1) == k // (size + 1)))},
            ),
            (
                f"every second key beyond {size}",
                {"seen": masks.stored(lambda s, q, k: s & ((q - k < size) | ((q - k) % 2 == 0)))},
            ),
        ],
    )


def seen_ids(rng, c):
    token = int(rng.integers(0, 6))
    return f"keys hidden where the id is {token}", {
        "seen_too": masks.hidden_ids(token),
        "past": False,
    }


def fill(rng, c):
    value = float(pick(rng, FILLS))
    return f"fill {value}", {
        "fill": value,
        "strong": {**c["strong"], "qkv": float(pick(rng, [3, 8, 30]))},
    }


def positions(rng, c):
    context = c["context"]
    a = int(rng.integers(2, context))
    late = int(rng.integers(context // 2, context - 1))
    table = np.arange(context)
    swapped = table.copy()
    swapped[[late, late + 1]] = swapped[[late + 1, late]]

    def looked_up(values):
        return lambda g, p: g.op("Gather", g.const(values, np.int64), p)

    def op(kind, number):
        return lambda g, p: g.op(kind, p, g.const(number, np.int64))

    return pick(
        rng,
        [
            (f"positions mod {a}", {"positions": op("Mod", a)}),
            (f"positions at most {a}", {"positions": op("Min", a)}),
            (f"positions at least {a}", {"positions": op("Max", a)}),
            (
                f"positions plus {a % 5 + 1}",
                {"positions": op("Add", a % 5 + 1), "more_positions": 8},
            ),
            (f"positions divided by {a % 4 + 2}", {"positions": op("Div", a % 4 + 2)}),
            (f"positions {late} and the next swapped", {"positions": looked_up(swapped)}),
            ("positions reversed", {"positions": looked_up(table[::-1].copy())}),
            (f"position {late} is 0", {"positions": looked_up(np.where(table == late, 0, table))}),
            (f"positions times {a % 2}", {"positions": op("Mul", a % 2)}),
            ("positions sorted by key", {"positions": looked_up(rng.permutation(context))}),
            ("positions counted by the mask", {"positions": counted, "attention_mask": True}),
            (
                "positions from the end",
                {"positions": from_the_end, "position_ids": False, "past": False},
            ),
        ],
    )


def counted(g, p):
    """cumsum(mask) - 1, of the tokens that are given, at least 0."""
    count = g.op("CumSum", g.attention_mask, g.const(1, np.int64))
    count = g.op("Max", g.op("Sub", count, g.const(1, np.int64)), g.const(0, np.int64))
    return g.op("Slice", count, g.past_len, g.total, g.ints(1))


def from_the_end(g, p):
    return g.op("Sub", g.op("Sub", g.seq, g.ints(1)), p)


def ids(rng, c):
    a, b = int(rng.integers(0, 61)), int(rng.integers(0, 61))
    return f"id {a} read as {b}", {
        "ids": lambda g, i: g.op(
            "Where", g.op("Equal", i, g.const(a, np.int64)), g.const(b, np.int64), i
        )
    }


def last_row(g, logits):
    return g.op("Slice", logits, g.ints(-1), g.ints(1 << 62), g.ints(1))


def last_squeezed(g, logits):
    return g.op("Squeeze", last_row(g, logits), g.ints(1))


def ports(rng, c):
    return pick(
        rng,
        [
            ("token types", {"types": True}),
            ("token types", {"types": True, "position_ids": False}),
            ("states ahead", {"states": "first"}),
            ("states behind", {"states": "last"}),
            (
                "states as wide as the vocabulary",
                {"states": "first", "vocab": c["heads"] * c["head_dim"]},
            ),
            (
                "outputs reversed",
                {"states": "last", "reversed": True, "vocab": c["heads"] * c["head_dim"]},
            ),
            ("ids called positions", {"ids_name": "positions", "position_ids": False}),
            ("ids called x", {"ids_name": "x"}),
            ("logits called kv", {"logits_name": "kv"}),
            ("logits called output", {"logits_name": "output"}),
            ("last logits", {"logits": last_row}),
            ("last logits, squeezed", {"logits": last_squeezed, "logits_rank": 2}),
        ],
    )


def order(rng, c):
    which = [(0, 2, 1), (1, 0, 2), (0, 0, 2), (0, 1, 1), (2, 1, 0)]
    which = pick(rng, which)
    return "q, k, v are parts %d, %d, %d" % which, {"order": which}


def scale(rng, c):
    value = float(pick(rng, [1.0, 0.5, 0.3, -0.35, c["head_dim"] ** -0.5 * 1.001]))
    return f"scale {value:.6g}", {"scale": value}


def bias(rng, c):
    return "ALiBi", {"scores": distance(2.0 ** -np.arange(1, 1 + c["heads"]))}


TWISTS = [
    scores,
    scores,
    heads_of,
    part,
    part,
    gelu,
    gelu,
    epsilon,
    seen,
    seen,
    seen,
    seen_ids,
    fill,
    fill,
    positions,
    positions,
    ids,
    ports,
    order,
    scale,
    bias,
]
