"""Compiles a model with gpt2c, runs the plan and says what came of it."""

import collections
import dataclasses
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess

import numpy as np
import onnx
from onnx import helper, numpy_helper

import halves
from oracle import HALF_ROUNDING, STEPS, Invalid, Oracle, distance, moved_by, perturbed, session

ADDRESS_SPACE = 12 << 30
LIMIT = int(os.environ.get("GPT2C_MEANING_SECONDS", "120"))  # for one process
# Codes of the design with which a valid model may be refused. Of the others, 1 to 3 and 7 would be
# a wrong reason.
REFUSALS = {4: "unsupported", 8: "verification", 10: "memory"}

# state: equal, refused, wrong, crash; invalid where nothing can be said
Outcome = collections.namedtuple("Outcome", "state why")


def run(command, folder):
    def limit():
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    try:
        done = subprocess.run(
            command,
            cwd=folder,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LIMIT,
            stdin=subprocess.DEVNULL,
            preexec_fn=limit,
        )
        return done.returncode, done.stdout, done.stderr
    except subprocess.TimeoutExpired:
        return -99, "", f"no end after {LIMIT} s"


def reason(stderr):
    lines = [
        line for line in stderr.splitlines() if line.startswith("error")
    ] or stderr.splitlines()[-1:]
    return lines[0][:300] if lines else ""


def refusal(code, stderr, what):
    """The outcome of a process that did not end with 0."""
    why = f"{what}: {code}: {reason(stderr)}"
    if code < 0 or code > 10:
        return Outcome("crash", why)
    if code not in REFUSALS or not reason(stderr):
        return Outcome("crash", "a code that is not a refusal's: " + why)
    return Outcome("refused", why)


