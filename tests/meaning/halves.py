"""A graph in half precision, as converters of exports make it."""

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

LARGEST = 65504.0


def rounded(value):
    """To fp16, what is too large to the largest number of it, as converters do."""
    kept = np.where(np.isinf(value), value, np.clip(value, -LARGEST, LARGEST))
    return kept.astype(np.float16)


def converted(proto, tensor):
    """A copy with each float tensor replaced by tensor(array), and types after it."""
    out = onnx.ModelProto()
    out.CopyFrom(proto)
    graph = out.graph

    def change(t):
        if t.data_type == TensorProto.FLOAT:
            t.CopyFrom(numpy_helper.from_array(tensor(numpy_helper.to_array(t)), t.name))

    for t in graph.initializer:
        change(t)
    for node in graph.node:
        for a in node.attribute:
            if a.type == onnx.AttributeProto.TENSOR:
                change(a.t)
    return out


def halved(proto):
    """(wide, half): the graph in fp16, and one in fp32 that computes the same with numbers that
    fp16 holds."""
    wide = converted(proto, lambda v: rounded(v).astype(np.float32))
    half = converted(proto, rounded)
    for node in half.graph.node:
        for a in node.attribute:
            if node.op_type == "Cast" and a.name == "to" and a.i == TensorProto.FLOAT:
                a.i = TensorProto.FLOAT16
    for value in (*half.graph.input, *half.graph.output, *half.graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = TensorProto.FLOAT16
    return wide, half
