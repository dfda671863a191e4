#!/usr/bin/env python3
"""make_llama.py OUT.onnx CONTEXT LAYERS WIDTH HIDDEN HEADS KEY_HEADS VOCABULARY: a decoder like
Llama with random weights, as bench/bench-decoder.py builds it."""
import importlib.util
import pathlib
import sys

import numpy as np
import onnx

out, context, *sizes = sys.argv[1:]
path = pathlib.Path(__file__).parents[2] / "bench" / "bench-decoder.py"
spec = importlib.util.spec_from_file_location("bench_decoder", path)
maker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(maker)
graph = maker.sibling("make-model.py").Graph(np.random.default_rng(1))
onnx.save(maker.Decoder(graph, tuple(map(int, sizes)), int(context)).build(), out)
