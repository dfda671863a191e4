#!/usr/bin/env python3
"""Graphs that were once compiled into something else without a word, or ended a tool: what has to
come of each.

    findings.py OUT [CASE...]

Each line of CASES is a name, the choices that make the graph (graphs.py), and what is expected:
`equal` to ONNX Runtime in @forward and in generation, or `refused` with a code of the design; and
what gpt2c has to say, in a remark or in the error. Each is
compiled with the check of the finished plan and without it: the passes have to be right alone. Exit
code 8 where a case is not as expected, 77 without ONNX Runtime. The tools are taken from PATH.
"""

import pathlib
import re
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1]))
from skip import skip  # noqa: E402

try:
    import numpy as np
    import onnx

    import choices as ch
    import graphs
    import halves
    import masks
    from harness import REFUSALS, Case, run
except ModuleNotFoundError as e:
    skip(f"{e.name} for Python is missing (scripts/setup.sh --tests)")

C, H = 24, 4


def swapped(a):
    values = np.arange(C)
    values[[a, a + 1]] = values[[a + 1, a]]
    return lambda g, p: g.op("Gather", g.const(values, np.int64), p)


def numbers(kind, by):
    return lambda g, p: g.op(kind, p, g.const(by, np.int64))


def remapped(g, ids):
    return g.op("Where", g.op("Equal", ids, g.const(5, np.int64)), g.const(7, np.int64), ids)


