#!/usr/bin/env python3
"""What rows, pages and the engine cost: times calls of mixed rows and plays requests, and prints
Markdown tables with what each should stay below.

    bench-serving.py [--size=gpt2|gpt2-medium|gpt2-large|gpt2-xl] [--precision=fp16|bf16|fp32]
        [--parts=steps,sampled,monotone,segments,prompts,invariant,prefix,mixed,workload,peer]
        [--work=DIR] [--peer=COMMAND] [--requests=512] [--repeat=N] [--depth=512]
        [--device=cuda|cpu] [--plan=FILE | gpt2c flags ...]

    steps      single tokens through pages beside the contiguous state of gpt2c-bench -b -d
    sampled    temperature, top-k and top-p beside greedy
    monotone   over 40 counts of rows: no count takes longer than a larger one
    segments   the same rows, with the same pairs of query and key, in other segments
    prompts    prompts of several lengths
    invariant  steps of a plan with --batch-invariant beside one without
    prefix     time to first token where 896 of 1000 tokens are in the prefix cache, and where none
    mixed      a prompt of 1000 tokens that comes among 32 answers
    workload   requests at once, and as a Poisson process at 70 % of that rate
    peer       COMMAND FILE plays the same requests at once; it prints a JSON line with
               "tokens_per_s"

FILE, or random weights of the real shape; plans that are in DIR already are used as they are.
Lengths of requests are log-normal. gpt2c and gpt2c-bench are found as the shell finds them; numpy
and onnx make the model. A call that the plan refuses has no row, and the reason is told.
"""
import argparse
import json
import pathlib
import random
import shlex
import sys
import time

from common import progress, run

PARTS = ["steps", "sampled", "monotone", "segments", "prompts", "invariant", "prefix", "mixed",
         "workload", "peer"]
COUNTS = [1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 24, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129,
          160, 192, 193, 255, 256, 257, 300, 320, 383, 384, 400, 448, 512, 513, 600, 640, 700, 768,
          777, 896, 900, 1000, 1024]
PROMPTS = {"gpt2": "3x128,1x128,1x300,1x512,1x1000,3x300,8x128,32x1@512+1x268,32x1@512+1x480,"
                   "1x40+1x80+1x120+1x160+1x200+1x240+1x280+1x320",
           "gpt2-medium": "1x300,3x128,1x512,8x128", "gpt2-large": "1x300,3x128,1x512,8x128",
           "gpt2-xl": "1x300,3x128,1x512,8x128"}
SAMPLINGS = {"greedy": [], "temperature": ["--temperature=0.8"],
             "top-k, top-p": ["--temperature=0.8", "--top-k=50", "--top-p=0.9"]}


def table(title, columns, rows):
    print(f"\n**{title}**\n\n| " + " | ".join(columns) + " |")
    print("|---|" + "---:|" * (len(columns) - 1))
    for row in rows:
        print("| " + " | ".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row) + " |")
    sys.stdout.flush()


def percent(part, whole):
    return f"{100 * (part / whole - 1):+.1f} %"


