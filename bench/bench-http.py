#!/usr/bin/env python3
"""What serving over HTTP costs: starts gpt2c-serve on this machine, plays requests against it with
gpt2c-bench, and prints a table of what was measured and what it should stay below. A list of parts.

    bench-http.py [--size=gpt2|gpt2-medium|gpt2-large|gpt2-xl] [--precision=fp16|bf16|fp32]
        [--parts=start,one,rate,schema,health,poisson,overload,disconnects,memory,embeddings,
                 replicas,peer]
        [--work=DIR] [--peer=COMMAND] [--device=cuda|cpu] [--plan=FILE] [--tokenizer=FILE]
        [--hidden-plan=FILE] [--haproxy=COMMAND]
        [--streams=128] [--tokens=128] [--requests=N] [--schema-streams=32] [--open=1000]
        [--poisson-seconds=30] [--disconnects=10000] [--memory-requests=100000]
        [--http-threads=N] [--seconds=300] [--quick] [--json=FILE]

    start        from the start of the process to ready, the plan's pages in memory
    one          one stream: the first token beside a call of the prompt, the time between tokens
    rate         many streams beside the engine in one process, large and small events
    schema       answers by a JSON schema beside answers without
    health       /health while many streams are open
    poisson      requests as a Poisson process at 70 % of the rate of `rate`
    overload     the same at 200 %
    disconnects  clients that go away at any moment
    memory       the server's memory over many small requests
    embeddings   vectors of texts, one and many a request, beside calls of as many prompts
    replicas     two servers, on a GPU each, behind HAProxy, beside one behind it
    peer         COMMAND FILE plays requests at once; it prints a JSON line with "tokens_per_s"

FILE, or random weights of the real shape with a made-up tokenizer of as many tokens; what is in DIR
already is used as it is. COMMAND of --haproxy is what starts it. A part that would begin behind
--seconds is left out by its name, `replicas` and `peer` where they are not asked for. --quick:
numbers that a CPU takes. gpt2c, gpt2c-bench and gpt2c-serve are found as the shell finds them;
numpy and onnx make the model. It ends with 1 where something failed, not where it was slow.
"""
import argparse
import concurrent.futures
import http.client
import json
import os
import pathlib
import random
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

from common import progress, run

PARTS = ["start", "one", "rate", "schema", "health", "poisson", "overload", "disconnects", "memory",
         "embeddings", "replicas", "peer"]
QUICK = {"streams": 4, "tokens": 24, "requests": 12, "schema_streams": 2, "open": 24,
         "poisson_seconds": 4, "disconnects": 60, "memory_requests": 300}
SCHEMA = {"type": "array", "items": {"type": "integer"}, "minItems": 400, "maxItems": 1000}


