"""Cases in bfloat16: inputs are rounded to it, outputs are those of numpy in double precision,
rounded once. The ops round once, too, or twice where a result is a product's epilogue; norms,
softmax and sums in between are in single precision."""
import ml_dtypes
import numpy as np

from decoder_cases import rotated
from fused_cases import ACTIVATIONS, attention, split_heads
from int8_cases import dequantise, quantise
from reference import add

rng = np.random.default_rng(16)
BF16 = ml_dtypes.bfloat16
UNIT = 2.0**-8  # one rounding is off by at most that, relative to the number


def b(*shape, scale=1.0, offset=0.0):
    return (rng.standard_normal(shape) * scale + offset).astype(np.float32).astype(BF16)


def wide(x):
    return x.astype(np.float64)


def single(*shape):
    return rng.standard_normal(shape).astype(np.float32)


def bfloat(op, name, inputs, outputs, attrs=None, slack=None):
    add(op, "bf16 " + name, inputs, outputs, attrs, tol=UNIT, slack=slack)


def products():
    for name, act in ACTIVATIONS.items():
        x, w, c, r = b(2, 3, 8), b(5, 8), b(5), b(2, 3, 5)
        y = act(wide(x) @ wide(w).T + wide(c)) + wide(r)
        bfloat("linear", name, [x, w, c, r], [y.astype(BF16)], {"activation": name})
    for m, k, n in ((1, 64, 33), (3, 1, 2), (9, 40, 24), (35, 48, 20)):
        x, w = b(m, k), b(n, k)
        y = wide(x) @ wide(w).T
        bfloat("linear", f"{m}x{k}x{n}", [x, w], [y.astype(BF16)])
        bfloat("linear", f"{m}x{k}x{n} to f32", [x, w], [y.astype(np.float32)],
               {"dtype": "dtype:f32"})
    for m, k, n, group in ((1, 64, 33, 0), (9, 48, 24, 0), (3, 32, 8, 16)):
        x, c, (w, s) = b(m, k), b(n), quantise(single(n, k), group)
        y = (wide(x) @ dequantise(w, s).T + wide(c)).astype(BF16)
        # Where no kernel reads int8 weights, they become bf16 first.
        weights = dequantise(w, s).astype(np.float32).astype(BF16)
        rounded = (wide(x) @ wide(weights).T + wide(c)).astype(BF16)
        bfloat("quantized_linear", f"{m}x{k}x{n} weight groups {group}", [x, w, s, None, c], [y],
               slack=np.abs(wide(rounded) - wide(y)))


def norms():
    for shape in ((3, 16), (2, 3, 40), (0, 4)):
        x, g, c = b(*shape, offset=1), b(shape[-1]), b(shape[-1])
        v = wide(x) - (wide(x).mean(-1, keepdims=True) if x.size else 0)
        scale = lambda d: 1 / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) if d.size else 1
        bfloat("layer_norm", str(list(shape)), [x, g, c],
               [(v * scale(v) * wide(g) + wide(c)).astype(BF16)], {"epsilon": 1e-5})
        y = wide(x) * scale(wide(x)) * wide(g)
        bfloat("rms_norm", str(list(shape)), [x, g], [y.astype(BF16)], {"epsilon": 1e-5})
    x, r, g = b(4, 24, offset=1), b(4, 24), b(24)
    total = wide(x) + wide(r)
    y = total / np.sqrt((total * total).mean(-1, keepdims=True) + 1e-5) * wide(g)
    bfloat("add_layer_norm", "rms", [x, r, g], [total.astype(BF16), y.astype(BF16)],
           {"rms": True, "epsilon": 1e-5})


def elements():
    x = b(3, 10)
    silu = lambda v: v / (1 + np.exp(-v))
    bfloat("silu", "3x10", [x], [silu(wide(x)).astype(BF16)])
    y = silu(wide(x[:, :5])) * wide(x[:, 5:])
    bfloat("gated", "halves", [x], [y.astype(BF16)], {"activation": "silu"})
    y = silu(wide(x[:, ::2])) * wide(x[:, 1::2])
    bfloat("gated", "interleaved", [x], [y.astype(BF16)],
           {"activation": "silu", "interleaved": True})
    table, places = b(9, 8), b(6, 8)
    ids, past = rng.integers(0, 9, (2, 3)).astype(np.int32), np.array([2, 0], np.int32)
    y = wide(table)[ids] + wide(places)[past[:, None] + np.arange(3)]
    bfloat("embed", "past", [ids, table, places, past], [y.astype(BF16)])
    bfloat("embed", "tokens alone", [ids, table], [table[ids]])
    x = b(3, 4, 8)
    bfloat("gather_last", "3 sequences", [x, np.array([2, 4, 1], np.int32)],
           [x[np.arange(3), [1, 3, 0]]])
    x = rng.permutation(40).reshape(2, 20).astype(BF16)
    bfloat("arg_max", "rows", [x], [wide(x).argmax(-1).astype(np.int32)],
           {"axis": -1, "keepdims": False, "dtype": "dtype:i32"})
    angles = np.arange(9)[:, None] * 100.0 ** (-np.arange(8) / 8)
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    for interleaved in (False, True):
        x, at = b(2, 4, 48), rng.integers(0, 9, (2, 4)).astype(np.int32)
        y = rotated(wide(x), at, cos, sin, 16, 2, interleaved)
        bfloat("rope", f"heads 2 of 3 interleaved {interleaved}", [x, at, cos, sin],
               [y.astype(BF16)], {"head_dim": 16, "heads": 2, "interleaved": interleaved})
    x = b(3, 16, scale=3)
    bfloat("quantize", "3x16", [x], list(quantise(x.astype(np.float32))))
    q, s = quantise(single(3, 8))
    bfloat("dequantize", "3x8", [q, s], [dequantise(q, s).astype(BF16)], {"dtype": "dtype:bf16"})


