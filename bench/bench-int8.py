#!/usr/bin/env python3
"""One prompt, 30 tokens: what int8 does to a reply, beside fp32 and fp16. Prints a table in
Markdown.

    bench-int8.py [--size=gpt2|gpt2-medium|gpt2-large|gpt2-xl] [--plans=fp32,fp16,w8a16,w8a8]
        [--ids=15496,11,...]
                  [--tokens=30] [--samples=10] [--device=cuda|cpu] [--work=DIR] [--make] [gpt2c
                  flags ...]

The prompt is "Hello, I'm a language model," in the ids of GPT-2's tokenizer, one sequence, random
weights of the model's shape. A plan that is neither fp32 nor fp16 is one of gpt2c --quantize, over
fp16. The time to the first token is that of the prompt; the other tokens are decode steps of the
device, and once more as steps of a caller who reads each token before asking for the next. Medians.
Model and plans that are in DIR are used again; --make only makes them. gpt2c and gpt2c-bench are
found as the shell finds them; numpy and onnx make the model.
"""
import argparse
import json
import pathlib
import subprocess
import sys

HELLO = "15496,11,314,1101,257,3303,2746,11"


def run(*command):
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True)
    if done.returncode:
        words = " ".join(map(str, command))
        sys.exit(f"exit code {done.returncode}: {words}\n{done.stderr[-4000:]}")
    return done.stdout


def make(args, name, model):
    flags = [f"--precision={name}"]
    if name not in ("fp32", "fp16"):
        flags = ["--precision=fp16", f"--quantize={name}"]
    plan = args.work / f"{args.size}-{name}.plan"
    if not plan.exists():
        run("gpt2c", model, "-o", plan, "--max-batch=1",
            f"--gpu-arch={'native' if args.device == 'cuda' else 'none'}",
            *flags, *args.flags)
    return plan


def measure(args, plan):
    """(bytes of the plan, bytes on the device, milliseconds to the first token, between tokens,
    between tokens read)"""
    prompt = len(args.ids.split(","))
    out = json.loads(run("gpt2c-bench", plan, f"--device={args.device}", "-b", 1, "-p", prompt,
                         "-d", prompt,
                         "-n", args.tokens - 1, "-r", args.samples, "--skip-weight-checksum", "-o",
                         "json"))
    rows = {row["kind"]: row for row in out["rows"]}
    return (plan.stat().st_size, out["device_bytes"], rows["prefill"]["median_ms"],
            rows["decode"]["median_ms"],
            rows["decode"]["time_between_tokens_ms"]["median"])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="gpt2")
    parser.add_argument("--plans", default="fp32,fp16,w8a16,w8a8")
    parser.add_argument("--ids", default=HELLO)
    parser.add_argument("--tokens", type=int, default=30)
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--make", action="store_true")
    args, args.flags = parser.parse_known_args()
    args.work.mkdir(parents=True, exist_ok=True)
    model = args.work / f"{args.size}.onnx"
    if not model.exists():
        run(sys.executable, pathlib.Path(__file__).parent / "make-model.py", model,
            f"--size={args.size}")

    plans = {name: make(args, name, model) for name in args.plans.split(",")}
    if args.make:
        return
    print(f"{args.size}, a prompt of {len(args.ids.split(','))} tokens, {args.tokens} new ones, "
          f"{args.device}\n")
    print("| plan | MB | on the device | first token, ms | between tokens, ms | all, ms | tokens/s "
          "| each token read: ms | tokens/s |")
    print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
    for name, plan in plans.items():
        size, held, first, step, read = measure(args, plan)
        cells = [f"{size / 1e6:.0f}", f"{held / 1e6:.0f}", f"{first:.3f}", f"{step:.4f}"]
        for between in (step, read):
            total = first + (args.tokens - 1) * between
            cells += [f"{total:.2f}", f"{1e3 * args.tokens / total:.0f}"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
