#!/usr/bin/env python3
"""Writes the models in broken/: a GPT-2 of one layer, and the same with one thing off, which a pass
has to remark.

Each folder has the model and one set of test data computed by ONNX Runtime. Needs numpy, onnx and
onnxruntime; equal versions give equal files. tests/lit/passes/remarks.test says what is remarked
about each.
"""
import pathlib
import shutil

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

VOCAB, WIDTH, HEADS, CONTEXT = 17, 8, 2, 12
HEAD_DIM = WIDTH // HEADS


class Graph:
    def __init__(self, seed=1):
        self.nodes, self.weights, self.outputs = [], {}, []
        self.random = np.random.default_rng(seed)

    def const(self, value, dtype=np.float32):
        array = np.asarray(value, dtype=dtype)
        name = f"c{len(self.weights)}"
        self.weights[name] = array
        return name

    def weight(self, *shape, scale=0.4):
        return self.const(self.random.normal(0, scale, shape))

    def op(self, kind, *inputs, name, outputs=1, **attrs):
        results = [f"{name}_out{i}" if outputs > 1 else f"{name}_out" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), results, name=name, **attrs))
        return results if outputs > 1 else results[0]

    def output(self, value, name, rank):
        self.nodes.append(helper.make_node("Identity", [value], [name], name=f"/{name}"))
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * rank))


def norm(g, x, name, broken):
    mean_axes = [1] if broken == "norm-axis" else [-1]
    mean = g.op("ReduceMean", x, name=f"{name}/mean", axes=mean_axes)
    centred = g.op("Sub", x, mean, name=f"{name}/sub")
    square = g.op("Pow", centred, g.const(2.0), name=f"{name}/pow")
    variance = g.op("ReduceMean", square, name=f"{name}/variance", axes=mean_axes)
    if broken == "norm-unbiased":
        variance = g.op("Mul", variance, g.const(WIDTH / (WIDTH - 1)), name=f"{name}/bessel")
    epsilon = g.const(1e-3 if broken == "epsilon-outside" else 1e-5)
    if broken == "epsilon-outside":
        root = g.op("Sqrt", variance, name=f"{name}/sqrt")
        root = g.op("Add", root, epsilon, name=f"{name}/epsilon")
    else:
        shifted = g.op("Add", variance, epsilon, name=f"{name}/epsilon")
        root = g.op("Sqrt", shifted, name=f"{name}/sqrt")
    scaled = g.op("Mul", g.op("Div", centred, root, name=f"{name}/div"), g.weight(WIDTH, scale=1),
                  name=f"{name}/gain")
    return g.op("Add", scaled, g.weight(WIDTH), name=f"{name}/bias")


def linear(g, x, inputs, outputs, name):
    y = g.op("MatMul", x, g.weight(inputs, outputs), name=f"{name}/MatMul")
    return g.op("Add", y, g.weight(outputs), name=f"{name}/Add")


def heads(g, x, name, perm):
    split = g.op("Reshape", x, g.const([0, 0, HEADS, HEAD_DIM], np.int64), name=f"{name}/split")
    return g.op("Transpose", split, name=f"{name}/transpose", perm=perm)


def attention(g, x, broken):
    qkv = linear(g, x, WIDTH, 3 * WIDTH, "/attn/qkv")
    q, k, v = g.op("Split", qkv, g.const([WIDTH] * 3, np.int64), name="/attn/Split", outputs=3,
                   axis=2)
    q, k = heads(g, q, "/attn/q", [0, 2, 1, 3]), heads(g, k, "/attn/k", [0, 2, 3, 1])
    v = heads(g, v, "/attn/v", [0, 2, 1, 3])
    if broken == "scaled-values":
        v = g.op("Mul", v, g.const(2.0), name="/attn/scale_v")
    if broken == "rectified-queries":
        q = g.op("Relu", q, name="/attn/relu_q")
    scores = g.op("MatMul", q, k, name="/attn/scores")
    scale = 0.3 if broken == "wrong-scale" else HEAD_DIM**-0.5
    if broken == "scale-per-head":
        scores = g.op("Mul", scores, g.const(np.array([0.5, 0.25]).reshape(1, HEADS, 1, 1)),
                      name="/attn/scale")
    else:
        scores = g.op("Mul", scores, g.const(scale), name="/attn/scale")
    if broken == "cast-between":
        whole = g.op("Cast", scores, name="/attn/whole", to=TensorProto.INT32)
        scores = g.op("Cast", whole, name="/attn/back", to=TensorProto.FLOAT)
    if broken == "scores-returned":
        g.output(scores, "scores", 4)
    if broken != "mask-none":
        length = g.op("Slice", g.op("Shape", scores, name="/attn/shape"), g.const([3], np.int64),
                      g.const([4], np.int64), name="/attn/length")
        triangle = np.tril(np.ones((1, 1, CONTEXT, CONTEXT), bool))
        if broken == "mask-holes":
            triangle[..., ::3] = False
            triangle |= np.eye(CONTEXT, dtype=bool)
        zeros, ends = g.const([0, 0], np.int64), g.op("Concat", length, length, name="/attn/ends",
                                                      axis=0)
        mask = g.op("Slice", g.const(triangle, bool), zeros, ends, g.const([2, 3], np.int64),
                    name="/attn/mask")
        scores = g.op("Where", mask, scores, g.const(-1e4), name="/attn/Where")
    axis = 2 if broken == "softmax-axis" else 3
    probabilities = g.op("Softmax", scores, name="/attn/Softmax", axis=axis)
    if broken == "probabilities-returned":
        g.output(probabilities, "attentions", 4)
    y = g.op("MatMul", probabilities, v, name="/attn/values")
    merged = g.op("Transpose", y, name="/attn/merge", perm=[0, 2, 1, 3])
    merged = g.op("Reshape", merged, g.const([0, 0, WIDTH], np.int64), name="/attn/join")
    return linear(g, merged, WIDTH, WIDTH, "/attn/proj")


