#!/usr/bin/env bash
# state-bytes.sh MODEL.onnx: rows of several sequences over pages of int8 and of fp8, against each
# sequence alone, over a state of the same type that is no pages.
set -euo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
for state in int8 fp8; do
  compilePlan "$1" -o bytes.plan --gpu-arch="$GPT2C_TEST_ARCH" --precision=fp16 --kv-type=$state \
    --verify=off
  for function in extend steps; do
    gpt2c-dump bytes.plan --steps --function=$function >steps.txt
    grep -q attention_ steps.txt || {
      cat steps.txt
      echo "FAIL: no kernels of @$function"
      exit 1
    }
  done
  e2e_rows bytes.plan cuda 2e-2 1
done
rm -f bytes.plan steps.txt
