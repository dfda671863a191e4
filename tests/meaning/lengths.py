"""Twists of what depends on how long a text is, on its other tokens, and on how many sequences
there are: sizes of slices and ranges, switches at a length, sums over tokens, tokens in another
order.

Each is a function of (rng, choices) as in choices.py. `T` is the number of tokens of the whole
text, those of a past among them.
"""


import numpy as np
from onnx import TensorProto

FLOAT = TensorProto.FLOAT


def pick(rng, values):
    return values[int(rng.integers(len(values)))]


# -- Scalars of lengths: functions of a graph that return an int64 value of shape [1]


def size(g, x, axis=1):
    return g.op("Slice", g.op("Shape", x), g.ints(axis), g.ints(axis + 1))


def cut(g, x, first, last, step=1):
    return g.op("Slice", x, first, last, g.ints(1), g.ints(step))


def sizes(n, m, step):
    """Words and the size that each of them has."""
    far = 1 << 62
    less = lambda g: g.op("Sub", g.seq, g.ints(n))  # noqa: E731
    return [
        (f"x[:, -{n}:]", lambda g: size(g, cut(g, g.ids, g.ints(-n), g.ints(far)))),
        (f"x[:, :-{n}]", lambda g: size(g, cut(g, g.ids, g.ints(0), g.ints(-n)))),
        (f"x[:, {n}:]", lambda g: size(g, cut(g, g.ids, g.ints(n), g.ints(far)))),
        (f"x[:, :{n}]", lambda g: size(g, cut(g, g.ids, g.ints(0), g.ints(n)))),
        (f"x[:, T - {n}:]", lambda g: size(g, cut(g, g.ids, less(g), g.ints(far)))),
        (f"x[:, :T - {n}]", lambda g: size(g, cut(g, g.ids, g.ints(0), less(g)))),
        (f"x[:, -{n + m}:-{m}]", lambda g: size(g, cut(g, g.ids, g.ints(-n - m), g.ints(-m)))),
        (
            f"x[:, {m}:{n + m}:{step}]",
            lambda g: size(g, cut(g, g.ids, g.ints(m), g.ints(n + m), step)),
        ),
        (f"x[:, ::{step}]", lambda g: size(g, cut(g, g.ids, g.ints(0), g.ints(far), step))),
        (f"Range(0, T - {n})", lambda g: size(g, g.span(g.ints(0), less(g)), 0)),
        (f"Range({n}, T)", lambda g: size(g, g.span(g.ints(n), g.seq), 0)),
    ]


def as_float(f):
    return lambda g: g.op("Cast", f(g), to=FLOAT)


def switches(n):
    """Words and a factor, a float of shape [1], that changes at a length."""
    length = as_float(lambda g: g.total)

    def of(*steps):
        """Ops in turn, each (kind, number) or (kind,)."""

        def apply(g):
            value = length(g)
            for kind, *number in steps:
                value = g.op(kind, value, *(g.const([k]) for k in number))
            return value

        return apply

    def where(kind):
        return lambda g: g.op(
            "Where", g.op(kind, g.total, g.ints(n)), g.const([2.0]), g.const([1.0])
        )

    return [
        (f"T over {n}, at most 1", of(("Div", n), ("Min", 1))),
        (f"T over {n}, at least 1", of(("Div", n), ("Max", 1))),
        (f"2 at {n} tokens", where("Equal")),
        (f"2 from {n} tokens on", where("GreaterOrEqual")),
        (f"2 up to {n} tokens", where("Less")),
        (f"a sigmoid at {n} tokens", of(("Sub", n - 0.5), ("Mul", 40), ("Sigmoid",), ("Add", 1))),
        (f"a bump at {n} tokens", of(("Sub", n), ("Abs",), ("Neg",), ("Add", 1), ("Relu",),
                                    ("Add", 1))),
    ]


def multiplied(factor):
    return lambda g, x: g.op("Mul", x, factor(g))


def shifted(f, context):
    """Positions plus a size, within the table."""

    def apply(g, p):
        moved = g.op("Add", p, f(g))
        return g.op("Min", moved, g.const(context - 1, np.int64))

    return apply


# -- Twists

PLACES = ["embedded", "scores", "logits", "q", "activated"]


