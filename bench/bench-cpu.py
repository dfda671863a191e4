#!/usr/bin/env python3
"""bench-cpu.py FOLDER WORK: the CPU device beside ONNX Runtime, in one run.

FOLDER is a checkpoint (config.json, safetensors) of a Llama-like model. WORK keeps what is made of
it once: an export with past keys and values for ONNX Runtime, and our plans in fp32, bf16, w8a16
and w8a8. Each round measures every one of them, so that all see the machine as it is; the table has
the least time of the rounds, ms, and ours divided by ONNX Runtime's of the same round, the median.
Needs gpt2c and gpt2c-bench in PATH, and torch, transformers, onnxscript and onnxruntime."""
import argparse
import csv
import io
import pathlib
import statistics
import subprocess
import time

import numpy as np

CASES = {"1 sequence": (1, 1, 32), "8 sequences": (8, 1, 32), "prompt of 32": (1, 32, 0),
         "prompt of 512": (1, 512, 0)}  # sequences, new tokens, tokens before
PLANS = {"fp32": ["--precision=fp32"], "bf16": ["--precision=bf16"], "w8a16": ["--quantize=w8a16"],
         "w8a8": ["--quantize=w8a8"]}


def export(folder, path):
    """The model as ONNX: ids, then keys and values of each layer; logits, then those behind it."""
    import torch
    from transformers import AutoModelForCausalLM, DynamicCache
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    config = model.config
    dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads

    class Step(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, ids, *past):
            cache = DynamicCache()
            for layer in range(len(past) // 2):
                cache.update(past[2 * layer], past[2 * layer + 1], layer)
            out = self.model(input_ids=ids, past_key_values=cache, use_cache=True)
            layers = out.past_key_values.layers
            return (out.logits, *(t for layer in layers for t in (layer.keys, layer.values)))

    past = tuple(torch.randn(2, config.num_key_value_heads, 5, dim)
                 for _ in range(2 * config.num_hidden_layers))
    names = [f"past{i}" for i in range(len(past))]
    dynamic = torch.export.Dim.DYNAMIC
    torch.onnx.export(Step(), (torch.arange(6).reshape(2, 3), *past), str(path), dynamo=True,
                      opset_version=18, input_names=["ids", *names], external_data=True,
                      output_names=["logits", *("next" + n for n in names)],
                      dynamic_shapes=({0: dynamic, 1: dynamic},
                                      tuple({0: dynamic, 2: dynamic} for _ in past)))


def peer(path, threads):
    """A function that gives the least ms of a case in ONNX Runtime."""
    import onnxruntime
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])

    def measure(case, runs):
        batch, tokens, before = case
        feeds = {"ids": np.full((batch, tokens), 5, np.int64)}
        for given in session.get_inputs()[1:]:
            _, heads, _, dim = given.shape
            feeds[given.name] = np.random.randn(batch, heads, before, dim).astype(np.float32)
        best = float("inf")
        for _ in range(runs):
            start = time.perf_counter()
            session.run(None, feeds)
            best = min(best, time.perf_counter() - start)
        return best * 1e3
    return measure


def ours(plan, case, runs, threads):
    batch, tokens, before = case
    what = ["-p", "0", "-d", str(before), "-n", "1"] if before else ["-d", "0", "-p", str(tokens)]
    text = subprocess.run(["gpt2c-bench", plan, "--device=cpu", f"--threads={threads}", "-b",
                           str(batch), *what, "-r", str(runs), "-o", "csv",
                           "--skip-weight-checksum"], check=True, capture_output=True, text=True)
    return float(next(csv.DictReader(io.StringIO(text.stdout)))["ms"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    model = args.work / "past" / "model.onnx"
    if not model.exists():
        model.parent.mkdir(parents=True, exist_ok=True)
        export(args.folder, model)
    for name, flags in PLANS.items():
        if not (args.work / f"{name}.plan").exists():
            subprocess.run(["gpt2c", args.folder, "-o", args.work / f"{name}.plan", "--max-batch=8",
                            "--gpu-arch=none", "--verify=off", *flags],
                           check=True)
    other = peer(model, args.threads)
    print("| | ONNX Runtime | " + " | ".join(PLANS) + " |\n|---|---:|" + "---:|" * len(PLANS))
    for what, case in CASES.items():
        runs = 3
        rounds = [[other(case, runs)] + [ours(args.work / f"{name}.plan", case, runs, args.threads)
                                         for name in PLANS] for _ in range(args.rounds)]
        cells = [f"{min(r[0] for r in rounds):.1f}"]
        for i in range(1, len(PLANS) + 1):
            ratio = statistics.median(r[i] / r[0] for r in rounds)
            cells.append(f"{min(r[i] for r in rounds):.1f} ({ratio:.2f})")
        print(f"| {what} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
