#!/usr/bin/env python3
"""draws.py COUNT [SEED]: draws checkpoints of every family, with sizes, biases, ties, rotations,
windows, types of weights, shards and LoRA adapters as they come, compiles them and compares logits
and greedy tokens of the CPU device with reference.py's in float64. Needs numpy and onnx, and the
tools in PATH."""
import json
import pathlib
import random
import shutil
import subprocess
import sys

import numpy as np
from onnx import numpy_helper

from adapters import Adapter
from reference import ACTIVATIONS, Model

FAMILIES = ["gpt2", "llama", "mistral", "qwen2", "qwen3", "phi3", "gemma2", "gemma3_text",
            "gpt_neox"]


class Draw:
    def __init__(self, family, seed):
        self.r, self.rng = random.Random(seed), np.random.default_rng(seed)
        self.family, self.w = family, {}
        self.layers = self.r.randint(1, 3)
        self.windows = [None] * self.layers
        self.vocabulary = self.r.randint(11, 70)
        shared = self.r.randint(1, 3)
        self.heads, self.shared = shared * self.r.randint(1, 3), shared
        self.size = 2 * self.r.randint(1, 8)
        self.hidden = self.r.randint(3, 40)
        self.c = {"model_type": family, "vocab_size": self.vocabulary, "unk_token_id": None,
                  "torch_dtype": "float16", "use_cache": True,
                  "tie_word_embeddings": self.flag(), "bos_token_id": 1, "eos_token_id": [1, 2]}
        {"gpt2": self.gpt2, "gpt_neox": self.neox}.get(family, self.llama)()
        self.adapter = Adapter(self) if self.flag() else None
        self.merged = self.adapter.merged() if self.adapter else self.w

    def flag(self):
        return self.r.random() < 0.5

    def weight(self, name, *shape):
        """Values that every type of weights holds."""
        scale = 2 * shape[-1] ** -0.5 if len(shape) > 1 else 0.3
        values = self.rng.standard_normal(shape) * scale + (len(shape) == 1)
        bits = values.astype(np.float32).view(np.uint32) & 0xFFFF0000  # bfloat16
        self.w[name] = bits.view(np.float32).astype(np.float16).astype(np.float64)

    def linear(self, name, k, n, bias):
        self.weight(name + ".weight", n, k)
        if bias:
            self.weight(name + ".bias", n)

    def norm(self, name, n, shift=False):
        self.weight(name + ".weight", n)
        if shift:
            self.weight(name + ".bias", n)

    def activation(self):
        return self.r.choice(sorted(ACTIVATIONS))

    def rope(self, kinds=("default", "linear", "llama3"), **more):
        rope = {"rope_type": self.r.choice(kinds), "rope_theta": self.r.choice([1e4, 5e5, 77.0]),
                **more}
        if rope["rope_type"] != "default":
            rope["factor"] = self.r.choice([2.0, 8.0])
        if rope["rope_type"] == "llama3":
            rope.update(low_freq_factor=1.0, high_freq_factor=4.0,
                        original_max_position_embeddings=self.r.choice([8, 32]))
        return rope

    def gpt2(self):
        c, width = self.c, self.heads * self.size
        inner = self.r.choice([None, self.hidden])
        c.update(n_embd=width, n_layer=self.layers, n_head=self.heads, n_positions=64,
                 n_inner=inner, activation_function=self.activation(), layer_norm_epsilon=1e-5,
                 scale_attn_weights=self.flag(), scale_attn_by_inverse_layer_idx=self.flag())
        self.weight("transformer.wte.weight", self.vocabulary, width)
        self.weight("transformer.wpe.weight", 64, width)
        for i in range(self.layers):
            at = f"transformer.h.{i}."
            for name, k, n in (("attn.c_attn", width, 3 * width), ("attn.c_proj", width, width),
                               ("mlp.c_fc", width, inner or 4 * width),
                               ("mlp.c_proj", inner or 4 * width, width)):
                self.weight(f"{at}{name}.weight", k, n)
                self.weight(f"{at}{name}.bias", n)
            self.norm(at + "ln_1", width, True)
            self.norm(at + "ln_2", width, True)
        self.norm("transformer.ln_f", width, True)
        if not c["tie_word_embeddings"]:
            self.weight("lm_head.weight", self.vocabulary, width)
        self.ropes = [None] * self.layers

    def neox(self):
        c, width, bias = self.c, self.heads * self.size, self.flag()
        rope = self.rope(partial_rotary_factor=self.r.choice([1.0, 2 / self.size]))
        c.update(hidden_size=width, intermediate_size=self.hidden, attention_bias=bias,
                 num_hidden_layers=self.layers, num_attention_heads=self.heads,
                 hidden_act=self.activation(), layer_norm_eps=1e-5,
                 use_parallel_residual=self.flag())
        if rope["rope_type"] == "default" and self.flag():
            c.update(rotary_pct=rope["partial_rotary_factor"], rotary_emb_base=rope["rope_theta"])
        else:
            c["rope_parameters"] = rope
        self.ropes = [rope] * self.layers
        self.weight("gpt_neox.embed_in.weight", self.vocabulary, width)
        for i in range(self.layers):
            at = f"gpt_neox.layers.{i}."
            self.linear(at + "attention.query_key_value", width, 3 * width, bias)
            self.linear(at + "attention.dense", width, width, bias)
            self.linear(at + "mlp.dense_h_to_4h", width, self.hidden, True)
            self.linear(at + "mlp.dense_4h_to_h", self.hidden, width, True)
            self.norm(at + "input_layernorm", width, True)
            self.norm(at + "post_attention_layernorm", width, True)
        self.norm("gpt_neox.final_layer_norm", width, True)
        if not c["tie_word_embeddings"]:
            self.weight("embed_out.weight", self.vocabulary, width)

    def positions(self):
        """Of the families in Llama's likeness: keys of rotations and of windows."""
        c, family = self.c, self.family
        if family == "gemma3_text":
            rope, local = self.rope(), self.rope()
            c["rope_parameters"] = {"full_attention": rope, "sliding_attention": local}
        elif family == "phi3":
            rope = self.rope(("default",), partial_rotary_factor=self.r.choice([1.0,
                                                                                2 / self.size]))
            c["rope_parameters"] = rope
        else:
            rope = self.rope()
            if self.flag():
                c["rope_parameters"] = rope
            else:
                c["rope_theta"] = rope["rope_theta"]
                c["rope_scaling"] = {k: v for k, v in rope.items() if k != "rope_theta"}
        self.ropes = [rope] * self.layers
        window = self.r.choice([1, 4, 30])
        if family in ("mistral", "phi3"):
            c["sliding_window"] = self.r.choice([None, window])
            self.windows = [c["sliding_window"]] * self.layers
        elif family != "llama":
            c["sliding_window"] = window
            slides = [self.flag() for _ in range(self.layers)]
            if family in ("qwen2", "qwen3"):
                c["use_sliding_window"] = self.flag()
                c["max_window_layers"] = self.r.randint(0, 2)
                slides = [c["use_sliding_window"] and i >= c["max_window_layers"]
                          for i in range(self.layers)]
            elif family == "gemma2":
                slides = [i % 2 == 0 for i in range(self.layers)]
            else:
                c["layer_types"] = ["sliding_attention" if s else "full_attention" for s in slides]
                self.ropes = [local if s else rope for s in slides]
            self.windows = [window if s else None for s in slides]

    def llama(self):
        c, family, own = self.c, self.family, self.family not in ("qwen2", "phi3")
        gemma = family.startswith("gemma")
        width = self.heads * (self.r.randint(1, 6) if own else self.size)
        c.update(hidden_size=width, intermediate_size=self.hidden, rms_norm_eps=1e-5,
                 num_hidden_layers=self.layers, num_attention_heads=self.heads,
                 num_key_value_heads=self.shared)
        if own:
            c["head_dim"] = self.size
        c["hidden_activation" if gemma else "hidden_act"] = self.activation()
        if gemma:
            c["query_pre_attn_scalar"] = self.r.choice([3, 16, 256])
            c["final_logit_softcapping"] = self.r.choice([None, 4.0])
        if family == "gemma2":
            c["attn_logit_softcapping"] = self.r.choice([None, 2.0])
        self.positions()
        biases = self.flag() if family in ("llama", "qwen3", "gemma2", "gemma3_text") else False
        if biases or self.flag():
            c["attention_bias"] = biases
        mlp_bias = family == "llama" and self.flag()
        if family == "llama":
            c["mlp_bias"] = mlp_bias
        self.layers_of_llama(width, biases or family == "qwen2", biases, mlp_bias)

    def layers_of_llama(self, width, qkv_bias, out_bias, mlp_bias):
        family, size = self.family, self.size
        queries, keys = self.heads * size, self.shared * size
        self.weight("model.embed_tokens.weight", self.vocabulary, width)
        for i in range(self.layers):
            at = f"model.layers.{i}."
            self.linear(at + "self_attn.o_proj", queries, width, out_bias)
            self.linear(at + "mlp.down_proj", self.hidden, width, mlp_bias)
            if family == "phi3":
                self.linear(at + "self_attn.qkv_proj", width, queries + 2 * keys, False)
                self.linear(at + "mlp.gate_up_proj", width, 2 * self.hidden, False)
            else:
                for p, n in ("q", queries), ("k", keys), ("v", keys):
                    self.linear(f"{at}self_attn.{p}_proj", width, n, qkv_bias)
                for p in ("gate", "up"):
                    self.linear(f"{at}mlp.{p}_proj", width, self.hidden, mlp_bias)
            self.norm(at + "input_layernorm", width)
            self.norm(at + "post_attention_layernorm", width)
            if family.startswith("gemma"):
                self.norm(at + "pre_feedforward_layernorm", width)
                self.norm(at + "post_feedforward_layernorm", width)
            if family in ("qwen3", "gemma3_text"):
                self.norm(at + "self_attn.q_norm", size)
                self.norm(at + "self_attn.k_norm", size)
        self.norm("model.norm", width)
        if not self.c["tie_word_embeddings"]:
            self.weight("lm_head.weight", self.vocabulary, width)

    def logits(self, ids):
        usual = {"head_dim": self.size}
        return Model({**usual, **self.c}, self.merged, self.ropes, self.windows).logits(ids)

    # Files.

    @staticmethod
    def bytes_of(values, dtype):
        values = values.astype(np.float32)
        if dtype == "BF16":
            return (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        return values.astype({"F16": np.float16, "F32": np.float32}[dtype]).tobytes()

    def shard(self, path, tensors, dtype):
        header, data = {"__metadata__": {"format": "pt"}}, b""
        for name, values in tensors.items():
            part = self.bytes_of(values, dtype)
            header[name] = {"dtype": dtype, "shape": values.shape,
                            "data_offsets": [len(data), len(data) + len(part)]}
            data += part
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8) * self.r.randint(0, 1)  # not always aligned
        path.write_bytes(len(text).to_bytes(8, "little") + text + data)

    def save(self, folder, dtype):
        (folder / "config.json").write_text(json.dumps(self.c))
        names = list(self.w)
        self.r.shuffle(names)
        if self.flag():
            self.shard(folder / "model.safetensors", {n: self.w[n] for n in names}, dtype)
            return
        half, files = len(names) // 2, {}
        for number, part in enumerate((names[:half], names[half:])):
            file = f"model-0000{number}.safetensors"
            self.shard(folder / file, {n: self.w[n] for n in part}, dtype)
            files.update({name: file for name in part})
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))

    def save_adapter(self, folder):
        """The flags with which it is found."""
        if not self.adapter:
            return []
        apart = folder / "adapter" if self.flag() else folder
        apart.mkdir(exist_ok=True)
        (apart / "adapter_config.json").write_text(json.dumps(self.adapter.config))
        self.shard(apart / "adapter_model.safetensors", self.adapter.tensors,
                   self.r.choice(("F32", "F16", "BF16")))
        return [] if apart == folder else [f"--adapter={apart}"]


