"""Exports one small GPT-2 (2 layers, 2 heads, width 16, 32 positions, 61 tokens) in the styles of
the torch and transformers that run this, with test data from ONNX Runtime and greedy tokens from
PyTorch in float64.

    make_gpt2_exports.py tests/data/gpt2-exports STYLE...

The styles there come from (PyPI, Python 3.11):
    torch 1.13.1  transformers 4.26.1  onnx 1.14.1   onnxruntime 1.15.1  numpy 1.24.4
    torch 2.1.2   transformers 4.36.2  onnx 1.15.0   onnxruntime 1.16.3  numpy 1.26.4  optimum
    1.16.2 torch 2.4.1   transformers 4.45.2  onnx 1.16.2   onnxruntime 1.19.2  numpy 1.26.4
    optimum 1.23.3 torch 2.6.0   transformers 4.49.0  onnx 1.17.0   onnxruntime 1.20.1  numpy 1.26.4
    onnxscript 0.2.2 torch 2.15.0  transformers 5.23.0  and the newest onnx, onnxruntime,
    onnxscript, numpy
STYLE is `<inputs>[-<attention>]-<exporter>-opset<n>[-ort]`: inputs plain (ids), nano (ids;
nanoGPT's way to write the model), masked (ids, attention_mask) or past (also position_ids and past
keys and values); attention eager or sdpa; exporter script or dynamo; ort: as ONNX Runtime's
optimizer rewrites that; or `optimum`, optimum's own text-generation-with-past.
"""
import inspect
import json
import os
import sys
import tempfile

import numpy as np
import onnx
import onnxruntime
import torch
import transformers
from onnx import numpy_helper

LAYERS, HEADS, WIDTH, POSITIONS, TOKENS = 2, 2, 16, 32, 61


def model(attention):
    torch.manual_seed(3)
    config = transformers.GPT2Config(
        n_layer=LAYERS, n_head=HEADS, n_embd=WIDTH, n_positions=POSITIONS, vocab_size=TOKENS,
        resid_pdrop=0, embd_pdrop=0,
        attn_pdrop=0, initializer_range=0.2, bos_token_id=TOKENS - 1, eos_token_id=TOKENS - 1)
    make = transformers.GPT2LMHeadModel
    m = make._from_config(config, attn_implementation=attention) if attention else make(config)
    with torch.no_grad():
        for name, p in m.named_parameters():
            if name.endswith("bias"):
                p.normal_(0, 0.05)
            if "ln_" in name and name.endswith("weight"):
                p.normal_(1, 0.1)
    return m.eval().float()


class Plain(torch.nn.Module):
    def __init__(self, m):
        super().__init__()
        self.m = m

    def forward(self, input_ids):
        return self.m(input_ids, use_cache=False).logits


