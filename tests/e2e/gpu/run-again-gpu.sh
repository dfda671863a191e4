#!/usr/bin/env bash
# The same logits from run to run on a GPU, where an SM has several tiles of a product: eight
# windows of 1000 tokens at once, the width of GPT-2, twice each.
set -uo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
source "$GPT2C_SOURCE_DIR/tests/e2e/need-onnx.bash"
needOnnx
python3 "$GPT2C_SOURCE_DIR/bench/make-model.py" model.onnx --width=768 --heads=12 --layers=6 \
  --vocab=512 || exit 1
gpuPlan model.onnx model.plan --precision=fp16 --max-batch=8
awk 'BEGIN { srand(7); for (i = 0; i < 400000; i++) print int(rand() * 512) }' >text.ids
gpt2c-eval model.plan --baseline=model.plan --device=cuda --text=text.ids --window=1000 -b 8 \
  -o json >again.json || exit 1
error=$(grep -o '"largest_logit_error": [-0-9.e]*' again.json | tail -1 | sed 's/.*: //')
rm -f model.onnx* model.plan
[ "$error" = 0 ] || { echo "FAIL: logits differ by $error from run to run"; exit 1; }
