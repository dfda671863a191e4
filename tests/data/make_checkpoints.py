#!/usr/bin/env python3
"""Small checkpoints as the transformers library saves them, with random weights, the logits and the
greedy tokens that the same model gives in float64 and, in export/, its graph.

    make_checkpoints.py tests/data/checkpoints NAME...

Needs what make_decoders.py does, and safetensors. There is no graph of weights in half precision,
which is written with other casts, and none of Gemma 2, whose caps leave it without a KV state.
"""
import json
import pathlib
import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from make_decoders import Logits, build, export_logits, without_metadata, write

CONTEXT = 64


def sizes(vocabulary, width, hidden, heads, **more):
    return dict(vocab_size=vocabulary, hidden_size=width, intermediate_size=hidden,
                num_hidden_layers=2, num_attention_heads=heads, max_position_embeddings=CONTEXT,
                bos_token_id=0, eos_token_id=1, pad_token_id=2, **more)


LLAMA3 = dict(rope_type="llama3", rope_theta=5e5, factor=8.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=16)
# Folder: kind of model, type of its weights, most bytes of a shard, its configuration.
FAMILIES = {
    "gpt2": ("gpt2", "float32", None, dict(vocab_size=53, n_embd=24, n_layer=2, n_head=3,
                                           n_positions=CONTEXT)),
    "gpt2-untied": ("gpt2", "float16", None, dict(
        vocab_size=41, n_embd=16, n_layer=2, n_head=2, n_positions=CONTEXT, n_inner=40,
        activation_function="relu", scale_attn_by_inverse_layer_idx=True,
        tie_word_embeddings=False)),
    "llama": ("llama", "float32", None, sizes(61, 24, 40, 6, num_key_value_heads=2)),
    "llama3-tied": ("llama", "bfloat16", 8000, sizes(
        47, 32, 24, 4, num_key_value_heads=1, head_dim=12, attention_bias=True, mlp_bias=True,
        tie_word_embeddings=True, rope_parameters=LLAMA3)),
    "mistral": ("mistral", "float32", 9000, sizes(37, 16, 32, 4, num_key_value_heads=2, head_dim=6,
                                                  sliding_window=7)),
    "qwen2": ("qwen2", "float32", None, sizes(
        43, 24, 32, 4, num_key_value_heads=4, tie_word_embeddings=True, use_sliding_window=True,
        sliding_window=5, max_window_layers=1,
        rope_parameters=dict(rope_type="linear", rope_theta=1e4, factor=4.0))),
    "qwen3": ("qwen3", "float32", None, sizes(59, 16, 48, 4, num_key_value_heads=2, head_dim=8,
                                              attention_bias=True)),
    "phi3": ("phi3", "float32", None, sizes(
        41, 32, 24, 4, num_key_value_heads=2, sliding_window=9, original_max_position_embeddings=64,
        rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5))),
    "gemma2": ("gemma2", "float32", None, sizes(
        51, 24, 40, 4, num_key_value_heads=2, head_dim=8, query_pre_attn_scalar=6,
        sliding_window=6, attn_logit_softcapping=3.0, final_logit_softcapping=5.0)),
    "gemma3": ("gemma3_text", "float32", None, sizes(
        45, 16, 32, 4, num_key_value_heads=1, head_dim=8, query_pre_attn_scalar=11,
        sliding_window=6, layer_types=["sliding_attention", "full_attention"])),
    "gpt-neox": ("gpt_neox", "float32", None, sizes(
        39, 32, 48, 2, rope_parameters=dict(rope_type="default", rope_theta=1e4,
                                            partial_rotary_factor=0.5))),
    "gpt-neox-serial": ("gpt_neox", "bfloat16", None, sizes(
        35, 24, 32, 3, use_parallel_residual=False, attention_bias=False,
        tie_word_embeddings=True, hidden_act="gelu_new")),
}


def checkpoint(folder, kind, dtype, shard, configuration):
    torch.manual_seed(7)
    saved = build(kind, "eager", configuration).to(getattr(torch, dtype))
    saved.save_pretrained(folder, **({"max_shard_size": shard} if shard else {}))
    (folder / "generation_config.json").unlink(missing_ok=True)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                 attn_implementation="eager").eval()
    if dtype == "float32" and kind != "gemma2":
        (folder / "export").mkdir(exist_ok=True)
        export_logits(model).save(str(folder / "export/model.onnx"))
        without_metadata(folder / "export/model.onnx")
    exact, rng = Logits(model.double()), np.random.default_rng(5)
    data = folder / "test_data_set_0"
    data.mkdir(exist_ok=True)
    vocabulary = configuration["vocab_size"]
    with torch.no_grad():
        ids = rng.integers(0, vocabulary, (2, 21))
        write(data / "input_0.pb", ids, "input_ids")
        logits = exact(torch.from_numpy(ids)).numpy()
        write(data / "output_0.pb", logits.astype(np.float32), "logits")
        prompt = rng.integers(0, vocabulary, 8).tolist()
        tokens, margins = list(prompt), []
        for _ in range(20):
            row = exact(torch.tensor([tokens]))[0, -1]
            best = row.topk(2).values
            margins.append(float(best[0] - best[1]))
            tokens.append(int(row.argmax()))
    (folder / "golden.json").write_text(json.dumps(
        {"prompt": prompt, "greedy": tokens[len(prompt):], "min_margin": min(margins)}))
    print(folder.name, "least margin", min(margins), flush=True)


if __name__ == "__main__":
    for name in sys.argv[2:] or FAMILIES:
        checkpoint(pathlib.Path(sys.argv[1]) / name, *FAMILIES[name])
