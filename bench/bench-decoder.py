#!/usr/bin/env python3
"""A decoder with rotary embeddings and SwiGLU: a prompt, then tokens one by one. Prints the time to
the first token (TTFT) and the time between tokens (TBT), as a table in Markdown, of

    our plan; our plan at -O0, every op of the export by itself and all tokens again at each step;
    PyTorch, eager, with attention spelled out and keys that grow; PyTorch, compiled, with
    scaled_dot_product_attention and a static KV state.

    bench-decoder.py [--size=tiny|small|llama-3.2-1b] [--prompt=1024] [--tokens=100]
        [--precision=fp16|bf16|fp32] [--device=cuda|cpu] [--samples=10] [--work=DIR]
        [--skip=ours,o0,eager,compiled] [gpt2c flags ...]

One sequence, random weights, the same in all of them; greedy tokens are compared with PyTorch's and
the table says how many are equal. Medians over samples of a prompt and of its tokens, each of which
is read before the next is asked for. Model and plans that are in DIR are used again. gpt2c,
gpt2c-run and gpt2c-bench are found as the shell finds them; numpy and onnx make the model. Without
PyTorch, or a GPU for it, its rows are left out, which is said.
"""
import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import time

import numpy as np
import onnx
from onnx import TensorProto, helper

from common import sibling

# layers, width, hidden, heads, heads of keys, vocabulary; where heads do not divide the width their
# elements, whether the vocabulary's product reads the token table, and whether queries and keys are
# normed by heads
SIZES = {"tiny": (2, 64, 176, 4, 2, 512), "small": (12, 768, 2048, 12, 4, 32000),
         "llama-3.2-1b": (16, 2048, 8192, 32, 8, 128256)}
EPSILON, BASE = 1e-5, 500000.0


