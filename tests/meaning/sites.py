"""Changes of a graph as an exporter wrote it: an op put onto one of its values, or a constant
changed.

`Sites(model, values)` finds the places by what they are: masks, scores, shares, activations, norms,
positions. `values` are all values of one run at full context, which say what each place holds and
where a limit bites. A change is a function of the graph, so any subset of changes can be applied to
it in their order.
"""

from dataclasses import dataclass
from typing import Callable

import numpy as np
from onnx import helper, numpy_helper

from inserts import BOOLS, FLOATS, INTS, NUMERIC, float_window
from nodes import NODES

ELEMENTWISE = set(
    """Add Sub Mul Div Pow Sqrt Reciprocal Tanh Erf Sigmoid Exp Cast Where Clip Min Max Neg Abs And
    Or Not Equal Less LessOrEqual Greater GreaterOrEqual Identity Expand Unsqueeze Squeeze Reshape
    Slice Trilu IsNaN Mod""".split()
)
NORMS = set(
    """Sqrt Reciprocal LayerNormalization SkipLayerNormalization RMSNormalization
    SimplifiedLayerNormalization SkipSimplifiedLayerNormalization""".split()
)
ROTATING = {"Concat", "MatMul", "Transpose"}
TABLED = {"RotaryEmbedding", "GroupQueryAttention", "Slice"}  # with the angles of all positions
ACTIVATIONS = set("Tanh Erf Sigmoid Gelu Relu FastGelu BiasGelu Swish".split())
# What is drawn, and how often.
KINDS = {
    "scores": 0.11,
    "mask": 0.1,
    "positions": 0.09,
    "act": 0.07,
    "norm": 0.08,
    "heads": 0.08,
    "shares": 0.04,
    "rope": 0.09,
    "any": 0.03,
    "constant": 0.1,
    "table": 0.05,
    "weight": 0.05,
    "node": 0.11,
}


@dataclass
class Change:
    said: str
    apply: Callable  # of (Editor) -> None


class Editor:
    """Nodes are inserted behind the value they read, and take over its readers."""

    def __init__(self, proto):
        self.graph, self.count = proto.graph, 0
        self.opset = next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))

    def const(self, value, dtype):
        self.count += 1
        name = f"fuzz_c{self.count}"
        self.graph.initializer.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def op(self, kind, *inputs, **attrs):
        self.count += 1
        self.pending.append(
            helper.make_node(
                kind, list(inputs), [f"fuzz_{self.count}"], name=f"/fuzz/{self.count}", **attrs
            )
        )
        return self.pending[-1].output[0]

    def reduce_mean(self, x):
        if self.opset < 18:
            return self.op("ReduceMean", x, axes=[-1])
        return self.op("ReduceMean", x, self.const([-1], np.int64))

    def axes(self, kind, x, axes):
        if self.opset < 13:
            return self.op(kind, x, axes=axes)
        return self.op(kind, x, self.const(axes, np.int64))

    def insert(self, value, build, reader=None):
        """build(editor, value) makes nodes; one reader, or all of them, read the result instead of
        value."""
        readers = [(n, j) for n in self.graph.node for j, v in enumerate(n.input) if v == value]
        if reader is not None and readers:
            readers = [readers[reader % len(readers)]]
        made = {o.name for o in self.graph.output}
        self.pending = []
        result = build(self, value)
        if value in made and reader is None:
            return  # outputs keep their names
        for node, j in readers:
            node.input[j] = result
        at = next((k + 1 for k, n in enumerate(self.graph.node) if value in n.output), 0)
        nodes = list(self.graph.node)
        nodes[at:at] = self.pending
        del self.graph.node[:]
        self.graph.node.extend(nodes)


