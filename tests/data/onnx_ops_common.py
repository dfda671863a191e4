"""What cases of make_onnx_ops.py are made of: random inputs, models with their inputs and outputs
inside, and the table they end in."""
import base64
import pathlib

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

OUT = pathlib.Path(__file__).parent / "onnx-ops"
RNG = np.random.default_rng(7)
CASES = {}
F, I64, I32, BOOL = np.float32, np.int64, np.int32, np.bool_


def rand(*shape, dtype=F):
    return RNG.standard_normal(shape).astype(dtype)


def ints(*values):
    return np.array(values, dtype=I64)


def onnx_type(a):
    return helper.np_dtype_to_tensor_dtype(a.dtype)


def model(nodes, inputs, outputs, opset, initializers=None, dims=None, functions=(), imports=()):
    """`dims`: input name -> dimension list, for symbolic ones."""
    declared = [
        helper.make_tensor_value_info(k, onnx_type(v), (dims or {}).get(k, list(v.shape)))
        for k, v in inputs.items()
    ]
    outs = [onnx.ValueInfoProto(name=o) for o in outputs]
    graph = helper.make_graph(
        nodes, "case", declared, outs,
        [numpy_helper.from_array(v, k) for k, v in (initializers or {}).items()]
    )
    opsets = [helper.make_opsetid("", opset)]
    for domain in sorted({n.domain for n in nodes if n.domain} | set(imports)):
        opsets.append(helper.make_opsetid(domain, 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=8, functions=list(functions))


def write(name, m, inputs, reference=False, expected=None):
    if expected is None:
        if reference:
            expected = ReferenceEvaluator(m).run(None, inputs)
        else:
            options = ort.SessionOptions()
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.intra_op_num_threads = 1
            options.log_severity_level = 3
            session = ort.InferenceSession(m.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
            expected = session.run(None, inputs)
    for kind, values in (("input", inputs.values()), ("output", expected)):
        for i, v in enumerate(values):
            entry = m.metadata_props.add()
            entry.key = f"{kind}:{i}"
            tensor = numpy_helper.from_array(np.asarray(v))
            entry.value = base64.b64encode(tensor.SerializeToString()).decode()
    (OUT / f"{name}.onnx").write_bytes(m.SerializeToString())


def case(name, op, inputs, opset, /, outputs=1, domain="", constants=(), optional=None, dims=None,
         reference=False, **attrs):
    """One node. `inputs`: arrays, None for an absent one; `constants`: indices of those that become
    initializers.
    `outputs`: their number or a list of names with "" for absent ones."""

    def build():
        arrays = [None if a is None else np.asarray(a) for a in inputs]
        names = ["" if a is None else f"x{i}" for i, a in enumerate(arrays)]
        outs = [f"y{i}" for i in range(outputs)] if isinstance(outputs, int) else list(outputs)
        node = helper.make_node(op, names, outs, name="node", domain=domain, **attrs)
        fed = {n: a for i, (n, a) in enumerate(zip(names, arrays)) if n and i not in constants}
        weights = {names[i]: arrays[i] for i in constants}
        m = model([node], fed, [o for o in outs if o], opset, weights, dims)
        write(name, m, fed, reference)

    CASES[name] = build


MS = "com.microsoft"
