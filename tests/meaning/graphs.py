"""Graphs of decoders in ONNX, built from a dict of choices. What a choice does not name is as in
GPT-2; with `rope`, `kv_heads`, `gated` and the norm `rms` it is like Llama.

A graph comes with the role of each of its inputs (`ids`, `mask`, `positions`, `types`, `past`),
which the oracle needs to feed it, and with its context, the largest number of tokens it takes.
"""

from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import masks
import ropes

OPSET = 17


@dataclass
class Model:
    """A graph and what a caller has to know of it."""

    proto: onnx.ModelProto
    roles: dict  # input name -> role
    context: int
    vocab: int
    logits: str  # the output with the logits
    said: list = field(default_factory=list)  # what was chosen or changed, in words
    probabilities: bool = False  # in the place of logits
    half: onnx.ModelProto = None  # the same in fp16, which is compiled in its place
    alone: bool = False  # ONNX Runtime takes one sequence at a time, whose mask has only ones


class Graph:
    """Nodes and initialisers in the order of their use; float32 unless said otherwise."""

    def __init__(self, rng):
        self.rng, self.nodes, self.weights, self.inputs, self.outputs = rng, [], {}, [], []

    def const(self, value, dtype=np.float32, name=None):
        name = name or f"c{len(self.weights)}"
        self.weights[name] = np.asarray(value, dtype)
        return name

    def ints(self, *values):
        return self.const(values, np.int64)

    def weight(self, *shape, scale=0.35, name=None):
        return self.const(self.rng.normal(0, scale, shape), name=name)

    def op(self, kind, *inputs, outputs=1, name=None, **attrs):
        name = name or f"/{kind}_{len(self.nodes)}"
        results = [f"{name}_out{i}" for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, list(inputs), results, name=name, **attrs))
        return results if outputs > 1 else results[0]

    def input(self, name, dtype, dims):
        self.inputs.append(helper.make_tensor_value_info(name, dtype, dims))
        return name

    def output(self, value, name, rank):
        self.nodes.append(helper.make_node("Identity", [value], [name], name=f"/output/{name}"))
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * rank))

    def proto(self):
        graph = helper.make_graph(
            self.nodes,
            "gpt",
            self.inputs,
            self.outputs,
            [numpy_helper.from_array(a, n) for n, a in self.weights.items()],
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8
        )