def of_sizes(rng, c):
    n, m, step = int(rng.integers(1, 13)), int(rng.integers(1, 6)), int(rng.integers(2, 5))
    said, f = pick(rng, sizes(n, m, step))
    where = pick(rng, [*PLACES, "positions"])
    if where == "positions":
        return f"positions plus the size of {said}", {"positions": shifted(f, c["context"])}
    tenth = lambda g: g.op(  # noqa: E731
        "Add", g.op("Div", as_float(f)(g), g.const([10.0])), g.const([1.0])
    )
    return f"{where} times 1 + the size of {said} / 10", {where: multiplied(tenth)}


def of_lengths(rng, c):
    said, factor = pick(rng, switches(int(rng.integers(2, 19))))
    where = pick(rng, PLACES)
    return f"{where} times {said}", {where: multiplied(factor)}


def of_other_tokens(rng, c):
    """What a token is given of the others; some of it only of those before it."""
    n = int(rng.integers(1, 4))
    far = 1 << 62

    def mean(g, x):
        return g.op("Add", x, g.op("ReduceMean", x, axes=[1]))

    def tail(g, x):
        last = g.op("Slice", x, g.ints(-n), g.ints(far), g.ints(1))
        return g.op("Add", x, g.op("ReduceMean", last, axes=[1]))

    def first(g, x):
        return g.op("Add", x, g.op("Slice", x, g.ints(0), g.ints(1), g.ints(1)))

    def largest(g, x):
        return g.op("Add", x, g.op("ReduceMax", x, axes=[1]))

    def sums(g, x):
        return g.op("Add", x, g.op("CumSum", x, g.const(1, np.int64)))

    def rolled(g, x):
        parts = [
            g.op("Slice", x, g.ints(a), g.ints(b), g.ints(1)) for a, b in ((n, far), (0, n))
        ]
        return g.op("Concat", *parts, axis=1)

    def late(g, x):
        """From the n-th token on each is the one before."""
        at = g.op("Unsqueeze", g.span(g.ints(0), size(g, x)), g.ints(0, 2))
        before = g.op("Concat", g.op("Slice", x, g.ints(0), g.ints(1), g.ints(1)),
                      g.op("Slice", x, g.ints(0), g.ints(-1), g.ints(1)), axis=1)
        return g.op("Where", g.op("Less", at, g.const(n * 5, np.int64)), x, before)

    said, f = pick(
        rng,
        [
            ("the mean of all tokens", mean),
            (f"the mean of the last {n}", tail),
            ("the first token", first),
            ("the largest of all tokens", largest),
            ("the sum so far", sums),
            (f"rolled by {n}", rolled),
            (f"each the one before from token {n * 5} on", late),
        ],
    )
    return f"embeddings: {said}", {"embedded": f}


def of_sequences(rng, c):
    which, where = int(rng.integers(0, 5)), pick(rng, ["embedded", "logits"])

    def factor(g):
        at = g.op("Unsqueeze", g.span(g.ints(0), size(g, g.ids, 0)), g.ints(1, 2))
        hit = g.op("Equal", at, g.const(which, np.int64))
        return g.op("Where", hit, g.const(2.0), g.const(1.0))

    return f"{where} of sequence {which} times 2", {where: multiplied(factor)}


def of_probabilities(rng, c):
    def spelled(g, x):
        powers = g.op("Exp", g.op("Sub", x, g.op("ReduceMax", x, axes=[-1])))
        return g.op("Div", powers, g.op("ReduceSum", powers, g.ints(-1)))

    softmax = lambda g, x: g.op("Softmax", x, axis=-1)  # noqa: E731
    spelled.probabilities = softmax.probabilities = True
    return pick(
        rng,
        [
            ("probabilities", {"logits": softmax}),
            ("probabilities, spelled out", {"logits": spelled}),
            ("log probabilities", {"logits": lambda g, x: g.op("LogSoftmax", x, axis=-1)}),
        ],
    )


TWISTS = [
    of_sizes,
    of_sizes,
    of_sizes,
    of_lengths,
    of_lengths,
    of_lengths,
    of_other_tokens,
    of_other_tokens,
    of_sequences,
    of_probabilities,
]
