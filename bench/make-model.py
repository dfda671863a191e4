#!/usr/bin/env python3
"""Writes a GPT-2 of any size with random weights as ONNX, for benchmarks and large-model tests.

Needs numpy and onnx from PyPI. The layout is that of older transformers exports: Conv1D as MatMul
and Add, a mask of -1e4, tanh GELU spelled out, the head tied to the token table.

    make-model.py OUT.onnx [--size=gpt2|gpt2-medium|gpt2-large|gpt2-xl] [--layers=N --heads=N
        --width=N --vocab=N --context=N] [--seed=N]
    make-model.py OUT.onnx --widen=MODEL.onnx [--copies=N --vocab=N] [--seed=N]

The second form takes the weights of a small trained GPT-2, an export of transformers, and computes
the same in a larger shape: see Widened.
"""
import argparse
import contextlib
import pathlib

import numpy as np
import onnx
from onnx import StringStringEntryProto, TensorProto, helper, numpy_helper

SIZES = {"gpt2": (12, 12, 768), "gpt2-medium": (24, 16, 1024), "gpt2-large": (36, 20, 1280),
         "gpt2-xl": (48, 25, 1600)}

POOL = (1 << 24) + 43  # no multiple of a row

HEAD = 64  # elements of a head of a model to be widened


