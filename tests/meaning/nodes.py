"""Changes of a node itself: another attribute, inputs in another order, another op. Functions of
(rng, node) that return words and what to do with the node, or None where there is nothing to do."""

from onnx import helper

# Values that an attribute may get.
ATTRIBUTES = {
    "interleaved": [0, 1],
    "rotary_interleaved": [0, 1],
    "do_rotary": [0, 1],
    "is_causal": [0, 1],
    "rotary_embedding_dim": [4, 8],
    "local_window_size": [1, 4, 9, 30],
    "softcap": [0.5, 2.0, 30.0],
    "scale": [0.1, 0.25, 0.5],
    "epsilon": [1e-12, 1e-4, 1e-2, 0.5],
    "alpha": [0.5, 0.9, 1.702],
    "approximate": ["none", "tanh"],
    "axis": [-2, -1, 0, 1, 2],
    "upper": [0, 1],
}
# Attributes that an op has also where its node does not name them.
UNSAID = {
    "Attention": ["is_causal", "scale", "softcap"],
    "Gelu": ["approximate"],
    "GroupQueryAttention": "do_rotary local_window_size rotary_interleaved scale softcap".split(),
    "LayerNormalization": ["epsilon"],
    "RMSNormalization": ["epsilon"],
    "RotaryEmbedding": ["interleaved"],
    "SimplifiedLayerNormalization": ["epsilon"],
    "SkipSimplifiedLayerNormalization": ["epsilon"],
}
ORDERED = set("Add And Concat Div Less LessOrEqual Greater GreaterOrEqual MatMul Mul Sub".split())
OTHERS = {
    "Cos": ["Sin"],
    "Sin": ["Cos"],
    "Add": ["Sub", "Mul"],
    "Sub": ["Add"],
    "Mul": ["Add", "Div"],
    "Div": ["Mul"],
    "Neg": ["Abs", "Identity"],
    "And": ["Or"],
    "Less": ["LessOrEqual", "Greater"],
    "LessOrEqual": ["Less", "GreaterOrEqual"],
    "Greater": ["GreaterOrEqual", "Less"],
    "GreaterOrEqual": ["Greater", "LessOrEqual"],
    "Sigmoid": ["Tanh", "HardSigmoid", "Softplus"],
    "Tanh": ["Sigmoid", "Softsign"],
    "Softmax": ["LogSoftmax", "Identity"],
    "Max": ["Min"],
    "ReduceMean": ["ReduceSum", "ReduceMax", "ReduceL2"],
    "Sqrt": ["Abs", "Identity"],
    "Reciprocal": ["Neg"],
}


def attribute(rng, node):
    held = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    names = {n for n in held if n in ATTRIBUTES} | set(UNSAID.get(node.op_type, ()))
    perms = [n for n in held if n == "perm" and len(held[n]) > 2]
    if not names and not perms:
        return None
    name = str(rng.choice(sorted(names) + perms))
    if name == "perm":
        value = list(held[name])
        i, j = (int(k) for k in rng.choice(len(value), 2, replace=False))
        value[i], value[j] = value[j], value[i]
    else:
        values = [v for v in ATTRIBUTES[name] if v != held.get(name)]
        value = values[int(rng.integers(len(values)))]

    def apply(n):
        kept = [a for a in n.attribute if a.name != name]
        del n.attribute[:]
        n.attribute.extend([*kept, helper.make_attribute(name, value)])

    return f"{name} {value}", apply


def inputs(rng, node):
    if node.op_type not in ORDERED or len(node.input) < 2 or node.input[0] == node.input[1]:
        return None

    def apply(n):
        n.input[0], n.input[1] = n.input[1], n.input[0]

    return "inputs swapped", apply


def outputs(rng, node):
    if len(node.output) < 2 or not (node.output[0] and node.output[1]):
        return None
    order = [int(k) for k in rng.permutation(len(node.output))]
    if node.op_type != "Split" or order == sorted(order):
        return None

    def apply(n):
        names = [n.output[k] for k in order]
        del n.output[:]
        n.output.extend(names)

    return f"outputs in the order {order}", apply


def other(rng, node):
    kinds = OTHERS.get(node.op_type)
    if not kinds or node.domain not in ("", "ai.onnx"):
        return None
    kind = kinds[int(rng.integers(len(kinds)))]

    def apply(n):
        n.op_type = kind
        if kind in ("Identity", "Abs"):
            del n.attribute[:]

    return f"is {kind}", apply


NODES = [attribute, attribute, attribute, inputs, inputs, outputs, other, other]