class Case:
    """A model on disk, what ONNX Runtime computes with it, and prompts to be continued."""

    def __init__(self, model, folder, seed=5, rounding=None):
        self.model, self.folder = model, pathlib.Path(folder)
        self.oracle = Oracle(model, rounding) if rounding else Oracle(model)
        self.rng = np.random.default_rng(seed)
        self.data, self.padded, self.made, self.remarks = [], [], [], ""
        # What half precision does to the outputs: as ONNX Runtime rounds, and two samples more.
        # One alone may miss that a score is beside the number where a graph switches.
        self.half, self.rounding = session(model.half) if model.half else None, 0.0
        self.rounded_weights = [
            session(perturbed(model.proto, np.random.default_rng(k), HALF_ROUNDING))
            for k in (range(2) if model.half else ())
        ]
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        onnx.save(model.half or model.proto, str(self.folder / "model.onnx"))
        for number, feeds in enumerate(self.calls()):
            outputs = self.oracle.expected(feeds)
            self.made.append((feeds, outputs))
            if self.half:
                feeds = self.rounded(feeds, outputs)
            masked = any((v == 0).any() for n, v in feeds.items() if model.roles[n] == "mask")
            # Windows may leave padding without a key; 0 times its NaN is NaN for all other tokens.
            if masked and not all(np.isfinite(v).all() for v in outputs.values()):
                continue
            self.write(number, feeds, outputs)
            if masked:
                self.padded.append(self.data[-1])
        c = model.context
        one = int(self.rng.integers(2, c))
        lengths = sorted({max(1, min(n, c - STEPS)) for n in (1, 5, one, c // 2, c)})
        self.prompts = [self.rng.integers(0, model.vocab, n).tolist() for n in lengths]

    def tolerance(self):
        """Of norms: rounding in another order, as measured, and some. A cast that is left out may
        round less, where a remark says so."""
        limit = max(3e-5, 40 * self.oracle.noise) + 4 * self.rounding
        return max(limit, 2e-2) if "cast" in self.remarks else limit

    def rounded(self, feeds, outputs):
        """The same for the graph in fp16. Takes in what half precision does to the outputs."""
        given = {
            n: v.astype(np.float16) if v.dtype == np.float32 else v for n, v in feeds.items()
        }
        try:
            values = dict(zip(self.oracle.outputs, self.half.run(None, given)))
        except Exception as e:
            raise Invalid(str(e)) from e
        self.rounding = max(
            [self.rounding]
            + [distance(values[n], v) for n, v in outputs.items()]
            + [moved_by(s, feeds, outputs) for s in self.rounded_weights]
        )
        if not self.rounding <= 0.03:
            raise Invalid(f"half precision moves it by {self.rounding:.1g}")
        return given

    def single_rounding(self):
        """How far single precision is from double in any call; 0 where ONNX Runtime does not have
        all of the graph in double. Scores beside -10000 are rounded to a thousandth, which no
        change of the weights tells."""
        try:
            exact = session(halves.doubled(self.model.proto))
            moved = [0.0]
            for feeds, outputs in self.made:
                given = {
                    n: v.astype(np.float64) if v.dtype == np.float32 else v
                    for n, v in feeds.items()
                }
                for name, value in zip(self.oracle.outputs, exact.run(None, given)):
                    moved.append(distance(outputs[name], value))
        except Exception:  # of many kinds
            return 0.0
        return max(moved) if max(moved) < 0.01 else 0.0

    def calls(self):
        """Inputs of the exported graph: full context, a ragged batch, one token; behind pasts of
        several lengths."""
        c, vocab, roles = self.model.context, self.model.vocab, set(self.model.roles.values())
        most = 1 if self.model.alone else 5
        ids = lambda b, t: self.rng.integers(0, vocab, (min(b, most), t))  # noqa: E731
        yield self.oracle.feeds(ids(2, c))
        yield self.oracle.feeds(ids(3, 7), rng=self.rng)
        yield self.oracle.feeds(ids(1, 1), rng=self.rng)
        for sequences in (1, 1, 5):
            length = int(self.rng.integers(2, c + 1))
            yield self.oracle.feeds(ids(sequences, length), rng=self.rng)
        if "past" in roles:
            yield self.oracle.feeds(ids(2, c - 9), past=9, rng=self.rng)
            yield self.oracle.feeds(ids(2, 1), past=c - 1, rng=self.rng)
            yield self.oracle.feeds(ids(3, 4), past=3, rng=self.rng)
        if "mask" in roles and not self.model.alone:
            past = 2 if "past" in roles else 0
            t = 8
            # Right padding and a hole. A token that sees no key is padding, and what a plan makes
            # of it is not defined: so there is none here.
            mask = np.ones((3, past + t))
            mask[0, -3:] = 0
            mask[1, past + 3] = 0
            yield self.oracle.feeds(ids(3, t), past, mask=mask, rng=self.rng)
        if "positions" in roles:
            yield self.oracle.feeds(ids(2, 6), positions=self.rng.integers(0, c, (2, 6)))
        if "types" in roles:
            feeds = self.oracle.feeds(ids(2, 6))
            for name, role in self.model.roles.items():
                if role == "types":
                    feeds[name] = self.rng.integers(0, 3, (2, 6))
            yield feeds

    def write(self, number, feeds, outputs):
        data = self.folder / f"test_data_set_{number}"
        data.mkdir(exist_ok=True)
        for kind, values in (("input", feeds), ("output", outputs)):
            for i, (name, value) in enumerate(values.items()):
                (data / f"{kind}_{i}.pb").write_bytes(
                    numpy_helper.from_array(value, name).SerializeToString()
                )
        self.data.append(data.name)

    # -- What gpt2c makes of it

    def commands(self, flags=()):
        """How to compile the model, to compare @forward and to generate, in its folder."""
        device = ["gpt2c-run", "p.plan", "--device=cpu", "--threads=1"]
        return [
            ["gpt2c", "model.onnx", "-o", "p.plan", "--gpu-arch=none", "--remarks", *flags],
            [*device, "--rtol=1e30", *(f"--test-data={d}" for d in self.data)],
            [
                *device,
                "-n",
                str(STEPS),
                "--ignore-eos",
                "--output=json",
                "--logprobs=9",
                *("--ids=" + ",".join(map(str, p)) for p in self.prompts),
            ],
        ]

    def compile(self, command):
        """The outcome where there is no plan, else None; `remarks` are what was said."""
        code, _, self.remarks = run(command, self.folder)
        return None if code == 0 else refusal(code, self.remarks, "gpt2c")

    def forward(self, command):
        """Every output of every call against ONNX Runtime's."""
        code, out, stderr = run(command, self.folder)
        worst, where, data = 0.0, "", ""
        for line in out.splitlines():
            data = line.split(" on ")[0] if " on " in line else data
            m = re.match(r"^ +(\S+) +\S+\[[^]]*\] +(\S+) +(\S+) +(PASS|FAIL)", line)
            if m and not float(m.group(3)) <= worst:
                worst, where = float(m.group(3)), f"{m.group(1)} of {data}"
            elif "FAIL" in line and not m:
                worst, where = np.inf, f"{line.strip()} of {data}"
        if worst > self.tolerance():
            return Outcome(
                "wrong", f"forward: {where} is {worst:.3g} off, rounding {self.oracle.noise:.1g}"
            )
        if code:
            return refusal(code, stderr, "forward")
        return Outcome("equal", f"forward {worst:.2g}")

    def generation(self, command):
        """Twelve tokens behind each prompt, all in one batch, and how probable they were."""
        code, out, stderr = run(command, self.folder)
        if code:
            return refusal(code, stderr, "generation")
        answers = json.loads(out)["sequences"]
        if len(answers) != len(self.prompts):
            return Outcome("wrong", f"generation: {len(answers)} of {len(self.prompts)} answers")
        ways = [False]
        if "every step runs the whole graph" in self.remarks:
            ways.append(True)  # said, and only with past inputs something else than step by step
        for prompt, answer in zip(self.prompts, answers):
            for whole in ways:
                why = self.oracle.wrong_answer(prompt, answer, 4 * self.tolerance(), whole)
                if not why:
                    break
            if why:
                return Outcome("wrong", f"generation: behind {len(prompt)} tokens, {why}")
        return Outcome("equal", "")

    def only_padding_differs(self, flags):
        """Whether a difference is in the rows of padded tokens alone, whose values are free: the
        same without the padded calls, and with logits that are 0 for what is padded. Of a graph
        whose rows are not those of its mask nothing says which are free."""
        if not self.padded:
            return False
        whole = [d for d in self.data if d not in self.padded]
        command = [c for c in self.commands(flags)[1] if not c.startswith("--test-data=")]
        if self.forward(command + [f"--test-data={d}" for d in whole]).state != "equal":
            return False
        try:
            case = Case(without_padding(self.model), self.folder / "padding")
        except Invalid:
            return True
        kept = [case.folder / d / "output_0.pb" for d in case.data]
        for path in case.folder.glob("*/output_*.pb"):
            if path not in kept:
                path.unlink()  # keys and values of padded tokens
        compiling, forward, _ = case.commands(flags)
        return not case.compile(compiling) and case.forward(forward).state == "equal"

    def only_dropped_casts_differ(self, flags):
        """Whether a difference is the rounding of casts that the plan leaves out and says so: the
        plan is equal to the graph without them."""
        said = self.remarks.replace("are dropped", "is dropped")
        if self.half or "is dropped: the plan computes" not in said:
            return False
        try:
            case = Case(without_narrow_casts(self.model), self.folder / "casts")
        except Invalid:
            return False
        _, forward, generation = case.commands(flags)
        shutil.copy(self.folder / "p.plan", case.folder / "p.plan")
        try:
            return all(
                out.state == "equal" for out in (case.forward(forward), case.generation(generation))
            )
        except Invalid:
            return True

    def check(self, flags=()):
        """What comes of the model with these flags: the worst of compilation, forward and
        generation."""
        compiling, forward, generation = self.commands(flags)
        out = self.compile(compiling)
        if out:
            return out
        first = self.forward(forward)
        if first.state == "wrong" and not self.half:
            self.rounding = self.single_rounding()
            first = self.forward(forward)
        if first.state == "wrong" and self.only_padding_differs(flags):
            first = Outcome("equal", "forward, but for padding")
        if first.state == "equal":
            try:
                second = self.generation(generation)
                first = first if second.state == "equal" else second
            except Invalid:  # ONNX Runtime cannot generate with it
                pass
        if first.state == "wrong" and self.only_dropped_casts_differ(flags):
            return Outcome("equal", "but for casts that are dropped, as it says")
        # ONNX Runtime computes fp16 in single precision.
        if first.state == "wrong" and self.half and "is decided by rounding" in self.remarks:
            return Outcome("invalid", "rounding to fp16 decides, as it says: " + first.why)
        return first


def without_narrow_casts(model):
    """The model with casts to fp32 in the place of those to fp16 and bf16."""
    proto = onnx.ModelProto()
    proto.CopyFrom(model.proto)
    for cast in halves.casts_to(proto, onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT16):
        cast.i = onnx.TensorProto.FLOAT
    return dataclasses.replace(model, proto=proto)


def without_padding(model):
    """The model with logits of 0 for tokens that the attention mask hides; logits come first."""
    half = model.half and with_zeros(model, model.half, np.float16)
    return dataclasses.replace(model, proto=with_zeros(model, model.proto, np.float32), half=half)


def with_zeros(model, given, dtype):
    proto = onnx.ModelProto()
    proto.CopyFrom(given)
    graph, mask = proto.graph, next(n for n, role in model.roles.items() if role == "mask")
    for node in graph.node:
        for i, name in enumerate(node.output):
            if name == model.logits:
                node.output[i] = "all_logits"
        for i, name in enumerate(node.input):
            if name == model.logits:
                node.input[i] = "all_logits"
    numbers = {"one": [1], "two": [2], "far": [1 << 62]}
    for name, value in numbers.items():
        graph.initializer.append(numpy_helper.from_array(np.array(value), "padding_" + name))
    graph.initializer.append(numpy_helper.from_array(dtype(0), "padding_zero"))
    ops = [
        ("Shape", ["all_logits"], "padding_shape", {}),
        ("Slice", ["padding_shape", "padding_one", "padding_two"], "padding_seq", {}),
        ("Neg", ["padding_seq"], "padding_first", {}),
        ("Slice", [mask, "padding_first", "padding_far", "padding_one"], "padding_given", {}),
        ("Cast", ["padding_given"], "padding_bool", {"to": onnx.TensorProto.BOOL}),
        ("Reshape", ["padding_bool", "padding_rows"], "padding_row", {}),
        ("Where", ["padding_row", "all_logits", "padding_zero"], model.logits, {}),
    ]
    graph.initializer.append(numpy_helper.from_array(np.array([0, -1, 1]), "padding_rows"))
    for kind, inputs, output, attrs in ops:
        graph.node.append(helper.make_node(kind, inputs, [output], name="/" + output, **attrs))
    first = next(i for i, o in enumerate(graph.output) if o.name == model.logits)
    outputs = list(graph.output)
    outputs.insert(0, outputs.pop(first))
    del graph.output[:]
    graph.output.extend(outputs)
    return proto


def prepared(model, folder, seed=5):
    """The case of a model, unless rounding decides what it computes."""
    case = Case(model, folder, seed)
    if case.tolerance() - 4 * case.rounding > 1e-2:
        raise Invalid(f"rounding moves it by {case.oracle.noise:.1g}")
    return case