def head_of(sizes):
    """(elements of a head, whether the vocabulary is tied)"""
    return sizes[6:8] or (sizes[1] // sizes[3], False)


def angles(context, size):
    return np.outer(np.arange(context), BASE ** (-np.arange(0, size, 2) / size))


class Decoder:
    """The ONNX graph, as exporters write it: norms, rotation, repeated heads and gates spelled
    out."""

    def __init__(self, g, sizes, context):
        self.g, self.context = g, context
        self.layers, self.width, self.hidden, self.heads, self.shared, self.vocab = sizes[:6]
        self.size, self.tied = head_of(sizes)
        self.normed = any(sizes[8:])
        self.inner = self.heads * self.size

    def linear(self, x, name, k, n):
        weight = self.g.weight(name, (k, n), k ** -0.5)
        return self.g.op("MatMul", [x, weight])

    def norm(self, x, name, size=None):
        g = self.g
        gain = (1 + 0.1 * g.rng.standard_normal(size or self.width)).astype(np.float32)
        mean = g.op("ReduceMean", [g.op("Mul", [x, x])], axes=[-1], keepdims=1)
        root = g.op("Sqrt", [g.op("Add", [mean, g.number(EPSILON)])])
        return g.op("Mul", [g.op("Div", [x, root]), g.constant(name, gain)])

    def rotated(self, x):
        g, half = self.g, self.size // 2
        low = g.op("Slice", [x, g.integers([0]), g.integers([half]), g.integers([3])])
        high = g.op("Slice", [x, g.integers([half]), g.integers([self.size]), g.integers([3])])
        turned = g.op("Concat", [g.op("Neg", [high]), low], axis=3)
        return g.op("Add", [g.op("Mul", [x, self.cos]), g.op("Mul", [turned, self.sin])])

    def split(self, x, heads):
        shape = self.g.integers([0, 0, heads, self.size])
        return self.g.op("Transpose", [self.g.op("Reshape", [x, shape])], perm=[0, 2, 1, 3])

    def turned(self, x, name, heads):
        """Queries or keys."""
        x = self.split(self.linear(x, name, self.width, heads * self.size), heads)
        return self.rotated(self.norm(x, name + "n", self.size) if self.normed else x)

    def repeated(self, x):
        g, times = self.g, self.heads // self.shared
        if times == 1:
            return x
        x = g.op("Concat", [g.op("Unsqueeze", [x, g.integers([2])])] * times, axis=2)
        return g.op("Reshape", [x, g.integers([0, self.heads, -1, self.size])])

    def attention(self, x, name):
        g, width, shared = self.g, self.width, self.shared * self.size
        q = self.turned(x, name + ".q", self.heads)
        k = self.turned(x, name + ".k", self.shared)
        v = self.split(self.linear(x, name + ".v", width, shared), self.shared)
        keys = g.op("Transpose", [self.repeated(k)], perm=[0, 1, 3, 2])
        scores = g.op("Mul", [g.op("MatMul", [q, keys]), g.number(self.size ** -0.5)])
        scores = g.op("Where", [self.mask, scores, g.number(-np.inf)])
        y = g.op("MatMul", [g.op("Softmax", [scores], axis=-1), self.repeated(v)])
        y = g.op("Transpose", [y], perm=[0, 2, 1, 3])
        y = g.op("Reshape", [y, g.integers([0, 0, self.inner])])
        return self.linear(y, name + ".o", self.inner, width)

    def mlp(self, x, name):
        g, width, hidden = self.g, self.width, self.hidden
        gate = self.linear(x, name + ".gate", width, hidden)
        active = g.op("Mul", [gate, g.op("Sigmoid", [gate])])
        up = self.linear(x, name + ".up", width, hidden)
        return self.linear(g.op("Mul", [active, up]), name + ".down", hidden, width)

    def build(self):
        g = self.g
        table = g.weight("tokens", (self.vocab, self.width), 1.0)
        one, zero = (g.constant(str(i), np.array(i, np.int64)) for i in (1, 0))
        length = g.op("Gather", [g.op("Shape", ["input_ids"]), one], axis=0)
        positions = g.op("Range", [zero, length, one])
        turns = np.concatenate([angles(self.context, self.size)] * 2, axis=1)
        self.cos, self.sin = (
            g.op("Gather", [g.constant(name, f(turns).astype(np.float32)), positions])
            for name, f in (("cos", np.cos), ("sin", np.sin)))
        column = g.op("Unsqueeze", [positions, g.integers([1])])
        self.mask = g.op("LessOrEqual", [positions, column])
        x = g.op("Gather", [table, "input_ids"])
        for i in range(self.layers):
            x = g.op("Add", [x, self.attention(self.norm(x, f"{i}.n1"), str(i))])
            x = g.op("Add", [x, self.mlp(self.norm(x, f"{i}.n2"), str(i))])
        x = self.norm(x, "n")
        if self.tied:
            logits = g.op("MatMul", [x, g.op("Transpose", [table], perm=[1, 0])])
        else:
            logits = self.linear(x, "head", self.width, self.vocab)
        g.nodes[-1].output[0] = "logits"
        assert logits
        graph = helper.make_graph(
            g.nodes, "decoder",
            [helper.make_tensor_value_info("input_ids", TensorProto.INT64, ["batch", "seq"])],
            [helper.make_tensor_value_info("logits", TensorProto.FLOAT,
                                           ["batch", "seq", self.vocab])], g.initializers)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def write_model(args, path):
    """The weights, by name."""
    maker = sibling("make-model.py")
    with open(path.with_suffix(".data"), "wb") as external:
        g = maker.Graph(np.random.default_rng(1), external)
        weights, constant = {}, g.constant
        g.constant = lambda name, array: (weights.update({name: array}), constant(name, array))[1]
        onnx.save(Decoder(g, SIZES[args.size], args.prompt + args.tokens).build(), path)
    return weights


def run(*command):
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True)
    if done.returncode:
        sys.exit(f"exit code {done.returncode}: {' '.join(map(str, command))}\n"
                 f"{done.stderr[-4000:]}")
    return done.stdout


def plan_of(args, model, level):
    plan = args.work / f"{args.size}-{args.prompt}-{args.tokens}-{args.precision}-O{level}.plan"
    if not plan.exists():
        run("gpt2c", model, "-o", plan, "--max-batch=1", f"-O{level}",
            f"--max-context={args.prompt + args.tokens}", f"--precision={args.precision}",
            f"--gpu-arch={'native' if args.device == 'cuda' else 'none'}", *args.flags)
    return plan


def bench(args, plan, *flags):
    out = json.loads(run("gpt2c-bench", plan, f"--device={args.device}", "-b", 1, "-r",
                         args.samples, "--skip-weight-checksum", "-o", "json", *flags))
    return out["rows"]


def ours(args, model):
    rows = {row["kind"]: row for row in bench(args, plan_of(args, model, 2), "-p", args.prompt,
                                              "-d", args.prompt, "-n", args.tokens - 1)}
    return rows["prefill"]["median_ms"], rows["decode"]["time_between_tokens_ms"]["median"]


def unfused(args, model):
    """Of a graph without a KV state a token costs as much as all before it."""
    plan, last = plan_of(args, model, 0), args.prompt + args.tokens - 1
    first, end = (bench(args, plan, "-p", n, "-d", 0)[0]["median_ms"] for n in (args.prompt, last))
    return first, (first + end) / 2


def our_tokens(args, model, ids):
    out = run("gpt2c-run", plan_of(args, model, 2), f"--device={args.device}",
              "--ids=" + ",".join(map(str, ids)), "-n", args.tokens, "--ignore-eos",
              "--output=ids")
    return [int(i) for i in out.replace(",", " ").split()]