def states():
    """Attention of rows in bf16 over states in bf16."""
    layers, slots, context, d = 2, 3, 7, 16
    for heads, shared, past, seq, masked, window in ((4, 4, [0, 0], 3, False, 0),
                                                     (4, 2, [5, 2], 1, False, 0),
                                                     (6, 1, [1, 3, 0], 3, True, 0),
                                                     (4, 2, [3, 4], 3, False, 2)):
        n = len(past)
        kv, qkv = b(layers, 2, slots, shared, context, d), b(n, seq, (heads + 2 * shared) * d)
        q, k, v = np.split(qkv, [heads * d, (heads + shared) * d], axis=-1)
        out = kv.copy()
        for row, at in enumerate(past):
            out[1, 0, row, :, at:at + seq] = split_heads(k, shared)[row]
            out[1, 1, row, :, at:at + seq] = split_heads(v, shared)[row]
        own = np.array(past)[:, None, None] + np.arange(seq)[None, :, None]
        key = np.arange(context)[None, None]
        visible = (key <= own) & (key > own - (window or context))
        mask = None
        if masked:
            mask = np.ones((n, context), np.int32)
            mask[0, 0:2] = 0
            visible = visible & (mask[:, None] != 0)
        keys, values = (np.repeat(wide(out[1, i, :n]), heads // shared, 1) for i in (0, 1))
        y = attention(wide(q), keys, values, heads, 0.25, visible).astype(BF16)
        name = f"{shared} heads shared by {heads} past {past} seq {seq} mask {masked} " \
               f"window {window}"
        attrs = {"layer": 1, "num_heads": heads, "scale": 0.25}
        if window:
            attrs["window"] = window
        places = np.array(past, np.int32)
        rest = [mask] if masked else []
        bfloat("kv_append", name, [kv, k, v, places], [out], {"layer": 1})
        bfloat("cached_attention", name, [q, out, places, *rest], [y], attrs)
        bfloat("append_attention", name, [kv, qkv, places, *rest], [out, y], attrs)
        length = np.arange(n, dtype=np.int32) % seq + 1
        bfloat("append_attention", "last " + name, [kv, qkv, places, mask, length],
               [out, y[np.arange(n), length - 1]], attrs)
    heads, shared, s = 4, 2, 5
    q, k, v = b(2, s, heads * d), b(2, s, shared * d), b(2, s, shared * d)
    keys, values = (np.repeat(split_heads(wide(x), shared), heads // shared, 1) for x in (k, v))
    visible = np.broadcast_to(np.tril(np.ones((s, s), bool)), (2, s, s))
    y = attention(wide(q), keys, values, heads, 0.25, visible)
    bfloat("attention", "2 heads shared by 4", [q, k, v], [y.astype(BF16)],
           {"num_heads": heads, "scale": 0.25, "causal": True})
    scores = b(2, 3, 5, 5, scale=2)
    p = np.exp(np.where(np.tril(np.ones((5, 5), bool)), wide(scores) * 0.5, -np.inf))
    bfloat("masked_softmax", "causal", [scores], [(p / p.sum(-1, keepdims=True)).astype(BF16)],
           {"scale": 0.5, "causal": True})


def pages():
    """One sequence of 3 tokens behind 5, and one new token behind 2, over pages of 4 tokens."""
    heads, shared, d, size = 4, 2, 16, 4
    kv, qkv = b(6, 2, 2, shared, size, d), b(1, 4, (heads + 2 * shared) * d)
    tables = np.array([[4, 0, 2], [1, 5, 3]], np.int32)
    out, y, row = kv.copy(), np.zeros((1, 4, heads * d)), 0
    for table, (past, new) in zip(tables, ((5, 3), (2, 1))):
        for t in range(new):
            _, k, v = np.split(qkv[0, row + t], [heads * d, (heads + shared) * d])
            page, at = table[(past + t) // size], (past + t) % size
            out[page, 1, 0, :, at], out[page, 1, 1, :, at] = k.reshape(shared, d), v.reshape(
                shared, d)
        held = wide(out[table, 1])
        keys, values = (np.repeat(np.concatenate(list(held[:, i]), 1)[None], heads // shared, 1)
                        for i in (0, 1))
        visible = np.arange(len(table) * size) <= past + np.arange(new)[:, None]
        y[:, row:row + new] = attention(wide(qkv[:, row:row + new, :heads * d]), keys, values,
                                        heads, 0.25, visible[None])
        row += new
    pieces = np.array([[3, 1, 2, 1], [0, 3, 5, 0]], np.int32)
    bfloat("append_attention", "pages of 2 sequences", [kv, qkv, pieces, tables],
           [out, y.astype(BF16)], {"layer": 1, "num_heads": heads, "scale": 0.25, "paged": True})


def bfloats():
    for part in (products, norms, elements, states, pages):
        part()
