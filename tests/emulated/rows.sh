#!/usr/bin/env bash
# rows.sh MODEL.onnx: calls of extend() for one sequence of the model in fp32, against the sequence
# alone, and choices by temperature, with masks too, against the host's.
set -euo pipefail
source "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
compilePlan "$1" -o rows.plan --gpu-arch="$GPT2C_TEST_ARCH" --verify=off
e2e_rows rows.plan cuda 2e-4 1
rm -f rows.plan