def run(*command):
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True)
    return done.returncode, done.stdout, done.stderr


def check(draw, folder, dtype):
    """What is wrong, or nothing: with logits of whole texts, and with tokens one by one."""
    shutil.rmtree(folder, ignore_errors=True)
    data, plan = folder / "data", folder / "p.plan"
    data.mkdir(parents=True)
    draw.save(folder, dtype)
    flags = draw.save_adapter(folder)
    ids = draw.rng.integers(0, draw.vocabulary, (2, 37))
    for kind, array, name in (("input", ids, "input_ids"),
                              ("output", draw.logits(ids).astype(np.float32), "logits")):
        tensor = numpy_helper.from_array(array, name)
        (data / f"{kind}_0.pb").write_bytes(tensor.SerializeToString())
    for command in (("gpt2c", folder, "-o", plan, "--gpu-arch=none", "--verify=off", *flags),
                    ("gpt2c-run", plan, "--device=cpu", f"--test-data={data}", "--rtol=2e-5")):
        code, out, errors = run(*command)
        if code:
            return out + errors
    prompt = ids[0, :9].tolist()
    code, out, errors = run("gpt2c-run", plan, "--device=cpu", "-n", 9, "--ignore-eos",
                            "--ids=" + ",".join(map(str, prompt)), "--output=ids")
    if code:
        return errors
    answer = [int(i) for i in out.split(",")]
    rows = draw.logits([prompt + answer])[0][len(prompt) - 1:-1]
    behind = rows.max(-1) - rows[np.arange(len(answer)), answer]
    if len(answer) != 9 or behind.max() > 1e-4 * np.abs(rows).max():
        return f"the tokens {answer} are {behind} behind the best"
    return ""


def main():
    count, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    failed = 0
    for i in range(count):
        family = FAMILIES[i % len(FAMILIES)]
        draw = Draw(family, seed * 10007 + i)
        dtype = draw.r.choice(("F32", "F16", "BF16"))
        wrong = check(draw, pathlib.Path("draw"), dtype)
        if wrong:
            failed += 1
            print(f"FAIL: draw {i} of seed {seed}, {family}, {dtype}: {wrong}\n{draw.c}\n"
                  f"{draw.adapter and draw.adapter.config}")
    print(f"{count} draws, {failed} of them wrong")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