STRONG = {"strong": {"qkv": 8}}
ROPE = {"kind": "half", "how": "computed", "base": 1e4, "dims": 8}
LLAMA = {
    "kv_heads": 2,
    "norm": "rms",
    "bias": False,
    "gated": "two",
    "act": "silu",
    "rope": ROPE,
    "past": True,
    "attention_mask": True,
    "position_ids": True,
    "seen": masks.computed,
}
FUSED = r"(?s)\A(?!.*missed:)"  # nothing was
CASES = {
    "sound": ({}, "equal", ""),
    # Something on the scores
    "scores-clipped-4": (
        {"strong": {"qkv": 3}, "scores": ch.clip(-4, 4)},
        "equal",
        "limits the scores at",
    ),
    "scores-clipped-50": (
        {"strong": {"qkv": 9}, "scores": ch.clip(-50, 50)},
        "equal",
        "limits the scores at",
    ),
    "scores-at-most-9": (
        {"strong": {"qkv": 5}, "scores": lambda g, x: g.op("Min", x, g.const(9))},
        "equal",
        "limits the scores at 9",
    ),
    "scores-where-above-5": (
        {"strong": {"qkv": 4}, "scores": ch.above(5.0, -1.0)},
        "equal",
        "no step from scores to probabilities",
    ),
    "scores-soft-cap-30": (
        {"strong": {"qkv": 6}, "scores": ch.soft_cap(30)},
        "equal",
        FUSED,
    ),
    # Of a past that one layer's attention reads and another's ops do.
    "scores-soft-cap-5-in-one-layer": (
        {
            "past": True,
            "attention_mask": True,
            "cut_mask": True,
            "scores": ch.soft_cap(5),
            "only": 1,
        },
        "equal",
        FUSED,
    ),
    # Masks
    "mask-value-20": ({**STRONG, "fill": -20.0}, "equal", "does not hide the key"),
    "mask-value-50": ({**STRONG, "fill": -50.0}, "equal", "does not hide the key"),
    "mask-value-100": ({**STRONG, "fill": -100.0}, "equal", "does not hide the key"),
    "mask-value-1e4-strong": (
        {"strong": {"qkv": 300}, "fill": -1e4},
        "equal",
        "hides keys by a finite number",
    ),
    # One window in all rows is the attention's own; another mask stays, and is named.
    "window-6": ({"seen": masks.window(6)}, "equal", ""),
    "window-7": ({"seen": masks.window(7)}, "equal", ""),
    "window-23": ({"seen": masks.window(23)}, "equal", ""),
    "window-24": ({"seen": masks.window(24)}, "equal", ""),
    "window-9-each-head": ({"seen": masks.each_head(9)}, "equal", ""),
    "window-7-scaled": ({"seen": masks.scaled_window(7)}, "equal", ""),
    # A token that is hidden sees no key: its row is padding.
    "window-1-masked": (
        {"seen": masks.window(1), "attention_mask": True, "past": True},
        "equal",
        "",
    ),
    "windows-by-head": ({"seen": masks.by_head([C, 8, C, 12])}, "equal", "in head 1"),
    "mask-strictly-lower": ({"seen": masks.shifted(-1)}, "equal", "sees no key"),
    "mask-without-corner": ({"seen": masks.hole(C - 1, 0)}, "equal", ""),  # a window of C - 1
    "mask-with-hole": (
        {"seen": masks.hole(C - 1, 1)},
        "equal",
        "hides key 1 of 24 from query 23",
    ),
    "mask-by-blocks": (
        {"seen": masks.stored(lambda s, q, k: s & (q // 12 == k // 12))},
        "equal",
        "hides key 0 of 24 from query 12",
    ),
    "pad-token-0": ({"seen_too": masks.hidden_ids(0)}, "equal", "by their token ids"),
    # A first id that is hidden leaves a row of equal shares, and infinities a row of NaN.
    "first-key-hidden": (
        {"seen_too": masks.hidden_ids(0), "fill": np.finfo(np.float32).min, "vocab": 4},
        "equal",
        "by their token ids",
    ),
    "first-key-hidden-of-ids-remapped": (
        {"seen_too": masks.hidden_ids(0), "fill": -np.inf, "vocab": 4, "ids": remapped},
        "equal",
        "by their token ids",
    ),
    # Names of sizes that the graph contradicts: ONNX Runtime does not read them.
    "mask-declared-too-short": (
        {"past": True, "attention_mask": True, "mask_dims": ["batch", "seq"]},
        "equal",
        r"'attention_mask' is declared i64\[batch, seq\]",
    ),
    "mask-strictly-lower-of-infinities": (
        {"seen": masks.shifted(-1), "fill": -np.inf, "added": True},
        "refused",
        "sees no key",
    ),
    # Keys and values
    "values-are-keys": ({"order": (0, 1, 1), "past": True}, "equal", ""),
    "values-and-keys-swapped": ({"order": (0, 2, 1), "past": True}, "equal", ""),
    # Activations and norms
    "gelu-clipped-10": (
        {"strong": {"mlp/fc": 12}, "activated": ch.clip(-10, 10)},
        "equal",
        "(min|max|clip) .*launch of its own",
    ),
    "gelu-at-most-9": (
        {"strong": {"mlp/fc": 12}, "activated": lambda g, x: g.op("Min", x, g.const(9))},
        "equal",
        "min .*launch of its own",
    ),
    "norm-clipped": ({"normalised": ch.clip(-2, 2)}, "equal", "(min|max|clip) .*launch of its own"),
    "variance-at-least": (
        {"variance": lambda g, x: g.op("Max", x, g.const(1.5))},
        "equal",
        "max .* is no part of a norm",
    ),
    # Positions
    "positions-modulo-8": ({"positions": numbers("Mod", 8)}, "equal", "token 8 has 0"),
    "positions-at-most-9": ({"positions": numbers("Min", 9)}, "equal", "token 10 has 9"),
    "positions-12-13-swapped": ({"positions": swapped(12)}, "equal", "token 12 has 13"),
    "positions-22-23-swapped": ({"positions": swapped(22)}, "equal", "token 22 has 23"),
    # Inputs and outputs
    "token-types": ({"types": True}, "equal", "token types are zeros"),
    "position-ids-and-token-types": (
        {"types": True, "position_ids": True},
        "equal",
        "token types are zeros",
    ),
    "position-ids-plus-2": (
        {"position_ids": True, "positions": numbers("Add", 2), "more_positions": 2},
        "equal",
        FUSED,
    ),
    "states-as-wide-as-vocabulary": ({"states": "first", "vocab": 32}, "equal", ""),
    "input-called-positions": ({"ids_name": "positions"}, "equal", ""),
    "ids-remapped": ({"ids": remapped}, "equal", ""),
    "output-called-kv": ({"logits_name": "kv"}, "equal", ""),
    "last-logits-only": ({"logits": ch.last_row}, "equal", ""),
    # Decoders like Llama. A mask of finite numbers hides because rotations stretch nothing.
    "llama": (LLAMA, "equal", FUSED),
    "llama-mask-value-1e4": ({**LLAMA, "fill": -1e4}, "equal", FUSED),
    "llama-mask-value-65504": ({**LLAMA, "fill": -65504.0, "added": True}, "equal", FUSED),
    "llama-mask-value-1e4-strong": (
        {**LLAMA, "strong": {"qkv": 300}, "fill": -1e4},
        "equal",
        "the weights let them reach",
    ),
    "llama-part-of-heads": ({**LLAMA, "rope": {**ROPE, "dims": 4}}, "equal", FUSED),
    "llama-pairs": ({**LLAMA, "rope": {**ROPE, "kind": "interleaved"}}, "equal", FUSED),
    "llama-queries-turned-back": ({**LLAMA, "rope": {**ROPE, "sign": "q"}}, "equal", ""),
    "llama-keys-a-token-ahead": ({**LLAMA, "rope": {**ROPE, "by": {"k": 1}}}, "equal", ""),
    "llama-frequencies-reversed": (
        {**LLAMA, "rope": {**ROPE, "order": [3, 2, 1, 0]}},
        "equal",
        "",
    ),
    "llama-values-turned": ({**LLAMA, "rotated": "qkv"}, "equal", ""),
    "llama-heads-in-turn": ({**LLAMA, "repeat": "tile"}, "equal", "not laid out by heads"),
    "llama-one-product-of-gates": ({**LLAMA, "gated": "split"}, "equal", FUSED),
    "llama-values-before-gates": ({**LLAMA, "gated": "swapped"}, "equal", FUSED),
    "llama-gates-in-turn": ({**LLAMA, "gated": "strided"}, "equal", FUSED),
    "llama-qkv-in-heads": ({**LLAMA, "qkv": "heads", "kv_heads": 4}, "equal", FUSED),
    "llama-qkv-on-an-axis": ({**LLAMA, "qkv": "axis", "kv_heads": 4}, "equal", FUSED),
    "llama-qkv-in-groups": ({**LLAMA, "qkv": "groups"}, "equal", FUSED),
    "llama-qkv-in-groups-of-columns": ({**LLAMA, "qkv": "heads"}, "equal", FUSED),
    "gpt2-qkv-in-heads": ({"qkv": "heads", "past": True}, "equal", FUSED),
    "llama-norms-of-heads": ({**LLAMA, "qk_norm": "before"}, "equal", FUSED),
    "llama-norms-behind-heads": ({**LLAMA, "qk_norm": "behind"}, "equal", FUSED),
    "llama-scores-soft-cap-5": ({**LLAMA, "scores": ch.soft_cap(5)}, "equal", FUSED),
}


def declared_batch(proto):
    proto.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 10**9


def million_sequences(proto):
    """The first Reshape that splits heads has 1000000 sequences."""
    shapes = {n.input[1] for n in proto.graph.node if n.op_type == "Reshape"}
    for weight in proto.graph.initializer:
        value = onnx.numpy_helper.to_array(weight).copy()
        if weight.name in shapes and value.shape == (4,) and value[2] == H:
            value[0] = 10**6
            weight.CopyFrom(onnx.numpy_helper.from_array(value, weight.name))
            return
    raise AssertionError("no such Reshape")


# Masks that are another one where fp16 is computed as the graph says; ONNX Runtime, which computes
# it in single precision, shows a sixth key.
ROUNDED = {"window-5-of-halves": (masks.scaled_window(5), masks.window(5))}


def rounded(name, folder, flags):
    """Why the plan of the first is not what ONNX Runtime makes of the other, or None."""
    given, meant = (
        graphs.Gpt(np.random.default_rng(0), {"heads": H, "context": C, "seen": seen}).model()
        for seen in ROUNDED[name]
    )
    for made in (given, meant):
        made.proto, made.half = halves.halved(made.proto)
    case = Case(meant, folder)
    onnx.save(given.half, str(folder / "model.onnx"))
    out = case.check(flags)
    if "is decided by rounding" not in case.remarks:
        return "nothing says that rounding decides"
    return None if out.state == "equal" else out.why


# Graphs that ONNX Runtime need not run: what is declared cannot be.
DECLARED = {"batch-1e9": declared_batch, "sequences-1e6": million_sequences}


def model(name):
    """With `only`, what is done to the scores is done in that layer alone."""
    made = {"heads": H, "context": C, **CASES[name][0]}
    only = made.pop("only", None)
    others = {k: v for k, v in made.items() if k != "scores"}
    return graphs.Gpt(np.random.default_rng(0), made, only, others).model()


def as_expected(name, folder, flags):
    """Why the case is not as expected, or None; and what came of it."""
    _, state, said = CASES[name]
    case = Case(model(name), folder)
    out = case.check(flags)
    if out.state != state:
        return f"expected {state}: {out.why}", out
    if not re.search(said, case.remarks):
        return f"nothing says '{said}'", out
    return None, out


def declared(name, folder):
    """A batch that no machine holds is compiled for a smaller one or refused."""
    folder.mkdir(parents=True, exist_ok=True)
    made = model("sound").proto
    DECLARED[name](made)
    onnx.save(made, str(folder / "model.onnx"))
    code, _, stderr = run(["gpt2c", "model.onnx", "-o", "p.plan", "--gpu-arch=none"], folder)
    return None if code in (0, 3, *REFUSALS) else f"gpt2c ends with {code}: {stderr[:200]}"


def main():
    out, wanted = pathlib.Path(sys.argv[1]), sys.argv[2:]
    verifies = "--verify=" in run(["gpt2c", "--help"], ".")[1]
    failed = 0
    for name in wanted or [*CASES, *DECLARED, *ROUNDED]:
        if name in DECLARED:
            why = declared(name, out / name)
            print(f"{name}: " + (f"FAILED: {why}" if why else "ok"))
            failed += why is not None
            continue
        if name in ROUNDED:
            for flags in ((), ("-O0",), ("--precision=fp16",)):
                why = rounded(name, out / name, flags)
                print(f"{name} {' '.join(flags)}: " + (f"FAILED: {why}" if why else "ok"))
                failed += why is not None
            continue
        for flags in [(), ("--verify=off",)] if verifies else [()]:
            why, outcome = as_expected(name, out / name, flags)
            print(
                f"{name} {' '.join(flags)}: "
                + (f"FAILED: {why}" if why else f"{outcome.state} {outcome.why}"),
                flush=True,
            )
            failed += why is not None
    sys.exit(8 if failed else 0)


if __name__ == "__main__":
    main()
