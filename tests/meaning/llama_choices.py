"""The same as choices.py for a graph that is built like Llama."""

import numpy as np

import choices as ch
from choices import changed, pick, soft_cap, times


def sound(rng):
    """A decoder with rotary embedding, and what often comes with it."""
    choices = ch.sound(rng)
    heads = int(pick(rng, [2, 4, 4]))
    choices.update(
        heads=heads,
        kv_heads=int(pick(rng, [heads, heads // 2, 1])),
        head_dim=8,
        norm=pick(rng, ["rms", "rms", "rms", "op"]),
        bias=bool(rng.random() < 0.2),
        gated=pick(rng, ["two", "two", "split", None]),
        act=pick(rng, ["silu", "silu", "tanh", "erf"]),
        repeat=pick(rng, ["expand", "gather", "concat"]),
        rope=dict(
            kind=pick(rng, ["half", "half", "interleaved"]),
            how=pick(rng, ["computed", "table", "gathered"]),
            base=float(pick(rng, [100.0, 1e4, 5e5])),
            dims=int(pick(rng, [8, 8, 4])),
            factor=float(pick(rng, [1, 1, 0.25])),
        ),
        position_ids=bool(rng.random() < 0.3),
    )
    if rng.random() < 0.25:
        choices["qkv"] = pick(rng, ["heads", "axis", "groups"])
    elif rng.random() < 0.15:
        choices["qk_norm"] = pick(rng, ["before", "behind"])  # the heads come before tokens
    return choices


def rope(rng, c):
    """Another rotation. What is added to the positions of q alone moves what the keys mean."""
    one, part = c["rope"], pick(rng, ["q", "k"])
    half = (one["dims"] or c["head_dim"]) // 2
    factor = float(pick(rng, [-1.0, 0.5, 1.001, 2.0]))
    said, more = pick(
        rng,
        [
            ("frequencies in another order", {"order": rng.permutation(half)}),
            (f"positions times {factor}", {"factor": factor}),
            ("cos and sin times 0.9", {"scale": 0.9}),
            ("cos and sin swapped", {"swapped": True}),
            (f"{part} turned back", {"sign": part}),
            (f"{part} turned by 1 more", {"by": {part: 1}}),
            ("q and k turned by 3 more", {"by": {"q": 3, "k": 3}}),
            ("another base", {"base": float(pick(rng, [2.0, 1e3, 1e6]))}),
            ("the other kind", {"kind": "half" if one["kind"] != "half" else "interleaved"}),
            ("other dims", {"dims": 12 - one["dims"]}),
            ("angles another way", {"how": pick(rng, ["computed", "table", "gathered"])}),
        ],
    )
    return f"rope: {said}", {"rope": {**one, **more}}


def rotated(rng, c):
    which = pick(rng, ["q", "k", "qv", "qkv", "v"])
    return f"only {' and '.join(which)} turned", {"rotated": which}


def shared_heads(rng, c):
    order = rng.integers(0, c["kv_heads"], c["heads"])
    return pick(
        rng,
        [
            ("keys tiled over heads", {"repeat": "tile"}),
            (f"keys of heads {order.tolist()}", {"repeat": "gather", "head_order": order}),
        ],
    )


def gate(rng, c):
    said, f = changed(rng)
    return pick(
        rng,
        [
            ("gate and up of one product", {"gated": "split"}),
            ("up and gate of one product", {"gated": "swapped"}),
            ("gate and up in turn", {"gated": "strided"}),
            (f"up: {said}", {"up": f, "gated": "two"}),
            ("GELU", {"act": "tanh"}),
            ("quick GELU", {"act": "quick"}),
            ("ReLU", {"act": "relu"}),
        ],
    )


def other_models(rng, c):
    """What some models of this family do besides."""
    root = float(np.float32((c["heads"] * c["head_dim"]) ** 0.5))
    return pick(
        rng,
        [
            ("norms of q and k", {"qk_norm": pick(rng, ["before", "behind"])}),
            ("gains plus 1", {"shifted_gain": True}),
            (f"embeddings times {root:g}", {"embedded": times(root)}),
            ("soft cap of scores", {"scores": soft_cap(float(pick(rng, [0.5, 5.0, 50.0])))}),
            ("soft cap of logits", {"logits": soft_cap(float(pick(rng, [0.5, 5.0, 30.0])))}),
        ],
    )


TWISTS = [
    ch.scores,
    ch.heads_of,
    ch.part,
    ch.part,
    ch.epsilon,
    ch.seen,
    ch.seen_ids,
    ch.fill,
    ch.positions,
    ch.positions,
    ch.ids,
    ch.ports,
    ch.scale,
    rope,
    rope,
    rope,
    rotated,
    shared_heads,
    gate,
    gate,
    other_models,
]
