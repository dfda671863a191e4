#!/usr/bin/env python3
"""make-softmax.py OUT.onnx --mask=none|causal|padding [--heads=12]: an ONNX graph of the masked
softmax alone.

Scores [batch, heads, seq, seq] are scaled, masked and normalised by three nodes, as exporters write
attention; a padding mask is an int64 input [batch, seq]. Beside it goes test data of small sizes,
computed in double precision: OUT/../test_data_set_0.
"""
import argparse
import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def graph(mask, heads):
    shape = ["batch", heads, "seq", "seq"]
    inputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, shape)]
    constants = {"scale": np.float32(0.125), "lowest": np.float32(-np.inf), "zero": np.int64(0),
                 "one": np.int64(1), "three": np.int64(3)}
    node = helper.make_node
    nodes = [node("Mul", ["scores", "scale"], ["scaled"], "scale")]
    if mask == "causal":
        nodes += [
            node("Shape", ["scores"], ["shape"], "shape"),
            node("Gather", ["shape", "three"], ["length"], "length"),
            node("Range", ["zero", "length", "one"], ["key"], "key"),
            node("Unsqueeze", ["key", "one_axis"], ["query"], "query"),
            node("LessOrEqual", ["key", "query"], ["visible"], "visible"),
        ]
        constants["one_axis"] = np.array([1], np.int64)
    if mask == "padding":
        inputs.append(helper.make_tensor_value_info("attention_mask", TensorProto.INT64,
                                                    ["batch", "seq"]))
        nodes += [node("Unsqueeze", ["attention_mask", "axes"], ["spread"], "spread"),
                  node("Cast", ["spread"], ["visible"], "visible", to=TensorProto.BOOL)]
        constants["axes"] = np.array([1, 2], np.int64)
    if mask != "none":
        nodes.append(node("Where", ["visible", "scaled", "lowest"], ["masked"], "mask"))
    nodes.append(node("Softmax", [nodes[-1].output[0]], ["probabilities"], "softmax", axis=-1))
    used = {name for n in nodes for name in n.input}
    weights = [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items() if k in used]
    outputs = [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, shape)]
    return helper.make_model(helper.make_graph(nodes, "softmax_" + mask, inputs, outputs, weights),
                             opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def test_data(mask, heads, folder):
    rng = np.random.default_rng(1)
    batch, seq = 3, 37
    x = (4 * rng.standard_normal((batch, heads, seq, seq))).astype(np.float32)
    s = 0.125 * x.astype(np.float64)
    keys = np.ones((batch, seq), np.int64)
    for b in range(batch):
        keys[b, seq - 5 * b:] = 0
    if mask == "causal":
        s = np.where(np.tri(seq, dtype=bool), s, -np.inf)
    if mask == "padding":
        s = np.where(keys[:, None, None] != 0, s, -np.inf)
    p = np.exp(s - s.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    tensors = {"input_0": (x, "scores"), "output_0": (p.astype(np.float32), "probabilities")}
    if mask == "padding":
        tensors["input_1"] = (keys, "attention_mask")
    os.makedirs(folder, exist_ok=True)
    for name, (value, of) in tensors.items():
        onnx.save_tensor(numpy_helper.from_array(value, of), os.path.join(folder, name + ".pb"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out")
    parser.add_argument("--mask", choices=("none", "causal", "padding"), default="causal")
    parser.add_argument("--heads", type=int, default=12)
    options = parser.parse_args()
    model = graph(options.mask, options.heads)
    onnx.checker.check_model(model)
    os.makedirs(os.path.dirname(os.path.abspath(options.out)), exist_ok=True)
    onnx.save(model, options.out)
    test_data(options.mask, options.heads,
              os.path.join(os.path.dirname(os.path.abspath(options.out)), "test_data_set_0"))


if __name__ == "__main__":
    main()
