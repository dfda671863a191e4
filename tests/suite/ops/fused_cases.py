"""Cases of attention, norms, embeddings and the other ops that passes make, in floating point."""
import numpy as np

from reference import add, check, f, inf, ints, nan, rng


def gelu_erf(x):
    from math import erf
    return x / 2 * (1 + np.vectorize(erf)(x / np.sqrt(2)))


ACTIVATIONS = {
    "none": lambda x: x,
    "gelu_erf": gelu_erf,
    "gelu_tanh": lambda x: x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
}


def later_activations():
    """Activations of products and gates that came later, with numbers of their own."""
    own = np.random.default_rng(8)
    more = {"silu": lambda x: x / (1 + np.exp(-x)), "relu_squared": lambda x: np.maximum(x, 0)**2}
    for name, act in more.items():
        for residual in (False, True):
            x, w, c, r = (own.standard_normal(s).astype(np.float32)
                          for s in ((2, 3, 8), (5, 8), (5,), (2, 3, 5)))
            y = act(x.astype(np.float64) @ w.T.astype(np.float64) + c) + (r if residual else 0)
            add("linear", f"{name} residual {residual}", [x, w, c] + [r] * residual,
                [y.astype(np.float32)], {"activation": name}, tol=1e-5)
    x = own.standard_normal((2, 3, 14)).astype(np.float32)
    y = more["relu_squared"](x[..., :7].astype(np.float64)) * x[..., 7:]
    add("gated", "relu_squared", [x], [y.astype(np.float32)], {"activation": "relu_squared"},
        tol=1e-5)


def attention(q, keys, values, heads, scale, visible, bias=0, cap=0):
    """q[b, s, H*d]; keys, values[b, H, t, d]; visible[b, s, t]; bias broadcasts to [b, H, s, t];
    cap: 0, or scores are cap tanh(score / cap). In double precision."""
    b, s, width = q.shape
    d = width // heads
    q = q.astype(np.float64).reshape(b, s, heads, d).transpose(0, 2, 1, 3)
    scores = scale * (q @ keys.astype(np.float64).transpose(0, 1, 3, 2))
    scores = cap * np.tanh(scores / cap) if cap else scores
    scores = np.where(visible[:, None], scores + bias, -inf)
    top = scores.max(-1, keepdims=True, initial=-1e300)
    p = np.exp(scores - top)
    total = p.sum(-1, keepdims=True)
    y = np.where(total > 0, p / np.where(total > 0, total, 1), 0) @ values.astype(np.float64)
    return y.transpose(0, 2, 1, 3).reshape(b, s, width)


