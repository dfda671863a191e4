#!/usr/bin/env python3
"""export.py CHECKPOINT OUT.onnx: an exporter of one's own, without PyTorch.

CHECKPOINT is a folder of a GPT-2 as Transformers saves it: config.json and model.safetensors. The
graph takes token ids [batch, seq] and gives logits [batch, seq, vocabulary], in the weights' type;
batch and seq are open. Needs numpy and onnx."""
import json
import os
import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

DTYPES = {"F32": np.float32, "F16": np.float16}


def read_weights(path):
    """Name to array: a length, that many bytes of JSON, then the arrays."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    header.pop("__metadata__", None)
    return {name.removeprefix("transformer."):
            np.frombuffer(data[slice(*t["data_offsets"])], DTYPES[t["dtype"]]).reshape(t["shape"])
            for name, t in header.items()}


class Graph:
    """Nodes and constants, each value by its name."""

    def __init__(self):
        self.nodes, self.constants = [], {}

    def constant(self, name, array):
        self.constants[name] = numpy_helper.from_array(np.asarray(array), name)
        return name

    def op(self, kind, *inputs, outputs=1, **attributes):
        names = [f"{kind}_{len(self.nodes)}" + f"_{i}" * (outputs > 1) for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, name=names[0], **attributes))
        return names[0] if outputs == 1 else names


def gpt2(weights, config):
    """The graph of the model; the last node's value is the logits."""
    g = Graph()
    heads, width = config["n_head"], config["n_embd"]
    dtype = weights["wte.weight"].dtype
    w = {name: g.constant(name, array) for name, array in weights.items()}

    def ints(*values):
        return g.constant("ints" + "_".join(map(str, values)), np.array(values, np.int64))

    def number(name, value):
        return g.constant(name, np.array(value, dtype))

    def norm(x, name):
        return g.op("LayerNormalization", x, w[name + ".weight"], w[name + ".bias"],
                    epsilon=config["layer_norm_epsilon"])

    def dense(x, name):  # GPT-2's weights are [inputs, outputs]
        return g.op("Add", g.op("MatMul", x, w[name + ".weight"]), w[name + ".bias"])

    def gelu(x):  # x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
        cube = g.op("Mul", g.op("Mul", g.op("Mul", x, x), x), number("cubic", 0.044715))
        inner = g.op("Mul", g.op("Add", x, cube), number("root", np.sqrt(2 / np.pi)))
        return g.op("Mul", g.op("Mul", x, number("half", 0.5)),
                    g.op("Add", g.op("Tanh", inner), number("one", 1)))

    # Positions 0, 1, 2 ..; a query sees itself and what is before it.
    seq = g.op("Squeeze", g.op("Shape", "input_ids", start=1, end=2))
    steps = g.op("Range", g.constant("from", np.int64(0)), seq, g.constant("by", np.int64(1)))
    x = g.op("Add", g.op("Gather", w["wte.weight"], "input_ids"),
             g.op("Gather", w["wpe.weight"], steps))
    seen = g.op("LessOrEqual", steps, g.op("Unsqueeze", steps, ints(1)))
    mask = g.op("Where", seen, number("zero", 0), number("hidden", np.finfo(dtype).min))

    for i in range(config["n_layer"]):
        part = f"h.{i}."
        qkv = g.op("Split", dense(norm(x, part + "ln_1"), part + "attn.c_attn"),
                   outputs=3, axis=2, num_outputs=3)
        q, k, v = (g.op("Transpose", g.op("Reshape", t, ints(0, 0, heads, width // heads)),
                        perm=[0, 2, 1, 3]) for t in qkv)
        scores = g.op("MatMul", q, g.op("Transpose", k, perm=[0, 1, 3, 2]))
        scores = g.op("Mul", scores, number("scale", (width // heads) ** -0.5))
        mixed = g.op("MatMul", g.op("Softmax", g.op("Add", scores, mask), axis=-1), v)
        mixed = g.op("Reshape", g.op("Transpose", mixed, perm=[0, 2, 1, 3]), ints(0, 0, width))
        x = g.op("Add", x, dense(mixed, part + "attn.c_proj"))
        hidden = gelu(dense(norm(x, part + "ln_2"), part + "mlp.c_fc"))
        x = g.op("Add", x, dense(hidden, part + "mlp.c_proj"))
    head = g.op("Transpose", w["wte.weight"], perm=[1, 0])  # tied to the table of tokens
    g.nodes.append(helper.make_node("MatMul", [norm(x, "ln_f"), head], ["logits"], name="head"))
    return g, helper.np_dtype_to_tensor_dtype(dtype)


def main(folder, out):
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as file:
        config = json.load(file)
    g, dtype = gpt2(read_weights(os.path.join(folder, "model.safetensors")), config)
    shape = ["batch", "seq"]
    graph = helper.make_graph(
        g.nodes, "gpt2", [helper.make_tensor_value_info("input_ids", TensorProto.INT64, shape)],
        [helper.make_tensor_value_info("logits", dtype, [*shape, config["vocab_size"]])],
        list(g.constants.values()))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, out)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(*sys.argv[1:])
