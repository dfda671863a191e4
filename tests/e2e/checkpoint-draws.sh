#!/usr/bin/env bash
# Checkpoints of every family with sizes, biases, rotations, windows and files as they are drawn
# give the logits of a reference in float64.
set -euo pipefail
. "$GPT2C_SOURCE_DIR/tests/e2e/need-onnx.bash"
needOnnx
exec python3 "$GPT2C_SOURCE_DIR/tests/e2e/checkpoint-draws/draws.py" "18"
