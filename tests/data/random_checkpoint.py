#!/usr/bin/env python3
"""random_checkpoint.py FOLDER gpt2|qwen3 WIDTH HEADS KEY_HEADS HIDDEN LAYERS VOCABULARY CONTEXT
[SEED]: a checkpoint with random weights in fp32, whose head is not the token table, so that tokens
differ. Needs nothing but Python: a test calls it. qwen3: norms of heads, rotations, keys that
heads share, a gated MLP. A head has WIDTH / HEADS elements."""
import array
import json
import pathlib
import random
import struct
import sys

folder, kind, *sizes = sys.argv[1:]
width, heads, keys, hidden, layers, vocabulary, context = map(int, sizes[:7])
rng = random.Random(int(sizes[7]) if len(sizes) > 7 else 1)
dim = width // heads
shapes = {}


def add(name, *shape, scale=None):
    """A tensor of normal numbers: gains near 1, weights that keep the size of what they read."""
    shapes[name] = (shape, scale if scale is not None else shape[-1] ** -0.5)


def norm(name, n, bias):
    add(name + ".weight", n, scale=0.0)
    if bias:
        add(name + ".bias", n, scale=0.2)


if kind == "gpt2":
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": width,
              "n_head": heads, "n_layer": layers, "n_positions": context, "n_ctx": context,
              "n_inner": hidden, "vocab_size": vocabulary, "activation_function": "gelu_new",
              "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False}
    add("transformer.wte.weight", vocabulary, width, scale=1.0)
    add("transformer.wpe.weight", context, width, scale=0.5)
    for i in range(layers):
        at = f"transformer.h.{i}."
        norm(at + "ln_1", width, True)
        norm(at + "ln_2", width, True)
        for name, rows, columns in (
                ("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
                ("mlp.c_fc", width, hidden), ("mlp.c_proj", hidden, width)):
            add(f"{at}{name}.weight", rows, columns, scale=rows ** -0.5)
            add(f"{at}{name}.bias", columns, scale=0.1)
    norm("transformer.ln_f", width, True)
else:
    config = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": width,
              "num_attention_heads": heads, "num_key_value_heads": keys, "head_dim": dim,
              "intermediate_size": hidden, "num_hidden_layers": layers, "hidden_act": "silu",
              "max_position_embeddings": context, "vocab_size": vocabulary, "rms_norm_eps": 1e-6,
              "attention_bias": False, "rope_theta": 10000.0, "tie_word_embeddings": False}
    add("model.embed_tokens.weight", vocabulary, width, scale=1.0)
    for i in range(layers):
        at = f"model.layers.{i}."
        norm(at + "input_layernorm", width, False)
        norm(at + "post_attention_layernorm", width, False)
        norm(at + "self_attn.q_norm", dim, False)
        norm(at + "self_attn.k_norm", dim, False)
        for name, rows, columns in (
                ("self_attn.q_proj", width, width), ("self_attn.k_proj", keys * dim, width),
                ("self_attn.v_proj", keys * dim, width), ("self_attn.o_proj", width, width),
                ("mlp.gate_proj", hidden, width), ("mlp.up_proj", hidden, width),
                ("mlp.down_proj", width, hidden)):
            add(f"{at}{name}.weight", rows, columns)
    norm("model.norm", width, False)
add("lm_head.weight", vocabulary, width)

header, data = {}, array.array("f")
for name, (shape, scale) in shapes.items():
    begin, count = 4 * len(data), 1
    for n in shape:
        count *= n
    gain = 1.0 if scale == 0.0 else 0.0
    data.extend(gain + rng.gauss(0, scale or 0.2) for _ in range(count))
    header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, 4 * len(data)]}
to = pathlib.Path(folder)
to.mkdir(parents=True, exist_ok=True)
(to / "config.json").write_text(json.dumps(config))
text = json.dumps(header).encode()
(to / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data.tobytes())
