#!/usr/bin/env python3
"""Times gpt2c and the PyTorch peer in one run on one machine, checks the plans it times, and prints
both as Markdown.

    bench-peers.py PEERS [--size=gpt2|gpt2-medium|gpt2-large|gpt2-xl|llama-3.2-1b]
                   [--batches=1,8,32] [--precision=fp16,fp32,bf16,w8a16] [--mode=default]
                   [--work=DIR] [--log=FILE]
                   [--no-peer | --peer-limit=SECONDS] [--peer-jobs=N] [gpt2c flags ...]

A precision that is neither fp16, fp32 nor bf16 is one of gpt2c --quantize, over fp16; the peer has
fp16 and fp32. PEERS is a folder with torch_gpt2.py and torch_llama.py, which print a JSON line for
each measurement. Both sides have random weights of the same shape, 512 tokens in the KV state when
decode starts, and the greedy choice in the step. gpt2c, gpt2c-bench and PyTorch are found as the
shell finds them. Needs a GPU; numpy and onnx for the model (bench/make-model.py, and for a Llama
bench-decoder.py). Plans that are in DIR already, as SIZE-PRECISION.plan, are used as they are.

PyTorch compiles for minutes what it measures in seconds. With --peer-jobs N processes compile side
by side, in fp16, and measure one after the other (bench/peer-locked.py).

The floor is what the fewest bytes and operations take at the peak that gpt2c-bench measures in the
same run.

Every plan of a GPT-2 is checked against the model in float64, in NumPy: the logits of a prompt, by
norm(difference) / norm(logits), and the tokens it generates. Weights are random and the best two
tokens often nearly equal: the table has the smallest lead over the second, in logits, up to the
first token that differs.
"""
import argparse
import concurrent.futures
import functools
import json
import pathlib
import subprocess
import sys
import time

from common import progress, sibling

DEPTH, STEPS = 512, 32
CONTEXT = 1088  # of a Llama
PROMPT, GENERATED = 48, 16  # of the check
PEER_DTYPES = {"fp16": "torch.float16", "fp32": "torch.float32", "bf16": None}


def run(command, log, limit=None):
    progress(" ".join(map(str, command)))
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=limit)
    if log:
        log.write(f"$ {' '.join(map(str, command))}\n{done.stderr}{done.stdout}\n")
        log.flush()
    if done.returncode:
        words = " ".join(map(str, command))
        sys.exit(f"exit code {done.returncode}: {words}\n{done.stderr[-4000:]}")
    return done.stdout


def prompts_of(batch):
    """The prompt lengths that the peer measures for a batch."""
    return [128, 512, 1024] if batch == 1 else [512] if batch <= 32 else []


def layers_of(weights):
    return 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("h."))


@functools.cache
def reference(model):
    """(prompt, logits of all its tokens, greedy tokens after it, lead of each over the second) in
    float64."""
    import numpy as np
    import onnx

    initializers = {t.name: onnx.numpy_helper.to_array(t)
                    for t in onnx.load(model).graph.initializer}
    w = {name: a.astype(np.float64) for name, a in initializers.items() if a.dtype == np.float32}
    heads = next(a[2] for name, a in initializers.items() if name.startswith("ints_")
                 and a.shape == (4,))

    def norm(x, name):
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5)
        return x * w[name + ".weight"] + w[name + ".bias"]

    def linear(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    def gelu(x):
        return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))

    def logits(ids):
        n = len(ids)
        x = w["wte.weight"][ids] + w["wpe.weight"][:n]
        hidden = np.triu(np.ones((n, n), bool), 1)
        for i in range(layers_of(w)):
            h = f"h.{i}."
            q, k, v = (t.reshape(n, heads, -1).transpose(1, 0, 2)
                       for t in np.split(linear(norm(x, h + "ln_1"), h + "attn.c_attn"), 3, -1))
            scores = np.where(hidden, -1e4, q @ k.transpose(0, 2, 1) / q.shape[-1] ** 0.5)
            p = np.exp(scores - scores.max(-1, keepdims=True))
            p /= p.sum(-1, keepdims=True)
            x = x + linear((p @ v).transpose(1, 0, 2).reshape(x.shape), h + "attn.c_proj")
            x = x + linear(gelu(linear(norm(x, h + "ln_2"), h + "mlp.c_fc")), h + "mlp.c_proj")
        return norm(x, "ln_f") @ w["wte.weight"].T

    ids = [i * 7919 % len(w["wte.weight"]) for i in range(PROMPT)]
    prompt, first, leads = list(ids), None, []
    for _ in range(GENERATED):
        y = logits(ids)
        first = y.astype(np.float32)[None] if first is None else first
        second, best = np.sort(y[-1])[-2:]
        leads.append(best - second)
        ids.append(int(y[-1].argmax()))
    return prompt, first, ids[PROMPT:], leads


