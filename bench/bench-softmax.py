#!/usr/bin/env python3
"""bench-softmax.py [--batch=8] [--lengths=512,1024] [--no-compile] [--plans=DIR]: the masked
softmax alone, gpt2c beside PyTorch, on one GPU.

For each mask a graph of scale, mask and softmax (make-softmax.py) is compiled at -O0, every node a
launch, and at -O2, one launch. PyTorch runs the same eagerly (mul, masked_fill, softmax), compiled,
and, as another thing that is close, its whole fused attention for heads of 64 (SDPA), which also
multiplies but never writes the probabilities. Times are of replayed CUDA graphs on the device's
clock, microseconds: the median of --repetitions for PyTorch, the mean of the middle half of them
for gpt2c. MB: the fewest that the launches must move; eager counts a read and a write of the scores
for each of its kernels (masked_fill copies, then fills).
--plans keeps the plans for a later run, which starts with those it finds there.
Needs gpt2c, gpt2c-run and gpt2c-bench in PATH, NVRTC, torch, onnx and numpy.
"""
import argparse
import concurrent.futures
import json
import os
import statistics
import subprocess
import sys
import tempfile

import torch

HEADS, LEVELS = 12, ("-O0", "-O2")


def compile_plan(folder, mask, precision, level, options):
    """A plan that agrees with the test data of its graph."""
    plan = f"{folder}/{mask}-{precision}{level}.plan"
    if os.path.exists(plan):
        return
    subprocess.run(["gpt2c", f"{folder}/{mask}/model.onnx", "-o", plan + ".unchecked",
                    "--gpu-arch=native", f"--precision={precision}", level,
                    f"--max-batch={options.batch}"], check=True, stderr=subprocess.DEVNULL)
    subprocess.run(["gpt2c-run", plan + ".unchecked",
                    f"--test-data={folder}/{mask}/test_data_set_0"], check=True,
                   stdout=subprocess.DEVNULL)
    os.rename(plan + ".unchecked", plan)


def compile_plans(folder, options):
    script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "make-softmax.py")
    for mask in options.masks:
        subprocess.run([sys.executable, script, f"{folder}/{mask}/model.onnx", f"--mask={mask}",
                        f"--heads={HEADS}"], check=True)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for done in [pool.submit(compile_plan, folder, mask, precision, level, options)
                     for mask in options.masks for precision in options.precisions
                     for level in LEVELS]:
            done.result()


def ours(folder, mask, precision, level, options):
    """{length: (us, MB, launches)}"""
    out = subprocess.run(["gpt2c-bench", f"{folder}/{mask}-{precision}{level}.plan", "-b",
                          str(options.batch),
                          "-p", ",".join(map(str, options.lengths)), "-r", str(options.repetitions),
                          "-o", "json", "--profile"],
                         check=True, stdout=subprocess.PIPE).stdout
    result = json.loads(out)
    launches = {p["tokens"]: len(p["steps"]) for p in result["profiles"]}
    return {r["tokens"]: (1e3 * r["device_ms"], r["bytes"] / 1e6, launches[r["tokens"]])
            for r in result["rows"]}


def replayed(f, repetitions):
    for _ in range(3):
        f()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        f()
    times = []
    for _ in range(3 + repetitions):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * begin.elapsed_time(end))
    return statistics.median(times[3:])


def peers(mask, precision, length, options):
    """(eager us, eager MB, compiled us, SDPA us)"""
    dtype = {"fp16": torch.float16, "fp32": torch.float32}[precision]
    x = torch.randn(options.batch, HEADS, length, length, device="cuda", dtype=dtype)
    hidden = None
    if mask == "causal":
        hidden = torch.ones(length, length, dtype=torch.bool, device="cuda").triu(1)
    elif mask == "padding":
        hidden = torch.zeros(options.batch, 1, 1, length, dtype=torch.bool, device="cuda")
        for b in range(options.batch):
            hidden[b, :, :, length - 37 * b:] = True

    def eager(x):
        scaled = x * 0.125
        return torch.softmax(scaled if hidden is None else scaled.masked_fill(hidden,
            float("-inf")), -1)

    kernels = 2 if hidden is None else 4
    mb = kernels * 2 * x.numel() * x.element_size() / 1e6
    time = replayed(lambda: eager(x), options.repetitions)
    compiled = None
    if options.compile:
        torch._dynamo.reset()
        function = torch.compile(eager)
        compiled = replayed(lambda: function(x), options.repetitions)
    q = torch.randn(options.batch, HEADS, length, 64, device="cuda", dtype=dtype)
    keep = ~hidden if mask == "padding" else None
    attention = lambda: torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=keep,
        is_causal=mask == "causal")
    return time, mb, compiled, replayed(attention, options.repetitions)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--lengths", type=lambda s: [int(v) for v in s.split(",")],
                        default=[512, 1024])
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--masks", type=lambda s: s.split(","),
                        default=["none", "causal", "padding"])
    parser.add_argument("--plans")
    parser.add_argument("--precisions", type=lambda s: s.split(","), default=["fp16", "fp32"])
    parser.add_argument("--no-compile", dest="compile", action="store_false")
    options = parser.parse_args()
    print(f"masked softmax, {options.batch} x {HEADS} heads, {torch.cuda.get_device_name()}, "
          f"PyTorch {torch.__version__}; us and MB\n")
    print("| | mask | S | eager | MB | compiled | SDPA | -O0 | MB | -O2 | MB | GB/s | eager / -O2 "
          "| less traffic |")
    print("|---|---|---:|" + "---:|" * 11, flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.plans or temporary
        compile_plans(folder, options)
        for precision in options.precisions:
            for mask in options.masks:
                plain, fused = (ours(folder, mask, precision, level, options) for level in LEVELS)
                for length in options.lengths:
                    eager, mb, compiled, sdpa = peers(mask, precision, length, options)
                    us, moved, launches = fused[length]
                    assert launches == 1, f"{launches} launches"
                    print(f"| {precision} | {mask} | {length} | {eager:.1f} | {mb:.0f} "
                          f"| {f'{compiled:.1f}' if compiled else '-'} | {sdpa:.1f} | "
                          f"{plain[length][0]:.1f} | {plain[length][1]:.0f} | {us:.1f} "
                          f"| {moved:.0f} | {1e3 * moved / us:.0f} | "
                          f"{eager / us:.2f} | {100 - 100 * moved / mb:.1f} % |", flush=True)


if __name__ == "__main__":
    main()
