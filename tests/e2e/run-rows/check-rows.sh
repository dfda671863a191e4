#!/usr/bin/env bash
# check-rows.sh FOLDER cpu|cuda: compiles FOLDER/model.onnx for the device in fp32, fp16 and bf16
# and compares calls over rows of several sequences with each sequence alone.
set -uo pipefail
. "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
failed=0
for kind in fp32:2e-4 fp16:2e-2 bf16:1.6e-1; do
  makePlan "$1" "$2" rows.plan --precision="${kind%:*}"
  e2e_rows rows.plan "$2" "${kind#*:}" || failed=1
done
rm -f rows.plan
exit $failed