class Sites:
    def __init__(self, proto, values, roles):
        self.graph, self.values, self.roles = proto.graph, values, roles
        self.made = {o: n for n in self.graph.node for o in n.output}
        self.constants = {w.name: numpy_helper.to_array(w) for w in self.graph.initializer}
        for n in self.graph.node:
            if n.op_type == "Constant" and n.attribute[0].name == "value":
                self.constants[n.output[0]] = numpy_helper.to_array(n.attribute[0].t)
        self.readers = {}
        for n in self.graph.node:
            for v in n.input:
                self.readers.setdefault(v, []).append(n)
        self.taint()
        self.places = {k: sorted(v) for k, v in self.find().items()}

    def taint(self):
        """Which values depend on the ids themselves, not just on how many there are."""
        self.data = {n for n, role in self.roles.items() if role in ("ids", "past", "types")}
        for n in self.graph.node:
            if n.op_type not in ("Shape", "Size") and any(v in self.data for v in n.input):
                self.data.update(n.output)

    def up(self, value, within, depth=12):
        """Values above `value` that are reached through ops in `within`, and itself."""
        seen, todo = set(), [(value, 0)]
        while todo:
            v, d = todo.pop()
            if v in seen or v in self.constants or not v:
                continue
            seen.add(v)
            n = self.made.get(v)
            if n is not None and d < depth and n.op_type in within:
                todo += [(i, d + 1) for i in n.input]
        return seen

    def down(self, value, within, depth=4):
        seen, todo = set(), [(value, 0)]
        while todo:
            v, d = todo.pop()
            if v in seen:
                continue
            seen.add(v)
            if d < depth:
                todo += [
                    (o, d + 1)
                    for n in self.readers.get(v, [])
                    if n.op_type in within
                    for o in n.output
                ]
        return seen

    def find(self):
        places = {
            k: set()
            for k in "scores shares mask heads act norm positions rope any logits".split()
        }
        for n in self.graph.node:
            if n.op_type in ("Softmax", "Exp"):
                above = self.up(n.input[0], ELEMENTWISE)
                places["scores"] |= {v for v in above if v in self.data}
                places["mask"] |= {v for v in above if v not in self.data}
                places["shares"] |= self.down(n.output[0], ELEMENTWISE)
            elif n.op_type in ("Attention", "MultiHeadAttention", "GroupQueryAttention"):
                places["heads"] |= set(n.input[:3])
                for v in n.input[3:4]:
                    places["mask"] |= self.up(v, ELEMENTWISE)
            elif n.op_type == "MatMul" and all(v in self.data for v in n.input):
                places["heads"] |= set(n.input)
            elif n.op_type in ("Cos", "Sin"):
                places["rope"] |= self.up(n.input[0], ELEMENTWISE | ROTATING)
                places["rope"] |= self.down(n.output[0], ELEMENTWISE | ROTATING, 8)
            elif n.op_type == "RotaryEmbedding":
                places["heads"] |= {n.input[0], n.output[0]}
                places["rope"] |= {v for i in n.input[1:] for v in self.up(i, ELEMENTWISE)}
            elif n.op_type in ACTIVATIONS:
                places["act"] |= self.up(n.input[0], ELEMENTWISE, 4) | self.down(
                    n.output[0], ELEMENTWISE
                )
            elif n.op_type in NORMS:
                places["norm"] |= self.up(n.input[0], ELEMENTWISE | {"ReduceMean"}, 5) | self.down(
                    n.output[0], ELEMENTWISE, 3
                )
            elif (
                n.op_type == "Gather"
                and n.input[1] not in self.data
                and len(self.shape(n.input[0])) == 2
            ):
                places["positions"] |= self.up(n.input[1], ELEMENTWISE)
            places["any"] |= {o for o in n.output if o in self.data}
        return {k: {v for v in vs if self.usable(v)} for k, vs in places.items()}

    def shape(self, v):
        value = self.values.get(v, self.constants.get(v))
        return () if value is None else value.shape

    def usable(self, v):
        value = self.values.get(v)
        return (
            value is not None
            and value.dtype in NUMERIC
            and value.ndim > 0
            and value.size > 1
            and v in self.readers
            and v not in self.constants
        )

    # -- Changes

    def draw(self, rng):
        """One change, or None where the place that was drawn has nothing to change."""
        kind = str(rng.choice(list(KINDS), p=list(KINDS.values())))
        if kind in ("constant", "table", "weight", "node"):
            return getattr(self, kind)(rng)
        if not self.places[kind]:
            return None
        value = str(rng.choice(self.places[kind]))
        reader = None if rng.random() < 0.7 else int(rng.integers(4))
        held = self.values[value]
        makers = BOOLS if held.dtype == bool else INTS if held.dtype.kind == "i" else FLOATS
        if kind not in ("scores", "mask", "shares"):
            makers = [m for m in makers if m is not float_window]  # equal keys: rounding decides
        maker = makers[int(rng.integers(len(makers)))]
        made = maker(rng, held)
        if made is None:
            return None
        said, build = made
        return Change(
            f"{kind}: {said} on {value}" + ("" if reader is None else f" for reader {reader}"),
            lambda e: e.insert(value, build, reader),
        )

    def stored(self, name, value, said):
        """The constant of that name becomes value."""

        def apply(e):
            for w in e.graph.initializer:
                if w.name == name:
                    w.CopyFrom(numpy_helper.from_array(value, name))
            for n in e.graph.node:
                if n.op_type == "Constant" and n.output[0] == name:
                    n.attribute[0].t.CopyFrom(numpy_helper.from_array(value))

        return Change(f"constant {name} {list(value.shape)}: {said}", apply)

    def constant(self, rng):
        names = sorted(n for n, v in self.constants.items() if n in self.readers and v.size)
        small = [n for n in names if self.constants[n].size == 1]
        tables = [
            n
            for n in names
            if self.constants[n].size > 1
            and (self.constants[n].dtype.kind in "biu" or self.like_mask(self.constants[n]))
        ]
        names = tables if tables and rng.random() < 0.4 else small
        if not names:
            return None
        name = str(rng.choice(names))
        value = self.constants[name].copy()
        if value.size > 1:
            return self.late(rng, name, value)
        if value.dtype.kind == "f":
            old = float(value.reshape(-1)[0])
            new = [0.9, 0.99, 1.01, 1.1, 2.0, 10.0, -1.0][int(rng.integers(7))] * old
            if abs(old) >= 1e3:
                new = [-20.0, -50.0, -100.0, -1e3, -1e4, -1e9][int(rng.integers(6))]
            return self.stored(
                name, np.full_like(value, np.clip(new, -3e38, 3e38)), f"{old:.6g} becomes {new:.6g}"
            )
        if value.dtype.kind == "i":
            by = int(rng.choice([-2, -1, 1, 2]))
            return self.stored(name, value + by, f"{int(value.reshape(-1)[0])} plus {by}")
        return self.stored(name, ~value, "negated")

    def like_mask(self, value):
        return value.ndim >= 2 and value.dtype.kind == "f" and np.unique(value).size == 2

    def late(self, rng, name, value):
        flat = value.reshape(-1)
        a = int(rng.integers(flat.size // 2, flat.size))
        if (
            value.ndim >= 2 and rng.random() < 0.5
        ):  # a whole column, or what is far below the diagonal
            other = np.unique(flat)
            hidden = value[..., 0, -1]
            columns = np.arange(value.shape[-1])
            size = int(rng.integers(1, value.shape[-1]))
            if rng.random() < 0.5:
                far = np.subtract.outer(np.arange(value.shape[-2]), columns) >= size
                return self.stored(
                    name,
                    np.where(far, hidden[..., None, None], value).astype(value.dtype),
                    f"window of {size}",
                )
            value[..., size] = other[int(rng.integers(other.size))]
            return self.stored(name, value, f"column {size} of one value")
        b = int(rng.integers(flat.size // 2, flat.size))
        flat[[a, b]] = flat[[b, a]]
        if value.dtype == bool:
            flat[a] = ~flat[a]
        return self.stored(name, flat.reshape(value.shape), f"late entries {a} and {b} swapped")

    def is_tabled(self, reader):
        looked_up = reader.op_type == "Gather" and reader.input[1] not in self.data
        return looked_up or reader.op_type in TABLED

    def table(self, rng):
        """A small constant of floats that is no matrix: frequencies, angles, gains."""
        names = sorted(
            n
            for n, v in self.constants.items()
            if v.dtype.kind == "f" and v.size > 1 and n in self.readers and not self.like_mask(v)
            if max(v.shape) == v.size or any(self.is_tabled(r) for r in self.readers[n])
        )
        if not names:
            return None
        name = str(rng.choice(names))
        value, at = self.constants[name].copy(), int(rng.integers(self.constants[name].shape[-1]))
        kind = str(rng.choice(["all", "one", "zero", "reversed", "negated", "late"]))
        if kind == "all":
            value = value * rng.choice([0.5, 0.99, 1.01, 2.0])
        elif kind == "late":
            flat = value.reshape(-1)
            flat[int(rng.integers(flat.size // 2, flat.size))] *= 1.3
        elif kind == "reversed":
            value = value[..., ::-1]
        elif kind == "negated":
            value = -value
        else:
            value[..., at] *= 0 if kind == "zero" else 1.2
        return self.stored(name, value.astype(self.constants[name].dtype), f"{kind} changed")

    def node(self, rng):
        changed = self.graph.node[int(rng.integers(len(self.graph.node)))]
        made = NODES[int(rng.integers(len(NODES)))](rng, changed)
        if made is None:
            return None
        output = next(o for o in changed.output if o)

        def apply(e):
            made[1](next(n for n in e.graph.node if output in n.output))

        return Change(f"{changed.op_type} that makes {output}: {made[0]}", apply)

    def weight(self, rng):
        names = sorted(
            n
            for n, v in self.constants.items()
            if v.dtype.kind == "f" and v.ndim == 2 and n in self.readers and not self.like_mask(v)
        )
        if not names:
            return None
        name, factor = str(rng.choice(names)), float(rng.choice([0.1, 3, 8, 30]))
        value = self.constants[name]
        return self.stored(name, (value * factor).astype(value.dtype), f"times {factor:g}")
