#!/usr/bin/env bash
# check-rows.sh FOLDER cpu|cuda: compiles FOLDER/model.onnx for the device in fp32, fp16 and bf16,
# and with KV states of bytes, and compares calls over rows of several sequences with each sequence
# alone.
set -uo pipefail
. "$GPT2C_SOURCE_DIR/tests/e2e/common/plan.sh"
failed=0
# precision:tolerance:state. What is off by a rounding may be a step off in a state of bytes.
for kind in fp32:2e-4 fp16:2e-2 bf16:1.6e-1 fp32:2e-2:int8 fp16:4e-2:int8 fp16:2e-1:fp8; do
  IFS=: read -r precision tolerance state <<<"$kind"
  makePlan "$1" "$2" rows.plan --precision="$precision" ${state:+--kv-type="$state"}
  e2e_rows rows.plan "$2" "$tolerance" || failed=1
done
rm -f rows.plan
exit $failed