def byte_alphabet():
    """The characters that stand for bytes in a tokenizer.json of GPT-2's kind."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {b: chr(b) for b in plain}
    others = (b for b in range(256) if b not in names)
    return {**names, **{b: chr(256 + i) for i, b in enumerate(others)}}


def write_tokenizer(path, size):
    """Byte-level BPE whose merges are drawn, with letters, digits and marks apart, as GPT-2's are:
    a space in front of any of them; of digits and marks few and short tokens."""
    names = byte_alphabet()
    draw = random.Random(1)
    tokens = {names[b]: b for b in range(256)}
    kinds = [([names[ord(c)] for c in characters], most, longest) for characters, most, longest in
             (("0123456789", size // 30, 4), ("{}[]\":,.-_/()", size // 50, 3),
              ("etaoinshrdlucmfwygpbvk", size, 12))]
    merges = []
    for base, most, longest in kinds:
        known, end = [*base, names[ord(" ")]], min(len(tokens) + most, size - 1)
        while len(tokens) < end:
            left, right = draw.choice(known), draw.choice(base if draw.random() < 0.7 else known)
            both = left + right
            if both in tokens or len(both) > longest or names[ord(" ")] in right:
                continue
            merges.append(f"{left} {right}")
            tokens[both] = len(tokens)
            known.append(both)
    end = "<|endoftext|>"
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
             "use_regex": True}
    path.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "normalizer": None,
        "added_tokens": [{"id": size - 1, "content": end, "single_word": False, "lstrip": False,
                          "rstrip": False, "normalized": False, "special": True}],
        "pre_tokenizer": level, "decoder": level, "post_processor": level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "fuse_unk": False,
                  "continuing_subword_prefix": "", "end_of_word_suffix": "",
                  "vocab": {**tokens, end: size - 1}, "merges": merges}}))


class Server:
    """gpt2c-serve at a port that is free, ready."""

    def __init__(self, args, plan, *flags, **environment):
        command = ["gpt2c-serve", plan, f"--device={args.device}", "--port=0", "--log-format=none",
                   f"--http-threads={args.http_threads}", *flags]
        if args.tokenizer:
            command.append(f"--tokenizer={args.tokenizer}")
        progress(" ".join(map(str, command)))
        begun = time.perf_counter()
        self.process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True,
                                        env=dict(os.environ, **environment))
        self.log, self.port = [], None
        for line in self.process.stderr:
            self.log.append(line)
            if match := re.search(r"listening at http://[\d.]+:(\d+)", line):
                self.port = int(match[1])
                break
        threading.Thread(target=self.read, daemon=True).start()
        while self.port and self.process.poll() is None and self.get("/health")[0] != 200:
            time.sleep(0.002)
        if self.process.poll() is not None:
            raise RuntimeError(f"gpt2c-serve ended: {''.join(self.log)[-2000:]}")
        self.ready_seconds = time.perf_counter() - begun
        self.url = f"http://127.0.0.1:{self.port}"

    def read(self):
        self.log += self.process.stderr

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()

    def get(self, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", path)
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    def metric(self, name):
        return float(re.search(rf"^gpt2c:{name}\{{.*?\}} (\S+)$", self.get("/metrics")[1],
                               re.M)[1])

    def calls(self):
        """What the engine's calls have come to: count, rows, seconds, forced tokens."""
        return [self.metric(f"engine_{name}_total") for name in
                ("calls", "rows", "busy_seconds", "forced_tokens")]

    def rss(self):
        """MiB"""
        text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", text)[1]) / 1024

    def device_memory(self):
        """MiB of the GPU that the process has, or None where nobody says."""
        try:
            done = run(["nvidia-smi", "--query-compute-apps=pid,used_memory",
                        "--format=csv,noheader,nounits"], check=False)
        except FileNotFoundError:
            return None
        for line in done.stdout.splitlines():
            pid, used = line.split(",")
            if int(pid) == self.process.pid and used.strip().isdigit():
                return int(used)
        return None


