#!/usr/bin/env python3
"""Writes a decoder of one layer (width 16, 2 heads, 16 positions, 23 tokens) with one thing unusual
about its ports, its positions, its activation or its norm, with test data and greedy tokens of ONNX
Runtime, nothing optimised.

    make_variants.py tests/data/variants [CASE...]        # needs numpy, onnx, onnxruntime

Each folder has model.onnx, test_data_set_0 and greedy.txt: eight tokens behind 3,1,4,1,5, with
positions that count, token types of zeros and causal masks.
"""
import pathlib
import sys

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

WIDTH, HEADS, CONTEXT, TOKENS = 16, 2, 16, 23
PROMPT, NEW = [3, 1, 4, 1, 5], 8


class Graph:
    """Nodes and weights of a model that grows node by node."""

    def __init__(self):
        self.random = np.random.default_rng(7)
        self.nodes, self.weights, self.inputs, self.outputs = [], {}, [], []

    def constant(self, value, dtype=np.float32, name=None):
        name = name or f"constant{len(self.weights)}"
        self.weights[name] = np.asarray(value, dtype)
        return name

    def integer(self, value):
        return self.constant(value, np.int64)

    def normal(self, *shape, scale=0.3, name=None):
        return self.constant(self.random.normal(0, scale, shape), name=name)

    def __call__(self, kind, *inputs, results=1, **attributes):
        name = f"{kind}{len(self.nodes)}"
        outputs = [f"{name}.{i}" for i in range(results)]
        self.nodes.append(helper.make_node(kind, inputs, outputs, name="/" + name, **attributes))
        return outputs[0] if results == 1 else outputs

    def output(self, name, value):
        self.nodes.append(helper.make_node("Identity", [value], [name], name="/" + name))
        self.outputs.append(name)


def product(g, x, rows, columns):
    return g("Add", g("MatMul", x, g.normal(rows, columns)), g.normal(columns, scale=0.1))


def norm(g, x, clip=None):
    centred = g("Sub", x, g("ReduceMean", x, axes=[-1]))
    variance = g("ReduceMean", g("Mul", centred, centred), axes=[-1])
    y = g("Div", centred, g("Sqrt", g("Add", variance, g.constant(1e-5))))
    if clip:
        y = g("Clip", y, g.constant(-clip), g.constant(clip))
    return g("Add", g("Mul", y, g.normal(WIDTH)), g.normal(WIDTH))


def gelu(g, x):
    bent = g("Add", x, g("Mul", g("Pow", x, g.constant(3)), g.constant(0.044715)))
    tanh = g("Tanh", g("Mul", bent, g.constant((2 / np.pi) ** 0.5)))
    return g("Mul", g("Mul", x, g.constant(0.5)), g("Add", tanh, g.constant(1)))


