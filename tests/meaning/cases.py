"""Case I of a seed: a graph, from an exporter or built here, and changes of it."""

import dataclasses
import functools
import json
import os
import pathlib

import numpy as np
import onnx
import onnx.inliner

import draws
import halves
from graphs import Model
from sites import Editor, Sites
from oracle import Oracle

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SHARED = pathlib.Path(os.environ.get("GPT2C_SHARED_DIR") or ROOT.parent / "shared")
# Small ones; without those whose type or size would make rounding or time the subject.
OURS = """classic-past-torchscript-opset13 classic-torchscript-opset13 classic-torchscript-opset17
hf5-sdpa-dynamo-opset18 hf5-sdpa-dynamo-opset23 nano-dynamo-opset23 nano-torchscript-opset17
optimum-past-torchscript-opset17""".split()
LLAMA = """genai-llama-gqa-fp32-external hf5-llama-dynamo-opset18 hf5-llama-gqa-dynamo-opset23
hf5-llama-gqa-past-torchscript-opset17 hf5-llama-mqa-past-dynamo-opset23
hf5-mistral-window8-dynamo-opset18 hf5-qwen2-tied-dynamo-opset20-external
native-llama-gqa-past-opset23 optimum-llama-gqa-past seed-decoder-torchscript-opset17
torch-onnx-ops-gqa-dynamo-opset23""".split()
# With these ONNX Runtime takes several sequences only at times: the op reads lengths instead of a
# mask, or tables of a rotation are of one sequence.
ALONE = ["genai-llama-gqa-fp32-external", "hf5-llama-gqa-dynamo-opset23"]


def exports():
    """Folders of exports, those of this repository first. They also stand for others that are
    missing here, so that a case drawn from one that is there is the same everywhere."""
    found = sorted((ROOT / "tests/data/gpt2-exports").iterdir())
    shared = [SHARED / "models/ours" / name for name in OURS]
    shared += [SHARED / "models/llama" / name for name in LLAMA]
    return found + [f if (f / "model.onnx").exists() else found[0] for f in shared]


def role(name, value):
    """By the names of our own exports: what they are is known."""
    if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT:
        return "past"
    return next(
        (
            r
            for key, r in (("mask", "mask"), ("pos", "positions"), ("type", "types"))
            if key in name
        ),
        "ids",
    )


def loaded(folder):
    """The graph without functions, and without a name for the size of heads."""
    proto = onnx.load(str(folder / "model.onnx"))
    if proto.functions:
        proto = onnx.inliner.inline_local_functions(proto)
    config = folder / "genai_config.json"
    if config.exists():
        size = json.loads(config.read_text())["model"]["decoder"]["head_size"]
        for value in (*proto.graph.input, *proto.graph.output):
            for dim in value.type.tensor_type.shape.dim:
                if dim.dim_param == "kv_cache_dim":
                    dim.dim_value = size
    return proto


@functools.lru_cache(maxsize=None)
def export(folder):
    """The model of a folder and the places where it can be changed."""
    proto = loaded(folder)
    roles = {i.name: role(i.name, i) for i in proto.graph.input}
    logits = proto.graph.output[0]
    vocab = logits.type.tensor_type.shape.dim[-1].dim_value
    tables = {w.name: w.dims for w in proto.graph.initializer}
    rows = [
        tables[n.input[0]][0]
        for n in proto.graph.node
        if n.op_type == "Gather"
        and len(tables.get(n.input[0], ())) == 2
        and tables[n.input[0]][0] != vocab
    ]
    context = min(rows) if rows else 32
    model = Model(proto, roles, min(context, 64), vocab, logits.name, [folder.name])
    model.alone = folder.name in ALONE
    return model, sites(model)


def sites(model):
    """All values of one run: at full context, some of them past."""
    open_proto = onnx.ModelProto()
    open_proto.CopyFrom(model.proto)
    have = {o.name for o in open_proto.graph.output}
    names = [o for n in open_proto.graph.node for o in n.output if o and o not in have]
    open_proto.graph.output.extend(onnx.ValueInfoProto(name=n) for n in names)
    opened = dataclasses.replace(model, proto=open_proto)
    rng = np.random.default_rng(0)
    past = 5 if "past" in model.roles.values() else 0
    oracle = Oracle(opened)
    ids = rng.integers(0, model.vocab, (2 - model.alone, model.context - past))
    feeds = oracle.feeds(ids, past, rng=rng)
    values = {n: v for n, v in {**oracle.run(feeds), **feeds}.items() if isinstance(v, np.ndarray)}
    return Sites(model.proto, values, model.roles)


class Drawn:
    """A base and changes, to be applied in their order."""

    def __init__(self, base, changes):
        self.base, self.changes = base, changes

    def said(self):
        return self.base.said + [c.said for c in self.changes]

    def without(self, i):
        return Drawn(self.base, self.changes[:i] + self.changes[i + 1 :])

    def model(self):
        proto = onnx.ModelProto()
        proto.CopyFrom(self.base.proto)
        editor = Editor(proto)
        for change in self.changes:
            change.apply(editor)
        b = self.base
        return dataclasses.replace(b, proto=proto, said=self.said())


class Twisted:
    """A graph built with choices; its twists are the changes. They can be left out one by one."""

    def __init__(self, seed, index, left=None):
        self.seed, self.index = seed, index
        rng = np.random.default_rng([seed, index, 1])
        self.all = draws.draw(rng)
        self.half = bool(rng.random() < 0.25)
        self.left = list(range(len(self.all.twists))) if left is None else left
        self.changes = [self.all.twists[i] for i in self.left]

    def said(self):
        half = ["in fp16"] if self.half else []
        return [f"built: {self.all.words()}"] + half + [said for said, _ in self.changes]

    def without(self, i):
        return Twisted(self.seed, self.index, self.left[:i] + self.left[i + 1 :])

    def model(self):
        model = self.all.model(self.changes)
        if self.half:
            model.proto, model.half = halves.halved(model.proto)
        return model


def draw(seed, index):
    rng = np.random.default_rng([seed, index])
    if rng.random() < 0.45:
        return Twisted(seed, index)
    bases = exports()
    while True:
        base, places = export(bases[int(rng.integers(len(bases)))])
        wanted = int(rng.choice([1, 2, 3], p=[0.5, 0.3, 0.2]))
        changes = [c for c in (places.draw(rng) for _ in range(wanted)) if c]
        if changes:
            return Drawn(base, changes)