class Bench:
    def __init__(self, args):
        self.args, self.rows, self.notes, self.failed = args, [], [], False
        self.rate_of_requests = None
        args.work.mkdir(parents=True, exist_ok=True)
        self.plan = args.plan or self.make_plan()
        self.begun = time.perf_counter()

    def make_plan(self):
        name = f"{self.args.size}-{self.args.precision}"
        plan, model = self.args.work / f"{name}.plan", self.args.work / f"{self.args.size}.onnx"
        if not plan.exists():
            if not model.exists():
                maker = pathlib.Path(__file__).with_name("make-model.py")
                run([sys.executable, maker, model, f"--size={self.args.size}"])
            run(["gpt2c", model, "-o", plan, f"--precision={self.args.precision}",
                 "--max-batch=128", "--verify=off"])
        if not self.args.tokenizer:
            self.args.tokenizer = self.args.work / "tokenizer.json"
            if not self.args.tokenizer.exists():
                write_tokenizer(self.args.tokenizer, 50257)
        return plan

    def left(self):
        return self.args.seconds - (time.perf_counter() - self.begun)

    def say(self, what, aim, measured, ok=None):
        """A line of the table; `ok`: whether the aim is met, None where there is none."""
        self.rows.append({"what": what, "aim": aim, "measured": measured, "met": ok})
        progress(f"{what}: {measured} (aim: {aim})")

    def requests(self, count, prompt=None, answer=None, **more):
        return [{"prompt": prompt or self.args.tokens, "max_tokens": answer or self.args.tokens,
                 **more} for _ in range(count)]

    def bench(self, requests, *flags):
        path = self.args.work / "http-requests.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in requests))
        return json.loads(run(["gpt2c-bench", f"--workload={path}", "-o", "json", *flags]).stdout)

    def play(self, server, requests, *flags, every=True):
        r = self.bench(requests, f"--url={server.url}", *flags)
        if every and r["completed"] != len(requests):
            self.failed = True
            self.notes.append(f"{r['completed']:.0f} of {len(requests)} requests ended: "
                              + r.get("first_problem", ""))
        return r

    def alone(self, requests, *flags):
        return self.bench(requests, self.plan, f"--device={self.args.device}", *flags)

    # Parts

    def start(self):
        with open(self.plan, "rb") as plan:
            while plan.read(1 << 24):
                pass
        seconds = []
        for _ in range(3):
            with Server(self.args, self.plan) as server:
                seconds.append(server.ready_seconds)
        aim = 4 if self.args.size == "gpt2-xl" else 1.5
        self.say("start to ready, s", f"<= {aim}", f"{min(seconds):.2f} (of "
                 + ", ".join(f"{s:.2f}" for s in seconds) + ")", min(seconds) <= aim)

    def one(self):
        call = f"1x{self.args.tokens}"
        calls = run(["gpt2c-bench", self.plan, f"--device={self.args.device}", f"--rows={call}",
                     "-r", "20", "-o", "json"]).stdout
        prefill = json.loads(calls)["calls"][0]["ms"]
        with Server(self.args, self.plan) as server:
            r = self.play(server, self.requests(max(8, self.args.requests // 32)), "--streams=1")
        first, between = r["time_to_first_token_ms"], r["time_between_tokens_ms"]
        self.say("one stream: first token behind the prompt's call, ms", "<= 0.3",
                 f"{first['p50'] - prefill:+.3f} ({first['p50']:.3f} p50, p99 {first['p99']:.3f}; "
                 f"the call {prefill:.3f})", first["p50"] - prefill <= 0.3)
        self.say("one stream: between tokens, ms", "<= 0.15",
                 f"{between['p50']:.4f} p50, p99 {between['p99']:.4f}", between["p50"] <= 0.15)

    def rate(self):
        requests, streams = self.requests(self.args.requests), f"--streams={self.args.streams}"
        own = self.alone(requests, "--rate=inf")["output_tokens_per_second"]
        for interval, aim in ((16, 150e3), (1, 100e3)):
            with Server(self.args, self.plan, f"--stream-interval={interval}") as server:
                r = self.play(server, requests, streams)
            rate = r["output_tokens_per_second"]
            if interval == 1:
                self.rate_of_requests = r["requests_per_second"]
            else:
                self.say("many streams: of the engine in one process", ">= 0.85",
                         f"{rate / own:.3f} ({own:.0f} tokens/s there)", rate >= 0.85 * own)
            self.say(f"many streams: tokens/s, --stream-interval={interval}", f">= {aim:.0f}",
                     f"{rate:.0f} ({r['tokens_an_event']:.1f} tokens an event; first token p50 "
                     f"{r['time_to_first_token_ms']['p50']:.2f} ms)", rate >= aim)

    def schema(self):
        many = self.args.schema_streams
        form = {"response_format": {"type": "json_schema",
                                    "json_schema": {"name": "list", "schema": SCHEMA}}}
        with Server(self.args, self.plan) as server:
            plain, fits = self.requests(many * 4), self.requests(many * 4, **form)
            self.play(server, fits[:1], "--streams=1")  # compiles it
            rates, shapes = [], []
            for requests in (plain, fits):
                rates.append([])
                for _ in range(3):
                    before = server.calls()
                    rates[-1].append(self.play(server, requests, f"--streams={many}")
                                     ["output_tokens_per_second"])
                calls, rows, busy, forced = (b - a for a, b in zip(before, server.calls()))
                shapes.append(f"{busy / calls * 1e3:.3f} ms and {rows / calls:.1f} rows a call, "
                              f"{calls:.0f} calls, {forced:.0f} forced tokens")
            a, b = rates
            c, d = ([self.play(server, w[:4], "--streams=1")["time_per_output_token_ms"]["p50"]
                     for _ in range(2)] for w in (plain, fits))
        cost = 1 - max(b) / max(a)
        self.say(f"a schema on {many} streams: fewer tokens/s", "<= 8 %",
                 f"{100 * cost:.1f} % ({max(b):.0f} of {max(a):.0f}; {shapes[1]}; without: "
                 f"{shapes[0]})", cost <= 0.08)
        more = (min(d) - min(c)) * 1e3
        self.say("a schema on one stream: more a token, us", "<= 10",
                 f"{more:.1f} ({min(d) * 1e3:.1f} of {min(c) * 1e3:.1f})", more <= 10)

    def health(self):
        count = self.args.open
        times, done = [], threading.Event()
        with Server(self.args, self.plan, f"--max-num-queued-reqs={2 * count}") as server:
            def watch():
                connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
                while not done.is_set():
                    begun = time.perf_counter()
                    connection.request("GET", "/health")
                    answer = connection.getresponse()
                    answer.read()
                    times.append((time.perf_counter() - begun) * 1e3)
                    if answer.status != 200:
                        self.failed = True
                    time.sleep(0.002)
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                watching = pool.submit(watch)
                try:
                    r = self.play(server, self.requests(3 * count), f"--streams={count}")
                finally:
                    done.set()
                watching.result()
        times.sort()
        p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
        self.say(f"/health with {count} open streams: p99, ms", "< 10",
                 f"{p99:.2f} of {len(times)} (p50 {times[len(times) // 2]:.2f}); "
                 f"{r['connections']:.0f} connections", p99 < 10)

    def arriving(self, server, factor, seconds, every):
        rate = factor * self.rate_of_requests
        return rate, self.play(server, self.requests(max(4, int(rate * seconds))),
                               f"--rate={rate:.3f}", every=every)

    def saturation(self):
        if self.rate_of_requests:
            return
        with Server(self.args, self.plan) as server:
            r = self.play(server, self.requests(self.args.requests),
                          f"--streams={self.args.streams}")
        self.rate_of_requests = r["requests_per_second"]

    def poisson(self):
        self.saturation()
        with Server(self.args, self.plan) as server:
            rate, r = self.arriving(server, 0.7, self.args.poisson_seconds, True)
        first, between = r["time_to_first_token_ms"], r["time_between_tokens_ms"]
        self.say(f"{rate:.0f} requests/s, 70 %: first token p99, ms", "<= 20",
                 f"{first['p99']:.2f} (p50 {first['p50']:.2f}; sent late p99 "
                 f"{r['sent_late_ms']['p99']:.2f})", first["p99"] <= 20)
        times = between["p99"] / max(between["p50"], 1e-9)
        self.say("the same: between tokens, p99 in medians", "<= 3",
                 f"{times:.2f} ({between['p99']:.3f} ms of {between['p50']:.3f})", times <= 3)
        self.say("the same: answers that are no 200", "0",
                 f"{len_of_others(r, '200')} of {r['requests']:.0f}", not len_of_others(r, "200"))

    def overload(self):
        self.saturation()
        with Server(self.args, self.plan, "--max-num-queued-reqs=256") as server:
            before = server.metric("device_allocations_total"), server.device_memory()
            rate, r = self.arriving(server, 2, self.args.poisson_seconds / 3, False)
            after = server.metric("device_allocations_total"), server.device_memory()
            used = server.metric("kv_cache_pages_used") + server.metric("kv_cache_pages_reserved")
        others = len_of_others(r, "200", "429")
        self.say(f"{rate:.0f} requests/s, 200 %: answers that are no 200 or 429", "0",
                 f"{others} ({r['statuses']})", not others)
        self.say("the same: allocations on the device", "0", f"{after[0] - before[0]:.0f} "
                 f"(GPU memory of the process before and after, MiB: {before[1]}, {after[1]})",
                 after == before)
        self.say("the same: pages left in use", "0", f"{used:.0f}", used == 0)

    def disconnects(self):
        body = json.dumps({"prompt": [1, 2, 3], "max_tokens": 64, "ignore_eos": True,
                           "stream": True}).encode()
        head = (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n" % len(body))

        def leave(server, seed):
            draw = random.Random(seed)
            try:
                with socket.create_connection(("127.0.0.1", server.port), timeout=60) as s:
                    whole = head + body
                    s.sendall(whole[:draw.randrange(1, len(whole))] if seed % 3 == 0 else whole)
                    if seed % 3 == 1:
                        s.recv(draw.randrange(1, 3000))
                    if seed % 2:  # with a reset
                        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            except OSError:
                return 1
            return 0

        with Server(self.args, self.plan, "--max-num-queued-reqs=100000") as server:
            with concurrent.futures.ThreadPoolExecutor(16) as pool:
                refused = sum(pool.map(lambda i: leave(server, i), range(self.args.disconnects)))
            end = time.perf_counter() + 20
            names = ("num_requests_running", "num_requests_waiting", "kv_cache_pages_used",
                     "kv_cache_pages_reserved")
            while sum(map(server.metric, names)) and time.perf_counter() < end:
                time.sleep(0.05)
            left = {name: server.metric(name) for name in names}
            open_ = server.metric("http_connections")
        self.say(f"{self.args.disconnects} disconnects: requests and pages left", "0",
                 f"{sum(left.values()):.0f} ({open_ - 1:.0f} connections; {refused} that the "
                 "system refused)", not sum(left.values()))

    def memory(self):
        count, streams = self.args.memory_requests, f"--streams={max(4, self.args.streams // 2)}"
        with Server(self.args, self.plan) as server:
            self.play(server, self.requests(count // 5, 4, 1), streams)
            before = server.rss()
            r = self.play(server, self.requests(count, 4, 1), streams)
            grown = server.rss() - before
        self.say(f"memory of the server over {count} requests: MiB more", "<= 16",
                 f"{grown:.1f} of {before:.0f} ({r['requests_per_second']:.0f} requests/s)",
                 grown <= 16)

    def hidden_plan(self):
        if self.args.hidden_plan:
            return self.args.hidden_plan
        plan = self.args.work / f"{self.args.size}-{self.args.precision}-hidden.plan"
        if not plan.exists():
            run(["gpt2c", self.args.work / f"{self.args.size}.onnx", "-o", plan,
                 f"--precision={self.args.precision}", "--output-hidden", "--verify=off"])
        return plan

    def embeddings(self):
        tokens, many = self.args.tokens, 32
        calls = json.loads(run(["gpt2c-bench", self.plan, f"--device={self.args.device}",
                                f"--rows=1x{tokens},4x{tokens}", "-r", "20", "-o", "json"])
                           .stdout)["calls"]
        one, four = (n * tokens / call["ms"] * 1e3 for n, call in zip((1, 4), calls))
        draw = random.Random(4)

        def ask(server, texts, count):
            connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
            ids = json.loads(server.get("/v1/models")[1])["data"][0]["vocab_size"] or 50000
            for _ in range(count):
                body = json.dumps({"input": [[draw.randrange(ids) for _ in range(tokens)]
                                             for _ in range(texts)], "encoding_format": "base64"})
                connection.request("POST", "/v1/embeddings", body,
                                   {"Content-Type": "application/json"})
                answer = connection.getresponse()
                if answer.status != 200:
                    raise RuntimeError(answer.read().decode()[:300])
                answer.read()
            connection.close()

        with Server(self.args, self.hidden_plan()) as server:
            for texts, clients in ((1, 1), (1, 4), (many, 4)):
                count = max(2, self.args.requests // (8 * texts))
                ask(server, texts, 2)
                begun = time.perf_counter()
                with concurrent.futures.ThreadPoolExecutor(clients) as pool:
                    list(pool.map(lambda _: ask(server, texts, count), range(clients)))
                rate = clients * count / (time.perf_counter() - begun)
                self.say(f"embeddings, {texts} texts of {tokens} a request, {clients} clients: "
                         "tokens/s", "-", f"{rate * texts * tokens:.0f} ({rate:.0f} requests/s; "
                         f"calls of one prompt {one:.0f}, of four {four:.0f} tokens/s)")

    def proxy(self, *servers):
        """HAProxy before the servers, and its address."""
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        lines = ["global", "    maxconn 8192", "    nbthread 8", "defaults", "    mode http",
                 "    option http-no-delay", "    timeout connect 2s", "    timeout client 300s",
                 "    timeout server 300s", "frontend api", f"    bind 127.0.0.1:{port}",
                 "    default_backend servers", "backend servers", "    balance leastconn",
                 *(f"    server s{s.port} 127.0.0.1:{s.port}" for s in servers)]
        path = self.args.work / "haproxy.cfg"
        path.write_text("\n".join(lines) + "\n")
        process = subprocess.Popen([*shlex.split(self.args.haproxy), "-q", "-db", "-f", path])
        end = time.perf_counter() + 10
        while time.perf_counter() < end and process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=5).close()
                return process, f"http://127.0.0.1:{port}"
            except OSError:
                time.sleep(0.02)
        raise RuntimeError(f"HAProxy does not answer ({process.poll()})")

    def replicas(self):
        flags = "--stream-interval=16"
        with (Server(self.args, self.plan, flags, CUDA_VISIBLE_DEVICES="0") as first,
              Server(self.args, self.plan, flags, CUDA_VISIBLE_DEVICES="1") as second):
            rates = []
            for servers in ((first,), (first, second)):
                process, url = self.proxy(*servers)
                streams = self.args.streams * len(servers)
                requests = self.requests(self.args.requests * len(servers))
                try:
                    rates.append(max(self.bench(requests, f"--url={url}", f"--streams={streams}")
                                     ["output_tokens_per_second"] for _ in range(2)))
                finally:
                    process.terminate()
                    process.wait(10)
        self.say("two servers behind HAProxy: times the tokens/s of one", ">= 1.9",
                 f"{rates[1] / rates[0]:.2f} ({rates[1]:.0f} and {rates[0]:.0f})",
                 rates[1] >= 1.9 * rates[0])

    def peer(self):
        draw = random.Random(2)
        requests = [{"prompt": [draw.randrange(50000) for _ in range(self.args.tokens)],
                     "max_tokens": self.args.tokens} for _ in range(self.args.requests // 4)]
        path = self.args.work / "peer.jsonl"
        path.write_text("".join(json.dumps(r) + "\n" for r in requests))
        with Server(self.args, self.plan, "--stream-interval=16") as server:
            ours = self.play(server, requests, f"--streams={self.args.streams}")
        ours = ours["output_tokens_per_second"]
        done = run([*shlex.split(self.args.peer), path], check=False)
        lines = [s for s in done.stdout.splitlines() if s.startswith("{")]
        if done.returncode or not lines:
            self.notes.append(f"the peer ended with {done.returncode}: {done.stderr[-300:]}")
            return
        theirs = json.loads(lines[-1])["tokens_per_s"]
        self.say("the peer: times as many tokens/s", ">= 25",
                 f"{ours / theirs:.1f} ({ours:.0f} over HTTP, {theirs:.0f} in its process)",
                 ours >= 25 * theirs)


def len_of_others(result, *fine):
    return sum(count for status, count in result["statuses"].items() if status not in fine)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="gpt2",
                        choices=["gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"])
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--parts", default=",".join(PARTS[:-2]))
    parser.add_argument("--work", type=pathlib.Path, default=pathlib.Path("bench-http"))
    parser.add_argument("--peer")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--plan", type=pathlib.Path)
    parser.add_argument("--tokenizer", type=pathlib.Path)
    parser.add_argument("--hidden-plan", type=pathlib.Path)
    parser.add_argument("--haproxy", default="haproxy")
    counts = {"streams": 128, "tokens": 128, "requests": 2048, "schema-streams": 32, "open": 1000,
              "poisson-seconds": 30, "disconnects": 10000, "memory-requests": 100000}
    for name, value in counts.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--http-threads", type=int, default=max(2, min(6, os.cpu_count() // 3)))
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    if args.quick:
        for name, value in QUICK.items():
            if getattr(args, name) == counts[name.replace("_", "-")]:
                setattr(args, name, value)
    parts = args.parts.split(",") + (["peer"] if args.peer and "peer" not in args.parts else [])
    if wrong := [p for p in parts if p not in PARTS]:
        parser.error(f"no part {wrong[0]}; there are {', '.join(PARTS)}")
    bench = Bench(args)
    for part in dict.fromkeys(parts):
        if bench.left() <= 0:
            bench.notes.append(f"{part} is left out: {args.seconds:.0f} s are over")
            continue
        begun = time.perf_counter()
        try:
            getattr(bench, part)()
        except (Exception, SystemExit) as error:  # the other parts still tell something
            bench.failed = True
            bench.notes.append(f"{part} failed: {error}")
        progress(f"{part}: {time.perf_counter() - begun:.1f} s")
    marks = {True: "yes", False: "no", None: "-"}
    print("\n| what | aim | measured | met |\n|---|---|---|---|")
    for row in bench.rows:
        print(f"| {row['what']} | {row['aim']} | {row['measured']} | {marks[row['met']]} |")
    for note in bench.notes:
        print(f"\n{note}")
    if args.json:
        args.json.write_text(json.dumps({"rows": bench.rows, "notes": bench.notes}, indent=1))
    sys.exit(1 if bench.failed else 0)


if __name__ == "__main__":
    main()
