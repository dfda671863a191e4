"""Writes cases.jsonl: inputs and expected outputs for every op of the IR, from references that
share no code with us.

ONNX Runtime computes the ops that ONNX has; numpy in double precision the ones that only we have,
and the few that ONNX Runtime lacks on the CPU. Run by hand after an op or a case was added:

    pip install ml_dtypes numpy onnx onnxruntime && python generate.py

One JSON object a line: op, name, attrs, inputs, outputs, tol. A tensor is {t: dtype, s: shape, d:
little-endian bytes in hex, c: 1 when it is a constant rather than an argument}; null is an absent
operand. tol is relative to 1 + |expected|; native: 1 when the case is about the rounding of a
narrow type, which a run in double precision does not do; slack: a tensor of what kernels of a GPU
may be off by beside tol, where they round an operand that the op does not.
"""
import json
import os

import bfloat_cases
import decoder_cases
import fp8_cases
import fused_cases
import int4_cases
import int8_cases
import onnx_cases
import rank_cases
import state_cases
from reference import cases

for part in (onnx_cases.elementwise_unary, onnx_cases.elementwise_binary, onnx_cases.movement,
             onnx_cases.indexing,
             onnx_cases.reductions, onnx_cases.algebra, fused_cases.fused, onnx_cases.brain_floats,
             int8_cases.int8,
             fused_cases.biased_attention, fused_cases.added_norms, int8_cases.int8_tables,
             fused_cases.masked_softmaxes,
             int8_cases.affine, fused_cases.last_queries, int8_cases.given_scales,
             decoder_cases.ropes, decoder_cases.shared_heads, decoder_cases.gates,
             decoder_cases.pages, decoder_cases.rms_norms, decoder_cases.windows,
             decoder_cases.interleaved_gates, bfloat_cases.bfloats, decoder_cases.pages_of_64,
             fused_cases.later_activations, decoder_cases.ropes_to_halves,
             decoder_cases.soft_caps, fp8_cases.fp8s, decoder_cases.ropes_of_normed_heads,
             fp8_cases.fp8_rows, int4_cases.int4s, rank_cases.of_ranks,
             state_cases.states, fp8_cases.fp8_blocks):
    part()
path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "cases.jsonl")
with open(path, "w") as out:
    for c in cases:
        out.write(json.dumps(c, separators=(",", ":")) + "\n")
print(len(cases), "cases of", len({c["op"] for c in cases}), "ops,", os.path.getsize(path), "bytes")
