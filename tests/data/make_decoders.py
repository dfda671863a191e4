"""Exports small decoders of many families, as the transformers library has them, with random
weights, test data and greedy tokens that the same model gives in float64.

    make_decoders.py tests/data/decoders NAME...

Each NAME of FAMILIES becomes a folder; those that end in -past have the past among their inputs,
each tensor of it with dimensions of its own. Needs torch 2.15, transformers 5.24, onnxscript, onnx.
"""
import inspect
import json
import pathlib
import sys

import numpy as np
import onnx
import torch
from onnx import numpy_helper
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

VOCABULARY, CONTEXT = 61, 64
BASE = dict(vocab_size=VOCABULARY, hidden_size=32, intermediate_size=40, num_hidden_layers=2,
            num_attention_heads=4, max_position_embeddings=CONTEXT, bos_token_id=0, eos_token_id=1,
            pad_token_id=2)
SHARED = dict(BASE, num_key_value_heads=2)
WIDE = dict(SHARED, head_dim=8)
OLD = dict(vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=CONTEXT, n_inner=40)
OPT = dict(vocab_size=VOCABULARY, hidden_size=32, ffn_dim=40, num_hidden_layers=2,
           num_attention_heads=4, word_embed_proj_dim=32, max_position_embeddings=CONTEXT)
# Folder: kind of model, attention, what its configuration gets.
FAMILIES = {
    "codegen": ("codegen", "eager", dict(OLD, rotary_dim=4)),
    "cohere": ("cohere", "sdpa", SHARED),
    "falcon-groups": ("falcon", "sdpa", dict(BASE, new_decoder_architecture=True, num_kv_heads=2,
                                             alibi=False)),
    "falcon-one-head": ("falcon", "eager", dict(BASE, new_decoder_architecture=False,
                                                multi_query=True, alibi=False)),
    "gemma": ("gemma", "eager", WIDE),
    "gemma3": ("gemma3_text", "sdpa", dict(WIDE, sliding_window=16)),
    "glm4": ("glm4", "sdpa", WIDE),
    "gpt-bigcode": ("gpt_bigcode", "sdpa", dict(OLD, multi_query=True)),
    "gpt-j": ("gptj", "sdpa", dict(OLD, rotary_dim=4)),
    "gpt-neo": ("gpt_neo", "eager", dict(vocab_size=VOCABULARY, hidden_size=32, num_layers=2,
                                         attention_types=[[["global", "local"], 1]], num_heads=4,
                                         max_position_embeddings=CONTEXT, window_size=8,
                                         intermediate_size=40)),
    "gpt-neox": ("gpt_neox", "sdpa", BASE),
    "gpt2-past": ("gpt2", "sdpa", OLD),
    "granite": ("granite", "eager", dict(SHARED, embedding_multiplier=12.0,
                                         residual_multiplier=0.22,
                                         logits_scaling=8.0, attention_multiplier=0.25)),
    "hunyuan": ("hunyuan_v1_dense", "sdpa", WIDE),
    "nemotron": ("nemotron", "eager", SHARED),
    "olmo2": ("olmo2", "eager", SHARED),
    "opt": ("opt", "sdpa", OPT),
    "opt-past": ("opt", "eager", OPT),
    "phi": ("phi", "eager", BASE),
    "phi3": ("phi3", "sdpa", SHARED),
    "qwen3": ("qwen3", "eager", WIDE),
    "qwen3-past": ("qwen3", "sdpa", WIDE),
    "stablelm": ("stablelm", "sdpa", SHARED),
    "starcoder2": ("starcoder2", "eager", SHARED),
}


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, input_ids):
        return self.model(input_ids=input_ids, use_cache=False).logits


