#!/usr/bin/env bash
# invariant-plan.sh MODEL.onnx: a batch-invariant plan, whose only kernels are those of @extend, is
# checked by them as it is compiled.
set -euo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
compilePlan "$1" -o invariant.plan --gpu-arch="$GPT2C_TEST_ARCH" --precision=fp16 --max-batch=8 \
  --batch-invariant
rm -f invariant.plan
