"""Cases of int8."""
import numpy as np

from fused_cases import ACTIVATIONS, attention, split_heads
from reference import Const, add, check, f, inf, ints, nan


def quantise(x, group=0, scale=None):
    """(q, s) of rows, as ir/ops/Quantize.h states it; in single precision throughout."""
    x = np.asarray(x, np.float32)
    rows = x.reshape(-1, group or x.shape[-1] or 1)
    if scale is None:
        top = np.abs(rows).max(-1) if rows.size else np.zeros(len(rows), np.float32)
        scale = np.where(top < np.float32(2.0**-100), np.float32(1),
                         top / np.float32(127)).astype(np.float32)
        out = scale.reshape(x.shape[:-1] + (x.shape[-1] // (group or x.shape[-1] or 1),))
    else:
        out = scale = np.float32(scale)
    inverse = np.broadcast_to(1 / scale, (len(rows),))[:, None].astype(np.float32)
    q = np.clip(np.rint(rows * inverse), -127, 127)
    return q.astype(np.int8).reshape(x.shape), out


def dequantise(q, s):
    s = np.asarray(s, np.float64)
    return q.astype(np.float64) * (np.repeat(s, q.shape[-1] // s.shape[-1], -1) if s.ndim else s)


def single(x):
    return np.asarray(x).astype(np.float32)


def int8():
    ties = np.array([[127, 0.5, 1.5, -0.5, -1.5, 2.5, -127, 0], [0, 0, 0, -0.0, 0, 0, 0, 0]],
                    np.float32)
    tiny = np.array([[2.0**-101, -(2.0**-140), 0, 1e-45], [2.0**-100, 2.0**-101, 0, -(2.0**-100)]],
                    np.float32)
    for name, x, group in (("3d", f(2, 3, 8), 0), ("groups", f(2, 3, 8), 4),
                           ("groups of one", f(3, 4), 1), ("ties", ties, 0),
                           ("vanishing", tiny, 0), ("vector", f(6, scale=1e30), 3),
                           ("no rows", f(0, 4), 2), ("long", f(2, 100), 50)):
        add("quantize", name, [x], list(quantise(x, group)), {"group": group}, tol=1e-7)
    half = f(3, 8).astype(np.float16)
    add("quantize", "half", [half], list(quantise(half)), tol=1e-7)
    x = f(3, 4, scale=3)
    for scale in (0.02, 0.5, 127.0):
        add("quantize", f"scale {scale}", [x, np.float32(scale)], list(quantise(x, scale=scale)),
            tol=0)

    q, s = quantise(f(3, 8), 4)
    add("dequantize", "groups", [q, s], [single(dequantise(q, s))])
    add("dequantize", "half", [q, s], [dequantise(q, s).astype(np.float16)], {"dtype": "dtype:f16"},
        tol=1e-3)
    add("dequantize", "one scale", [q, np.float32(0.3)], [single(dequantise(q, np.float32(0.3)))])
    add("dequantize", "no rows", [q[:0], s[:0]], [single(q[:0])])

    def product(x, w, c, act=ACTIVATIONS["none"]):
        """x and w dequantised; as exact as doubles are"""
        return act(x @ w.T + (0 if c is None else c.astype(np.float64)))

    forms = {  # how x is given: operands x, x_scale; attributes; its value
        "weights": lambda x: (x, None, {}, x.astype(np.float64)),
        "rows": lambda x: (x, None, {"x_group": 0}, dequantise(*quantise(x))),
        "groups": lambda x: (x, None, {"x_group": 4}, dequantise(*quantise(x, 4))),
        "scale": lambda x: (x, np.float32(0.02), {}, dequantise(*quantise(x, scale=0.02))),
        "i8 rows": lambda x: (*quantise(x), {"dtype": "dtype:f32"}, dequantise(*quantise(x))),
        "i8 groups": lambda x: (*quantise(x, 8), {"dtype": "dtype:f32"},
                                dequantise(*quantise(x, 8))),
        "i8 scale": lambda x: (*quantise(x, scale=0.02), {"dtype": "dtype:f32"},
                               dequantise(*quantise(x, scale=0.02))),
    }

    def cut(inputs):
        while inputs[-1] is None:
            inputs.pop()
        return inputs

    for name, form in forms.items():
        for m, n, k, wgroup in ((1, 5, 16, 0), (2, 33, 16, 8), (7, 5, 16, 4), (0, 3, 8, 0)):
            x, wq, c, r = f(m, k), quantise(f(n, k), wgroup), f(n), f(m, n)
            given, scale, attrs, value = form(x)
            y = product(value, dequantise(*wq), c, ACTIVATIONS["gelu_tanh"]) + r
            add("quantized_linear", f"{name} {m}x{k}x{n} weight groups {wgroup}",
                [given, *wq, scale, c, r], [single(y)],
                attrs | {"activation": "gelu_tanh"}, tol=2e-5)
            if m:
                y = product(value, dequantise(*wq), c)
                qs = quantise(y)
                add("requantized_linear", f"{name} {m}x{k}x{n} weight groups {wgroup}",
                    cut([given, *wq, scale, c]), list(qs),
                    {a: v for a, v in attrs.items() if a != "dtype"}, tol=2e-5)
    x, wq = f(2, 3, 16), quantise(f(5, 16))
    y = product(x.astype(np.float64), dequantise(*wq), None)
    add("quantized_linear", "3d", [x, *wq], [single(y)], tol=2e-5)
    half = x.astype(np.float16)
    y = product(dequantise(*quantise(half)), dequantise(*wq), None)
    add("quantized_linear", "half", [half, *wq], [y.astype(np.float16)], {"x_group": 0}, tol=1e-3)
    add("quantized_linear", "half to f32", [half, *wq], [single(y)],
        {"x_group": 0, "dtype": "dtype:f32"}, tol=2e-5)
    # Every product is 127 * 127: the sum of 1041 of them does not fit a float's 24 bits.
    ones = np.full((5, 1041), 127, np.int8)
    ones[:, -1] = [127, 126, 125, -127, 0]
    s = np.ones((5, 1), np.float32)
    add("quantized_linear", "exact sums", [ones, ones[:3], s[:3], s],
        [single(ones.astype(np.int64) @ ones[:3].T.astype(np.int64))], {"dtype": "dtype:f32"},
        tol=0, native_only=True)
    add("quantized_linear", "exact sums, few rows", [ones[:1], ones, s, s[:1]],
        [single(ones[:1].astype(np.int64) @ ones.T.astype(np.int64))], {"dtype": "dtype:f32"},
        tol=0, native_only=True)
    x, wq, c = f(4, 16), quantise(f(8, 16)), f(8)
    y = product(dequantise(*quantise(x)), dequantise(*wq), c, ACTIVATIONS["gelu_tanh"])
    add("requantized_linear", "groups", [*quantise(x)[:1], *wq, quantise(x)[1], c],
        list(quantise(y, 4)),
        {"activation": "gelu_tanh", "y_group": 4}, tol=2e-5)
    add("requantized_linear", "scale", [*quantise(x)[:1], *wq, quantise(x)[1], c, np.float32(0.1)],
        list(quantise(y, scale=0.1)),
        {"activation": "gelu_tanh"}, tol=2e-5)

    for name, x in (("3d", f(2, 3, 8)), ("half", f(3, 8).astype(np.float16)),
                    ("wide", f(2, 64, scale=5))):
        g, b = (v.astype(x.dtype) for v in (f(x.shape[-1]), f(x.shape[-1])))
        wide = x.astype(np.float64)
        y = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True)
                                                            + 1e-5) * g + b
        add("quantized_layer_norm", name, [x, g, b], list(quantise(y)), tol=1e-5)
        add("quantized_layer_norm", name + " groups", [x, g, b], list(quantise(y, 4)), {"group": 4},
            tol=1e-5)
        add("quantized_layer_norm", name + " scale", [x, g, b, np.float32(0.05)],
            list(quantise(y, scale=0.05)), tol=1e-5)

    layers, slots, heads, context, d = 2, 4, 2, 6, 4
    for layer, past, seq, masked in ((0, [0, 0], 3, False), (1, [5, 2], 1, False),
                                     (1, [1, 3, 0, 2], 3, False), (1, [2, 3], 2, True)):
        b = len(past)
        qkv = f(b, seq, 3 * heads * d)
        q, k, v = np.split(qkv, 3, axis=-1)
        inputs = [np.array(past, np.int32)]
        last = np.array(past)[:, None, None] + np.arange(seq)[None, :, None]
        visible = np.arange(context)[None, None] <= last
        if masked:
            mask = np.ones((b, 5), np.int32)
            mask[0, 0:2] = 0
            inputs.append(mask)
            visible[:, :, :5] &= mask[:, None] != 0
        attrs = {"layer": layer, "num_heads": heads, "scale": 0.5}
        title = f"layer {layer} past {past} seq {seq} mask {masked}"
        old = quantise(f(layers, 2, slots, heads, context, d))
        new = [x.copy() for x in old]
        kv = f(layers, 2, slots, heads, context, d)
        out = kv.copy()
        for row, at in enumerate(past):
            for part, rows in enumerate((k, v)):
                rows = split_heads(rows, heads)[row]
                out[layer, part, row, :, at:at + seq] = rows
                place = (layer, part, row, slice(None), slice(at, at + seq))
                new[0][place], new[1][place] = quantise(rows)

        def packed(state):
            rows, scales = (x.reshape(layers, 2, slots, heads, -1) for x in state)
            return np.concatenate([rows, scales.copy().view(np.int8)], -1).reshape(layers, 2, slots,
                heads, context, d + 4)

        values = dequantise(*new)
        y = attention(q, values[layer, 0, :b], values[layer, 1, :b], heads, 0.5, visible)
        add("append_attention", "int8 " + title, [packed(old), qkv] + inputs,
            [packed(new), single(y)], attrs, tol=1e-5)
        add("quantized_append_attention", "int8 " + title, [packed(old), qkv] + inputs,
            [packed(new), *quantise(y, d)],
            attrs | {"group": d}, tol=1e-5)
        y = attention(q, out[layer, 0, :b], out[layer, 1, :b], heads, 0.5, visible)
        add("quantized_append_attention", title, [kv, qkv] + inputs, [out, *quantise(y, d)],
            attrs | {"group": d}, tol=1e-5)
        if not masked:
            add("quantized_append_attention", title + " scale",
                [kv, qkv] + inputs + [None, np.float32(0.01)],
                [out, *quantise(y, scale=0.01)], attrs, tol=1e-5)


def int8_tables():
    ids, past, ids2 = ints(2, 3, low=0, high=9, dtype=np.int32), np.array([2, 0], np.int32), ints(2,
        3, low=0, high=6, dtype=np.int32)
    for groups in (1, 2):
        q, scales = ints(9, 4, low=-127, high=128, dtype=np.int8), np.abs(f(9, groups,
            scale=0.02)) + np.float32(0.001)
        rows = (q.astype(np.float64).reshape(9, groups, -1) * scales[:, :, None]).reshape(9, 4)
        add("embed", f"int8, {groups} scales a row", [ids, q, None, None, None, scales],
            [rows[ids].astype(np.float32)], {"dtype": "dtype:f32"})
        places = f(6, 4)
        add("embed", f"int8, {groups} scales a row, position ids",
            [ids, q, places, None, ids2, scales],
            [(rows[ids] + places[ids2]).astype(np.float32)], {"dtype": "dtype:f32"})
        places = places.astype(np.float16)
        add("embed", f"int8, {groups} scales a row, half", [ids, q, places, past, None, scales],
            [(rows[ids] + places[past[:, None] + np.arange(3)]).astype(np.float16)],
            {"dtype": "dtype:f16"}, tol=1e-3)


def affine():
    ties = np.array([[0.5, 1.5, -0.5, -2.5, 1000, -1000], [63.25, -64, -0.0, 12.4, 3e38, -3e38]],
                    np.float32)
    for zero in (np.uint8(0), np.uint8(128), np.uint8(255), np.int8(-128), np.int8(0), np.int8(5)):
        for scale in (np.float32(1), np.float32(0.3)):
            name = f"{zero.dtype} {zero} {scale}"
            check("affine_quantize", "QuantizeLinear", name, [ties, scale, zero], tol=0)
            check("affine_quantize", "QuantizeLinear", name + " random",
                  [f(3, 7, scale=40), scale, zero], tol=0)
            q = ints(3, 7, low=np.iinfo(zero.dtype).min, high=np.iinfo(zero.dtype).max + 1,
                     dtype=zero.dtype)
            check("affine_dequantize", "DequantizeLinear", name, [q, scale, zero])
    x, scales, zeros = f(2, 3, 5, scale=9), np.array([0.5, 0.25, 2],
                                                     np.float32), np.array([0, 128, 255], np.uint8)
    check("affine_quantize", "QuantizeLinear", "axis", [x, scales[:, None], zeros[:, None]],
          onnx_inputs=[x, scales, zeros],
          onnx_attrs={"axis": 1}, tol=0)
    q = ints(2, 3, 5, low=0, high=256, dtype=np.uint8)
    check("affine_dequantize", "DequantizeLinear", "axis", [q, scales[:, None], zeros[:, None]],
          onnx_inputs=[q, scales, zeros],
          onnx_attrs={"axis": 1})
    bias = ints(7, low=-2**31, high=2**31, dtype=np.int32)
    check("affine_dequantize", "DequantizeLinear", "i32", [bias, np.float32(0.001), np.int32(0)])
    half, scale, zero = f(3, 8, scale=9).astype(np.float16), np.float32(0.125), np.int8(-3)
    check("affine_quantize", "QuantizeLinear", "half", [half, scale, zero], tol=0)
    q = ints(3, 8, low=-128, high=128, dtype=np.int8)
    add("affine_dequantize", "half", [q, scale, zero], [((q.astype(np.int32) + 3)
                                                         * scale).astype(np.float16)],
        {"dtype": "dtype:f16"}, tol=1e-3)
    add("affine_quantize", "special", [np.array([nan, inf, -inf], np.float32), scale, zero],
        [np.array([-128, 127, -128], np.int8)],
        tol=0)
    add("affine_quantize", "no rows", [half[:0], scale, zero], [q[:0]], tol=0)

    # A zero point z of x adds -z times the sum of a row of w to its products; -128 is a value like
    # others.
    for m, n, k, low in ((1, 5, 16, -128), (7, 33, 48, -128), (3, 4, 1056, 127)):
        x, w, z = (ints(*s, low=low, high=128, dtype=np.int8) for s in ((m, k), (n, k), ()))
        s, sw, c, r = np.float32(0.02), (f(n, 1)**2 + 1).astype(np.float32), f(n), f(m, n)
        sums = (-int(z) * w.astype(np.int64).sum(1)).astype(np.int32)
        y = ((x.astype(np.int64) - int(z)) @ w.T.astype(np.int64)) * (s.astype(np.float64)
                                                                      * sw[:, 0])
        add("quantized_linear", f"zero point {m}x{k}x{n}", [x, w, sw, s, c, r, sums],
            [single(np.maximum(y + c, 0) + r)], {"activation": "relu", "dtype": "dtype:f32"},
            tol=1e-6)
        add("quantized_linear", f"zero point {m}x{k}x{n} half", [x, w, sw, s, None, None, sums],
            [y.astype(np.float16)],
            {"dtype": "dtype:f16"}, tol=1e-3)


def given_scales():
    """Results quantised by a scale and a zero point that are constants."""
    def quantised(y, scale, zero):
        if zero is None:
            return quantise(y, scale=scale)[0]
        return np.clip(np.rint(np.asarray(y, np.float32) / scale) + np.float32(zero), -128,
                       127).astype(np.int8)

    def operands(scale, zero):
        return [Const(scale), None if zero is None else Const(zero)]

    for scale, zero in ((np.float32(0.03), None), (np.float32(0.05), np.int8(-100)),
                        (np.float32(0.02), np.int8(0))):
        name = f"scale {scale}" + ("" if zero is None else f" zero point {zero}")
        for m, n, k, act in ((1, 5, 16, "none"), (7, 33, 48, "gelu_erf"),
                             (3, 8, 1056, "gelu_tanh")):
            x, w, z = (ints(*s, low=-128, high=128, dtype=np.int8) for s in ((m, k), (n, k), ()))
            s, sw, c = np.float32(0.0005), (f(n, 1)**2 + 1).astype(np.float32), f(n)
            sums = (-int(z) * w.astype(np.int64).sum(1)).astype(np.int32)
            y = ACTIVATIONS[act](((x.astype(np.int64) - int(z)) @ w.T.astype(np.int64))
                                 * (s.astype(np.float64) * sw[:, 0]) + c)
            add("requantized_linear", f"{name} {m}x{k}x{n} {act}",
                [x, w, sw, s, c, *operands(scale, zero), sums],
                [quantised(y, scale, zero), scale], {"activation": act}, tol=2e-5)
        x, g, b = f(3, 20), f(20), f(20)
        wide = x.astype(np.float64)
        y = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True)
                                                            + 1e-5) * g + b
        add("quantized_layer_norm", name, [x, g, b, *operands(scale, zero)],
            [quantised(y, scale, zero), scale], tol=1e-5)

        layers, slots, heads, context, d, batch, seq = 2, 4, 2, 6, 4, 2, 3
        past, kv, qkv = np.array([1, 2], np.int32), f(layers, 2, slots, heads, context, d), f(batch,
            seq, 3 * heads * d)
        q, k, v = np.split(qkv, 3, axis=-1)
        out = kv.copy()
        for row, at in enumerate(past):
            for part, rows in enumerate((k, v)):
                out[1, part, row, :, at:at + seq] = split_heads(rows, heads)[row]
        last = past[:, None, None] + np.arange(seq)[None, :, None]
        visible = np.arange(context)[None, None] <= last
        y = attention(q, out[1, 0, :batch], out[1, 1, :batch], heads, 0.5, visible)
        attrs = {"layer": 1, "num_heads": heads, "scale": 0.5}
        length = np.array([3, 1], np.int32)
        add("quantized_append_attention", name, [kv, qkv, past, None, *operands(scale, zero)],
            [out, quantised(y, scale, zero), scale],
            attrs, tol=1e-5)
        add("quantized_append_attention", name + " last queries",
            [kv, qkv, past, None, *operands(scale, zero), length],
            [out, quantised(y[np.arange(batch), length - 1], scale, zero), scale], attrs, tol=1e-5)
