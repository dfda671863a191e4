"""A graph in half precision, as converters of exports make it, and in double precision."""

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
    fp16 holds. Casts to fp16 say nothing in the first, so the second has none: a variance that is
    infinite in fp16 is told by the distance of the two."""
    wide = converted(proto, lambda v: rounded(v).astype(np.float32))
    for cast in casts_to(wide, TensorProto.FLOAT16):
        cast.i = TensorProto.FLOAT
    return wide, retyped(converted(proto, rounded), TensorProto.FLOAT16)


def casts_to(proto, *types):
    """The attributes of casts that say one of the types."""
    return [
        a
        for node in proto.graph.node
        for a in node.attribute
        if node.op_type == "Cast" and a.name == "to" and a.i in types
    ]


def doubled(proto):
    """The graph in double precision."""
    return retyped(converted(proto, lambda v: v.astype(np.float64)), TensorProto.DOUBLE)


def retyped(proto, to):
    """The graph with casts, inputs and outputs of `to` in the place of fp32; changed in place."""
    graph = proto.graph
    for cast in casts_to(proto, TensorProto.FLOAT):
        cast.i = to
    for value in (*graph.input, *graph.output, *graph.value_info):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = to
    return proto
