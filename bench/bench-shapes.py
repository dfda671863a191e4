#!/usr/bin/env python3
"""Decoders of the shapes that people run, random weights: decode steps and prompts beside their
floor, and PyTorch on the same GPU in the same run. Prints a table in Markdown.

    bench-shapes.py [--shapes=NAME,.. | all] [--random=N --seed=N [--normed] [--weights=2.5]]
        [--batches=1,8,32] [--prompts=1x512,8x512] [--context=512] [--precision=fp16]
        [--quantize=w8a16,..] [--peer] [--estimates] [--samples=7] [--jobs=4] [--work=DIR]
        [gpt2c flags ...]

--random draws N shapes: 4 to 40 layers, widths from 256 to 4096, any number of heads, ratio of
heads to keys, MLP and vocabulary, at most --weights billion weights, with --normed with norms of
queries and keys. Each shape is compiled as it is and with each --quantize. The floor is that of an
H200: weights and keys once at 4.6 TB/s, or operations at 880 TFLOP/s, whichever is longer; weights
of a quantised plan count a byte. --peer: PyTorch, compiled, with a static KV state and its fastest
attention, weights in the precision of the first plan. --estimates: what gpt2c-dump --estimates has
for them, and how far that is off. A decode step is the time of 64 greedy ones divided by 64, the
choice included. Models and plans in DIR are used again; gpt2c and gpt2c-bench
are found as the shell finds them. Needs numpy and onnx, for --peer PyTorch.
"""
import argparse
import concurrent.futures
import json
import pathlib
import random
import re
import statistics
import subprocess
import sys
import time

from common import sibling

BANDWIDTH, RATE = 4.6e12, 880e12  # bytes and fp16 operations a second

# As those of bench-decoder.py: layers, width, hidden, heads, heads of keys, vocabulary, elements of
# a head, whether the vocabulary is tied, whether queries and keys are normed by heads.
SHAPES = {"smollm2-135m": (30, 576, 1536, 9, 3, 49152, 64, True),
          "qwen2.5-0.5b": (24, 896, 4864, 14, 2, 151936, 64, True),
          "qwen3-0.6b": (28, 1024, 3072, 16, 8, 151936, 128, True, True),
          "tinyllama-1.1b": (22, 2048, 5632, 32, 4, 32000, 64, False),
          "llama-3.2-1b": (16, 2048, 8192, 32, 8, 128256, 64, True),
          "llama-3.2-3b": (28, 3072, 8192, 24, 8, 128256, 128, True),
          "llama-3-8b": (32, 4096, 14336, 32, 8, 128256, 128, False)}


def drawn(rng, normed, most):
    """A shape of at most `most` billion weights, by its name."""
    while True:
        size = rng.choice((64, 64, 80, 96, 128, 128, 256))
        shared = rng.randint(1, 16)
        heads = shared * rng.choice((1, 1, 2, 3, 4, 6, 7, 8))
        layers, width = rng.randint(4, 40), 8 * rng.randint(32, 512)
        hidden = 8 * round(width * rng.uniform(2, 5.5) / 8)
        vocabulary = 256 * rng.randint(32, 1000)
        shape = (layers, width, hidden, heads, shared, vocabulary, size, rng.random() < 0.5,
                 normed)
        if 0.5 <= heads * size / width <= 2 and weights_of(shape) < 1e9 * most:
            name = f"{layers}x{width}-{heads}of{size}on{shared}-{hidden}-{vocabulary}"
            return name + ("-normed" if normed else ""), shape


def layer_weights(shape):
    _, width, hidden, heads, shared, _, size = shape[:7]
    return width * size * (2 * heads + 2 * shared) + 3 * width * hidden


def weights_of(shape):
    return shape[0] * layer_weights(shape) + shape[1] * shape[5] * (1 if shape[7] else 2)


def decode_floor(shape, batch, context, bytes_of_weight, bytes_of_number):
    layers, width, _, _, shared, vocabulary, size = shape[:7]
    read = (layers * layer_weights(shape) + width * vocabulary) * bytes_of_weight
    return (read + batch * 2 * layers * shared * size * context * bytes_of_number) / BANDWIDTH


