#!/usr/bin/env bash
# gpt2c-serve on the sample, on the CPU device: answers, scores, errors, limits, disconnects, drain.
set -uo pipefail
. "$GPT2C_SOURCE_DIR/tests/skip.bash"
command -v gpt2c-serve >/dev/null || skip "no gpt2c-serve: Boost's headers are missing"
gpt2c "$GPT2C_SOURCE_DIR/examples/sample/model.onnx" -o sample.plan --gpu-arch=none 2>/dev/null ||
  exit 1
PYTHONPATH=$GPT2C_SOURCE_DIR/.deps/python timeout 300 \
  python3 "$GPT2C_SOURCE_DIR/tests/e2e/serve.py" sample.plan
rc=$?
rm -f sample.plan
exit $rc