class Torch:
    """The same decoder in PyTorch, in both forms."""

    def __init__(self, args, weights, sizes):
        import torch
        self.torch, self.args = torch, args
        self.layers, self.width, self.hidden, self.heads, self.shared = sizes[:5]
        self.size, tied = head_of(sizes)
        self.normed = any(sizes[8:])
        self.type = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(args.precision,
                                                                        torch.float32)
        self.w = {name: torch.from_numpy(np.array(array)).to(args.device, self.type)
                  for name, array in weights.items() if array.dtype == np.float32}
        torch.set_grad_enabled(False)
        if tied:
            self.w["head"] = self.w["tokens"].t()
        # Fused weights for the compiled form, as its users would write it.
        for i in range(self.layers):
            self.w[f"{i}.qkv"] = torch.cat([self.w[f"{i}.{p}"] for p in "qkv"], 1)
            self.w[f"{i}.gateup"] = torch.cat([self.w[f"{i}.gate"], self.w[f"{i}.up"]], 1)
        # In memory as those of torch.nn.Linear.
        as_they_are = {"tokens", "cos", "sin", *(["head"] if tied else [])}
        for name, w in self.w.items():
            if w.dim() == 2 and name not in as_they_are:
                self.w[name] = w.t().contiguous().t()
        self.context = args.prompt + args.tokens
        self.rows = torch.arange(self.context, device=args.device)

    def norm(self, x, gain):
        wide = x.float()
        wide = wide * self.torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + EPSILON)
        return wide.to(x.dtype) * gain

    def turn(self, x, positions):
        a, b = x.chunk(2, -1)
        return x * self.w["cos"][positions] + self.torch.cat((-b, a), -1) * self.w["sin"][positions]

    def turned(self, x, name, heads, positions):
        """Queries or keys."""
        x = self.split(x, heads)
        return self.turn(self.norm(x, self.w[name + "n"]) if self.normed else x, positions)

    def split(self, x, heads):
        return x.view(x.shape[0], -1, heads, self.size).transpose(1, 2)

    def join(self, y):
        return y.transpose(1, 2).flatten(2)

    def eager(self, ids, past):
        """Attention spelled out; `past` grows."""
        torch, w = self.torch, self.w
        before = past[0][0].shape[2] if past else 0
        positions = self.rows[before:before + ids.shape[1]]
        x = w["tokens"][ids]
        for i in range(self.layers):
            h = self.norm(x, w[f"{i}.n1"])
            q = self.turned(h @ w[f"{i}.q"], f"{i}.q", self.heads, positions)
            k = self.turned(h @ w[f"{i}.k"], f"{i}.k", self.shared, positions)
            v = self.split(h @ w[f"{i}.v"], self.shared)
            if len(past) > i:
                k, v = (torch.cat(pair, 2) for pair in zip(past[i], (k, v)))
                past[i] = k, v
            else:
                past.append((k, v))
            times = self.heads // self.shared
            k, v = k.repeat_interleave(times, 1), v.repeat_interleave(times, 1)
            scores = q @ k.transpose(2, 3) * self.size ** -0.5
            hidden = self.rows[:k.shape[2]] > positions[:, None]
            p = scores.masked_fill(hidden, float("-inf")).float().softmax(-1).to(x.dtype)
            x = x + self.join(p @ v) @ w[f"{i}.o"]
            h = self.norm(x, w[f"{i}.n2"])
            gate = torch.nn.functional.silu(h @ w[f"{i}.gate"])
            x = x + (gate * (h @ w[f"{i}.up"])) @ w[f"{i}.down"]
        return (self.norm(x[:, -1:], w["n"]) @ w["head"]).argmax(-1)

    def static(self, ids, positions, state):
        """One KV state of the whole context, filled in place. The fastest form of attention that
        PyTorch has for each: a prompt sees its own keys alone, and the heads that share a key of
        the state are rows of one product, so that nothing is repeated."""
        torch, w = self.torch, self.w
        attention = torch.nn.functional.scaled_dot_product_attention
        shared = self.shared * self.size
        prompt = ids.shape[1] > 1
        mask = self.rows <= positions[:, None]
        x = w["tokens"][ids]
        for i in range(self.layers):
            qkv = self.norm(x, w[f"{i}.n1"]) @ w[f"{i}.qkv"]
            q, k, v = qkv.split([self.heads * self.size, shared, shared], -1)
            k, v = self.turned(k, f"{i}.k", self.shared, positions), self.split(v, self.shared)
            state[i][0].index_copy_(2, positions, k)
            state[i][1].index_copy_(2, positions, v)
            q = self.turned(q, f"{i}.q", self.heads, positions)
            if prompt:
                y = attention(q, k, v, is_causal=True, enable_gqa=True)
            else:
                y = attention(q.view(len(q), self.shared, -1, self.size), *state[i], attn_mask=mask)
            x = x + self.join(y.reshape(q.shape)) @ w[f"{i}.o"]
            gate, up = (self.norm(x, w[f"{i}.n2"]) @ w[f"{i}.gateup"]).chunk(2, -1)
            x = x + (torch.nn.functional.silu(gate) * up) @ w[f"{i}.down"]
        return (self.norm(x[:, -1:], w["n"]) @ w["head"]).argmax(-1)

    def empty_state(self, batch, context):
        """A CUDA graph may change what has an address for good; else PyTorch launches kernel after
        kernel."""
        shape = (batch, self.shared, context, self.size)
        state = [[self.torch.zeros(shape, device=self.args.device, dtype=self.type)
                  for _ in range(2)] for _ in range(self.layers)]
        for layer in state:
            for tensor in layer:
                self.torch._dynamo.mark_static_address(tensor)
        return state

    def reply(self, compiled, ids):
        """(milliseconds to the first token, between tokens, the tokens)"""
        torch, n = self.torch, self.args.prompt
        ids = torch.tensor([ids], device=self.args.device)
        if compiled:
            def step(ids, before):
                return self.compiled(ids, self.rows[before:before + ids.shape[1]], self.state)
        else:
            past = []

            def step(ids, _):
                return self.eager(ids, past)

        begin = time.perf_counter()
        token = step(ids, 0).clone()
        tokens = [token.item()]  # waits for it
        first, times = time.perf_counter() - begin, []
        for i in range(self.args.tokens - 1):
            begin = time.perf_counter()
            token = step(token, n + i).clone()
            tokens.append(token.item())
            times.append(time.perf_counter() - begin)
        return 1e3 * first, 1e3 * statistics.median(times), tokens

    def measure(self, compiled, ids):
        if compiled:
            mode = "reduce-overhead" if self.args.device == "cuda" else "default"
            # A graph for the prompt and one for a token, neither for any number of them.
            self.compiled = self.torch.compile(self.static, mode=mode, fullgraph=True,
                                               dynamic=False)
            # One state for all replies, which see their own tokens alone.
            self.state = self.empty_state(1, self.context)
        replies = [self.reply(compiled, ids) for _ in range(self.args.samples + 2)][2:]
        return *(statistics.median(r[i] for r in replies) for i in (0, 1)), replies[-1][2]


