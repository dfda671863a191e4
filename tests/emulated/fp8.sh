#!/usr/bin/env bash
# A prompt through products of fp8, whose rows norms, attention and GELU quantise, against the IR in
# double precision.
set -euo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
compilePlan "$GPT2C_SOURCE_DIR/examples/sample/model.onnx" -o fp8.plan \
  --gpu-arch="$GPT2C_TEST_ARCH" --precision=fp16 --max-batch=1 --verify=off --quantize=fp8 \
  --widen-weights=never
gpt2c-dump fp8.plan --steps --function=prefill --symbols=batch=1,seq=40,slots=1 >steps.txt
for step in "layer_norm+quantize " "append_attention+quantize " \
  "requantized_linear+.* linear_int8_tma "; do
  grep -q "$step" steps.txt || {
    cat steps.txt
    echo "FAIL: no $step"
    exit 1
  }
done
gpt2c-compare fp8.plan --device=cuda --function=prefill --batch=1 --tokens=40
rm -f fp8.plan steps.txt