def attention(g, x, masked):
    def heads(v, perm):
        return g("Transpose", g("Reshape", v, g.integer([0, 0, HEADS, WIDTH // HEADS])), perm=perm)
    qkv = product(g, x, WIDTH, 3 * WIDTH)
    q, k, v = g("Split", qkv, g.integer([WIDTH] * 3), results=3, axis=2)
    scores = g("MatMul", heads(q, [0, 2, 1, 3]), heads(k, [0, 2, 3, 1]))
    scores = g("Mul", scores, g.constant((WIDTH // HEADS) ** -0.5))
    scores = masked(scores)
    y = g("MatMul", g("Softmax", scores, axis=-1), heads(v, [0, 2, 1, 3]))
    y = g("Transpose", y, perm=[0, 2, 1, 3])
    return product(g, g("Reshape", y, g.integer([0, 0, WIDTH])), WIDTH, WIDTH)


def decoder(ids="input_ids", tokens=TOKENS, batch="batch", rows=None, positions=None, more=None,
            gain=1, activation=gelu, clip=None, hidden=None, logits=None, output="logits",
            mask=None):
    """rows(g, ids): rows of the token table. positions(g, count): rows of the position table.
    more(g, x): what is added to the embeddings. gain: of what goes into the activation.
    logits(g, x): what becomes of them. mask(g, scores): the scores under a mask of the caller's."""
    g = Graph()
    g.inputs.append((ids, [batch, "seq"]))
    length = g("Gather", g("Shape", ids), g.integer(1))
    count = g("Range", g.integer(0), length, g.integer(1))
    table = g.normal(tokens, WIDTH, scale=0.8, name="token_table")
    x = g("Gather", table, rows(g, ids) if rows else ids)
    where = positions(g, count) if positions else count
    x = g("Add", x, g("Gather", g.normal(CONTEXT, WIDTH, scale=1.5, name="position_table"), where))
    if more:
        x = more(g, x)
    row, column = g("Unsqueeze", count, g.integer([1])), g("Unsqueeze", count, g.integer([0]))
    def masked(scores):
        if mask:
            return mask(g, scores)
        return g("Where", g("LessOrEqual", column, row), scores, g.constant(-1e9))

    x = g("Add", x, attention(g, norm(g, x, clip), masked))
    inner = g("Mul", product(g, norm(g, x), WIDTH, 4 * WIDTH), g.constant(gain))
    x = norm(g, g("Add", x, product(g, activation(g, inner), 4 * WIDTH, WIDTH)))
    if hidden:
        g.output(hidden, x)
    y = g("MatMul", x, g.normal(WIDTH, tokens))
    g.output(output, logits(g, y) if logits else y)
    return g


def clipped(low, high):
    return lambda g, x: g("Clip", gelu(g, x), g.constant(low), g.constant(high))


def stored(values):
    return lambda g, count: g("Slice", g.integer([values]), g.integer([0]), g("Shape", count),
                              g.integer([1]))


def given(name, table, change=lambda g, v: v):
    """Adds rows of a table that an input of this name chooses."""
    def more(g, x):
        g.inputs.append((name, ["batch", "seq"]))
        return g("Add", x, g("Gather", table, change(g, name)))
    return more


def both(first, second):
    return lambda g, x: second(g, first(g, x))


def chosen(name, change=lambda g, v: v):
    def positions(g, count):
        g.inputs.append((name, ["batch", "seq"]))
        return change(g, name)
    return positions


def last(axis_index):
    return lambda g, y: g("Gather", y, g.integer(axis_index), axis=1)


def second_table(g, x):
    flag = g("Cast", "input_ids", to=TensorProto.BOOL)
    return g("Add", x, g("Gather", g.normal(2, WIDTH), g("Cast", flag, to=TensorProto.INT64)))


def whole_mask(kind, use, shape=("batch", 1, "seq", "seq")):
    """An input with an element for each query and key; use(g, scores, mask)."""
    def masked(g, scores):
        g.inputs.append(("attention_mask", list(shape), kind))
        return use(g, scores, "attention_mask")
    return masked


def inverted(g, scores, mask):
    hidden = g("Mul", g("Sub", g.constant(1), mask), g.constant(-1e4))
    return g("Add", scores, g("Unsqueeze", hidden, g.integer([1])))


def hidden_keys(g, scores, mask):
    """A causal mask of the graph's own, and keys that the caller hides."""
    count = g("Gather", g("Shape", scores), g.integer(2))
    place = g("Range", g.integer(0), count, g.integer(1))
    sees = g("LessOrEqual", g("Unsqueeze", place, g.integer([0])),
             g("Unsqueeze", place, g.integer([1])))
    return g("Add", g("Where", sees, scores, g.constant(-1e9)), mask)


def kept(name, shape):
    """The last tokens' logits alone, as many as an input says."""
    def logits(g, y):
        g.inputs.append((name, shape))
        first = g("Reshape", g("Neg", name), g.integer([1]))
        return g("Slice", y, first, g.integer([2**62]), g.integer([1]))
    return logits


def tempered(g, y):
    g.inputs.append(("temperature", [1], TensorProto.FLOAT))
    return g("Div", y, "temperature")


def behind(g, count):
    g.inputs.append(("past_length", [1]))
    return g("Add", count, "past_length")


def with_loss(g, y):
    g.inputs.append(("labels", ["batch", "seq"]))
    scores = g("Reshape", y, g.integer([-1, TOKENS]))
    labels = g("Reshape", "labels", g.integer([-1]))
    g.output("loss", g("SoftmaxCrossEntropyLoss", scores, labels, ignore_index=-100))
    return y


def cached_positions(g, count):
    g.inputs.append(("cache_position", ["new"]))
    return "cache_position"


def given_powers(g, y):
    """Probabilities by their logarithms."""
    return g("Exp", g("LogSoftmax", y, axis=-1))


SWAPPED = list(range(11)) + [12, 11] + list(range(13, CONTEXT))
CASES = {
    "plain": {},
    "gelu-clipped": dict(gain=12, activation=clipped(-10, 10)),
    "norm-clipped": dict(clip=1.5),
    "positions-modulo": dict(positions=lambda g, p: g("Mod", p, g.integer(8))),
    "positions-capped": dict(positions=lambda g, p: g("Min", p, g.integer(8))),
    "positions-swapped": dict(positions=stored(SWAPPED)),
    "positions-late": dict(
        positions=lambda g, p: g("Where", g("Less", p, g.integer(9)), p, g.integer(3))),
    "positions-given": dict(positions=chosen("position_ids")),
    "positions-given-clipped": dict(
        positions=chosen("position_ids", lambda g, p: g("Min", p, g.integer(9)))),
    "token-types": dict(more=given("token_type_ids", "token_table")),
    "token-types-and-positions": dict(positions=chosen("position_ids"),
                                      more=given("token_type_ids", "token_table")),
    "positions-added": dict(more=both(given("position_ids", "position_table"),
                                      given("token_type_ids", "token_table"))),
    "hidden-as-wide": dict(tokens=WIDTH, hidden="last_hidden_state"),
    "input-called-positions": dict(ids="positions"),
    "ids-remapped": dict(
        rows=lambda g, i: g("Where", g("Equal", i, g.integer(5)), g.integer(7), i)),
    "second-table": dict(more=second_table),
    "output-called-kv": dict(output="kv"),
    "last-logits": dict(logits=last([-1])),
    "last-logits-matrix": dict(logits=last(-1)),
    "batch-of-one": dict(batch=1),
    "mask-added": dict(mask=whole_mask(TensorProto.FLOAT, lambda g, s, m: g("Add", s, m))),
    "mask-chosen": dict(mask=whole_mask(
        TensorProto.BOOL, lambda g, s, m: g("Where", m, s, g.constant(-1e9)))),
    "mask-inverted": dict(mask=whole_mask(TensorProto.FLOAT, inverted, ("batch", "seq", "keys"))),
    "mask-of-keys": dict(mask=whole_mask(TensorProto.FLOAT, hidden_keys, ("batch", 1, 1, "seq"))),
    "logits-to-keep": dict(logits=kept("num_logits_to_keep", [1])),
    "logits-to-keep-scalar": dict(logits=kept("logits_to_keep", [])),
    "temperature": dict(logits=tempered),
    "past-length": dict(positions=behind),
    "cache-position": dict(positions=cached_positions),
    "loss-beside": dict(logits=with_loss),
    "probabilities-by-logarithms": dict(logits=given_powers),
}


def save(folder, g):
    def info(name, shape, kind=TensorProto.INT64):
        return helper.make_tensor_value_info(name, kind, shape)
    graph = helper.make_graph(
        g.nodes, "decoder", [info(*i) for i in g.inputs],
        [info(o, None, TensorProto.FLOAT) for o in g.outputs],
        [numpy_helper.from_array(v, n) for n, v in g.weights.items()])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    made = onnx.shape_inference.infer_shapes(made)
    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(made, folder / "model.onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(folder / "model.onnx", options,
                                           providers=["CPUExecutionProvider"])

    def feed(ids, types):
        def value(name):
            if name == "position_ids":
                return np.broadcast_to(np.arange(ids.shape[1]), ids.shape).astype(np.int64)
            if name == "cache_position":
                return np.arange(ids.shape[1])
            return types if name == "token_type_ids" else ids

        def number(name, shape, kind=TensorProto.INT64):
            given = {"temperature": 0.7, "past_length": 0}.get(name, 3)
            if len(ids) == 1 and not types.any():  # for greedy tokens
                given = {"past_length": 0}.get(name, 1)
            return np.full(shape, given, helper.tensor_dtype_to_np_dtype(kind))

        def mask(shape, kind):
            if shape[-2] == 1:
                return np.zeros((len(ids), 1, 1, ids.shape[1]), np.float32)
            seen = np.tri(ids.shape[1], dtype=bool)
            if kind != TensorProto.BOOL:
                added = shape[1] == 1  # to scores, as most have it
                seen = np.where(seen, *((0, -3e38) if added else (1, 0))).astype(np.float32)
            return np.broadcast_to(seen, (1,) * (len(shape) - 2) + seen.shape)
        def given(name, shape, *kind):
            if all(size == 1 for size in shape):
                return number(name, shape, *kind)
            return mask(shape, *kind) if kind else value(name)
        return {name: given(name, *more) for name, *more in g.inputs}

    random = np.random.default_rng(3)
    most = len(g.weights["token_table"])
    shape = (1, CONTEXT)
    inputs = feed(random.integers(0, most, shape), random.integers(0, 3, shape))
    data = folder / "test_data_set_0"
    data.mkdir(exist_ok=True)
    for i, (name, value) in enumerate(inputs.items()):
        made = numpy_helper.from_array(value, name)
        (data / f"input_{i}.pb").write_bytes(made.SerializeToString())
    for i, (name, value) in enumerate(zip(g.outputs, session.run(None, inputs))):
        made = numpy_helper.from_array(value, name)
        (data / f"output_{i}.pb").write_bytes(made.SerializeToString())
    tokens = list(PROMPT)
    for _ in range(NEW):
        ids = np.array([tokens], np.int64)
        logits = session.run([g.outputs[-1]], feed(ids, np.zeros_like(ids)))[0]
        tokens.append(int(logits.reshape(-1, most)[-1].argmax()))
    (folder / "greedy.txt").write_text(",".join(map(str, tokens[len(PROMPT):])) + "\n")


if __name__ == "__main__":
    for case in sys.argv[2:] or CASES:
        save(pathlib.Path(sys.argv[1]) / case, decoder(**CASES[case]))