class Widened:
    """Weights of a model with `copies` of each feature, head and hidden unit of another, in any
    order, that computes the same.

    What reads a feature reads all of its copies, each with a share of its weight that is a power of
    two, so that weights stay exact. Token t becomes token `stride` t; the tokens between have half
    of the logit of one of the others, or less.
    """

    def __init__(self, path, copies, vocab, rng):
        self.old = {}
        for i in onnx.load(path).graph.initializer:
            name = i.name.split("transformer.")[-1].removeprefix("m.")
            self.old[name] = numpy_helper.to_array(i).astype(np.float32)
        table = self.old.get("wte.weight", self.old.get("lm_head.weight"))
        self.layers = 1 + max(int(name.split(".")[1]) for name in self.old if name.startswith("h."))
        self.context, width = self.old["wpe.weight"].shape
        self.heads, self.width, self.vocab = copies * width // HEAD, copies * width, vocab
        self.stride = vocab // len(table)
        self.rng, self.copies = rng, copies
        self.shares = np.array([2.0 ** -min(1 + i, copies - 1) for i in range(copies)], np.float32)

        def spread(count):  # sources of the copies, and which copy each is
            order = rng.permutation(copies * count)
            return order % count, order // count

        features, heads, hidden = spread(width), spread(width // HEAD), spread(4 * width)
        by_head = (heads[0][:, None] * HEAD + np.arange(HEAD)).ravel(), np.repeat(heads[1], HEAD)
        qkv = np.concatenate([by_head[0] + part * width for part in range(3)])
        self.spread = {"c_attn": (features, qkv), "attn.c_proj": (by_head, features[0]),
                       "c_fc": (features, hidden[0]), "mlp.c_proj": (hidden, features[0])}
        self.features = features[0]
        self.tokens = table[rng.integers(len(table), size=vocab)] / 2
        self.tokens[:self.stride * len(table):self.stride] = table

    def __call__(self, name):
        if name == "wte.weight":
            return self.tokens[:, self.features]
        w = self.old[name]
        if name.startswith("ln_f"):  # what reads it is the table, which has no shares
            return w[self.features] / np.float32(self.copies)
        for part, ((sources, copy), columns) in self.spread.items():
            if part in name and w.ndim == 2:
                turn = self.rng.integers(self.copies, size=len(columns))
                return w[sources][:, columns] * self.shares[(copy[:, None] + turn) % self.copies]
            if part in name:
                return w[columns]
        return w[..., self.features]


class Graph:
    def __init__(self, rng, external=None, given=None):
        """`external`: a file, open for writing, that takes the elements of weights. `given`:
        weights by name, else random."""
        self.nodes, self.initializers, self.rng, self.count, self.pool = [], [], rng, 0, None
        self.external, self.given = external, given

    def weight(self, name, shape, std):
        if self.given:
            return self.constant(name, self.given(name))
        # Every tensor is a part of one pool, from a place of its own: billions of numbers in
        # seconds.
        count, begin = int(np.prod(shape)), int(self.rng.integers(POOL))
        if self.pool is None:
            self.pool = self.rng.standard_normal(POOL, dtype=np.float32)
        pieces = [self.pool[begin:begin + count]]
        while (missing := count - sum(map(len, pieces))) > 0:
            pieces.append(self.pool[:missing])
        return self.constant(name, np.concatenate(pieces).reshape(shape) * np.float32(std))

    def constant(self, name, array):
        array = np.asarray(array, order="C")  # a number stays one
        if self.external and array.nbytes > 4096:
            tensor = TensorProto(name=name, dims=array.shape,
                                 data_type=helper.np_dtype_to_tensor_dtype(array.dtype),
                                 data_location=TensorProto.EXTERNAL)
            place = {"location": pathlib.Path(self.external.name).name,
                     "offset": self.external.tell(), "length": array.nbytes}
            tensor.external_data.extend(StringStringEntryProto(key=k, value=str(v))
                                        for k, v in place.items())
            array.tofile(self.external)
        else:
            tensor = numpy_helper.from_array(array, name)
        self.initializers.append(tensor)
        return name

    def op(self, kind, inputs, **attrs):
        self.count += 1
        out = f"{kind.lower()}_{self.count}"
        self.nodes.append(helper.make_node(kind, inputs, [out], name=f"/{out}", **attrs))
        return out

    def integers(self, values):
        self.count += 1
        return self.constant(f"ints_{self.count}", np.array(values, np.int64))

    def number(self, value):
        self.count += 1
        return self.constant(f"number_{self.count}", np.array(value, np.float32))


def norm(g, x, name, width):
    if g.given:
        gain = g.given(name + ".weight")
    else:
        gain = (1 + 0.1 * g.rng.standard_normal(width)).astype(np.float32)
    scale = g.constant(name + ".weight", gain)
    bias = g.weight(name + ".bias", width, 0.05)
    return g.op("LayerNormalization", [x, scale, bias], axis=-1, epsilon=1e-5)


def linear(g, x, name, k, n, std):
    y = g.op("MatMul", [x, g.weight(name + ".weight", (k, n), std)])
    return g.op("Add", [y, g.weight(name + ".bias", n, 0.05)])


def attention(g, x, name, heads, width, mask, std):
    qkv = g.op("Split", [linear(g, x, name + ".c_attn", width, 3 * width, std)], axis=2)
    node = g.nodes[-1]
    parts = [f"{qkv}_{p}" for p in "qkv"]
    del node.output[:]
    node.output.extend(parts)
    shape = g.integers([0, 0, heads, width // heads])
    q, k, v = (g.op("Transpose", [g.op("Reshape", [p, shape])], perm=perm)
               for p, perm in zip(parts, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])))
    scores = g.op("Div", [g.op("MatMul", [q, k]), g.number((width // heads) ** 0.5)])
    scores = g.op("Where", [mask, scores, g.number(-1e4)])
    y = g.op("Transpose", [g.op("MatMul", [g.op("Softmax", [scores], axis=-1), v])],
             perm=[0, 2, 1, 3])
    y = g.op("Reshape", [y, g.integers([0, 0, width])])
    return linear(g, y, name + ".c_proj", width, width, std)


def gelu(g, x):
    inner = g.op("Add", [x, g.op("Mul", [g.op("Pow", [x, g.number(3)]), g.number(0.044715)])])
    t = g.op("Tanh", [g.op("Mul", [inner, g.number(0.7978845608028654)])])
    return g.op("Mul", [g.op("Mul", [x, g.number(0.5)]), g.op("Add", [t, g.number(1)])])


def build(layers, heads, width, vocab, context, rng, external=None, given=None, std=0.04):
    g = Graph(rng, external, given)
    wte = g.weight("wte.weight", (vocab, width), std)
    wpe = g.weight("wpe.weight", (context, width), std)
    length = g.op("Gather", [g.op("Shape", ["input_ids"]),
                             g.constant("one", np.array(1, np.int64))], axis=0)
    positions = g.op("Range", [g.constant("zero", np.array(0, np.int64)), length, "one"])
    x = g.op("Add", [g.op("Gather", [wte, "input_ids"]), g.op("Gather", [wpe, positions])])
    full = g.constant("mask", np.tril(np.ones((1, 1, context, context), bool)))
    end = g.op("Unsqueeze", [length, g.integers([0])])
    mask = g.op("Slice", [full, g.integers([0]), end, g.integers([2])])
    mask = g.op("Slice", [mask, g.integers([0]), end, g.integers([3])])
    for i in range(layers):
        h = f"h.{i}"
        x = g.op("Add", [x, attention(g, norm(g, x, h + ".ln_1", width), h + ".attn", heads, width,
                                      mask, std)])
        u = gelu(g, linear(g, norm(g, x, h + ".ln_2", width), h + ".mlp.c_fc", width, 4 * width,
                           std))
        x = g.op("Add", [x, linear(g, u, h + ".mlp.c_proj", 4 * width, width, std)])
    head = g.op("Transpose", [wte], perm=[1, 0])
    g.nodes.append(helper.make_node("MatMul", [norm(g, x, "ln_f", width), head], ["logits"],
                                    name="/lm_head"))
    graph = helper.make_graph(
        g.nodes, "gpt2",
        [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "sequence"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", "sequence", vocab])],
        g.initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("out")
    p.add_argument("--size", choices=SIZES, default="gpt2")
    for name, default in (("layers", 0), ("heads", 0), ("width", 0), ("vocab", 50257),
                          ("context", 1024), ("seed", 0)):
        p.add_argument("--" + name, type=int, default=default)
    p.add_argument("--widen")
    p.add_argument("--copies", type=int, default=3)
    a = p.parse_args()
    rng = np.random.default_rng(a.seed)
    layers, heads, width = SIZES[a.size]
    layers, width, given = a.layers or layers, a.width or width, None
    if a.widen:
        given = Widened(a.widen, a.copies, a.vocab, rng)
        layers, a.heads, width, a.context = given.layers, given.heads, given.width, given.context
    size = 4 * (12 * layers * width * width + (a.vocab + a.context) * width)
    # A protobuf holds 2 GiB at most.
    with open(a.out + ".data", "wb") if size > 1.9e9 else contextlib.nullcontext() as external:
        model = build(layers, a.heads or heads, width, a.vocab, a.context, rng, external, given)
    onnx.save(model, a.out)


if __name__ == "__main__":
    main()