def prefill_floor(shape, batch, tokens, bytes_of_weight):
    layers, width, _, heads, _, vocabulary, size = shape[:7]
    products = 2 * layers * layer_weights(shape) * batch * tokens + 2 * width * vocabulary * batch
    attention = 2 * layers * heads * size * batch * tokens * tokens
    read = (layers * layer_weights(shape) + width * vocabulary) * bytes_of_weight
    return max((products + attention) / RATE, read / BANDWIDTH)


def run(*command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {' '.join(map(str, command))}\n"
                           f"{done.stderr[-2000:]}")
    return done.stdout


def model_of(args, name, shape, decoder):
    """(path, weights by name) of the shape's model; weights are those of a new one."""
    path, maker = args.work / f"{name}-{args.positions}.onnx", sibling("make-model.py")
    with open(path.with_suffix(".data"), "wb") as external:
        g = maker.Graph(decoder.np.random.default_rng(1), external)
        weights, constant = {}, g.constant
        g.constant = lambda key, array: (weights.update({key: array}), constant(key, array))[1]
        decoder.onnx.save(decoder.Decoder(g, shape, args.positions).build(), path)
    return path, weights


def plan_of(args, name, scheme):
    return args.work / f"{name}-{args.precision}{'-' + scheme if scheme else ''}.plan"


def compiled(args, name, model, scheme):
    """(plan, seconds); 0 seconds for one that was there."""
    plan = plan_of(args, name, scheme)
    if plan.exists():
        return plan, 0
    begin, quantise = time.time(), [f"--quantize={scheme}"] if scheme else []
    run("gpt2c", model, "-o", plan, "--gpu-arch=native", f"--precision={args.precision}",
        f"--max-batch={max(args.batches + [b for b, _ in args.prompts])}",
        f"--max-context={args.positions}", "--tokenizer=none", "--verify=off", *quantise,
        *args.flags)
    return plan, time.time() - begin


def times_of(args, plan):
    """Milliseconds by ("decode", batch) and ("prefill", batch, tokens)."""
    def rows(*flags):
        out = run("gpt2c-bench", plan, "--device=cuda", "-r", args.samples,
                  "--skip-weight-checksum", "-o", "json", *flags)
        return json.loads(out)["rows"]

    times = {}
    for row in rows("-b", ",".join(map(str, args.batches)), "-p", args.context, "-d", args.context):
        if row["kind"] == "decode":
            times["decode", row["batch"]] = row["median_ms"]
    for batch, tokens in args.prompts:
        for row in rows("-b", batch, "-p", tokens, "-d", 0):
            if row["kind"] == "prefill":
                times["prefill", batch, tokens] = row["median_ms"]
    return times


def estimates_of(plan):
    """Milliseconds by the keys of times_of(), where a version ends at just that many rows."""
    out = run("gpt2c-dump", plan, "--skip-weight-checksum", "--estimates")
    times = {}
    versions = r"^@(decode|prefill) up to (\d+) sequences? of (\d+) tokens?: ([\d.]+) us$"
    for kind, batch, tokens, us in re.findall(versions, out, re.M):
        key = ("decode", int(batch)) if kind == "decode" else ("prefill", int(batch), int(tokens))
        times[key] = float(us) / 1e3
    # A step of one kernel is taken in front of launches.
    for batch, us in re.findall(r"^@generate of up to (\d+) seq.*\((\d+) us\)", out, re.M):
        times["decode", int(batch)] = float(us) / 1e3
    return times


def peer_times(args, weights, shape, decoder):
    """The same of PyTorch."""
    import torch
    options = argparse.Namespace(precision=args.precision, device="cuda", prompt=args.context,
                                 tokens=args.positions - args.context)
    peer, times = decoder.Torch(options, weights, shape), {}

    def median(call, count):
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        samples = []
        for _ in range(args.samples):
            begin = time.perf_counter()
            for _ in range(count):
                call()
            torch.cuda.synchronize()
            samples.append((time.perf_counter() - begin) / count)
        return 1e3 * statistics.median(samples)

    cases = [("decode", batch) for batch in args.batches] + [("prefill", *p) for p in args.prompts]
    for case in cases:
        torch.compiler.reset()
        step = torch.compile(peer.static, mode="reduce-overhead", fullgraph=True, dynamic=False)
        batch, tokens = case[1], case[2] if case[0] == "prefill" else 1
        state = peer.empty_state(batch, args.positions)
        ids = torch.zeros((batch, tokens), dtype=torch.int64, device="cuda")
        first = 0 if case[0] == "prefill" else args.context
        positions = peer.rows[first:first + tokens]
        times[case] = median(lambda: step(ids, positions, state), 64 if tokens == 1 else 1)
    return times


