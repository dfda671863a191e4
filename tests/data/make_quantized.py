"""Quantises small GPT-2 exports of gpt2-exports with ONNX Runtime's tools, with test data and
greedy tokens from ONNX Runtime.

    make_quantized.py tests/data/quantized [NAME...]

Those there were made by onnxruntime 1.31.1, onnx 1.23.2 and numpy 2.4.6. Graphs run unoptimised, so
that each node does what ONNX says; the names ending in `-ort` are as ONNX Runtime's optimizer
rewrites them. Those of four bits, by onnxruntime 1.32.0, need onnx_ir, too.
"""
import json
import os
import pathlib
import sys
import tempfile

import numpy as np
import onnx
import onnx.version_converter
import onnxruntime as ort
from onnx import numpy_helper
from onnxruntime.quantization import (CalibrationDataReader, QuantFormat, QuantType,
                                      quantize_dynamic, quantize_static)

EXPORTS = pathlib.Path(__file__).parent / "gpt2-exports"
TOKENS, LAYERS, HEADS, WIDTH = 61, 2, 2, 16
PLAIN, NANO, FUSED, PAST = ("torch2.15.0-plain-sdpa-dynamo-opset18",
                            "torch2.4.1-nano-sdpa-script-opset17",
                            "torch2.4.1-nano-sdpa-script-opset17-ort",
                            "torch2.4.1-past-eager-script-opset18-ort")
I8, U8 = QuantType.QInt8, QuantType.QUInt8
PRODUCTS = ["MatMul", "Gemm"]
FLOAT = {"DefaultTensorType": onnx.TensorProto.FLOAT}  # what shape inference does not know


def dynamic(source, **options):
    return lambda path: quantize_dynamic(source, path, extra_options=FLOAT, **options)


def static(source, form, symmetric=False, **options):
    extra = FLOAT | {"ActivationSymmetric": symmetric}
    return lambda path: quantize_static(source, path, Prompts(source), quant_format=form,
                                        extra_options=extra, **options)


def optimised(make):
    def build(path):
        with tempfile.TemporaryDirectory() as folder:
            make(folder + "/model.onnx")
            options = ort.SessionOptions()
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
            options.optimized_model_filepath = path
            ort.InferenceSession(folder + "/model.onnx", options,
                                 providers=["CPUExecutionProvider"])
    return build


def path_of(name):
    return EXPORTS / name / "model.onnx"


def optimised_gpt2(path):
    """The graph that ONNX Runtime's optimizer for GPT-2 makes: com.microsoft's Attention."""
    rng = np.random.default_rng(35)
    nodes, weights = [], {"zero": np.array(0, np.int64), "one": np.array(1, np.int64)}

    def weight(name, *shape, mean=0.0):
        weights[name] = (rng.standard_normal(shape) * 0.3 + mean).astype(np.float32)
        return name

    def add(op, inputs, output, **attributes):
        domain = "com.microsoft" if op in ("Attention", "FastGelu") else ""
        nodes.append(onnx.helper.make_node(op, inputs, [output], name="/" + output, domain=domain,
                                           **attributes))
        return output

    def norm(x, name):
        return add("LayerNormalization",
                   [x, weight(name + ".g", WIDTH, mean=1.0), weight(name + ".b", WIDTH)], name,
                   axis=-1)

    def product(x, name, k, n):
        return add("Add", [add("MatMul", [x, weight(name + ".w", k, n)], name + "_product"),
                           weight(name + ".bias", n)], name)

    add("Shape", ["input_ids"], "shape")
    add("Gather", ["shape", "one"], "seq", axis=0)
    add("Range", ["zero", "seq", "one"], "positions")
    x = add("Add", [add("Gather", [weight("wte", TOKENS, WIDTH), "input_ids"], "tokens"),
                    add("Gather", [weight("wpe", 64, WIDTH), "positions"], "places")], "h")
    for i in range(LAYERS):
        y = add("Attention", [norm(x, f"ln1_{i}"), weight(f"qkv{i}", WIDTH, 3 * WIDTH),
                              weight(f"qkv{i}.bias", 3 * WIDTH)], f"attention{i}",
                num_heads=HEADS, unidirectional=1)
        x = add("Add", [x, product(y, f"out{i}", WIDTH, WIDTH)], f"a{i}")
        y = add("FastGelu", [product(norm(x, f"ln2_{i}"), f"up{i}", WIDTH, 4 * WIDTH)], f"gelu{i}")
        x = add("Add", [x, product(y, f"down{i}", 4 * WIDTH, WIDTH)], f"m{i}")
    add("MatMul", [norm(x, "ln_f"), weight("head", WIDTH, TOKENS)], "logits")
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes, "gpt2", [value("input_ids", onnx.TensorProto.INT64, ["batch", "seq"])],
        [value("logits", onnx.TensorProto.FLOAT, ["batch", "seq", TOKENS])],
        [numpy_helper.from_array(v, k) for k, v in weights.items()])
    onnx.save(onnx.helper.make_model(
        graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid("", 17),
                                            onnx.helper.make_opsetid("com.microsoft", 1)]), path)


def dynamic_gpt2(**options):
    def build(path):
        with tempfile.TemporaryDirectory() as folder:
            optimised_gpt2(folder + "/model.onnx")
            quantize_dynamic(folder + "/model.onnx", path, extra_options=FLOAT, **options)
    return build


