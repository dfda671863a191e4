#!/usr/bin/env python3
"""Times gpt2c and the PyTorch peer in one run on one machine and prints the joint table in Markdown.

    bench-peers.py PEERS [--size=gpt2|gpt2-medium|gpt2-large|gpt2-xl] [--batches=1,8,32] [--precision=fp16,fp32,w8a16]
                   [--mode=default] [--work=DIR] [--log=FILE] [gpt2c flags ...]

A precision that is neither fp16 nor fp32 is one of gpt2c --quantize, over fp16; the peer has none of them.
PEERS is a folder with torch_gpt2.py, which prints a JSON line for each measurement. Both sides have random weights of
the same shape, 512 tokens in the KV state when decode starts, and the greedy choice in the step. gpt2c, gpt2c-bench and
PyTorch are found as the shell finds them. Needs a GPU; numpy and onnx for the model (scripts/make-model.py).

The floor is what the fewest bytes and operations take at the peak that gpt2c-bench measures in the same run.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import time

DEPTH, STEPS = 512, 32
PEER_DTYPES = {"fp16": "torch.float16", "fp32": "torch.float32"}


def progress(text):
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def run(command, log):
    progress(" ".join(map(str, command)))
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if log:
        log.write(f"$ {' '.join(map(str, command))}\n{done.stderr}{done.stdout}\n")
        log.flush()
    if done.returncode:
        sys.exit(f"exit code {done.returncode}: {' '.join(map(str, command))}\n{done.stderr[-4000:]}")
    return done.stdout


def prompts_of(batch):
    """The prompt lengths that the peer measures for a batch."""
    return [128, 512, 1024] if batch == 1 else [512] if batch <= 32 else []


def ours(args, precision, model, log):
    """(rows by workload, peak) of gpt2c-bench."""
    plan = args.work / f"{args.size}-{precision}.plan"
    start = time.time()
    flags = [f"--precision={precision}"]
    if precision not in PEER_DTYPES:
        flags = ["--precision=fp16", f"--quantize={precision}"]
    run(["gpt2c", model, "-o", plan, *flags, "--gpu-arch=native",
         f"--max-batch={max(args.batches)}", *args.flags], log)
    progress(f"compiled in {time.time() - start:.1f} s")
    rows, peak = {}, {}
    for batch in args.batches:
        lengths = ",".join(map(str, prompts_of(batch))) or "0"
        out = json.loads(run(["gpt2c-bench", plan, "--device=cuda", "-b", batch, "-p", lengths, "-d", DEPTH,
                              "-n", STEPS, "-r", 15, "-o", "json"], log))
        peak = out["peak"]
        for row in out["rows"]:
            rows[row["kind"], row["batch"], row["tokens"]] = row
    plan.unlink()
    return rows, peak


def peers(args, log):
    """Milliseconds by (dtype, kind, batch, tokens)."""
    out = run([sys.executable, args.peers / "torch_gpt2.py", "--model", args.size, "--mode", args.mode, "--batches",
               ",".join(map(str, args.batches))], log)
    times = {}
    for line in out.splitlines():
        if not line.startswith("{"):
            continue
        m = json.loads(line)
        kind, tokens = ("decode", DEPTH) if m["what"].startswith("decode") else ("prefill", m["prompt"])
        times[m["dtype"], kind, m["batch"], tokens] = m["ms"]
    return times


def floor_of(row, peak):
    seconds = row["bytes"] / peak["bytes_per_second"]
    if peak["flops_per_second"]:
        seconds = max(seconds, row["flops"] / peak["flops_per_second"])
    return seconds * 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", type=pathlib.Path)
    parser.add_argument("--size", default="gpt2")
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--precision", default="fp16,fp32")
    parser.add_argument("--mode", default="default")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--log", type=argparse.FileType("w"))
    args, args.flags = parser.parse_known_args()
    args.batches = [int(b) for b in args.batches.split(",")]
    args.work.mkdir(parents=True, exist_ok=True)

    model = args.work / f"{args.size}.onnx"
    if not model.exists():
        run([sys.executable, pathlib.Path(__file__).parent / "make-model.py", model, f"--size={args.size}"], args.log)
    measured = [(precision, *ours(args, precision, model, args.log)) for precision in args.precision.split(",")]
    peer = peers(args, args.log)

    print(f"{args.size}, milliseconds, medians; decode with {DEPTH} tokens in the KV state, {STEPS} steps a sample. Peer: "
          f"torch.compile (mode {args.mode}), {STEPS} steps in one CUDA graph\n")
    print("| workload | gpt2c | p90 | peer | ratio | floor | of the floor |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for precision, rows, peak in measured:
        for (kind, batch, tokens), row in rows.items():
            ms, floor = row["median_ms"], floor_of(row, peak)
            other = peer.get((PEER_DTYPES.get(precision), kind, batch, tokens))
            workload = f"{kind} {precision} b{batch}" + (f" x {tokens}" if kind == "prefill" else "")
            cells = [f"{ms:.3f}", f"{row['p90_ms']:.3f}", f"{other:.3f}" if other else "-",
                     f"{other / ms:.2f}" if other else "-", f"{floor:.3f}", f"{100 * floor / ms:.0f} %"]
            print(f"| {workload} | {' | '.join(cells)} |")
    for precision, _, peak in measured:
        print(f"\npeak, {precision}: {peak['bytes_per_second'] / 1e12:.2f} TB/s, "
              f"{peak['flops_per_second'] / 1e12:.0f} TFLOP/s ({peak['note']})")


if __name__ == "__main__":
    main()