class Nano(Plain):
    """nanoGPT's layout: scaled_dot_product_attention, the exact GELU, a tied head."""

    def forward(self, input_ids):
        t = self.m.transformer
        x = t.wte(input_ids) + t.wpe(torch.arange(0, input_ids.size(1), dtype=torch.long))
        for block in t.h:
            q, k, v = block.attn.c_attn(block.ln_1(x)).split(WIDTH, dim=2)
            q, k, v = (z.view(*z.shape[:2], HEADS, WIDTH // HEADS).transpose(1, 2)
                       for z in (q, k, v))
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + block.attn.c_proj(y.transpose(1, 2).contiguous().view(x.shape))
            x = x + block.mlp.c_proj(torch.nn.functional.gelu(block.mlp.c_fc(block.ln_2(x))))
        return torch.nn.functional.linear(t.ln_f(x), t.wte.weight)


class Masked(Plain):
    def forward(self, input_ids, attention_mask):
        return self.m(input_ids, attention_mask=attention_mask, use_cache=False).logits


class Past(Plain):
    def forward(self, input_ids, attention_mask, position_ids, k0, v0, k1, v1):
        past = ((k0, v0), (k1, v1))
        if int(transformers.__version__.split(".")[0]) >= 5:
            past = transformers.DynamicCache(past)
        out = self.m(input_ids, attention_mask=attention_mask, position_ids=position_ids,
                     use_cache=True,
                     past_key_values=past)
        if int(transformers.__version__.split(".")[0]) >= 5:
            return (out.logits, *(t for layer in out.past_key_values.layers
                                  for t in (layer.keys, layer.values)))
        (a, b), (c, d) = out.past_key_values
        return out.logits, a, b, c, d


def export(path, style):
    inputs, *attention, exporter, opset = style.removesuffix("-ort").split("-")
    ids = torch.randint(0, TOKENS - 1, (2, 5))
    args, names, results = [ids], ["input_ids"], ["logits"]
    tokens = {0: "batch_size", 1: "sequence_length"}
    axes = {"input_ids": tokens, "logits": tokens}
    if inputs not in ("plain", "nano"):
        args.append(torch.ones(2, 5 if inputs == "masked" else 8, dtype=torch.long))
        names.append("attention_mask")
        axes["attention_mask"] = tokens if inputs == "masked" else {0: "batch_size",
                                                                    1: "total_length"}
    if inputs == "past":
        args += [torch.arange(3, 8).repeat(2, 1)] + [torch.randn(2, HEADS, 3, WIDTH // HEADS)
                                                     for _ in range(4)]
        past = [f"past_key_values.{i}.{part}" for i in range(LAYERS) for part in ("key", "value")]
        present = [n.replace("past_key_values", "present") for n in past]
        names += ["position_ids"] + past
        results += present
        axes["position_ids"] = tokens
        axes.update({n: {0: "batch_size", 2: "past_length"} for n in past})
        axes.update({n: {0: "batch_size", 2: "total_length"} for n in present})
    module = {"plain": Plain, "nano": Nano, "masked": Masked,
              "past": Past}[inputs](model(attention[0] if attention else None))
    options = {"opset_version": int(opset[len("opset"):]), "input_names": names,
               "output_names": results}
    if exporter == "dynamo":
        shapes = {}
        for parameter, name in zip(inspect.signature(module.forward).parameters, names):
            shapes[parameter] = {a: torch.export.Dim(d, min=2, max=POSITIONS - 1)
                                 for a, d in axes[name].items()}
        options |= {"dynamo": True, "dynamic_shapes": shapes, "external_data": False}
    else:
        options["dynamic_axes"] = axes
        if "dynamo" in inspect.signature(torch.onnx.export).parameters:
            options["dynamo"] = False
    with torch.no_grad():
        torch.onnx.export(module, tuple(args), path, **options)


def optimize(path):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = path
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def export_optimum(path):
    from optimum.exporters.onnx import main_export
    with tempfile.TemporaryDirectory() as folder:
        model(None).save_pretrained(folder + "/hf")
        main_export(folder + "/hf", folder + "/onnx", task="text-generation-with-past",
                    do_validation=False)
        onnx.save(onnx.load(folder + "/onnx/model.onnx"), path)


def test_data(folder):
    """Prompts of 6 and 4 tokens, padded on the right, behind 3 past tokens where there is a
    past."""
    rng = np.random.default_rng(5)
    session = onnxruntime.InferenceSession(folder + "/model.onnx",
                                           providers=["CPUExecutionProvider"])
    past = 3 if any(i.name.startswith("past") for i in session.get_inputs()) else 0
    mask = np.ones((2, past + 6), np.int64)
    mask[1, past + 4:] = 0
    feeds = {}
    for i in session.get_inputs():
        if i.name == "input_ids":
            feeds[i.name] = rng.integers(0, TOKENS - 1, (2, 6))
        elif i.name == "attention_mask":
            feeds[i.name] = mask
        elif i.name == "position_ids":
            feeds[i.name] = np.tile(np.arange(past, past + 6), (2, 1))
        else:
            feeds[i.name] = rng.standard_normal((2, HEADS, past, WIDTH // HEADS)).astype(np.float32)
    out = session.run(None, feeds)
    data = folder + "/test_data_set_0"
    os.makedirs(data, exist_ok=True)
    named = [("input", i.name, feeds[i.name]) for i in session.get_inputs()]
    named += [("output", o.name, a) for o, a in zip(session.get_outputs(), out)]
    counts = {"input": 0, "output": 0}
    for kind, name, array in named:
        with open(f"{data}/{kind}_{counts[kind]}.pb", "wb") as f:
            f.write(numpy_helper.from_array(array, name).SerializeToString())
        counts[kind] += 1


def golden(folder, kind, attention):
    m = kind(model(attention)).double()
    prompt = np.random.default_rng(7).integers(0, TOKENS - 1, 8).tolist()
    ids, margins = list(prompt), []
    with torch.no_grad():
        for _ in range(20):
            top = m(torch.tensor([ids]))[0, -1].topk(2)
            margins.append(float(top.values[0] - top.values[1]))
            ids.append(int(top.indices[0]))
    with open(folder + "/golden.json", "w") as f:
        json.dump({"prompt": prompt, "greedy": ids[len(prompt):], "min_margin": min(margins)}, f)


for style in sys.argv[2:]:
    version = torch.__version__.split("+")[0]
    folder = f"{sys.argv[1]}/torch{version}-{style}"
    os.makedirs(folder, exist_ok=True)
    path = folder + "/model.onnx"
    attention = next((a for a in ("eager", "sdpa") if a in style), None)
    export_optimum(path) if style == "optimum" else export(path, style)
    if style.endswith("-ort"):
        optimize(path)
    graph = onnx.load(path)
    for node in graph.graph.node:  # stack traces of the machine that exported
        node.doc_string = ""
        if hasattr(node, "metadata_props"):
            del node.metadata_props[:]
    for value in list(graph.graph.value_info) + list(graph.graph.initializer):
        value.doc_string = ""
    onnx.save(graph, path)
    test_data(folder)
    golden(folder, Nano if style.startswith("nano") else Plain, attention)
    print(folder, os.path.getsize(path))