def four_bits(source, opset=None, table=False, **options):
    """By the tool that writes weights of a few bits, which looks at MatMul alone."""
    def build(path):
        from onnxruntime.quantization.matmul_nbits_quantizer import (DefaultWeightOnlyQuantConfig,
                                                                     MatMulNBitsQuantizer)
        model = onnx.load(source)
        for node in list(model.graph.node):
            if node.op_type == "Gemm":
                at = list(model.graph.node).index(node)
                x, w, bias = node.input
                y = node.output[0]
                model.graph.node.remove(node)
                model.graph.node.insert(at, onnx.helper.make_node(
                    "Add", [y + ".product", bias], [y], name=node.name + ".bias"))
                model.graph.node.insert(at, onnx.helper.make_node(
                    "MatMul", [x, w], [y + ".product"], name=node.name))
        if opset:
            model = onnx.version_converter.convert_version(model, opset)
        operators = ("MatMul", "Gather") if table else ("MatMul",)
        quantizer = MatMulNBitsQuantizer(model, algo_config=DefaultWeightOnlyQuantConfig(
            op_types_to_quantize=operators, **options))
        quantizer.process()
        onnx.save(quantizer.model.model, path)
    return build


QDQ, QOPERATOR = QuantFormat.QDQ, QuantFormat.QOperator
MODELS = {
    "dynamic-i8": dynamic(path_of(PLAIN), weight_type=I8),
    "dynamic-i8-channels-ort": optimised(dynamic(path_of(PLAIN), weight_type=I8, per_channel=True)),
    "dynamic-u8": dynamic(path_of(FUSED), weight_type=U8),
    "dynamic-i8-past": dynamic(path_of(PAST), weight_type=I8),
    "dynamic-u8-attention": dynamic_gpt2(weight_type=U8),
    "dynamic-i8-attention": dynamic_gpt2(weight_type=I8, per_channel=True),
    "qdq-i8-channels": static(path_of(PLAIN), QDQ, op_types_to_quantize=PRODUCTS, per_channel=True,
                              activation_type=I8,
                              weight_type=I8, symmetric=True),
    "qdq-u8-products": static(path_of(NANO), QDQ, op_types_to_quantize=PRODUCTS, activation_type=U8,
                              weight_type=I8),
    "qdq-u8-all": static(path_of(PLAIN), QDQ, activation_type=U8, weight_type=I8),
    "qoperator-u8-products": static(path_of(NANO), QOPERATOR, op_types_to_quantize=PRODUCTS,
                                    activation_type=U8,
                                    weight_type=I8),
    "int4-blocks": four_bits(path_of(PLAIN), block_size=16, is_symmetric=False),
    "int4-blocks-padded": four_bits(path_of(NANO), block_size=32, is_symmetric=True),
    "int4-qdq": four_bits(path_of(PLAIN), 21, block_size=16, is_symmetric=False, quant_format=QDQ),
    "int4-table": four_bits(path_of(PLAIN), 21, table=True, block_size=16, is_symmetric=True),
    "qoperator-u8-all": static(path_of(PLAIN), QOPERATOR, activation_type=U8, weight_type=I8),
}


def session(path):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def feeds_of(s, ids, past):
    batch, seq = ids.shape
    rng = np.random.default_rng(5)
    feeds = {}
    for i in s.get_inputs():
        if i.name == "input_ids":
            feeds[i.name] = ids
        elif i.name == "attention_mask":
            feeds[i.name] = np.ones((batch, past + seq), np.int64)
        elif i.name == "position_ids":
            feeds[i.name] = np.tile(np.arange(past, past + seq), (batch, 1))
        else:
            feeds[i.name] = rng.standard_normal((batch, HEADS, past,
                                                 WIDTH // HEADS)).astype(np.float32)
    return feeds


class Prompts(CalibrationDataReader):
    def __init__(self, source):
        rng = np.random.default_rng(1)
        s = session(source)
        self.feeds = iter([feeds_of(s, rng.integers(0, TOKENS - 1, (2, 16)), 0) for _ in range(8)])

    def get_next(self):
        return next(self.feeds, None)


def write(path, name, array):
    with open(path, "wb") as f:
        f.write(numpy_helper.from_array(array, name).SerializeToString())


def test_data(folder, s):
    past = 3 if any(i.name.startswith("past") for i in s.get_inputs()) else 0
    feeds = feeds_of(s, np.random.default_rng(5).integers(0, TOKENS - 1, (2, 6)), past)
    data = folder / "test_data_set_0"
    data.mkdir(exist_ok=True)
    for k, i in enumerate(s.get_inputs()):
        write(data / f"input_{k}.pb", i.name, feeds[i.name])
    for k, (o, a) in enumerate(zip(s.get_outputs(), s.run(None, feeds))):
        write(data / f"output_{k}.pb", o.name, a)


def golden(folder, s):
    """20 greedy tokens, each of a run over all tokens so far, where they are told apart."""
    prompt = np.random.default_rng(7).integers(0, TOKENS - 1, 8).tolist()
    ids, margins = list(prompt), []
    for _ in range(20):
        logits = s.run(["logits"], feeds_of(s, np.array([ids]), 0))[0][0, -1]
        top = np.sort(logits)[-2:]
        margins.append(float(top[1] - top[0]))
        ids.append(int(logits.argmax()))
    if min(margins) < 0.01:  # quantised logits: rounding decides
        return
    with open(folder / "golden.json", "w") as f:
        json.dump({"prompt": prompt, "greedy": ids[len(prompt):], "min_margin": min(margins)}, f)


for name, make in MODELS.items():
    if sys.argv[2:] and name not in sys.argv[2:]:
        continue
    folder = pathlib.Path(sys.argv[1]) / name
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "model.onnx"
    make(str(path))
    model = onnx.load(path)
    for value in model.graph.value_info:
        value.doc_string = ""
    onnx.save(model, path)
    s = session(path)
    test_data(folder, s)
    golden(folder, s)
    print(name, os.path.getsize(path))
