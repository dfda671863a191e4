"""Draws choices and their twists, for graphs like GPT-2 and like Llama."""

import numpy as np

import choices
import graphs
import lengths
import llama_choices


class Draw:
    """Sound choices and twists of them, each (words, what it adds to the choices)."""

    def __init__(self, sound_choices, twists, seed, only):
        self.sound, self.twists, self.seed, self.only = sound_choices, twists, seed, only

    def words(self):
        text = " ".join(f"{k}={getattr(v, '__name__', v)}" for k, v in self.sound.items() if v)
        return text if self.only is None else f"{text}, twisted in layer {self.only}"

    def model(self, twists):
        chosen = {**self.sound}
        for _, more in twists:
            chosen.update(more)
        shared = "vocab positions position_ids attention_mask past ids types".split()
        others = {**self.sound, **{k: chosen[k] for k in shared if k in chosen}}
        return graphs.Gpt(np.random.default_rng(self.seed), chosen, self.only, others).model()


def draw(rng):
    """One to three twists of different kinds."""
    family = llama_choices if rng.random() < 0.5 else choices
    base, twists = family.sound(rng), []
    count = int(rng.choice([1, 2, 3], p=[0.5, 0.3, 0.2]))
    kinds = [*family.TWISTS, *lengths.TWISTS]
    for i in rng.choice(len(kinds), count, replace=False):
        said, more = kinds[i](rng, base)
        twists.append((said, more))
    only = int(rng.integers(base["layers"])) if rng.random() < 0.3 else None
    return Draw(base, twists, int(rng.integers(1 << 30)), only)