def cell(ours, floor, peer, estimate):
    if ours is None:
        return "-"
    text = f"{ours:.3f} ({1e5 * floor / ours:.0f} %"
    text += f", {peer:.3f}" if peer else ""
    return text + (f", est. {estimate:.3f})" if estimate else ")")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shapes", default="all")
    parser.add_argument("--random", type=int, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--normed", action="store_true")
    parser.add_argument("--weights", type=float, default=2.5)
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--prompts", default="1x512,8x512")
    parser.add_argument("--context", type=int, default=512)
    parser.add_argument("--precision", choices=("fp16", "bf16", "fp32"), default="fp16")
    parser.add_argument("--quantize", default="")
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--estimates", action="store_true")
    parser.add_argument("--samples", type=int, default=7)
    parser.add_argument("--jobs", type=int, default=4)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("."))
    args, args.flags = parser.parse_known_args()
    args.batches = [int(b) for b in args.batches.split(",") if b]
    args.prompts = [tuple(map(int, p.split("x"))) for p in args.prompts.split(",") if p]
    args.positions = max([args.context] + [tokens for _, tokens in args.prompts]) + 576
    args.work.mkdir(parents=True, exist_ok=True)
    names = [n for n in (SHAPES if args.shapes == "all" else args.shapes.split(",")) if n]
    if unknown := set(names) - set(SHAPES):
        parser.error(f"no shape '{min(unknown)}': {', '.join(SHAPES)}")
    rng = random.Random(args.seed)
    shapes = {n: SHAPES[n] for n in names}
    shapes |= dict(drawn(rng, args.normed, args.weights) for _ in range(args.random))
    decoder, schemes = sibling("bench-decoder.py"), ["", *filter(None, args.quantize.split(","))]

    def prepare(name):
        plans = {scheme: (plan_of(args, name, scheme), 0) for scheme in schemes}
        if not args.peer and all(plan.exists() for plan, _ in plans.values()):
            return plans, None
        model, weights = model_of(args, name, shapes[name], decoder)
        plans = {scheme: compiled(args, name, model, scheme) for scheme in schemes}
        return plans, weights if args.peer else None

    columns = [f"decode b{b}" for b in args.batches] + [f"{b} x {t}" for b, t in args.prompts]
    print(f"{args.precision}, context {args.context}: ms (share of the floor"
          f"{', PyTorch' if args.peer else ''}{', estimate' if args.estimates else ''})\n")
    print(f"| shape | compile s | {' | '.join(columns)} |")
    print("|---|---:|" + "---:|" * len(columns), flush=True)
    failed, errors = False, []
    number = 4 if args.precision == "fp32" else 2
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for name, job in [(n, pool.submit(prepare, n)) for n in shapes]:
            shape = shapes[name]
            try:
                plans, weights = job.result()
                peer = peer_times(args, weights, shape, decoder) if args.peer else {}
                for scheme, (plan, seconds) in plans.items():
                    ours, weight = times_of(args, plan), 1 if scheme else number
                    estimates = estimates_of(plan) if args.estimates else {}
                    floors = {("decode", b): decode_floor(shape, b, args.context, weight, number)
                              for b in args.batches}
                    floors |= {("prefill", b, t): prefill_floor(shape, b, t, weight)
                               for b, t in args.prompts}
                    cells = [cell(ours.get(key), floor, peer.get(key), estimates.get(key))
                             for key, floor in floors.items()]
                    errors += [abs(estimates[key] / ours[key] - 1) for key in floors
                               if key in estimates and ours.get(key)]
                    print(f"| {name} {scheme} | {seconds:.1f} | {' | '.join(cells)} |", flush=True)
            except RuntimeError as error:
                print(f"{name}: {error}", file=sys.stderr)
                failed = True
    if errors:
        print(f"\n{len(errors)} estimates: median error {1e2 * statistics.median(errors):.1f} %, "
              f"worst {1e2 * max(errors):.0f} %")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
