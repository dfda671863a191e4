"""Cases of weights and tables in 8-bit floats (E4M3), from ml_dtypes and numpy in double
precision. Every one of the 256 but the two NaN is among them."""
import ml_dtypes
import numpy as np

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