def check(args, plan, model, log):
    """(norm(difference) / norm(logits), tokens that are equal, the least lead among them and the
    first that is not)."""
    import numpy as np
    import onnx

    prompt, logits, want, leads = reference(model)
    data = args.work / "reference"
    data.mkdir(exist_ok=True)
    for name, array in (("input_0", np.array([prompt], np.int64)), ("output_0", logits)):
        (data / f"{name}.pb").write_bytes(onnx.numpy_helper.from_array(array).SerializeToString())
    # Any difference passes here: it is the table that tells how large it is.
    report = run(["gpt2c-run", plan, "--device=cuda", f"--test-data={data}", "--rtol=1e9"], log)
    row = next(line for line in report.splitlines() if "PASS" in line or "FAIL" in line)
    error = float([cell for cell in row.replace("|", " ").split()
                   if cell not in ("PASS", "FAIL")][-1])
    got = run(["gpt2c-run", plan, "--device=cuda", "--ids=" + ",".join(map(str, prompt)), "-n",
               GENERATED, "--ignore-eos",
               "--output=ids"], log)
    got = [int(t) for t in got.replace(",", " ").split()]
    equal = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), len(want))
    return error, equal, min(leads[:equal + 1])


def write_model(args, model):
    scripts = pathlib.Path(__file__).parent
    if not args.llama:
        run([sys.executable, scripts / "make-model.py", model, f"--size={args.size}"], args.log)
        return
    maker = sibling("bench-decoder.py")
    maker.write_model(argparse.Namespace(size=args.size, prompt=CONTEXT, tokens=0), model)


def ours(args, precision, model, log):
    """(rows by workload, peak, check) of one plan."""
    plan = args.work / f"{args.size}-{precision}.plan"
    given = plan.exists()
    if not given:
        start = time.time()
        flags = [f"--precision={precision}"]
        if precision not in PEER_DTYPES:
            flags = ["--precision=fp16", f"--quantize={precision}"]
        if args.llama:
            flags.append(f"--max-context={CONTEXT}")
        run(["gpt2c", model, "-o", plan, *flags, "--gpu-arch=native",
             f"--max-batch={max(args.batches)}", *args.flags], log)
        progress(f"compiled in {time.time() - start:.1f} s")
    rows, peak = {}, {}
    for batch in args.batches:
        lengths = ",".join(map(str, prompts_of(batch))) or "0"
        out = json.loads(run(["gpt2c-bench", plan, "--device=cuda", "-b", batch, "-p", lengths,
                              "-d", DEPTH,
                              "-n", STEPS, "-r", 15, "-o", "json"], log))
        peak = out["peak"]
        for row in out["rows"]:
            rows[row["kind"], row["batch"], row["tokens"]] = row
    try:
        checked = None if args.llama else check(args, plan, model, log)
    except SystemExit as e:  # the times stay worth printing
        progress(str(e))
        checked = None
    if not given:
        plan.unlink()
    return rows, peak, checked


def printed(command, args, log):
    """What a peer prints, up to the limit."""
    try:
        return run(command, log, args.peer_limit)
    except subprocess.TimeoutExpired as e:
        progress(f"the peer took longer than {args.peer_limit} s; the table has what it printed "
                 "until then")
        return (e.stdout or b"").decode()


