"""Cases of weights of four bits in groups, with and without zero points, from numpy in double
precision. Every one of the 16 numbers is among them."""
import numpy as np

from reference import Const, add

rng = np.random.default_rng(4)


def single(*shape):
    return rng.standard_normal(shape).astype(np.float32)


class Int4(Const):
    """Eight to a word: element e in bits 4 p and on with p = e / 2 + 4 (e mod 2)."""

    def __init__(self, q):
        super().__init__(q)
        e = np.arange(8)
        places = (e // 2 + 4 * (e % 2)) * 4
        nibbles = (q.reshape(-1, 8).astype(np.int64) & 15) << places
        self.words = nibbles.sum(1).astype(np.uint32)


def weights(n, k, group, zeros):
    """What they stand for, and the operands."""
    groups = k // group
    q = rng.integers(-8, 8, (n, k)).astype(np.int8)
    q.reshape(-1)[:16] = np.arange(-8, 8)
    s = rng.uniform(0.5, 1.5, (n, groups)) / 7 * rng.choice([-1, 1], (n, groups))
    s = s.astype(np.float32)
    z = rng.integers(-8, 8, (n, groups)).astype(np.int8) if zeros else None
    wide = q.reshape(n, groups, group).astype(np.float64)
    if zeros:
        wide = wide - z[:, :, None]
    wide = wide * s[:, :, None].astype(np.float64)
    return wide.reshape(n, k), Int4(q), Const(s), None if z is None else Const(z)


def int4s():
    for n, k, group, zeros in ((3, 16, 8, False), (5, 96, 32, True), (2, 128, 128, True)):
        w, q, s, z = weights(n, k, group, zeros)
        for dtype in (np.float32, np.float16):
            name = {np.float32: "f32", np.float16: "f16"}[dtype]
            add("dequantize", f"int4 {n}x{k} in {group}{' zeros' if zeros else ''} {name}",
                [q, s] + ([z] if zeros else []), [w.astype(dtype)], {"dtype": "dtype:" + name},
                tol=1e-3 if dtype == np.float16 else 2e-6)
    for m, k, n, group, zeros in ((1, 64, 33, 64, False), (3, 8, 2, 8, True), (9, 96, 24, 32, True),
                                  (1, 384, 40, 128, True), (8, 1040, 17, 16, False),
                                  (20, 256, 40, 128, False), (70, 64, 65, 32, True)):
        x, (w, q, s, z), c = single(m, k), weights(n, k, group, zeros), single(n)
        name = f"int4 {m}x{k}x{n} in {group}{' zeros' if zeros else ''}"
        rest = [None, None, z] if zeros else []
        y = x.astype(np.float64) @ w.T + c
        add("quantized_linear", name, [x, q, s, None, c] + rest, [y.astype(np.float32)], tol=2e-5)
        h = x.astype(np.float16)
        y = h.astype(np.float64) @ w.T + c
        # Where no kernel reads such weights, they become fp16 first.
        rounded = h.astype(np.float64) @ w.astype(np.float16).astype(np.float64).T + c
        add("quantized_linear", name + " half", [h, q, s, None, c.astype(np.float16)] + rest,
            [y.astype(np.float16)], tol=1e-3, slack=np.abs(rounded - y))
