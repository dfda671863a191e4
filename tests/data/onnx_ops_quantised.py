"""Cases of make_onnx_ops.py whose weights have few bits and stay so."""
import numpy as np
from onnx import TensorProto, helper

from onnx_ops_common import CASES, F, I64, MS, RNG, case, model, rand, write


def blocked(name, kind, k, n, block, axis, zeros):
    """Weights in blocks along an axis, dequantised for a product."""
    def build():
        least, most = {TensorProto.INT4: (-8, 8), TensorProto.UINT4: (0, 16),
                       TensorProto.INT8: (-128, 128)}[kind]
        shape = [k, n]
        shape[axis] = -(-shape[axis] // block)
        values = RNG.integers(least, most, k * n)
        scales, x = rand(*shape) * F(0.1), rand(2, k)
        names = ["w", "s"] + (["z"] if zeros else [])
        nodes = [helper.make_node("DequantizeLinear", names, ["d"], name="node", axis=axis,
                                  block_size=block),
                 helper.make_node("MatMul", ["x", "d"], ["y"], name="product")]
        m = model(nodes, {"x": x}, ["d", "y"], 21, {"s": scales})
        m.graph.initializer.append(helper.make_tensor("w", kind, [k, n], values))
        if zeros:
            m.graph.initializer.append(
                helper.make_tensor("z", kind, shape, RNG.integers(least, most, scales.size)))
        m.ir_version = 10
        write(name, m, {"x": x})

    CASES[name] = build


blocked("dequantize_int4", TensorProto.INT4, 32, 5, 16, 0, False)
blocked("dequantize_uint4", TensorProto.UINT4, 7, 32, 16, 1, True)
blocked("dequantize_int8_blocked", TensorProto.INT8, 48, 3, 16, 0, True)


def identity(name, bits, block, zeros, k=32, n=6):
    """Products with the rows of an identity are the weights themselves."""
    blocks = -(-k // block)
    inputs = [np.eye(k, dtype=F),
              RNG.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8),
              rand(n * blocks)]
    if zeros == "packed":
        inputs.append(RNG.integers(0, 256, n * -(-blocks * bits // 8)).astype(np.uint8))
    elif zeros:
        inputs.append(RNG.integers(1, 15, n * blocks).astype(F) + F(zeros))
    case("matmul_nbits_identity_" + name, "MatMulNBits", inputs, 17, domain=MS,
         constants=tuple(range(1, len(inputs))), K=k, N=n, bits=bits, block_size=block)


identity("4", 4, 32, None)
identity("4_zeros", 4, 16, "packed")
identity("4_padded", 4, 32, "packed", k=48)
identity("4_odd", 4, 16, None, k=36)
identity("2", 2, 16, "packed")
identity("8", 8, 16, "packed")
identity("4_whole_zeros", 4, 16, 1e-30)  # floats that are integers
identity("4_float_zeros", 4, 16, 0.3)


def table(name, kind, zeros, bits=4, axis=1, rows=5, block=16):
    """Rows of a table of few bits; `kind` uint8 has two to a byte."""
    def build():
        packed = kind == TensorProto.UINT8
        shape, scales = [rows, 32], [rows, 32]
        scales[axis] //= block
        of_bytes = lambda s: [s[0], s[1] * bits // 8] if packed else s
        least, most = (0, 256) if packed else (-8, 8) if kind == TensorProto.INT4 else (0, 16)
        draw = lambda s: RNG.integers(least, most, int(np.prod(of_bytes(s))))
        ids = np.array([[0, 2], [rows - 1, 1]], I64)
        node = helper.make_node("GatherBlockQuantized", ["w", "x", "s"] + ["z"] * zeros, ["y"],
                                name="node", domain=MS, block_size=block, gather_axis=0,
                                quantize_axis=axis, bits=bits)
        m = model([node], {"x": ids}, ["y"], 21, {"s": rand(*scales)})
        m.graph.initializer.append(helper.make_tensor("w", kind, of_bytes(shape), draw(shape)))
        if zeros:
            m.graph.initializer.append(
                helper.make_tensor("z", kind, of_bytes(scales), draw(scales)))
        m.ir_version = 10
        write(name, m, {"x": ids})

    CASES[name] = build


table("gather_block_int4", TensorProto.INT4, False)
table("gather_block_int4_rows", TensorProto.INT4, True, axis=0, rows=32)
table("gather_block_uint4", TensorProto.UINT4, True)
table("gather_block_uint8", TensorProto.UINT8, False)
table("gather_block_uint8_zeros", TensorProto.UINT8, True)
table("gather_block_uint8_bytes", TensorProto.UINT8, True, bits=8)


def fp8(name, scales, axis=None):
    """Weights in float8e4m3fn, all numbers but the NaN among them."""
    def build():
        bits = np.array([i for i in range(256) if i & 127 != 127], np.uint8)
        x = np.eye(2, dtype=F)
        given = {} if axis is None else {"axis": axis}
        nodes = [helper.make_node("DequantizeLinear", ["w", "s"], ["d"], name="node", **given),
                 helper.make_node("MatMul", ["x", "d"], ["y"], name="product")]
        m = model(nodes, {"x": x}, ["d", "y"], 19, {"s": scales})
        m.graph.initializer.append(
            helper.make_tensor("w", TensorProto.FLOAT8E4M3FN, [2, 127], bits.tobytes(), raw=True))
        m.ir_version = 9
        write(name, m, {"x": x})

    CASES[name] = build


fp8("dequantize_fp8", np.array(0.3, F))
fp8("dequantize_fp8_channels", np.abs(rand(127)) + F(0.01), 1)
