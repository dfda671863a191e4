"""Cases of attention over a KV state of bytes, int8 and fp8, whose rows have a scale each."""
import numpy as np

import fp8_cases
import int8_cases
from fused_cases import attention, split_heads
from reference import add

rng = np.random.default_rng(58)
FORMATS = {"int8": int8_cases.quantise, "fp8": fp8_cases.quantise}


def normal(*shape, dtype=np.float32):
    return rng.standard_normal(shape).astype(dtype)


def packed(q, s):
    """Blocks of rows [.., t, d], and behind the rows of a block their scales: [.., t, d + 4]."""
    *blocks, t, d = q.shape
    rows = q.view(np.int8).reshape(*blocks, t * d)
    scales = np.ascontiguousarray(s, np.float32).reshape(*blocks, t).view(np.int8)
    return np.concatenate([rows, scales], -1).reshape(*blocks, t, d + 4).view(q.dtype)


def places():
    """A state with a place for each sequence, of fp8: int8 has its own."""
    quantise, layers, slots, heads, context, d = FORMATS["fp8"], 2, 4, 2, 8, 4
    for layer, past, seq, masked in ((0, [0, 0], 3, False), (1, [5, 2], 1, False),
                                     (1, [1, 3, 0, 2], 3, False), (1, [2, 3], 2, True)):
        b = len(past)
        qkv = normal(b, seq, 3 * heads * d)
        q, k, v = np.split(qkv, 3, axis=-1)
        inputs = [np.array(past, np.int32)]
        last = np.array(past)[:, None, None] + np.arange(seq)[None, :, None]
        visible = np.arange(context)[None, None] <= last
        if masked:
            mask = np.ones((b, 5), np.int32)
            mask[0, 0:2] = 0
            inputs.append(mask)
            visible[:, :, :5] &= mask[:, None] != 0
        old = quantise(normal(layers, 2, slots, heads, context, d))
        new = [x.copy() for x in old]
        for row, at in enumerate(past):
            for part, rows in enumerate((k, v)):
                place = (layer, part, row, slice(None), slice(at, at + seq))
                new[0][place], new[1][place] = quantise(split_heads(rows, heads)[row])
        values = fp8_cases.dequantise(*new)
        y = attention(q, values[layer, 0, :b], values[layer, 1, :b], heads, 0.5, visible)
        add("append_attention", f"fp8 state, layer {layer} past {past} seq {seq} mask {masked}",
            [packed(*old), qkv] + inputs, [packed(*new), y.astype(np.float32)],
            {"layer": layer, "num_heads": heads, "scale": 0.5}, tol=1e-5)


def pages(sequences, shared, heads, size, d, dtype, form, columns=4, window=0):
    """As decoder_cases.paged: of each sequence its tokens before, its new ones and their cuts."""
    quantise, layers, layer = FORMATS[form], 2, 1
    rows, count = sum(n for _, n, _ in sequences), len(sequences) * columns
    old = quantise(normal(count, layers, 2, shared, size, d))
    new = [x.copy() for x in old]
    qkv = normal(1, rows, (heads + 2 * shared) * d, dtype=dtype)
    tables = rng.permutation(count).reshape(len(sequences), columns).astype(np.int32)
    pieces, row, y = [[0, 0, 0, 0]], 0, np.zeros((1, rows, heads * d))
    for table, (past, n, cuts) in enumerate(sequences):
        edges = [0, *cuts, n]
        pieces += [[row + a, b - a, past + a, table] for a, b in zip(edges, edges[1:])]
        for t in range(n):
            _, k, v = np.split(qkv[0, row + t], [heads * d, (heads + shared) * d])
            page, at = tables[table, (past + t) // size], (past + t) % size
            for part, x in enumerate((k, v)):
                new[0][page, layer, part, :, at], s = quantise(x.reshape(shared, d))
                new[1][page, layer, part, :, at] = s
        held = fp8_cases.dequantise(*new)[tables[table], layer]
        keys, values = (np.concatenate(list(held[:, i]), 1) for i in (0, 1))
        keys, values = (np.repeat(x[None], heads // shared, 1) for x in (keys, values))
        at = past + np.arange(n)[:, None]
        keyAt = np.arange(columns * size)
        visible = (keyAt <= at) & ((keyAt > at - window) if window else True)
        y[:, row:row + n] = attention(qkv[:, row:row + n, :heads * d].astype(np.float64), keys,
                                      values, heads, 0.5, visible[None])
        row += n
    half = dtype == np.float16
    add("append_attention", f"{form} pages of {size}, {shared} heads shared by {heads} of "
        f"{len(sequences)} sequences {np.dtype(dtype)} window {window}",
        [packed(*old), qkv, np.array(pieces, np.int32), tables],
        [packed(*new), y.astype(dtype)],
        {"layer": layer, "num_heads": heads, "scale": 0.5, "paged": True}
        | ({"window": window} if window else {}), tol=1e-3 if half else 1e-5)


def states():
    places()
    mixed = [(0, 3, []), (6, 1, []), (3, 6, [2, 5]), (11, 1, []), (8, 4, [1])]
    longer = [(64, 1, []), (0, 66, [1, 64]), (40, 30, [23]), (127, 1, [])]
    for form in FORMATS:
        pages(mixed, 6, 6, 4, 4, np.float32, form)
        pages(mixed[::-1], 2, 6, 4, 8, np.float16, form)
        pages(longer, 1, 2, 64, 16, np.float16, form, columns=2)
        pages(longer[:2], 2, 2, 64, 8, np.float32, form, columns=2, window=20)
