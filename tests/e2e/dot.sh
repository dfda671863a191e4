#!/usr/bin/env bash
# Graphviz reads what gpt2c-dump --dot writes, whatever the names of the ONNX nodes.
set -uo pipefail
. "$GPT2C_SOURCE_DIR/tests/skip.bash"
command -v dot >/dev/null || skip "Graphviz (dot) is not installed"
gpt2c "$GPT2C_SOURCE_DIR/examples/sample/model.onnx" -o sample.plan --gpu-arch=none || exit 1
gpt2c-dump sample.plan --dot -o sample.dot && dot -Tsvg sample.dot -o sample.svg || exit 1
for function in forward prefill decode; do
  grep -q "@$function" sample.svg || { echo "FAIL: no $function in the drawing"; exit 1; }
done
rm -f sample.plan
