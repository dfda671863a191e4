"""Cases of the ops of Llama-like decoders: rotary embeddings, heads that share keys and values,
gates."""
import numpy as np

from fused_cases import ACTIVATIONS, attention, split_heads
from int8_cases import quantise
from reference import add, f, ints, rng


def rotated(x, positions, cos, sin, head_dim, heads, interleaved):
    """As complex numbers: pair k of a head times cos + i sin of its position."""
    b, s, width = x.shape
    pairs = cos.shape[1]
    y = x.astype(np.float64).reshape(b, s, width // head_dim, head_dim).copy()
    part = slice(0, heads) if heads else slice(None)
    first, second = ((slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if interleaved else
                     (slice(0, pairs), slice(pairs, 2 * pairs)))
    places = np.broadcast_to(positions, (b, s))
    turn = cos[np.abs(places)] + 1j * np.sign(places + 0.5)[..., None] * sin[np.abs(places)]
    turn = turn.astype(np.complex128)[:, :, None]
    turned = (y[:, :, part, first] + 1j * y[:, :, part, second]) * turn
    y[:, :, part, first], y[:, :, part, second] = turned.real, turned.imag
    return y.reshape(b, s, width).astype(x.dtype)


def ropes():
    for head_dim, pairs, all_heads, heads, interleaved, dtype in (
            (8, 4, 3, 0, False, np.float32), (8, 4, 3, 0, True, np.float32),
            (8, 2, 3, 2, False, np.float32), (6, 2, 3, 2, True, np.float32),
            (2, 1, 1, 0, False, np.float32), (16, 8, 6, 4, False, np.float16),
            (5, 2, 2, 1, True, np.float16)):
        angles = np.arange(9)[:, None] * 100.0 ** (-np.arange(pairs) / pairs)
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        for rows in (1, 2):
            x = f(2, 4, all_heads * head_dim).astype(dtype)
            positions = ints(rows, 4, low=0, high=9,
                             dtype=np.int32 if heads else np.int64)
            if interleaved:
                positions[0, 0] *= -1
            y = rotated(x, positions, cos, sin, head_dim, heads, interleaved)
            add("rope", f"{pairs} pairs of {head_dim}, heads {heads} of {all_heads}, interleaved "
                f"{interleaved} {np.dtype(dtype)} rows {rows}", [x, positions, cos, sin], [y],
                {"head_dim": head_dim, "heads": heads, "interleaved": interleaved},
                tol=1e-3 if dtype == np.float16 else 1e-6)
    x, angles, past = f(2, 3, 8), np.arange(7)[:, None] * np.array([1, 0.1]), np.array([4, 0])
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    y = rotated(x, past[:, None] + np.arange(3), cos, sin, 4, 1, False)
    add("rope", "past", [x, past.astype(np.int32), cos, sin], [y], {"head_dim": 4, "heads": 1},
        tol=1e-6)
    x, table = f(1, 0, 8), f(3, 2)
    add("rope", "no tokens", [x, np.zeros((1, 0), np.int64), table, table], [x], {"head_dim": 4})


def ropes_of_normed_heads():
    for head_dim, pairs, all_heads, heads, interleaved, dtype in (
            (8, 4, 4, 3, False, np.float32), (32, 16, 3, 2, False, np.float16),
            (24, 8, 3, 0, True, np.float32), (80, 40, 3, 2, True, np.float16)):
        angles = np.arange(9)[:, None] * 100.0 ** (-np.arange(pairs) / pairs)
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        normed, epsilon = heads or all_heads, 0.01
        gain = 1 + f(normed, head_dim) / 4
        x = f(2, 3, all_heads * head_dim, scale=2).astype(dtype)
        x[0, 1, :head_dim] = 0
        positions = ints(2, 3, low=0, high=9, dtype=np.int32)
        y = x.astype(np.float64).reshape(2, 3, all_heads, head_dim)
        root = np.sqrt((y ** 2).mean(-1, keepdims=True) + epsilon)
        y[:, :, :normed] = (y / root)[:, :, :normed] * gain
        y = rotated(y.reshape(x.shape), positions, cos, sin, head_dim, heads, interleaved)
        add("rope", f"normed heads of {head_dim}, {pairs} pairs, heads {heads} of {all_heads}, "
            f"interleaved {interleaved} {np.dtype(dtype)}", [x, positions, cos, sin, gain],
            [y.astype(dtype)], {"head_dim": head_dim, "heads": heads, "interleaved": interleaved,
                                "epsilon": epsilon}, tol=2e-3 if dtype == np.float16 else 2e-6)


def ropes_to_halves():
    """Pairs that are neighbours in x and halves in the result."""
    for head_dim, pairs, all_heads, heads, dtype in ((8, 4, 3, 0, np.float32),
                                                     (32, 16, 3, 2, np.float16),
                                                     (10, 3, 2, 0, np.float32)):
        angles = np.arange(9)[:, None] * 100.0 ** (-np.arange(pairs) / pairs)
        cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        x = f(2, 4, all_heads * head_dim).astype(dtype)
        positions = ints(2, 4, low=-8, high=9, dtype=np.int32)
        y = rotated(x, positions, cos, sin, head_dim, heads, True)
        for head in range(heads or all_heads):
            pair = head * head_dim + np.arange(2 * pairs)
            y[:, :, pair] = np.concatenate([y[:, :, pair[0::2]], y[:, :, pair[1::2]]], axis=-1)
        add("rope", f"{pairs} pairs of {head_dim} to halves {np.dtype(dtype)}",
            [x, positions, cos, sin], [y],
            {"head_dim": head_dim, "heads": heads, "interleaved": True, "to_halves": True},
            tol=1e-3 if dtype == np.float16 else 1e-6)


def shared_heads():
    heads, d, b, s, p = 6, 4, 2, 3, 2
    for shared, past, causal, dtype in ((3, True, True, np.float32), (1, False, True, np.float32),
                                        (2, True, False, np.float32), (2, True, True, np.float16)):
        q, k, v = (f(b, s, n * d).astype(dtype) for n in (heads, shared, shared))
        old = [f(b, shared, p, d).astype(dtype) for _ in range(2)] if past else []
        keys, values = split_heads(k, shared), split_heads(v, shared)
        if past:
            keys, values = np.concatenate([old[0], keys], 2), np.concatenate([old[1], values], 2)
        keys, values = (np.repeat(x, heads // shared, 1) for x in (keys, values))
        visible = np.ones((b, s, keys.shape[2]), bool)
        if causal:
            visible &= np.arange(keys.shape[2]) <= keys.shape[2] - s + np.arange(s)[:, None]
        add("attention", f"{shared} heads shared by {heads} past {past} causal {causal} "
            f"{np.dtype(dtype)}", [q, k, v, *old],
            [attention(q, keys, values, heads, 0.5, visible).astype(dtype)],
            {"num_heads": heads, "scale": 0.5, "causal": causal},
            tol=1e-3 if dtype == np.float16 else 1e-5)

    layers, slots, context = 2, 3, 7
    for shared, past, seq, masked, dtype in ((3, [0, 0], 3, False, np.float32),
                                             (1, [5, 2], 1, False, np.float32),
                                             (2, [1, 3, 0], 3, True, np.float32),
                                             (2, [4], 2, False, np.float16)):
        n = len(past)
        kv = f(layers, 2, slots, shared, context, d).astype(dtype)
        qkv = f(n, seq, (heads + 2 * shared) * d).astype(dtype)
        q, k, v = np.split(qkv, [heads * d, (heads + shared) * d], axis=-1)
        out = kv.copy()
        for row, at in enumerate(past):
            out[1, 0, row, :, at:at + seq] = split_heads(k, shared)[row]
            out[1, 1, row, :, at:at + seq] = split_heads(v, shared)[row]
        at = np.array(past)[:, None, None]
        visible = np.arange(context)[None, None] <= at + np.arange(seq)[None, :, None]
        mask = None
        if masked:
            mask = np.ones((n, context), np.int32)
            mask[0, 0:2] = 0
            visible &= mask[:, None] != 0
        keys, values = (np.repeat(out[1, i, :n], heads // shared, 1) for i in (0, 1))
        y = attention(q, keys, values, heads, 0.5, visible).astype(dtype)
        name = f"{shared} heads shared by {heads} past {past} seq {seq} mask {masked} " \
               f"{np.dtype(dtype)}"
        tol = 1e-3 if dtype == np.float16 else 1e-5
        attrs = {"layer": 1, "num_heads": heads, "scale": 0.5}
        places = np.array(past, np.int32)
        rest = [mask] if masked else []
        add("kv_append", name, [kv, k, v, places], [out], {"layer": 1}, tol=0)
        add("cached_attention", name, [q, out, places, *rest], [y], attrs, tol=tol)
        add("append_attention", name, [kv, qkv, places, *rest], [out, y], attrs, tol=tol)
        length = np.arange(n, dtype=np.int32) % seq + 1
        add("append_attention", "last " + name, [kv, qkv, places, mask, length],
            [out, y[np.arange(n), length - 1]], attrs, tol=tol)


def gates():
    def silu(x):
        return x / (1 + np.exp(-x))

    x = np.concatenate([f(50, scale=4), np.array([0, -0.0, 90, -90, 1e30, -1e30], np.float32)])
    with np.errstate(over="ignore"):
        add("silu", "f32", [x], [silu(x.astype(np.float64)).astype(np.float32)], tol=1e-6)
    x = f(2, 3, 4).astype(np.float64)
    add("silu", "double", [x], [silu(x)], tol=1e-12)
    x = f(3, 5).astype(np.float16)
    add("silu", "half", [x], [silu(x.astype(np.float64)).astype(np.float16)], tol=1e-3)
    for name, act in (("silu", silu), *ACTIVATIONS.items()):
        x = f(2, 3, 14)
        y = act(x[..., :7].astype(np.float64)) * x[..., 7:]
        add("gated", name, [x], [y.astype(np.float32)], {"activation": name}, tol=1e-5)
    x = f(4, 6).astype(np.float16)
    add("gated", "half", [x], [(silu(x[:, :3].astype(np.float64)) * x[:, 3:]).astype(np.float16)],
        tol=1e-3)
    add("gated", "no rows", [x[:0]], [x[:0, :3]])


def paged(sequences, shared, heads, size, d, layers, layer, dtype, columns=4, name="",
          cap=0):
    """append_attention over a state in pages of `size` tokens. Each sequence by itself: its keys
    and values in one array, then every token over those up to its own. Of each sequence its tokens
    before, its new ones, and where these are cut into pieces."""
    rows = sum(n for _, n, _ in sequences)
    count = len(sequences) * columns
    kv = f(count + 1, layers, 2, shared, size, d).astype(dtype)
    qkv = f(1, rows, (heads + 2 * shared) * d).astype(dtype)
    tables = rng.permutation(count).reshape(len(sequences), columns).astype(np.int32)
    for table, (past, _, _) in enumerate(sequences):
        if past >= size:  # a prefix that all of these have
            tables[table, 0] = count
    out, y = kv.copy(), np.zeros((1, rows, heads * d))
    pieces, row = [[0, 0, -1, 99]], 0
    for table, (past, new, cuts) in enumerate(sequences):
        edges = [0, *cuts, new]
        pieces += [[row + a, b - a, past + a, table] for a, b in zip(edges, edges[1:])]
        for t in range(new):
            q, k, v = np.split(qkv[0, row + t], [heads * d, (heads + shared) * d])
            page, at = tables[table, (past + t) // size], (past + t) % size
            out[page, layer, 0, :, at] = k.reshape(shared, d)
            out[page, layer, 1, :, at] = v.reshape(shared, d)
        row += new
    row = 0
    for table, (past, new, _) in enumerate(sequences):
        held = out[tables[table], layer].astype(np.float64)
        keys, values = (np.concatenate(list(held[:, i]), 1) for i in (0, 1))
        keys, values = (np.repeat(x[None], heads // shared, 1) for x in (keys, values))
        q = qkv[:, row:row + new, :heads * d].astype(np.float64)
        visible = np.arange(columns * size) <= past + np.arange(new)[:, None]
        y[:, row:row + new] = attention(q, keys, values, heads, 0.5, visible[None], cap=cap)
        row += new
    # Tables in any order; the pieces of each stay one behind the other.
    order = {pieces[i][3]: at for at, i in enumerate(rng.permutation(len(pieces)))}
    pieces = np.array(sorted(pieces, key=lambda piece: order[piece[3]]), np.int32)
    add("append_attention", f"pages {name}{shared} heads shared by {heads} of {len(sequences)} "
        f"sequences {np.dtype(dtype)}", [kv, qkv, pieces, tables],
        [out, y.astype(dtype)], {"layer": layer, "num_heads": heads, "scale": 0.5,
                                 **({"soft_cap": cap} if cap else {}), "paged": True},
        tol=1e-3 if dtype == np.float16 else 1e-5)


def pages():
    mixed = [(0, 3, []), (6, 1, []), (3, 6, [2, 5]), (11, 1, []), (8, 4, [1])]
    for shared, dtype, sequences in ((6, np.float32, mixed), (2, np.float32, mixed[::-1]),
                                     (1, np.float16, mixed), (3, np.float16, [(12, 4, [])]),
                                     (6, np.float32, [(0, 1, [])])):
        paged(sequences, shared, 6, 4, 4, 2, 1, dtype)


def pages_of_64():
    """Pages as plans have them, which kernels of a GPU take: steps, a prompt whose cuts are inside
    of pages and at their ends, and a piece of more than 16 tokens behind others, over an end."""
    mixed = [(64, 1, []), (0, 66, [1, 64]), (40, 30, [23]), (127, 1, [])]
    paged(mixed, 1, 2, 64, 16, 1, 0, np.float16, columns=2, name="of 64 tokens, ")
    paged(mixed[1:3], 1, 1, 64, 8, 1, 0, np.float32, columns=2, name="of 64 tokens, ")


def rms_norms():
    """RMS norms of sums, and those that quantise; a mean far from zero is no layer norm's."""
    def rms(x, g, epsilon):
        wide = x.astype(np.float64)
        if not x.size:
            return wide
        return wide / np.sqrt((wide * wide).mean(-1, keepdims=True) + epsilon) * g

    for shape, dtype in (((2, 3, 8), np.float32), ((0, 4), np.float32), ((1, 1), np.float32),
                         ((3, 8), np.float16)):
        x, r, g = (v.astype(dtype) for v in (f(*shape) + 3, f(*shape), f(shape[-1])))
        total = x.astype(np.float64) + r
        add("add_layer_norm", f"rms {list(shape)} {np.dtype(dtype)}", [x, r, g],
            [total.astype(dtype), rms(total, g, 1e-4).astype(dtype)],
            {"rms": True, "epsilon": 1e-4}, tol=1e-5 if dtype == np.float32 else 2e-3)
    for name, x in (("3d", f(2, 3, 8) + 3), ("half", (f(3, 8) + 3).astype(np.float16)),
                    ("wide", f(2, 64, scale=5) + 3)):
        g = f(x.shape[-1]).astype(x.dtype)
        y = rms(x, g, 1e-5)
        add("quantized_layer_norm", "rms " + name, [x, g], list(quantise(y)), {"rms": True},
            tol=1e-5)
        add("quantized_layer_norm", f"rms {name} groups", [x, g], list(quantise(y, 4)),
            {"rms": True, "group": 4}, tol=1e-5)
        add("quantized_layer_norm", f"rms {name} scale", [x, g, None, np.float32(0.05)],
            list(quantise(y, scale=0.05)), {"rms": True}, tol=1e-5)


def seen(window, past, seq, masked, dtype, cap=0):
    """Attention of which a query sees the last keys alone, 0: all, with capped scores or not."""
    heads, shared, d, n, context = 4, 2, 4, 2, 9
    kv = f(2, 2, 3, shared, context, d).astype(dtype)
    qkv = f(n, seq, (heads + 2 * shared) * d).astype(dtype)
    q, k, v = np.split(qkv, [heads * d, (heads + shared) * d], axis=-1)
    out = kv.copy()
    for row, at in enumerate(past):
        out[1, 0, row, :, at:at + seq] = split_heads(k, shared)[row]
        out[1, 1, row, :, at:at + seq] = split_heads(v, shared)[row]
    own = np.array(past)[:, None, None] + np.arange(seq)[None, :, None]
    key = np.arange(context)[None, None]
    visible = (key <= own) & (key > own - (window or context))
    mask = np.ones((n, context), np.int32)
    if masked:
        mask[0, 1:4] = 0
    visible = visible & (mask[:, None] != 0)
    y = attention(q, *(np.repeat(out[1, i, :n], heads // shared, 1) for i in (0, 1)), heads,
                  0.5, visible, cap=cap).astype(dtype)
    name = f"window {window} past {past} seq {seq} mask {masked} {np.dtype(dtype)}"
    name = f"cap {cap} {name}" if cap else name
    tol = 1e-3 if dtype == np.float16 else 1e-5
    form = {"window": window, **({"soft_cap": cap} if cap else {})}
    attrs = {"layer": 1, "num_heads": heads, "scale": 0.5, **form}
    places = np.array(past, np.int32)
    rest = [mask] if masked else []
    add("cached_attention", name, [q, out, places, *rest], [y], attrs, tol=tol)
    add("append_attention", name, [kv, qkv, places, *rest], [out, y], attrs, tol=tol)
    length = np.arange(n, dtype=np.int32) % seq + 1
    add("append_attention", "last " + name, [kv, qkv, places, mask, length],
        [out, y[np.arange(n), length - 1]], attrs, tol=tol)
    old = [f(n, shared, 2, d).astype(dtype) for _ in range(2)]
    both = (np.concatenate([o, split_heads(x, shared)], 2) for o, x in zip(old, (k, v)))
    keys, values = (np.repeat(x, heads // shared, 1) for x in both)
    key, own = np.arange(2 + seq), 2 + np.arange(seq)[:, None]
    visible = np.broadcast_to((key <= own) & (key > own - (window or 2 + seq)), (n, seq, 2 + seq))
    add("attention", name, [q, k, v, *old],
        [attention(q, keys, values, heads, 0.5, visible, cap=cap).astype(dtype)],
        {"num_heads": heads, "scale": 0.5, "causal": True, **form}, tol=tol)


def windows():
    for case in ((1, [0, 0], 3, False, np.float32), (3, [6, 2], 1, False, np.float32),
                 (3, [1, 4], 4, True, np.float32), (20, [4, 0], 3, False, np.float32),
                 (2, [3, 5], 3, False, np.float16)):
        seen(*case)


def soft_caps():
    for case in ((0, [0, 3], 3, False, np.float32, 0.7), (0, [6, 2], 1, True, np.float32, 2),
                 (3, [1, 4], 4, False, np.float16, 1.5)):
        seen(*case)
    paged([(0, 3, []), (6, 1, []), (3, 6, [2, 5])], 2, 4, 4, 4, 2, 1, np.float32, cap=0.7,
          name="capped, ")


def interleaved_gates():
    """gated where each gate stands beside what it gates."""
    def silu(x):
        return x / (1 + np.exp(-x))

    for name, act in (("silu", silu), *ACTIVATIONS.items()):
        x = f(2, 3, 14)
        y = act(x[..., ::2].astype(np.float64)) * x[..., 1::2]
        add("gated", "interleaved " + name, [x], [y.astype(np.float32)],
            {"activation": name, "interleaved": True}, tol=1e-5)
    x = f(4, 6).astype(np.float16)
    y = silu(x[:, ::2].astype(np.float64)) * x[:, 1::2]
    add("gated", "interleaved half", [x], [y.astype(np.float16)], {"interleaved": True}, tol=1e-3)
