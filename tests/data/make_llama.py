#!/usr/bin/env python3
"""make_llama.py OUT.onnx CONTEXT LAYERS WIDTH HIDDEN HEADS KEY_HEADS VOCABULARY [HEAD_DIM TIED
[NORMED]]: a decoder like Llama with random weights, as bench/bench-decoder.py builds it."""
import pathlib
import sys

import numpy as np
import onnx

out, context, *sizes = sys.argv[1:]
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "bench"))
from common import sibling  # noqa: E402

maker = sibling("bench-decoder.py")
graph = sibling("make-model.py").Graph(np.random.default_rng(1))
onnx.save(maker.Decoder(graph, tuple(map(int, sizes)), int(context)).build(), out)