class Bench:
    def __init__(self, args, flags):
        self.args, self.flags = args, flags
        self.work = args.work
        self.work.mkdir(parents=True, exist_ok=True)
        self.main = args.plan or self.plan("", [])

    def plan(self, name, flags):
        path = self.work / f"{self.args.size}-{self.args.precision}{name}.plan"
        if path.exists():
            return path
        model = self.work / f"{self.args.size}.onnx"
        if not model.exists():
            maker = pathlib.Path(__file__).with_name("make-model.py")
            run([sys.executable, maker, model, f"--size={self.args.size}"])
        begun = time.perf_counter()
        run(["gpt2c", model, "-o", path, f"--precision={self.args.precision}", "--max-batch=128",
             "--verify=off", *flags, *self.flags])
        progress(f"{path.name}: compiled in {time.perf_counter() - begun:.1f} s")
        return path

    def bench(self, plan, *flags, check=True):
        return run(["gpt2c-bench", plan or self.main, f"--device={self.args.device}", "-o", "json",
                    *flags], check)

    def rows(self, calls, plan=None, flags=()):
        """{call: (ms that are waited for, ms behind another)}; calls a plan refuses are left
        out."""
        done = self.bench(plan, f"--rows={','.join(calls)}", "-r", self.args.repeat, *flags,
                          check=False)
        if done.returncode:
            progress(done.stderr.strip().splitlines()[-1])
            if len(calls) == 1:
                return {}
            return {k: v for c in calls for k, v in self.rows([c], plan, flags).items()}
        return {c["call"]: (c["ms"], c["behind_another_ms"])
                for c in json.loads(done.stdout)["calls"]}

    def decode(self, batch, depth):
        """ms a step of the contiguous state, many steps at a time"""
        done = self.bench(None, "-b", batch, "-d", depth, "-p", 8, "-r", self.args.repeat)
        return next(r["median_ms"] for r in json.loads(done.stdout)["rows"]
                    if r["kind"] == "decode")

    def play(self, requests, *flags, plan=None):
        path = self.work / "requests.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in requests))
        result = json.loads(self.bench(plan, f"--workload={path}", *flags).stdout)
        if result.get("first_problem"):
            sys.exit(f"{result['completed']:.0f} of {len(requests)} requests ended: "
                     + result["first_problem"])
        return result

    def prompt(self, rng, tokens):
        return [rng.randrange(50000) for _ in range(tokens)]

    def requests(self):
        """Prompts of 96 tokens in the median and answers of 110, as in logs of chats."""
        rng = random.Random(1)
        made = []
        for _ in range(self.args.requests):
            prompt = min(max(int(rng.lognormvariate(4.564, 1.15)), 4), 640)
            answer = min(max(int(rng.lognormvariate(4.7, 0.9)), 4), 383)
            made.append({"at": 0.0, "prompt": self.prompt(rng, prompt), "max_tokens": answer})
        return made

    # Parts

    def steps(self):
        calls = [f"{b}x1@{self.args.depth}" for b in (1, 2, 4, 8, 16, 32, 128)]
        done = self.bench(None, f"--rows={','.join(calls)}", "-r", self.args.repeat)
        table(f"Single tokens behind {self.args.depth}, ms (aim: 2 % more at 1, 32 and 128)",
              ["call", "pages, waited for", "behind another", "contiguous, waited for", "more",
               "one of 32 at once"],
              [(c["call"], c["ms"], c["behind_another_ms"], c["decode_ms"],
                percent(c["ms"], c["decode_ms"]) if c["decode_ms"] else "-", c["decode_of_32_ms"])
               for c in json.loads(done.stdout)["calls"]])

    def sampled(self):
        calls = [f"{b}x1@{self.args.depth}" for b in (1, 8, 32, 128)]
        times = {name: self.rows(calls, flags=flags) for name, flags in SAMPLINGS.items()}
        rows = []
        for c in calls:
            greedy = times["greedy"][c][1]
            rows.append((c, *(f"{t[c][1]:.3f} ({percent(t[c][1], greedy)})"
                              for t in times.values())))
        table("Sampled tokens, ms behind another (aims: 3 % for temperature, 8 % for both)",
              ["call", *times], rows)

    def monotone(self):
        found = self.rows([f"1x{n}" for n in COUNTS])
        times = {n: found[f"1x{n}"][0] for n in COUNTS if f"1x{n}" in found}
        worst = [(n, max(((t / u - 1, m) for m, u in times.items() if m > n), default=(0, n)))
                 for n, t in times.items()]
        table("Rows of one prompt, ms (aim: none 5 % over a larger one)",
              ["rows", "ms", "most over a larger one", "which"],
              [(n, times[n], f"{100 * over:+.1f} %", m) for n, (over, m) in worst])

    def segments(self):
        """512 rows and 131,328 pairs, 128 rows and 32,896 pairs, in pieces of other lengths."""
        for calls in (["1x512", "2x256@128", "4x128@192", "8x64@224",
                       "1x256@128+2x128@192", "3x100@206+1x212@149"],
                      ["1x128@193", "2x64@225", "4x32@241", "8x16@249", "16x8@253", "128x1@256"]):
            times = self.rows(calls)
            first = times[calls[0]][0]
            table("Pieces with the same rows and pairs, ms (aim: within 5 %)",
                  ["call", "ms", "against the first"],
                  [(c, t, percent(t, first)) for c, (t, _) in times.items()])

    def prompts(self):
        times = self.rows(PROMPTS[self.args.size].split(","))
        table("Prompts, ms", ["call", "waited for", "behind another"],
              [(c, *t) for c, t in times.items()])

    def invariant(self):
        plan = self.plan("-invariant", ["--batch-invariant"])
        calls = [f"{b}x1@{self.args.depth}" for b in (1, 8, 32, 128)] + ["4x128", "8x128"]
        free, ordered = self.rows(calls), self.rows(calls, plan)
        table("--batch-invariant, ms behind another", ["call", "without", "with", "more"],
              [(c, free[c][1], ordered[c][1], percent(ordered[c][1], free[c][1])) for c in calls])
        rng = random.Random(2)
        for n in (32, 128):
            requests = [{"at": 0, "prompt": self.prompt(rng, 64), "max_tokens": 300}
                        for _ in range(n)]
            a = self.play(requests)["output_tokens_per_second"]
            b = self.play(requests, plan=plan)["output_tokens_per_second"]
            print(f"\n{n} requests of 64 and 300 tokens: {a:.0f} tokens/s, with --batch-invariant "
                  f"{b:.0f} ({percent(b, a)}; aim: at most 10 % less)")

    def prefix(self):
        rng = random.Random(3)
        shared = self.prompt(rng, 900)
        hits, misses = [], []
        for _ in range(20):
            hits.append({"at": 0.01 * len(hits), "prompt": shared + self.prompt(rng, 100),
                         "max_tokens": 2})
            misses.append({"at": 0.01 * len(misses), "prompt": self.prompt(rng, 1000),
                           "max_tokens": 2})
        hit, miss = self.play(hits), self.play(misses)
        a, b = (r["time_to_first_token_ms"]["p50"] for r in (hit, miss))
        print(f"\n**A prefix of 900 of 1000 tokens**: first token {a:.3f} ms, without a hit "
              f"{b:.3f} ({a / b:.2f} of it; aim: 0.50); {hit['prefix_hit_tokens']:.0f} tokens hit")

    def mixed(self):
        rng = random.Random(4)
        answers = [{"at": 0, "prompt": self.prompt(rng, self.args.depth), "max_tokens": 400}
                   for _ in range(32)]
        late = [{"at": 0.06 + 0.01 * i, "prompt": self.prompt(rng, 1000), "max_tokens": 2}
                for i in range(8)]
        alone, both = self.play(answers), self.play(answers + late)
        a, b = alone["time_between_tokens_ms"], both["time_between_tokens_ms"]
        print(f"\n**Prompts of 1000 tokens among 32 answers**: between tokens {a['p50']:.3f} ms, "
              f"p99 {a['p99']:.3f}; with eight prompts {b['p50']:.3f}, p99 {b['p99']:.3f}: "
              f"{b['p99'] - a['p50']:+.3f} ms (aim: 1); row budget {both['row_budget']:.0f}")

    def workload(self):
        requests = self.requests()
        r = self.play(requests)
        running = max(1, round(r["sequences_a_step"]["mean"]))
        tokens = sum(q["max_tokens"] for q in requests)
        depth = round(sum(q["max_tokens"] * (len(q["prompt"]) + q["max_tokens"] / 2)
                          for q in requests) / tokens)
        bare = running / self.decode(running, depth) * 1e3
        budget = round(r["row_budget"])
        prompt = self.rows([f"{budget // 128}x128"])[f"{budget // 128}x128"][1] / budget / 1e3
        own = r["seconds"] - r["prompt_rows"] * prompt
        rate = r["output_tokens"] / own
        print(f"\n**{len(requests)} requests at once**: {r['output_tokens_per_second']:.0f} output "
              f"tokens/s in {r['seconds']:.3f} s; {running} sequences a step, "
              f"{depth} tokens behind a row in the mean; the bare loop makes {bare:.0f} tokens/s; "
              f"without {r['seconds'] - own:.3f} s of prompts {rate:.0f}, {rate / bare:.2f} of it "
              "(aim: 0.90)")
        arrivals = 0.7 * r["requests_per_second"]
        p = self.play(requests, f"--rate={arrivals:.1f}")
        b, t = p["time_between_tokens_ms"], p["time_to_first_token_ms"]
        print(f"\n**At {arrivals:.0f} a second**: between tokens {b['p50']:.3f} ms, p99 "
              f"{b['p99']:.3f}, {b['p99'] / b['p50']:.1f} times (aim: 3); first token p50 "
              f"{t['p50']:.2f}, p99 {t['p99']:.2f} (aim: 20)")
        return r["output_tokens_per_second"]

    def peer(self):
        path = self.work / "peer.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in self.requests()))
        ours = self.play(self.requests())["output_tokens_per_second"]
        done = run([*shlex.split(self.args.peer), path], check=False)
        lines = [s for s in done.stdout.splitlines() if s.startswith("{")]
        if done.returncode or not lines:
            print(f"\nThe peer ended with {done.returncode}: {done.stderr[-300:]}")
            return
        theirs = json.loads(lines[-1])["tokens_per_s"]
        print(f"\n**Peer**: {theirs:.0f} output tokens/s; ours {ours:.0f}, {ours / theirs:.1f} "
              "times as many (aim: 25)")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="gpt2", choices=PROMPTS)
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--parts", default=",".join(PARTS[:-1]))
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("bench-serving"))
    parser.add_argument("--peer")
    parser.add_argument("--requests", type=int, default=512)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--depth", type=int, default=512)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--plan", type=pathlib.Path)
    args, flags = parser.parse_known_args()
    parts = args.parts.split(",") + (["peer"] if args.peer else [])
    if wrong := [p for p in parts if p not in PARTS]:
        parser.error(f"no part {wrong[0]}; there are {', '.join(PARTS)}")
    bench = Bench(args, flags)
    for part in dict.fromkeys(parts):
        begun = time.perf_counter()
        getattr(bench, part)()
        progress(f"{part}: {time.perf_counter() - begun:.1f} s")


if __name__ == "__main__":
    main()