class LogitsAndPresent(torch.nn.Module):
    """Of new tokens behind a past [key 0, value 0, key 1, ..]."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.takes_positions = "position_ids" in inspect.signature(model.forward).parameters

    def forward(self, input_ids, attention_mask, position_ids, past):
        cache = DynamicCache()
        for i in range(0, len(past), 2):
            cache.update(past[i], past[i + 1], i // 2)
        more = {"position_ids": position_ids} if self.takes_positions else {}
        out = self.model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache,
                         use_cache=True, **more)
        present = [t for layer in out.past_key_values.layers for t in (layer.keys, layer.values)]
        return (out.logits, *present)


def build(kind, attention, configuration):
    config = AutoConfig.for_model(kind, **configuration)
    config._attn_implementation = attention
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.normal_(0, 2 * p.shape[-1] ** -0.5)
            else:
                p.add_(0.2 * torch.randn_like(p))
    return model


def write(path, array, name):
    path.write_bytes(numpy_helper.from_array(array, name).SerializeToString())


def without_metadata(path):
    """Stack traces and names of classes take more room than the weights."""
    model = onnx.load(path)
    graph = model.graph
    for holder in (model, graph, *graph.node, *graph.input, *graph.output, *graph.value_info,
                   *graph.initializer):
        del holder.metadata_props[:]
        holder.doc_string = ""
    del graph.value_info[:]
    onnx.save(model, path)


def export_logits(model):
    dynamic = torch.export.Dim.DYNAMIC
    return torch.onnx.export(
        Logits(model), (torch.randint(0, VOCABULARY, (2, 7)),), dynamo=True,
        input_names=["input_ids"], output_names=["logits"], opset_version=18,
        dynamic_shapes={"input_ids": {0: dynamic, 1: dynamic}}, verbose=False)


def names_of(count):
    return [f"{i}.{part}" for i in range(count // 2) for part in ("key", "value")]


def export_past(model):
    dynamic = torch.export.Dim.DYNAMIC
    out = model(input_ids=torch.randint(0, VOCABULARY, (2, 3)), use_cache=True)
    past = [t.detach() for layer in out.past_key_values.layers for t in (layer.keys, layer.values)]
    rows, tensor = {0: dynamic, 1: dynamic}, {0: dynamic, 2: dynamic}
    return torch.onnx.export(
        LogitsAndPresent(model),
        (torch.randint(0, VOCABULARY, (2, 4)), torch.ones(2, 7, dtype=torch.int64),
         torch.arange(3, 7).repeat(2, 1), past), dynamo=True,
        input_names=["input_ids", "attention_mask", "position_ids",
                     *("past_key_values." + n for n in names_of(len(past)))],
        output_names=["logits", *("present." + n for n in names_of(len(past)))],
        dynamic_shapes=(rows, rows, rows, [tensor] * len(past)), opset_version=18, verbose=False)


def write_past_data(data, model, rng):
    """Three tokens behind five, of which the second sequence hides two."""
    exact = LogitsAndPresent(model)
    out = model(input_ids=torch.from_numpy(rng.integers(0, VOCABULARY, (2, 5))), use_cache=True)
    past = [t for layer in out.past_key_values.layers for t in (layer.keys, layer.values)]
    past = [t.float().double() for t in past]
    mask = np.ones((2, 8), np.int64)
    mask[1, :2] = 0
    inputs = [torch.from_numpy(a) for a in (rng.integers(0, VOCABULARY, (2, 3)), mask,
                                            np.array([[5, 6, 7], [3, 4, 5]]))]
    names = ["input_ids", "attention_mask", "position_ids"]
    present = exact(*inputs, past)
    inputs += [t.float() for t in past]
    names += ["past_key_values." + n for n in names_of(len(past))]
    model_inputs = onnx.load(data.parent / "model.onnx").graph.input
    for i, wanted in enumerate(model_inputs):
        write(data / f"input_{i}.pb", inputs[names.index(wanted.name)].numpy(), wanted.name)
    for i, (t, n) in enumerate(zip(present, ["logits", *("present." + n
                                                         for n in names_of(len(past)))])):
        write(data / f"output_{i}.pb", t.float().numpy(), n)


def export(folder, kind, attention, configuration):
    torch.manual_seed(3)
    model = build(kind, attention, configuration)
    data = folder / "test_data_set_0"
    data.mkdir(parents=True, exist_ok=True)
    has_past = folder.name.endswith("-past")
    program = (export_past if has_past else export_logits)(model)
    program.save(str(folder / "model.onnx"))
    without_metadata(folder / "model.onnx")
    rng = np.random.default_rng(5)
    exact = Logits(model.double())
    with torch.no_grad():
        if has_past:
            write_past_data(data, model, rng)
        else:
            ids = rng.integers(0, VOCABULARY, (2, 21))
            write(data / "input_0.pb", ids, "input_ids")
            logits = exact(torch.from_numpy(ids)).numpy()
            write(data / "output_0.pb", logits.astype(np.float32), "logits")
        prompt = rng.integers(0, VOCABULARY, 8).tolist()
        tokens, margins = list(prompt), []
        for _ in range(20):
            row = exact(torch.tensor([tokens]))[0, -1]
            best = row.topk(2).values
            margins.append(float(best[0] - best[1]))
            tokens.append(int(row.argmax()))
    (folder / "golden.json").write_text(json.dumps(
        {"prompt": prompt, "greedy": tokens[len(prompt):], "min_margin": min(margins)}))
    size = (folder / "model.onnx").stat().st_size
    print(folder.name, size // 1024, "KiB, least margin", min(margins), flush=True)


if __name__ == "__main__":
    for name in sys.argv[2:] or FAMILIES:
        export(pathlib.Path(sys.argv[1]) / name, *FAMILIES[name])
