#!/usr/bin/env bash
# gpt2c-run -i on the sample: turns, commands, line editing, history, Ctrl-C.
set -uo pipefail
rm -rf state
gpt2c "$GPT2C_SOURCE_DIR/examples/sample/model.onnx" -o sample.plan --gpu-arch=none 2>/dev/null ||
  exit 1
timeout 300 python3 "$GPT2C_SOURCE_DIR/tests/e2e/interactive.py" sample.plan
rc=$?
rm -rf state sample.plan
exit $rc