def split_heads(x, heads):
    b, t, width = x.shape
    return x.reshape(b, t, heads, width // heads).transpose(0, 2, 1, 3)


def fused():
    for name, act in ACTIVATIONS.items():
        for bias in (False, True):
            for residual in (False, True):
                x, w, c, r = f(2, 3, 8), f(5, 8), f(5), f(2, 3, 5)
                y = act(x.astype(np.float64) @ w.T.astype(np.float64) + (c if bias else 0)) + (r
                    if residual else 0)
                inputs = [x, w, c if bias else None, r if residual else None]
                while inputs[-1] is None:
                    inputs.pop()
                add("linear", f"{name} bias {bias} residual {residual}", inputs,
                    [y.astype(np.float32)], {"activation": name}, tol=1e-5)
    for m, k, n in ((1, 8, 5), (1, 64, 33), (3, 1, 2), (0, 4, 3), (2, 0, 3), (17, 19, 23),
                    (1, 1, 1)):
        x, w = f(m, k), f(n, k)
        add("linear", f"{m}x{k}x{n}", [x, w],
            [(x.astype(np.float64) @ w.T.astype(np.float64)).astype(np.float32)], tol=1e-5)
    x, w, c = (v.astype(np.float16) for v in (f(3, 8), f(5, 8), f(5)))
    y = x.astype(np.float64) @ w.T.astype(np.float64) + c
    add("linear", "half", [x, w, c], [y.astype(np.float16)], tol=1e-3)
    add("linear", "half to f32", [x, w, c], [y.astype(np.float32)], {"dtype": "dtype:f32"},
        tol=1e-5)

    heads, d = 2, 8
    for b, s, p, causal, masked in ((1, 1, 0, True, False), (2, 5, 0, True, False),
                                    (2, 5, 0, False, False),
                                    (2, 3, 4, True, False), (2, 3, 4, True, True),
                                    (1, 1, 7, True, True),
                                    (2, 4, 0, False, True), (1, 19, 0, True, False),
                                    (0, 3, 0, True, False)):
        q, k, v = f(b, s, heads * d), f(b, s, heads * d), f(b, s, heads * d)
        past = [f(b, heads, p, d), f(b, heads, p, d)] if p else [None, None]
        keys, values = split_heads(k, heads), split_heads(v, heads)
        if p:
            keys, values = np.concatenate([past[0], keys], 2), np.concatenate([past[1], values], 2)
        visible = np.ones((b, s, p + s), bool)
        if causal:
            visible &= np.arange(p + s)[None, None] <= p + np.arange(s)[None, :, None]
        mask = None
        if masked:
            mask = np.ones((b, p + s), np.int64)
            mask[0, :2] = 0
            mask[-1, 1] = 0
            visible &= mask[:, None] != 0
        y = attention(q, keys, values, heads, 0.3, visible)
        inputs = [q, k, v] + past + [mask]
        while inputs[-1] is None:
            inputs.pop()
        add("attention", f"b{b} s{s} p{p} causal {causal} mask {masked}", inputs,
            [y.astype(np.float32)],
            {"num_heads": heads, "scale": 0.3, "causal": causal}, tol=1e-5)
    q, k, v = f(1, 2, 16), f(1, 3, 16), f(1, 3, 16)
    y = attention(q, split_heads(k, 2), split_heads(v, 2), 2, 1.0, np.ones((1, 2, 3), bool))
    add("attention", "more keys than queries", [q, k, v], [y.astype(np.float32)],
        {"num_heads": 2, "scale": 1.0, "causal": False}, tol=1e-5)
    q, k, v = f(1, 2, 4), f(1, 2, 4), f(1, 2, 4)
    add("attention", "nothing visible", [q, k, v, None, None, np.array([[0, 0]], np.int32)],
        [np.zeros((1, 2, 4), np.float32)],
        {"num_heads": 2, "scale": 1.0, "causal": True})
    shown = np.array([[True, False]])
    y = attention(q, split_heads(k, 2), split_heads(v, 2), 2, 1.0,
                  np.broadcast_to(shown[:, None], (1, 2, 2)))
    add("attention", "mask of bool", [q, k, v, None, None, shown], [y.astype(np.float32)],
        {"num_heads": 2, "scale": 1.0, "causal": False}, tol=1e-5)
    q, k, v = (x.astype(np.float16) for x in (f(1, 3, 16), f(1, 3, 16), f(1, 3, 16)))
    y = attention(q, split_heads(k, 2), split_heads(v, 2), 2, 0.35,
                  np.tril(np.ones((1, 3, 3), bool)))
    add("attention", "half", [q, k, v], [y.astype(np.float16)],
        {"num_heads": 2, "scale": 0.35, "causal": True}, tol=1e-3)

    for past, seq in (([0, 0], 3), ([5, 2], 1), ([1], 4), ([], 2)):
        past = np.array(past, np.int32)
        add("positions", f"{past.tolist()} {seq}", [past],
            [past.astype(np.int64)[:, None] + np.arange(seq)], {"seq": [seq]})

    layers, slots, context, d = 3, 4, 6, 4
    for layer, past, seq in ((0, [0, 0], 3), (2, [5, 2], 1), (1, [1, 3, 0, 2], 3)):
        for half in (False, True):
            kv = f(layers, 2, slots, heads, context, d)
            k, v = f(len(past), seq, heads * d), f(len(past), seq, heads * d)
            if half:
                kv, k, v = (x.astype(np.float16) for x in (kv, k, v))
            out = kv.copy()
            for row, at in enumerate(past):
                out[layer, 0, row, :, at:at + seq] = split_heads(k, heads)[row]
                out[layer, 1, row, :, at:at + seq] = split_heads(v, heads)[row]
            add("kv_append", f"layer {layer} past {past} half {half}",
                [kv, k, v, np.array(past, np.int32)], [out], {"layer": layer}, tol=0)
    for layer, past, seq, masked in ((0, [0, 0], 3, False), (2, [5, 2], 1, False),
                                     (1, [1, 3, 0, 2], 3, False), (1, [2, 3], 2, True)):
        b = len(past)
        kv, q = f(layers, 2, slots, heads, context, d), f(b, seq, heads * d)
        last = np.array(past)[:, None, None] + np.arange(seq)[None, :, None]
        visible = np.arange(context)[None, None] <= last
        inputs = [q, kv, np.array(past, np.int32)]
        if masked:
            mask = np.ones((b, 5), np.int32)
            mask[0, 0:2] = 0
            mask[1, :] = 0
            inputs.append(mask)
            visible[:, :, :5] &= mask[:, None] != 0
        y = attention(q, kv[layer, 0, :b], kv[layer, 1, :b], heads, 0.5, visible)
        add("cached_attention", f"layer {layer} past {past} seq {seq} mask {masked}", inputs,
            [y.astype(np.float32)],
            {"layer": layer, "num_heads": heads, "scale": 0.5}, tol=1e-5)
    for layer, past, seq, masked, half in ((0, [0, 0], 3, False, False),
                                           (2, [5, 2], 1, False, False),
                                           (1, [1, 3, 0, 2], 3, False, False),
                                           (1, [2, 3], 2, True, False), (0, [4], 2, False, True)):
        b = len(past)
        kv, qkv = f(layers, 2, slots, heads, context, d), f(b, seq, 3 * heads * d)
        if half:
            kv, qkv = kv.astype(np.float16), qkv.astype(np.float16)
        q, k, v = np.split(qkv, 3, axis=-1)
        out = kv.copy()
        for row, at in enumerate(past):
            out[layer, 0, row, :, at:at + seq] = split_heads(k, heads)[row]
            out[layer, 1, row, :, at:at + seq] = split_heads(v, heads)[row]
        last = np.array(past)[:, None, None] + np.arange(seq)[None, :, None]
        visible = np.arange(context)[None, None] <= last
        inputs = [kv, qkv, np.array(past, np.int32)]
        if masked:
            mask = np.ones((b, 5), np.int32)
            mask[0, 0:2] = 0
            inputs.append(mask)
            visible[:, :, :5] &= mask[:, None] != 0
        y = attention(q, out[layer, 0, :b], out[layer, 1, :b], heads, 0.5, visible)
        add("append_attention", f"layer {layer} past {past} seq {seq} mask {masked} half {half}",
            inputs, [out, y.astype(qkv.dtype)],
            {"layer": layer, "num_heads": heads, "scale": 0.5}, tol=1e-3 if half else 1e-5)
    ids, tokens, places = ints(2, 3, low=0, high=9, dtype=np.int32), f(9, 4), f(6, 4)
    past, places_ids = np.array([2, 0], np.int32), ints(2, 3, low=0, high=6, dtype=np.int32)
    add("embed", "tokens alone", [ids, tokens], [tokens[ids]])
    add("embed", "past", [ids, tokens, places, past], [tokens[ids]
                                                       + places[past[:, None] + np.arange(3)]])
    add("embed", "position ids", [ids.astype(np.int64), tokens, places, None, places_ids],
        [tokens[ids] + places[places_ids]])
    tokens, places = tokens.astype(np.float16), places.astype(np.float16)
    add("embed", "half", [ids, tokens, places, past], [tokens[ids]
                                                       + places[past[:, None] + np.arange(3)]],
        tol=1e-3)
    add("embed", "no ids", [ids[:, :0], tokens], [tokens[ids[:, :0]]])
    check("arg_max", "ArgMax", "i32 result", [y], {"axis": -1, "dtype": "dtype:i32"},
          onnx_attrs={"axis": -1}, cast=np.int32)
    q, k, v = f(1, 100, 8), f(1, 100, 8), f(1, 100, 8)
    y = attention(q, split_heads(k, 4), split_heads(v, 4), 4, 0.5,
                  np.tril(np.ones((1, 100, 100), bool)))
    add("attention", "long", [q, k, v], [y.astype(np.float32)],
        {"num_heads": 4, "scale": 0.5, "causal": True}, tol=1e-5)
    x = f(3, 4, 5)
    for lengths in ([1, 4, 2], [4, 4, 4]):
        add("gather_last", str(lengths), [x, np.array(lengths, np.int32)],
            [x[np.arange(3), np.array(lengths) - 1]])
    add("gather_last", "half", [x.astype(np.float16), np.array([2, 2, 1])],
        [x.astype(np.float16)[np.arange(3), [1, 1, 0]]])
    add("dim_values", "vector", [], [np.array([3, 0, 1])], {"values": [3, 0, 1]})
    add("dim_values", "scalar", [], [np.int64(9)], {"values": [9], "scalar": True})
    add("dim_values", "empty", [], [np.zeros(0, np.int64)], {"values": []})


def biased_attention():
    """Every axis of the bias broadcast or not; keys that only a bias of -inf hides; a row that sees
    nothing."""
    heads, d, b, s, p = 2, 4, 2, 3, 2
    for shape, causal, masked in (((b, heads, s, p + s), False, False),
                                  ((1, heads, s, p + s), True, False),
                                  ((b, 1, 1, p + s), True, True), ((1, 1, s, 1), False, False),
                                  ((1, 1, s, p + s), False, True)):
        q, k, v = f(b, s, heads * d), f(b, s, heads * d), f(b, s, heads * d)
        past = [f(b, heads, p, d), f(b, heads, p, d)]
        keys = np.concatenate([past[0], split_heads(k, heads)], 2)
        values = np.concatenate([past[1], split_heads(v, heads)], 2)
        visible = np.ones((b, s, p + s), bool)
        if causal:
            visible &= np.arange(p + s)[None, None] <= p + np.arange(s)[None, :, None]
        mask = None
        if masked:
            mask = np.ones((b, p + s), np.int32)
            mask[0, 1] = 0
            visible &= mask[:, None] != 0
        bias = f(*shape)
        if shape[2] > 1 and shape[3] > 1:
            bias[..., 0, 2:] = -inf
            bias[..., 1, :] = -inf
        y = attention(q, keys, values, heads, 0.5, visible, bias.astype(np.float64))
        add("attention", f"bias {list(shape)} causal {causal} mask {masked}",
            [q, k, v, *past, mask, bias], [y.astype(np.float32)],
            {"num_heads": heads, "scale": 0.5, "causal": causal}, tol=1e-5)
    q, k, v = (x.astype(np.float16) for x in (f(1, 3, 8), f(1, 3, 8), f(1, 3, 8)))
    bias = f(1, 2, 3, 3).astype(np.float16)
    y = attention(q, split_heads(k, 2), split_heads(v, 2), 2, 0.5, np.ones((1, 3, 3), bool),
                  bias.astype(np.float64))
    add("attention", "half, bias", [q, k, v, None, None, None, bias], [y.astype(np.float16)],
        {"num_heads": 2, "scale": 0.5, "causal": False}, tol=1e-3)


def added_norms():
    for shape, biased in (((2, 3, 8), True), ((5, 3), False), ((0, 4), True), ((1, 1), True)):
        x, r, g, c = f(*shape), f(*shape), f(shape[-1]), f(shape[-1])
        total = x.astype(np.float64) + r
        mean = total.mean(-1, keepdims=True) if total.size else total
        y = (total - mean) / np.sqrt(((total - mean) ** 2).mean(-1, keepdims=True) + 1e-5) * g + (c
            if biased else 0)
        add("add_layer_norm", f"{list(shape)} bias {biased}", [x, r, g] + [c] * biased,
            [x + r, y.astype(np.float32)], tol=1e-5)
    x, r, g, c = (v.astype(np.float16) for v in (f(3, 8), f(3, 8), f(8), f(8)))
    total = x.astype(np.float64) + r
    y = (total - total.mean(-1, keepdims=True)) / np.sqrt(total.var(-1, keepdims=True)
                                                          + 1e-5) * g + c
    add("add_layer_norm", "half", [x, r, g, c], [total.astype(np.float16), y.astype(np.float16)],
        tol=2e-3)


def last_queries():
    """append_attention of each sequence's last token, with padding behind it."""
    heads, d, slots, context = 2, 4, 3, 9
    for past, length, seq, masked, half in (([0, 0], [3, 1], 3, False, False),
                                            ([5, 2, 0], [1, 1, 1], 1, False, False),
                                            ([2, 3], [4, 2], 5, True, False),
                                            ([4, 0], [2, 4], 4, False, True)):
        b = len(past)
        kv, qkv = f(2, 2, slots, heads, context, d), f(b, seq, 3 * heads * d)
        if half:
            kv, qkv = kv.astype(np.float16), qkv.astype(np.float16)
        q, k, v = np.split(qkv, 3, axis=-1)
        out = kv.copy()
        for row, at in enumerate(past):
            out[1, 0, row, :, at:at + seq] = split_heads(k, heads)[row]
            out[1, 1, row, :, at:at + seq] = split_heads(v, heads)[row]
        last = np.array(past)[:, None, None] + np.array(length)[:, None, None] - 1
        visible = np.arange(context)[None, None] <= last
        mask = None
        if masked:
            mask = np.ones((b, context), np.int32)
            mask[0, 0:3] = 0
            visible &= mask[:, None] != 0
        last = q[np.arange(b), np.array(length) - 1][:, None]
        y = attention(last, out[1, 0, :b], out[1, 1, :b], heads, 0.5, visible)[:, 0]
        add("append_attention",
            f"last past {past} length {length} seq {seq} mask {masked} half {half}",
            [kv, qkv, np.array(past, np.int32), mask, np.array(length, np.int32)],
            [out, y.astype(qkv.dtype)],
            {"layer": 1, "num_heads": heads, "scale": 0.5}, tol=1e-3 if half else 1e-5)


def masked_softmaxes():
    """Masks of every kind alone and together, every axis of the bias broadcast or not, rows that
    see nothing, special values."""
    b, h, d = 2, 3, np.float64

    def case(name, x, scale=0.3, causal=False, mask=None, bias=None, tol=1e-6):
        queries, keys = x.shape[2:]
        visible = np.ones(x.shape, bool)
        if causal:
            visible &= np.arange(keys) <= keys - queries + np.arange(queries)[:, None]
        if mask is not None:
            visible &= mask[:, None, None] != 0
        with np.errstate(invalid="ignore"):
            s = np.where(visible, scale * x.astype(d) + (0 if bias is None else bias.astype(d)),
                         -inf)
            top = np.fmax.reduce(s, -1, keepdims=True, initial=-1e300)
            p = np.exp(s - top)
            total = p.sum(-1, keepdims=True)
            y = np.where(p == 0, 0, p / np.where(total == 0, 1, total))
        inputs = [x, mask, bias]
        while inputs[-1] is None:
            inputs.pop()
        add("masked_softmax", name, inputs, [y.astype(x.dtype)], {"scale": scale, "causal": causal},
            tol=tol)

    for queries, keys in ((5, 5), (3, 7), (1, 9), (8, 16), (7, 3), (0, 4)):
        for causal in (False, True):
            for masked in (False, True):
                x = f(b, h, queries, keys, scale=3)
                mask = (rng.random((b, keys)) < 0.6).astype(np.int64) if masked else None
                case(f"{queries}x{keys} causal {causal} mask {masked}", x, causal=causal, mask=mask)
    for shape in ((b, h, 4, 6), (1, h, 4, 6), (b, 1, 1, 6), (1, 1, 4, 1), (1, 1, 4, 6)):
        bias = f(*shape)
        if shape[2] > 1 and shape[3] > 1:
            bias[..., 0, 2:] = -inf
            bias[..., 1, :] = -inf
        case(f"bias {list(shape)}", f(b, h, 4, 6), causal=shape[0] == 1, bias=bias)
    x = f(b, h, 4, 6, scale=3)
    case("bool mask", x, mask=np.array([[1, 1, 1, 0, 0, 1], [0, 1, 1, 1, 1, 1]], bool))
    case("i32 mask, nothing visible", x, causal=True, mask=np.array([[0] * 6, [0, 0, 0, 7, -1, 0]],
                                                                    np.int32))
    case("half", (3 * x).astype(np.float16), causal=True, bias=f(b, 1, 1, 6).astype(np.float16),
         tol=1e-3)
    x = np.array([[[[1e30, 0, -1e30], [-inf, -inf, 2], [-inf, -inf, -inf], [-3e38, -3e38, -3e38],
                    [nan, 1, 2], [nan, nan, nan]]]], np.float32)
    case("special values", x, scale=1.0)
