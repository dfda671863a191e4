"""LoRA adapters of checkpoints that draws.py draws: random configurations of PEFT, and what they
make of the weights in float64."""
import re

import numpy as np


class Adapter:
    def __init__(self, draw):
        self.draw, self.r, self.tensors = draw, draw.r, {}
        self.head = {"gpt_neox": "embed_out"}.get(draw.family, "lm_head")
        self.tables = [n for n in draw.w if re.search(r"\.(wte|wpe|embed_tokens|embed_in)\.", n)]
        tied = draw.c["tie_word_embeddings"]
        modules = [n[:-len(".weight")] for n, w in draw.w.items()
                   if n.endswith(".weight") and w.ndim == 2
                   and not (tied and n in self.tables and "wpe" not in n)]
        last = sorted({m.split(".")[-1] for m in modules})
        kinds = self.r.sample(last, self.r.randint(1, min(3, len(last))))
        layer = self.r.randrange(draw.layers)
        c = self.config = {
            "peft_type": "LORA", "task_type": self.r.choice(["CAUSAL_LM", None]), "bias": "none",
            "r": self.r.randint(1, 5), "lora_alpha": self.r.choice([1, 4, 2.5]),
            "lora_dropout": 0.05, "use_rslora": draw.flag(), "use_dora": False,
            "fan_in_fan_out": draw.flag(), "target_modules": kinds, "rank_pattern": {},
            "alpha_pattern": {}, "init_lora_weights": self.r.choice([True, False, "gaussian"]),
            "modules_to_save": None, "exclude_modules": None, "inference_mode": True}
        chosen = [m for m in modules if m.split(".")[-1] in kinds]
        in_layer = [m for m in chosen if f".{layer}." in m]
        form = self.r.randrange(4)
        if form == 0:
            c["target_modules"] = r".*\.(?:" + "|".join(kinds) + ")|" + "|".join(kinds)
        elif form == 1 and in_layer:
            chosen, c["layers_to_transform"] = in_layer, self.r.choice([layer, [layer]])
        elif form == 2 and len(chosen) > 1:
            c["exclude_modules"] = [chosen.pop()]
        if draw.flag():
            c["rank_pattern"] = {kinds[0]: 3}
        if draw.flag():
            c["alpha_pattern"] = {"^" + re.escape(chosen[0]) if draw.flag() else chosen[0]: 7}
        self.scales = {m: self.low_rank(m) for m in chosen}
        self.saved = [n for n in draw.w if re.search(r"(\.norm|ln_f|final_layer_norm)\.", n)]
        if draw.flag():
            self.saved = []
        else:
            c["modules_to_save"] = sorted({n.split(".")[-2] for n in self.saved})
        for name in self.saved:
            self.tensors["base_model.model." + name] = self.values(*draw.w[name].shape, about=1)

    def values(self, *shape, about=0):
        """Values that every type of weights holds."""
        values = self.draw.rng.standard_normal(shape) * 0.25 + about
        bits = values.astype(np.float32).view(np.uint32) & 0xFFFF0000  # bfloat16
        return bits.view(np.float32).astype(np.float16).astype(np.float64)

    def inputs_first(self, module):
        return module + ".weight" in self.tables or (self.draw.family == "gpt2"
                                                     and module != self.head)

    def low_rank(self, module):
        """A and B of a module; the factor of their product."""
        c, shape = self.config, self.draw.w[module + ".weight"].shape
        rank = c["rank_pattern"].get(module.split(".")[-1], c["r"])
        alpha = 7 if any(re.match(rf"(.*\.)?({p})$", module) for p in c["alpha_pattern"]) \
            else c["lora_alpha"]
        in_, out = shape if self.inputs_first(module) else shape[::-1]
        a, b = ("embedding_A", "embedding_B") if module + ".weight" in self.tables \
            else ("A.weight", "B.weight")
        self.tensors[f"base_model.model.{module}.lora_{a}"] = self.values(rank, in_)
        self.tensors[f"base_model.model.{module}.lora_{b}"] = self.values(out, rank)
        return alpha / (rank ** 0.5 if c["use_rslora"] else rank)

    def merged(self):
        merged = dict(self.draw.w)
        for module, scale in self.scales.items():
            a, b = (next(v for n, v in self.tensors.items() if re.fullmatch(
                re.escape(f"base_model.model.{module}.lora_") + f"(embedding_)?{x}(.weight)?", n))
                for x in "AB")
            change = scale * (b @ a)
            merged[module + ".weight"] = merged[module + ".weight"] + (
                change.T if self.inputs_first(module) else change)
        for name in self.saved:
            merged[name] = self.tensors["base_model.model." + name]
        return merged
