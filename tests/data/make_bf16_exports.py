"""Rewrites exports in fp32 so that their initializers, constants and tensors are bfloat16, with
test data and greedy tokens from ONNX Runtime in fp32 on the rounded weights.

    make_bf16_exports.py SOURCE FOLDER...

Each FOLDER gets what SOURCE/<its name> becomes: a graph with ids in and logits out. Needs onnx,
onnxruntime, ml_dtypes, numpy.
"""
import json
import os
import sys

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, numpy_helper

FLOAT, BFLOAT = TensorProto.FLOAT, TensorProto.BFLOAT16
BF16 = np.dtype(ml_dtypes.bfloat16)


def rounded(t):
    """(the tensor in bf16, the same numbers in fp32)"""
    b = numpy_helper.to_array(t).astype(BF16)
    narrow = TensorProto(name=t.name, data_type=BFLOAT, dims=t.dims, raw_data=b.tobytes())
    return narrow, numpy_helper.from_array(b.astype(np.float32), t.name)


def convert(model, narrow):
    graph = model.graph
    for t in graph.initializer:
        if t.data_type == FLOAT:
            t.CopyFrom(rounded(t)[0 if narrow else 1])
    for node in graph.node:
        for a in node.attribute:
            if a.type == onnx.AttributeProto.TENSOR and a.t.data_type == FLOAT:
                a.t.CopyFrom(rounded(a.t)[0 if narrow else 1])
            if narrow and node.op_type == "Cast" and a.name == "to" and a.i == FLOAT:
                a.i = BFLOAT
    if narrow:
        del graph.value_info[:]
        for v in list(graph.input) + list(graph.output):
            if v.type.tensor_type.elem_type == FLOAT:
                v.type.tensor_type.elem_type = BFLOAT


def write(path, array, name):
    with open(path, "wb") as f:
        f.write(numpy_helper.from_array(array, name).SerializeToString())


for folder in sys.argv[2:]:
    source = os.path.join(sys.argv[1], os.path.basename(folder), "model.onnx")
    exact, model = onnx.load(source), onnx.load(source)
    convert(exact, False)
    convert(model, True)
    data = folder + "/test_data_set_0"
    os.makedirs(data, exist_ok=True)
    onnx.save(model, folder + "/model.onnx")
    session = onnxruntime.InferenceSession(exact.SerializeToString(),
                                           providers=["CPUExecutionProvider"])
    name, result = session.get_inputs()[0].name, session.get_outputs()[0].name
    rng = np.random.default_rng(5)
    ids = rng.integers(0, 60, (2, 9))
    write(f"{data}/input_0.pb", ids, name)
    expected = numpy_helper.from_array(session.run([result], {name: ids})[0], result)
    with open(f"{data}/output_0.pb", "wb") as f:
        f.write(rounded(expected)[0].SerializeToString())
    prompt = rng.integers(0, 60, 8).tolist()
    tokens, margins = list(prompt), []
    for _ in range(20):
        row = session.run([result], {name: np.array([tokens])})[0][0, -1]
        best = np.sort(row)[-2:]
        margins.append(float(best[1] - best[0]))
        tokens.append(int(row.argmax()))
    with open(folder + "/golden.json", "w") as f:
        json.dump({"prompt": prompt, "greedy": tokens[len(prompt):], "min_margin": min(margins)}, f)
    print(folder, os.path.getsize(folder + "/model.onnx"), min(margins))
