#!/usr/bin/env python3
"""Small checkpoints with weights of a few bits as the tools of GPTQ and AWQ save them, and in fp8
with a scale for each block, with random numbers, and in wide/ the same model with the floats that
they stand for, (q - z) s in float32.

    make_packed.py tests/data/checkpoints/llama tests/data/packed

Needs numpy. Everything but the products of the layers is the given checkpoint's.
"""
import json
import pathlib
import struct
import sys

import numpy as np

GROUP = 8
PRODUCTS = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
            "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # which of eight outputs each field of a word holds
NAMES = {np.dtype(np.float32): "F32", np.dtype(np.float16): "F16", np.dtype(np.int32): "I32",
         np.dtype(np.uint8): "F8_E4M3"}
GPTQ = {"quant_method": "gptq", "group_size": GROUP, "damp_percent": 0.01, "desc_act": False,
        "sym": False, "true_sequential": True, "checkpoint_format": "gptq"}
FOLDERS = {
    "gptq": {**GPTQ, "bits": 4},
    "gptq-order": {**GPTQ, "bits": 4, "desc_act": True, "checkpoint_format": "gptq_v2"},
    "gptq-8": {**GPTQ, "bits": 8, "sym": True},
    "awq": {"quant_method": "awq", "bits": 4, "group_size": GROUP, "version": "gemm",
            "zero_point": True, "modules_to_not_convert": None},
    "fp8": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
            "weight_block_size": [10, 16], "modules_to_not_convert": ["lm_head"]},
}


def read(path):
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(data[8 + size + e["data_offsets"][0]:
                                     8 + size + e["data_offsets"][1]], np.float32)
            .reshape(e["shape"]) for name, e in header.items()}


def write(path, tensors):
    header, data = {}, b""
    for name, t in sorted(tensors.items(), key=lambda e: (-e[1].itemsize, e[0])):
        header[name] = {"dtype": NAMES[t.dtype], "shape": list(t.shape),
                        "data_offsets": [len(data), len(data) + t.nbytes]}
        data += t.tobytes()
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def packed(values, bits, order=None):
    """Words of the fields along the last axis."""
    each = 32 // bits
    fields = values.astype(np.uint64).reshape(*values.shape[:-1], -1, each)
    if order:
        fields = fields[..., order]
    words = (fields << (np.arange(each, dtype=np.uint64) * np.uint64(bits))).sum(-1)
    return words.astype(np.uint32).view(np.int32)


def quantised(rng, out, of, config):
    """The tensors of a module, whose inputs are of these groups, and what its weight stands for."""
    inputs, bits = len(of), config["bits"]
    groups = inputs // GROUP
    q = rng.integers(0, 1 << bits, (inputs, out))
    z = rng.integers(1, 1 << bits, (groups, out))
    z[0, 0] = (1 << bits) - 1
    if config.get("sym"):
        z[:] = 1 << (bits - 1)
    s = (rng.uniform(0.5, 1.5, (groups, out)) / (1 << bits)).astype(np.float16)
    wide = (q - z[of]).astype(np.float32) * s[of].astype(np.float32)
    if config["quant_method"] == "awq":
        return {"qweight": packed(q, bits, AWQ_ORDER), "qzeros": packed(z, bits, AWQ_ORDER),
                "scales": s}, wide.T.copy()
    if config["checkpoint_format"] == "gptq":
        if bits == 4:  # this format reaches one further
            z[0, 1] = 16
            wide[of == 0, 1] = (q[of == 0, 1] - 16).astype(np.float32) * np.float32(s[0, 1])
        z = z - 1
    words = packed(q.T.copy(), bits).T.copy()
    return {"qweight": words, "qzeros": packed(z, bits), "scales": s,
            "g_idx": of.astype(np.int32)}, wide.T.copy()


def e4m3(bits):
    """The floats of bytes s eeee mmm."""
    exponent, part = (bits >> 3 & 15).astype(np.int32), (bits & 7).astype(np.float32) / 8
    size = np.where(exponent > 0, np.ldexp(1 + part, exponent - 7), np.ldexp(part, -6))
    return np.where(bits & 128, -size, size).astype(np.float32)


def blocks(rng, out, inputs, config):
    """The same in fp8; blocks at the ends of rows and columns are smaller."""
    rows, columns = config["weight_block_size"]
    q = rng.integers(0, 256, (out, inputs)).astype(np.uint8)
    q[q & 127 == 127] = 0  # no number
    s = rng.uniform(0.5, 1.5, (-(-out // rows), -(-inputs // columns))).astype(np.float32) / 448
    of = s[np.arange(out)[:, None] // rows, np.arange(inputs)[None] // columns]
    return {"weight": q, "weight_scale_inv": s}, e4m3(q) * of


def checkpoint(source, folder, config, rng):
    tensors, wide, shapes = {}, {}, {}
    for name, t in read(source / "model.safetensors").items():
        if ".layers.1." in name:
            continue
        module = name.removesuffix(".weight")
        if module.split(".", 3)[-1] in PRODUCTS:
            shapes[module] = t.shape
        else:
            tensors[name] = wide[name] = t
    orders = {}  # of what several modules read
    for module, (out, inputs) in shapes.items():
        part = module.split(".")[-1]
        same = {"q_proj": "x", "k_proj": "x", "v_proj": "x", "gate_proj": "y", "up_proj": "y"}
        of = np.arange(inputs) // GROUP
        if config.get("desc_act"):
            of = orders.setdefault(same.get(part, part), rng.permutation(of))
        parts, w = (blocks(rng, out, inputs, config) if config["quant_method"] == "fp8" else
                    quantised(rng, out, of, config))
        tensors.update({f"{module}.{part}": t for part, t in parts.items()})
        wide[module + ".weight"] = w
    base = json.loads((source / "config.json").read_text())
    base["num_hidden_layers"] = 1
    write(folder / "model.safetensors", tensors)
    write(folder / "wide/model.safetensors", wide)
    (folder / "wide/config.json").write_text(json.dumps(base, indent=2) + "\n")
    base["quantization_config"] = config
    (folder / "config.json").write_text(json.dumps(base, indent=2) + "\n")


if __name__ == "__main__":
    for number, (name, config) in enumerate(FOLDERS.items()):
        checkpoint(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]) / name, config,
                   np.random.default_rng(number))