def side_by_side(args, file, log):
    lock = args.work / "gpu.lock"
    jobs = [(batch, prompt) for batch in args.batches for prompt in prompts_of(batch) or [""]]
    with concurrent.futures.ThreadPoolExecutor(args.peer_jobs) as pool:
        outs = pool.map(lambda job: printed(
            [sys.executable, pathlib.Path(__file__).with_name("peer-locked.py"), file, args.size,
             args.mode, *job, lock], args, log), jobs)
        return "".join(outs)


def peers(args, log):
    """Milliseconds by (dtype, kind, batch, tokens)."""
    file = args.peers / ("torch_llama.py" if args.llama else "torch_gpt2.py")
    if args.peer_jobs > 1:
        out = side_by_side(args, file, log)
    else:
        prompts = ["--prompts", ",".join(map(str, prompts_of(1)))] if args.llama else []
        out = printed([sys.executable, file, "--model", args.size, "--mode", args.mode,
                       "--batches", ",".join(map(str, args.batches)), *prompts], args, log)
    times = {}
    for line in out.splitlines():
        if not line.startswith("{"):
            continue
        m = json.loads(line)
        isDecode = m["what"].startswith("decode")
        kind, tokens = ("decode", DEPTH) if isDecode else ("prefill", m["prompt"])
        times[m["dtype"], kind, m["batch"], tokens] = m["ms"]
    return times


def floor_of(row, peak):
    seconds = row["bytes"] / peak["bytes_per_second"]
    if peak["flops_per_second"]:
        seconds = max(seconds, row["flops"] / peak["flops_per_second"])
    return seconds * 1e3


def print_checks(measured):
    print(f"\nAgainst float64: a prompt of {PROMPT} tokens and {GENERATED} generated ones\n")
    print("| precision | norm(difference) / norm(logits) | tokens equal | least lead |")
    print("|---|---:|---:|---:|")
    for precision, _, _, checked in measured:
        if checked:
            error, equal, lead = checked
            print(f"| {precision} | {error:.1e} | {equal} of {GENERATED} | {lead:.4f} |")
        else:
            print(f"| {precision} | failed | | |")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", type=pathlib.Path)
    parser.add_argument("--size", default="gpt2")
    parser.add_argument("--batches", default="1,8,32")
    parser.add_argument("--precision", default="fp16,fp32")
    parser.add_argument("--mode", default="default")
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--log", type=argparse.FileType("w"))
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--peer-limit", type=float)
    parser.add_argument("--peer-jobs", type=int, default=1)
    args, args.flags = parser.parse_known_args()
    args.batches = [int(b) for b in args.batches.split(",")]
    args.llama = args.size.startswith("llama")
    args.work.mkdir(parents=True, exist_ok=True)

    model = args.work / f"{args.size}.onnx"
    if not model.exists():
        write_model(args, model)
    measured = [(precision, *ours(args, precision, model, args.log))
                for precision in args.precision.split(",")]
    peer = {} if args.no_peer else peers(args, args.log)

    print(f"{args.size}, milliseconds, medians; decode with {DEPTH} tokens in the KV state, "
          f"{STEPS} steps a sample. Peer: "
          f"torch.compile (mode {args.mode}), {STEPS} steps in one CUDA graph\n")
    print("| workload | gpt2c | p90 | peer | ratio | floor | of the floor |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for precision, rows, peak, _ in measured:
        for (kind, batch, tokens), row in rows.items():
            ms, floor = row["median_ms"], floor_of(row, peak)
            other = peer.get((PEER_DTYPES.get(precision), kind, batch, tokens))
            size = f" x {tokens}" if kind == "prefill" else ""
            workload = f"{kind} {precision} b{batch}{size}"
            cells = [f"{ms:.3f}", f"{row['p90_ms']:.3f}", f"{other:.3f}" if other else "-",
                     f"{other / ms:.2f}" if other else "-", f"{floor:.3f}",
                     f"{100 * floor / ms:.0f} %"]
            print(f"| {workload} | {' | '.join(cells)} |")
    if not args.llama:
        print_checks(measured)
    for precision, _, peak, _ in measured:
        print(f"\npeak, {precision}: {peak['bytes_per_second'] / 1e12:.2f} TB/s, "
              f"{peak['flops_per_second'] / 1e12:.0f} TFLOP/s ({peak['note']})")


if __name__ == "__main__":
    main()