def mlp(g, x, broken):
    h = linear(g, x, WIDTH, 4 * WIDTH, "/mlp/fc")
    cube = g.op("Mul", g.op("Pow", h, g.const(3.0), name="/mlp/cube"),
                g.const(0.05 if broken == "gelu-constant" else 0.044715), name="/mlp/third")
    inner = g.op("Mul", g.op("Add", h, cube, name="/mlp/sum"), g.const((2 / np.pi) ** 0.5),
                 name="/mlp/inner")
    outer = g.op("Add", g.op("Tanh", inner, name="/mlp/Tanh"), g.const(1.0), name="/mlp/one")
    y = g.op("Mul", g.op("Mul", h, g.const(0.5), name="/mlp/half"), outer, name="/mlp/gelu")
    y = linear(g, y, 4 * WIDTH, WIDTH, "/mlp/proj")
    if broken == "product-used-twice":
        y = g.op("Add", y, linear(g, h, 4 * WIDTH, WIDTH, "/mlp/shortcut"), name="/mlp/both")
    return y


def model(broken):
    g = Graph()
    table = g.weight(VOCAB, WIDTH, scale=1)
    tokens = g.op("Gather", table, "input_ids", name="/wte")
    length = g.op("Gather", g.op("Shape", "input_ids", name="/shape"), g.const(1, np.int64),
                  name="/length")
    positions = g.op("Range", g.const(0, np.int64), length, g.const(1, np.int64), name="/range")
    if broken == "positions-reversed":
        last = g.op("Sub", length, g.const(1, np.int64), name="/last")
        positions = g.op("Sub", last, positions, name="/reversed")
    x = g.op("Add", tokens, g.op("Gather", g.weight(CONTEXT, WIDTH), positions, name="/wpe"),
             name="/embed")
    x = g.op("Add", x, attention(g, norm(g, x, "/ln_1", broken), broken), name="/residual_1")
    if broken == "tokens-mixed":
        x = g.op("Add", x, g.op("CumSum", x, g.const(1, np.int64), name="/sum_of_tokens"),
                 name="/mixed")
    x = g.op("Add", x, mlp(g, norm(g, x, "/ln_2", None), broken), name="/residual_2")
    logits = g.op("MatMul", norm(g, x, "/ln_f", None), g.op("Transpose", table, name="/head/t",
                                                            perm=[1, 0]),
                  name="/head")
    g.output(logits, "logits", 3)
    g.outputs.reverse()
    graph = helper.make_graph(
        g.nodes, "broken", [helper.make_tensor_value_info("input_ids", TensorProto.INT64,
                                                          ["batch", "seq"])], g.outputs,
        [numpy_helper.from_array(a, n) for n, a in g.weights.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(made, full_check=True)
    return made


def write(folder, made):
    shutil.rmtree(folder, ignore_errors=True)
    data = folder / "test_data_set_0"
    data.mkdir(parents=True)
    (folder / "model.onnx").write_bytes(made.SerializeToString())
    ids = np.random.default_rng(3).integers(0, VOCAB, (2, 7)).astype(np.int64)
    session = onnxruntime.InferenceSession(made.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    tensors = [("input_0", "input_ids", ids)]
    tensors += [(f"output_{i}", n, v) for i, (n, v) in enumerate(zip(names,
                                                                     session.run(names,
                                                                         {"input_ids": ids})))]
    for file, name, value in tensors:
        (data / f"{file}.pb").write_bytes(numpy_helper.from_array(value, name).SerializeToString())


NAMES = """
sound epsilon-outside norm-axis norm-unbiased gelu-constant product-used-twice mask-none
mask-holes softmax-axis wrong-scale scale-per-head scaled-values rectified-queries cast-between
scores-returned probabilities-returned positions-reversed tokens-mixed
""".split()

if __name__ == "__main__":
    for name in NAMES:
        write(pathlib.Path(__file__).parent / "broken" / name,
              model(None if name == "sound" else name))
