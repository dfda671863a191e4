"""Cases of weights and tables in 8-bit floats (E4M3), from ml_dtypes and numpy in double
precision. Every one of the 256 but the two NaN is among them."""
import ml_dtypes
import numpy as np

from fused_cases import ACTIVATIONS, attention, split_heads
from reference import add

rng = np.random.default_rng(8)
FP8 = ml_dtypes.float8_e4m3fn
ALL = np.array([i for i in range(256) if i & 127 != 127], np.uint8).view(FP8)


def single(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def quantised(n, k):
    """Rows of steps of every size and their scales; value, step and scale."""
    q = rng.choice(ALL, (n, k))
    s = rng.uniform(0.5, 1.5, (n, 1)).astype(np.float32) / np.float32(448)
    return q.astype(np.float64) * s.astype(np.float64), q, s


def fp8s():
    add("dequantize", "fp8, all steps", [ALL.reshape(2, 127), np.array([[0.5], [3]], np.float32)],
        [(ALL.astype(np.float64).reshape(2, 127) * [[0.5], [3]]).astype(np.float32)],
        {"dtype": "dtype:f32"})
    for m, k, n in ((1, 64, 33), (3, 1, 2), (9, 48, 24), (20, 96, 40), (70, 80, 65)):
        x, (w, q, s), c = single(m, k), quantised(n, k), single(n)
        y = x.astype(np.float64) @ w.T + c
        add("quantized_linear", f"fp8 {m}x{k}x{n}", [x, q, s, None, c], [y.astype(np.float32)],
            tol=2e-5)
        h = x.astype(np.float16)
        y = h.astype(np.float64) @ w.T + c
        # Where no kernel reads fp8 weights, they become fp16 first.
        rounded = h.astype(np.float64) @ w.astype(np.float16).astype(np.float64).T + c
        add("quantized_linear", f"fp8 {m}x{k}x{n} half", [h, q, s, None, c.astype(np.float16)],
            [y.astype(np.float16)], tol=1e-3, slack=np.abs(rounded - y))
    ids = rng.integers(0, 9, (2, 3)).astype(np.int32)
    rows, q, s = quantised(9, 16)
    add("embed", "fp8", [ids, q, None, None, None, s], [rows[ids].astype(np.float32)],
        {"dtype": "dtype:f32"})
    places, past = single(6, 16).astype(np.float16), np.array([2, 0], np.int32)
    at = past[:, None] + np.arange(3)
    add("embed", "fp8, half", [ids, q, places, past, None, s],
        [(rows[ids] + places[at]).astype(np.float16)], {"dtype": "dtype:f16"}, tol=1e-3)


def quantise(x, group=0, scale=None):
    """(q, s) of rows, as ir/ops/Quantize.h states it; in single precision throughout."""
    x = np.asarray(x, np.float32)
    rows = x.reshape(-1, group or x.shape[-1] or 1)
    if scale is None:
        top = np.abs(rows).max(-1) if rows.size else np.zeros(len(rows), np.float32)
        s = np.where(top < np.float32(2.0**-100), np.float32(1), top / np.float32(448))
        out = s.reshape(x.shape[:-1] + (x.shape[-1] // (group or x.shape[-1] or 1),))
    else:
        s = out = np.float32(scale)
    inverse = np.broadcast_to(np.float32(1) / s, (len(rows),))[:, None].astype(np.float32)
    q = np.clip(rows * inverse, -448, 448).astype(FP8)
    return q.reshape(x.shape), out.astype(np.float32)


def dequantise(q, s):
    s = np.asarray(s, np.float64)
    return q.astype(np.float64) * (np.repeat(s, q.shape[-1] // s.shape[-1], -1) if s.ndim else s)


def step(q):
    """From each number to the next: what sums that are off by little may round to."""
    size = np.maximum(np.abs(q.astype(np.float64)), 2.0**-6)
    return 2.0 ** (np.floor(np.log2(size)) - 3)


def fp8_rows():
    global rng
    rng = np.random.default_rng(48)
    ties = np.array([[448, 17, 19, -17, -19, 2.0**-10, 3 * 2.0**-10, -5 * 2.0**-10],
                     [0, -0.0, 0, 0, 0, 0, 0, 0]], np.float32)
    tiny = np.array([[2.0**-101, -(2.0**-140), 0, 1e-45], [2.0**-100, 2.0**-101, 0, -(2.0**-100)]],
                    np.float32)
    to = {"to": "dtype:f8e4m3"}
    for name, x, group in (("3d", single(2, 3, 8), 0), ("groups", single(2, 3, 8), 4),
                           ("ties", ties, 0), ("vanishing", tiny, 0), ("no rows", single(0, 4), 2),
                           ("large", single(6) * np.float32(1e30), 3),
                           ("of every size", (single(3, 300) ** 9), 100)):
        add("quantize", "fp8, " + name, [x], list(quantise(x, group)), {"group": group} | to,
            tol=1e-7)
    half = single(3, 24).astype(np.float16)
    add("quantize", "fp8, half", [half], list(quantise(half)), to, tol=1e-7)
    x = single(3, 4) * 3
    for scale in (0.002, 0.5):
        add("quantize", f"fp8, scale {scale}", [x, np.float32(scale)],
            list(quantise(x, scale=scale)), to, tol=0)

    forms = {  # how x is given: operands x, x_scale; attributes; its value
        "fp8 rows": lambda x: (x, None, {"x_group": 0}, dequantise(*quantise(x))),
        "fp8 groups": lambda x: (x, None, {"x_group": 16}, dequantise(*quantise(x, 16))),
        "fp8 scale": lambda x: (x, np.float32(0.01), {}, dequantise(*quantise(x, scale=0.01))),
        "rows in fp8": lambda x: (*quantise(x), {"dtype": "dtype:f32"}, dequantise(*quantise(x))),
        "rows in fp8, groups": lambda x: (*quantise(x, 64), {"dtype": "dtype:f32"},
                                          dequantise(*quantise(x, 64))),
        "rows in fp8, scale": lambda x: (*quantise(x, scale=0.01), {"dtype": "dtype:f32"},
                                         dequantise(*quantise(x, scale=0.01))),
    }
    for name, form in forms.items():
        for m, n, k, wgroup in ((1, 5, 64, 0), (7, 17, 128, 64), (20, 9, 128, 0)):
            x, wq, c, r = single(m, k), quantise(single(n, k), wgroup), single(n), single(m, n)
            given, scale, attrs, value = form(x)
            w = dequantise(*wq)
            y = ACTIVATIONS["gelu_tanh"](value @ w.T + c)
            # Tensor cores keep 13 bits of sums.
            lost = np.abs(value) @ np.abs(w).T * 2.0**-11
            add("quantized_linear", f"{name} {m}x{k}x{n} weight groups {wgroup}",
                [given, *wq, scale, c, r], [(y + r).astype(np.float32)],
                attrs | {"activation": "gelu_tanh"}, tol=2e-5, slack=lost)
            qs = quantise(value @ w.T + c)
            add("requantized_linear", f"{name} {m}x{k}x{n} weight groups {wgroup}",
                [given, *wq, scale, c], list(qs),
                {a: v for a, v in attrs.items() if a != "dtype"} | to, tol=2e-5, slack=step(qs[0]))
    # Sums of one sign, which lose most.
    x, wq = quantise(np.abs(single(9, 1024))), quantise(np.abs(single(5, 1024)))
    y = dequantise(*x) @ dequantise(*wq).T
    add("quantized_linear", "fp8 of one sign", [x[0], *wq, x[1]], [y.astype(np.float32)],
        {"dtype": "dtype:f32"}, tol=2e-5, slack=y * 0.005)
    x, wq, c = single(20, 64), quantise(single(128, 64)), single(128)
    y = ACTIVATIONS["gelu_tanh"](dequantise(*quantise(x)) @ dequantise(*wq).T + c)
    q, s = quantise(x)
    for group in (64, 128):
        qs = quantise(y, group)
        add("requantized_linear", f"fp8, groups of {group}", [q, *wq, s, c], list(qs),
            {"activation": "gelu_tanh", "y_group": group} | to, tol=2e-5, slack=step(qs[0]))
    qs = quantise(y, scale=0.05)
    add("requantized_linear", "fp8, scale", [q, *wq, s, c, np.float32(0.05)], list(qs),
        {"activation": "gelu_tanh"} | to, tol=2e-5, slack=step(qs[0]))

    for name, x in (("3d", single(2, 3, 8)), ("half", single(3, 8).astype(np.float16)),
                    ("wide", single(2, 64) * 5)):
        g, b = (v.astype(x.dtype) for v in (single(x.shape[-1]), single(x.shape[-1])))
        wide = x.astype(np.float64)
        y = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True)
                                                            + 1e-5) * g + b
        add("quantized_layer_norm", "fp8, " + name, [x, g, b], list(quantise(y)), to, tol=1e-5)
        add("quantized_layer_norm", f"fp8, {name} groups", [x, g, b], list(quantise(y, 4)),
            {"group": 4} | to, tol=1e-5)
        add("quantized_layer_norm", f"fp8, {name} scale", [x, g, b, np.float32(0.05)],
            list(quantise(y, scale=0.05)), to, tol=1e-5)

    layers, slots, heads, context, d = 1, 2, 2, 5, 32
    for layer, past, seq in ((0, [0, 2], 3),):
        qkv = single(len(past), seq, 3 * heads * d)
        q, k, v = np.split(qkv, 3, axis=-1)
        visible = (np.arange(context)[None, None] <=
                   np.array(past)[:, None, None] + np.arange(seq)[None, :, None])
        kv = single(layers, 2, slots, heads, context, d)
        out = kv.copy()
        for row, at in enumerate(past):
            for part, rows in enumerate((k, v)):
                out[layer, part, row, :, at:at + seq] = split_heads(rows, heads)[row]
        y = attention(q, out[layer, 0, :len(past)], out[layer, 1, :len(past)], heads, 0.2, visible)
        inputs = [kv, qkv, np.array(past, np.int32)]
        attrs = {"layer": layer, "num_heads": heads, "scale": 0.2} | to
        add("quantized_append_attention", f"fp8 layer {layer} past {past} seq {seq}", inputs,
            [out, *quantise(y, d)], attrs | {"group": d}, tol=1e-5)
        add("quantized_append_attention", f"fp8 layer {layer} past {past} seq {seq} scale",
            inputs + [None, np.float32(0.01)], [out, *quantise(y, scale=0.01)], attrs, tol=1e-5)


def fp8_blocks():
    """Floats by weights with a scale for each block of 128 x 128, given for each row; blocks at the
    ends are smaller, and have the scales of as many columns as divide them."""
    draw = np.random.default_rng(128)
    for m, n, k, group in ((1, 130, 256, 128), (3, 40, 192, 64), (20, 24, 320, 64),
                           (2, 9, 200, 8)):
        q = draw.choice(ALL, (n, k))
        blocks = draw.uniform(0.5, 1.5, (-(-n // 128), -(-k // 128))).astype(np.float32) / 448
        of = np.repeat(np.repeat(blocks.astype(np.float32), 128, 0), 128, 1)[:n, :k]
        w, s = q.astype(np.float64) * of.astype(np.float64), np.ascontiguousarray(of[:, ::group])
        x, c = (draw.standard_normal(shape).astype(np.float32) for shape in ((m, k), (n,)))
        y = x.astype(np.float64) @ w.T + c
        add("quantized_linear", f"fp8 in blocks {m}x{k}x{n}", [x, q, s, None, c],
            [y.astype(np.float32)], tol=2e-5)
        h = x.astype(np.float16)
        y = h.astype(np.float64) @ w.T + c
        # Kernels multiply halves: weights times the scales of their groups.
        lost = np.abs(h.astype(np.float64)) @ np.abs(w).T * 2.0**-11
        add("quantized_linear", f"fp8 in blocks {m}x{k}x{n} half",
            [h, q, s, None, c.astype(np.float16)], [y.astype(np.float16)], tol=1e-3, slack=lost)