def missing_torch(device):
    try:
        import torch
    except ImportError:
        return "there is no PyTorch"
    return "" if device == "cpu" or torch.cuda.is_available() else "PyTorch finds no GPU"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--prompt", type=int, default=1024)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--precision", choices=("fp16", "bf16", "fp32"), default="fp16")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--samples", type=int, default=10)
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("."))
    parser.add_argument("--skip", default="")
    args, args.flags = parser.parse_known_args()
    if args.prompt < 1 or args.tokens < 2 or args.samples < 1:
        parser.error("a prompt of at least a token, at least two new ones, and a sample")
    args.work.mkdir(parents=True, exist_ok=True)
    skip = set(args.skip.split(","))
    model = args.work / f"{args.size}-{args.prompt}-{args.tokens}.onnx"
    weights = write_model(args, model)
    random.seed(1)
    ids = [random.randrange(SIZES[args.size][-1]) for _ in range(args.prompt)]

    rows = []
    if "ours" not in skip:
        rows.append(("gpt2c", *ours(args, model), our_tokens(args, model, ids)))
    if "o0" not in skip:
        rows.append(("gpt2c -O0", *unfused(args, model), None))
    why = missing_torch(args.device)
    peers = [(name, key == "compiled") for name, key in
             (("PyTorch, eager, naive attention", "eager"),
              ("PyTorch, compiled, SDPA, static KV state", "compiled")) if key not in skip]
    if peers and why:
        print(f"skipped: PyTorch: {why}", file=sys.stderr)
        peers = []
    torch = Torch(args, weights, SIZES[args.size]) if peers else None
    for name, compiled in peers:
        rows.append((name, *torch.measure(compiled, ids)))

    print(f"{args.size}, {args.precision}, {args.device}: a prompt of {args.prompt} tokens, "
          f"{args.tokens} new ones\n")
    print("| | TTFT, ms | TBT, ms | times ours: TTFT | TBT | tokens equal to ours |")
    print("|---|---:|---:|---:|---:|---:|")
    own = rows[0] if rows and rows[0][0] == "gpt2c" else None
    for name, first, between, tokens in rows:
        ratios = [f"{a / b:.2f}" for a, b in zip((first, between), own[1:3])] if own else ["-"] * 2
        same = "-"
        if own and tokens and name != own[0]:
            same = f"{sum(a == b for a, b in zip(tokens, own[3]))} of {args.tokens}"
        print(f"| {name} | {first:.3f} | {between:.4f} | {' | '.join(ratios)} | {same} |")


if __name__ == "__main__":
    main()