class Gpt(Graph):
    """One model: `Gpt(rng, choices).model()`. Layers other than `only` are made with `others`."""

    def __init__(self, rng, choices, only=None, others=None):
        super().__init__(rng)
        self.o = self.all = choices
        self.only, self.others = only, others
        self.layers, self.heads = choices.get("layers", 2), choices.get("heads", 4)
        self.head_dim = choices.get("head_dim", 8)
        self.width = self.heads * self.head_dim
        self.kv_heads = choices.get("kv_heads", self.heads)
        self.context, self.vocab = choices.get("context", 24), choices.get("vocab", 61)
        self.roles, self.presents = {}, []

    # -- Inputs and numbers of tokens

    def names(self, tensor, *names):
        """Dimensions, with names that no other tensor has where `own_names` says so."""
        own = self.o.get("own_names")
        return [f"{n}_of_{tensor.replace('.', '_')}" if own else n for n in names]

    def declare(self):
        rename = self.o.get("ids_name", "input_ids")
        self.ids = self.input(rename, TensorProto.INT64, ["batch", "seq"])
        self.roles[self.ids] = "ids"
        self.pasts = []
        if self.o.get("past"):
            for i in range(self.layers):
                for part in ("key", "value"):
                    name = f"past_key_values.{i}.{part}"
                    dims = [*self.names(name, "batch", "past"), self.head_dim]
                    dims.insert(1, self.kv_heads)
                    self.pasts.append(self.input(name, TensorProto.FLOAT, dims))
                    self.roles[name] = "past"
        self.attention_mask = None
        if self.o.get("attention_mask"):
            total = "total" if self.o.get("past") else "seq"
            dims = self.o.get("mask_dims") or self.names("mask", "batch", total)
            self.attention_mask = self.input("attention_mask", TensorProto.INT64, dims)
            self.roles["attention_mask"] = "mask"
        # [1]: tokens given, tokens before them, their sum
        self.seq = self.op("Slice", self.op("Shape", self.ids), self.ints(1), self.ints(2))
        self.past_len = self.ints(0)
        if self.pasts:
            self.past_len = self.op(
                "Slice", self.op("Shape", self.pasts[0]), self.ints(2), self.ints(3)
            )
        self.total = self.op("Add", self.seq, self.past_len)

    def scalar(self, one):
        return self.op("Squeeze", one, self.ints(0))

    def span(self, first, last):
        """[last - first] numbers from two values of shape [1]."""
        return self.op("Range", self.scalar(first), self.scalar(last), self.const(1, np.int64))

    def queries(self):
        """[seq, 1]: where each query stands."""
        return self.op("Unsqueeze", self.span(self.past_len, self.total), self.ints(1))

    def keys(self):
        return self.op("Unsqueeze", self.span(self.ints(0), self.total), self.ints(0))

    # -- Layers

    def linear(self, x, inputs, outputs, name):
        strong = next((f for key, f in self.o.get("strong", {}).items() if key in name), 1)
        weight = self.weight(inputs, outputs, scale=strong / np.sqrt(inputs))
        product = self.op("MatMul", x, weight, name=name + "/MatMul")
        if not self.o.get("bias", True):
            return product
        return self.op(
            "Add",
            product,
            self.weight(outputs, scale=0.2),
            name=name + "/Add",
        )

    def norm(self, x, name, width=None):
        gain = self.const(self.rng.normal(1, 0.3, width or self.width))
        bias = self.const(self.rng.normal(0, 0.3, width or self.width))
        if self.o.get("shifted_gain"):
            gain = self.op("Add", gain, self.const(1.0))
        epsilon = self.o.get("epsilon", 1e-5)
        kind = self.o.get("norm", "chain")
        if kind == "op":
            return self.op("LayerNormalization", x, gain, bias, axis=-1, epsilon=epsilon, name=name)
        centred = x
        if kind != "rms":
            centred = self.op("Sub", x, self.op("ReduceMean", x, axes=[-1]))
        square = self.op("Pow", centred, self.const(2.0))
        if kind == "product":
            square = self.op("Mul", centred, centred)
        variance = self.op("ReduceMean", square, axes=[-1])
        if "variance" in self.o:
            variance = self.o["variance"](self, variance)
        if kind == "outside":
            root = self.op(
                "Add", self.op("Sqrt", variance, name=name + "/sqrt"), self.const(epsilon)
            )
        else:
            shifted = self.op("Add", variance, self.const(epsilon))
            root = self.op("Sqrt", shifted, name=name + "/sqrt")
        if kind == "reciprocal":
            y = self.op("Mul", centred, self.op("Reciprocal", root))
        else:
            y = self.op("Div", centred, root)
        if "normalised" in self.o:
            y = self.o["normalised"](self, y)
        y = self.op("Mul", y, gain)
        return y if kind == "rms" else self.op("Add", y, bias, name=name)

    def gelu(self, h):
        cubic, inner = self.o.get("cubic", 0.044715), self.o.get("inner", (2 / np.pi) ** 0.5)
        kind = self.o.get("act", "tanh")
        half = self.op("Mul", h, self.const(0.5))
        if kind == "tanh":
            cube = self.op("Mul", self.op("Pow", h, self.const(3.0)), self.const(cubic))
            bent = self.op("Tanh", self.op("Mul", self.op("Add", h, cube), self.const(inner)))
        elif kind == "erf":
            bent = self.op("Erf", self.op("Div", h, self.const(self.o.get("root", 2**0.5))))
        elif kind == "relu":
            return self.op("Relu", h)
        else:  # silu or sigmoid of a factor
            factor = {"silu": 1.0, "quick": 1.702}[kind]
            return self.op("Mul", h, self.op("Sigmoid", self.op("Mul", h, self.const(factor))))
        y = self.op("Mul", half, self.op("Add", bent, self.const(1.0)))
        return y

    def split_heads(self, x, heads=None, norm=None):
        """[b, t, heads * head_dim] as [b, heads, t, head_dim], behind a norm of heads."""
        x = self.op("Reshape", x, self.ints(0, 0, heads or self.heads, self.head_dim))
        if norm and self.o["qk_norm"] == "before":
            return self.op("Transpose", self.norm(x, norm, self.head_dim), perm=[0, 2, 1, 3])
        x = self.op("Transpose", x, perm=[0, 2, 1, 3])
        return self.norm(x, norm, self.head_dim) if norm else x

    def repeated(self, x):
        """[b, kv_heads, t, d] with every head as often as query heads share it."""
        times = self.heads // self.kv_heads
        how = self.o.get("repeat", "expand")
        if how == "gather":
            order = self.o.get("head_order", np.arange(self.heads) // times)
            return self.op("Gather", x, self.ints(*order), axis=1)
        if how == "tile":  # 0 1 0 1, not 0 0 1 1
            return self.op("Tile", x, self.ints(1, times, 1, 1))
        if how == "concat":
            one = self.op("Unsqueeze", x, self.ints(2))
            many = self.op("Concat", *[one] * times, axis=2)
        else:
            one = self.op("Unsqueeze", x, self.ints(2))
            shape = self.op("Shape", one)
            shape = self.op("Mul", shape, self.ints(1, 1, times, 1, 1))
            many = self.op("Expand", one, shape)
        return self.op("Reshape", many, self.ints(0, self.heads, -1, self.head_dim))

    def mask(self):
        """True where a key is seen: broadcasts to [b, h, seq, total]; None where all are."""
        seen = self.o.get("seen", masks.causal)(self)
        if self.o.get("seen_too"):
            too = self.o["seen_too"](self)
            seen = too if seen is None else self.op("And", seen, too)
        if self.attention_mask:
            given = self.attention_mask
            if self.o.get("cut_mask"):
                given = self.op("Slice", given, self.ints(0), self.total, self.ints(1))
            given = self.op("Unsqueeze", given, self.ints(1, 2))
            given = self.op("Cast", given, to=TensorProto.BOOL)
            seen = given if seen is None else self.op("And", seen, given)
        return seen

    def qkv(self, x, name, norms):
        """[b, heads, t, head_dim] each, of one product whose columns `qkv` orders: q k v; or these
        in every head, the last axis cut (`heads`) or indexed (`axis`); or heads of queries with the
        heads of keys and values that they share (`groups`)."""
        how, dim = self.o.get("qkv", "parts"), self.head_dim
        if how == "parts":
            sizes = [self.width, *[self.kv_heads * dim] * 2]
            parts = self.linear(x, self.width, sum(sizes), name)
            parts = self.op("Split", parts, self.ints(*sizes), outputs=3, axis=2)
            q, k, v = (parts[j] for j in self.o.get("order", (0, 1, 2)))
            return (
                self.split_heads(q, None, norms[0]),
                self.split_heads(k, self.kv_heads, norms[1]),
                self.split_heads(v, self.kv_heads),
            )
        heads, group = self.kv_heads, self.heads // self.kv_heads
        y = self.linear(x, self.width, heads * (group + 2) * dim, name)
        if how == "heads":
            y = self.op("Reshape", y, self.ints(0, 0, heads, (group + 2) * dim))
            y = self.op("Transpose", y, perm=[0, 2, 1, 3])
            sizes = self.ints(group * dim, dim, dim)
            q, k, v = self.op("Split", y, sizes, outputs=3, axis=3)
            if group > 1:
                q = self.op("Transpose", q, perm=[0, 2, 1, 3])
                q = self.split_heads(q)
            return q, k, v
        y = self.op("Reshape", y, self.ints(0, 0, heads, group + 2, dim))
        if how == "axis" and group == 1:
            parts = [self.op("Gather", y, self.const(j, np.int64), axis=3) for j in range(3)]
            return [self.op("Transpose", p, perm=[0, 2, 1, 3]) for p in parts]
        q, k, v = self.op("Split", y, self.ints(group, 1, 1), outputs=3, axis=3)
        return [
            self.split_heads(p, n) for p, n in ((q, self.heads), (k, heads), (v, heads))
        ]

    def attention(self, x, i):
        name = f"/h{i}/attn"
        norms = [name + n for n in ("/qn", "/kn")] if self.o.get("qk_norm") else [None] * 2
        q, k, v = self.qkv(x, name + "/qkv", norms)
        if self.o.get("rope"):
            rotated = self.o.get("rotated", "qk")
            q, k, v = (
                ropes.rotate(self, x, n) if n in rotated else x
                for n, x in (("q", q), ("k", k), ("v", v))
            )
        q, k, v = (
            self.o[n](self, x) if n in self.o else x for n, x in (("q", q), ("k", k), ("v", v))
        )
        if self.pasts:
            k = self.op("Concat", self.pasts[2 * i], k, axis=2)
            v = self.op("Concat", self.pasts[2 * i + 1], v, axis=2)
            self.presents += [(f"present.{i}.key", k), (f"present.{i}.value", v)]
        if self.kv_heads != self.heads:
            k, v = self.repeated(k), self.repeated(v)
        scores = self.op(
            "MatMul", q, self.op("Transpose", k, perm=[0, 1, 3, 2]), name=name + "/scores"
        )
        scores = self.op("Mul", scores, self.const(self.o.get("scale", self.head_dim**-0.5)))
        if "scores" in self.o:
            scores = self.o["scores"](self, scores)
        seen, fill = self.mask(), self.o.get("fill", -1e4)
        if seen is not None and self.o.get("added"):
            bias = self.op("Where", seen, self.const(0.0), self.const(fill))
            scores = self.op("Add", scores, bias, name=name + "/mask")
        elif seen is not None:
            scores = self.op("Where", seen, scores, self.const(fill), name=name + "/mask")
        if "masked" in self.o:
            scores = self.o["masked"](self, scores)
        shares = self.op("Softmax", scores, axis=-1)
        if "shares" in self.o:
            shares = self.o["shares"](self, shares)
        y = self.op("MatMul", shares, v, name=name + "/values")
        merged = self.op("Transpose", y, perm=[0, 2, 1, 3])
        merged = self.op("Reshape", merged, self.ints(0, 0, self.width))
        return self.linear(merged, self.width, self.width, name + "/proj")

    def mlp(self, x, i):
        name, wide = f"/h{i}/mlp", 4 * self.width
        if self.o.get("gated"):
            gate, up = self.gate_and_up(x, wide, name + "/fc")
            h = self.gelu(gate)
        else:
            h = self.gelu(self.linear(x, self.width, wide, name + "/fc"))
        if "activated" in self.o:
            h = self.o["activated"](self, h)
        if self.o.get("gated"):
            up = self.o["up"](self, up) if "up" in self.o else up
            h = self.op("Mul", h, up)
        return self.linear(h, wide, self.width, name + "/proj")

    def gate_and_up(self, x, wide, name):
        """Two products; one that is split; one whose columns are gate, up, gate, up .."""
        how = self.o["gated"]
        if how == "two":
            return (self.linear(x, self.width, wide, name + n) for n in ("/gate", "/up"))
        both = self.linear(x, self.width, 2 * wide, name)
        if how == "split":
            return self.op("Split", both, self.ints(wide, wide), outputs=2, axis=2)
        if how == "swapped":
            return self.op("Split", both, self.ints(wide, wide), outputs=2, axis=2)[::-1]
        end = self.ints(1 << 62)
        return (
            self.op("Slice", both, self.ints(n), end, self.ints(2), self.ints(2)) for n in (0, 1)
        )

    def embed(self):
        ids = self.o["ids"](self, self.ids) if "ids" in self.o else self.ids
        table = self.weight(self.vocab, self.width, scale=0.7, name="wte")
        x = self.op("Gather", table, ids, name="/wte")
        if "embedded" in self.o:
            x = self.o["embedded"](self, x)
        positions = self.span(self.past_len, self.total)
        if self.o.get("position_ids"):
            positions = self.input("position_ids", TensorProto.INT64, ["batch", "seq"])
            self.roles[positions] = "positions"
        if "positions" in self.o:
            positions = self.o["positions"](self, positions)
        self.where = positions
        if self.o.get("rope"):
            return x
        rows = self.context + self.o.get("more_positions", 0)
        where = self.op(
            "Gather", self.weight(rows, self.width, scale=0.5, name="wpe"), positions, name="/wpe"
        )
        x = self.op("Add", x, where, name="/embed")
        if self.o.get("types"):
            types = self.input("token_type_ids", TensorProto.INT64, ["batch", "seq"])
            self.roles[types] = "types"
            x = self.op("Add", x, self.op("Gather", "wte", types))
        return x

    def model(self):
        self.declare()
        x = self.embed()
        for i in range(self.layers):
            self.o = self.all if self.only in (None, i) else self.others
            if self.o.get("parallel"):
                y = self.norm(x, f"/h{i}/ln1")
                x = self.op("Add", x, self.op("Add", self.attention(y, i), self.mlp(y, i)))
                continue
            x = self.op("Add", x, self.attention(self.norm(x, f"/h{i}/ln1"), i))
            x = self.op("Add", x, self.mlp(self.norm(x, f"/h{i}/ln2"), i))
        self.o = self.all
        states = self.norm(x, "/lnf")
        head = (
            self.op("Transpose", "wte", perm=[1, 0])
            if self.o.get("tied")
            else self.weight(self.width, self.vocab, name="head")
        )
        logits = self.op("MatMul", states, head, name="/head")
        if "logits" in self.o:
            logits = self.o["logits"](self, logits)
        name = self.o.get("logits_name", "logits")
        outputs = [(name, logits, self.o.get("logits_rank", 3))]
        outputs += [(n, v, 4) for n, v in self.presents]
        if self.o.get("states"):
            outputs.insert(
                self.o["states"] == "last" and len(outputs), ("last_hidden_state", states, 3)
            )
        if self.o.get("reversed"):
            outputs.reverse()
        for n, v, rank in outputs:
            self.output(v, n, rank)
        given = getattr(self.o.get("logits"), "probabilities", False)
        return Model(
            self.proto(), self.roles, self.context, self.vocab, name, probabilities=given
        )
